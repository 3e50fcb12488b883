//! When it is looked for threads that left their job by themselves.

use std::collections::BTreeSet;

use gang_conductor::{
    Conductor, Due, Followed, Looked, NewThreads, Now, Suspension, life::State,
    strays::JOBS_AT_ONCE,
};
use gang_schedule::JobId;
use gang_timetable::{Attributes, Standing, Thread};

use crate::one::{JOB, NOW, PID, STARTED, candidate, cgroup, conductor, home, in_state, set};

const MS: u64 = 1_000_000;
const BEAT_NS: u64 = 200 * MS;

fn after(ns: u64) -> Now {
    Now { utc_ns: NOW.utc_ns + ns, monotonic_ns: NOW.monotonic_ns + ns }
}

/// A conductor whose only job stands still.
fn with_paused_job(now: Now) -> Conductor {
    let mut core = in_state(State::Stopped);
    core.job_by_hand(JOB).standing = Standing::Paused;
    core.begin_step(now);
    core
}

/// The next look, which finds nothing.
fn look(core: &mut Conductor, now: &mut Now) -> Vec<JobId> {
    let sleep_ns = core.sleep_ns(now.utc_ns, 1_000 * MS);
    *now = Now { utc_ns: now.utc_ns + sleep_ns, monotonic_ns: now.monotonic_ns + sleep_ns };
    let jobs = core.strays_due(*now);
    core.looked_for_strays(*now, &Looked { jobs: jobs.clone(), ..Looked::default() });
    jobs
}

/// How long until the first look is due.
fn look_due_ns(core: &mut Conductor, now: Now) -> u64 {
    assert_eq!(core.strays_due(now), []);
    let sleep_ns = core.sleep_ns(now.utc_ns, u64::MAX);
    assert!(sleep_ns > 0 && sleep_ns < u64::MAX, "{sleep_ns}");
    sleep_ns
}

#[test]
fn look_is_due_once_and_again_after_a_rest() {
    let mut core = with_paused_job(NOW);
    let mut at_ns = look_due_ns(&mut core, NOW);
    for spent_ns in [0, MS, 100 * MS, 0] {
        let now = after(at_ns);
        assert_eq!(core.strays_due(now), [JOB]);
        core.looked_for_strays(now, &Looked { spent_ns, ..Looked::default() });
        assert_eq!(core.strays_due(now), []);
        let rest_ns = core.sleep_ns(now.utc_ns, u64::MAX);
        assert!(rest_ns >= 20 * spent_ns, "a twentieth of the time at most");
        assert!(rest_ns <= (20 * spent_ns).max(100 * MS), "{rest_ns}");
        // Nothing that happens meanwhile brings a look forward.
        assert_eq!(core.strays_due(after(at_ns + rest_ns / 2)), []);
        assert_eq!(core.sleep_ns(now.utc_ns, u64::MAX), rest_ns);
        at_ns += rest_ns;
    }
}

#[test]
fn look_is_at_some_jobs_in_turn() {
    let mut core = conductor();
    set(&mut core, |settings| {
        let limits = &mut settings.limits;
        (limits.jobs, limits.jobs_per_user, limits.cpus_per_user) = (400, 400, 400);
    });
    let jobs: BTreeSet<JobId> = (1..=100).map(JobId).collect();
    for &id in &jobs {
        let threads: Vec<Thread> = match id.0 {
            // Some have as many as a job may have.
            id if id % 10 == 0 => {
                (1..=4096).map(|tid| Thread::new(tid, Attributes::other(0))).collect()
            }
            _ => home(cgroup()).members.threads().to_vec(),
        };
        let mut home = home(cgroup());
        home.members = home.members.with_threads(threads);
        assert_eq!(core.register(NOW, candidate(1)), Ok(id));
        core.attach(NOW, id, home, (PID, STARTED)).unwrap();
        core.arrive(id).unwrap();
        if id.0 < 60 {
            core.suspend(NOW, id, Suspension::Own).unwrap();
        }
        core.job_by_hand(id).standing = Standing::Paused;
    }
    core.begin_step(NOW);
    core.take_effects();
    let Due::Plan { resume_ns, new_threads, .. } = core.due(NOW, 1, MS, NewThreads::None) else {
        panic!("nothing was planned yet");
    };
    let (mut planning, _) = core.begin(NOW, resume_ns, new_threads, Followed::default());
    core.plan(&mut planning);
    core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000);
    let planned = core.planned_gangs().clone();
    assert!(planned.len() > JOBS_AT_ONCE, "{}", planned.len());
    let (mut now, mut seen) = (NOW, BTreeSet::new());
    assert_eq!(core.strays_due(now), []);
    for looks in 1.. {
        let at = look(&mut core, &mut now);
        let threads = |id: &JobId| core.jobs()[id].home.as_ref().unwrap().members.threads().len();
        let threads: usize = at.iter().map(threads).sum();
        assert!(at.len() <= JOBS_AT_ONCE && threads <= 2 * 4096, "{}, {threads}", at.len());
        let of_raised = at.iter().filter(|id| planned.contains(id)).count();
        assert!(of_raised > 0 && of_raised < at.len(), "{at:?}");
        seen.extend(at);
        if seen == jobs {
            break;
        }
        assert!(looks < 20, "{seen:?}");
    }
}

#[test]
fn clock_set_back_puts_no_look_off() {
    let mut core = with_paused_job(after(3_600_000 * MS));
    look_due_ns(&mut core, after(3_600_000 * MS));
    let back = Now { monotonic_ns: NOW.monotonic_ns + 3_600_001 * MS, ..NOW };
    core.begin_step(back);
    assert!(look_due_ns(&mut core, back) <= 100 * MS);
}

#[test]
fn settled_conductor_has_no_look_due() {
    let mut core = with_paused_job(NOW);
    look_due_ns(&mut core, NOW);
    core.end(JOB).unwrap();
    core.take_effects();
    assert!(core.is_settled(false, false));
    let later = after(1_000 * MS);
    assert_eq!(core.sleep_ns(later.utc_ns, BEAT_NS), BEAT_NS, "it would not sleep any more");
    assert_eq!(core.strays_due(later), []);
}

#[test]
fn threads_of_no_job_are_those_that_nobody_knows() {
    let mut core = conductor();
    let threads = [vec![3], (10..200).collect::<Vec<u32>>(), vec![4, 7, 250]];
    for (id, tids) in (1..).map(JobId).zip(&threads) {
        let threads = tids.iter().map(|&tid| Thread::new(tid, Attributes::other(0)));
        let mut home = home(cgroup());
        home.members = home.members.with_threads(threads.collect());
        assert_eq!(core.register(NOW, candidate(1)), Ok(id));
        core.attach(NOW, id, home, (PID, STARTED)).unwrap();
    }
    for asked in [vec![], vec![3], vec![5], vec![1, 3, 4, 11, 201, 250], (1..300).collect()] {
        let asked: BTreeSet<u32> = asked.into_iter().collect();
        let is_free = |tid: &u32| !threads.iter().any(|of_job| of_job.contains(tid));
        let free: BTreeSet<u32> = asked.iter().copied().filter(is_free).collect();
        assert!(asked.iter().all(|tid| core.is_of_no_job(*tid) == free.contains(tid)));
        assert_eq!(core.of_no_job(asked), free);
    }
}
