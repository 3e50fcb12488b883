//! The stretch of time in which a workload counts.
//!
//! Copies that are compared must be measured over the very same time, or a slice more for one
//! shows up as a gain. So a window is two points of CLOCK_REALTIME that are handed to every copy;
//! copies work from their start, and count only what they complete inside the window.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, in nanoseconds since the Unix epoch.
#[inline]
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// CPU time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until a point in time, in nanoseconds since the Unix epoch.
pub fn sleep_until_ns(at_ns: u64) {
    let at = Timespec {
        tv_sec: (at_ns / 1_000_000_000) as i64,
        tv_nsec: (at_ns % 1_000_000_000) as i64,
    };
    while clock_nanosleep_absolute(ClockId::Realtime, &at) == Err(rustix::io::Errno::INTR) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub start_ns: u64,
    pub end_ns: u64,
}

/// Where a moment lies relative to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Before,
    Inside,
    After,
}

impl Window {
    pub fn new(start_ns: u64, length: Duration) -> Self {
        Self { start_ns, end_ns: start_ns + length.as_nanos() as u64 }
    }

    pub fn length_ns(self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// The start belongs to the window, the end does not.
    #[inline]
    pub fn phase(self, now_ns: u64) -> Phase {
        if now_ns < self.start_ns {
            Phase::Before
        } else if now_ns < self.end_ns {
            Phase::Inside
        } else {
            Phase::After
        }
    }
}

/// CPU time of one thread inside a window, read at the first look after each of its edges.
#[derive(Debug, Default)]
pub struct CpuMeter {
    at_start_ns: Option<u64>,
    spent_ns: u64,
}

impl CpuMeter {
    #[inline]
    pub fn look(&mut self, phase: Phase) {
        match phase {
            Phase::Before => {}
            Phase::Inside if self.at_start_ns.is_some() => {}
            Phase::Inside => self.at_start_ns = Some(thread_cpu_ns()),
            // A thread that never saw the inside of the window did not run in it.
            Phase::After => self.spent_ns = self.at_start_ns.map_or(0, |at| thread_cpu_ns() - at),
        }
    }

    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        let window = Window::new(1_000, Duration::from_nanos(50));
        assert_eq!(window.length_ns(), 50);
        assert_eq!(window.phase(999), Phase::Before);
        assert_eq!(window.phase(1_000), Phase::Inside);
        assert_eq!(window.phase(1_049), Phase::Inside);
        assert_eq!(window.phase(1_050), Phase::After);
    }

    #[test]
    fn thread_that_missed_window_spent_nothing_in_it() {
        let mut meter = CpuMeter::default();
        meter.look(Phase::Before);
        meter.look(Phase::After);
        assert_eq!(meter.spent_ns(), 0);
    }
}
