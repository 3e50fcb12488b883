//! BARRIER(interval, variance) of E10: threads work for interval + rand(variance), meet at a
//! barrier, and count iterations.

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::setpriority_process;

use super::rendezvous::Wait;
use super::steps::in_steps;
use super::work::{Amount, spend};
use super::{Outcome, When, thread_count};

/// Work between two barriers where nothing else is said: with it two threads on two CPUs reach
/// about a million barriers a second, as in the measurements of the design.
pub const DEFAULT_INTERVAL: &str = "3000";

#[derive(Args, Debug, Clone)]
pub struct Barrier {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Work between two barriers: cycles, or a length of time (40us)
    #[arg(long, default_value = DEFAULT_INTERVAL)]
    pub interval: Amount,
    /// Largest random addition to it: cycles, or a length of time
    #[arg(long, default_value = "0")]
    pub variance: Amount,
    /// spin, spin-block, or spin-block:TIME
    #[arg(long, default_value = "spin")]
    pub wait: Wait,
    /// Priority of the process, -20 to 19 (E16)
    #[arg(long, allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub nice: Option<i32>,
    #[command(flatten)]
    pub when: When,
}

impl Barrier {
    pub fn run(&self) -> Result<Outcome> {
        let interval = self.interval.cycles();
        let variance = self.variance.cycles();
        if let Some(nice) = self.nice {
            setpriority_process(None, nice)
                .with_context(|| format!("taking the priority nice {nice} takes root below 0"))?;
        }
        let start = |number: usize| {
            let mut random = fastrand::Rng::with_seed(number as u64);
            move |_step| {
                let extra = if variance == 0 { 0 } else { random.u64(0..variance) };
                spend(interval + extra, number as u64);
            }
        };
        in_steps("barrier", self.threads, self.wait, self.when.window()?, start, |_| 1)
    }
}
