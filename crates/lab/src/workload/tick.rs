//! A short task beside the gangs: the shell, the editor, the heartbeat; or a compositor.
//!
//! It is due every so often, runs for a short time, and records how late it was woken and how late
//! it was done. A task that is late does not skip what is due meanwhile, so that one long wait
//! counts for all the ticks that fell into it.
//!
//! The schedule of gangd follows the same clock, so ticks at multiples of a slice would all fall
//! on the same point of it and show that point only. Each tick is therefore shifted by a part of
//! the period that walks evenly over all of it (multiples of the golden ratio), unless a fixed
//! phase is asked for.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use gang_linux::sched::{self, Attributes, SchedPolicy};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::When;
use super::window::{now_ns, sleep_until_ns, thread_cpu_ns};
use super::work::spend;
use crate::harness::duration;

#[derive(Args, Debug, Clone)]
pub struct Tick {
    /// Time from one tick to the next
    #[arg(long, default_value = "10ms", value_parser = duration::parse)]
    pub every: Duration,
    /// CPU time of a tick
    #[arg(long, default_value = "0.2ms", value_parser = duration::parse)]
    pub run: Duration,
    /// Fixed offset of all ticks from the start; without it they sweep over all phases
    #[arg(long, value_parser = duration::parse)]
    pub phase: Option<Duration>,
    /// Be real-time as compositors are: SCHED_RR, of the priority that gangs have in their slots
    #[arg(long)]
    pub compositor: bool,
    #[command(flatten)]
    pub when: When,
}

const COMPOSITOR: Attributes =
    Attributes { policy: SchedPolicy::RoundRobin, reset_on_fork: false, ..Attributes::fifo(1) };

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TickOutcome {
    pub workload: String,
    pub started_at_ns: u64,
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    pub ticks: u64,
    /// Time from when a tick was due to when it ran.
    pub wake: Lateness,
    /// Time from when a tick would have been done on an idle machine to when it was.
    pub completion: Lateness,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Lateness {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Lateness {
    fn of(histogram: &Histogram<u64>) -> Self {
        let ms = |ns: u64| ns as f64 / 1e6;
        Self {
            p50_ms: ms(histogram.value_at_quantile(0.5)),
            p99_ms: ms(histogram.value_at_quantile(0.99)),
            max_ms: ms(histogram.max()),
        }
    }
}

impl Tick {
    pub fn run(&self) -> Result<TickOutcome> {
        anyhow::ensure!(
            self.every >= Duration::from_micros(100) && self.run < self.every,
            "a tick is due every 100us at most often, and runs for less than its period"
        );
        if self.compositor {
            sched::set(0, &COMPOSITOR).context("becoming a real-time thread")?;
        }
        let window = self.when.window()?;
        let every_ns = self.every.as_nanos() as u64;
        let run_ns = self.run.as_nanos() as u64;
        let mut wake = Histogram::<u64>::new(3)?;
        let mut completion = Histogram::<u64>::new(3)?;
        let cpu_before_ns = thread_cpu_ns();
        for tick in 0..window.length_ns() / every_ns {
            let phase_ns = match self.phase {
                Some(phase) => phase.as_nanos() as u64 % every_ns,
                None => sweep(tick, every_ns),
            };
            let due_ns = window.start_ns + tick * every_ns + phase_ns;
            sleep_until_ns(due_ns);
            wake.record(now_ns().saturating_sub(due_ns))?;
            let cpu_end_ns = thread_cpu_ns() + run_ns;
            while thread_cpu_ns() < cpu_end_ns {
                spend(2_000, tick);
            }
            completion.record(now_ns().saturating_sub(due_ns + run_ns))?;
        }
        Ok(TickOutcome {
            workload: "tick".into(),
            started_at_ns: window.start_ns,
            elapsed_ns: window.length_ns(),
            cpu_ns: thread_cpu_ns() - cpu_before_ns,
            ticks: wake.len(),
            wake: Lateness::of(&wake),
            completion: Lateness::of(&completion),
        })
    }
}

/// The offset of a tick inside its period: fractional parts of multiples of the golden ratio,
/// which cover the period evenly whatever their number.
fn sweep(tick: u64, every_ns: u64) -> u64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    ((tick as f64 * GOLDEN).fract() * every_ns as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_cover_period_evenly_and_ticks_keep_apart() {
        let every_ns = 1_000;
        let mut tenths = [0; 10];
        let mut before = 0;
        for tick in 0..1_000 {
            let phase_ns = sweep(tick, every_ns);
            tenths[(phase_ns / 100) as usize] += 1;
            let due_ns = tick * every_ns + phase_ns;
            assert!(tick == 0 || due_ns - before >= 600, "tick {tick} follows too soon");
            before = due_ns;
        }
        assert!(tenths.iter().all(|&n| (95..=105).contains(&n)), "{tenths:?}");
    }
}
