//! The invariants of the design, for every plan of every random history.

use crate::random::{self, Step};
use gang_schedule::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn run(schedule: &mut Schedule, history: &[Step], mut seen: impl FnMut(&Schedule, &Plan)) {
    let (mut slice, mut last) = (1_000, None);
    for step in history {
        match step {
            Step::Event(event) => _ = schedule.apply(event.clone()),
            Step::Plan => {
                slice += 1;
                let plan = schedule.plan(slice);
                seen(schedule, &plan);
                last = Some(plan);
            }
            Step::Amend => {
                if let Some(plan) = last.as_ref().and_then(|plan| schedule.amend(plan)) {
                    seen(schedule, &plan);
                    last = Some(plan);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn plans_pass_the_checker(
        config in random::config(),
        topology in random::topology(),
        history in random::history(),
    ) {
        let mut schedule = Schedule::new(config, topology).unwrap();
        let mut generation = 0;
        let mut frame = check::Frame::new();
        run(&mut schedule, &history, |schedule, plan| {
            assert_eq!(check::plan(schedule, plan), []);
            assert!(plan.generation > generation);
            generation = plan.generation;
            assert_eq!(frame.observe(schedule, plan), []);
            let mut again = schedule.clone();
            assert_eq!(again.amend(plan), None, "nothing happened, so nothing is amended");
            assert_eq!(&again, schedule);
        });
    }

    #[test]
    fn a_refused_event_changes_nothing(
        config in random::config(),
        topology in random::topology(),
        history in random::history(),
    ) {
        let mut schedule = Schedule::new(config, topology).unwrap();
        for (slice, step) in history.into_iter().enumerate() {
            let before = schedule.clone();
            match step {
                Step::Event(event) => if schedule.apply(event).is_err() {
                    prop_assert_eq!(&schedule, &before);
                },
                Step::Plan | Step::Amend => _ = schedule.plan(slice as u64),
            }
        }
    }

    /// Slices left out and a clock that goes back change the numbers in the
    /// plans and nothing else.
    #[test]
    fn decisions_ignore_which_slices_are_planned(
        schedule in random::steady(),
        slices in proptest::collection::vec(any::<u64>(), 1..40),
    ) {
        let (mut one, mut other) = (schedule.clone(), schedule);
        for (even, odd) in slices.into_iter().enumerate() {
            let (a, b) = (one.plan(even as u64), other.plan(odd));
            prop_assert_eq!(check::plan(&other, &b), []);
            let Plan {
                generation, row, rest, rest_turn, rest_kept, capped, beyond_caps, fillers, paused, ..
            } = b;
            let (slice, start_ns, end_ns) = (a.slice, a.start_ns, a.end_ns);
            prop_assert_eq!(
                a,
                Plan {
                    generation, slice, start_ns, end_ns,
                    row, rest, rest_turn, rest_kept, capped, beyond_caps, fillers, paused,
                }
            );
        }
    }

    /// Over any stretch of slices local gangs are within the cap as far as spanning slots leave
    /// some of it, and these are never denied.
    #[test]
    fn capped_local_gangs_give_way_to_spanning_slots(
        mut schedule in random::steady_beside_entries(),
    ) {
        let cap = i64::from(schedule.config().cap_permille);
        let mut over = 0;
        for slice in 0..300 {
            let spanning = schedule.spanning_slots(slice);
            let row = schedule.plan(slice).row;
            prop_assert!(row.starts_with(&spanning));
            let local = row.len() > spanning.len();
            over = over.max(0) + if local { 1000 } else { 0 } - cap;
            prop_assert!(over <= 1000, "over by {} permille", over);
        }
    }

    /// A gang that keeps its slot keeps its CPUs, where all fit at once.
    #[test]
    fn gangs_stay_where_they_are(
        topology in random::topology(),
        widths in proptest::collection::vec(1u32..4, 1..5),
    ) {
        let mut schedule = Schedule::new(Config::default(), topology).unwrap();
        let mut left = schedule.topology().len();
        for (id, cpus) in widths.into_iter().enumerate() {
            if cpus <= left {
                left -= cpus;
                let job = JobId(id as u64);
                schedule.apply(Event::Arrived { job, spec: Spec::new(cpus) }).unwrap();
            }
        }
        let first = schedule.plan(0);
        for slice in 1..20 {
            prop_assert!(schedule.plan(slice).diff(&first).is_empty());
        }
    }

    /// Over any stretch of slices, within a whole row.
    #[test]
    fn users_stay_within_their_caps(mut schedule in random::steady()) {
        let machine = i64::from(schedule.topology().len());
        let caps = schedule.config().caps.clone();
        let mut over: BTreeMap<UserId, i64> = caps.keys().map(|&user| (user, 0)).collect();
        for slice in 0..300 {
            let plan = schedule.plan(slice);
            for (user, over) in &mut over {
                let is_his = |slot: &&Slot| schedule.spec(slot.job).unwrap().user == *user;
                let used: usize = plan.row.iter().filter(is_his).map(|slot| slot.cpus.len()).sum();
                *over = (*over).max(0) + 1000 * used as i64 - i64::from(caps[user]) * machine;
                prop_assert!(*over <= 1000 * machine, "user {} is over by {over}", user.0);
            }
        }
    }

    /// Over any stretch of slices, within a slot of the widest gang, as slots cost.
    #[test]
    fn groups_stay_within_their_quotas(mut schedule in random::steady()) {
        let mut groups: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
        let machine = schedule.topology().len();
        let slice_us = schedule.config().slice_ns as i64 / 1000;
        let cost = |quota: Quota, cpus: i64| {
            let period_us = i64::from(quota.period_us).max(slice_us);
            let at_a_time = i64::from(quota.cpu_permille.max(1)) * period_us / slice_us;
            at_a_time.min(1000 * cpus)
        };
        for (_, spec) in schedule.jobs() {
            let Some(quota) = spec.quota else { continue };
            let permille = i64::from(quota.cpu_permille.max(1));
            let (least, widest) = groups.entry(quota.group).or_insert((permille, 0));
            *least = (*least).min(permille);
            *widest = (*widest).max(cost(quota, i64::from(spec.cpus.min(machine))));
        }
        let mut over: BTreeMap<u64, i64> = groups.keys().map(|&group| (group, 0)).collect();
        for slice in 0..300 {
            let plan = schedule.plan(slice);
            for (group, over) in &mut over {
                let is_there = |slot: &&Slot| {
                    let quota = schedule.spec(slot.job).unwrap().quota;
                    quota.is_some_and(|quota| quota.group == *group)
                };
                let cost = |slot: &Slot| {
                    cost(schedule.spec(slot.job).unwrap().quota.unwrap(), slot.cpus.len() as i64)
                };
                let used: i64 = plan.row.iter().filter(is_there).map(cost).sum();
                let (quota, widest) = groups[group];
                *over = (*over).max(0) + used - quota;
                prop_assert!(*over <= widest, "group {group} is over by {over}");
            }
        }
    }

    /// Gangs of a group alone on the machine have most of what its quota gives them, and each has
    /// slots, also where users of theirs have caps.
    #[test]
    fn group_has_its_quota(
        quota in 50u32..=8000,
        cap in prop_oneof![Just(None), (300u32..=1000).prop_map(Some)],
        widths in proptest::collection::vec(1u32..=8, 1..6),
    ) {
        let caps = cap.map(|cap| (UserId(1), cap)).into_iter().collect();
        let config = Config { caps, ..Config::default() };
        let mut schedule = Schedule::new(config, Topology::flat(8)).unwrap();
        for (id, &cpus) in widths.iter().enumerate() {
            let quota = Some(Quota { group: 7, cpu_permille: quota, period_us: u32::MAX });
            let spec = Spec { user: UserId(id as u32 % 3), quota, ..Spec::new(cpus) };
            schedule.apply(Event::Arrived { job: JobId(id as u64), spec }).unwrap();
        }
        let (mut used, mut slots) = (0, vec![0; widths.len()]);
        for slice in 0..3000 {
            for slot in schedule.plan(slice).row {
                used += slot.cpus.len();
                slots[slot.job.0 as usize] += 1;
            }
        }
        let asked: u32 = widths.iter().sum();
        let least = (f64::from(quota) / 1000.0).min(f64::from(asked.min(8)) / 2.0);
        if cap.is_none() {
            prop_assert!(used as f64 + 16.0 >= least * 2100.0, "{used} of {least} a slice");
        }
        prop_assert!(slots.iter().all(|&slots| slots > 0), "{slots:?}");
    }

    /// A user alone on the machine has most of what his cap gives him, and each of his gangs has
    /// slots. Allowance lapses where gangs that it is for do not fit side by side.
    #[test]
    fn capped_user_has_his_cap(
        cap in 50u32..=1000,
        widths in proptest::collection::vec(1u32..=8, 1..6),
    ) {
        let config = Config { caps: [(UserId(1), cap)].into(), ..Config::default() };
        let mut schedule = Schedule::new(config, Topology::flat(8)).unwrap();
        for (id, &cpus) in widths.iter().enumerate() {
            let spec = Spec { user: UserId(1), ..Spec::new(cpus) };
            schedule.apply(Event::Arrived { job: JobId(id as u64), spec }).unwrap();
        }
        let (mut used, mut slots) = (0, vec![0; widths.len()]);
        for slice in 0..1000 {
            for slot in schedule.plan(slice).row {
                used += slot.cpus.len();
                slots[slot.job.0 as usize] += 1;
            }
        }
        let asked: u32 = widths.iter().sum();
        // Gangs side by side may leave CPUs that fit none of them.
        let least = (f64::from(cap) * 8.0 / 1000.0).min(f64::from(asked.min(8)) / 2.0);
        prop_assert!(used as f64 + 16.0 >= least * 700.0, "{used} of {least} a slice");
        prop_assert!(slots.iter().all(|&slots| slots > 0), "{slots:?}");
    }

    /// L8, over any stretch of slices.
    #[test]
    fn gangs_stay_within_the_cap(mut schedule in random::steady()) {
        let cap = u64::from(schedule.config().cap_permille);
        // The most that any stretch ending here is over its share, in ‰ of a slice.
        let mut over = 0i64;
        for slice in 0..300 {
            let used = if schedule.plan(slice).row.is_empty() { 0 } else { 1000 };
            over = over.max(0) + used - cap as i64;
            prop_assert!(over <= 1000, "over by {} permille", over);
        }
    }
}

/// Each way of breaking a plan is found by the checker.
#[test]
fn the_checker_finds_what_is_wrong() {
    let mut schedule = Schedule::new(Config::default(), Topology::flat(4)).unwrap();
    for (job, cpus) in [(1, 2), (2, 2), (3, 4), (4, 1), (5, 1)] {
        schedule.apply(Event::Arrived { job: JobId(job), spec: Spec::new(cpus) }).unwrap();
    }
    schedule.apply(Event::Suspended { job: JobId(4) }).unwrap();
    schedule.apply(Event::Slept { job: JobId(5) }).unwrap();
    let good = schedule.plan(7);
    assert_eq!(check::plan(&schedule, &good), []);
    let broken = |invariant: check::Invariant, change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        let found = check::plan(&schedule, &plan);
        assert!(found.iter().any(|v| v.invariant == invariant), "{invariant:?}: {found:?}");
    };
    broken(check::ONE_OWNER, &|p| p.row[1].cpus = p.row[0].cpus.clone());
    broken(check::ALL_CPUS, &|p| _ = p.rest.insert(0));
    broken(check::ALL_CPUS, &|p| _ = p.row[0].cpus.insert(9));
    let mut confined = schedule.clone();
    let to = Allowed::anywhere().with_bound([("3".parse().unwrap(), 1)]);
    confined.apply(Event::Confined { job: JobId(1), to }).unwrap();
    let found = check::plan(&confined, &good);
    assert!(found.iter().any(|v| v.invariant == check::ALLOWED), "{found:?}");
    let to = Allowed::within("0-2".parse().unwrap());
    confined.apply(Event::Confined { job: JobId(1), to: to.clone() }).unwrap();
    confined.apply(Event::Confined { job: JobId(2), to }).unwrap();
    let found = check::plan(&confined, &good);
    assert!(found.iter().any(|v| v.invariant == check::ALLOWED), "{found:?}");
    broken(check::ALL_OR_NONE, &|p| _ = p.row[0].cpus.remove(0));
    broken(check::ONLY_RUNNABLE, &|p| p.row[0].job = JobId(5));
    broken(check::ONLY_RUNNABLE, &|p| p.row[0].job = JobId(99));
    broken(check::ONE_PLACE, &|p| p.fillers.push(p.row[0].job));
    broken(check::RIGHT_PLACE, &|p| p.paused.clear());
    broken(check::RIGHT_PLACE, &|p| p.fillers.push(JobId(5)));
    broken(check::RIGHT_PLACE, &|p| p.fillers.push(JobId(98)));
    broken(check::CAP, &|p| p.capped = true);
    broken(check::USER_CAP, &|p| p.beyond_caps.push(p.row[0].job));
    broken(check::CLOCK, &|p| p.end_ns += 1);
    broken(check::KEPT, &|p| p.rest_kept = 1);
    broken(check::MAXIMAL, &|p| {
        let slot = p.row.pop().unwrap();
        p.rest = slot.cpus;
        p.fillers.push(slot.job);
    });
}

/// Spanning slots, too.
#[test]
fn the_checker_finds_what_is_wrong_beside_entries() {
    let mut schedule = Schedule::new(Config::default(), Topology::flat(4)).unwrap();
    for (job, cpus) in [(1, 2), (2, 2), (3, 2)] {
        schedule.apply(Event::Arrived { job: JobId(job), spec: Spec::new(cpus) }).unwrap();
    }
    let entry = Entry { job: JobId(1), rows: [0].into_iter().collect(), cpus: (1..3).collect() };
    let list = EntryList { from_slice: 0, frame: 2, entries: vec![entry] };
    schedule.apply(Event::Entries(Entries::new([list]).unwrap())).unwrap();
    let good = schedule.plan(0);
    assert_eq!(check::plan(&schedule, &good), []);
    let broken = |invariant: check::Invariant, change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        let found = check::plan(&schedule, &plan);
        assert!(found.iter().any(|v| v.invariant == invariant), "{invariant:?}: {found:?}");
    };
    broken(check::ENTRIES, &|p| p.row[0].cpus = (0..2).collect());
    broken(check::ENTRIES, &|p| p.rest = p.rest.union(&p.row.remove(0).cpus));
    broken(check::ENTRIES, &|p| p.slice = 1);
    broken(check::ONE_OWNER, &|p| p.row[1].cpus = (2..4).collect());
    broken(check::CAP, &|p| p.capped = true);
}
