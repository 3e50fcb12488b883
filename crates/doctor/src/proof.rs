//! The proof: the program as a gang and by plain Linux, in turn, while it runs.
//!
//! Approach: pairs of equal periods, one of each kind. The kind that comes first changes from pair
//! to pair (ABBA), so that drift falls out. The result of a period is how many CPUs work for the
//! program. Where the program counts its progress itself through libgang, the result is how fast
//! that count grows from its first report within the period to the last. The beginning of a period
//! is left out: the change takes a moment.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gang_linux::Roots;
use gang_protocol::v1::{Policy, Progress};

use crate::{
    diagnosis::{GAIN_MAX, Gain, HELPS, Measure, Proof},
    interruption::Interruption,
    program::Program,
    sampler::{Sampler, Ticks},
};

/// Pairs of periods.
const PAIRS: usize = 10;

/// The shortest period: some slices of each gang, some scheduling of Linux.
pub const PERIOD_MIN: Duration = Duration::from_millis(250);

/// A period has room for so many turns of each gang.
const TURNS: u32 = 4;

/// The longest time that the change takes, left out at the beginning of each period.
pub const WARM_UP: Duration = Duration::from_millis(50);

/// The shortest period in which a program is believed that counts itself: it reports four times a
/// second.
const COUNTED_MIN: Duration = Duration::from_millis(1250);

/// How often it is asked for another report.
const REPORTS_EVERY: Duration = Duration::from_millis(50);

/// Student's t for 1 and more degrees of freedom, 95 %; beyond them that of 40 is near enough.
const T: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];
const T_MORE: f64 = 2.021;

/// The results of the program as a gang, and by plain Linux: CPUs that worked for it, or units of
/// its own in a second.
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

/// The program or job that is scheduled by one and the other.
pub trait Subject {
    /// Has it scheduled by that policy, and the sampler follow it to its cgroup then.
    fn schedule(&mut self, policy: Policy, sampler: &mut Sampler) -> Result<()>;

    /// The last report of its progress, of those that are to be used.
    fn report(&mut self) -> Result<Option<Report>> {
        Ok(None)
    }
}

impl Subject for Program {
    fn schedule(&mut self, policy: Policy, sampler: &mut Sampler) -> Result<()> {
        self.set_policy(policy)?;
        sampler.follow(&self.cgroup)
    }

    fn report(&mut self) -> Result<Option<Report>> {
        let job = self.client.show_job(self.job)?.details;
        Ok(job.progress.map(|Progress { done, at_ns, .. }| Report { done, at_ns }))
    }
}

/// One pair of periods, by what was seen, and by what the program counted, where it did in both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    pub works: Pair,
    pub counts: Option<Pair>,
}

/// How long a period is at least, beside so many other gangs.
pub fn shortest_period(slice: Duration, gangs: usize) -> Duration {
    (slice * TURNS * (2 + gangs as u32)).max(PERIOD_MIN)
}

/// The text where the program ended before it was proved.
pub fn ended_too_soon(length: Duration) -> String {
    let periods = 2 * PAIRS as u32;
    let takes = ((length / periods).max(PERIOD_MIN) + WARM_UP) * periods;
    format!(
        "the program ended before it was measured often enough, which takes {:.0} s or more after \
         it was watched",
        takes.as_secs_f64()
    )
}

/// Measures what the program gains as a gang, in about `length` of time, or longer where slices are
/// long. It is a gang or not after that.
pub fn prove(
    roots: &Roots,
    program: &mut Program,
    length: Duration,
    interruption: &Interruption,
) -> Result<Proof> {
    let (gangs, slice) = program.other_gangs()?;
    let counted = if program.report()?.is_some() { COUNTED_MIN } else { Duration::ZERO };
    let shortest = shortest_period(slice, gangs).max(counted);
    let period = (length / (2 * PAIRS as u32)).max(shortest);
    let sampler = Sampler::begin(roots, &program.cgroup, program.cpus, Ticks::Many)?;
    let sampler = sampler.unless(interruption);
    let pairs = alternate(program, sampler, period)?;
    ensure!(pairs.len() == PAIRS, ended_too_soon(length));
    conclude(&pairs).ok_or_else(|| anyhow::anyhow!("it did not compute while it was measured"))
}

/// By what the program counts itself, where that is known of most pairs: a report may be late.
fn conclude(pairs: &[Seen]) -> Option<Proof> {
    let counts: Vec<Pair> = pairs.iter().filter_map(|seen| seen.counts).collect();
    let works: Vec<Pair> = pairs.iter().map(|seen| seen.works).collect();
    let proof = |pairs: &[Pair], by| {
        let gain = gain_or_bound(pairs)?;
        Some(Proof { gain, by, told_apart: is_above(pairs, HELPS).is_some() })
    };
    let are_most = 2 * counts.len() > pairs.len();
    let counted = if are_most { proof(&counts, Measure::Progress) } else { None };
    counted.or_else(|| proof(&works, Measure::Work))
}

fn alternate(program: &mut Program, mut sampler: Sampler, period: Duration) -> Result<Vec<Seen>> {
    let mut pairs = Vec::new();
    for number in 0..PAIRS {
        match pair(program, &mut sampler, number, period)? {
            Some(pair) => pairs.push(pair),
            None => break,
        }
    }
    Ok(pairs)
}

/// One pair of periods, of which the number says what comes first; `None` where the program ended.
pub fn pair(
    subject: &mut impl Subject,
    sampler: &mut Sampler,
    number: usize,
    length: Duration,
) -> Result<Option<Seen>> {
    let mut of = |policy| period(subject, sampler, policy, length);
    let is_gang_first = number % 2 == 0;
    let order = [Policy::gang, Policy::none];
    let [first, second] = if is_gang_first { order } else { [Policy::none, Policy::gang] };
    let Some(first) = of(first)? else { return Ok(None) };
    let Some(second) = of(second)? else { return Ok(None) };
    let (gang, linux) = if is_gang_first { (first, second) } else { (second, first) };
    let counts = counts(gang.counted, linux.counted, length);
    Ok(Some(Seen { works: Pair { gang: gang.worked, linux: linux.worked }, counts }))
}

/// Where it made no two reports in one of the periods, it did less there than from one report to
/// the next.
fn counts(gang: Counted, linux: Counted, length: Duration) -> Option<Pair> {
    let at_most = |rate: f64, step: f64| rate.min(step / length.as_secs_f64());
    match (gang, linux) {
        (Counted::Rate { rate: gang, .. }, Counted::Rate { rate: linux, .. }) => {
            Some(Pair { gang, linux })
        }
        (Counted::Rate { rate, step }, Counted::Silence) => {
            Some(Pair { gang: rate, linux: at_most(rate, step) })
        }
        (Counted::Silence, Counted::Rate { rate, step }) => {
            Some(Pair { gang: at_most(rate, step), linux: rate })
        }
        _ => None,
    }
}

/// The result of one period.
struct Period {
    worked: f64,
    counted: Counted,
}

/// The count of its own in one period.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Counted {
    /// It does not count, or began anew.
    Nothing,
    /// It does, but made fewer than two reports.
    Silence,
    /// Units of its own in a second, and from one report to the next.
    Rate { rate: f64, step: f64 },
}

fn period(
    subject: &mut impl Subject,
    sampler: &mut Sampler,
    policy: Policy,
    length: Duration,
) -> Result<Option<Period>> {
    subject.schedule(policy, sampler)?;
    if !sampler.until(Instant::now() + WARM_UP)? {
        return Ok(None);
    }
    let part = sampler.begin_part()?;
    let end = Instant::now() + length;
    let mut reports = Vec::from_iter(subject.report()?);
    let step = if reports.is_empty() { length } else { REPORTS_EVERY };
    while Instant::now() < end {
        if !sampler.until(end.min(Instant::now() + step))? {
            return Ok(None);
        }
        if !reports.is_empty() {
            reports.extend(subject.report()?);
        }
    }
    let worked = sampler.cpus_at_work(&part)?;
    Ok(Some(Period { worked, counted: counted(&reports) }))
}

/// How fast a program goes on by its own count, of which the first report was made before.
fn counted(reports: &[Report]) -> Counted {
    // One that begins anew counts something else.
    if reports.is_empty() || !reports.is_sorted_by(|a, b| a.done <= b.done) {
        return Counted::Nothing;
    }
    let news: Vec<&[Report]> = reports.chunk_by(|a, b| a.at_ns == b.at_ns).skip(1).collect();
    let [first, .., last] = news[..] else { return Counted::Silence };
    let done = last[0].done - first[0].done;
    let seconds = (last[0].at_ns - first[0].at_ns) as f64 / 1e9;
    Counted::Rate { rate: done / seconds, step: done / (news.len() - 1) as f64 }
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

/// The same, with a bound where the program does nothing at all under plain Linux. None where it
/// does nothing as a gang, either.
pub fn gain_or_bound(pairs: &[Pair]) -> Option<Gain> {
    gain(pairs).or_else(|| {
        let works = pairs.iter().any(|pair| pair.gang > 0.0);
        works.then_some(Gain { gain: GAIN_MAX, interval: None })
    })
}

/// Whether the gain is above a bound, or is not; `None` where that is not sure. It can be sure
/// although the program does next to nothing under plain Linux, so that the gain itself is hardly
/// known (Fieller's theorem).
pub fn is_above(pairs: &[Pair], bound: f64) -> Option<bool> {
    let (mean, half) = residual(pairs, 1.0 + bound)?;
    (mean.abs() > half).then_some(mean > 0.0)
}

/// The work of the gang beyond `ratio` times that under plain Linux, on average, and half of its 95
/// % interval; `None` of fewer than two pairs.
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
    fn bound_is_passed_although_gain_is_uncertain() {
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
        assert_eq!(counted(&reports), Counted::Rate { rate: 40.0, step: 20.0 });
        let anew = [report(5.0, 0), report(9.0, 250), report(1.0, 500)];
        assert_eq!(counted(&anew), Counted::Nothing);
        assert_eq!(counted(&reports[..3]), Counted::Silence, "one report has no rate");
        assert_eq!(counted(&[]), Counted::Nothing);
        let works = Pair { gang: 0.5, linux: 0.5 };
        let counts = |gang| Some(Pair { gang, linux: 40.0 });
        let seen = [Seen { works, counts: counts(60.0) }, Seen { works, counts: counts(64.0) }];
        let proof = conclude(&seen).unwrap();
        assert_eq!((proof.by, (proof.gain.gain * 100.0).round()), (Measure::Progress, 55.0));
        assert!(!proof.told_apart, "two pairs are few");
        assert!(conclude(&[seen[0], seen[1], seen[0], seen[1]]).unwrap().told_apart);
        let silent = Seen { works, counts: None };
        assert_eq!(conclude(&[seen[0], silent, seen[1]]).unwrap().by, Measure::Progress);
        let proof = conclude(&[seen[0], silent]).unwrap();
        assert_eq!((proof.by, proof.gain.gain), (Measure::Work, 0.0));
    }

    #[test]
    fn a_period_without_reports_counts_as_less_than_one() {
        let length = Duration::from_secs(2);
        let fast = Counted::Rate { rate: 40.0, step: 10.0 };
        let pair = |gang, linux| Some(Pair { gang, linux });
        assert_eq!(counts(fast, Counted::Silence, length), pair(40.0, 5.0));
        assert_eq!(counts(Counted::Silence, fast, length), pair(5.0, 40.0));
        // Reports that are rarer than periods say nothing of a single one.
        let rare = Counted::Rate { rate: 4.0, step: 10.0 };
        assert_eq!(counts(rare, Counted::Silence, length), pair(4.0, 4.0));
        assert_eq!(counts(Counted::Silence, Counted::Silence, length), None);
        assert_eq!(counts(fast, Counted::Nothing, length), None);
        // Under plain Linux it did nothing at all.
        let stalls = Seen { works: Pair { gang: 0.5, linux: 0.0 }, counts: None };
        let proof = conclude(&[stalls; PAIRS]).unwrap();
        let bound = Gain { gain: GAIN_MAX, interval: None };
        assert_eq!(proof, Proof { gain: bound, by: Measure::Work, told_apart: true });
        let idle = Seen { works: Pair { gang: 0.0, linux: 0.0 }, counts: None };
        assert_eq!(conclude(&[idle; PAIRS]), None);
    }

    #[test]
    fn periods_have_room_for_turns_of_all() {
        let slices = [10, 1000].map(Duration::from_millis);
        assert_eq!(slices.map(|slice| shortest_period(slice, 1).as_millis()), [250, 12_000]);
    }
}
