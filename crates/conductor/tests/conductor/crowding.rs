//! Jobs whose threads take more time to switch than an edge has.

use std::collections::BTreeSet;

use gang_conductor::{
    Conductor, Counted, Due, Effects, Eligibility, Followed, JobSeen, NewThreads, Note, Now,
    Suspension, life::State,
};
use gang_schedule::{Config, JobId, Policy, Topology};
use gang_timetable::{Action, Attributes, Seen, Standing, THREADS_MAX, Timetable};

use crate::one::{JOB, NOW, PID, candidate, cgroup, conductor_of, home, in_state, set};

const OTHER: JobId = JobId(2);

/// The daemon reads a job, which has so many threads from a number on.
fn reads(core: &mut Conductor, id: JobId, first: u32, threads: u32) {
    let reading = core.reading(id).unwrap();
    let now = Attributes::other(0);
    let tids: Vec<u32> = (first..first + threads).collect();
    reading.members.update(&tids, |tid| {
        let cpus = (0..4).collect();
        Some(Seen { tid, now, cpus, were_given: false, original: None, started_by: None })
    });
    core.saw_members_of(id);
    core.was_read(id);
}

fn later(after_ms: u64) -> Now {
    let after_ns = after_ms * 1_000_000;
    Now { utc_ns: NOW.utc_ns + after_ns, monotonic_ns: NOW.monotonic_ns + after_ns }
}

/// Plans from so long after the beginning on.
fn plans(core: &mut Conductor, after_ms: u64) -> Effects {
    plans_with_measured(core, after_ms, &BTreeSet::new())
}

fn plans_with_measured(core: &mut Conductor, after_ms: u64, measured: &BTreeSet<JobId>) -> Effects {
    let now = later(after_ms);
    core.begin_step(now);
    core.follow_thread_limit();
    core.renew_plans();
    let due = core.due(now, 1, 1_000_000, NewThreads::Of([JOB].into()));
    let Due::Plan { resume_ns, new_threads, .. } = due else { panic!("{due:?}") };
    let (mut planning, _) = core.begin(now, resume_ns, new_threads, Followed::default());
    core.plan(&mut planning);
    core.publish(planning, &BTreeSet::new(), measured, 0.0, || 30_000)
}

/// Two gangs that need all four CPUs in turn, of so many threads each.
fn two_gangs(threads: [u32; 2]) -> Conductor {
    let mut core = in_state(State::Present);
    core.change(JOB, |spec, _| (spec.cpus, spec.min_cpus) = (4, 4)).unwrap();
    let mut other = candidate(4);
    other.spec.min_cpus = 4;
    assert_eq!(core.register(NOW, other), Ok(OTHER));
    core.join(NOW, OTHER, home(cgroup())).unwrap();
    reads(&mut core, JOB, PID, threads[0]);
    reads(&mut core, OTHER, 100_000, threads[1]);
    core
}

fn eligibilities(core: &Conductor) -> [Eligibility; 2] {
    [JOB, OTHER].map(|id| core.eligibility(&core.jobs()[&id]))
}

#[test]
fn gangs_within_the_time_of_an_edge_take_turns() {
    // Four switchers, each with 1,000 actions.
    let mut core = two_gangs([2_000, 2_000]);
    for at in 0..4 {
        let notes = plans(&mut core, 40 * at).notes;
        assert!(notes.iter().all(|note| !matches!(note, Note::Crowded(_))), "{notes:?}");
    }
    assert_eq!(eligibilities(&core), [Eligibility::TakesTurns; 2]);
}

#[test]
fn larger_of_two_takes_no_turns_until_smaller() {
    use Eligibility::{Asleep, TakesTurns, TooManyThreads};
    let mut core = two_gangs([3_000, 2_000]);
    assert!(plans(&mut core, 0).notes.contains(&Note::Crowded(JOB)));
    assert_eq!(eligibilities(&core), [TooManyThreads, TakesTurns]);
    let is_with_rest = |fill| core.jobs()[&JOB].is_with_rest(fill, core.machine());
    assert_eq!([true, false].map(is_with_rest), [false, true], "where gangs do not fill");
    let crowded = core.jobs()[&JOB].crowded.clone().unwrap();
    assert_eq!((crowded.size, crowded.size_max), (3_000, 1_748));
    assert_eq!((crowded.takes_ns, crowded.others_ns), (750_000, 500_000));
    let effects = plans(&mut core, 40);
    assert!(effects.planned.unwrap().plans.iter().all(|plan| plan.slot(JOB).is_none()));
    // A few fewer are too many yet.
    reads(&mut core, JOB, PID, 1_749);
    assert_eq!(eligibilities(&core), [TooManyThreads, TakesTurns]);
    reads(&mut core, JOB, PID, 1_748);
    assert_eq!(eligibilities(&core), [Asleep, TakesTurns]);
    let seen = JobSeen { id: JOB, cpu_time_ns: 1_000_000, waited_us: None };
    assert!(!core.looked_at(NOW, seen));
    assert_eq!(eligibilities(&core), [TakesTurns; 2]);
    for at in 2..6 {
        let notes = plans(&mut core, 40 * at).notes;
        assert!(!notes.contains(&Note::Crowded(JOB)), "it has shrunk enough: {notes:?}");
    }
}

/// A step begins so long after the beginning, and the job is read in it.
fn reads_later(core: &mut Conductor, after_ms: u64, threads: u32) {
    core.begin_step(later(after_ms));
    reads(core, JOB, PID, threads);
}

fn is_crowded(core: &Conductor) -> bool {
    core.jobs()[&JOB].crowded.is_some()
}

#[test]
fn crowded_job_runs_again_once_the_other_has_ended() {
    let mut core = two_gangs([3_000, 2_000]);
    plans(&mut core, 0);
    reads(&mut core, JOB, PID, 3_000);
    assert!(is_crowded(&core));
    core.end(OTHER);
    reads_later(&mut core, 9_999, 3_000);
    assert!(is_crowded(&core), "it was found so a moment ago");
    reads_later(&mut core, 10_000, 3_000);
    assert!(!is_crowded(&core));
}

#[test]
fn crowded_job_that_does_not_fit_alone_stays_so() {
    let mut core = two_gangs([12_000, 2_000]);
    plans(&mut core, 0);
    core.end(OTHER);
    reads_later(&mut core, 60_000, 12_000);
    assert!(is_crowded(&core));
    // An eighth fewer than all of an edge.
    assert_eq!(core.jobs()[&JOB].crowded.as_ref().unwrap().size_max, 3_500);
    reads_later(&mut core, 60_000, 3_500);
    assert!(!is_crowded(&core));
}

#[test]
fn crowded_job_runs_again_once_other_takes_no_turns() {
    for how in ["suspended", "none", "crowded"] {
        let mut core = two_gangs([3_000, 2_000]);
        plans(&mut core, 0);
        reads_later(&mut core, 20_000, 3_000);
        assert!(is_crowded(&core), "{how}");
        match how {
            "suspended" => drop(core.suspend(NOW, OTHER, Suspension::Own).unwrap()),
            "none" => drop(core.change(OTHER, |spec, _| spec.policy = Policy::None).unwrap()),
            _ => {
                let crowded = core.jobs()[&JOB].crowded.clone();
                core.job_by_hand(OTHER).crowded = crowded;
            }
        }
        reads_later(&mut core, 20_001, 3_000);
        assert!(!is_crowded(&core), "{how}");
    }
}

#[test]
fn crowded_job_runs_again_once_actions_take_less() {
    let mut core = two_gangs([1_500, 1_200]);
    core.saw_cost(NOW.monotonic_ns, || Some(2_000));
    plans(&mut core, 0);
    assert!(is_crowded(&core));
    reads_later(&mut core, 10_000, 1_500);
    assert!(is_crowded(&core), "nothing has changed");
    core.saw_cost(NOW.monotonic_ns + 10_000_000_000, || Some(1_000));
    reads_later(&mut core, 10_001, 1_500);
    assert!(!is_crowded(&core));
}

#[test]
fn crowded_job_runs_again_once_edge_has_more_time() {
    let mut core = two_gangs([3_000, 2_000]);
    plans(&mut core, 0);
    set(&mut core, |settings| settings.limits.edge_ns += 300_000);
    reads_later(&mut core, 10_000, 3_000);
    assert!(is_crowded(&core), "an eighth must be to spare");
    set(&mut core, |settings| settings.limits.edge_ns += 100_000);
    reads_later(&mut core, 10_000, 3_000);
    assert!(!is_crowded(&core));
}

#[test]
fn action_that_takes_longer_leaves_room_for_fewer() {
    let mut core = two_gangs([1_500, 1_200]);
    core.saw_cost(NOW.monotonic_ns, || Some(2_000));
    core.saw_cost(NOW.monotonic_ns + 1, || panic!("it was measured just now"));
    assert_eq!(core.actions_max(), 500);
    assert!(plans(&mut core, 0).notes.contains(&Note::Crowded(JOB)));
    assert_eq!(core.jobs()[&JOB].crowded.as_ref().unwrap().takes_ns, 750_000);
}

#[test]
fn job_over_limit_keeps_others_raised_while_busy() {
    let mut core = two_gangs([12_000, 100]);
    let are_left_to_linux = |core: &mut Conductor, after_ms: u64| {
        (0..10).for_each(|_| core.count(later(after_ms), &Counted::default()));
        plans_with_measured(core, after_ms, &[OTHER].into());
        core.uncontended_jobs().eq([OTHER])
    };
    plans(&mut core, 0);
    assert!(is_crowded(&core));
    assert!(!are_left_to_linux(&mut core, 500));
    assert!(are_left_to_linux(&mut core, 5_000), "it sleeps");
    let seen = JobSeen { id: JOB, cpu_time_ns: 90_000_000, waited_us: None };
    core.looked_at(later(5_000), seen);
    assert!(!are_left_to_linux(&mut core, 5_040));
}

/// The processes of the job have so many threads now.
fn has_threads(core: &mut Conductor, count: usize) {
    let reading = core.reading(JOB).unwrap();
    reading.members.admit(&mut vec![PID], count);
}

#[test]
fn gang_again_in_no_timetable_is_paused_at_once() {
    let mut core = conductor_of(Config { fill: false, ..Config::default() }, false);
    for (id, cpus) in [(JOB, 4), (OTHER, 3)] {
        assert_eq!(core.register(NOW, candidate(cpus)), Ok(id));
        core.join(NOW, id, home(cgroup())).unwrap();
    }
    core.change_topology(Topology::flat(3)).unwrap();
    core.sleep(JOB).unwrap();
    (0..3).for_each(|at| drop(plans(&mut core, 400 * at)));
    core.wake(JOB).unwrap();
    // Of two readings in one step, the second one finds fewer threads.
    has_threads(&mut core, THREADS_MAX + 1);
    let now = later(1_200);
    core.begin_step(now);
    let due = core.due(now, 1, 1_000_000, NewThreads::Of([OTHER].into()));
    let Due::Plan { resume_ns, new_threads, .. } = due else { panic!("{due:?}") };
    let (mut planning, _) = core.begin(now, resume_ns, new_threads, Followed::default());
    core.plan(&mut planning);
    has_threads(&mut core, 1);
    core.was_read(JOB);
    core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000);
    assert_eq!(eligibilities(&core), [Eligibility::TooFewCpus, Eligibility::TakesTurns]);
    assert!(!core.planned_gangs().contains(&JOB) && !core.schedule().is_changed());
    core.follow_thread_limit();
    assert!(core.schedule().is_changed(), "plans come at once");
    plans(&mut core, 1_201);
    assert_eq!(core.jobs()[&JOB].standing, Standing::Paused);
}

#[test]
fn gang_with_too_many_threads_is_lowered_without_row() {
    for fill in [true, false] {
        let mut core = conductor_of(Config { fill, ..Config::default() }, false);
        let mut wanted = candidate(4);
        wanted.spec.min_cpus = 4;
        assert_eq!(core.register(NOW, wanted), Ok(JOB));
        core.join(NOW, JOB, home(cgroup())).unwrap();
        plans(&mut core, 0);
        core.change_topology(Topology::flat(3)).unwrap();
        // A switcher has missed an edge, so that the gang may be in its slot yet.
        let now = later(20);
        core.begin_step(now);
        let due = core.due(now, 1, 1_000_000, NewThreads::Of([JOB].into()));
        let Due::Plan { resume_ns, new_threads, .. } = due else { panic!("{due:?}") };
        let followed = Followed { missed: 1, ..Followed::default() };
        let (mut planning, _) = core.begin(now, resume_ns, new_threads, followed);
        core.plan(&mut planning);
        assert!(core.take_effects().orders.is_empty(), "it is left to the timetable");
        has_threads(&mut core, THREADS_MAX + 1);
        core.was_read(JOB);
        let none = BTreeSet::new();
        let effects = core.publish(planning, &none, &none, 0.0, || 30_000);
        assert_eq!(core.eligibility(&core.jobs()[&JOB]), Eligibility::TooManyThreads);
        let is_lowered = |timetable: &Timetable| {
            let first = timetable.edges.first();
            let parts = first.into_iter().filter(|edge| edge.at_ns == timetable.from_ns);
            let parts = parts.flat_map(|edge| &edge.lower);
            let mut actions = parts.flat_map(|&part| &timetable.parts[part]);
            actions.any(|action| matches!(action, Action::Attributes { tid: PID, .. }))
        };
        assert!(effects.timetables.iter().any(is_lowered), "fill: {fill}");
    }
}
