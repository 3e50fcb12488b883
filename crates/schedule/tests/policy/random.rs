//! Random machines, settings, jobs and histories.

use gang_schedule::*;
use proptest::prelude::*;

/// The steps of a test.
#[derive(Debug, Clone)]
pub enum Step {
    Event(Event),
    Plan,
    /// Amends the last plan, if there is one.
    Amend,
}

pub fn topology() -> impl Strategy<Value = Topology> {
    let tree = proptest::collection::btree_map(0u32..80, (0u32..4, 0u32..3, 0u32..3), 1..14)
        .prop_map(|cpus| {
            let cpu = |(id, (core, cache, node))| Cpu { id, core, cache, node };
            Topology::new(cpus.into_iter().map(cpu).collect()).unwrap()
        });
    prop_oneof![tree, (1u32..9).prop_map(Topology::flat)]
}

pub fn config() -> impl Strategy<Value = Config> {
    let cap_permille = prop_oneof![3 => Just(1000u32), 1 => 1u32..=1000];
    let percent = || prop_oneof![3 => Just(100u32), 1 => 1u32..=10_000];
    let express = proptest::option::of(percent());
    let weights = (express, percent(), percent())
        .prop_map(|(express, interactive, batch)| ClassWeights { express, interactive, batch });
    (cap_permille, any::<bool>(), weights, class_slices(), sharing(), caps()).prop_map(
        |(cap_permille, fill, class_weights, class_slices, sharing, caps)| Config {
            cap_permille,
            fill,
            class_weights,
            class_slices,
            sharing,
            caps,
            ..Config::default()
        },
    )
}

fn caps() -> impl Strategy<Value = std::collections::BTreeMap<UserId, u32>> {
    prop_oneof![
        2 => Just(Default::default()),
        1 => proptest::collection::btree_map(user(), 1u32..=1000, 1..3),
    ]
}

/// Groups of which some have quotas, of less than a CPU or of more than most machines have.
pub fn quota() -> impl Strategy<Value = Option<Quota>> {
    let permille = prop_oneof![2 => 1u32..=1000, 2 => 1000u32..=6000, 1 => 0u32..=20_000];
    // One period for each group, shorter than most slices, some of them, or far longer.
    let quota = (0u64..3, permille);
    let period_us = |group: u64| [1_000, 100_000, 100_000_000][group as usize];
    prop_oneof![
        2 => Just(None),
        1 => quota.prop_map(move |(group, cpu_permille)| {
            Some(Quota { group, cpu_permille, period_us: period_us(group) })
        }),
    ]
}

fn user() -> impl Strategy<Value = UserId> {
    (0u32..4).prop_map(UserId)
}

pub fn sharing() -> impl Strategy<Value = Sharing> {
    let share = prop_oneof![3 => (1u32..=8).prop_map(|k| k * 50), 1 => 1u32..=10_000];
    prop_oneof![
        Just(Sharing::ByProgram),
        Just(Sharing::ByUser(Default::default())),
        proptest::collection::btree_map(user(), share, 0..3).prop_map(Sharing::ByUser),
    ]
}

/// Runnable threads outside all jobs, some of them of known users; now and then of more than there
/// are.
fn load() -> impl Strategy<Value = Event> {
    let of_users = proptest::collection::btree_map(user(), 0u32..6, 0..4);
    prop_oneof![
        3 => prop_oneof![9 => 0u32..20, 1 => Just(u32::MAX)].prop_map(Event::load),
        2 => (of_users, 0u32..10, 0u32..20).prop_map(|(of_users, more, less)| {
            let known: u32 = of_users.values().sum();
            let threads = if less == 0 { known / 2 } else { known + more };
            Event::Load { threads, of_users }
        }),
    ]
}

/// Now and then some that are refused.
fn class_weights() -> impl Strategy<Value = ClassWeights> {
    let express = proptest::option::of(0u32..=2_000);
    (express, 0u32..=400, 1u32..=10_001).prop_map(|(express, interactive, batch)| ClassWeights {
        express,
        interactive,
        batch,
    })
}

pub fn class_slices() -> impl Strategy<Value = ClassSlices> {
    let slices = || prop_oneof![2 => Just(1u32), 1 => 1u32..=12];
    (slices(), slices(), slices(), slices()).prop_map(|(express, interactive, batch, standby)| {
        ClassSlices { express, interactive, batch, standby }
    })
}

pub fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(100u32), 2 => (1u32..=8).prop_map(|k| k * 50), 1 => 1u32..=10_000]
}

fn overhead() -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(0u32), 2 => 0u32..=100, 1 => any::<u32>()]
}

pub fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        1 => Just(Class::Express),
        3 => Just(Class::Interactive),
        6 => Just(Class::Batch),
        1 => Just(Class::Standby),
    ]
}

/// Some of the CPUs that machines have, often those of others, too.
fn cpus() -> impl Strategy<Value = CpuSet> {
    let set = |cpus: std::collections::BTreeSet<u32>| cpus.into_iter().collect();
    prop_oneof![
        3 => (0u32..8).prop_map(|cpu| CpuSet::from_iter([cpu])),
        3 => (0u32..8, 1u32..8).prop_map(|(first, cpus)| (first..first + cpus).collect()),
        2 => proptest::collection::btree_set(0u32..9, 0..9).prop_map(set),
        1 => proptest::collection::btree_set(0u32..80, 0..60).prop_map(set),
    ]
}

pub fn allowed() -> impl Strategy<Value = Allowed> {
    let bound = || proptest::collection::vec((cpus(), 0u32..4), 0..5);
    prop_oneof![
        5 => Just(Allowed::anywhere()),
        3 => cpus().prop_map(Allowed::within),
        1 => bound().prop_map(|bound| Allowed::anywhere().with_bound(bound)),
        2 => (cpus(), bound()).prop_map(|(cpus, bound)| Allowed::within(cpus).with_bound(bound)),
    ]
}

/// A job; now and then one that is refused.
pub fn spec() -> impl Strategy<Value = Spec> {
    let policy = prop_oneof![9 => Just(Policy::Gang), 1 => Just(Policy::None)];
    let weight = prop_oneof![20 => weight(), 1 => Just(0u32), 1 => Just(10_001u32)];
    let cpus = prop_oneof![10 => 1u32..=8, 2 => 0u32..=20];
    let spanning = prop_oneof![6 => Just(false), 1 => Just(true)];
    let binds = (allowed(), quota());
    (user(), class(), policy, weight, cpus, 0u32..=3, binds, overhead(), spanning).prop_map(
        |(user, class, policy, weight, cpus, least, (allowed, quota), overhead, spanning)| {
            let min_cpus = if least == 0 { cpus } else { least };
            Spec { user, class, policy, weight, cpus, min_cpus, allowed, quota, overhead, spanning }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let job = || (0u64..10).prop_map(JobId);
    prop_oneof![
        6 => (job(), spec()).prop_map(|(job, spec)| Event::Arrived { job, spec }),
        1 => job().prop_map(|job| Event::Departed { job }),
        2 => (job(), spec()).prop_map(|(job, spec)| Event::Changed { job, spec }),
        2 => (job(), allowed()).prop_map(|(job, to)| Event::Confined { job, to }),
        2 => (job(), quota()).prop_map(|(job, to)| Event::Limited { job, to }),
        1 => (job(), overhead()).prop_map(|(job, percent)| Event::Overhead { job, percent }),
        2 => job().prop_map(|job| Event::Woke { job }),
        2 => job().prop_map(|job| Event::Slept { job }),
        1 => job().prop_map(|job| Event::Suspended { job }),
        1 => job().prop_map(|job| Event::Resumed { job }),
        3 => load(),
        1 => (sharing(), 0u32..8).prop_map(|(sharing, share)| Event::Sharing(match share {
            0 => Sharing::ByUser([(UserId(1), 0)].into()),
            _ => sharing,
        })),
        1 => (caps(), 0u32..8).prop_map(|(caps, cap)| Event::Caps(match cap {
            0 => [(UserId(1), 1001)].into(),
            _ => caps,
        })),
        1 => topology().prop_map(Event::Topology),
        2 => entries(1_000).prop_map(Event::Entries),
        1 => (class_weights(), class_slices(), 0u32..=20).prop_map(
            |(weights, slices, standby)| Event::Classes {
                weights,
                slices: ClassSlices { standby, ..slices },
            }
        ),
    ]
}

/// Entries of some jobs, from about this slice on.
pub fn entries(slice: u64) -> impl Strategy<Value = Entries> {
    let rows = prop_oneof![
        2 => (0u32..12, 1u32..12).prop_map(|(first, rows)| (first..first + rows).collect()),
        1 => proptest::collection::btree_set(0u32..12, 1..8)
            .prop_map(Vec::from_iter),
    ];
    let entry = ((0u64..10).prop_map(JobId), rows, cpus());
    let list = (1u32..=12, proptest::collection::vec(entry, 0..5));
    proptest::collection::vec((0u64..30, list), 0..3).prop_map(move |lists| {
        let (mut from_slice, mut all) = (slice, Vec::new());
        for (later, (frame, entries)) in lists {
            let mut list = EntryList { from_slice, frame, entries: vec![] };
            from_slice += 1 + later;
            for (job, rows, cpus) in entries {
                let rows = rows.into_iter().filter(|&row| row < frame).collect();
                let mut more = list.clone();
                more.entries.push(Entry { job, rows, cpus });
                if Entries::new([more.clone()]).is_ok() {
                    list = more;
                }
            }
            all.push(list);
        }
        Entries::new(all).unwrap()
    })
}

pub fn history() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => event().prop_map(Step::Event),
        6 => Just(Step::Plan),
        3 => Just(Step::Amend),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The same beside spanning jobs.
pub fn steady_beside_entries() -> impl Strategy<Value = Schedule> {
    (steady(), entries(0)).prop_map(|(mut schedule, entries)| {
        schedule.apply(Event::Entries(entries)).unwrap();
        schedule
    })
}

/// A schedule in which some jobs run for good: no refusals, nobody asleep.
pub fn steady() -> impl Strategy<Value = Schedule> {
    let spec = (user(), class(), weight(), 1u32..=8, allowed(), quota()).prop_map(
        |(user, class, weight, cpus, allowed, quota)| Spec {
            user,
            quota,
            class,
            weight,
            min_cpus: 1,
            allowed,
            ..Spec::new(cpus)
        },
    );
    let load = prop_oneof![1 => Just(Event::load(0)), 2 => load()];
    let has_quotas = prop_oneof![2 => Just(false), 1 => Just(true)];
    (config(), topology(), proptest::collection::vec(spec, 0..8), load, has_quotas).prop_map(
        |(config, topology, specs, load, has_quotas)| {
            let mut schedule = Schedule::new(config, topology).unwrap();
            let _ = schedule.apply(load);
            for (id, mut spec) in specs.into_iter().enumerate() {
                spec.quota = spec.quota.filter(|_| has_quotas);
                schedule.apply(Event::Arrived { job: JobId(id as u64), spec }).unwrap();
            }
            schedule
        },
    )
}
