//! Gangs whose threads live too short to be switched one by one.

use std::collections::BTreeSet;

use gang_conductor::{
    Conductor, Counted, Due, Effects, Eligibility, Followed, NewThreads, Now, Regroup,
    ShortLivedGang, Suspension, life::State,
};
use gang_schedule::CpuSet;
use gang_timetable::{
    Action, Attributes, Control, Controls, Group, InSlot, Runnable, Seen, record::Placement,
};

use crate::one::{JOB, NOW, PID, STARTED, candidate, cgroup, conductor_with, home};

/// A gang in the group of all gangs.
fn gang() -> Conductor {
    gang_where(true)
}

fn gang_where(has_common_group: bool) -> Conductor {
    let mut core = conductor_with(has_common_group);
    assert_eq!(core.register(NOW, candidate(2)), Ok(JOB));
    core.attach(NOW, JOB, home(cgroup()), (PID, STARTED)).unwrap();
    core.arrive(JOB).unwrap();
    core
}

fn read(core: &mut Conductor, tids: &[u32]) {
    let reading = core.reading(JOB).unwrap();
    let cpus: CpuSet = (0..4).collect();
    reading.members.update(tids, |tid| {
        let now = Attributes::other(0);
        let (cpus, original) = (cpus.clone(), None);
        Some(Seen { tid, now, cpus, were_given: false, original, started_by: None })
    });
}

fn look(core: &mut Conductor) {
    let of_jobs = vec![(JOB, Runnable::exactly(2))];
    core.count(NOW, &Counted { all: 3, of_daemon: 1, of_jobs });
}

/// So many looks, with two processes before each that end at once.
fn bustle(core: &mut Conductor, looks: u32) {
    for look_at in 0..looks {
        let new = 100 + 2 * look_at;
        read(core, &[PID, new, new + 1]);
        read(core, &[PID]);
        look(core);
    }
}

/// Plans, so many milliseconds after the beginning.
fn plan(core: &mut Conductor, after_ms: u64) -> Effects {
    let after_ns = after_ms * 1_000_000;
    let now = Now { utc_ns: NOW.utc_ns + after_ns, monotonic_ns: NOW.monotonic_ns + after_ns };
    core.begin_step(now);
    let due = core.due(now, 1, 1_000_000, NewThreads::Anywhere);
    let Due::Plan { resume_ns, .. } = due else { panic!("{due:?}") };
    let (mut planning, _) = core.begin(now, resume_ns, NewThreads::None, Followed::default());
    core.plan(&mut planning);
    let effects = core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000);
    // The rest is asked for in the next step.
    core.begin_step(now);
    effects
}

fn mode(core: &Conductor) -> InSlot {
    core.jobs()[&JOB].in_slot
}

/// Whether timetables make threads real-time ones, and whether they set what weighs the gang.
fn changes(effects: &Effects) -> (bool, bool) {
    let parts = effects.timetables.iter().flat_map(|timetable| &timetable.parts);
    let actions: Vec<&Action> = parts.flatten().collect();
    let is_realtime = |action: &&&Action| match action {
        Action::Attributes { attributes, .. } => attributes.policy.is_realtime(),
        _ => false,
    };
    let weighs = |action: &&&Action| {
        matches!(action, Action::Control { group: Group::Job(JOB), control: Control::Idle(_) })
    };
    (actions.iter().any(|it| is_realtime(&it)), actions.iter().any(|it| weighs(&it)))
}

fn own() -> (Placement, Controls) {
    let controls = Controls { idle: true, weight: true, ..Controls::default() };
    (cgroup(), controls)
}

#[test]
fn gang_of_short_lived_threads_is_weighed_as_a_whole() {
    let mut core = gang();
    bustle(&mut core, 2);
    assert_eq!(changes(&plan(&mut core, 0)), (true, false));
    bustle(&mut core, 1);
    assert!(core.take_effects().regroups.is_empty(), "it is decided with the next plans");
    // Its threads are ordinary ones from now on, and are to move.
    let effects = plan(&mut core, 100);
    assert_eq!(changes(&effects), (false, false));
    assert_eq!((mode(&core), effects.regroups), (InSlot::Weighed, vec![JOB]));
    assert_eq!(core.regroup(JOB).map(|it| it.0), Some(Regroup::ToOwn));
    assert!(!core.is_switched_by_thread(JOB));
    let (placement, controls) = own();
    core.moved(JOB, gang_schedule::Policy::Gang, placement, controls).unwrap();
    assert_eq!(core.regroup(JOB), None);
    let effects = plan(&mut core, 200);
    assert_eq!((changes(&effects), effects.regroups), ((false, true), vec![]));
    assert_eq!(core.short_lived_gang(&core.jobs()[&JOB]), Some(ShortLivedGang::Weighed));
}

#[test]
fn gang_returns_once_its_threads_stay() {
    let mut core = gang();
    bustle(&mut core, 3);
    plan(&mut core, 0);
    let (placement, controls) = own();
    core.moved(JOB, gang_schedule::Policy::Gang, placement, controls).unwrap();
    (0..49).for_each(|_| look(&mut core));
    assert!(plan(&mut core, 100).regroups.is_empty());
    look(&mut core);
    assert_eq!(plan(&mut core, 200).regroups, [JOB]);
    assert_eq!(core.regroup(JOB).map(|it| it.0), Some(Regroup::ToShared));
    // Until it is back, its group weighs what others weigh.
    core.forsake_own_group(JOB).unwrap();
    let effects = plan(&mut core, 300);
    assert_eq!((changes(&effects), mode(&core)), ((false, true), InSlot::Weighed));
    let parts = effects.timetables.iter().flat_map(|timetable| timetable.parts.iter().flatten());
    let mut controls =
        parts.filter(|it| matches!(it, Action::Control { group, .. } if *group == Group::Job(JOB)));
    assert!(controls.all(|it| Conductor::as_others(JOB).contains(it)));
    core.moved(JOB, gang_schedule::Policy::Gang, cgroup(), Controls::default()).unwrap();
    assert_eq!(changes(&plan(&mut core, 400)), (true, false));
    assert_eq!(mode(&core), InSlot::Exclusive);
}

#[test]
fn gang_that_cannot_return_is_weighed_as_a_whole() {
    let mut core = gang();
    bustle(&mut core, 3);
    plan(&mut core, 0);
    let (placement, controls) = own();
    core.moved(JOB, gang_schedule::Policy::Gang, placement, controls).unwrap();
    (0..50).for_each(|_| look(&mut core));
    plan(&mut core, 100);
    core.forsake_own_group(JOB).unwrap();
    core.cannot_regroup(NOW, JOB).unwrap();
    let effects = plan(&mut core, 200);
    assert_eq!((changes(&effects), mode(&core)), ((false, true), InSlot::Weighed));
    assert!(core.jobs()[&JOB].home.as_ref().unwrap().members.controls.weigh());
}

#[test]
fn gang_that_cannot_move_is_switched_by_thread() {
    let mut core = gang();
    bustle(&mut core, 3);
    assert_eq!(plan(&mut core, 0).regroups, [JOB]);
    assert_eq!(core.short_lived_gang(&core.jobs()[&JOB]), None, "nobody knows yet");
    core.cannot_regroup(NOW, JOB).unwrap();
    assert_eq!((changes(&plan(&mut core, 100)), mode(&core)), ((true, false), InSlot::Exclusive));
    assert_eq!(core.short_lived_gang(&core.jobs()[&JOB]), Some(ShortLivedGang::Unweighed));
    assert!(plan(&mut core, 59_000).regroups.is_empty(), "not yet");
    bustle(&mut core, 3);
    assert_eq!(plan(&mut core, 60_000).regroups, [JOB]);
}

#[test]
fn gang_without_a_group_to_itself_is_never_weighed() {
    let tree = Placement::Tree { processes: vec![(PID, STARTED)] };
    let adopted = |cpu_group: Option<&str>| {
        let mut placement = cgroup();
        if let Placement::Cgroup { adopted, cpu_group: of_v1, .. } = &mut placement {
            (*adopted, *of_v1) = (true, cpu_group.map(Into::into));
        }
        placement
    };
    let kept = || {
        let mut placement = cgroup();
        if let Placement::Cgroup { cpu_group_is_shared, .. } = &mut placement {
            *cpu_group_is_shared = false;
        }
        placement
    };
    for (placement, has_common_group, can) in [
        (cgroup(), true, true),
        (kept(), true, false),
        (cgroup(), false, false),
        (tree, true, false),
        (adopted(None), true, false),
        (adopted(Some("cpu/gangd")), true, true),
    ] {
        let mut core = gang_where(has_common_group);
        core.job_by_hand(JOB).home.as_mut().unwrap().placement = placement.clone();
        bustle(&mut core, 3);
        assert_eq!(!plan(&mut core, 0).regroups.is_empty(), can, "{placement:?}");
        let how = core.short_lived_gang(&core.jobs()[&JOB]);
        assert_eq!(how, (!can).then_some(ShortLivedGang::Unweighed), "{placement:?}");
    }
}

#[test]
fn gang_that_stands_still_or_loses_a_process_stays() {
    let mut core = gang();
    bustle(&mut core, 3);
    core.suspend(NOW, JOB, Suspension::Own).unwrap();
    assert!(plan(&mut core, 0).regroups.is_empty(), "it stands still");
    core.suspend(NOW, JOB, Suspension::None).unwrap();
    core.detach(JOB, (PID, STARTED), &[PID]).unwrap();
    assert!(plan(&mut core, 100).regroups.is_empty(), "a process is on its way out");
    core.has_left(JOB, PID, false).unwrap();
    assert_eq!(plan(&mut core, 200).regroups, [JOB]);
    core.change(JOB, |spec, _| spec.policy = gang_schedule::Policy::None).unwrap();
    assert_eq!(core.regroup(JOB), None, "Linux alone schedules it");
    assert_eq!(State::of(&core.jobs()[&JOB]), State::Present);
}

#[test]
fn gang_without_slots_moves_for_its_limits_as_well() {
    let mut core = gang();
    core.change(JOB, |spec, _| spec.min_cpus = 2).unwrap();
    plan(&mut core, 0);
    let online = core.schedule().topology().set().clone();
    let reading = core.reading(JOB).unwrap();
    reading.members.see_cpus(PID, [3].into_iter().collect(), false, &online);
    core.saw_members_of(JOB);
    bustle(&mut core, 2);
    assert!(plan(&mut core, 100).regroups.is_empty(), "it has no slots to be weighed in");
    assert_eq!(core.eligibility(&core.jobs()[&JOB]), Eligibility::Unplaceable);
    core.move_for_limits(JOB, Some(Regroup::ToCaller));
    assert_eq!(plan(&mut core, 200).regroups, [JOB]);
    assert_eq!(core.regroup(JOB).map(|it| it.0), Some(Regroup::ToCaller));
}
