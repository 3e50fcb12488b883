//! Daemon and guardian are killed, in each order and with each backend: every program runs on as an
//! ordinary one, and who cleans up says what was found. A daemon that was only stopped goes on where it was.

mod place;

use std::{fs, path::Path};

use gang_engine::backend::Backend;
use gang_linux::{process, sched::Policy};
use gang_protocol::paths::jobs_dir;
use place::{
    Place, Program, gives_way, groups_of, job_with, policies, stands_still, wait_busily_until,
    wait_until, what_is_left, with_each_backend,
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
        for program in &self.programs {
            // What it is that stays is told where it does.
            let mut left = None;
            let is_released = || {
                let now = what_is_left(program.pid());
                if now.is_some() && now != left {
                    eprintln!("{when}: {now:?}");
                }
                left = now;
                left.is_none()
            };
            wait_until(when, is_released);
        }
    }

    /// What is said of them by who finds them.
    fn are_told_of(told: &str, fate: &str) {
        let begin = "a daemon left 2 job(s) behind, 2 of them with 2 thread(s): ";
        let (paused, end) = told
            .strip_prefix(begin)
            .and_then(|rest| rest.split_once("at the lowest priority, "))
            .and_then(|(_, rest)| rest.split_once(" job(s) stood still; "))
            .unwrap_or_else(|| panic!("{told}"));
        // The other one may stand still out of its slot.
        assert!(["1", "2"].contains(&paused), "{told}");
        assert_eq!(end.trim_end(), fate);
    }
}

#[test]
fn needs_root_whoever_is_killed_everybody_is_released() {
    with_each_backend(&[], |mut place| {
        let jobs = Jobs::new(&place);
        place.kill_daemon();
        jobs.are_released("by the guardian");
        place.start();
        jobs.are_held(&place);
        place.kill_guardian();
        place.kill_daemon();
        jobs.are_released("by the next guardian");
        place.start();
        jobs.are_held(&place);
    });
}

#[test]
fn needs_root_a_daemon_that_was_stuck_has_its_jobs_stand_as_before() {
    with_each_backend(&[], |place| {
        let jobs = Jobs::new(&place);
        let is_exclusive = place.status().backend == Backend::Rt.name();
        let give_way = || jobs.programs.each_ref().map(|program| gives_way(program.pid()));
        let gave_way = give_way();
        place.signal_daemon(Signal::STOP);
        jobs.are_released("while the daemon is stuck");
        place.signal_daemon(Signal::CONT);
        jobs.are_held(&place);
        if is_exclusive {
            wait_until("they give way to the rest of the machine again", || give_way() == gave_way);
            let first = jobs.programs[0].pid();
            wait_busily_until("raised again", || policies(first).contains(&Policy::Fifo));
        }
        // A machine that was busy meanwhile may be late with a plan.
        wait_until("all stand as they are to", || {
            place.client().check().unwrap().violations.is_empty()
        });
    });
}

#[test]
fn needs_root_where_both_are_killed_at_once_who_cleans_up_says_what_was_found() {
    with_each_backend(&[], |mut place| {
        let jobs = Jobs::new(&place);
        place.kill_daemon_and_guardian();
        assert!(stands_still(jobs.programs[1].pid()), "nobody is there who could have released it");
        let told = place.release_and_keep_jobs();
        Jobs::are_told_of(&told, "all are released, and on file for the next daemon");
        jobs.are_released("by the stop command of a service manager");
        place.start();
        jobs.are_held(&place);
        place.kill_daemon_and_guardian();
        assert!(stands_still(jobs.programs[1].pid()), "nobody is there who could have released it");
        let told = place.release();
        Jobs::are_told_of(&told, "all are released");
        jobs.are_released("by hand");
        assert_eq!(place.jobs_on_file(), 0);
        assert_eq!(place.release(), "", "there is nothing to be told");
    });
}

#[test]
fn needs_root_no_group_is_left_of_jobs_whose_files_are_gone() {
    with_each_backend(&[], |mut place| {
        let program = Program::shell("exec sleep 60");
        let job = job_with(&place, &program, 1);
        let Some(group) = place.job(job).unwrap().cgroup else { return };
        let parent = Path::new(&group).parent().unwrap();
        let name = parent.file_name().unwrap().to_str().unwrap();
        let mut groups = groups_of(program.pid());
        groups.retain(|group| group.to_str().unwrap().contains(name));
        assert!(groups.iter().any(|it| it.starts_with(parent)), "{groups:?}");
        place.kill_daemon();
        drop(program);
        // As with the runtime directory of a session that has ended. The guardian may have been faster.
        let _ = fs::remove_dir_all(jobs_dir(&place.socket()));
        wait_until("no group is left", || {
            !parent.exists() && !groups.iter().any(|group| group.exists())
        });
    });
}

#[test]
fn a_daemon_that_is_told_to_end_does_not_wait_for_its_guardian() {
    let mut place = Place::new(&[]);
    let guardian = place.halt_guardian();
    place.client().stop().unwrap();
    // After the end of the one before.
    place.start();
    let is_there = process::stat(Path::new("/proc"), guardian as u32).is_ok();
    assert!(!is_there, "the guardian has ended with its daemon");
}
