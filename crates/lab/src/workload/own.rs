//! Threads that work for as long as they have CPUs, and meet if that is asked for.
//!
//! Problem: what others take from a program may be a percent of its time, and where the host of a
//! virtual machine has more guests than one, the same work takes ten percent more or less from one
//! second to the next.
//!
//! Approach: a step is no amount of work, but of time that its thread has a CPU. It looks at the
//! clock every tenth of a microsecond or so; where two looks are further apart than that takes, it
//! did not have one. So what others take shows, what waiting for each other costs does, and the
//! speed of the machine does not. Between looks it works, so that a watcher does not
//! take it for one that waits for a moment to come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::rendezvous::Wait;
use super::steps::{apart, in_steps};
use super::window::{Window, now_ns};
use super::work::spend;
use super::{When, thread_count};
use crate::harness::duration;

#[derive(Args, Debug, Clone)]
pub struct Own {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Time on a CPU that is a step
    #[arg(long, default_value = "1ms", value_parser = duration::parse)]
    pub step: Duration,
    /// The threads meet after each step, and wait: spin, spin-block, or spin-block:TIME
    #[arg(long)]
    pub wait: Option<Wait>,
    /// Parts of the measurement, of the same length, that are counted by themselves
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub parts: u64,
    #[command(flatten)]
    pub when: When,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OwnOutcome {
    pub workload: String,
    pub threads: usize,
    /// Steps of all threads, part by part.
    pub parts: Vec<u64>,
}

impl Own {
    pub fn run(&self) -> Result<OwnOutcome> {
        ensure!(self.step > Duration::ZERO, "a step takes some time");
        let window = self.when.window()?;
        let looks = looks_apart();
        let counts: Vec<AtomicU64> = (0..self.parts).map(|_| AtomicU64::new(0)).collect();
        let step = || {
            have_cpu(self.step, looks);
            if let Some(part) = part(window, self.parts, now_ns()) {
                counts[part].fetch_add(1, Ordering::Relaxed);
            }
        };
        match self.wait {
            Some(wait) => in_steps("own", self.threads, wait, window, |_| |_| step(), |_| 1)?,
            None => apart("own", self.threads, window, |_| step)?,
        };
        let parts = counts.into_iter().map(AtomicU64::into_inner).collect();
        Ok(OwnOutcome { workload: "own".into(), threads: self.threads, parts })
    }
}

/// In which of the parts of the window a moment is.
fn part(window: Window, parts: u64, now_ns: u64) -> Option<usize> {
    let into_ns = now_ns.checked_sub(window.start_ns)?;
    let part = u128::from(into_ns) * u128::from(parts) / u128::from(window.length_ns().max(1));
    usize::try_from(part).ok().filter(|part| (*part as u64) < parts)
}

/// Between two looks.
const WORK_CYCLES: u64 = 400;

/// Works, and looks at the clock.
fn look() -> Instant {
    spend(WORK_CYCLES, 1);
    Instant::now()
}

/// How far apart two looks at the clock are at most for the thread to have had its CPU in between:
/// ten times what one takes here, and a microsecond at least. A clock that does not advance from
/// look to look does not show it.
fn looks_apart() -> Duration {
    const LOOKS: usize = 1000;
    let looks: Vec<Instant> = (0..LOOKS).map(|_| look()).collect();
    let apart = looks.windows(2).map(|two| two[1] - two[0]).filter(|apart| !apart.is_zero());
    apart.min().map_or(Duration::MAX, |shortest| (shortest * 10).max(Duration::from_micros(1)))
}

/// Goes on until the thread has had a CPU for so long.
fn have_cpu(length: Duration, looks_apart: Duration) {
    let mut had = Duration::ZERO;
    let mut last = Instant::now();
    while had < length {
        let now = look();
        let since = now - last;
        if since <= looks_apart {
            had += since;
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_the_same_length() {
        let window = Window::new(1000, Duration::from_nanos(300));
        let of = |now_ns| part(window, 3, now_ns);
        assert_eq!([999, 1000, 1099, 1100, 1299, 1300].map(of), {
            [None, Some(0), Some(0), Some(1), Some(2), None]
        });
    }

    #[test]
    fn no_step_is_shorter_than_it_says() {
        let began = Instant::now();
        have_cpu(Duration::from_millis(5), looks_apart());
        assert!(began.elapsed() >= Duration::from_millis(5));
    }

    #[test]
    fn steps_are_counted_part_by_part() {
        let when = |seconds| When { seconds, start_at: None };
        for wait in [None, Some(Wait::SpinBlock(Duration::ZERO))] {
            let step = Duration::from_micros(100);
            let mut length = Duration::from_millis(200);
            gang_harness::wait_until("a step is done in a window", || {
                let own = Own { threads: 2, step, wait, parts: 2, when: when(length) };
                let parts = own.run().unwrap().parts;
                // Each part has two threads for half of the window, of which others may take much.
                let most = length.as_nanos() as u64 / step.as_nanos() as u64 + 2;
                assert!(parts.len() == 2 && parts.iter().all(|steps| *steps <= most), "{parts:?}");
                length *= 2;
                parts.iter().sum::<u64>() > 0
            });
        }
        let when = when(Duration::from_millis(1));
        let none = Own { threads: 1, step: Duration::ZERO, wait: None, parts: 1, when };
        assert!(none.run().is_err());
    }
}
