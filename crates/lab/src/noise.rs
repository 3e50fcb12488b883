//! How much of the CPUs the rest of the machine takes while nothing is measured.
//!
//! A loop on each CPU does nothing but read the clock. Where two readings lie apart, somebody else had
//! the CPU: a program, the kernel, or the host of a virtual machine, which no counter of the guest
//! tells. A machine on which others take more than [`LIMIT_PERCENT`] cannot show differences of a few
//! percent, so nothing is compared on it unless that is asked for.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::machine::allowed_cpus;
use crate::stats;
use crate::workload::on_threads;

/// What others may take of the CPUs on a machine on which conditions are compared.
pub const LIMIT_PERCENT: f64 = 5.0;
/// Long enough to see programs that run now and then, short beside a measurement.
const LENGTH: Duration = Duration::from_millis(200);
/// Shorter gaps are the timer tick and the clock itself.
const GAP: Duration = Duration::from_micros(100);
/// How often a machine is asked whether it has come to rest, and the time in between.
const ATTEMPTS: usize = 5;
const REST: Duration = Duration::from_secs(1);

/// What loops on all CPUs saw of the rest of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    pub lost_percent: f64,
    pub longest_ms: f64,
}

/// Noise over a whole run, from samples before each of its rounds and after the last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub lost_percent_mean: f64,
    pub lost_percent_worst: f64,
    pub longest_ms: f64,
    pub limit_percent: f64,
    pub samples: usize,
}

impl Summary {
    /// None where nothing was sampled.
    pub fn of(samples: &[Noise]) -> Option<Self> {
        let lost: Vec<f64> = samples.iter().map(|noise| noise.lost_percent).collect();
        let (mean, _) = stats::mean_sd(&lost)?;
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        Some(Self {
            lost_percent_mean: mean,
            lost_percent_worst: largest(&mut lost.iter().copied()),
            longest_ms: largest(&mut samples.iter().map(|noise| noise.longest_ms)),
            limit_percent: LIMIT_PERCENT,
            samples: samples.len(),
        })
    }

    pub fn too_noisy(&self) -> bool {
        self.lost_percent_mean > self.limit_percent
    }

    pub fn line(&self) -> String {
        format!(
            "others took {:.1} % of the CPUs ({:.1} % at worst, for {:.1} ms at a time)",
            self.lost_percent_mean, self.lost_percent_worst, self.longest_ms
        )
    }
}

/// Samples until the machine is at rest, for some seconds at most, and returns the last sample.
pub fn at_rest() -> Result<Noise> {
    let mut noise = sample()?;
    for _ in 1..ATTEMPTS {
        if noise.lost_percent <= LIMIT_PERCENT {
            break;
        }
        std::thread::sleep(REST);
        noise = sample()?;
    }
    Ok(noise)
}

/// One sample, on all CPUs that this process may use.
pub fn sample() -> Result<Noise> {
    let cpus = allowed_cpus()?;
    let seen = on_threads(cpus.len(), |number| {
        let mut own = CpuSet::new();
        own.set(cpus[number]);
        // A CPU that went meanwhile is watched from another.
        let _ = sched_setaffinity(None, &own);
        watch()
    })?;
    let lost: f64 = seen.iter().map(|(lost, _)| lost.as_secs_f64()).sum();
    let length = LENGTH.as_secs_f64() * seen.len() as f64;
    let longest = seen.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
    Ok(Noise {
        lost_percent: (lost / length * 100.0).min(100.0),
        longest_ms: longest.as_secs_f64() * 1e3,
    })
}

/// The time this thread did not run, in all and at a stretch.
fn watch() -> (Duration, Duration) {
    let begin = Instant::now();
    let (mut before, mut lost, mut longest) = (begin, Duration::ZERO, Duration::ZERO);
    loop {
        let now = Instant::now();
        let gap = now - before;
        if gap >= GAP {
            lost += gap;
            longest = longest.max(gap);
        }
        before = now;
        if now - begin >= LENGTH {
            return (lost, longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_a_share_of_the_cpus() {
        let noise = sample().unwrap();
        assert!((0.0..=100.0).contains(&noise.lost_percent), "{noise:?}");
        assert!(noise.longest_ms >= 0.0);
    }

    #[test]
    fn the_mean_decides() {
        let noise = |lost_percent, longest_ms| Noise { lost_percent, longest_ms };
        let quiet = Summary::of(&[noise(0.5, 1.0), noise(8.5, 30.0)]).unwrap();
        assert!(!quiet.too_noisy() && quiet.lost_percent_worst == 8.5 && quiet.longest_ms == 30.0);
        assert!(Summary::of(&[noise(6.0, 1.0)]).unwrap().too_noisy());
        assert_eq!(Summary::of(&[]), None);
    }
}
