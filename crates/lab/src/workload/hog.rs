//! Threads that compute without pause: CPU hogs, and the tight loop of E11.

use anyhow::Result;
use clap::Args;

use super::window::{CpuMeter, Place, now_ns};
use super::work::spend;
use super::{Outcome, ThreadOutcome, When, on_threads, thread_count};

/// One iteration. Long against a look at the clock, short against a slice.
const CHUNK_CYCLES: u64 = 20_000;

#[derive(Args, Debug, Clone)]
pub struct Hog {
    #[arg(long, default_value = "1", value_parser = thread_count)]
    pub threads: usize,
    #[command(flatten)]
    pub when: When,
}

impl Hog {
    pub fn run(&self) -> Result<Outcome> {
        let window = self.when.window()?;
        let threads = on_threads(self.threads, |number| {
            let mut meter = CpuMeter::default();
            let mut iterations = 0;
            let ready_at_ns = now_ns();
            loop {
                spend(CHUNK_CYCLES, number as u64);
                let place = window.place(now_ns());
                meter.look(place);
                match place {
                    Place::Before => {}
                    Place::Inside => iterations += 1,
                    Place::After => {
                        let cpu_ns = meter.spent_ns();
                        return (ready_at_ns, ThreadOutcome { iterations, cpu_ns });
                    }
                }
            }
        })?;
        let ready_at_ns = threads.iter().map(|(ready_at_ns, _)| *ready_at_ns).max();
        let per_thread: Vec<_> = threads.into_iter().map(|(_, outcome)| outcome).collect();
        Ok(Outcome {
            workload: "hog".into(),
            threads: self.threads,
            started_at_ns: window.start_ns,
            elapsed_ns: window.length_ns(),
            ready_at_ns: ready_at_ns.unwrap_or(0),
            cpu_ns: per_thread.iter().map(|thread| thread.cpu_ns).sum(),
            iterations: per_thread.iter().map(|thread| thread.iterations).sum(),
            per_thread,
        })
    }
}
