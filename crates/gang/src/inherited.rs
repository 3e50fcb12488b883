//! Streams and signals as the caller had them, which Rust changes before `main`.
//!
//! Problem: Rust opens `/dev/null` in the place of each standard stream that is closed, and ignores
//! SIGPIPE. A program that `gang run` becomes would find these streams open, and its output would
//! be lost without an error; and nobody could tell whether the caller had ignored SIGPIPE.
//!
//! Approach: both are noted before Rust changes them. Streams that were closed are closed again
//! before the program is executed.

use std::fs;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use nix::sys::signal::Signal;
use rustix::io::fcntl_getfd;
use rustix::stdio;

/// One bit for each standard stream that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);
static IGNORED_SIGPIPE: AtomicBool = AtomicBool::new(false);

#[ctor::ctor]
fn note() {
    let is_closed = [
        fcntl_getfd(stdio::stdin()).is_err(),
        fcntl_getfd(stdio::stdout()).is_err(),
        fcntl_getfd(stdio::stderr()).is_err(),
    ];
    let bits = is_closed.into_iter().zip([1, 2, 4]).filter(|(closed, _)| *closed);
    CLOSED.store(bits.map(|(_, bit)| bit).sum(), Ordering::Relaxed);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    IGNORED_SIGPIPE.store(ignored(&status, Signal::SIGPIPE), Ordering::Relaxed);
}

/// Whether a signal is ignored, as `/proc/PID/status` says it.
fn ignored(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal as i32 - 1)) != 0)
}

/// Whether SIGPIPE was ignored as this process began.
pub fn ignored_sigpipe() -> bool {
    IGNORED_SIGPIPE.load(Ordering::Relaxed)
}

/// The standard streams that were closed as this process began.
pub fn closed_streams() -> impl Iterator<Item = RawFd> {
    let bits = CLOSED.load(Ordering::Relaxed);
    (0..3).filter(move |stream| bits & (1 << stream) != 0)
}

/// Closes them again; nothing is said or read after that.
pub fn close_streams() {
    for stream in closed_streams() {
        let _ = nix::unistd::close(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_bits_of_a_mask() {
        let status = "Name:\tgang\nSigBlk:\t0000000000001000\nSigIgn:\t0000000000001001\n";
        assert!(ignored(status, Signal::SIGPIPE) && ignored(status, Signal::SIGHUP));
        assert!(!ignored(status, Signal::SIGINT));
        assert!(!ignored("", Signal::SIGPIPE) && !ignored("SigIgn:\tx\n", Signal::SIGPIPE));
    }
}
