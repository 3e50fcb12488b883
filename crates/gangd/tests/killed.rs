//! Daemon and guardian are killed, in each order, half way through a switch, and with each backend.
//! Every program runs on as an ordinary one, and the clean-up reports what it found. A daemon that
//! was only stopped goes on where it was.

mod place;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use gang_harness::skipped;
use gang_linux::{process, sched::SchedPolicy};
use gang_protocol::paths::jobs_dir;
use gang_timetable::Backend;
use place::{
    Held, Place, Program, gives_way, groups_of, has_backend, is_root, job_with, machine, policies,
    stands_still, wait_busily_until, wait_released, wait_until, with_each_backend,
};
use rustix::process::Signal;

/// A gang that takes turns with the rest of the machine, and one that is suspended.
struct Jobs {
    programs: [Program; 2],
    running: i64,
}

impl Jobs {
    fn new(place: &Place) -> Jobs {
        let programs = [Program::spinner(), Program::spinner()];
        let [running, suspended] = programs.each_ref().map(|program| job_with(place, program, 1));
        place.client().suspend(suspended).unwrap();
        let jobs = Jobs { programs, running };
        jobs.are_held(place);
        jobs
    }

    /// Until both feel the daemon.
    fn are_held(&self, place: &Place) {
        let before = place.job(self.running).expect("the daemon knows it").slots;
        wait_until("slots", || place.job(self.running).unwrap().slots > before + 3);
        wait_until("suspended", || stands_still(self.programs[1].pid()));
    }

    fn are_released(&self, when: &str) {
        self.programs.iter().for_each(|program| wait_released(program.pid(), when));
    }

    /// Checks what the release printed of them.
    fn check_report(report: &str, fate: &str) {
        let begin = "a daemon left 2 job(s) behind, 2 of them with 2 thread(s): ";
        let (paused, end) = report
            .strip_prefix(begin)
            .and_then(|rest| rest.split_once("at the lowest priority, "))
            .and_then(|(_, rest)| rest.split_once(" job(s) stood still; "))
            .unwrap_or_else(|| panic!("{report}"));
        // The other one may stand still out of its slot.
        assert!(["1", "2"].contains(&paused), "{report}");
        assert_eq!(end.trim_end(), fate);
    }
}

#[test]
fn needs_root_killed_daemon_or_guardian_releases_all() {
    with_each_backend(&[], |mut place| {
        let jobs = Jobs::new(&place);
        place.kill();
        jobs.are_released("by the guardian");
        place.start();
        jobs.are_held(&place);
        place.kill_guardian();
        place.kill();
        jobs.are_released("by the next guardian");
        place.start();
        jobs.are_held(&place);
    });
}

#[test]
fn needs_root_jobs_of_records_cut_short_are_released() {
    with_each_backend(&[], |mut place| {
        let jobs = Jobs::new(&place);
        place.kill_daemon_and_guardian();
        for entry in fs::read_dir(place.jobs_dir()).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|it| it == "json") {
                let text = fs::read_to_string(&file).unwrap();
                fs::write(&file, &text[..text.find("\"keeps_attributes\"").unwrap()]).unwrap();
            }
        }
        place.start();
        jobs.are_released("by the next daemon");
        assert!(place.jobs().is_empty(), "they are no jobs any more");
        assert_eq!(place.jobs_on_file(), 0);
    });
}

#[test]
fn needs_root_guardian_awaits_slowly_dying_daemon() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let jobs = Jobs::new(&place);
    // As where others have all CPUs, and its ordinary threads do not get to end.
    let last = Held::when_it_ends(place.pid());
    place.signal(Signal::KILL);
    last.is_about_to_end();
    // Longer than the guardian waits for the place of a daemon that is nobody's parent any more.
    thread::sleep(Duration::from_secs(3));
    drop(last);
    place.kill();
    jobs.are_released("by the guardian of one that took long to die");
}

#[test]
fn needs_root_guardian_awaits_daemons_last_child() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let jobs = Jobs::new(&place);
    // A program that is being started has all files of its parent, for a moment.
    let lock = place.lock_of_daemon();
    let guardian = place.status().guardian_pid.unwrap() as u32;
    place.kill();
    // The guardian gives up after two seconds: the lock is let go of as soon as it has looked.
    has_looked(guardian, 3);
    drop(lock);
    jobs.are_released("by the guardian of one whose lock was held for longer");
}

/// Waits until a guardian, which sleeps after each look, has slept so many times more.
fn has_looked(guardian: u32, looks: u64) {
    let sleeps = || {
        let status = fs::read_to_string(format!("/proc/{guardian}/status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = sleeps();
    wait_until("the guardian has looked", || sleeps() >= before + looks);
}

/// System calls of a switcher at each of which the gangs are looked at: those of some slices.
const STEPS: usize = 40;

/// A gang of one that spins and of many that sleep, and its job: to switch it takes a while.
fn gang_of_many(place: &Place) -> (Program, i64) {
    const SLEEPERS: i64 = 60;
    let mut program = Program::shell(&format!(
        "read go; i=0; while [ $i -lt {SLEEPERS} ]; do sleep infinity & i=$((i + 1)); done; \
         while :; do :; done"
    ));
    let job = job_with(place, &program, machine());
    program.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    wait_until("all are there", || place.job(job).unwrap().processes == SLEEPERS + 1);
    (program, job)
}

/// Whether one of two gangs that take turns has left its slot and the other not entered its own, or
/// either did so in part.
fn is_half_way(backend: &str, gangs: [u32; 2]) -> bool {
    match backend {
        "rt" => gangs.iter().any(|&gang| {
            let policies = policies(gang);
            let raised = policies.iter().filter(|&&policy| policy == SchedPolicy::Fifo).count();
            (1..policies.len()).contains(&raised)
        }),
        "weight" => gives_way(gangs[0]) == gives_way(gangs[1]),
        _ => stands_still(gangs[0]) == stands_still(gangs[1]),
    }
}

#[test]
fn needs_root_kill_mid_switch_releases_everyone() {
    with_each_backend(&["--slice", "2ms"], |mut place| {
        if machine() < 2 {
            skipped("whoever looks on has no CPU while a gang is raised");
            return;
        }
        let gangs = [gang_of_many(&place), gang_of_many(&place)];
        let pids = gangs.each_ref().map(|(program, _)| program.pid());
        for round in 0..4 {
            for &(_, job) in &gangs {
                let slots = |place: &Place| place.job(job).unwrap().slots;
                let before = slots(&place);
                wait_until("slots", || slots(&place) > before + 3);
            }
            let (backend, switchers) = (place.status().backend, place.switchers());
            // Groups are written to by the first one alone.
            let tid = switchers[if backend == "rt" { round % switchers.len() } else { 0 }];
            let (mut held, mut tries) = (None, 0);
            wait_busily_until("half way", || {
                drop(held.take());
                // Each time at another moment of a slice: with equal pauses, four tries would
                // always find the same moment.
                tries += 1;
                thread::sleep(Duration::from_micros(tries * 370 % 2_000));
                let halts = held.insert(Held::thread(tid));
                // The others do their part meanwhile.
                thread::sleep(Duration::from_millis(3));
                // The next thing that it does for a gang is a system call: chance alone hardly ever
                // meets a short one.
                (0..STEPS).any(|_| {
                    let found = is_half_way(&backend, pids);
                    if !found {
                        halts.goes_on_to_a_system_call();
                    }
                    found
                })
            });
            place.signal(Signal::KILL);
            drop(held);
            place.kill();
            pids.iter().for_each(|&pid| wait_released(pid, "who was killed half way"));
            place.start();
        }
    });
}

#[test]
fn needs_root_stuck_daemon_restores_standings() {
    with_each_backend(&[], |place| {
        let jobs = Jobs::new(&place);
        let is_exclusive = place.status().backend == Backend::Rt.name();
        let groups = || jobs.programs.each_ref().map(|program| groups_of(program.pid()));
        let before = groups();
        place.signal(Signal::STOP);
        jobs.are_released("while the daemon is stuck");
        place.signal(Signal::CONT);
        jobs.are_held(&place);
        if is_exclusive {
            wait_until("back in the group that gives way to the rest", || groups() == before);
            let first = jobs.programs[0].pid();
            wait_busily_until("raised again", || policies(first).contains(&SchedPolicy::Fifo));
        }
        // A machine that was busy meanwhile may be late with a plan.
        wait_until("all stand as they are to", || {
            place.client().check().unwrap().violations.is_empty()
        });
    });
}

#[test]
fn needs_root_release_after_both_die_reports_jobs() {
    with_each_backend(&[], |mut place| {
        let jobs = Jobs::new(&place);
        place.kill_daemon_and_guardian();
        assert!(stands_still(jobs.programs[1].pid()), "nobody is there who could have released it");
        let report = place.release(&["--keep-jobs"]);
        Jobs::check_report(&report, "all are released, and on file for the next daemon");
        jobs.are_released("by the stop command of a service manager");
        place.start();
        jobs.are_held(&place);
        place.kill_daemon_and_guardian();
        assert!(stands_still(jobs.programs[1].pid()), "nobody is there who could have released it");
        let report = place.release(&[]);
        Jobs::check_report(&report, "all are released");
        jobs.are_released("by hand");
        assert_eq!(place.jobs_on_file(), 0);
        assert_eq!(place.release(&[]), "", "there is nothing to report");
    });
}

/// A job of one program that sleeps, and its group; prints what is skipped where jobs have none.
fn sleeper(place: &Place) -> Option<(Program, PathBuf)> {
    let program = Program::sleeper();
    let job = job_with(place, &program, 1);
    let group = place.job(job).unwrap().cgroup;
    if group.is_none() {
        skipped("jobs have no groups of their own here");
    }
    Some((program, group?.into()))
}

#[test]
fn needs_root_no_group_is_left_of_jobs_without_files() {
    with_each_backend(&[], |mut place| {
        let Some((program, group)) = sleeper(&place) else { return };
        let parent = group.parent().unwrap();
        let name = parent.file_name().unwrap().to_str().unwrap();
        let mut groups = groups_of(program.pid());
        groups.retain(|group| group.to_str().unwrap().contains(name));
        assert!(groups.iter().any(|it| it.starts_with(parent)), "{groups:?}");
        place.kill();
        drop(program);
        // As with the runtime directory of a session that has ended. The guardian may have been
        // faster.
        let _ = fs::remove_dir_all(jobs_dir(&place.socket()));
        wait_until("no group is left", || {
            !parent.exists() && !groups.iter().any(|group| group.exists())
        });
    });
}

#[test]
fn needs_root_group_without_files_goes_when_empty() {
    if !is_root() {
        return;
    }
    let mut place = Place::new(&[]);
    let Some((program, group)) = sleeper(&place) else { return };
    let guardian = place.status().guardian_pid.unwrap() as u32;
    place.kill();
    let _ = fs::remove_dir_all(jobs_dir(&place.socket()));
    has_looked(guardian, 3);
    assert!(group.exists(), "a process is in it");
    drop(program);
    wait_until("the group is gone", || !group.exists());
}

#[test]
fn needs_root_guardian_awaits_no_empty_groups() {
    if !is_root() {
        return;
    }
    let mut place = Place::new(&[]);
    let Some((program, group)) = sleeper(&place) else { return };
    let guardian = place.status().guardian_pid.unwrap() as u32;
    let made_by_it = group.join("made-by-the-program");
    fs::create_dir(&made_by_it).unwrap();
    place.kill();
    let _ = fs::remove_dir_all(jobs_dir(&place.socket()));
    drop(program);
    wait_until("the guardian has ended", || process::stat(Path::new("/proc"), guardian).is_err());
    let stays = made_by_it.exists();
    for group in made_by_it.ancestors().take(3) {
        let _ = fs::remove_dir(group);
    }
    assert!(stays, "it is not the guardian's");
}

/// The kernel has any thread handle a signal that does not block it, where the first one starts
/// another thread at that moment, say.
#[test]
fn signals_are_blocked_in_the_guardians_keeper() {
    let place = Place::new(&[]);
    let keepers = place.threads("guardian-keeper");
    assert_eq!(keepers.len(), 1, "a thread with a table of open files of its own");
    let path = format!("/proc/{}/task/{}/status", place.pid(), keepers[0]);
    let status = fs::read_to_string(path).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        assert_ne!(blocked & 1 << (signal.as_raw() - 1), 0, "{signal:?}");
    }
}

#[test]
fn ending_daemon_does_not_wait_for_its_guardian() {
    let mut place = Place::new(&[]);
    let guardian = place.halt_guardian();
    place.client().shutdown().unwrap();
    // After the end of the one before.
    place.start();
    let is_there = process::stat(Path::new("/proc"), guardian as u32).is_ok();
    assert!(!is_there, "the guardian has ended with its daemon");
}
