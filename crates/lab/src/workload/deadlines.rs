//! Deadlines as of X5: the threads of a domain repeat a step, and count together. Between two
//! counts of its own a thread may see no more counts of others than there are threads, or the
//! deadline is missed.
//!
//! Of two threads that one is two steps behind. Of sixteen, two others need only have changed
//! places with it: where their steps differ by chance alone, be it by a millionth, some percent are
//! missed, the more the fewer steps there were.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::window::{Phase, now_ns};
use super::work::{Amount, spend};
use super::{When, on_threads, thread_count};

#[derive(Args, Debug, Clone)]
pub struct Deadlines {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Work of a step: cycles, or a length of time
    #[arg(long, default_value = "100ms")]
    pub step: Amount,
    #[command(flatten)]
    pub when: When,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeadlinesOutcome {
    pub workload: String,
    pub threads: usize,
    pub started_at_ns: u64,
    pub elapsed_ns: u64,
    /// Steps of all threads inside the window.
    pub steps: u64,
    pub missed: u64,
}

impl Deadlines {
    pub fn run(&self) -> Result<DeadlinesOutcome> {
        let window = self.when.window()?;
        let cycles = self.step.cycles();
        let count = AtomicU64::new(0);
        let threads = on_threads(self.threads, |number| {
            let mut own = Counter { threads: self.threads as u64, last: None };
            let (mut steps, mut missed) = (0, 0);
            loop {
                spend(cycles, number as u64);
                let late = own.count(count.fetch_add(1, Ordering::Relaxed));
                match window.phase(now_ns()) {
                    Phase::Before => {}
                    Phase::Inside => {
                        steps += 1;
                        missed += u64::from(late);
                    }
                    Phase::After => return (steps, missed),
                }
            }
        })?;
        Ok(DeadlinesOutcome {
            workload: "deadlines".into(),
            threads: self.threads,
            started_at_ns: window.start_ns,
            elapsed_ns: window.length_ns(),
            steps: threads.iter().map(|(steps, _)| steps).sum(),
            missed: threads.iter().map(|(_, missed)| missed).sum(),
        })
    }
}

/// One thread's view of the count.
struct Counter {
    threads: u64,
    last: Option<u64>,
}

impl Counter {
    /// Whether a deadline is missed by the count that found the common one at `found`.
    fn count(&mut self, found: u64) -> bool {
        let others = self.last.map_or(0, |last| found - last);
        self.last = Some(found + 1);
        others > self.threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_falls_behind_misses_its_deadline() {
        let mut own = Counter { threads: 2, last: None };
        // In step with the other: one count of another in between.
        assert!(![7, 9, 11].map(|found| own.count(found)).contains(&true));
        // The other counted three times meanwhile.
        assert!(own.count(15));
        assert!(!own.count(18), "two are as many as there are threads");
    }

    /// Of steps that differ by chance, by up to this part.
    fn missed_percent(threads: u64, by_chance: f64) -> f64 {
        const STEPS: u64 = 50;
        let mut random = 1u64;
        let mut chance = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut counts: Vec<(f64, usize)> = Vec::new();
        for thread in 0..threads as usize {
            let mut at = 0.0;
            for _ in 0..STEPS {
                at += 1.0 + by_chance * chance();
                counts.push((at, thread));
            }
        }
        counts.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut own: Vec<_> = (0..threads).map(|_| Counter { threads, last: None }).collect();
        let late = counts.iter().zip(0..).filter(|&(&(_, thread), found)| own[thread].count(found));
        late.count() as f64 / counts.len() as f64 * 100.0
    }

    #[test]
    fn some_of_many_even_threads_miss_by_their_order() {
        for by_chance in [1e-6, 1e-2] {
            assert_eq!(missed_percent(2, by_chance), 0.0);
            let of_16 = missed_percent(16, by_chance);
            assert!((10.0..30.0).contains(&of_16), "{of_16} %");
        }
    }
}
