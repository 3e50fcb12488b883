//! A program whose parallel phases, with spin barriers inside, alternate with serial phases in
//! which all threads but one block: a strict gang leaves their CPUs idle (X6, X7).
//!
//! The amount of work is fixed, and what is measured is the time until it is done.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::rendezvous::{Rendezvous, Wait};
use super::window::{now_ns, sleep_until_ns};
use super::work::{Amount, spend};
use super::{on_threads, seconds, thread_count};

#[derive(Args, Debug, Clone)]
pub struct Phases {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Pairs of a parallel and a serial phase
    #[arg(long, default_value_t = 8_000)]
    pub rounds: u64,
    /// Barriers in a parallel phase
    #[arg(long, default_value_t = 20)]
    pub barriers: u64,
    /// Work between two barriers: cycles, or a length of time
    #[arg(long, default_value = "3000")]
    pub interval: Amount,
    /// Work of the one thread in a serial phase: cycles, or a length of time
    #[arg(long, default_value = "300000")]
    pub serial: Amount,
    /// How threads wait in a parallel phase: spin, spin-block, or spin-block:TIME
    #[arg(long, default_value = "spin")]
    pub wait: Wait,
    /// Socket of a Redis, in which the one thread looks something up after each serial phase (X7)
    #[arg(long, value_name = "PATH")]
    pub cache: Option<PathBuf>,
    /// When to begin, in nanoseconds since 1970
    #[arg(long, value_name = "NS")]
    pub start_at: Option<u64>,
    /// Give up after this long
    #[arg(long, default_value = "300s", value_parser = seconds)]
    pub limit: Duration,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PhasesOutcome {
    pub workload: String,
    pub threads: usize,
    pub started_at_ns: u64,
    pub finished_at_ns: u64,
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    /// Pairs of phases that were done.
    pub rounds: u64,
    /// False where the limit came first.
    pub finished: bool,
}

impl Phases {
    pub fn run(&self) -> Result<PhasesOutcome> {
        let interval = self.interval.cycles();
        let serial = self.serial.cycles();
        if let Some(at_ns) = self.start_at {
            sleep_until_ns(at_ns.min(now_ns() + 60_000_000_000));
        }
        let started_at_ns = now_ns();
        let limit_ns = started_at_ns + self.limit.as_nanos() as u64;
        let barrier = Rendezvous::new(self.threads);
        let given_up = AtomicBool::new(false);
        let block_at_once = Wait::SpinBlock(Duration::ZERO);
        // Each copy connects when it starts, so that an error shows before anybody waits.
        let cache = self.cache.as_deref().map(Cache::connect).transpose()?;
        let cache = Mutex::new(cache);
        let done = on_threads(self.threads, |number| {
            let mut done = 0;
            for round in 0..self.rounds {
                for _ in 0..self.barriers {
                    spend(interval, number as u64);
                    barrier.meet(self.wait, || {});
                }
                if number == 0 {
                    spend(serial, 0);
                    look_up(&cache, round);
                }
                barrier.meet(block_at_once, || {
                    given_up.store(now_ns() >= limit_ns, Ordering::Relaxed);
                });
                done = round + 1;
                if given_up.load(Ordering::Relaxed) {
                    break;
                }
            }
            (done, super::window::thread_cpu_ns())
        })?;
        let finished_at_ns = now_ns();
        Ok(PhasesOutcome {
            workload: "phases".into(),
            threads: self.threads,
            started_at_ns,
            finished_at_ns,
            elapsed_ns: finished_at_ns.saturating_sub(started_at_ns),
            cpu_ns: done.iter().map(|(_, cpu_ns)| cpu_ns).sum(),
            rounds: done[0].0,
            finished: !given_up.into_inner(),
        })
    }
}

/// The others wait for it, so it must not be left out in silence: without its cache the program
/// ends.
fn look_up(cache: &Mutex<Option<Cache>>, round: u64) {
    let Ok(mut cache) = cache.lock() else { return };
    if let Some(Err(error)) = cache.as_mut().map(|cache| cache.look_up(round % 100)) {
        eprintln!("gang-lab: {error:#}");
        std::process::exit(1);
    }
}
