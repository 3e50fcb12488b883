//! BARRIER(interval, variance) of E10: threads work for interval + rand(variance), meet at a
//! barrier, and count iterations.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use anyhow::Result;
use clap::Args;

use super::rendezvous::{Rendezvous, Wait};
use super::window::{CpuMeter, Place, now_ns};
use super::work::{Amount, spend};
use super::{Outcome, ThreadOutcome, When, on_threads, thread_count};

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
    #[command(flatten)]
    pub when: When,
}

impl Barrier {
    pub fn run(&self) -> Result<Outcome> {
        let interval = self.interval.cycles();
        let variance = self.variance.cycles();
        let window = self.when.window()?;
        let barrier = Rendezvous::new(self.threads);
        let place = AtomicU8::new(Place::Before as u8);
        let iterations = AtomicU64::new(0);
        let ready_at_ns = AtomicU64::new(0);

        // The last thread of each round looks at the clock, before it lets the others go: so all
        // threads agree in which round the window began and ended.
        let look = || {
            let now_ns = now_ns();
            if ready_at_ns.load(Ordering::Relaxed) == 0 {
                ready_at_ns.store(now_ns, Ordering::Relaxed);
            }
            let now = window.place(now_ns);
            if now == Place::Inside {
                iterations.fetch_add(1, Ordering::Relaxed);
            }
            place.store(now as u8, Ordering::Relaxed);
        };
        let cpu = on_threads(self.threads, |number| {
            let mut random = fastrand::Rng::with_seed(number as u64);
            let mut meter = CpuMeter::default();
            loop {
                let extra = if variance == 0 { 0 } else { random.u64(0..variance) };
                spend(interval + extra, number as u64);
                barrier.meet(self.wait, look);
                let now = match place.load(Ordering::Relaxed) {
                    x if x == Place::Before as u8 => continue,
                    x if x == Place::Inside as u8 => Place::Inside,
                    _ => Place::After,
                };
                meter.look(now);
                if now == Place::After {
                    return meter.spent_ns();
                }
            }
        })?;
        let iterations = iterations.into_inner();
        Ok(Outcome {
            workload: "barrier".into(),
            threads: self.threads,
            started_at_ns: window.start_ns,
            elapsed_ns: window.length_ns(),
            ready_at_ns: ready_at_ns.into_inner(),
            cpu_ns: cpu.iter().sum(),
            iterations,
            per_thread: cpu
                .into_iter()
                .map(|cpu_ns| ThreadOutcome { iterations, cpu_ns })
                .collect(),
        })
    }
}
