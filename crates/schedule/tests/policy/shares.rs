//! The shares of gangs and of the rest.

use crate::random;
use gang_schedule::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn machine(cpus: u32, threads: u32, specs: &[Spec]) -> Schedule {
    let mut schedule = Schedule::new(Config::default(), Topology::flat(cpus)).unwrap();
    schedule.apply(Event::load(threads)).unwrap();
    for (id, spec) in specs.iter().enumerate() {
        schedule.apply(Event::Arrived { job: JobId(id as u64), spec: spec.clone() }).unwrap();
    }
    schedule
}

fn weighted(cpus: u32, weight: u32) -> Spec {
    Spec { weight, ..Spec::new(cpus) }
}

/// Slots of each job over some slices.
fn slots(schedule: &mut Schedule, slices: u64) -> BTreeMap<JobId, u64> {
    let mut slots: BTreeMap<JobId, u64> = schedule.jobs().map(|(id, _)| (id, 0)).collect();
    for slice in 0..slices {
        for slot in schedule.plan(slice).row {
            *slots.get_mut(&slot.job).unwrap() += 1;
        }
    }
    slots
}

#[track_caller]
fn shares_are(mut schedule: Schedule, slices: u64, expected: &[u64]) {
    let wanted: Vec<f64> =
        schedule.jobs().map(|(id, _)| schedule.share_wanted(id).unwrap()).collect();
    let had: Vec<u64> = slots(&mut schedule, slices).into_values().collect();
    assert_eq!(had, expected);
    for (wanted, &had) in wanted.iter().zip(expected) {
        assert!((wanted * slices as f64 - had as f64).abs() < 1e-6, "{wanted} of {slices}: {had}");
    }
}

#[test]
fn gang_and_as_many_threads_share_half() {
    shares_are(machine(2, 2, &[Spec::new(2)]), 100, &[50]);
}

#[test]
fn gang_beside_twice_the_threads_gets_a_third() {
    shares_are(machine(2, 4, &[Spec::new(2)]), 300, &[100]);
}

/// L15.
#[test]
fn four_of_sixteen_threads_get_every_other_slice() {
    shares_are(machine(8, 12, &[Spec::new(4)]), 100, &[50]);
}

#[test]
fn gangs_as_wide_as_the_machine_share_by_weight() {
    let specs = [Spec::new(4), Spec::new(4), weighted(4, 200)];
    shares_are(machine(4, 0, &specs), 400, &[100, 100, 200]);
}

#[test]
fn single_gang_has_every_slice() {
    shares_are(machine(4, 0, &[Spec::new(3)]), 50, &[50]);
}

#[test]
fn others_have_what_a_capped_user_leaves() {
    // The second capped user has no job.
    let caps = [(UserId(1), 250), (UserId(2), 100)].into();
    let config = Config { caps, ..Config::default() };
    let mut schedule = Schedule::new(config, Topology::flat(4)).unwrap();
    for (job, user) in [(JobId(0), UserId(1)), (JobId(1), UserId(3))] {
        let spec = Spec { user, ..Spec::new(4) };
        schedule.apply(Event::Arrived { job, spec }).unwrap();
    }
    shares_are(schedule, 400, &[100, 300]);
}

#[test]
fn interactive_is_worth_two_of_batch() {
    let interactive = Spec { class: Class::Interactive, ..Spec::new(2) };
    shares_are(machine(2, 0, &[interactive, Spec::new(2)]), 300, &[200, 100]);
}

#[test]
fn express_without_weight_comes_first() {
    let express = |schedule: &mut Schedule, express| {
        let weights = ClassWeights { express, ..ClassWeights::default() };
        let slices = schedule.config().class_slices;
        schedule.apply(Event::Classes { weights, slices }).unwrap();
    };
    let specs = [Class::Express, Class::Interactive, Class::Batch];
    let mut schedule = machine(2, 0, &specs.map(|class| Spec { class, ..Spec::new(2) }));
    shares_are(schedule.clone(), 100, &[100, 0, 0]);
    express(&mut schedule, Some(700));
    shares_are(schedule.clone(), 100, &[70, 20, 10]);
    // Beside as many other threads, each of which counts like a batch gang.
    schedule.apply(Event::load(2)).unwrap();
    shares_are(schedule.clone(), 110, &[70, 20, 10]);
    schedule.apply(Event::load(0)).unwrap();
    express(&mut schedule, None);
    shares_are(schedule, 100, &[100, 0, 0]);
}

#[test]
fn the_cap_holds_without_load() {
    let config = Config { cap_permille: 900, ..Config::default() };
    let mut schedule = Schedule::new(config, Topology::flat(2)).unwrap();
    schedule.apply(Event::Arrived { job: JobId(0), spec: Spec::new(2) }).unwrap();
    shares_are(schedule, 100, &[90]);
}

/// A change that a user may make to a job of his at any moment.
#[derive(Clone, Copy, Debug)]
enum Toggle {
    Class(Class),
    Weight(u32),
    Policy(Policy),
    Suspend(bool),
}

fn toggle() -> impl Strategy<Value = Toggle> {
    let class = prop_oneof![Just(Class::Interactive), Just(Class::Batch), Just(Class::Standby)];
    let policy = prop_oneof![2 => Just(Policy::Gang), 1 => Just(Policy::None)];
    prop_oneof![
        class.prop_map(Toggle::Class),
        random::weight().prop_map(Toggle::Weight),
        policy.prop_map(Toggle::Policy),
        any::<bool>().prop_map(Toggle::Suspend),
    ]
}

/// Gangs of which no two fit side by side; the rest has whole turns.
fn no_two_fit() -> impl Strategy<Value = Schedule> {
    (
        1u32..20,
        proptest::collection::vec((random::weight(), 0u32..10), 1..12),
        any::<bool>(),
        prop_oneof![Just(1u32), 1u32..=20],
    )
        .prop_map(|(half, gangs, hogs, batch)| {
            let cpus = 2 * half - 1;
            let specs: Vec<Spec> = gangs
                .iter()
                .map(|&(weight, more)| weighted((half + more).min(cpus), weight))
                .collect();
            let mut schedule = machine(cpus, 0, &specs);
            if hogs {
                // As wide as the machine, so that the rest is served by itself.
                let specs: Vec<Spec> = gangs.iter().map(|&(w, _)| weighted(cpus, w)).collect();
                schedule = machine(cpus, 3 * cpus, &specs);
            }
            let weights = schedule.config().class_weights;
            let slices = ClassSlices { batch, ..ClassSlices::default() };
            schedule.apply(Event::Classes { weights, slices }).unwrap();
            schedule
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// At every moment, not only at the end of a frame.
    #[test]
    fn unpackable_gangs_stay_within_one_request(mut schedule in no_two_fit()) {
        let wanted = schedule.shares();
        let request = f64::from(schedule.config().class_slices.batch);
        let mut had: BTreeMap<JobId, u64> = wanted.keys().map(|&id| (id, 0)).collect();
        for slices in 1..400u64 {
            for slot in schedule.plan(slices).row {
                *had.get_mut(&slot.job).unwrap() += 1;
            }
            for (id, share) in &wanted {
                let off = had[id] as f64 - share * slices as f64;
                prop_assert!(off.abs() <= request + 1e-6, "job {id} is off by {off} after {slices}");
            }
        }
    }

    /// With packing, classes, caps and load: nobody has less than its share by
    /// more than a slice, and nobody waits longer than its share says.
    #[test]
    fn every_gang_is_in_a_row_of_every_frame(mut schedule in random::steady()) {
        let mut frame = check::Frame::new();
        for slice in 0..400 {
            let plan = schedule.plan(slice);
            let found = frame.observe(&schedule, &plan);
            prop_assert!(found.is_empty(), "slice {}: {:?}", slice, found);
        }
    }

    /// The same beside spanning jobs, of the rows with room for a gang.
    #[test]
    fn every_gang_has_its_share_of_rows_with_room(mut schedule in random::steady_beside_entries()) {
        // Of users with caps nothing is said, nor of groups with quotas.
        schedule.apply(Event::Caps(BTreeMap::new())).unwrap();
        let jobs: Vec<JobId> = schedule.jobs().map(|(job, _)| job).collect();
        for job in jobs {
            schedule.apply(Event::Limited { job, to: None }).unwrap();
        }
        let mut frame = check::Frame::new();
        for slice in 0..400 {
            let plan = schedule.plan(slice);
            prop_assert_eq!(check::plan(&schedule, &plan), []);
            let found = frame.observe(&schedule, &plan);
            prop_assert!(found.is_empty(), "slice {}: {:?}", slice, found);
        }
    }

    /// Gangs of which no two fit side by side, and of which some fit beside no spanning slot: each
    /// has its share of all slices where the others are due no more than the rows with room. At
    /// every moment it is within two requests and the slices by which its rows come late.
    #[test]
    fn unpackable_gangs_have_shares_beside_spanning_job(
        gangs in proptest::collection::vec((random::weight(), any::<bool>()), 1..8),
        (frame, taken) in (2u32..40).prop_flat_map(|frame| (Just(frame), 1..frame)),
    ) {
        let mut schedule = machine(5, 0, &[]);
        let all: u32 = gangs.iter().map(|(weight, _)| weight).sum();
        let of_wide = gangs.iter().filter(|(_, is_wide)| *is_wide).map(|(weight, _)| weight);
        let is_met = of_wide.sum::<u32>() * frame <= (frame - taken) * all;
        for (id, &(weight, is_wide)) in gangs.iter().enumerate() {
            let spec = weighted(if is_wide { 5 } else { 3 }, weight);
            schedule.apply(Event::Arrived { job: JobId(id as u64), spec }).unwrap();
        }
        let span = JobId(100);
        schedule.apply(Event::Arrived { job: span, spec: Spec::new(2) }).unwrap();
        let entry = Entry { job: span, rows: (0..taken).collect(), cpus: (0..2).collect() };
        let list = EntryList { from_slice: 0, frame, entries: vec![entry] };
        schedule.apply(Event::Entries(Entries::new([list]).unwrap())).unwrap();
        let (rows, mut late) = (frame - taken, 0i64);
        let mut order: Vec<u32> = (0..frame).collect();
        order.sort_by_key(|row| row.reverse_bits());
        for first in 0..order.len() {
            let mut owed = 0;
            for at in 0..order.len() {
                let has_room = order[(first + at) % order.len()] >= taken;
                owed += i64::from(rows) - if has_room { i64::from(frame) } else { 0 };
                late = late.max(owed);
            }
        }
        let bound = 2.0 + late as f64 / f64::from(frame);
        let mut had = vec![0; gangs.len()];
        for slices in 1..=10 * u64::from(frame) {
            for slot in schedule.plan(slices - 1).row {
                if slot.job != span {
                    had[slot.job.0 as usize] += 1;
                }
            }
            for (&(weight, is_wide), &had) in gangs.iter().zip(&had) {
                let share = f64::from(weight) / f64::from(all);
                let off = f64::from(had) - share * slices as f64;
                if is_met {
                    prop_assert!(off.abs() <= bound, "{off} after {slices}, {bound}");
                } else if !is_wide {
                    // The wide ones have less, the others more.
                    prop_assert!(off >= -bound, "{off} after {slices}, {bound}");
                }
            }
        }
    }

    /// Long requests of batch gangs make no one wait who asks for little: who
    /// arrives, or slept for long, has the next slice.
    #[test]
    fn interactive_gang_gets_the_next_slice(
        weights in proptest::collection::vec(1u32..=100, 1..8),
        batch in 1u32..=100,
        threads in 0u32..=4,
        arrivals in proptest::collection::vec((1u64..40, 1u64..5), 1..8),
    ) {
        let specs: Vec<Spec> = weights.iter().map(|&weight| weighted(4, weight)).collect();
        let mut schedule = machine(4, threads, &specs);
        let weights = schedule.config().class_weights;
        let slices = ClassSlices { batch, ..ClassSlices::default() };
        schedule.apply(Event::Classes { weights, slices }).unwrap();
        let (mut slice, mut id) = (0, 100);
        for (before, stays) in arrivals {
            (0..before).for_each(|_| { slice += 1; schedule.plan(slice); });
            let job = JobId(id);
            // A user who left ahead would begin so.
            let user = UserId(id as u32);
            let spec = Spec { user, class: Class::Interactive, ..Spec::new(4) };
            schedule.apply(Event::Arrived { job, spec }).unwrap();
            slice += 1;
            prop_assert!(schedule.plan(slice).slot(job).is_some(), "slice {}", slice);
            (0..stays).for_each(|_| { slice += 1; schedule.plan(slice); });
            schedule.apply(Event::Departed { job }).unwrap();
            id += 1;
        }
    }

    /// Nor is leaving: who leaves whenever he likes, and comes back with any weight, has no more
    /// than one who stays.
    #[test]
    fn leaving_and_coming_back_gains_nothing(
        others in 1usize..5,
        stays in proptest::collection::vec((1u64..10, 0u64..6, random::weight()), 1..40),
        sharing in prop_oneof![Just(Sharing::ByUser(Default::default())), Just(Sharing::ByProgram)],
        batch in prop_oneof![Just(1u32), 1u32..=20],
    ) {
        let by_program = sharing == Sharing::ByProgram;
        let mut schedule = machine(2, 0, &[]);
        schedule.apply(Event::Sharing(sharing)).unwrap();
        let weights = ClassWeights { interactive: 100, ..ClassWeights::default() };
        let slices = ClassSlices { batch, ..ClassSlices::default() };
        schedule.apply(Event::Classes { weights, slices }).unwrap();
        for id in 0..others {
            let spec = Spec { user: UserId(id as u32), ..Spec::new(2) };
            schedule.apply(Event::Arrived { job: JobId(id as u64), spec }).unwrap();
        }
        let (mut slice, mut had, mut id) = (0, 0.0, others as u64);
        for (there, away, weight) in stays {
            let weight = if by_program { 100 } else { weight };
            id += 1;
            // It asks for little at a time, and so is served soon.
            let (user, class) = (UserId(99), Class::Interactive);
            let spec = Spec { user, class, weight, ..Spec::new(2) };
            schedule.apply(Event::Arrived { job: JobId(id), spec }).unwrap();
            for moment in 0..there + away {
                if moment == there {
                    schedule.apply(Event::Departed { job: JobId(id) }).unwrap();
                }
                slice += 1;
                had += f64::from(u8::from(schedule.plan(slice).slot(JobId(id)).is_some()));
            }
            if away == 0 {
                schedule.apply(Event::Departed { job: JobId(id) }).unwrap();
            }
        }
        let share = slice as f64 / (others + 1) as f64;
        prop_assert!(had <= share + f64::from(batch), "had {} of {} slices", had, slice);
    }

    /// Nor is change: who changes class, weight or policy, suspends and resumes whenever he likes,
    /// has no more than one who never does.
    #[test]
    fn toggling_gains_nothing(
        others in 1usize..5,
        toggles in proptest::collection::vec((toggle(), 0u64..6), 1..60),
        sharing in prop_oneof![Just(Sharing::ByUser(Default::default())), Just(Sharing::ByProgram)],
        batch in prop_oneof![Just(1u32), 1u32..=20],
    ) {
        let most = if sharing == Sharing::ByProgram { 100 } else { Spec::MAX_WEIGHT };
        let mut schedule = machine(2, 0, &[]);
        schedule.apply(Event::Sharing(sharing)).unwrap();
        let weights = ClassWeights { interactive: 100, ..ClassWeights::default() };
        let slices = ClassSlices { batch, ..ClassSlices::default() };
        schedule.apply(Event::Classes { weights, slices }).unwrap();
        for id in 0..=others {
            let spec = Spec { user: UserId(id as u32), ..Spec::new(2) };
            schedule.apply(Event::Arrived { job: JobId(id as u64), spec }).unwrap();
        }
        let job = JobId(others as u64);
        let mut spec = Spec { user: UserId(others as u32), ..Spec::new(2) };
        let (mut slice, mut had) = (0, 0.0);
        for (toggle, stays) in toggles {
            match toggle {
                Toggle::Class(class) => spec.class = class,
                Toggle::Weight(weight) => spec.weight = weight.min(most),
                Toggle::Policy(policy) => spec.policy = policy,
                Toggle::Suspend(true) => schedule.apply(Event::Suspended { job }).unwrap(),
                Toggle::Suspend(false) => schedule.apply(Event::Resumed { job }).unwrap(),
            }
            schedule.apply(Event::Changed { job, spec: spec.clone() }).unwrap();
            for _ in 0..stays {
                slice += 1;
                had += f64::from(u8::from(schedule.plan(slice).slot(job).is_some()));
            }
        }
        let share = slice as f64 / (others + 1) as f64;
        prop_assert!(had <= share + f64::from(batch), "had {} of {} slices", had, slice);
    }

    /// However many jobs a user has, of whatever weights: another one has the same.
    #[test]
    fn what_a_user_has_depends_on_no_other_ones_jobs(
        jobs in proptest::collection::vec((random::weight(), random::class()), 1..40),
        threads in 0u32..40,
        share in 50u32..=300,
    ) {
        let mut schedule = machine(4, 0, &[]);
        schedule.apply(Event::Sharing(Sharing::ByUser([(UserId(1), share)].into()))).unwrap();
        let spec = Spec { user: UserId(1), ..Spec::new(4) };
        schedule.apply(Event::Arrived { job: JobId(0), spec }).unwrap();
        let of_users = [(UserId(2), 4 * threads)].into();
        schedule.apply(Event::Load { threads: 4 * threads, of_users }).unwrap();
        let asks_for_less = threads == 0 && jobs.iter().all(|(weight, _)| *weight < 100);
        for (id, (weight, class)) in jobs.into_iter().enumerate() {
            let class = class.min(Class::Interactive).max(Class::Batch);
            let spec = Spec { user: UserId(2), weight, class, ..Spec::new(4) };
            schedule.apply(Event::Arrived { job: JobId(id as u64 + 1), spec }).unwrap();
        }
        let (mut had, due) = (0.0, f64::from(share) / f64::from(share + 100));
        for slice in 1..400 {
            had += f64::from(u8::from(schedule.plan(slice).slot(JobId(0)).is_some()));
            // More where the other one asks for less than usual.
            let off = had - due * slice as f64;
            prop_assert!(off >= -1.01, "off by {} after {}", off, slice);
            prop_assert!(asks_for_less || off <= 1.01, "off by {} after {}", off, slice);
        }
    }

    /// Jobs that come without processes, and sleep from the first moment on, move no other job of
    /// their user.
    #[test]
    fn jobs_that_come_asleep_gain_nothing(
        others in 1u64..5,
        come in proptest::collection::vec(0u64..6, 200),
    ) {
        let mut schedule = machine(2, 0, &[]);
        schedule.apply(Event::Sharing(Sharing::ByUser(BTreeMap::new()))).unwrap();
        for user in 0..=others {
            let spec = Spec { user: UserId(user as u32), ..Spec::new(2) };
            schedule.apply(Event::Arrived { job: JobId(user), spec }).unwrap();
        }
        let (mut id, mut had) = (others, 0.0);
        for (slice, come) in (1u64..).zip(come) {
            for _ in 0..come {
                id += 1;
                let spec = Spec { user: UserId(0), ..Spec::new(2) };
                schedule.apply(Event::Arrived { job: JobId(id), spec }).unwrap();
                schedule.apply(Event::Slept { job: JobId(id) }).unwrap();
            }
            had += f64::from(u8::from(schedule.plan(slice).slot(JobId(0)).is_some()));
            let off = had - slice as f64 / (others + 1) as f64;
            prop_assert!(off.abs() <= 1.01, "off by {} after {}", off, slice);
        }
    }

    /// Sleeping is not rewarded: whoever sleeps now and then has no more than
    /// one who never does.
    #[test]
    fn sleep_gathers_no_credit(
        others in 1usize..5,
        naps in proptest::collection::vec((1u64..10, 0u64..30), 1..20),
        batch in prop_oneof![Just(1u32), 1u32..=20],
    ) {
        let mut schedule = machine(2, 0, &vec![Spec::new(2); others + 1]);
        let weights = schedule.config().class_weights;
        let slices = ClassSlices { batch, ..ClassSlices::default() };
        schedule.apply(Event::Classes { weights, slices }).unwrap();
        let job = JobId(others as u64);
        let (mut slice, mut had) = (0, 0.0);
        for (awake, asleep) in naps {
            for nap in 0..awake + asleep {
                if nap == 0 {
                    schedule.apply(Event::Woke { job }).unwrap();
                } else if nap == awake {
                    schedule.apply(Event::Slept { job }).unwrap();
                }
                slice += 1;
                had += f64::from(u8::from(schedule.plan(slice).slot(job).is_some()));
            }
        }
        let share = slice as f64 / (others + 1) as f64;
        prop_assert!(had <= share + f64::from(batch), "had {} of {} slices", had, slice);
    }
}
