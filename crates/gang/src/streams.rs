//! Standard streams that the caller has closed.
//!
//! Problem: before `main`, Rust opens `/dev/null` in the place of each standard stream that is
//! closed. A program that `gang run` becomes would find it open, and its output would be lost
//! without an error.
//!
//! Approach: before Rust does so, it is noted which are closed; they are closed again before the
//! program is executed.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::fcntl_getfd;
use rustix::stdio;

/// One bit for each standard stream that was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

#[ctor::ctor]
fn note() {
    let is_closed = [
        fcntl_getfd(stdio::stdin()).is_err(),
        fcntl_getfd(stdio::stdout()).is_err(),
        fcntl_getfd(stdio::stderr()).is_err(),
    ];
    let bits = is_closed.into_iter().zip([1, 2, 4]).filter(|(closed, _)| *closed);
    CLOSED.store(bits.map(|(_, bit)| bit).sum(), Ordering::Relaxed);
}

/// The standard streams that were closed as this process began.
pub fn closed() -> impl Iterator<Item = RawFd> {
    let bits = CLOSED.load(Ordering::Relaxed);
    (0..3).filter(move |stream| bits & (1 << stream) != 0)
}

/// Closes them again; nothing is said or read after that.
pub fn close_again() {
    closed().for_each(|stream| drop(nix::unistd::close(stream)));
}
