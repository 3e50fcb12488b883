//! Threads that look at the clock all the time and so know when they did not run: what X8 took from
//! the scheduler's record, seen by those who were scheduled.
//!
//! A slice in most of which the thread had no CPU was the slot of others: also where it ran in the
//! gaps, of which a long slice has several. Where such a slice and one of its own meet, the stretch
//! without CPU that ends, or begins, nearest to the boundary says how exact the switch was. All
//! others within its own slices are interruptions of its slot.

use anyhow::{Result, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::window::{Phase, Window, now_ns};
use super::{When, on_threads, thread_count};
use crate::harness::duration;

/// Shorter stretches are the timer tick and the clock itself.
const GAP_NS: u64 = 50_000;

#[derive(Args, Debug, Clone)]
pub struct Edges {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Length of a slice of the daemon
    #[arg(long, default_value = "20ms", value_parser = duration::parse)]
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

/// A stretch in which a thread had no CPU.
#[derive(Clone, Copy, Debug)]
struct Pause {
    from_ns: u64,
    to_ns: u64,
}

/// The observations of one thread.
struct Seen {
    begins_ns: Histogram<u64>,
    ends_ns: Histogram<u64>,
    interruptions: u64,
    interrupted_ns: u64,
}

impl Edges {
    pub fn run(&self) -> Result<EdgesOutcome> {
        let slice_ns = self.slice.as_nanos() as u64;
        ensure!(
            slice_ns >= 2 * GAP_NS,
            "slices below 100us cannot be told apart from the timer tick"
        );
        let window = self.when.window()?;
        let all = on_threads(self.threads, |_| -> Result<Seen> {
            let mut pauses = Vec::new();
            let mut before_ns = now_ns();
            loop {
                let ns = now_ns();
                match window.phase(ns) {
                    Phase::Before => {}
                    Phase::Inside if ns.saturating_sub(before_ns) < GAP_NS => {}
                    Phase::Inside => pauses.push(Pause { from_ns: before_ns, to_ns: ns }),
                    Phase::After => return Seen::of(&pauses, window, slice_ns),
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

    /// Of pauses in order of time.
    fn of(pauses: &[Pause], window: Window, slice_ns: u64) -> Result<Self> {
        let (first, end) = (window.start_ns.div_ceil(slice_ns), window.end_ns / slice_ns);
        let within = |pause: &Pause, slice: u64| {
            let (from_ns, to_ns) = (slice * slice_ns, (slice + 1) * slice_ns);
            pause.to_ns.min(to_ns).saturating_sub(pause.from_ns.max(from_ns))
        };
        let touched = |slice: u64| {
            let begin = pauses.partition_point(|pause| pause.to_ns <= slice * slice_ns);
            pauses[begin..].iter().take_while(move |pause| pause.from_ns < (slice + 1) * slice_ns)
        };
        let is_own = |slice: u64| {
            touched(slice).map(|pause| within(pause, slice)).sum::<u64>() * 2 < slice_ns
        };
        let mut seen = Seen::new()?;
        // Where the pauses begin that are the ends of slots.
        let mut of_edges = Vec::new();
        for slice in first + 1..end {
            let boundary_ns = slice * slice_ns;
            let at = match (is_own(slice - 1), is_own(slice)) {
                (false, true) => |pause: &Pause| pause.to_ns,
                (true, false) => |pause: &Pause| pause.from_ns,
                _ => continue,
            };
            let next = pauses.partition_point(|pause| at(pause) < boundary_ns);
            let around = &pauses[next.saturating_sub(1)..(next + 1).min(pauses.len())];
            let nearest = around.iter().min_by_key(|pause| at(pause).abs_diff(boundary_ns));
            let Some(pause) = nearest else { continue };
            let ends = if is_own(slice) { &mut seen.begins_ns } else { &mut seen.ends_ns };
            ends.record(at(pause).abs_diff(boundary_ns))?;
            of_edges.push(pause.from_ns);
        }
        for slice in (first..end).filter(|&slice| is_own(slice)) {
            let others = |pause: &&Pause| of_edges.binary_search(&pause.from_ns).is_err();
            for pause in touched(slice).filter(others) {
                seen.interruptions += u64::from(pause.from_ns >= slice * slice_ns);
                seen.interrupted_ns += within(pause, slice);
            }
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(slice_ns: u64, pauses: &[(u64, u64)]) -> Seen {
        let pause = |&(from_ns, to_ns): &(u64, u64)| Pause { from_ns, to_ns };
        let pauses: Vec<Pause> = pauses.iter().map(pause).collect();
        let window = Window::new(0, Duration::from_millis(40));
        Seen::of(&pauses, window, slice_ns).unwrap()
    }

    #[test]
    fn slots_of_others_and_interruptions_are_told_apart() {
        let seen = seen(10 * MS, &[(10 * MS + 900, 20 * MS + 50), (23 * MS, 23 * MS + 200)]);
        assert_eq!((seen.begins_ns.max(), seen.ends_ns.max()), (50, 900));
        assert_eq!((seen.begins_ns.len(), seen.ends_ns.len()), (1, 1));
        assert_eq!((seen.interruptions, seen.interrupted_ns), (1, 200));
    }

    #[test]
    fn runner_in_gaps_of_long_slots_has_no_slot_there() {
        let pauses = [(20 * MS + 30, 24 * MS), (25 * MS, 29 * MS), (30 * MS, 39 * MS)];
        let seen = seen(20 * MS, &[&[(5 * MS, 6 * MS)], &pauses[..]].concat());
        assert_eq!((seen.begins_ns.len(), seen.ends_ns.len(), seen.ends_ns.max()), (0, 1, 30));
        assert_eq!((seen.interruptions, seen.interrupted_ns), (1, MS));
    }
}
