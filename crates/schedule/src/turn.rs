//! The order of turns: virtual time.
//!
//! Problem: gangs share by weight, whatever their widths, and nobody waits
//! longer than its weight says; neither by sleeping nor by using holes may
//! one gain or lose for long.
//! Approach: earliest eligible virtual deadline first (EEVDF, Stoica et al.
//! 1996), with the slices of a class as the request.
//! Terms:
//! - *virtual time* of a job: slices in a row / weight (`accounts`). The rest of the machine has n
//!   threads, of which u found a CPU. It moves by u / n of a slice at the weight of a thread: the
//!   per-thread time of a gang's thread (L18).
//! - *stride*: how far one slice moves it; *deadline*: virtual time + a stride for each slice that
//!   is left of its request (`request`). The rest asks for a slice at a time. Slices differ in the
//!   gaps that they contain. Each moves virtual time by what it is worth, so that gaps take from
//!   all gangs alike.
//! - *eligible*: not ahead of the average, weighted by weight, when its request
//!   began; and so until it is used up.
//! - *tier*: jobs with one virtual time: express; interactive, batch and the
//!   rest; standby. Tiers are strict. Express is in the second one where its
//!   class has a weight.
//! - *contender*: who could lead its tier in this slice.
//! - *floor*: the least virtual time of the contenders of the last slice.
//!
//! Algorithm: the leader of a tier is the eligible contender with the earliest deadline; gangs
//! before the rest and lesser ids first among equals. The others follow by deadline. A leader thus
//! keeps leading until it had its request, or until another becomes eligible that asks for less and
//! so has an earlier deadline. A gang that arrives, wakes or cannot contend starts at the floor if
//! it is behind it. One that entries keep out keeps its virtual time (`claim`). A gang whose weight
//! changes stays ahead of the average, or behind it, by as many slices as it was. It is behind by
//! no more than it now asks for at a time (`reweigh`). After a slice, a contender may be ahead of
//! the floor by more than [`LEAD`] of the longest requests. The excess shrinks by a quarter: having
//! used holes is not punished for long, and the order of those who are ahead stays.
//!
//! Properties:
//! - among gangs of which no two fit side by side, each has at every moment what its weight gives
//!   it, within one request: the longest of theirs;
//! - with packing and with the rest served beside gangs, nobody has less than
//!   what it is guaranteed by more than two of them (`check::Frame`);
//! - who arrives and asks for one slice, of no less than the others' weight, has
//!   the next one, however long the requests of the others are;
//! - no one is ahead by more than `LEAD` + 4 longest requests;
//! - virtual times of common weights are exact, so that ties are ties.

use crate::{Config, Gap, Spec, clock};

/// A slice at weight 1: divisible by 10,000 · k for each k up to 40, so that
/// strides of common weights have no remainder.
pub(crate) const SLICE: u128 = 5_342_931_457_063_200 * 10_000;

/// How many of the longest requests a contender may be ahead for any time. Plain EEVDF never leads
/// by as much.
const LEAD: u128 = 2;

/// Weights are in parts of this, since those of users divide them.
pub(crate) const SCALE: u64 = 100;

/// The weight of a thread of the rest: a batch gang at 100 %.
pub(crate) const REST_WEIGHT: u64 = Spec::DEFAULT_WEIGHT as u64 * 100;

/// Jobs that share one virtual time. The lesser tier comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Express,
    Shared,
    Standby,
}

impl Tier {
    /// In the order in which they choose.
    pub const ALL: [Tier; 3] = [Tier::Express, Tier::Shared, Tier::Standby];
}

/// Where virtual time begins: as far from 0 as anyone may be behind.
pub(crate) const START: u128 = SLICE * 10_000;

/// How far a slice moves the virtual time of a gang.
pub(crate) fn stride(weight: u64) -> u128 {
    SLICE * u128::from(SCALE) / u128::from(weight)
}

/// How far this slice moves the virtual time of a gang with that stride.
pub(crate) fn charge(config: &Config, stride: u128, slice: u64) -> u128 {
    let Gap { period_ns, length_ns } = config.gap;
    // Every slice has as much of the gaps in it: worth one stride, exactly.
    if length_ns == 0 || config.slice_ns % period_ns == 0 {
        return stride;
    }
    let raised_ns = u128::from(clock::raised_ns(config, slice));
    let mean_ns_by_period = u128::from(config.slice_ns) * u128::from(period_ns - length_ns);
    let (worth, period_ns) = (stride * raised_ns, u128::from(period_ns));
    worth / mean_ns_by_period * period_ns
        + worth % mean_ns_by_period * period_ns / mean_ns_by_period
}

/// How far a slice in which `served` threads of the rest found a CPU moves its virtual time, if all
/// of its threads have that weight.
pub(crate) fn rest_stride(served: u32, weight: u128) -> u128 {
    SLICE * u128::from(SCALE) * u128::from(served) / weight
}

/// A candidate for the lead: all that the order needs to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    pub vtime: u128,
    /// The virtual time at which its request began.
    pub since: u128,
    pub stride: u128,
    /// Slices that are left of its request.
    pub left: u32,
    /// Slices of its request.
    pub slices: u32,
    /// Of turns: the slices it deserves relative to the others.
    pub weight: u128,
    /// Breaks ties, the lesser first.
    pub tie: u64,
}

impl Turn {
    /// The order of turns: by deadline, then by tie.
    pub fn rank(&self) -> (u128, u64) {
        (self.vtime + self.stride * u128::from(self.left), self.tie)
    }

    /// How far a request moves its virtual time.
    pub fn request(&self) -> u128 {
        self.stride * u128::from(self.slices)
    }
}

/// Puts the leader before the others, who are in the order of their ranks.
pub(crate) fn lead<T>(contenders: &mut [T], turn: impl Fn(&T) -> Turn) {
    let Some(least) = contenders.iter().map(|c| turn(c).vtime).min() else { return };
    let (mut weights, mut moment) = (0, 0);
    for contender in contenders.iter() {
        let Turn { vtime, weight, .. } = turn(contender);
        weights += weight;
        moment += weight * (vtime - least);
    }
    // A contender behind all others was so, or at the average, as its request began.
    let eligible = |c: &T| turn(c).since.saturating_sub(least) * weights <= moment;
    let leader = contenders.iter().position(eligible).expect("the least is eligible");
    contenders[..=leader].rotate_right(1);
}

/// The average of the virtual times of these, weighted by weight.
pub(crate) fn average(turns: &[Turn]) -> Option<u128> {
    let least = turns.iter().map(|turn| turn.vtime).min()?;
    let weights: u128 = turns.iter().map(|turn| turn.weight).sum();
    let moment: u128 = turns.iter().map(|turn| turn.weight * (turn.vtime - least)).sum();
    Some(least + moment / weights)
}

/// The virtual time of a gang whose weight changes: it is ahead of the average, or behind it, by as
/// many slices as before. Thus the average stays too. A gang that asks for less from now on is not
/// owed a long request any more: `request`, by virtual time, is the most.
pub(crate) fn reweigh(vtime: u128, average: u128, old: u64, new: u64, request: u128) -> u128 {
    let scaled = |distance: u128| distance * u128::from(old) / u128::from(new);
    if vtime >= average {
        average + scaled(vtime - average)
    } else {
        average.saturating_sub(scaled(average - vtime).min(request))
    }
}

/// After a slice: bounds how far the contenders, given by virtual time and
/// request, are ahead of the floor, and gives the new floor.
pub(crate) fn advance_floor(contenders: Vec<(&mut u128, u128)>, floor: u128) -> u128 {
    let Some(least) = contenders.iter().map(|(vtime, _)| **vtime).min() else { return floor };
    let longest = contenders.iter().map(|&(_, request)| request).max().unwrap_or(0);
    // One with a claim or with another weight may be behind the floor, and takes nothing along.
    let floor = floor.max(least);
    let bound = floor + LEAD * longest;
    for (vtime, _) in contenders {
        *vtime -= vtime.saturating_sub(bound) / 4;
    }
    floor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClassSlices, Event, JobId, Schedule, Topology};
    use proptest::prelude::*;

    /// Slots for equal shares of time are equally far, whatever the weights.
    #[test]
    fn virtual_times_of_common_weights_are_exact() {
        for k in 1..=40 {
            for weight in [1, 10, 25, 100, 125, 10_000] {
                assert_eq!(SLICE % (weight * k), 0, "weight {weight} times {k}");
                let stride = |weight: u128| stride(weight as u64 * SCALE);
                assert_eq!(stride(weight * k) * k, stride(weight));
            }
        }
        let all = u128::from(12 * REST_WEIGHT * SCALE);
        assert_eq!(rest_stride(8, all) * 3, stride(REST_WEIGHT * SCALE) * 2);
    }

    #[test]
    fn gaps_take_from_all_gangs_alike() {
        // Ten slices a gap: an even number of gangs would always lose the same one's slice.
        let config = Config { slice_ns: 1_000_000, ..Config::default() };
        let mut schedule = Schedule::new(config.clone(), Topology::flat(2)).unwrap();
        for job in [1, 2] {
            schedule.apply(Event::Arrived { job: JobId(job), spec: Spec::new(2) }).unwrap();
        }
        let mut raised_ns = [0, 0];
        for slice in 0..1000 {
            let job = schedule.plan(slice).row[0].job.0 as usize;
            raised_ns[job - 1] += clock::raised_ns(&config, slice);
            assert!(raised_ns[0].abs_diff(raised_ns[1]) <= config.slice_ns, "{raised_ns:?}");
        }
    }

    #[test]
    fn leader_is_eligible_with_earliest_deadline() {
        let turn = |vtime, weight: u64, tie| Turn {
            vtime,
            since: vtime,
            stride: stride(weight),
            left: 1,
            slices: 1,
            weight: weight.into(),
            tie,
        };
        // The heavy one has the earliest deadline and is ahead of the average.
        let ahead = stride(100) / 4;
        let mut line = [turn(ahead, 300, 1), turn(0, 100, 2), turn(0, 100, 3)];
        lead(&mut line, |turn| *turn);
        assert_eq!(line.map(|turn| turn.tie), [2, 1, 3]);
        // At the average it is eligible.
        let mut line = [turn(0, 300, 1), turn(0, 100, 2), turn(0, 100, 3)];
        lead(&mut line, |turn| *turn);
        assert_eq!(line.map(|turn| turn.tie), [1, 2, 3]);
    }

    proptest! {
        /// However good the holes are, the lead is bounded.
        #[test]
        fn lead_is_bounded_by_lead_and_four_requests(
            specs in proptest::collection::vec((1u32..=10_000, 1u32..=8), 1..8),
            threads in 0u32..12,
            batch in 1u32..=20,
        ) {
            let class_slices = ClassSlices { batch, ..ClassSlices::default() };
            let config = Config { class_slices, ..Config::default() };
            let mut schedule = Schedule::new(config, Topology::flat(8)).unwrap();
            schedule.apply(Event::load(threads)).unwrap();
            for (id, &(weight, cpus)) in specs.iter().enumerate() {
                let spec = Spec { weight, ..Spec::new(cpus) };
                schedule.apply(Event::Arrived { job: JobId(id as u64), spec }).unwrap();
            }
            for slice in 0..400 {
                schedule.plan(slice);
                let floor = schedule.floors.of(Tier::Shared);
                let requests = schedule.jobs.values().map(|job| job.stride * u128::from(batch));
                let longest = requests.max().unwrap().max(stride(REST_WEIGHT * SCALE));
                let vtimes = schedule.jobs.values().map(|job| job.vtime);
                let top = vtimes.max().unwrap().max(schedule.rest.vtime);
                prop_assert!(top - floor <= (LEAD + 4) * longest);
            }
        }
    }
}
