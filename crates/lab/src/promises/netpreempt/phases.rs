//! Phases of the switch, as a daemon reports their sums; and what follows from them by arithmetic
//! for clusters that nobody has measured.

use std::time::Duration;

use gang_protocol::v1::Flushes;

use crate::harness::samples::Figures;

/// Of all gangs.
pub const SLOTS: &str = "slots";
pub const FLUSHES: &str = "flushes";
pub const FAILED: &str = "failed_flushes";
/// Means of flushes that did not fail.
pub const FLUSH: &str = "flush_us";
pub const SAVE: &str = "save_us";
pub const SWITCH: &str = "switch_us";
/// Since the daemon began.
const LONGEST: &str = "flush_us_longest";
/// All phases of all gangs, as a part of the time.
pub const PART: &str = "phases_percent";

/// Counts of a daemon of all gangs, by a moment.
#[derive(Default)]
pub struct Switched {
    pub slots: i64,
    pub in_slot_ns: i64,
    /// Absent while no port was opened.
    pub flushes: Option<Flushes>,
}

/// The figures of a time between two looks at a daemon; none where no port was open.
pub fn between(before: &Switched, after: &Switched, length: Duration) -> Figures {
    let slots = (after.slots - before.slots) as f64;
    let (before, Some(after)) = (&before.flushes, &after.flushes) else { return Figures::new() };
    let since = |of: fn(&Flushes) -> i64| (of(after) - before.as_ref().map_or(0, of)) as f64;
    let (flushes, failed) = (since(|it| it.flushes), since(|it| it.failed));
    let phases = [since(|it| it.flush_ns), since(|it| it.save_ns), since(|it| it.switch_ns)];
    let mut figures = Figures::from([
        (FLUSHES, flushes),
        (FAILED, failed),
        (LONGEST, after.longest_ns as f64 / 1e3),
        (SLOTS, slots),
        (PART, phases.iter().sum::<f64>() / length.as_nanos() as f64 * 100.0),
    ]);
    let timed = flushes - failed;
    if timed > 0.0 {
        let names = [FLUSH, SAVE, SWITCH];
        figures.extend(names.into_iter().zip(phases.map(|ns| ns / timed / 1e3)));
    }
    figures
}

/// To how many others a rank sends, one rank for each of so many hosts, as NPB lays them out.
pub fn peers(pattern: &str, hosts: u32) -> u32 {
    let others = hosts.saturating_sub(1);
    let few = match pattern {
        // A grid of two dimensions, and one of three.
        "lu" => 4,
        "mg" | "sp" => 6,
        // Sums along a row of the grid, and the partner of the transpose.
        "cg" => hosts.max(1).ilog2() / 2 + 1,
        _ => others,
    };
    few.min(others)
}

/// The part of a slice that a flush takes with so many peers, in percent. `flush_us` is that of two
/// ranks on one host, with a peer each: a host with one rank pays half of it for each peer, and
/// waits once for receipts of other hosts.
pub fn projected_percent(flush_us: f64, peers: u32, round_trip_us: f64, slice: Duration) -> f64 {
    let flush_us = flush_us / 2.0 * f64::from(peers) + round_trip_us;
    flush_us / slice.as_micros() as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switched(slots: i64, flushes: i64, failed: i64, ns: [i64; 3]) -> Switched {
        let [flush_ns, save_ns, switch_ns] = ns;
        let (ports, longest_ns) = (4, 90_000);
        let flushes = Flushes { ports, flushes, failed, flush_ns, save_ns, switch_ns, longest_ns };
        Switched { slots, in_slot_ns: 0, flushes: Some(flushes) }
    }

    #[test]
    fn phases_are_those_of_the_window() {
        let before = switched(20, 10, 1, [1_000_000, 50_000, 100_000]);
        let after = switched(45, 31, 2, [1_800_000, 70_000, 280_000]);
        let figures = between(&before, &after, Duration::from_secs(1));
        assert_eq!([SLOTS, FLUSHES, FAILED].map(|it| figures[it]), [25.0, 21.0, 1.0]);
        assert_eq!([FLUSH, SAVE, SWITCH].map(|it| figures[it]), [40.0, 1.0, 9.0]);
        assert_eq!(figures[LONGEST], 90.0);
        assert!((figures[PART] - 0.1).abs() < 1e-9, "{figures:?}");
    }

    #[test]
    fn unmeasured_phases_have_no_figure() {
        let length = Duration::from_secs(1);
        let none = Switched::default();
        assert!(between(&none, &none, length).is_empty());
        let all_failed = between(&none, &switched(3, 3, 3, [0; 3]), length);
        assert_eq!(all_failed[FAILED], 3.0);
        assert!(!all_failed.contains_key(FLUSH), "{all_failed:?}");
    }

    #[test]
    fn peers_follow_the_pattern() {
        let of = |pattern| [2, 64, 1_024].map(|hosts| peers(pattern, hosts));
        assert_eq!(of("lu"), [1, 4, 4]);
        assert_eq!(of("cg"), [1, 4, 6]);
        assert_eq!(of("ft"), [1, 63, 1_023]);
        assert_eq!(peers("mg", 1), 0);
    }

    #[test]
    fn projected_flush_grows_with_peers() {
        let percent = |peers| projected_percent(20.0, peers, 50.0, Duration::from_millis(100));
        assert!((percent(4) - 0.09).abs() < 1e-9);
        assert!((percent(63) - 0.68).abs() < 1e-9);
    }
}
