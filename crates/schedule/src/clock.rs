//! The clock as the coordinator.
//!
//! Problem: every CPU and every host must switch to the same row at the same
//! moment, without a message.
//! Approach: slice number = UTC time / slice length (X2, L11), and the gaps
//! are the ends of periods of the same clock.
//! Terms: an *edge* is a moment at which what may be raised changes.
//! Properties: pure functions of settings and time; edges lie strictly after
//! the moment asked about, none is skipped, and between two neighbouring
//! edges neither the slice nor being in a gap changes.

use crate::{Config, Gap};

/// A moment at which what may be raised changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// UTC, ns.
    pub at_ns: u64,
    pub kind: EdgeKind,
}

/// The change at an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeKind {
    /// A slice begins. A gap may begin or end at the same moment: ask
    /// [`in_gap`] at `at_ns`.
    SliceStart,
    /// A gap begins inside a slice.
    GapStart,
    /// A gap ends inside a slice.
    GapEnd,
}

/// The number of the slice under way at `now_ns` (UTC, ns).
pub fn slice_at(config: &Config, now_ns: u64) -> u64 {
    now_ns / config.slice_ns
}

/// The moment (UTC, ns) at which a slice begins; the end of time for slices
/// that begin after it.
pub fn slice_start(config: &Config, slice: u64) -> u64 {
    slice.saturating_mul(config.slice_ns)
}

/// Whether no gang is to be raised at `now_ns` (UTC, ns).
pub fn in_gap(config: &Config, now_ns: u64) -> bool {
    let gap = config.gap;
    gap.length_ns > 0 && now_ns % gap.period_ns >= gap.period_ns - gap.length_ns
}

/// How long gangs are raised in a slice, ns: its length without the gaps in it.
pub fn raised_ns(config: &Config, slice: u64) -> u64 {
    let raised_until = |moment: u64| {
        let Gap { period_ns, length_ns } = config.gap;
        let open_ns = period_ns - length_ns;
        moment / period_ns * open_ns + (moment % period_ns).min(open_ns)
    };
    raised_until(slice_start(config, slice.saturating_add(1)))
        - raised_until(slice_start(config, slice))
}

/// The first edge strictly after `now_ns` (UTC, ns). Edges that coincide are
/// one [`EdgeKind::SliceStart`].
pub fn next_edge(config: &Config, now_ns: u64) -> Edge {
    let slice = slice_start(config, slice_at(config, now_ns).saturating_add(1));
    let start = Edge { at_ns: slice, kind: EdgeKind::SliceStart };
    let gap = config.gap;
    if gap.length_ns == 0 {
        return start;
    }
    let period_end = (now_ns - now_ns % gap.period_ns).saturating_add(gap.period_ns);
    let other = if in_gap(config, now_ns) {
        Edge { at_ns: period_end, kind: EdgeKind::GapEnd }
    } else {
        Edge { at_ns: period_end - gap.length_ns, kind: EdgeKind::GapStart }
    };
    if other.at_ns < start.at_ns { other } else { start }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> impl Strategy<Value = Config> {
        (200_000u64..30_000_000, 1_000_000u64..20_000_000, 0u64..=500).prop_map(
            |(slice_ns, period_ns, permille)| Config {
                slice_ns,
                gap: Gap { period_ns, length_ns: period_ns * permille / 1000 },
                ..Config::default()
            },
        )
    }

    #[test]
    fn by_default_a_gap_ends_with_every_slice() {
        let config = Config::default();
        let ms = 1_000_000;
        let edge = |at_ns, kind| Edge { at_ns, kind };
        assert_eq!(next_edge(&config, 0), edge(19 * ms, EdgeKind::GapStart));
        assert_eq!(next_edge(&config, 19 * ms), edge(20 * ms, EdgeKind::SliceStart));
        assert!(in_gap(&config, 19 * ms) && !in_gap(&config, 20 * ms));
    }

    #[test]
    fn gaps_do_not_depend_on_slices() {
        let config = Config {
            slice_ns: 25_000_000,
            gap: Gap { period_ns: 10_000_000, length_ns: 1_000_000 },
            ..Config::default()
        };
        let mut now = 0;
        let edges: Vec<_> = std::iter::from_fn(|| {
            let edge = next_edge(&config, now);
            now = edge.at_ns;
            Some((edge.at_ns / 1_000_000, edge.kind))
        })
        .take(6)
        .collect();
        use EdgeKind::*;
        let expected = [
            (9, GapStart),
            (10, GapEnd),
            (19, GapStart),
            (20, GapEnd),
            (25, SliceStart),
            (29, GapStart),
        ];
        assert_eq!(edges, expected);
    }

    #[test]
    fn a_gap_shortens_the_slices_that_it_is_in() {
        let gap = Gap { period_ns: 10_000_000, length_ns: 500_000 };
        let config = Config { slice_ns: 1_000_000, gap, ..Config::default() };
        let raised: Vec<u64> = (0..20).map(|slice| raised_ns(&config, slice) / 1000).collect();
        assert_eq!(raised[..10], [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 500]);
        assert_eq!(raised[10..], raised[..10]);
        assert_eq!(raised_ns(&Config { gap: Gap::NONE, ..config }, 9), 1_000_000);
    }

    #[test]
    fn the_end_of_time_is_harmless() {
        let config = Config::default();
        for now in [u64::MAX, u64::MAX - 1, u64::MAX - config.slice_ns] {
            next_edge(&config, now);
            slice_start(&config, slice_at(&config, now) + 1);
            raised_ns(&config, slice_at(&config, now));
        }
    }

    proptest! {
        #[test]
        fn nothing_changes_between_edges(
            config in settings(),
            now in 0u64..4_000_000_000_000_000_000,
        ) {
            let edge = next_edge(&config, now);
            prop_assert!(edge.at_ns > now);
            let last = edge.at_ns - 1;
            for moment in [now + (last - now) / 2, last] {
                prop_assert_eq!(slice_at(&config, now), slice_at(&config, moment));
                prop_assert_eq!(in_gap(&config, now), in_gap(&config, moment));
            }
            let kinds = match edge.kind {
                EdgeKind::SliceStart => slice_at(&config, edge.at_ns) == slice_at(&config, now) + 1,
                EdgeKind::GapStart => in_gap(&config, edge.at_ns) && !in_gap(&config, now),
                EdgeKind::GapEnd => !in_gap(&config, edge.at_ns) && in_gap(&config, now),
            };
            prop_assert!(kinds, "{:?}", edge);
            prop_assert!(slice_start(&config, slice_at(&config, now)) <= now);
        }
    }
}
