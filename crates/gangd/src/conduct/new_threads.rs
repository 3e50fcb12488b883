//! When gangs are read again because a thread was started.
//!
//! Problem: a thread that a gang starts in its slot gives way to everybody until a timetable has
//! it. A switcher notices that a thread was started ([`gang_engine::switcher::Lookout`]); only
//! reading every gang again shows which gang started it. A gang that starts threads all the time
//! would have all gangs read, and everything planned anew, in each of its slots. Reading takes
//! longer with more threads, and no other gang would be switched in time.
//!
//! Approach: the cost of one look decides when the next one is made.
//!
//! Properties: looking takes a tenth of the time at most, whatever gangs do, and each new thread is
//! looked for in the end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// One part in so many of the time is spent on looking.
const PART: u64 = 10;

/// Threads that came since it was last looked. Times are CLOCK_MONOTONIC.
#[derive(Debug, Default)]
pub struct ThreadStarts {
    /// A thread was started somewhere.
    came: Arc<AtomicBool>,
    /// No look is made before this moment.
    from_ns: u64,
}

impl ThreadStarts {
    /// The flag that a switcher sets when it sees that a thread was started.
    pub fn sign(&self) -> Arc<AtomicBool> {
        self.came.clone()
    }

    /// How long until it is to be looked; nothing where no thread came.
    pub fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        self.came.load(Ordering::Acquire).then(|| self.from_ns.saturating_sub(now_ns))
    }

    /// Threads that came are of no gang.
    pub fn forget(&self) {
        self.came.store(false, Ordering::Release);
    }

    /// True where a thread came and it is time to look, which is to be done then.
    pub fn take(&self, now_ns: u64) -> bool {
        now_ns >= self.from_ns && self.came.swap(false, Ordering::AcqRel)
    }

    /// A look was made, or new threads were planned for, at so much CPU time.
    pub fn looked(&mut self, now_ns: u64, cost_ns: u64) {
        self.from_ns = now_ns + PART * cost_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_takes_a_tenth_of_the_time_at_most() {
        let mut thread_starts = ThreadStarts::default();
        let (mut now_ns, mut spent_ns) = (0, 0);
        while now_ns < 1_000_000 {
            // Threads come without end, and looking costs more and more.
            thread_starts.sign().store(true, Ordering::Release);
            let cost_ns = 100 + now_ns / 1_000;
            if thread_starts.take(now_ns) {
                now_ns += cost_ns;
                spent_ns += cost_ns;
                thread_starts.looked(now_ns, cost_ns);
            }
            let due_in_ns = thread_starts.due_in_ns(now_ns);
            now_ns += due_in_ns.unwrap_or(50).max(1);
        }
        assert!(spent_ns * PART <= now_ns + PART * 1_100, "{spent_ns} of {now_ns}");
        assert!(spent_ns * PART * 2 > now_ns, "and it is looked: {spent_ns} of {now_ns}");
    }

    #[test]
    fn each_arrival_is_looked_for_once() {
        let mut thread_starts = ThreadStarts::default();
        assert!(!thread_starts.take(0) && thread_starts.due_in_ns(0).is_none(), "nobody came");
        thread_starts.sign().store(true, Ordering::Release);
        assert!(thread_starts.take(0) && !thread_starts.take(0));
        thread_starts.looked(0, 7);
        thread_starts.sign().store(true, Ordering::Release);
        assert_eq!(thread_starts.due_in_ns(30), Some(40));
        assert!(!thread_starts.take(69) && thread_starts.take(70), "it is not forgotten meanwhile");
        thread_starts.sign().store(true, Ordering::Release);
        thread_starts.forget();
        assert!(!thread_starts.take(100));
    }
}
