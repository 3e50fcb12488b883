//! Gangs run where their threads may: what a program or its owner sets stays, at any moment.

mod place;

use std::{
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
};

use gang_harness::skipped;
use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies},
    sched,
};
use gang_protocol::client::Registration;
use place::{Place, Program, has_backend, job_with, machine, wait_busily_until, wait_until};

/// Where a program may run, as an owner sets it.
fn bind(program: &Program, cpus: &str) {
    let output = Command::new("taskset")
        .args(["-acp", cpus, &program.pid().to_string()])
        .output()
        .expect("util-linux is there");
    assert!(output.status.success(), "{output:?}");
}

fn affinity(program: &Program) -> Vec<u32> {
    sched::affinity(program.pid()).unwrap()
}

fn slots(place: &Place, job: i64) -> i64 {
    place.job(job).unwrap().slots
}

/// The slots of a job follow where its program may run.
fn has_slots_on(place: &Place, job: i64, cpus: &[i64]) {
    wait_until("slots where the program may run", || place.job(job).unwrap().cpu_list == cpus);
}

#[test]
fn needs_root_gangs_within_one_cpu_take_turns() {
    if !has_backend("rt") || machine() < 2 {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let programs = [Program::spinner(), Program::spinner(), Program::spinner()];
    programs.iter().for_each(|program| bind(program, "0"));
    let jobs = programs.each_ref().map(|program| job_with(&place, program, 1));
    for job in jobs {
        wait_until("slots", || slots(&place, job) > 0);
        has_slots_on(&place, job, &[0]);
    }
    let before = jobs.map(|job| slots(&place, job));
    wait_until("turns of all", || {
        for program in &programs {
            assert_eq!(affinity(program), [0], "nobody overrules its owner");
        }
        jobs.iter().zip(before).all(|(&job, before)| slots(&place, job) > before + 20)
    });
    // While it runs.
    bind(&programs[0], "1");
    has_slots_on(&place, jobs[0], &[1]);
    for (program, job) in programs.iter().zip(jobs) {
        place.client().remove_process(job, program.pid_i64()).unwrap();
    }
    assert_eq!(programs.each_ref().map(affinity), [[1], [0], [0]], "also afterwards");
}

#[test]
fn needs_root_bound_ranks_are_raised_at_once() {
    if !has_backend("rt") || machine() < 2 {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let ranks = [Program::spinner(), Program::spinner()];
    ranks.iter().zip(["0", "1"]).for_each(|(rank, cpu)| bind(rank, cpu));
    let mut client = place.client();
    let job = client.register(&place::registration("ranks", 2)).unwrap();
    for rank in &ranks {
        client.add_process(job, rank.pid_i64()).unwrap();
    }
    let rival = Program::spinner();
    job_with(&place, &rival, machine());
    let is_raised =
        |rank: &Program| sched::get(rank.pid()).unwrap().policy == sched::SchedPolicy::Fifo;
    wait_until("slots", || slots(&place, job) > 20);
    // The gang has all CPUs of a small machine then.
    sched::set(0, &sched::Attributes::fifo(50)).unwrap();
    wait_until("both are in their slot", || {
        assert_eq!(ranks.each_ref().map(affinity), [[0], [1]], "nobody overrules their owner");
        ranks.iter().all(is_raised)
    });
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
fn needs_root_gang_leaves_its_neighbour_its_cpu() {
    if !has_backend("rt") || machine() < 2 {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let programs = [Program::spinner(), Program::spinner()];
    let jobs = programs.each_ref().map(|program| job_with(&place, program, 1));
    let has_both_cpus = || {
        let on = jobs.map(|job| place.job(job).unwrap().cpu_list);
        on[0].len() == 1 && on[1].len() == 1 && on[0] != on[1]
    };
    wait_until("they are side by side", has_both_cpus);
    let neighbours = place.job(jobs[1]).unwrap().cpu_list[0] as u32;
    // It goes there in its slot, again and again. The one that is there has slots all the same.
    let before = slots(&place, jobs[1]);
    let mut moved = 0;
    wait_busily_until("slots of its neighbour", || {
        if sched::get(programs[0].pid()).unwrap().policy == sched::SchedPolicy::Fifo {
            sched::set_affinity(programs[0].pid(), [neighbours]).unwrap();
            moved += 1;
        }
        moved > 20 && slots(&place, jobs[1]) > before + 50
    });
    // Now that is its owner's wish: the two take turns there, or one has the other CPU.
    wait_until("each has slots", || {
        let on = jobs.map(|job| place.job(job).unwrap().cpu_list);
        on[0] == [i64::from(neighbours)]
    });
    let before = jobs.map(|job| slots(&place, job));
    wait_until("turns of both", || {
        jobs.iter().zip(before).all(|(&job, before)| slots(&place, job) > before + 20)
    });
    assert_eq!(place.client().check().unwrap().violations, []);
}

/// A cpuset of version 1.
struct Cpuset(Group);

impl Cpuset {
    /// Of CPU 0; absent where there are none.
    fn new() -> Option<Cpuset> {
        let v1 = Hierarchies::detect(&Roots::default()).unwrap().v1;
        let root = v1.get("cpuset").filter(|root| root.join("cpuset.cpus").exists());
        if root.is_none() {
            skipped("no cpusets of version 1");
        }
        let group = Group::at(root?).child(format!("widens-{}", std::process::id()));
        group.create().unwrap();
        let cpuset = Cpuset(group);
        cpuset.set("0");
        cpuset.0.write("cpuset.mems", Group::at(root?).read("cpuset.mems").unwrap()).unwrap();
        Some(cpuset)
    }

    fn set(&self, cpus: &str) {
        self.0.write("cpuset.cpus", cpus).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

#[test]
fn needs_root_gang_has_cpus_added_to_its_cpuset() {
    if !has_backend("rt") || machine() < 2 {
        return;
    }
    let Some(cpuset) = Cpuset::new() else { return };
    let place = Place::new(&["--backend", "rt"]);
    let program = Program::spinner();
    cpuset.0.add(program.pid()).unwrap();
    // It has as many CPUs as it may use, whoever else wants some.
    let registration = Registration { min_cpus: 1, ..Registration::new("widens", 2) };
    let mut client = place.client();
    let job = client.register(&registration).unwrap();
    client.add_process(job, program.pid_i64()).unwrap();
    // Another one, so that it is raised in slots.
    let other = Program::spinner();
    job_with(&place, &other, machine());
    has_slots_on(&place, job, &[0]);
    // The job is looked at once before, so that it is known to have all of the cpuset.
    let is_read = || {
        let limits_read = slots(&place, job) + 60;
        wait_until("its limits are read", || slots(&place, job) > limits_read);
    };
    is_read();
    cpuset.set("0-1");
    has_slots_on(&place, job, &[0, 1]);
    cpuset.set("0");
    has_slots_on(&place, job, &[0]);
    is_read();
    cpuset.set("0-1");
    has_slots_on(&place, job, &[0, 1]);
    place.client().remove_process(job, program.pid_i64()).unwrap();
    wait_until("all of the cpuset", || affinity(&program) == [0, 1]);
}

#[test]
fn needs_root_gang_without_enough_cpus_waits_alone() {
    if !has_backend("rt") || machine() < 2 {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let programs = [Program::spinner(), Program::spinner()];
    let [wide, other] = programs.each_ref().map(|program| {
        let mut client = place.client();
        let job = client.register(&Registration::new("two", 2)).unwrap();
        client.add_process(job, program.pid_i64()).unwrap();
        job
    });
    for job in [wide, other] {
        wait_until("slots", || slots(&place, job) > 0);
    }
    bind(&programs[0], "0");
    wait_until("it can have no slot", || {
        let before = slots(&place, wide);
        let others = slots(&place, other);
        wait_until("slots of the other one", || slots(&place, other) > others + 20);
        slots(&place, wide) == before
    });
    assert_eq!(affinity(&programs[0]), [0]);
    // Nor does another one that cannot have any keep a third from its slots.
    bind(&programs[1], "0");
    let third = Program::spinner();
    let third = job_with(&place, &third, 1);
    for job in [wide, other] {
        wait_until("it is said why", || place.job(job).unwrap().unplaceable.is_some());
    }
    let (before, of_both) = (slots(&place, third), slots(&place, wide) + slots(&place, other));
    wait_until("slots of the third", || slots(&place, third) > before + 20);
    assert_eq!(slots(&place, wide) + slots(&place, other), of_both);
    bind(&programs[0], "0-1");
    let before = slots(&place, wide);
    wait_until("slots again", || slots(&place, wide) > before + 3);
}

#[test]
fn needs_root_repinning_thread_starves_nobody() {
    if !has_backend("rt") || machine() < 2 {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let other = Program::spinner();
    let other = job_with(&place, &other, machine());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (say, heard) = mpsc::channel();
        let is_over = &is_over;
        scope.spawn(move || {
            say.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            for last in [0, 1].into_iter().cycle().take_while(|_| !is_over.load(Relaxed)) {
                sched::set_affinity(0, 0..=last).unwrap();
            }
        });
        let end = Over(is_over);
        let mut client = place.client();
        let job = client.register(&Registration::new("restless", 1)).unwrap();
        client.add_thread(job, heard.recv().unwrap().into()).unwrap();
        wait_until("slots", || slots(&place, job) > 3);
        let before = slots(&place, other);
        wait_until("slots of the other one", || slots(&place, other) > before + 50);
        assert_eq!(place.client().check().unwrap().violations, []);
        drop(end);
    });
}

/// Ends a thread of a test, also where that fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
