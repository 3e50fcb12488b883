//! The time that a gang waits for its turn.

use std::collections::BTreeSet;

use gang_conductor::{Conductor, Due, Followed, NewThreads, Now, Suspension};
use gang_schedule::{Config, JobId};

use crate::one::{NOW, candidate, cgroup, conductor_of, home};

const SECOND: u64 = 1_000_000_000;

/// A conductor of four CPUs, with gangs of so many each.
fn with_gangs(cpus: &[u32]) -> (Conductor, Vec<JobId>) {
    let mut core = conductor_of(Config::default(), false);
    let enter = |&cpus: &u32| {
        let id = core.register(NOW, candidate(cpus)).unwrap();
        core.join(NOW, id, home(cgroup())).unwrap();
        id
    };
    let jobs = cpus.iter().map(enter).collect();
    (core, jobs)
}

fn at(passed_ns: u64) -> Now {
    Now { utc_ns: NOW.utc_ns + passed_ns, monotonic_ns: NOW.monotonic_ns + passed_ns }
}

/// Plans from one moment to another, as the daemon does.
fn run(core: &mut Conductor, from_ns: u64, until_ns: u64) {
    for passed_ns in (from_ns..=until_ns).step_by(2_500_000) {
        core.begin_step(at(passed_ns));
        let due = core.due(at(passed_ns), 1, 1_000_000, NewThreads::None);
        if let Due::Plan { resume_ns, new_threads, .. } = due {
            let followed = Followed::default();
            let (mut planning, _) = core.begin(at(passed_ns), resume_ns, new_threads, followed);
            core.plan(&mut planning);
            core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000);
        }
    }
}

/// Time in slot and out of slot, in seconds.
fn times(core: &Conductor, job: JobId) -> (f64, f64) {
    let job = core.job(job).unwrap();
    (job.in_slot_ns as f64 / SECOND as f64, job.out_of_slot_ns as f64 / SECOND as f64)
}

#[test]
fn gangs_that_take_turns_wait_for_each_other() {
    let (mut core, jobs) = with_gangs(&[4, 4]);
    run(&mut core, 0, 4 * SECOND);
    for id in jobs {
        let (in_slot, out_of_slot) = times(&core, id);
        assert!((in_slot + out_of_slot - 4.0).abs() < 0.1, "{in_slot} s and {out_of_slot} s");
        assert!((1.5..2.5).contains(&out_of_slot), "{out_of_slot} s");
    }
}

#[test]
fn gangs_side_by_side_do_not_wait() {
    let (mut core, jobs) = with_gangs(&[2, 2]);
    run(&mut core, 0, 2 * SECOND);
    for id in jobs {
        let (in_slot, out_of_slot) = times(&core, id);
        assert!(in_slot > 1.9 && out_of_slot < 0.05, "{in_slot} s and {out_of_slot} s");
    }
}

#[test]
fn gang_that_stands_still_or_sleeps_does_not_wait() {
    let (mut core, jobs) = with_gangs(&[4, 4, 4]);
    core.suspend(NOW, jobs[0], Suspension::Own).unwrap();
    core.sleep(jobs[1]).unwrap();
    run(&mut core, 0, 2 * SECOND);
    for &id in &jobs[..2] {
        assert_eq!(times(&core, id), (0.0, 0.0));
    }
    let (in_slot, out_of_slot) = times(&core, jobs[2]);
    assert!(in_slot > 1.9 && out_of_slot < 0.05, "{in_slot} s and {out_of_slot} s");
}

#[test]
fn slurm_job_waits_for_no_gangs_without_a_limit() {
    for (other, waits) in [(None, false), (Some("7"), false), (Some("8"), true)] {
        let (mut core, jobs) = with_gangs(&[4, 4]);
        for (id, slurm_job) in jobs.iter().zip([Some("7"), other]) {
            core.job_by_hand(*id).slurm_job = slurm_job.map(str::to_owned);
        }
        run(&mut core, 0, 4 * SECOND);
        let (in_slot, out_of_slot) = times(&core, jobs[0]);
        assert!((1.5..2.5).contains(&in_slot), "{in_slot} s");
        let expected = if waits { 1.5..2.5 } else { 0.0..0.05 };
        assert!(expected.contains(&out_of_slot), "{other:?}: {out_of_slot} s");
    }
}
