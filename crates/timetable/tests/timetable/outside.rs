//! Threads that chose their CPUs themselves, where these are not all in a slot.

use std::collections::BTreeMap;

use gang_schedule::{Config, CpuSet, Event, Plan, Schedule, Spec, Topology};
use gang_timetable::{
    Action, Attributes, Backend, Controls, Gang, InSlot, Members, Seen, Standing, Stretch,
    Switchers, Timetable, Validity, WIDE, compose, is_raised, lowered,
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

/// What the threads get in the first slot, on two of four CPUs.
fn in_slot(members: &Members, in_slot: InSlot) -> BTreeMap<u32, Attributes> {
    let config = Config::default();
    let mut schedule = Schedule::new(config.clone(), Topology::flat(4)).unwrap();
    schedule.apply(Event::Arrived { job: JOB, spec: Spec::new(2) }).unwrap();
    let plans: Vec<Plan> = vec![schedule.plan(0)];
    assert_eq!(plans[0].slot(JOB).unwrap().cpus, cpus(&[0, 1]));
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
    let composition = compose(&Stretch {
        generation: 1,
        config: &config,
        backend: Backend::Rt,
        switchers: &Switchers::new(schedule.topology()),
        machine: &cpus(&[0, 1, 2, 3]),
        from_ns: 0,
        until_ns: config.slice_ns,
        deadline_ns: config.slice_ns,
        plans: &plans,
        gangs: &BTreeMap::from([(JOB, gang)]),
        pages: &[],
        follows_gap: true,
        has_common_group: false,
        actions_max: 1_000,
    });
    let first = |timetable: &Timetable| {
        let edge = timetable.edges.first().filter(|edge| edge.at_ns == 0).cloned();
        let parts = edge.into_iter().flat_map(|edge| edge.raise);
        parts.flat_map(|part| timetable.parts[part].clone()).collect::<Vec<Action>>()
    };
    let actions = composition.timetables.iter().flat_map(first);
    let attributes = actions.filter_map(|action| match action {
        Action::Attributes { tid, attributes, .. } => Some((tid, attributes)),
        _ => None,
    });
    attributes.collect()
}

#[test]
fn thread_is_raised_where_its_slot_has_all_cpus_it_chose() {
    // One is offline, or no CPU of the machine.
    let members = members(&[&[1], &[2], &[1, 2], &[0, 1], &[0, 9]]);
    let exclusive = in_slot(&members, InSlot::Exclusive);
    let raised = exclusive.iter().filter(|(_, it)| is_raised(it)).map(|(tid, _)| *tid);
    assert_eq!(raised.collect::<Vec<u32>>(), [7, 8, 11, 12]);
    let fills = lowered(&Attributes::other(0), false);
    assert_eq!([exclusive[&9], exclusive[&10]], [fills; 2]);
    let wide = in_slot(&members, InSlot::Wide);
    assert_eq!([7, 8, 9, 10].map(|tid| wide[&tid]), [WIDE, WIDE, fills, fills]);
    let uncontended = in_slot(&members, InSlot::Uncontended);
    assert!(uncontended.values().all(|it| *it == Attributes::other(0)), "nobody is raised");
}
