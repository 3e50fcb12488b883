//! How far apart two hosts of one clock switch to the same slices, as their daemons record it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gang_linux::clock::utc_ns;
use gang_protocol::v1;

use crate::harness::bed::Bed;
use crate::harness::samples::Figures;
use crate::harness::stats::quantile;

/// Slices that both hosts began.
pub const SAMPLES: &str = "samples";
pub const APART_P50: &str = "apart_us_p50";
pub const APART_P99: &str = "apart_us_p99";
/// The clock of either host was nearer to UTC than that at each of these switches.
const CLOCK_BOUND: &str = "clock_bound_us";

/// Daemons keep the last 1,024 switches.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);
/// Fewer switches than these say nothing about their distribution.
const FEWEST_SWITCHES: usize = 20;

/// Looks at the switches of the first two hosts for so long, of which the second one reads the
/// clock ahead by `error`. Times are compared on the true clock.
pub fn of_hosts(bed: &Bed, length: Duration, error: Duration) -> Result<Figures> {
    let slice_ns = bed.client(0)?.status()?.status.slice_ns;
    let error_ns = error.as_nanos() as i64;
    let mut looks = [0, error_ns].map(|ahead_ns| (utc_ns() as i64 + ahead_ns, Vec::new()));
    let end = Instant::now() + length;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(BETWEEN_LOOKS));
        for (host, (since_ns, all)) in looks.iter_mut().enumerate() {
            let seen = bed.client(host)?.switches(*since_ns)?.switches;
            *since_ns = seen.iter().map(|switch| switch.asked_ns).max().unwrap_or(*since_ns);
            all.extend(seen);
        }
        if left.is_zero() {
            break;
        }
    }
    let [(_, of_a), (_, of_b)] = looks;
    apart(&of_a, &of_b, slice_ns, error_ns)
}

/// How far apart two hosts began the same slices: when their switches began, and when the threads
/// of the slice were in it. The second one's clock is ahead by `error_ns`.
fn apart(
    of_a: &[v1::Switch],
    of_b: &[v1::Switch],
    slice_ns: i64,
    error_ns: i64,
) -> Result<Figures> {
    let begins = |switch: &&v1::Switch| switch.raises > 0 && switch.asked_ns % slice_ns == 0;
    let pairs: Vec<(&v1::Switch, &v1::Switch)> = of_a
        .iter()
        .filter(begins)
        .filter_map(|a| Some((a, of_b.iter().filter(begins).find(|b| b.asked_ns == a.asked_ns)?)))
        .collect();
    ensure!(
        pairs.len() >= FEWEST_SWITCHES,
        "the hosts hardly began slices together: {} times",
        pairs.len()
    );
    let sorted = |of: fn(&v1::Switch) -> i64| {
        let apart = pairs.iter().map(|(a, b)| (of(a) - (of(b) - error_ns)).abs() as f64 / 1e3);
        let mut apart: Vec<f64> = apart.collect();
        apart.sort_by(f64::total_cmp);
        apart
    };
    let (began, raised) = (sorted(|it| it.began_ns), sorted(|it| it.raised_ns));
    let bounds = pairs.iter().flat_map(|(a, b)| [a.clock_bound_ns, b.clock_bound_ns]).flatten();
    let bound = bounds.max().map(|ns| (CLOCK_BOUND, ns as f64 / 1e3));
    let figures = [
        (SAMPLES, pairs.len() as f64),
        ("began_apart_us_p50", quantile(&began, 0.5)),
        ("began_apart_us_p99", quantile(&began, 0.99)),
        (APART_P50, quantile(&raised, 0.5)),
        (APART_P99, quantile(&raised, 0.99)),
        ("apart_us_max", quantile(&raised, 1.0)),
    ];
    Ok(figures.into_iter().chain(bound).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(asked_ns: i64, raises: i64, late_ns: i64) -> v1::Switch {
        let (began_ns, raised_ns) = (asked_ns + late_ns, asked_ns + 2 * late_ns);
        v1::Switch {
            switcher: 0,
            number: 0,
            asked_ns,
            began_ns,
            lowered_ns: began_ns,
            raised_ns,
            lowers: 1,
            raises,
            clock_bound_ns: None,
        }
    }

    fn switches(late_ns: i64) -> Vec<v1::Switch> {
        let slices = (1..=40).map(|slice| switch(slice * 1_000, 1, late_ns));
        // A gap begins, and ends.
        slices.chain([switch(500, 0, 9), switch(1_500, 1, 9)]).collect()
    }

    #[test]
    fn switches_of_the_same_slice_are_compared() {
        let figures = apart(&switches(100), &switches(350), 1_000, 0).unwrap();
        assert_eq!((figures[SAMPLES], figures["began_apart_us_p50"]), (40.0, 0.25));
        assert_eq!((figures[APART_P50], figures["apart_us_max"]), (0.5, 0.5));
        assert_eq!(figures.get(CLOCK_BOUND), None);
        assert!(apart(&switches(100), &[], 1_000, 0).is_err());
    }

    #[test]
    fn the_worst_bound_of_both_clocks_stands_beside_them() {
        let bound = |ns: i64| {
            let all = switches(100).into_iter().zip(0..);
            let with = |(it, less)| v1::Switch { clock_bound_ns: Some(ns - less), ..it };
            all.map(with).collect::<Vec<_>>()
        };
        let figures = apart(&bound(7_000), &bound(9_000), 1_000, 0).unwrap();
        assert_eq!(figures[CLOCK_BOUND], 9.0);
    }

    #[test]
    fn a_clock_that_is_ahead_switches_earlier() {
        let figures = apart(&switches(100), &switches(100), 1_000, 5_000).unwrap();
        assert_eq!((figures["began_apart_us_p50"], figures[APART_P99]), (5.0, 5.0));
        let figures = apart(&switches(0), &switches(400), 1_000, 900).unwrap();
        assert_eq!(figures["began_apart_us_p50"], 0.5, "late by its own clock");
    }
}
