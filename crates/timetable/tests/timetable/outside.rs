//! Threads that chose their CPUs themselves, where these are not all in a slot.

use std::collections::BTreeMap;

use gang_schedule::{Config, CpuSet, Event, Gap, Plan, Schedule, Spec, Topology};
use gang_timetable::{
    Action, Attributes, Backend, Controls, Gang, InSlot, Members, OVERSUBSCRIBED, Seen, Standing,
    Stretch, Switchers, Timetable, Validity, compose, is_raised, lowered,
};

use crate::jobs::JOB;

fn cpus(cpus: &[u32]) -> CpuSet {
    cpus.iter().copied().collect()
}

/// A job with a thread that runs anywhere, and others that chose the CPUs of these sets.
fn members(chosen: &[&[u32]]) -> Members {
    let everywhere = cpus(&[0, 1, 2, 3]);
    let mut members = Members::new(Controls::default(), Attributes::other(0), everywhere.clone());
    let tids: Vec<u32> = (7..8 + chosen.len() as u32).collect();
    members.update(&tids, |tid| {
        let own = chosen.get((tid as usize).wrapping_sub(8)).map(|own| cpus(own));
        let (now, cpus) = (Attributes::other(0), own.unwrap_or_else(|| everywhere.clone()));
        Some(Seen { tid, now, cpus, were_given: false, original: None, started_by: None })
    });
    members
}

/// The timetables of a job that has these plans, on a machine of four CPUs.
fn stretch_of(
    members: &Members,
    in_slot: InSlot,
    config: &Config,
    plans: &[Plan],
) -> Vec<Timetable> {
    let until_ns = plans.len() as u64 * config.slice_ns;
    let gang = Gang {
        members,
        standing: Standing::Filling,
        out_of_row: Standing::Filling,
        has_new_threads: true,
        in_slot,
        has_page: false,
        validity: Validity::Scheduled,
        listeners: Vec::new(),
    };
    compose(&Stretch {
        generation: 1,
        config,
        backend: Backend::Rt,
        switchers: &Switchers::new(&Topology::flat(4)),
        machine: &cpus(&[0, 1, 2, 3]),
        from_ns: 0,
        until_ns,
        deadline_ns: until_ns,
        plans,
        gangs: &BTreeMap::from([(JOB, gang)]),
        pages: &[],
        follows_gap: true,
        has_common_group: false,
        actions_max: 1_000,
    })
    .timetables
}

/// The attributes of the threads in the first slot, on two of four CPUs.
fn in_slot(members: &Members, in_slot: InSlot) -> BTreeMap<u32, Attributes> {
    let config = Config::default();
    let mut schedule = Schedule::new(config.clone(), Topology::flat(4)).unwrap();
    schedule.apply(Event::Arrived { job: JOB, spec: Spec::new(2) }).unwrap();
    let plans: Vec<Plan> = vec![schedule.plan(0)];
    assert_eq!(plans[0].slot(JOB).unwrap().cpus, cpus(&[0, 1]));
    let timetables = stretch_of(members, in_slot, &config, &plans);
    let first = |timetable: &Timetable| {
        let edge = timetable.edges.first().filter(|edge| edge.at_ns == 0).cloned();
        let parts = edge.into_iter().flat_map(|edge| edge.raise);
        parts.flat_map(|part| timetable.parts[part].clone()).collect::<Vec<Action>>()
    };
    let actions = timetables.iter().flat_map(first);
    let attributes = actions.filter_map(|action| match action {
        Action::Attributes { tid, attributes, .. } => Some((tid, attributes)),
        _ => None,
    });
    attributes.collect()
}

#[test]
fn thread_is_raised_if_its_slot_has_all_chosen_cpus() {
    // One is offline, or no CPU of the machine.
    let members = members(&[&[1], &[2], &[1, 2], &[0, 1], &[0, 9]]);
    let exclusive = in_slot(&members, InSlot::Exclusive);
    let raised = exclusive.iter().filter(|(_, it)| is_raised(it)).map(|(tid, _)| *tid);
    assert_eq!(raised.collect::<Vec<u32>>(), [7, 8, 11, 12]);
    let fills = lowered(&Attributes::other(0), InSlot::Exclusive, false);
    assert_eq!([exclusive[&9], exclusive[&10]], [fills; 2]);
    let oversubscribed = in_slot(&members, InSlot::Oversubscribed);
    let fills = lowered(&Attributes::other(0), InSlot::Oversubscribed, false);
    assert_eq!(
        [7, 8, 9, 10].map(|tid| oversubscribed[&tid]),
        [OVERSUBSCRIBED, OVERSUBSCRIBED, fills, fills]
    );
    let uncontended = in_slot(&members, InSlot::Uncontended);
    assert!(uncontended.values().all(|it| *it == Attributes::other(0)), "nobody is raised");
}

#[test]
fn moving_slot_restricts_and_states_chosen_cpus() {
    let members = members(&[&[1]]);
    let gap = Gap { length_ns: 0, ..Gap::default() };
    let config = Config { gap, ..Config::default() };
    let mut schedule = Schedule::new(config.clone(), Topology::flat(4)).unwrap();
    schedule.apply(Event::Arrived { job: JOB, spec: Spec::new(2) }).unwrap();
    let mut plans: Vec<Plan> = (0..2).map(|slice| schedule.plan(slice)).collect();
    for (plan, slot) in plans.iter_mut().zip([[0, 1], [2, 3]]) {
        plan.row[0].cpus = cpus(&slot);
    }
    let at = |in_slot, at_ns: u64| {
        let timetables = stretch_of(&members, in_slot, &config, &plans);
        let edges = timetables.iter().flat_map(move |timetable| {
            let edge = timetable.edges.iter().find(|edge| edge.at_ns == at_ns);
            let parts = edge.into_iter().flat_map(|edge| &edge.raise);
            parts.flat_map(|&part| timetable.parts[part].clone()).collect::<Vec<Action>>()
        });
        let mut actions: Vec<Action> = edges.collect();
        actions.sort_by_key(|action| matches!(action, Action::Attributes { .. }));
        actions
    };
    let actions = at(InSlot::Exclusive, config.slice_ns);
    let slot = cpus(&[2, 3]);
    assert_eq!(actions[0], Action::Affinity { tid: 7, cpus: slot.clone() });
    let fills = lowered(&Attributes::other(0), InSlot::Exclusive, false);
    let stated = |action: &Action| match *action {
        Action::Attributes { tid, attributes, .. } => Some((tid, attributes)),
        _ => None,
    };
    assert_eq!(actions[1..].iter().map(stated).collect::<Vec<_>>(), [Some((8, fills))]);
    assert_eq!(at(InSlot::Uncontended, config.slice_ns), actions[..1]);
}
