//! When it is looked for threads that left their job by themselves.

use std::collections::{BTreeMap, BTreeSet};

use gang_conductor::{
    Conductor, Due, Followed, Looked, NewThreads, Now, Suspension, life::State, strays::LOOK_NS,
};
use gang_schedule::{JobId, Topology};
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

/// The next look, which finds nothing and takes so long for each job.
fn look(core: &mut Conductor, now: &mut Now, job_ns: u64) -> Vec<JobId> {
    let sleep_ns = core.sleep_ns(now.utc_ns, 1_000 * MS);
    *now = Now { utc_ns: now.utc_ns + sleep_ns, monotonic_ns: now.monotonic_ns + sleep_ns };
    let mut jobs = core.strays_due(*now);
    let count = jobs.len();
    jobs.truncate(LOOK_NS.div_ceil(job_ns) as usize);
    let (has_stopped, spent_ns) = (jobs.len() < count, job_ns * jobs.len() as u64);
    let looked = Looked { jobs: jobs.clone(), has_stopped, spent_ns, ..Looked::default() };
    core.looked_for_strays(*now, &looked);
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

/// A conductor with so many jobs of one CPU that have slots, and so many others that stand still.
fn with_jobs(raised: u64, others: u64) -> Conductor {
    let mut core = conductor();
    core.change_topology(Topology::flat(64)).unwrap();
    set(&mut core, |settings| {
        let limits = &mut settings.limits;
        (limits.jobs, limits.jobs_per_user, limits.cpus_per_user) = (4_000, 4_000, 4_000);
    });
    for id in (1..=raised + others).map(JobId) {
        assert_eq!(core.register(NOW, candidate(1)), Ok(id));
        core.attach(NOW, id, home(cgroup()), (PID, STARTED)).unwrap();
        core.arrive(id).unwrap();
        if id.0 > raised {
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
    assert!(core.planned_gangs().iter().copied().eq((1..=raised).map(JobId)));
    assert_eq!(core.strays_due(NOW), []);
    core
}

/// The longest time from one look at a job to the next one, of the raised and of the others, in
/// looks for ten seconds that take so long for each job.
fn longest_ns(core: &mut Conductor, job_ns: u64) -> [u64; 2] {
    let planned = core.planned_gangs().clone();
    let mut now = NOW;
    let mut last: BTreeMap<JobId, u64> = core.jobs().keys().map(|&id| (id, NOW.utc_ns)).collect();
    let (mut longest, mut spent_ns) = ([0; 2], 0);
    while now.utc_ns < NOW.utc_ns + 10_000 * MS {
        let jobs = look(core, &mut now, job_ns);
        spent_ns += job_ns * jobs.len() as u64;
        assert!(!jobs.is_empty() && spent_ns * 20 <= now.utc_ns - NOW.utc_ns + 20 * LOOK_NS);
        for id in jobs {
            let after_ns = now.utc_ns - last.insert(id, now.utc_ns).unwrap();
            let longest = &mut longest[usize::from(!planned.contains(&id))];
            *longest = after_ns.max(*longest);
        }
    }
    let of_last = last.into_iter().map(|(id, at_ns)| (planned.contains(&id), now.utc_ns - at_ns));
    for (is_raised, after_ns) in of_last {
        let longest = &mut longest[usize::from(!is_raised)];
        *longest = after_ns.max(*longest);
    }
    longest
}

#[test]
fn each_raised_gang_is_looked_at_within_100_ms() {
    for (others, job_ns) in [(0, 5_000), (1_000, 5_000), (1_000, 7_500), (0, 1_000)] {
        let [of_raised, of_others] = longest_ns(&mut with_jobs(200, others), job_ns);
        assert!(of_raised <= 100 * MS, "{others} others, {job_ns}: {of_raised}");
        // Of each look they have a quarter.
        assert!(of_others <= 2_000 * MS, "{of_others}");
    }
}

#[test]
fn gangs_that_take_longer_have_their_turns() {
    for job_ns in [50_000, 2 * LOOK_NS] {
        let [of_raised, of_others] = longest_ns(&mut with_jobs(12, 12), job_ns);
        assert!(of_raised <= 24 * 20 * (job_ns + LOOK_NS), "{job_ns}: {of_raised}");
        assert!(of_others <= 48 * 20 * (job_ns + LOOK_NS), "{job_ns}: {of_others}");
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
