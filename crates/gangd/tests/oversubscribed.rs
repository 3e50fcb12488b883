//! Gangs with more threads than CPUs: threads beside those that compute have their part of the
//! program's slot (L7).

mod place;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    time::{Duration, Instant},
};

use gang_harness::skipped;
use gang_linux::{
    clock,
    sched::{self, Attributes},
};
use place::{
    Place, Program, has_backend, job_with, machine, registration, wait_busily_until, wait_until,
};

/// The CPU time of a process, in ticks of the kernel.
/// The attributes of a thread of an oversubscribed gang in its slot.
const IN_SLOT: Attributes = Attributes { reset_on_fork: true, ..Attributes::other(-20) };

fn used(program: &Program) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", program.pid())).unwrap();
    // After the name, which may be anything: user and system time are the 14th and 15th of all.
    let rest = stat.rsplit_once(')').unwrap().1;
    rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// CPU time of a program of one thread, in nanoseconds; `None` where it is not in a slot of an
/// oversubscribed gang, which has one CPU here.
fn used_in_slot_ns(program: &Program) -> Option<u64> {
    let is_in_slot = || {
        sched::get(program.pid()).unwrap() == IN_SLOT
            && sched::affinity(program.pid()).unwrap().len() == 1
    };
    let was_in_slot = is_in_slot();
    let text = fs::read_to_string(format!("/proc/{}/schedstat", program.pid())).unwrap();
    let used_ns = text.split(' ').next().unwrap().parse().unwrap();
    (was_in_slot && is_in_slot()).then_some(used_ns)
}

#[test]
fn needs_root_auxiliary_threads_run_in_the_slot_too() {
    if !has_backend("rt") {
        return;
    }
    if machine() < 2 {
        skipped("whoever looks on has no CPU while a gang has its slot");
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let slice_ns = place.status().slice_ns as u64;
    // Both want the one CPU of their slots, and neither ever leaves it by itself.
    let both = [Program::spinner(), Program::spinner()];
    let job = job_with(&place, &both[0], 1);
    place.client().add_process(job, both[1].pid_i64()).unwrap();
    // The test must have a CPU for moments of each slot, however many others want one.
    sched::set(0, &Attributes::other(-20)).unwrap();
    for program in &both {
        // The CPU time used when it was first seen in the slot of a slice; and slices in which it
        // ran.
        let (mut seen, mut ran) = (BTreeMap::new(), BTreeSet::new());
        wait_busily_until("it runs in three slots", || {
            let slice = clock::utc_ns() / slice_ns;
            let used_ns = used_in_slot_ns(program);
            if let Some(used_ns) = used_ns.filter(|_| slice == clock::utc_ns() / slice_ns) {
                if used_ns > *seen.entry(slice).or_insert(used_ns) {
                    ran.insert(slice);
                }
            }
            ran.len() == 3
        });
    }
    assert_eq!(place.client().check().unwrap().violations, []);
}

/// Spins, and now and then starts a process that says its nice value.
const FORKS: &str =
    "exec bash -c 'while :; do for ((i = 0; i < 20000; i++)); do :; done; nice; done'";

#[test]
fn needs_root_children_in_slot_lack_its_nice_value() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let both = [(); 2].map(|()| Program::shell(FORKS));
    // The children of single threads are in no job, and nobody raises them.
    let mut client = place.client();
    let job = client.register(&registration("job", 1)).unwrap();
    both.iter().for_each(|program| client.add_thread(job, program.pid_i64()).unwrap());
    // The test must have a CPU for moments of each slot.
    sched::set(0, &Attributes::other(-20)).unwrap();
    for mut program in both {
        let (mut slots, mut was_in_slot) = (0, false);
        wait_busily_until("it is in ten slots of an oversubscribed gang", || {
            let is_in_slot = sched::get(program.pid()).unwrap() == IN_SLOT;
            slots += usize::from(is_in_slot && !was_in_slot);
            was_in_slot = is_in_slot;
            slots == 10
        });
        let output = program.0.stdout.take().unwrap();
        drop(program);
        let said: Vec<String> = BufReader::new(output).lines().map_while(Result::ok).collect();
        assert!(!said.is_empty() && said.iter().all(|nice| nice == "0"), "{said:?}");
    }
}

#[test]
#[ignore = "nightly: needs an otherwise idle machine"]
fn needs_root_auxiliary_threads_share_a_slot() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    // Both want the one CPU of their slots, and neither ever leaves it by itself.
    let (main, auxiliary) = (Program::spinner(), Program::spinner());
    let job = job_with(&place, &main, 1);
    wait_until("slots", || place.job(job).unwrap().slots > 3);
    place.client().add_process(job, auxiliary.pid_i64()).unwrap();
    let both = || [used(&main), used(&auxiliary)];
    // The part of each in half a second of CPU, whether that was of one, and the slots in it.
    let half_a_second = || {
        let (began, before, slots) = (Instant::now(), both(), place.job(job).unwrap().slots);
        let since = || [both()[0] - before[0], both()[1] - before[1]];
        wait_until("half a second of CPU", || since().into_iter().sum::<u64>() >= 50);
        let (elapsed, since) = (began.elapsed(), since());
        let one_cpu = elapsed > Duration::from_millis(9 * since.iter().sum::<u64>());
        (since, one_cpu, place.job(job).unwrap().slots - slots)
    };
    // About half each; in gaps alone it would be less than a tenth.
    let both_have_a_part = |since: [u64; 2]| since.iter().all(|ticks| *ticks >= 10);
    // Until the daemon has seen for some time that there are two, the first has all but the gaps.
    // Before the second has come, the first runs on a CPU of its own.
    wait_until("it is seen that there are two", || {
        let (since, one_cpu, _) = half_a_second();
        one_cpu && both_have_a_part(since)
    });
    let (since, one_cpu, slots) = half_a_second();
    assert!(both_have_a_part(since) && one_cpu && slots > 0, "{since:?}, {one_cpu}, {slots} slots");
    assert_eq!(place.client().check().unwrap().violations, []);
}
