//! How far a job is, reported from its inner loop.
//!
//! Problem: the loop that knows it may turn a million times a second, and must not wait for
//! anybody.
//!
//! Approach: most reports read a clock, and are left. Some times a second one goes to the daemon,
//! without waiting for its answer ([`crate::connection::report`]). Memory that the program shares
//! with the daemon would be cheaper still; but then the daemon would read what a user can shorten,
//! fill or hand to somebody else.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use gang_protocol::progress;
use rustix::time::{ClockId, clock_gettime};

use crate::{
    connection::report,
    handle::{self, Handle},
    result::{Failure, answer},
};

/// From one report of a job that goes to the daemon to the next: views look twice a second.
const EVERY_MS: u64 = 250;

/// After a failure nothing is reported for so long, and for ten times as long as it took. A daemon
/// that hangs takes a tenth of the time at most.
const AFTER_FAILURE_MS: u64 = 5_000;

/// When a report is due.
pub struct Pace {
    due_ms: AtomicU64,
    /// The end of a job is reported before that, since nobody may report it later.
    end_due_ms: AtomicU64,
}

impl Pace {
    pub const fn new() -> Pace {
        Pace { due_ms: AtomicU64::new(0), end_due_ms: AtomicU64::new(0) }
    }

    /// The next report is due.
    pub fn begin(&self) {
        self.due_ms.store(0, Ordering::Relaxed);
        self.end_due_ms.store(0, Ordering::Relaxed);
    }

    /// True for one of the threads that ask.
    fn is_due(&self, now_ms: u64, is_end: bool) -> bool {
        let take = |due: &AtomicU64| {
            let at_ms = due.load(Ordering::Relaxed);
            let next_ms = now_ms + EVERY_MS;
            now_ms >= at_ms
                && due
                    .compare_exchange(at_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        };
        take(&self.due_ms) || is_end && take(&self.end_due_ms)
    }

    fn put_off(&self, until_ms: u64) {
        self.due_ms.store(until_ms, Ordering::Relaxed);
        self.end_due_ms.store(until_ms, Ordering::Relaxed);
    }
}

/// A clock that is read without a call of the system, to some milliseconds.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::try_from(now).map_or(0, |now| now.as_millis() as u64)
}

#[unsafe(no_mangle)]
pub extern "C" fn gang_job_progress(job: *mut Handle, done: f64, total: f64) -> u32 {
    answer(|| {
        let (job, pace) = handle::job_and_pace(job)?;
        if !progress::is_accepted(done, total) {
            let wanted = progress::ACCEPTED;
            return Err(Failure::invalid(format!("{done} of {total} is no progress: {wanted}")));
        }
        let begun_ms = now_ms();
        if !pace.is_due(begun_ms, done == total) {
            return Ok(());
        }
        report(job, done, total).inspect_err(|_| {
            let now_ms = now_ms();
            pace.put_off(now_ms + AFTER_FAILURE_MS + 10 * now_ms.saturating_sub(begun_ms));
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_paced_and_an_end_is_due_at_once() {
        let pace = Pace::new();
        let due = |now_ms, is_end| pace.is_due(now_ms, is_end);
        assert!(due(1000, false));
        assert!(!due(1000, false) && !due(1000 + EVERY_MS - 1, false));
        assert!(due(1001, true), "nobody may report it later");
        assert!(!due(1002, true), "a loop of short ones is no flood");
        assert!(due(1000 + EVERY_MS, false));
        pace.put_off(9000);
        assert!(!due(8999, false) && !due(8999, true));
        assert!(due(9000, true));
        pace.begin();
        assert!(due(1, false), "of another job");
    }
}
