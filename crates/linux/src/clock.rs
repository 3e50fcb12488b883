//! The clock that coordinates (UTC) and sleeping towards a point of it.

use std::{
    io,
    sync::atomic::{AtomicI64, AtomicU32, Ordering},
    time::Duration,
};

use rustix::{
    thread::futex,
    time::{ClockId, Timespec, clock_gettime},
};

use crate::{Error, Result};

/// How far this process reads UTC ahead of CLOCK_REALTIME, in nanoseconds; 0 but in experiments.
static ERROR_NS: AtomicI64 = AtomicI64::new(0);

/// A point in time, in nanoseconds since the Unix epoch (CLOCK_REALTIME).
pub fn utc_ns() -> u64 {
    let true_ns = nanoseconds(clock_gettime(ClockId::Realtime));
    true_ns.saturating_add_signed(ERROR_NS.load(Ordering::Relaxed))
}

/// From now on [`utc_ns`] is ahead of CLOCK_REALTIME by so much, in this process.
///
/// So hosts that have one clock can be studied as hosts whose clocks differ. It is to be set before
/// anybody reads the time.
pub fn set_error(ahead: Duration) {
    let ahead_ns = i64::try_from(ahead.as_nanos()).unwrap_or(i64::MAX);
    ERROR_NS.store(ahead_ns, Ordering::Relaxed);
}

/// Nanoseconds of CLOCK_MONOTONIC: for distances only.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Clock ticks of 10 ms since boot, as `/proc` counts the starts of threads (proc(5)).
pub fn boot_ticks() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime)) / 10_000_000
}

/// CPU time of this process, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// CPU time of any process, with all threads that it had, in nanoseconds.
pub fn cpu_ns_of(pid: u32) -> Result<u64> {
    let error = |code: i32| {
        Error::new(
            "read",
            format_args!("the CPU time of {pid}"),
            io::Error::from_raw_os_error(code),
        )
    };
    let mut of_process = 0;
    // SAFETY: the C library writes a number to the given place.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut of_process) };
    if failed != 0 {
        return Err(error(failed));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a time to the given place.
    #[allow(unsafe_code)]
    let failed = unsafe { libc::clock_gettime(of_process, &raw mut time) } != 0;
    if failed {
        // The clock was there a moment ago: its process has ended since (EINVAL).
        return Err(error(libc::ESRCH));
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time of this thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + time.tv_nsec as u64
}

/// A distance as the kernel wants it.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// A sleep that another thread can end: a word in memory and the kernel's futex.
///
/// Sleeping takes a distance and not a point of UTC, so that a step of the system clock lengthens
/// no sleep. Neither side allocates or takes a lock.
#[derive(Debug, Default)]
pub struct Alarm {
    word: AtomicU32,
}

impl Alarm {
    /// The value that [`Alarm::sleep`] takes; read it before looking whether there is something to
    /// do.
    pub fn seen(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Ends the sleep under way, or the next one of a sleeper that has not seen this yet.
    pub fn ring(&self) {
        self.word.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }

    /// Sleeps for a time, or until the alarm rings, or rang since `seen`.
    pub fn sleep(&self, seen: u32, duration: Option<Duration>) {
        let timeout = duration.map(timespec);
        // The caller looks at its clock again, for any end of the sleep.
        let _ = futex::wait(&self.word, futex::Flags::PRIVATE, seen, timeout.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_another_process_is_read() {
        let mine = || process_cpu_ns();
        let (before_ns, told_ns) = (mine(), cpu_ns_of(std::process::id()).unwrap());
        assert!((before_ns..=mine()).contains(&told_ns));
        // Numbers of processes are below this (PID_MAX_LIMIT).
        let error = cpu_ns_of(1 << 22).unwrap_err();
        assert!(error.is_gone(), "{error}: {}", error.source);
    }

    #[test]
    fn an_alarm_that_rang_before_the_sleep_is_not_lost() {
        let alarm = Alarm::default();
        let seen = alarm.seen();
        alarm.ring();
        alarm.sleep(seen, None);
    }

    #[test]
    fn clocks_go_on() {
        let (utc, monotonic) = (utc_ns(), monotonic_ns());
        assert!(utc > 1_700_000_000_000_000_000 && monotonic > 0);
        assert!(monotonic_ns() >= monotonic);
    }
}
