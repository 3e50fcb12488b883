//! When switches were asked for, and when they happened (X8).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gang_timetable::follower::Switch;

/// How many switches are remembered.
pub const REMEMBERED: usize = 1024;

#[derive(Debug, Default)]
struct Cell {
    asked_ns: AtomicU64,
    began_ns: AtomicU64,
    lowered_ns: AtomicU64,
    raised_ns: AtomicU64,
    lowers: AtomicU32,
    raises: AtomicU32,
}

/// The last switches of one switcher: written by it only, read by anybody, without a lock.
#[derive(Debug)]
pub struct Timings {
    count: AtomicU64,
    ring: Box<[Cell]>,
    failures: AtomicU64,
    last_failure: AtomicU32,
    late_timetables: AtomicU64,
    ran_out: AtomicU64,
    out_of_step: AtomicU64,
    due_ns: AtomicU64,
    in_force: AtomicU64,
}

impl Default for Timings {
    fn default() -> Self {
        Timings {
            count: AtomicU64::new(0),
            ring: (0..REMEMBERED).map(|_| Cell::default()).collect(),
            failures: AtomicU64::new(0),
            last_failure: AtomicU32::new(0),
            late_timetables: AtomicU64::new(0),
            ran_out: AtomicU64::new(0),
            out_of_step: AtomicU64::new(0),
            due_ns: AtomicU64::new(u64::MAX),
            in_force: AtomicU64::new(0),
        }
    }
}

impl Timings {
    /// Number of switches since the start.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    pub fn record(&self, switch: &Switch) {
        let count = self.count.load(Ordering::Relaxed);
        let cell = &self.ring[(count % REMEMBERED as u64) as usize];
        cell.asked_ns.store(switch.asked_ns, Ordering::Relaxed);
        cell.began_ns.store(switch.began_ns, Ordering::Relaxed);
        cell.lowered_ns.store(switch.lowered_ns, Ordering::Relaxed);
        cell.raised_ns.store(switch.raised_ns, Ordering::Relaxed);
        cell.lowers.store(switch.lowers, Ordering::Relaxed);
        cell.raises.store(switch.raises, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
    }

    /// The switches remembered, oldest first.
    pub fn switches(&self) -> Vec<Switch> {
        self.numbered().1
    }

    /// The number of the first switch remembered, from 0, and all of them.
    pub fn numbered(&self) -> (u64, Vec<Switch>) {
        let end = self.count();
        let begin = end.saturating_sub(REMEMBERED as u64);
        let mut switches: Vec<Switch> = (begin..end)
            .map(|number| {
                let cell = &self.ring[(number % REMEMBERED as u64) as usize];
                Switch {
                    asked_ns: cell.asked_ns.load(Ordering::Relaxed),
                    began_ns: cell.began_ns.load(Ordering::Relaxed),
                    lowered_ns: cell.lowered_ns.load(Ordering::Relaxed),
                    raised_ns: cell.raised_ns.load(Ordering::Relaxed),
                    lowers: cell.lowers.load(Ordering::Relaxed),
                    raises: cell.raises.load(Ordering::Relaxed),
                }
            })
            .collect();
        // Those that were overwritten meanwhile, and the one that may be under way, do not count.
        let overwritten = (self.count() + 1).saturating_sub(begin + REMEMBERED as u64) as usize;
        let overwritten = overwritten.min(switches.len());
        switches.drain(..overwritten);
        (begin + overwritten as u64, switches)
    }

    /// How long after they were asked to leave their slot gangs had left it, on average over the
    /// switches remembered; 0 where there were none.
    pub fn mean_lower_ns(&self) -> u64 {
        let switches = self.switches();
        let lowering = switches.iter().filter(|switch| switch.lowers > 0);
        let (sum, count) = lowering.fold((0, 0), |(sum, count), switch| {
            (sum + switch.lowered_ns.saturating_sub(switch.asked_ns), count + 1)
        });
        sum.checked_div(count).unwrap_or(0)
    }

    /// All that was to be done is done; there is nothing more to do before a moment (UTC).
    pub fn record_due(&self, at_ns: u64) {
        self.due_ns.store(at_ns, Ordering::Release);
    }

    /// Something was to be done by then, and is not done yet.
    pub fn is_overdue(&self, at_ns: u64) -> bool {
        self.due_ns.load(Ordering::Acquire) <= at_ns
    }

    /// The timetable of this generation is followed from now on, and none before it any more.
    pub fn record_in_force(&self, generation: u64) {
        self.in_force.store(generation, Ordering::Release);
    }

    /// The generation of the timetable that is followed; 0 before the first one.
    pub fn in_force(&self) -> u64 {
        self.in_force.load(Ordering::Acquire)
    }

    /// A timetable was handed over after its beginning.
    pub fn record_late_timetable(&self) {
        self.late_timetables.fetch_add(1, Ordering::Relaxed);
    }

    /// A timetable was not replaced by its deadline, and gangs left their slots for it.
    pub fn record_ran_out(&self) {
        self.ran_out.fetch_add(1, Ordering::Relaxed);
    }

    /// How many timetables came after their beginning since the start, and how many ran out.
    pub fn belated(&self) -> (u64, u64) {
        (self.late_timetables.load(Ordering::Relaxed), self.ran_out.load(Ordering::Relaxed))
    }

    /// A timetable came into force although the one before it had not been followed as planned. The
    /// threads of gangs may not be what was planned.
    pub fn record_out_of_step(&self) {
        self.out_of_step.fetch_add(1, Ordering::Release);
    }

    /// How often that was so since the start. It is counted before the timetable is
    /// [`Timings::in_force`].
    pub fn out_of_step(&self) -> u64 {
        self.out_of_step.load(Ordering::Acquire)
    }

    pub fn record_failure(&self, errno: i32) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.last_failure.store(errno.unsigned_abs(), Ordering::Relaxed);
    }

    /// How many calls failed since the start, and the error number of the last one. Calls on what
    /// ended meanwhile do not count.
    pub fn failures(&self) -> (u64, i32) {
        (self.failures.load(Ordering::Relaxed), self.last_failure.load(Ordering::Relaxed) as i32)
    }
}

/// Switches of fewer actions say little about what an action takes.
const ACTIONS_LEAST: u32 = 64;

/// How long an action took, on average over the switches since a moment (UTC); absent where none
/// had many.
pub fn action_ns<'a>(switchers: impl Iterator<Item = &'a Timings>, since_ns: u64) -> Option<u64> {
    let switches = switchers.flat_map(Timings::switches).filter(|it| it.asked_ns >= since_ns);
    let actions = |switch: &Switch| switch.lowers + switch.raises;
    let large = switches.filter(|switch| actions(switch) >= ACTIONS_LEAST);
    let (took_ns, count) = large.fold((0, 0), |(took_ns, count), switch| {
        let lasted_ns = switch.raised_ns.saturating_sub(switch.began_ns);
        (took_ns + lasted_ns, count + u64::from(actions(&switch)))
    });
    took_ns.checked_div(count)
}

/// The distribution of one phase, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distribution {
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Distribution {
    /// Of values in nanoseconds; all zero where there are none.
    pub fn of(mut values_ns: Vec<u64>) -> Distribution {
        values_ns.sort_unstable();
        let at = |quantile: f64| {
            let rank = (quantile * values_ns.len() as f64).ceil() as usize;
            values_ns.get(rank.max(1) - 1).map_or(0.0, |&ns| ns as f64 / 1000.0)
        };
        Distribution { p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) }
    }
}

/// The phases of the switches of a machine. A switch is spread over several switchers; it begins
/// with the first and ends with the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub late: Distribution,
    pub lower: Distribution,
    pub raise: Distribution,
    /// First to last thread of a switch that raised any.
    pub skew: Distribution,
}

/// Joins the parts of each switch and takes the distributions of its phases.
pub fn summarise(switchers: &[&Timings]) -> Summary {
    let mut parts: Vec<Switch> = switchers.iter().flat_map(|timings| timings.switches()).collect();
    parts.sort_unstable_by_key(|switch| switch.asked_ns);
    let (mut late, mut lower, mut raise, mut skew) = (vec![], vec![], vec![], vec![]);
    for parts in parts.chunk_by(|a, b| a.asked_ns == b.asked_ns) {
        late.extend(parts.iter().map(|p| p.began_ns.saturating_sub(p.asked_ns)).max());
        let lowering = parts.iter().filter(|p| p.lowers > 0);
        lower.extend(lowering.map(|p| p.lowered_ns.saturating_sub(p.began_ns)).max());
        let raising = || parts.iter().filter(|p| p.raises > 0);
        raise.extend(raising().map(|p| p.raised_ns.saturating_sub(p.lowered_ns)).max());
        let first = raising().map(|p| p.lowered_ns).min();
        let last = raising().map(|p| p.raised_ns).max();
        skew.extend(first.zip(last).map(|(first, last)| last.saturating_sub(first)));
    }
    Summary {
        late: Distribution::of(late),
        lower: Distribution::of(lower),
        raise: Distribution::of(raise),
        skew: Distribution::of(skew),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(asked_ns: u64, began: u64, lowered: u64, raised: u64) -> Switch {
        Switch {
            asked_ns,
            began_ns: asked_ns + began,
            lowered_ns: asked_ns + lowered,
            raised_ns: asked_ns + raised,
            lowers: 2,
            raises: 2,
        }
    }

    #[test]
    fn the_ring_keeps_the_last_switches() {
        let timings = Timings::default();
        for n in 1..=3000 {
            timings.record(&switch(n, 0, 0, 0));
        }
        let kept = timings.switches();
        assert_eq!(kept.last().unwrap().asked_ns, 3000);
        assert!(kept.len() >= REMEMBERED - 1);
        assert!(kept.windows(2).all(|pair| pair[0].asked_ns + 1 == pair[1].asked_ns));
        assert_eq!(timings.count(), 3000);
        let (first, kept) = timings.numbered();
        assert_eq!(first + 1, kept[0].asked_ns, "the first one was asked for at 1");
    }

    #[test]
    fn parts_of_a_switch_count_from_first_to_last() {
        let (one, other) = (Timings::default(), Timings::default());
        one.record(&switch(1_000_000, 5_000, 10_000, 20_000));
        other.record(&switch(1_000_000, 7_000, 9_000, 30_000));
        let summary = summarise(&[&one, &other]);
        assert_eq!(summary.late.max_us, 7.0);
        assert_eq!(summary.skew.p50_us, 21.0);
        assert_eq!(summary.lower.max_us, 5.0);
    }

    #[test]
    fn lowering_is_measured_from_the_edge() {
        let timings = Timings::default();
        assert_eq!(timings.mean_lower_ns(), 0);
        timings.record(&switch(1_000_000, 5_000, 10_000, 20_000));
        timings.record(&switch(2_000_000, 5_000, 30_000, 40_000));
        timings.record(&Switch { lowers: 0, ..switch(3_000_000, 90_000, 90_000, 95_000) });
        assert_eq!(timings.mean_lower_ns(), 20_000);
    }

    #[test]
    fn actions_are_measured_where_there_are_many() {
        let (one, other) = (Timings::default(), Timings::default());
        one.record(&Switch { lowers: 31, raises: 32, ..switch(1_000_000, 0, 10_000, 900_000) });
        let since = |ns| action_ns([&one, &other].into_iter(), ns);
        assert_eq!(since(0), None);
        one.record(&Switch { lowers: 0, raises: 100, ..switch(2_000_000, 9_000, 9_000, 209_000) });
        other.record(&Switch { lowers: 300, raises: 0, ..switch(2_000_000, 0, 400_000, 400_000) });
        assert_eq!(since(2_000_000), Some(1_500));
        assert_eq!(since(2_000_001), None, "old ones say nothing of now");
    }

    #[test]
    fn nothing_recorded_is_no_distribution() {
        assert_eq!(summarise(&[&Timings::default()]), Summary::default());
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let d = Distribution::of((1..=100).rev().map(|n| n * 1000).collect());
        assert_eq!((d.p50_us, d.p99_us, d.max_us), (50.0, 99.0, 100.0));
    }
}
