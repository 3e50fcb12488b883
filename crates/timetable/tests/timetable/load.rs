//! Where gangs ask more of a switcher than an edge has time for.

use std::collections::BTreeMap;

use gang_schedule::{Config, CpuSet, Event, Gap, JobId, Plan, Policy, Schedule, Spec, Topology};
use gang_timetable::{
    Attributes, Backend, Controls, Gang, InSlot, Load, Members, Seen, Standing, Stretch, Switchers,
    Thread, Validity, compose,
};

const JOB: JobId = JobId(1);
const OTHER: JobId = JobId(2);

fn cpus(list: &[u32]) -> CpuSet {
    list.iter().copied().collect()
}

/// So many threads from a number on, each last seen on the next of these CPUs.
fn threads(first: u32, count: u32, on: &[u32]) -> Members {
    let normal = Attributes::other(0);
    let machine: CpuSet = (0..4).collect();
    let mut members = Members::new(Controls::default(), normal, machine.clone());
    let tids: Vec<u32> = (first..first + count).collect();
    members.update(&tids, |tid| {
        let cpus = machine.clone();
        Some(Seen { tid, now: normal, cpus, were_given: false, original: None, started_by: None })
    });
    let seen = |(at, thread): (usize, &Thread)| Thread { cpu: Some(on[at % on.len()]), ..*thread };
    let seen = members.threads().iter().enumerate().map(seen).collect();
    members.with_threads(seen)
}

fn gang(members: &Members) -> Gang<'_> {
    Gang {
        members,
        standing: Standing::Filling,
        out_of_row: Standing::Filling,
        has_new_threads: true,
        in_slot: InSlot::Exclusive,
        has_page: false,
        validity: Validity::Scheduled,
        listeners: Vec::new(),
    }
}

/// Where two gangs that take turns on four CPUs are too much, with a switcher for each CPU.
fn excessive(backend: Backend, gangs: [Gang<'_>; 2], actions_max: usize) -> Vec<Load> {
    let gap = Gap { length_ns: 0, ..Gap::default() };
    let config = Config { gap, ..Config::default() };
    let mut schedule = Schedule::new(config.clone(), Topology::flat(4)).unwrap();
    for job in [JOB, OTHER] {
        let spec = Spec { policy: Policy::Gang, ..Spec::new(4) };
        schedule.apply(Event::Arrived { job, spec }).unwrap();
    }
    let plans: Vec<Plan> = (0..6).map(|slice| schedule.plan(slice)).collect();
    let [job, other] = gangs;
    let until_ns = 6 * config.slice_ns;
    let composition = compose(&Stretch {
        generation: 1,
        config: &config,
        backend,
        switchers: &Switchers::new(schedule.topology()),
        machine: &cpus(&[0, 1, 2, 3]),
        from_ns: 0,
        until_ns,
        deadline_ns: until_ns,
        plans: &plans,
        gangs: &BTreeMap::from([(JOB, job), (OTHER, other)]),
        pages: &[],
        follows_gap: true,
        has_common_group: false,
        actions_max,
    });
    composition.excessive
}

#[test]
fn threads_count_where_they_are_switched() {
    // One job has all of its threads on CPU 2, the other one has them everywhere.
    let (one, all) = (threads(100, 40, &[2]), threads(500, 40, &[0, 1, 2, 3]));
    let of = |max| excessive(Backend::Rt, [gang(&one), gang(&all)], max);
    assert_eq!(of(50), []);
    let load = Load { switcher: 2, actions: BTreeMap::from([(JOB, 40), (OTHER, 10)]) };
    // The edges at which the one leaves and the other enters, and those at which they change back.
    assert_eq!(of(49), [load.clone(), load]);
}

#[test]
fn statements_of_new_threads_do_not_count() {
    // The first edge restricts all threads, and states how those of the second gang stand.
    let (one, other) = (threads(100, 40, &[2]), threads(500, 40, &[1]));
    let narrow = Config::default();
    assert!(narrow.slice_ns > 0);
    assert_eq!(excessive(Backend::Rt, [gang(&one), gang(&other)], 40), []);
}

#[test]
fn job_that_is_frozen_as_a_whole_is_one_action() {
    let frozen = |first| {
        let mut members = threads(first, 40, &[2]);
        members.controls.freezer = true;
        members
    };
    let (one, other) = (frozen(100), frozen(500));
    let paused = |members| Gang {
        standing: Standing::Paused,
        out_of_row: Standing::Paused,
        ..gang(members)
    };
    assert_eq!(excessive(Backend::Freeze, [paused(&one), paused(&other)], 2), []);
    let loads = excessive(Backend::Freeze, [paused(&one), paused(&other)], 1);
    assert_eq!(loads[0].actions, BTreeMap::from([(JOB, 1), (OTHER, 1)]));
}

#[test]
fn signals_to_processes_count() {
    let mut one = threads(100, 1, &[0]);
    one.processes = (200..230).collect();
    let other = threads(500, 1, &[0]);
    let told = Gang { listeners: one.processes.clone(), ..gang(&one) };
    let loads = excessive(Backend::Rt, [told, gang(&other)], 20);
    assert!(loads.iter().all(|load| load.switcher == 0), "{loads:?}");
    assert!(loads.iter().any(|load| load.actions[&JOB] >= 30), "{loads:?}");
    let stopped = |members| Gang {
        standing: Standing::Paused,
        out_of_row: Standing::Paused,
        ..gang(members)
    };
    let loads = excessive(Backend::Signal, [stopped(&one), stopped(&other)], 20);
    assert_eq!(loads[0].actions, BTreeMap::from([(JOB, 30)]));
}
