//! E13 and E14: where the benefit of gang scheduling ends. Two BARRIERs share the machine; of one
//! the work between barriers is made longer, or its variance larger, and how much faster it is as a
//! gang than under plain Linux is taken at each point.
//!
//! The point from which on there is no benefit worth speaking of is found, not assumed: between the
//! last measured point at which one is shown and the one after it, points are halved in
//! (geometrically) and measured as well, and the crossing is interpolated.
//!
//! The barrier spins for 50 µs and then blocks, as a good one does (E8): with one that only spins,
//! plain Linux would lose at any interval.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::duration;
use crate::harness::lab::{Lab, Launch, Together, Under};
use crate::harness::picture::{Line, Picture};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::table::figure;

const SWEPT: &str = "swept_per_s";
const FIXED: Duration = Duration::from_micros(40);
/// A ratio from which on there is no benefit worth speaking of.
const NOTHING: f64 = 1.02;
/// Runs of the paper for each point.
const PUBLISHED: usize = 10;
/// Iterations that a copy alone would do in a window at least.
const ITERATIONS: u32 = 60;

/// The quantity that is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Interval,
    Variance,
}

#[derive(Args, Debug, Clone, Default)]
pub struct Sweep {
    /// Points that are measured first [default: 6 to 8 over the range of the paper, with --quick 4]
    #[arg(long, value_delimiter = ',', value_parser = duration::parse)]
    pub points: Vec<Duration>,
    /// Points that are added around the crossing [default: 2, with --quick 1, with --paper 4]
    #[arg(long)]
    pub halvings: Option<usize>,
}

/// Ratio of the swept copy's rate, gangd over plain Linux, at one point.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Benefit {
    at: Duration,
    ratio: f64,
    /// Whether it is more than nothing, and 1 is not in its interval; a single round has none.
    is_shown: Option<bool>,
}

impl Over {
    fn name(self) -> &'static str {
        match self {
            Over::Interval => "interval",
            Over::Variance => "variance",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Over::Interval => "two BARRIERs, the work between barriers of one made longer (E13)",
            Over::Variance => "two BARRIERs, the work of one made ever more uneven (E14)",
        }
    }

    /// The finding of the paper.
    fn published(self) -> &'static str {
        match self {
            Over::Interval => "ETH: at 15 ms, and 100 ms at most on a loaded system",
            Over::Variance => "ETH: at a few milliseconds",
        }
    }

    fn points(self, quick: bool) -> Vec<Duration> {
        let us: &[u64] = match (self, quick) {
            (Over::Interval, true) => &[40, 400, 4_000, 40_000],
            (Over::Interval, false) => &[40, 100, 400, 1_000, 4_000, 15_000, 40_000, 100_000],
            (Over::Variance, true) => &[0, 400, 4_000, 15_000],
            (Over::Variance, false) => &[0, 40, 400, 1_000, 4_000, 15_000],
        };
        us.iter().map(|us| Duration::from_micros(*us)).collect()
    }
}

impl Sweep {
    pub fn run(&self, lab: &Lab, over: Over) -> Result<Report> {
        let quick = lab.options.quick;
        let mut points =
            if self.points.is_empty() { over.points(quick) } else { self.points.clone() };
        let longest = Duration::from_secs(10);
        ensure!(points.iter().all(|point| *point <= longest), "points are 10 s at most");
        points.sort();
        points.dedup();
        let gangd = lab.gangd();
        let measure_at = |points: &[Duration]| {
            let mut conditions = Vec::new();
            for &at in points {
                let under_plain = move |lab: &Lab| measure(lab, &Under::Plain, over, at);
                conditions.push(Condition::new(name(at, "plain Linux"), under_plain));
                if !lab.options.plain {
                    let gangd = &gangd;
                    let under_gangd = move |lab: &Lab| measure(lab, gangd, over, at);
                    conditions.push(Condition::new(name(at, "gangd"), under_gangd));
                }
            }
            alternate(lab, over.name(), lab.rounds(PUBLISHED), &conditions)
        };
        let mut report = Report::new(lab, over.about(), measure_at(&points)?, SWEPT);
        let default = if quick {
            1
        } else if lab.options.paper {
            4
        } else {
            2
        };
        for _ in 0..self.halvings.unwrap_or(default) {
            let Some((with, without)) = bracket(&benefits(&mut report, &points)) else { break };
            let middle = between(with.at, without.at);
            if points.contains(&middle) {
                break;
            }
            report.add(measure_at(&[middle])?);
            points.push(middle);
            points.sort();
        }
        let benefits = benefits(&mut report, &points);
        if report.compared && !lab.options.plain {
            report.verdict.push(verdict(over, &benefits));
        }
        self.draw(&mut report, over, &points, &benefits);
        Ok(report)
    }

    fn draw(&self, report: &mut Report, over: Over, points: &[Duration], benefits: &[Benefit]) {
        // On a logarithmic axis 0 has no place; it stands at the left end.
        let ms = |at: Duration| at.as_secs_f64().max(1e-5) * 1e3;
        let line = |&at: &Duration| {
            let of = (name(at, "gangd"), name(at, "plain Linux"));
            let ratio = report.ratios.iter().find(|r| (&r.of, &r.over) == (&of.0, &of.1))?;
            let [low, high] = ratio.estimate.interval.unwrap_or([ratio.estimate.value; 2]);
            Some([ms(at), ratio.estimate.value, low, high])
        };
        let points = points.iter().filter_map(line).collect();
        let line = Line::new("gangd over plain Linux", points);
        let x = format!("{} in ms", over.name());
        let mut picture = Picture::lines(x, "iterations per s, ratio", vec![line]).log_x();
        picture.level = Some(1.0);
        picture.mark = bracket(benefits).map(|(with, without)| ms(crossing(with, without)));
        report.picture = Some(picture);
    }
}

/// The ratio at each point, which stand in the report afterwards.
fn benefits(report: &mut Report, points: &[Duration]) -> Vec<Benefit> {
    report.ratios.clear();
    let mut benefits = Vec::new();
    for &at in points {
        if let Some(ratio) = report.ratio(&name(at, "gangd"), &name(at, "plain Linux"), SWEPT) {
            let is_shown = ratio.interval.map(|[low, _]| ratio.value > NOTHING && low > 1.0);
            benefits.push(Benefit { at, ratio: ratio.value, is_shown });
        }
    }
    benefits
}

/// The last point at which a benefit is shown and the one after it; none where it is at all, or at
/// none. A point for which a first answer had time once shows nothing.
fn bracket(benefits: &[Benefit]) -> Option<(Benefit, Benefit)> {
    let known: Vec<_> =
        benefits.iter().copied().filter(|benefit| benefit.is_shown.is_some()).collect();
    let last = known.iter().rposition(|benefit| benefit.is_shown == Some(true))?;
    Some((known[last], *known.get(last + 1)?))
}

/// In the middle of two points, by their ratio; from 0 by their difference.
fn between(low: Duration, high: Duration) -> Duration {
    if low.is_zero() {
        return high / 2;
    }
    let us = (low.as_secs_f64() * high.as_secs_f64()).sqrt() * 1e6;
    Duration::from_micros(us.round() as u64)
}

/// Where the benefit falls to nothing, along a straight line between two points.
fn crossing(with: Benefit, without: Benefit) -> Duration {
    // The second may be as good, and not shown to be.
    let falls = with.ratio - without.ratio.min(NOTHING);
    let part = (with.ratio - NOTHING) / falls;
    let (low, high) = (with.at.as_secs_f64(), without.at.as_secs_f64());
    let at_s = if low == 0.0 { high * part } else { low * (high / low).powf(part) };
    Duration::from_secs_f64(at_s)
}

fn verdict(over: Over, benefits: &[Benefit]) -> String {
    let name = over.name();
    let Some(first) = benefits.first() else { return "There was nothing to compare.".into() };
    let first = format!(
        "At {} the swept copy does {} times the iterations as a gang",
        duration::show(first.at),
        figure(first.ratio)
    );
    if benefits.iter().all(|benefit| benefit.is_shown.is_none()) {
        return format!(
            "{first}, in a single round, which cannot show where the benefit ends ({}).",
            over.published()
        );
    }
    let rest = match bracket(benefits) {
        Some((with, without)) => format!(
            "below 2 %, or not shown, at {} and more of {name}, interpolated between {} and {}",
            duration::show(Duration::from_micros(crossing(with, without).as_micros() as u64)),
            duration::show(with.at),
            duration::show(without.at)
        ),
        None if benefits.iter().all(|benefit| benefit.is_shown != Some(true)) => {
            format!("below 2 %, or not shown, at every {name}")
        }
        None => format!("there yet at the largest {name} measured"),
    };
    format!("{first}; the benefit is {rest} ({}).", over.published())
}

fn name(at: Duration, way: &str) -> String {
    format!("{}, {way}", duration::show(at))
}

fn measure(lab: &Lab, under: &Under, over: Over, at: Duration) -> Result<Sample> {
    let barrier = |interval: Duration, variance: Duration| {
        let arguments = format!(
            "barrier --threads {} --interval {} --variance {} --wait spin-block",
            lab.threads(),
            duration::show(interval),
            duration::show(variance)
        );
        Launch::gang(lab.threads().min(lab.cpus), &arguments)
    };
    let swept = match over {
        Over::Interval => barrier(at, Duration::ZERO),
        Over::Variance => barrier(FIXED, at),
    };
    let copies = [swept, barrier(FIXED, Duration::ZERO)];
    let length = lab.length(Duration::from_secs(2));
    // A length that was asked for is kept to. The default is long enough for figures to mean
    // something.
    let length = if lab.seconds_asked().is_some() { length } else { length.max(at * ITERATIONS) };
    let daemon = lab.daemon_of(under)?;
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &copies, length)?;
    Ok(sample.with([(SWEPT, outcomes[0].rate()), ("fixed_per_s", outcomes[1].rate())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn benefits(of: &[(u64, f64)]) -> Vec<Benefit> {
        let benefit = |&(us, ratio): &(u64, f64)| {
            let is_shown = Some(ratio > NOTHING);
            Benefit { at: Duration::from_micros(us), ratio, is_shown }
        };
        of.iter().map(benefit).collect()
    }

    #[test]
    fn crossing_follows_the_last_point_with_a_benefit() {
        let all = benefits(&[(40, 3.0), (400, 1.5), (4_000, 1.04), (40_000, 1.0)]);
        let (with, without) = bracket(&all).unwrap();
        assert_eq!((with.at.as_micros(), without.at.as_micros()), (4_000, 40_000));
        // Half of the way from 1.04 to 1.00 on a logarithmic axis.
        let at = crossing(with, without);
        assert!((at.as_secs_f64() * 1e3 - 12.65).abs() < 0.1, "{at:?}");
        assert!(verdict(Over::Interval, &all).contains("not shown, at 12.6"));
    }

    #[test]
    fn unproven_benefit_does_not_move_the_crossing() {
        let mut all = benefits(&[(40, 3.0), (400, 1.1), (4_000, 1.03), (40_000, 1.03)]);
        (all[2].is_shown, all[3].is_shown) = (Some(false), Some(false));
        let (with, without) = bracket(&all).unwrap();
        assert_eq!((with.at.as_micros(), without.at.as_micros()), (400, 4_000));
        assert!((crossing(with, without).as_secs_f64() * 1e3 - 4.0).abs() < 1e-6);
        all[2].is_shown = None;
        let (with, without) = bracket(&all).unwrap();
        assert_eq!((with.at.as_micros(), without.at.as_micros()), (400, 40_000), "of one round");
    }

    #[test]
    fn a_sweep_without_a_crossing_says_so() {
        assert!(verdict(Over::Variance, &benefits(&[(0, 2.0), (400, 1.5)])).contains("largest"));
        assert!(verdict(Over::Variance, &benefits(&[(0, 1.0), (400, 1.01)])).contains("at every"));
        let of_one_round = benefits(&[(0, 2.0), (400, 1.0)])
            .into_iter()
            .map(|benefit| Benefit { is_shown: None, ..benefit });
        let text = verdict(Over::Variance, &of_one_round.collect::<Vec<_>>());
        assert!(text.contains("2.00 times") && text.contains("cannot show where"), "{text}");
    }

    #[test]
    fn middles() {
        let us = Duration::from_micros;
        assert_eq!(between(us(40), us(4_000)), us(400));
        assert_eq!(between(us(0), us(400)), us(200));
    }
}
