//! The proof: the program as a gang and by Linux alone, in turn, while it runs.
//!
//! Approach: pairs of equal periods, one of each kind, the kind that comes first changing from pair to pair
//! (ABBA), so that what drifts falls out. What the program does in a period is the share of the looks that
//! see it work. The ends of a period are left out: the change takes a moment.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gang_linux::Roots;
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
const PERIOD_MIN: Duration = Duration::from_millis(250);

/// What the change takes at most, left out at the beginning of each period.
const SETTLES: Duration = Duration::from_millis(50);

/// Student's t for 9 degrees of freedom, 95 %.
const T_9: f64 = 2.262;

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

/// What the program did as a gang, and by Linux alone, in each pair of periods.
fn alternate(roots: &Roots, program: &mut Program, period: Duration) -> Result<Vec<(f64, f64)>> {
    let mut watch = Watch::begin(roots, &program.cgroup, program.cpus)?;
    let mut pairs = Vec::new();
    for pair in 0..PAIRS {
        let mut pace = [0.0; 2];
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for kind in order {
            let policy = if kind == 0 { Policy::local } else { Policy::none };
            program.set_policy(policy)?;
            watch.follow(&program.cgroup)?;
            if !watch.until(Instant::now() + SETTLES)? {
                return Ok(pairs);
            }
            let before = watch.looks().len();
            if !watch.until(Instant::now() + period)? {
                return Ok(pairs);
            }
            pace[kind] = worked(&watch.looks()[before..]);
        }
        pairs.push((pace[0], pace[1]));
    }
    Ok(pairs)
}

/// The share of looks that see the program work.
fn worked(looks: &[Look]) -> f64 {
    let work = looks.iter().filter(|look| matches!(look.doing, Doing::Work { .. })).count();
    work as f64 / looks.len().max(1) as f64
}

/// The ratio of the means less 1, its interval from the residuals of the pairs (Cochran, Sampling
/// Techniques, 6.3).
fn gain(pairs: &[(f64, f64)]) -> Option<Gain> {
    let n = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (gang, linux) = (mean(|pair| pair.0), mean(|pair| pair.1));
    if linux <= 0.0 {
        return None;
    }
    let ratio = gang / linux;
    let squares: f64 = pairs.iter().map(|pair| (pair.0 - ratio * pair.1).powi(2)).sum();
    let half = T_9 * (squares / (n - 1.0)).sqrt() / n.sqrt() / linux;
    Some(Gain { gain: ratio - 1.0, interval: Some([ratio - half - 1.0, ratio + half - 1.0]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_has_an_interval() {
        let pairs: Vec<(f64, f64)> =
            (0..PAIRS).map(|pair| (0.8 + 0.01 * (pair % 2) as f64, 0.4)).collect();
        let gain = gain(&pairs).unwrap();
        assert!((gain.gain - 1.0125).abs() < 1e-9);
        let [low, high] = gain.interval.unwrap();
        assert!(low < gain.gain && gain.gain < high && high - low < 0.1);
        assert_eq!(super::gain(&[(0.5, 0.0); PAIRS]), None);
    }
}
