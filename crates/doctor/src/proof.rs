//! The proof: the program as a gang and by Linux alone, in turn, while it runs.
//!
//! Approach: pairs of equal periods, one of each kind, the kind that comes first changing from pair to pair
//! (ABBA), so that what drifts falls out. What the program does in a period is the share of the looks that
//! see it work. The ends of a period are left out: the change takes a moment.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gang_linux::{Roots, clock};
use gang_protocol::v1::Policy;

use crate::{
    diagnosis::Gain,
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

/// Student's t for 1 and more degrees of freedom, 95 %; beyond them that of 40 is near enough.
const T: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];
const T_MORE: f64 = 2.021;

/// What the program did as a gang, and by Linux alone: shares of the looks that see it work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    pub gang: f64,
    pub linux: f64,
}

/// Who is scheduled by one and the other.
pub trait Subject {
    /// Has it scheduled by that policy, and the watch follow it to where it lives then.
    fn schedule(&mut self, policy: Policy, watch: &mut Watch) -> Result<()>;
}

impl Subject for Program {
    fn schedule(&mut self, policy: Policy, watch: &mut Watch) -> Result<()> {
        self.set_policy(policy)?;
        watch.follow(&self.cgroup)
    }
}

/// Measures what the program gains as a gang, in about `length` of time.
pub fn prove(roots: &Roots, program: &mut Program, length: Duration) -> Result<Gain> {
    let period = (length / (2 * PAIRS as u32)).max(PERIOD_MIN);
    let usual = program.policy.clone();
    let measured = alternate(roots, program, period);
    let restored = program.set_policy(usual);
    let pairs = measured?;
    restored?;
    ensure!(pairs.len() == PAIRS, "the program ended before it was measured often enough");
    gain(&pairs).ok_or_else(|| anyhow::anyhow!("it did not compute while it was measured"))
}

fn alternate(roots: &Roots, program: &mut Program, period: Duration) -> Result<Vec<Pair>> {
    let mut watch = Watch::begin(roots, &program.cgroup, program.cpus)?;
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
    period: Duration,
) -> Result<Option<Pair>> {
    let mut pair = Pair { gang: 0.0, linux: 0.0 };
    let order = [Policy::local, Policy::none];
    for policy in if number % 2 == 0 { order } else { [Policy::none, Policy::local] } {
        subject.schedule(policy.clone(), watch)?;
        if !watch.until(Instant::now() + SETTLES)? {
            return Ok(None);
        }
        let from_ns = clock::monotonic_ns();
        if !watch.until(Instant::now() + period)? {
            return Ok(None);
        }
        // Whoever reads the ticks may be late: what came after the end is not of this period.
        let until_ns = from_ns + period.as_nanos() as u64;
        let worked = worked(watch.looks(), from_ns, until_ns);
        match policy {
            Policy::none => pair.linux = worked,
            _ => pair.gang = worked,
        }
    }
    Ok(Some(pair))
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
