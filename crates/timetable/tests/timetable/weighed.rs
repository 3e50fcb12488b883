//! Gangs that are weighed as a whole, laid out by the edges of the clock.

use std::collections::BTreeMap;

use gang_schedule::{Config, CpuSet, Event, JobId, Plan, Schedule, Spec, Topology};
use gang_timetable::{
    Action, Backend, Control, Gang, Group, InSlot, Standing, Stretch, Switchers, Timetable,
    Validity, Weight, compose,
};

use crate::jobs::{JOB, of_group};

const OTHER: JobId = JobId(2);

/// The timetables of two gangs that take turns on all CPUs, for two slices. The first one is
/// weighed as a whole.
fn two_slices() -> (Config, Vec<Timetable>) {
    let config = Config::default();
    let mut schedule = Schedule::new(config.clone(), Topology::flat(4)).unwrap();
    for job in [JOB, OTHER] {
        schedule.apply(Event::Arrived { job, spec: Spec::new(4) }).unwrap();
    }
    let plans: Vec<Plan> = (0..2).map(|slice| schedule.plan(slice)).collect();
    let (members, switchers) = (of_group(false), Switchers::new(schedule.topology()));
    let gang = |in_slot| Gang {
        members: &members,
        standing: Standing::Filling,
        out_of_row: Standing::Filling,
        has_new_threads: true,
        in_slot,
        has_page: false,
        validity: Validity::Scheduled,
        listeners: Vec::new(),
    };
    let gangs = BTreeMap::from([(JOB, gang(InSlot::Weighed)), (OTHER, gang(InSlot::Exclusive))]);
    let machine: CpuSet = (0..4).collect();
    let until_ns = 2 * config.slice_ns;
    let composition = compose(&Stretch {
        generation: 1,
        config: &config,
        backend: Backend::Rt,
        switchers: &switchers,
        machine: &machine,
        from_ns: 0,
        until_ns,
        deadline_ns: until_ns,
        plans: &plans,
        gangs: &gangs,
        pages: &[],
        follows_gap: true,
        has_common_group: true,
        actions_max: 1_000,
    });
    (config, composition.timetables)
}

/// The controls that a timetable sets at a moment.
fn controls(timetable: &Timetable, at_ns: u64) -> Vec<(Group, Control)> {
    let edge = timetable.edges.iter().find(|edge| edge.at_ns == at_ns);
    let parts = edge.into_iter().flat_map(|edge| edge.lower.iter().chain(&edge.raise));
    let actions = parts.flat_map(|&part| &timetable.parts[part]);
    let control = |action: &Action| match *action {
        Action::Control { group, control } => Some((group, control)),
        _ => None,
    };
    actions.filter_map(control).collect()
}

#[test]
fn each_switcher_sets_what_weighs_a_gang() {
    let (config, timetables) = two_slices();
    assert_eq!(timetables.len(), 4);
    let group = Group::Job(JOB);
    let raised = [Control::Idle(false), Control::Weight(Weight::Highest)];
    let gap_ns = config.gap.period_ns - config.gap.length_ns;
    for timetable in &timetables {
        assert_eq!(controls(timetable, 0), raised.map(|control| (group, control)));
        for out_ns in [gap_ns, config.slice_ns - config.gap.length_ns] {
            assert_eq!(controls(timetable, out_ns), [(group, Control::Idle(true))]);
        }
        assert_eq!(controls(timetable, config.slice_ns), [], "the other gang has its slot");
    }
}

#[test]
fn group_of_all_gangs_gives_way_to_a_weighed_one() {
    let (_, timetables) = two_slices();
    let mut actions = timetables.iter().flat_map(|timetable| timetable.parts.iter().flatten());
    let raises_all = |action: &Action| matches!(action, Action::Control { group: Group::All, .. });
    assert!(!actions.any(raises_all));
}
