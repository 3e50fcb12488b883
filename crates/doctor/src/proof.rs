//! The proof: the program as a gang and by Linux alone, in turn, while it runs.
//!
//! Approach: pairs of equal periods, one of each kind, the kind that comes first changing from pair to pair
//! (ABBA), so that what drifts falls out. What the program does in a period is the share of the looks that
//! see it work; or, where it counts its progress itself through libgang, how fast that count grows from its first
//! report within the period to the last. The ends of a period are left out: the change takes a moment.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gang_linux::{Roots, clock};
use gang_protocol::v1::Policy;

use crate::{
    diagnosis::{Gain, Measure, Proof},
    interruption::Interruption,
    observation::{Doing, Look},
    program::Program,
    watch::Watch,
};

/// Pairs of periods.
const PAIRS: usize = 10;

/// The shortest period: some slices of each gang, some scheduling of Linux.
pub const PERIOD_MIN: Duration = Duration::from_millis(250);

/// What the change takes at most, left out at the beginning of each period.
pub const SETTLES: Duration = Duration::from_millis(50);

/// The shortest period in which a program is believed that counts itself: it reports four times a second.
const COUNTED_MIN: Duration = Duration::from_millis(1250);

/// How often it is asked for another report.
const REPORTS_EVERY: Duration = Duration::from_millis(50);

/// Student's t for 1 and more degrees of freedom, 95 %; beyond them that of 40 is near enough.
const T: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];
const T_MORE: f64 = 2.021;

/// What the program did as a gang, and by Linux alone: shares of the looks that see it work, or units of its own
/// in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub gang: f64,
    pub linux: f64,
}

/// How far a program was at a moment (nanoseconds), as it counts itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    pub done: f64,
    pub at_ns: i64,
}

/// Who is scheduled by one and the other.
pub trait Subject {
    /// Has it scheduled by that policy, and the watch follow it to where it lives then.
    fn schedule(&mut self, policy: Policy, watch: &mut Watch) -> Result<()>;

    /// The last report of its progress, of those that are to be used.
    fn report(&mut self) -> Result<Option<Report>> {
        Ok(None)
    }
}

impl Subject for Program {
    fn schedule(&mut self, policy: Policy, watch: &mut Watch) -> Result<()> {
        self.set_policy(policy)?;
        watch.follow(&self.cgroup)
    }

    fn report(&mut self) -> Result<Option<Report>> {
        let job = self.client.show_job(self.job)?.details;
        Ok(job.progress_done.zip(job.progress_at_ns).map(|(done, at_ns)| Report { done, at_ns }))
    }
}

/// One pair of periods, by what the looks saw, and by what the program counted, where it did in both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    pub works: Pair,
    pub counts: Option<Pair>,
}

/// Measures what the program gains as a gang, in about `length` of time.
pub fn prove(
    roots: &Roots,
    program: &mut Program,
    length: Duration,
    interruption: &Interruption,
) -> Result<Proof> {
    let shortest = if program.report()?.is_some() { COUNTED_MIN } else { PERIOD_MIN };
    let period = (length / (2 * PAIRS as u32)).max(shortest);
    let usual = program.policy.clone();
    let watch = Watch::begin(roots, &program.cgroup, program.cpus)?.unless(interruption);
    let measured = alternate(program, watch, period);
    let restored = program.set_policy(usual);
    let pairs = measured?;
    restored?;
    ensure!(pairs.len() == PAIRS, "the program ended before it was measured often enough");
    conclude(&pairs).ok_or_else(|| anyhow::anyhow!("it did not compute while it was measured"))
}

/// By what the program counts itself, where that is known of most pairs: a report may be late.
fn conclude(pairs: &[Seen]) -> Option<Proof> {
    let counts: Vec<Pair> = pairs.iter().filter_map(|seen| seen.counts).collect();
    let counted = if 2 * counts.len() > pairs.len() { gain(&counts) } else { None };
    let works = || gain(&pairs.iter().map(|seen| seen.works).collect::<Vec<_>>());
    match counted {
        Some(gain) => Some(Proof { gain, by: Measure::Progress }),
        None => works().map(|gain| Proof { gain, by: Measure::Work }),
    }
}

fn alternate(program: &mut Program, mut watch: Watch, period: Duration) -> Result<Vec<Seen>> {
    let mut pairs = Vec::new();
    for number in 0..PAIRS {
        match pair(program, &mut watch, number, period)? {
            Some(pair) => pairs.push(pair),
            None => break,
        }
    }
    Ok(pairs)
}

/// One pair of periods, of which the number says what comes first; `None` where the program ended.
pub fn pair(
    subject: &mut impl Subject,
    watch: &mut Watch,
    number: usize,
    length: Duration,
) -> Result<Option<Seen>> {
    let mut of = |policy| period(subject, watch, policy, length);
    let is_gang_first = number % 2 == 0;
    let order = [Policy::local, Policy::none];
    let [first, second] = if is_gang_first { order } else { [Policy::none, Policy::local] };
    let Some(first) = of(first)? else { return Ok(None) };
    let Some(second) = of(second)? else { return Ok(None) };
    let (gang, linux) = if is_gang_first { (first, second) } else { (second, first) };
    let counts = gang.rate.zip(linux.rate).map(|(gang, linux)| Pair { gang, linux });
    Ok(Some(Seen { works: Pair { gang: gang.worked, linux: linux.worked }, counts }))
}

/// What it did in one period.
struct Period {
    worked: f64,
    /// Units of its own in a second.
    rate: Option<f64>,
}

fn period(
    subject: &mut impl Subject,
    watch: &mut Watch,
    policy: Policy,
    length: Duration,
) -> Result<Option<Period>> {
    subject.schedule(policy, watch)?;
    if !watch.until(Instant::now() + SETTLES)? {
        return Ok(None);
    }
    let from_ns = clock::monotonic_ns();
    let end = Instant::now() + length;
    let mut reports = Vec::from_iter(subject.report()?);
    let step = if reports.is_empty() { length } else { REPORTS_EVERY };
    while Instant::now() < end {
        if !watch.until(end.min(Instant::now() + step))? {
            return Ok(None);
        }
        if !reports.is_empty() {
            reports.extend(subject.report()?);
        }
    }
    // Whoever reads the ticks may be late: what came after the end is not of this period.
    let until_ns = from_ns + length.as_nanos() as u64;
    let worked = worked(watch.looks(), from_ns, until_ns);
    Ok(Some(Period { worked, rate: rate(&reports) }))
}

/// How fast a program goes on by its own count, of which the first report was made before.
fn rate(reports: &[Report]) -> Option<f64> {
    let before = reports.first()?;
    let first = reports.iter().find(|report| report.at_ns > before.at_ns)?;
    let last = reports.last().filter(|report| report.at_ns > first.at_ns)?;
    // One that begins anew counts something else.
    let grows = reports.is_sorted_by(|a, b| a.done <= b.done);
    grows.then(|| (last.done - first.done) / (last.at_ns - first.at_ns) as f64 * 1e9)
}

/// The share of looks in a time that see the program work.
fn worked(looks: &[Look], from_ns: u64, until_ns: u64) -> f64 {
    let first = looks.partition_point(|look| look.at_ns < from_ns);
    let of_period = || looks[first..].iter().filter(|look| look.at_ns < until_ns);
    let work = of_period().filter(|look| matches!(look.doing, Doing::Work { .. })).count();
    work as f64 / of_period().count().max(1) as f64
}

/// The ratio of the means less 1, its interval from the residuals of the pairs (Cochran, Sampling
/// Techniques, 6.3).
pub fn gain(pairs: &[Pair]) -> Option<Gain> {
    let mean = |of: fn(&Pair) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    let (gang, linux) = (mean(|pair| pair.gang), mean(|pair| pair.linux));
    // Without pairs it is no number.
    if linux.is_nan() || linux <= 0.0 {
        return None;
    }
    let ratio = gang / linux;
    let interval = residual(pairs, ratio).map(|(_, half)| {
        let half = half / linux;
        [ratio - half - 1.0, ratio + half - 1.0]
    });
    Some(Gain { gain: ratio - 1.0, interval })
}

/// Whether the gain is above a bound, or is not; `None` where that is not sure. It is also told where Linux
/// alone lets the program do next to nothing, so that the gain itself is hardly known (Fieller's theorem).
pub fn is_above(pairs: &[Pair], bound: f64) -> Option<bool> {
    let (mean, half) = residual(pairs, 1.0 + bound)?;
    (mean.abs() > half).then_some(mean > 0.0)
}

/// What the gang does more than `ratio` times what is done by Linux alone, on average, and half of the 95 %
/// interval of that; `None` of fewer than two pairs.
fn residual(pairs: &[Pair], ratio: f64) -> Option<(f64, f64)> {
    let t = T.get(pairs.len().checked_sub(2)?).copied().unwrap_or(T_MORE);
    let n = pairs.len() as f64;
    let residual = |pair: &Pair| pair.gang - ratio * pair.linux;
    let mean = pairs.iter().map(residual).sum::<f64>() / n;
    let squares = pairs.iter().map(|pair| (residual(pair) - mean).powi(2)).sum::<f64>();
    Some((mean, t * (squares / (n - 1.0) / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_has_an_interval() {
        let pair = |gang| Pair { gang, linux: 0.4 };
        let pairs: Vec<Pair> = (0..PAIRS).map(|at| pair(0.8 + 0.01 * (at % 2) as f64)).collect();
        let all = gain(&pairs).unwrap();
        assert!((all.gain - 1.0125).abs() < 1e-9);
        let [low, high] = all.interval.unwrap();
        assert!(low < all.gain && all.gain < high && high - low < 0.1);
        let [low_of_few, high_of_few] = gain(&pairs[..4]).unwrap().interval.unwrap();
        assert!(low_of_few < low && high < high_of_few, "fewer pairs say less");
        assert_eq!(gain(&pairs[..1]).unwrap().interval, None);
        assert_eq!(gain(&[Pair { gang: 0.5, linux: 0.0 }; PAIRS]), None);
        assert_eq!(gain(&[]), None);
    }

    #[test]
    fn a_bound_is_passed_also_where_the_gain_is_hardly_known() {
        let stalls = [(0.13, 0.0), (0.13, 0.002), (0.12, 0.0), (0.106, 0.009), (0.118, 0.04)];
        let stalls = stalls.map(|(gang, linux)| Pair { gang, linux });
        assert!(gain(&stalls).unwrap().interval.unwrap()[0] < 5.0);
        assert_eq!(is_above(&stalls[..4], 0.05), Some(true));
        assert_eq!(is_above(&stalls[..1], 0.05), None);
        assert_eq!(is_above(&[], 0.05), None);
        let same = [(0.50, 0.51), (0.51, 0.50), (0.50, 0.50), (0.49, 0.50)];
        let same = same.map(|(gang, linux)| Pair { gang, linux });
        assert_eq!((is_above(&same, 0.05), is_above(&same, 0.0)), (Some(false), None));
    }

    #[test]
    fn a_program_that_counts_itself_is_believed() {
        let report = |done, at_ms: i64| Report { done, at_ns: at_ms * 1_000_000 };
        // The first report is of the time before.
        let reports = [report(5.0, 0), report(5.0, 0), report(10.0, 200), report(30.0, 700)];
        assert_eq!(rate(&reports), Some(40.0));
        assert_eq!(rate(&[report(5.0, 0), report(9.0, 250), report(1.0, 500)]), None, "begun anew");
        assert_eq!(rate(&reports[..3]), None, "one report has no rate");
        assert_eq!(rate(&[]), None);
        let works = Pair { gang: 0.5, linux: 0.5 };
        let counts = |gang| Some(Pair { gang, linux: 40.0 });
        let seen = [Seen { works, counts: counts(60.0) }, Seen { works, counts: counts(64.0) }];
        let proof = conclude(&seen).unwrap();
        assert_eq!((proof.by, (proof.gain.gain * 100.0).round()), (Measure::Progress, 55.0));
        let silent = Seen { works, counts: None };
        assert_eq!(conclude(&[seen[0], silent, seen[1]]).unwrap().by, Measure::Progress);
        let proof = conclude(&[seen[0], silent]).unwrap();
        assert_eq!((proof.by, proof.gain.gain), (Measure::Work, 0.0));
    }

    #[test]
    fn only_looks_of_the_period_count() {
        let look = |at_ns, doing| Look { at_ns, doing, running: 1, waiting: 0 };
        let looks = [
            look(1, Doing::Work { tid: 1 }),
            look(2, Doing::Else),
            look(3, Doing::Work { tid: 1 }),
            look(4, Doing::Work { tid: 1 }),
        ];
        assert_eq!(worked(&looks, 2, 4), 0.5);
        assert_eq!(worked(&looks, 5, 9), 0.0);
    }
}
