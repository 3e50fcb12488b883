//! Threads that look at the clock all the time and so know when they did not run: what X8 took from the
//! scheduler's record, seen by those who were scheduled.
//!
//! A stretch without CPU for half a slice or longer is a slot of others. When it ends, the thread's own
//! slot has begun, and the distance from the boundary of the slices says how exact that was. Shorter
//! stretches are interruptions of its slot.

use anyhow::{Result, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::window::{Place, now_ns};
use super::{When, on_threads, thread_count};
use crate::duration;

/// Shorter stretches are the timer tick and the clock itself.
const GAP_NS: u64 = 50_000;

#[derive(Args, Debug, Clone)]
pub struct Edges {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Length of a slice of the daemon
    #[arg(long, default_value = "10ms", value_parser = duration::parse)]
    pub slice: Duration,
    #[command(flatten)]
    pub when: When,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EdgesOutcome {
    pub workload: String,
    pub threads: usize,
    pub started_at_ns: u64,
    pub elapsed_ns: u64,
    /// Slots that were seen to begin, of all threads together.
    pub slots: u64,
    /// From the boundary of slices to where a slot began or ended, whichever came first.
    pub begin_us_p50: f64,
    pub begin_us_p99: f64,
    pub end_us_p50: f64,
    pub end_us_p99: f64,
    /// Interruptions of slots, and the time that they took of all threads.
    pub interruptions: u64,
    pub interrupted_ns: u64,
}

/// What one thread saw.
struct Seen {
    begins_ns: Histogram<u64>,
    ends_ns: Histogram<u64>,
    interruptions: u64,
    interrupted_ns: u64,
}

impl Edges {
    pub fn run(&self) -> Result<EdgesOutcome> {
        let slice_ns = self.slice.as_nanos() as u64;
        ensure!(slice_ns >= 2 * GAP_NS, "slices below 100us are not told from the timer tick");
        let window = self.when.window()?;
        let all = on_threads(self.threads, |_| -> Result<Seen> {
            let mut seen = Seen::new()?;
            let mut before_ns = now_ns();
            loop {
                let ns = now_ns();
                match window.place(ns) {
                    Place::Before => {}
                    Place::Inside if ns.saturating_sub(before_ns) < GAP_NS => {}
                    Place::Inside => seen.gap(before_ns, ns, slice_ns)?,
                    Place::After => return Ok(seen),
                }
                before_ns = ns;
            }
        })?;
        let mut sum = Seen::new()?;
        for seen in all {
            let seen = seen?;
            sum.begins_ns.add(seen.begins_ns)?;
            sum.ends_ns.add(seen.ends_ns)?;
            sum.interruptions += seen.interruptions;
            sum.interrupted_ns += seen.interrupted_ns;
        }
        let us = |of: &Histogram<u64>, quantile| of.value_at_quantile(quantile) as f64 / 1e3;
        Ok(EdgesOutcome {
            workload: "edges".into(),
            threads: self.threads,
            started_at_ns: window.start_ns,
            elapsed_ns: window.length_ns(),
            slots: sum.begins_ns.len(),
            begin_us_p50: us(&sum.begins_ns, 0.5),
            begin_us_p99: us(&sum.begins_ns, 0.99),
            end_us_p50: us(&sum.ends_ns, 0.5),
            end_us_p99: us(&sum.ends_ns, 0.99),
            interruptions: sum.interruptions,
            interrupted_ns: sum.interrupted_ns,
        })
    }
}

impl Seen {
    fn new() -> Result<Self> {
        Ok(Self {
            begins_ns: Histogram::new(3)?,
            ends_ns: Histogram::new(3)?,
            interruptions: 0,
            interrupted_ns: 0,
        })
    }

    fn gap(&mut self, from_ns: u64, to_ns: u64, slice_ns: u64) -> Result<()> {
        if to_ns - from_ns < slice_ns / 2 {
            self.interruptions += 1;
            self.interrupted_ns += to_ns - from_ns;
            return Ok(());
        }
        self.ends_ns.record(from_boundary(from_ns, slice_ns))?;
        self.begins_ns.record(from_boundary(to_ns, slice_ns))?;
        Ok(())
    }
}

/// Distance to the nearest boundary of slices.
fn from_boundary(ns: u64, slice_ns: u64) -> u64 {
    let after = ns % slice_ns;
    after.min(slice_ns - after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_others_and_interruptions_are_told_apart() {
        let mut seen = Seen::new().unwrap();
        seen.gap(10_000_900, 20_000_050, 10_000_000).unwrap();
        seen.gap(23_000_000, 23_000_200, 10_000_000).unwrap();
        assert_eq!((seen.begins_ns.max(), seen.ends_ns.max()), (50, 900));
        assert_eq!((seen.interruptions, seen.interrupted_ns), (1, 200));
        assert_eq!(from_boundary(19_999_990, 10_000_000), 10);
    }
}
