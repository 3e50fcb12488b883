//! Figures of a job, against programs that know their own truth.

mod place;
mod truth;

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use gang_bpf::{GangSums, Meter, NotMeasured, SLOTS_MAX, SchedClass, SlotTime};
use gang_harness::{TEST_TIMEOUT, skipped, wait_until};
use gang_linux::{
    clock, process,
    sched::{self, Attributes},
};
use gang_protocol::{client::Registration, v1};
use place::{Place, Program, is_root, job_with, machine, registration};
use truth::{Ended, Knowing, LASTS, THREADS, cpus, truth_of};

/// Not a test of its own: the programs, which tests run in other processes.
#[test]
fn the_program_that_knows() {
    truth::be_what_is_asked_for();
}

/// Waits until the daemon measures, or knows why it cannot.
fn settled(place: Place) -> Place {
    wait_until("it is measured, or not", || place.status().measuring != v1::Measuring::starting);
    place
}

/// False where the kernel or the build does not let gangd measure; says so.
fn measures(job: &v1::Job) -> bool {
    if let Some(reason) = &job.not_measured {
        skipped(format!("not measured: {reason}"));
    }
    job.not_measured.is_none()
}

fn details(place: &Place, job: i64) -> v1::Job {
    place.client().show_job(job).unwrap().details
}

/// A meter of the test's own, where there can be one; says why not.
fn own_meter() -> Option<Meter> {
    if !is_root() {
        return None;
    }
    Meter::start().inspect_err(|reason| skipped(format!("not measured: {reason}"))).ok()
}

/// The number of a job's group; says where it has none.
fn group_of(place: &Place, job: i64) -> Option<u64> {
    let group = details(place, job).cgroup;
    if group.is_none() {
        skipped("jobs have no groups of their own here");
    }
    group.map(|group| fs::metadata(group).unwrap().ino())
}

/// A job that Linux schedules as ever.
fn unscheduled(place: &Place, name: &str, programs: &[&Program]) -> i64 {
    let none = Registration { policy: v1::Policy::none, ..registration(name, 1) };
    let mut client = place.client();
    let job = client.register(&none).unwrap();
    for program in programs {
        client.add_process(job, program.pid_i64()).unwrap();
    }
    job
}

/// A daemon that can raise gangs, where that is permitted to root.
fn raising(flags: &[&str]) -> Option<Place> {
    if !is_root() {
        return None;
    }
    if let Some(reason) = Place::new(&["--backend", "signal"]).obstacle("rt") {
        skipped(format!("rt: {reason}"));
        return None;
    }
    Some(settled(Place::new(&[&["--backend", "rt"], flags].concat())))
}

/// A share of the time that each of the gang's threads had.
fn share(ns: i64) -> f64 {
    ns as f64 / THREADS as f64 / LASTS.as_nanos() as f64
}

/// The comparisons, and those that differ.
#[derive(Default)]
struct Compared {
    differs: Vec<String>,
}

impl Compared {
    fn near(&mut self, what: &str, measured: f64, truth: f64, tolerance: f64) {
        println!("{what}: measured {measured:.5}, in truth {truth:.5}");
        self.within(what, measured, (truth - tolerance, truth + tolerance));
    }

    fn within(&mut self, what: &str, measured: f64, (least, most): (f64, f64)) {
        if !(least..=most).contains(&measured) {
            self.differs.push(format!("{what}: {measured}, in truth {least} to {most}"));
        }
    }
}

/// Only programs see that a host takes a CPU away, and a plan that comes late is not the one that
/// was measured against. Then a test is tried again.
const TRIES: usize = 8;

fn agrees_in_time(mut compare: impl FnMut() -> Option<Compared>) {
    for left in (0..TRIES).rev() {
        let Some(Compared { differs }) = compare() else { return };
        assert!(left > 0 || differs.is_empty(), "{differs:#?}");
        if differs.is_empty() {
            return;
        }
        println!("once more: {differs:#?}");
    }
}

/// The times of a job on a CPU, which it must have used.
fn on_cpu(job: &v1::Job, cpu: u32) -> &v1::OnCpu {
    let of_cpus = measured(job).per_cpu.as_ref().unwrap();
    of_cpus.iter().find(|it| it.cpu == i64::from(cpu)).expect("it was there")
}

#[test]
#[ignore = "nightly: needs CPUs that nobody takes away, to compare figures"]
fn needs_root_and_bpf_figures_agree_with_a_program() {
    agrees_in_time(|| under_plain_linux(&raising(&[])?));
}

/// All of the time is slot. None where it cannot be measured.
fn under_plain_linux(place: &Place) -> Option<Compared> {
    let mut client = place.client();
    let none = Registration { policy: v1::Policy::none, ..registration("truth", 2) };
    let job = client.register(&none).unwrap();
    let mut program = Knowing::gang();
    client.add_process(job, program.pid()).unwrap();
    let before = details(place, job);
    if !measures(&before) {
        return None;
    }
    // Somebody must be in its way.
    let other = Program::spinner();
    sched::set_affinity(other.pid(), [cpus()[0]]).unwrap();
    program.go();
    let threads = program.truth();
    let job = details(place, job);
    let always = [(0, u64::MAX)];
    let truth = truth_of(&threads, &always);
    let mut compared = Compared::default();
    compared.near("coscheduled", job.coscheduled().unwrap(), truth.coscheduled(), 0.01);
    let lost_ns = measured(&job).lost_ns - measured(&before).lost_ns;
    let lost = share(truth.lost_ns as i64);
    // On a busy machine a thread may read its beginning when that has passed.
    compared.near("lost", share(lost_ns), lost, 0.01 + lost / 100.0);
    let culprits = measured(&job).lost_to.as_ref().unwrap();
    let lost_ns: i64 = culprits.iter().map(|culprit| culprit.ns).sum();
    assert!(lost_ns <= measured(&job).lost_ns, "{culprits:?}");
    let known = culprits.iter().find(|culprit| culprit.pid == other.pid_i64());
    let known = known.map(|culprit| culprit.name.as_str());
    // Its name is not that of the shell that it was before. Five culprits are reported, and on a
    // busy machine others may be worse.
    if known != Some("bash") && culprits.len() < 5 {
        compared.differs.push(format!("who was in its way is not reported: {culprits:?}"));
    }
    on_cpus(&mut compared, &job, &threads, &always);
    Some(compared)
}

const MS: u64 = 1_000_000;

/// Slots of a millisecond each, one every other millisecond, from a moment on.
fn short_slots(from_ns: u64) -> Vec<SlotTime> {
    let start_ns = |number: u64| from_ns + number * 2 * MS;
    (0..SLOTS_MAX as u64).map(|it| SlotTime::new(start_ns(it), start_ns(it) + MS)).collect()
}

/// The figures of a gang over such slots. The slots are sent before the first one begins, however
/// long that takes here. When they have passed, `then` may do something.
fn over_short_slots(meter: &Meter, group: u64, then: impl FnOnce()) -> GangSums {
    let mut ahead_ns = 20 * MS;
    let (slots, before) = loop {
        let slots = short_slots(clock::monotonic_ns() + ahead_ns);
        meter.set_slots(group, Some(&slots), &[]).unwrap();
        let before = meter.read(group).unwrap();
        if clock::monotonic_ns() < slots[0].start_ns {
            break (slots, before);
        }
        meter.set_slots(group, Some(&[]), &[]).unwrap();
        ahead_ns *= 2;
    };
    let end_ns = slots[SLOTS_MAX - 1].end_ns;
    wait_until("all slots have passed", || clock::monotonic_ns() > end_ns);
    then();
    meter.read(group).unwrap().since(&before)
}

/// All of the time is slot that was set, to the nanosecond.
const SHORT_SLOTS_NS: u64 = SLOTS_MAX as u64 * MS;

#[test]
fn needs_root_and_bpf_slots_slept_through_not_lost() {
    let Some(meter) = own_meter() else { return };
    let place = Place::new(&["--no-measure"]);
    let mut sleeper = Program::shell("echo here; read go; while :; do :; done");
    hear(&mut sleeper, "here\n");
    let job = unscheduled(&place, "sleeps", &[&sleeper]);
    let Some(group) = group_of(&place, job) else { return };
    let state = |pid| process::stat(Path::new("/proc"), pid).unwrap().state;
    wait_until("it sleeps", || state(sleeper.pid()) == b'S');
    meter.watch(group).unwrap();
    let figures = over_short_slots(&meter, group, || {
        sleeper.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        wait_until("it wants to run", || meter.runnable(group).unwrap() == 1);
    });
    assert_eq!(figures.slot_ns, SHORT_SLOTS_NS);
    assert_eq!((figures.wanted_ns, figures.coscheduled_ns, figures.lost_ns), (0, 0, 0));
    assert!(figures.filled_ns + figures.waiting_ns > 0, "{figures:?}");
    meter.forget(group);
}

/// Reads what a program writes.
fn hear(program: &mut Program, text: &str) {
    let mut heard = vec![0; text.len()];
    program.0.stdout.as_mut().unwrap().read_exact(&mut heard).unwrap();
    assert_eq!(heard, text.as_bytes());
}

/// A program that spins already, with no system call before it is killed. While another program
/// keeps it from its CPU on its way to become a program, it holds locks. Readers of /proc wait for
/// these.
fn spinning_on(cpu: u32) -> Program {
    let mut program = Program::shell("echo here; while :; do :; done");
    hear(&mut program, "here\n");
    sched::set_affinity(program.pid(), [cpu]).unwrap();
    program
}

/// Each kind of time is measured of a gang in somebody's way, and the sums are what they must be on
/// any machine.
#[test]
fn needs_root_and_bpf_sums_over_slots_fit_together() {
    let Some(meter) = own_meter() else { return };
    let place = Place::new(&["--no-measure"]);
    let mut cpus = cpus();
    cpus.dedup();
    let programs: Vec<Program> = cpus.iter().map(|&cpu| spinning_on(cpu)).collect();
    // The rival is the worst of all that the gang waits for on this machine.
    let rival = spinning_on(cpus[0]);
    sched::set(rival.pid(), &Attributes::other(-15)).unwrap();
    let job = unscheduled(&place, "sums", &programs.iter().collect::<Vec<_>>());
    let Some(group) = group_of(&place, job) else { return };
    meter.watch(group).unwrap();
    meter.look_around().unwrap();
    wait_until("each kind of time is measured", || {
        let GangSums { slot_ns, wanted_ns, coscheduled_ns, lost_ns, .. } =
            over_short_slots(&meter, group, || ());
        assert_eq!(slot_ns, SHORT_SLOTS_NS);
        assert!(coscheduled_ns <= wanted_ns && wanted_ns <= slot_ns);
        // At any time at which not all ran at once, one of them waited at least, and all of them at
        // most.
        let apart_ns = wanted_ns - coscheduled_ns;
        let at_most_ns = programs.len() as u64 * apart_ns;
        assert!((apart_ns..=at_most_ns).contains(&lost_ns), "{lost_ns} ns of {apart_ns} ns");
        // Sums that are read later may only be greater.
        let culprits = meter.lost_to(group).unwrap();
        let on_cpus = meter.per_cpu(group).unwrap();
        let all = meter.read(group).unwrap();
        assert!(culprits.iter().map(|it| it.ns).sum::<u64>() <= all.lost_ns, "{culprits:?}");
        assert!(on_cpus.iter().map(|it| it.lost_ns).sum::<u64>() <= all.lost_ns, "{on_cpus:?}");
        for on_cpu in &on_cpus {
            assert!(cpus.contains(&on_cpu.cpu), "no thread of it may run there: {on_cpu:?}");
            assert!(on_cpu.in_slot_ns <= all.slot_ns, "{on_cpu:?}");
        }
        let known = culprits.iter().find(|it| it.pid == rival.pid());
        assert!(known.is_none_or(|it| it.name == "sh" && it.class == SchedClass::Other));
        let kinds = [all.coscheduled_ns, all.lost_ns, all.filled_ns, all.waiting_ns];
        known.is_some() && kinds.iter().all(|&ns| ns > 0) && on_cpus.iter().any(|it| it.lost_ns > 0)
    });
}

#[test]
fn needs_root_and_bpf_runnable_threads_are_listed() {
    let Some(meter) = own_meter() else { return };
    let (spinner, sleeper) = (spinning_on(cpus()[0]), Program::sleeper());
    wait_until("the one that spins is listed, and the one that sleeps is not", || {
        let threads = meter.runnable_threads().unwrap();
        let is_listed = |pid: u32| threads.iter().find(|it| it.tid == pid);
        assert!(threads.iter().all(|it| it.tid != std::process::id()), "this process is not");
        is_listed(spinner.pid()).is_some_and(|it| it.uid == 0 && it.group != 0)
            && is_listed(sleeper.pid()).is_none()
    });
}

/// From here on the skews that are counted are of 1,024 microseconds and more.
const LONG: usize = 64;

/// A thread that fills is interrupted at the end of its slot and goes on; others decide when it
/// leaves after that.
#[test]
#[ignore = "nightly: needs CPUs that nobody takes away, to compare figures"]
fn needs_root_and_bpf_interrupted_filler_left_slot() {
    let Some(meter) = own_meter() else { return };
    agrees_in_time(|| {
        let place = Place::new(&["--no-measure"]);
        let none = Registration { policy: v1::Policy::none, ..registration("fills", 2) };
        let mut client = place.client();
        let job = client.register(&none).unwrap();
        let mut program = Knowing::filler();
        client.add_process(job, program.pid()).unwrap();
        let group = group_of(&place, job)?;
        meter.watch(group).unwrap();
        let slots = truth::filled_slots(program.go());
        let sent = slots.iter().map(|&(start_ns, end_ns)| SlotTime::new(start_ns, end_ns));
        meter.set_slots(group, Some(&sent.collect::<Vec<_>>()), &[]).unwrap();
        let truth = truth_of(&program.truth(), &slots);
        let mut compared = Compared::default();
        let skews = meter.read(group).unwrap().skews;
        let of_all = |some: usize, all: usize| some as f64 / all as f64;
        let long = skews[LONG..].iter().sum::<u32>() as usize;
        let long = of_all(long, skews.iter().sum::<u32>() as usize);
        let in_truth = truth.skews.iter().filter(|skew| skew.ns >= 1_024_000).count();
        let in_truth = of_all(in_truth, truth.skews.len());
        compared.near("skews of a millisecond and more", long, in_truth, 0.05);
        meter.forget(group);
        Some(compared)
    });
}

/// Each thread was kept to a CPU, so that what the job had there is what the thread had.
fn on_cpus(compared: &mut Compared, job: &v1::Job, threads: &[Ended], slots: &[(u64, u64)]) {
    let mut elsewhere = measured(job).per_cpu.clone().unwrap();
    for &cpu in &cpus() {
        let on_cpu = on_cpu(job, cpu);
        let there: Vec<&Ended> = threads.iter().filter(|thread| thread.cpu == cpu).collect();
        let (mut in_slot_ns, mut lost_ns, mut filled_ns) = (0, 0, 0);
        for thread in there {
            let truth = truth_of(std::slice::from_ref(thread), slots);
            in_slot_ns += truth.coscheduled_ns as i64;
            lost_ns += truth.lost_ns as i64;
            filled_ns += truth.filled_ns as i64;
        }
        for (what, measured_ns, truth_ns) in [
            ("in slot", on_cpu.in_slot_ns, in_slot_ns),
            ("lost", on_cpu.lost_ns, lost_ns),
            ("filled", on_cpu.filled_ns, filled_ns),
        ] {
            let what = format!("{what} on CPU {cpu}");
            compared.near(&what, share(measured_ns), share(truth_ns), 0.01);
        }
        elsewhere.retain(|it| it.cpu != i64::from(cpu));
    }
    let elsewhere_ns: i64 =
        elsewhere.iter().map(|it| it.in_slot_ns + it.lost_ns + it.filled_ns).sum();
    compared.near("elsewhere", share(elsewhere_ns), 0.0, 0.01);
    let order: Vec<i64> = measured(job).per_cpu.iter().flatten().map(|it| it.cpu).collect();
    assert!(order.is_sorted(), "{order:?}");
}

/// Two gangs that take turns, and a rival that takes a CPU from both.
#[test]
#[ignore = "nightly: needs CPUs that nobody takes away, to compare figures"]
fn needs_root_and_bpf_slot_figures_agree_with_gangs() {
    // Slots are sent by the gaps that there are now: these gaps must hold all the time.
    agrees_in_time(|| taking_turns(&raising(&["--gap", "500us/10ms"])?));
}

/// None where it cannot be measured.
fn taking_turns(place: &Place) -> Option<Compared> {
    let mut client = place.client();
    let all = machine();
    let mut gangs = [(); 2].map(|()| {
        // Of all CPUs, so that there is none for the other one.
        let job = client.register(&Registration::new("truth", all)).unwrap();
        let program = Knowing::gang();
        client.add_process(job, program.pid()).unwrap();
        (job, program)
    });
    if !measures(&details(place, gangs[0].0)) {
        return None;
    }
    let mut rival = Knowing::rival();
    let switches = || place.status().switches;
    let late = |it: v1::Switches| (it.late_plans, it.ran_out);
    let before = late(switches());
    let began_ns = clock::utc_ns() as i64;
    rival.go();
    gangs.iter_mut().for_each(|(_, program)| _ = program.go());
    let threads = gangs.each_mut().map(|(_, program)| program.truth());
    let rival_ran = rival.truth();
    let rows = client.frame(Some(began_ns)).unwrap().rows;
    let mut compared = Compared::default();
    if late(switches()) != before {
        compared.differs.push("plans came late".into());
    }
    for ((job, _), threads) in gangs.iter().zip(&threads) {
        let (job, slots) = (details(place, *job), slots(place, &rows, *job));
        in_slots(&mut compared, &job, threads, &slots);
        // The rival ran in the place of the thread of its CPU.
        let ran_ns = truth_of(&rival_ran, &slots).coscheduled_ns as i64;
        let culprits = measured(&job).lost_to.as_ref().unwrap();
        let Some(of_rival) = culprits.iter().find(|it| it.pid == rival.pid()) else {
            compared.differs.push(format!("the rival is not reported: {culprits:?}"));
            continue;
        };
        assert_eq!((of_rival.name.as_str(), of_rival.sched_policy.as_str()), ("rival", "fifo"));
        // While a switcher interrupts it, only what it ran last is put down to it.
        compared.near("lost to the rival", share(of_rival.ns), share(ran_ns), share(ran_ns) / 2.0);
    }
    Some(compared)
}

/// The slots of a job in rows, without the gaps (CLOCK_MONOTONIC).
fn slots(place: &Place, rows: &[v1::Row], job: i64) -> Vec<(u64, u64)> {
    let status = place.status();
    let (gap_ns, period_ns) = (status.gap_ns as u64, status.gap_period_ns as u64);
    let ahead_ns = clock::utc_ns() - clock::monotonic_ns();
    let mut slots: Vec<(u64, u64)> = Vec::new();
    for row in rows.iter().filter(|row| row.slots.iter().any(|slot| slot.job == job)) {
        let (mut from_ns, end_ns) = (row.start_ns as u64, row.end_ns as u64);
        while from_ns < end_ns {
            let period_end_ns = (from_ns / period_ns + 1) * period_ns;
            let to_ns = end_ns.min(period_end_ns - gap_ns);
            let (start_ns, stop_ns) = (from_ns - ahead_ns, to_ns.max(from_ns) - ahead_ns);
            match slots.last_mut() {
                Some(last) if last.1 == start_ns => last.1 = stop_ns,
                _ if start_ns < stop_ns => slots.push((start_ns, stop_ns)),
                _ => {}
            }
            from_ns = end_ns.min(period_end_ns);
        }
    }
    slots
}

/// The figures of a job.
fn measured(job: &v1::Job) -> &v1::Measured {
    job.measured.as_ref().unwrap()
}

fn in_slots(compared: &mut Compared, job: &v1::Job, threads: &[Ended], slots: &[(u64, u64)]) {
    let truth = truth_of(threads, slots);
    let of_job = measured(job);
    compared.near("coscheduled", job.coscheduled().unwrap(), truth.coscheduled(), 0.01);
    compared.near("lost", share(of_job.lost_ns), share(truth.lost_ns as i64), 0.01);
    compared.near("filled", share(of_job.filled_ns), share(truth.filled_ns as i64), 0.01);
    compared.near("waited", share(of_job.waiting_ns), share(truth.waiting_ns as i64), 0.02);
    // Eight buckets for each power of two, of which the end is reported. Some skews of a hundred
    // may be others.
    let [least, most] = [0.9, 1.0].map(|share| truth.skew_us(share));
    let skew_us = job.skew_ns_p99().unwrap() as f64 / 1e3;
    println!("skew: measured {skew_us}, in truth {least} to {most} of {}", truth.skews.len());
    compared.within("skew", skew_us, (least * 0.875, most * 1.25 + 2.0));
    on_cpus(compared, job, threads, slots);
}

#[test]
fn needs_root_and_bpf_gang_measured_in_and_out() {
    if !is_root() {
        return;
    }
    let place = Place::new(&[]);
    let (one, other) = (Program::spinner(), Program::spinner());
    let cpus = machine();
    // They may be there before it is measured.
    let (one, _) = (job_with(&place, &one, cpus), job_with(&place, &other, cpus));
    let place = settled(place);
    if !measures(&place.job(one).unwrap()) {
        return;
    }
    wait_until("the gang is measured", || {
        let job = place.job(one).unwrap();
        job.coscheduled().is_some() && job.skew_ns_p99().is_some() && job.slots > 20
    });
    let job = place.job(one).unwrap();
    let share = job.coscheduled().unwrap();
    assert!((0.0..=1.0).contains(&share), "{share}");
    assert!(measured(&job).lost_to.is_none(), "only who asks for one job hears whom it waited for");
    assert!(measured(&place.client().show_job(one).unwrap().details).lost_to.is_some());
}

/// Two gangs of one CPU, which spin: each asks for its row all the time.
#[test]
fn needs_root_and_bpf_parts_of_whole_time_add_up() {
    let Some(place) = raising(&[]) else { return };
    let programs = [(); 2].map(|()| Program::spinner());
    let jobs = programs.each_ref().map(|program| job_with(&place, program, 1));
    if !measures(&details(&place, jobs[0])) {
        return;
    }
    let asks = |time: &Option<v1::WholeTime>| time.as_ref().is_some_and(|it| it.share > 0.0);
    wait_until("both gangs were whole for a while", || {
        jobs.iter().all(|&job| asks(&measured(&details(&place, job)).whole))
    });
    for job in jobs {
        let whole = measured(&details(&place, job)).whole.clone().unwrap();
        let missing_ns = whole.asked_ns - whole.whole_ns - whole.other_ns;
        assert_eq!(whole.split_ns + whole.partly_ns, missing_ns, "{whole:?}");
        assert_eq!(whole.gap_ns + whole.edge_ns + whole.noise_ns, missing_ns, "{whole:?}");
        assert_eq!(whole.split_ns, 0, "a row of one CPU runs one gang: {whole:?}");
        assert!(whole.left_out_ns <= whole.asked_ns, "{whole:?}");
    }
    let both = jobs.map(|job| measured(&details(&place, job)).whole.clone().unwrap().asked_ns);
    let all_ns = |place: &Place| place.status().whole.unwrap().asked_ns;
    assert!(all_ns(&place) >= both.iter().sum(), "of all gangs");
    drop(programs);
    wait_until("both have ended", || place.client().list_jobs().unwrap().jobs.is_empty());
    assert!(all_ns(&place) >= both.iter().sum(), "of those that have ended, too");
}

/// Two programs that spin on one CPU.
fn on_one_cpu() -> [Program; 2] {
    [(); 2].map(|()| spinning_on(cpus()[0]))
}

/// How often the kernel has switched a thread away from its CPU.
fn times_left(tid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap();
    let counts = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

/// The first program has the CPU for as long as it spins, since both are real-time. So Linux
/// reports no event of the one that waits.
#[test]
fn needs_root_and_bpf_waiting_threads_count_at_once() {
    if !is_root() {
        return;
    }
    let place = settled(Place::new(&[]));
    place.look_from_elsewhere(cpus()[0]);
    wait_until("one that did not run is measured", || {
        let programs = on_one_cpu();
        for (program, priority) in programs.iter().zip([10, 5]) {
            let fifo = Attributes { reset_on_fork: false, ..Attributes::fifo(priority) };
            if let Err(error) = sched::set(program.pid(), &fifo) {
                skipped(format!("programs cannot be real-time here: {error}"));
                return true;
            }
        }
        let left = times_left(programs[1].pid());
        let job = unscheduled(&place, "many", &programs.each_ref());
        let measured = || {
            let job = details(&place, job);
            (measured(&job).lost_ns, measured(&job).slot_ns)
        };
        if !measures(&details(&place, job)) {
            return true;
        }
        wait_until("its wait is measured", || measured().0 > 0);
        let (before, after) = (measured(), measured());
        // The first one may have slept: then the other one was not measured for its waiting alone.
        if times_left(programs[1].pid()) != left {
            return false;
        }
        let (lost_ns, lasted_ns) = (after.0 - before.0, after.1 - before.1);
        assert!(lost_ns >= lasted_ns, "{lost_ns} ns lost in {lasted_ns} ns");
        true
    });
}

/// The slots of two programs on one CPU, one of which waits all the time: the meter, and their
/// group.
fn slots_to_which_one_never_comes() -> Option<(Meter, u64, Place, [Program; 2])> {
    let meter = own_meter()?;
    let place = Place::new(&["--no-measure"]);
    let programs = on_one_cpu();
    let job = unscheduled(&place, "many", &programs.each_ref());
    let group = group_of(&place, job)?;
    meter.set_slots(group, Some(&[]), &[]).unwrap();
    meter.watch(group).unwrap();
    meter.look_around().unwrap();
    Some((meter, group, place, programs))
}

/// Sets slots that begin at once; they are as long as those of a program that fills.
fn set_filled_slots(meter: &Meter, group: u64) -> Vec<SlotTime> {
    let slots = truth::filled_slots(clock::monotonic_ns());
    let slots = slots.iter().map(|&(start_ns, end_ns)| SlotTime::new(start_ns, end_ns));
    let slots: Vec<SlotTime> = slots.collect();
    meter.set_slots(group, Some(&slots), &[]).unwrap();
    slots
}

/// The program that has the CPU leaves it after the slot, first and last of those that ran: that is
/// an edge of its own.
#[test]
fn needs_root_and_bpf_one_that_never_came_is_a_skew() {
    let Some((meter, group, _place, _programs)) = slots_to_which_one_never_comes() else { return };
    let mut until_ns = 0;
    let mut sent = 0;
    wait_until("a skew is as long as a slot", || {
        if clock::monotonic_ns() > until_ns {
            let slots = set_filled_slots(&meter, group);
            until_ns = slots[slots.len() - 1].end_ns;
            sent += slots.len() as u32;
        }
        let skews = meter.read(group).unwrap().skews;
        assert!(skews.iter().sum::<u32>() <= 2 * sent, "each slot has two edges: {skews:?}");
        // 1,920 to 2,048 microseconds, in which the length of a slot is.
        assert!(skews[LONG + 8..].iter().all(|&count| count == 0), "longer than a slot: {skews:?}");
        skews[LONG + 7] > 0
    });
}

#[test]
#[ignore = "nightly: needs a machine that is idle, to count how many slots there were"]
fn needs_root_and_bpf_missed_slot_counts_as_skew() {
    let Some((meter, group, _place, _programs)) = slots_to_which_one_never_comes() else { return };
    let slots = set_filled_slots(&meter, group);
    thread::sleep(Duration::from_secs(1));
    let figures = meter.read(group).unwrap();
    let length_ns = slots[0].end_ns - slots[0].start_ns;
    let long = figures.skews[LONG..].iter().sum::<u32>();
    // One of the two waits all the time, and both do while somebody else has the CPU.
    let slots = (2 * figures.slot_ns - figures.lost_ns) / length_ns;
    assert!(
        u64::from(long) > slots * 3 / 4,
        "{long} skews in {slots} slots are of a millisecond and more"
    );
}

/// A program that sleeps until it is woken, and again when it has answered; no other one is in its
/// group.
struct Sleeper {
    program: Program,
    group: u64,
}

impl Sleeper {
    /// None where jobs have no groups.
    fn new(place: &Place) -> Option<Sleeper> {
        let program = Program::shell("while read go; do echo awake; done");
        let job = job_with(place, &program, 1);
        let mut sleeper = Sleeper { program, group: group_of(place, job)? };
        // The program has begun, and has nothing else to wake for.
        sleeper.wake();
        Some(sleeper)
    }

    fn wake(&mut self) {
        self.program.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        hear(&mut self.program, "awake\n");
    }
}

/// The groups that are reported to have woken before a witness is, which is woken now: reports come
/// in the order in which things happened.
fn reported_before(meter: &Meter, witness: &mut Sleeper, heard: &Receiver<Vec<u64>>) -> Vec<u64> {
    wait_until("the witness sleeps", || meter.await_waking(witness.group).unwrap());
    witness.wake();
    let mut reported = Vec::new();
    while !reported.contains(&witness.group) {
        reported.extend(
            heard.recv_timeout(TEST_TIMEOUT).expect("the witness is reported to have woken"),
        );
    }
    assert_eq!(reported.pop(), Some(witness.group));
    reported
}

#[test]
fn needs_root_and_bpf_awaited_waking_reported_once() {
    let Some(meter) = own_meter().map(Arc::new) else { return };
    let place = Place::new(&["--no-measure"]);
    let Some(mut sleeper) = Sleeper::new(&place) else { return };
    let mut witness = Sleeper::new(&place).unwrap();
    assert!(matches!(meter.await_waking(sleeper.group), Err(NotMeasured::NotWatched)));
    meter.watch(sleeper.group).unwrap();
    meter.watch(witness.group).unwrap();
    let (sender, heard) = mpsc::channel();
    let hearing = meter.clone();
    thread::spawn(move || hearing.hear_who_wakes(|groups| drop(sender.send(groups))));
    let mut reported = || reported_before(&meter, &mut witness, &heard);
    // The program wakes while nobody awaits that; then its waking is awaited, and it sleeps on.
    sleeper.wake();
    assert!(reported().is_empty());
    wait_until("it sleeps", || meter.await_waking(sleeper.group).unwrap());
    assert!(reported().is_empty());
    for _ in 0..3 {
        sleeper.wake();
    }
    assert_eq!(reported(), [sleeper.group]);
    sleeper.wake();
    assert!(reported().is_empty());
    let spinner = Program::spinner();
    let job = job_with(&place, &spinner, 1);
    let group = group_of(&place, job).unwrap();
    meter.watch(group).unwrap();
    wait_until("it wants to run already", || !meter.await_waking(group).unwrap());
}

#[test]
fn needs_root_and_bpf_figures_begin_anew_with_policy() {
    if !is_root() {
        return;
    }
    let place = settled(Place::new(&[]));
    let programs = on_one_cpu();
    let job = unscheduled(&place, "many", &programs.each_ref());
    if !measures(&details(&place, job)) {
        return;
    }
    let sums = || {
        let job = details(&place, job);
        let measured = job.measured.unwrap();
        let of_cpus = measured.per_cpu.unwrap().iter().map(|it| it.in_slot_ns + it.lost_ns).sum();
        let to = measured.lost_to.unwrap().iter().map(|culprit| culprit.ns).sum();
        [measured.slot_ns, measured.lost_ns, of_cpus, to]
    };
    wait_until("what is measured begins anew", || {
        place.client().set_policy(job, v1::Policy::none).unwrap();
        wait_until("it has lost a second", || sums()[1] > 1_000_000_000);
        let (none, since_ns): ([i64; 4], _) = (sums(), clock::monotonic_ns());
        place.client().set_policy(job, v1::Policy::gang).unwrap();
        let local = sums();
        // Where it took as long to ask as all had lasted, nothing is known.
        if clock::monotonic_ns() - since_ns > 250_000_000 {
            return false;
        }
        let is_less = local.iter().zip(&none).all(|(local, none)| local < none);
        assert!(is_less, "{local:?}, then {none:?}");
        true
    });
    wait_until("it is measured as a gang", || measured(&details(&place, job)).slot_ns > 0);
}

#[test]
fn needs_root_unmeasured_job_has_reason_not_figure() {
    if !is_root() {
        return;
    }
    let place = settled(Place::new(&["--no-measure"]));
    let program = Program::spinner();
    let job = place.job(job_with(&place, &program, 1)).unwrap();
    assert!(job.not_measured.unwrap().contains("--no-measure"));
    assert_eq!(job.measured, None);
}
