//! An end of the doctor before it has seen enough leaves the program as it was.
//!
//! A signal is noted, and the watching thread looks whether there was one. So all is undone on the
//! way out, as after any failure; the second signal ends the doctor at once.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use gang_linux::process;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// How soon a sleeping thread hears a signal.
const HEARD_WITHIN: Duration = Duration::from_millis(20);

/// That a signal is to end the doctor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted(pub i32);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "interrupted by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// The signal that came, of those that end programs. By default none is listened for.
#[derive(Clone, Debug, Default)]
pub struct Interruption(Arc<AtomicUsize>);

impl Interruption {
    /// Listens from now on; not for signals that are ignored, as of programs in the background.
    pub fn listen() -> Result<Interruption> {
        let status = process::read_lossy(Path::new("/proc/self/status"));
        let status = status.context("cannot read own status")?;
        let (number, is_second) = (Arc::default(), Arc::<AtomicBool>::default());
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if is_ignored(&status, signal) {
                continue;
            }
            // In this order: the first signal finds that there was none.
            flag::register_conditional_default(signal, Arc::clone(&is_second))
                .and_then(|_| flag::register(signal, Arc::clone(&is_second)))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&number), signal as usize))
                .context("cannot listen for signals")?;
        }
        Ok(Interruption(number))
    }

    /// Fails once there was a signal.
    pub fn check(&self) -> Result<(), Interrupted> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Interrupted(signal as i32)),
        }
    }

    pub fn sleep(&self, length: Duration) -> Result<(), Interrupted> {
        let end = Instant::now() + length;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(HEARD_WITHIN));
        }
    }
}

/// Whether a process ignores a signal, by what its `status` says (proc_pid_status(5)).
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_mask() {
        let status = "Name:\tx\nSigIgn:\t0000000000001003\nSigCgt:\tffffffffffffffff\n";
        let ignored = [SIGHUP, SIGINT, SIGTERM].map(|signal| is_ignored(status, signal));
        assert_eq!(ignored, [true, true, false]);
        assert!(!is_ignored("", SIGINT));
    }

    #[test]
    fn only_a_signal_ends_a_sleep() {
        let none = Interruption::default();
        assert_eq!(none.sleep(Duration::from_millis(1)), Ok(()));
        let noted = Interruption(Arc::new(AtomicUsize::new(SIGTERM as usize)));
        assert_eq!(noted.sleep(Duration::from_secs(3600)), Err(Interrupted(SIGTERM)));
    }
}
