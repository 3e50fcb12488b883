//! Threads that sleep, as an idle job or as the many threads of a switch, and if asked for some
//! that compute beside them, so that the job counts as running.

use anyhow::Result;
use clap::Args;

use super::window::{CpuMeter, Phase, now_ns, sleep_until_ns};
use super::work::spend;
use super::{Outcome, ThreadOutcome, When, on_threads};

#[derive(Args, Debug, Clone)]
pub struct Sleepers {
    /// Threads that sleep, beside the first thread of the process, which does too
    #[arg(long, default_value_t = 16, value_parser = few)]
    pub threads: usize,
    /// Threads that compute beside them
    #[arg(long, default_value_t = 0, value_parser = few)]
    pub busy: usize,
    #[command(flatten)]
    pub when: When,
}

impl Sleepers {
    pub fn run(&self) -> Result<Outcome> {
        let window = self.when.window()?;
        let threads = on_threads(self.threads + self.busy, |number| {
            let ready_at_ns = now_ns();
            let mut meter = CpuMeter::default();
            if number < self.threads {
                sleep_until_ns(window.end_ns);
            } else {
                while window.phase(now_ns()) != Phase::After {
                    meter.look(window.phase(now_ns()));
                    spend(20_000, number as u64);
                }
                meter.look(Phase::After);
            }
            (ready_at_ns, ThreadOutcome { iterations: 0, cpu_ns: meter.spent_ns() })
        })?;
        let ready_at_ns = threads.iter().map(|(ready_at_ns, _)| *ready_at_ns).max();
        let per_thread: Vec<_> = threads.into_iter().map(|(_, outcome)| outcome).collect();
        Ok(Outcome {
            workload: "sleepers".into(),
            threads: self.threads + self.busy,
            started_at_ns: window.start_ns,
            elapsed_ns: window.length_ns(),
            ready_at_ns: ready_at_ns.unwrap_or(0),
            first_at_ns: None,
            cpu_ns: per_thread.iter().map(|thread| thread.cpu_ns).sum(),
            iterations: 0,
            per_thread,
        })
    }
}

fn few(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 0..=10_000) => Ok(threads),
        _ => Err(format!("{text:?} is not between 0 and 10000")),
    }
}
