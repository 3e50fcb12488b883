//! Whether a job uses CPU: when it falls asleep, and when it wakes (L19, L20).
//!
//! Problem: a job that wants no CPU is to have no slots, and to have them again as soon as it wants
//! one. But a job that stands still out of its slots shows no wish there. And stopping a job and
//! letting it go on takes CPU time, too.
//!
//! Approach: jobs are looked at in turn. A job falls asleep if it used no CPU for a while, had
//! slots in which it could have, and has no runnable thread. A job that used some CPU, or waited
//! for some, wakes.
//!
//! Properties: a job with a runnable thread never falls asleep; CPU time that a stop takes wakes no
//! job.

/// A job that used no CPU for this long, and has no runnable thread, falls asleep: it gets no slots
/// until it uses CPU again.
const IDLE_AFTER_NS: u64 = 250_000_000;

/// Slots that a job must have left unused besides, where it cannot run out of them.
const IDLE_SLOTS: u64 = 4;

/// CPU time that a thread uses by being stopped and let go on again, at most: less in a slot is no
/// use of the CPU.
const STOP_NS: u64 = 100_000;

/// A job that fell asleep is let go on for good, which costs CPU time once more. The next look
/// shows that time, and where the look comes soon, so does the one after it.
const LET_GO_NS: u64 = 1_000_000_000;

/// Whether a job uses CPU. Times are CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    /// The job takes part in the schedule. A job starts asleep, and wakes with its first process.
    pub awake: bool,
    pub cpu_time_ns: u64,
    /// Time in which a thread of it waited for a CPU.
    pub waited_us: u64,
    /// When its CPU time was last seen to grow.
    pub last_used_ns: u64,
    /// When it fell asleep last, of its own accord.
    asleep_since_ns: u64,
    /// Its time in slots up to then.
    pub in_slot_ns: u64,
    /// Its slots up to the last look at its CPU time.
    slots: u64,
}

/// One look at a job.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub now_ns: u64,
    pub cpu_time_ns: u64,
    /// By the kernel, of a job that sleeps. A thread that sleeps and wants to run may wait long for
    /// its first moment on a CPU.
    pub waited_us: Option<u64>,
    /// Its slots, and its time in them, so far.
    pub slots: u64,
    pub in_slot_ns: u64,
    pub threads: usize,
    /// Out of its slots it stands still.
    pub stands_still: bool,
    /// The job has too many threads to have slots.
    pub has_too_many_threads: bool,
    pub slice_ns: u64,
}

/// The consequence of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    None,
    Wakes,
    FallsAsleep,
}

impl Activity {
    /// Takes note of a look. Whether a thread of the job wants to run is asked only where it may
    /// fall asleep.
    pub fn look(&mut self, look: &Look, has_runnable: impl FnOnce() -> bool) -> Change {
        let waited_us = look.waited_us.unwrap_or(self.waited_us);
        let used = look.cpu_time_ns.abs_diff(self.cpu_time_ns) > self.by_stops_ns(look)
            || waited_us != self.waited_us;
        (self.cpu_time_ns, self.waited_us) = (look.cpu_time_ns, waited_us);
        self.slots = look.slots;
        if used {
            (self.last_used_ns, self.in_slot_ns) = (look.now_ns, look.in_slot_ns);
        }
        // A job that stands still out of its slots cannot be seen to be runnable there.
        let in_slot_ns = look.in_slot_ns - self.in_slot_ns;
        let had_slots = !look.stands_still || in_slot_ns >= IDLE_SLOTS * look.slice_ns;
        let is_idle = look.now_ns.saturating_sub(self.last_used_ns) > IDLE_AFTER_NS;
        if used && !self.awake && !look.has_too_many_threads {
            Change::Wakes
        } else if self.awake && had_slots && is_idle && !has_runnable() {
            Change::FallsAsleep
        } else {
            Change::None
        }
    }

    /// CPU time that it may have used by being stopped and let go on.
    fn by_stops_ns(&self, look: &Look) -> u64 {
        if !look.stands_still {
            return 0;
        }
        let asleep_ns = look.now_ns.saturating_sub(self.asleep_since_ns);
        let is_let_go = !self.awake && asleep_ns < LET_GO_NS;
        let stops = look.slots.saturating_sub(self.slots);
        stops.max(is_let_go.into()) * look.threads as u64 * STOP_NS
    }

    /// The job falls asleep; so long a thread of it has waited for a CPU by then.
    pub fn fell_asleep(&mut self, now_ns: u64, slots: u64, waited_us: u64) {
        self.asleep_since_ns = now_ns;
        self.slots = slots.saturating_sub(1);
        self.waited_us = waited_us;
    }

    /// The job is known to want to run, whatever was seen of its CPU time.
    pub fn is_wanted(&mut self, now_ns: u64, in_slot_ns: u64) {
        (self.last_used_ns, self.in_slot_ns) = (now_ns, in_slot_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn look(at_ms: u64, cpu_time_ns: u64) -> Look {
        Look {
            now_ns: at_ms * MS,
            cpu_time_ns,
            waited_us: None,
            slots: 0,
            in_slot_ns: 0,
            threads: 2,
            stands_still: false,
            has_too_many_threads: false,
            slice_ns: 20 * MS,
        }
    }

    fn awake() -> Activity {
        Activity { awake: true, ..Activity::default() }
    }

    #[test]
    fn job_without_cpu_use_falls_asleep() {
        let mut job = awake();
        assert_eq!(job.look(&look(1_000, 5), || panic!("it used some")), Change::None);
        assert_eq!(job.look(&look(1_250, 5), || panic!("too early")), Change::None);
        assert_eq!(job.look(&look(1_251, 5), || true), Change::None);
        assert_eq!(job.look(&look(1_252, 5), || false), Change::FallsAsleep);
    }

    #[test]
    fn job_that_uses_or_awaits_a_cpu_wakes() {
        let mut job = Activity::default();
        assert_eq!(job.look(&look(1_000, 0), || false), Change::None);
        assert_eq!(job.look(&look(1_100, 1), || false), Change::Wakes);
        assert_eq!(job.look(&look(1_200, 1), || false), Change::None);
        let waits = Look { waited_us: Some(7), ..look(1_300, 1) };
        assert_eq!(job.look(&waits, || false), Change::Wakes);
        let too_many = Look { has_too_many_threads: true, ..look(1_400, 9) };
        assert_eq!(job.look(&too_many, || false), Change::None, "it has no slots");
    }

    #[test]
    fn paused_job_falls_asleep_in_unused_slots() {
        let still = |at_ms, in_slot_ms| Look {
            stands_still: true,
            in_slot_ns: in_slot_ms * MS,
            ..look(at_ms, 0)
        };
        let mut job = awake();
        assert_eq!(job.look(&still(1_000, 79), || false), Change::None, "it had no chance");
        assert_eq!(job.look(&still(2_000, 80), || false), Change::FallsAsleep);
    }

    #[test]
    fn cpu_time_of_a_stop_is_no_use() {
        let mut job = awake();
        let still = |at_ms, cpu_time_ns, slots| Look {
            stands_still: true,
            slots,
            ..look(at_ms, cpu_time_ns)
        };
        job.look(&still(1_000, 0, 0), || true);
        // Two threads in three slots.
        job.look(&still(1_100, 6 * STOP_NS, 3), || true);
        assert_eq!(job.last_used_ns, 0);
        job.look(&still(1_200, 12 * STOP_NS + 1, 6), || true);
        assert_eq!(job.last_used_ns, 1_200 * MS);
        // The job is let go on for good, and two looks see that where it comes soon.
        job.awake = false;
        job.fell_asleep(1_300 * MS, 6, 0);
        let before = job.cpu_time_ns;
        assert_eq!(job.look(&still(1_400, before + 2 * STOP_NS, 6), || false), Change::None);
        assert_eq!(job.look(&still(1_500, before + 4 * STOP_NS, 6), || false), Change::None);
        assert_eq!(job.look(&still(2_400, before + 4 * STOP_NS + 1, 6), || false), Change::Wakes);
    }
}
