//! The process that undoes everything when the daemon dies.
//!
//! It is a process of its own, so that nothing that ends the daemon ends it too. The daemon holds
//! the other end of its standard input, a socket, and writes a byte there now and then. The end of
//! the stream says that the daemon is gone, silence that it is stuck. The jobs of a stuck daemon
//! also leave the group that gives way to everybody. A daemon that was only slow reads a byte from
//! the socket once its jobs were released. Only it knows which of them are to stand still, and
//! moves them back into that group. The guardian stands above every gang, so that it runs even
//! while gangs spin on all CPUs.

use std::{io::Read, os::fd::AsFd, time::Duration};

use gang_linux::{Roots, clock, memory, sched};
use gang_timetable::priority;
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{SendFlags, send},
};

use crate::{release, store::Store};

/// Silence after which the daemon counts as stuck. It writes several times as often.
pub const SILENCE: Duration = Duration::from_secs(2);

/// The daemon goes on, or is gone.
fn has_news(daemon: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(daemon, PollFlags::IN)];
    poll(&mut fds, Some(&clock::timespec(Duration::ZERO))).is_ok_and(|ready| ready > 0)
}

/// Waits above all gangs for the end of the daemon, then releases its jobs and returns.
pub fn run(roots: &Roots, store: &Store, daemon: impl Read + AsFd) {
    // Without the right to either it still works, only later.
    let _ = sched::become_fifo(priority::GUARDIAN);
    let _ = memory::lock_all();
    watch(roots, store, daemon, SILENCE);
}

/// Waits for the end of the daemon, which is stuck after some time of silence; then releases its
/// jobs and returns.
pub fn watch(roots: &Roots, store: &Store, mut daemon: impl Read + AsFd, silence: Duration) {
    let mut stuck = false;
    let mut bytes = [0; 64];
    loop {
        let ready = {
            let mut fds = [PollFd::new(&daemon, PollFlags::IN)];
            match poll(&mut fds, Some(&clock::timespec(silence))) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => break,
                Ok(ready) => ready > 0,
            }
        };
        if ready {
            match daemon.read(&mut bytes) {
                Ok(0) => break,
                Err(e) if e.kind() != std::io::ErrorKind::Interrupted => break,
                _ => stuck = false,
            }
        } else if !stuck {
            stuck = true;
            let found = release::all(roots, store);
            tracing::error!(?found, "the daemon is stuck: its jobs were released");
            release::all_from_common_groups(store, || !has_news(&daemon));
            // For the case that it wakes up. A full socket holds such a byte already.
            let _ = send(&daemon, b".", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }
    let found = release::all(roots, store);
    if found != release::Found::default() {
        tracing::warn!(
            jobs = found.jobs,
            threads = found.threads,
            lowered = found.lowered,
            paused = found.paused,
            "the daemon is gone: its jobs were released"
        );
    }
}
