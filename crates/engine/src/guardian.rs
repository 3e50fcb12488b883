//! The process that undoes everything when the daemon dies.
//!
//! It is a process of its own, so that nothing that ends the daemon ends it too. The daemon holds
//! the other end of its standard input, a socket, and writes a byte there now and then. The end of
//! the stream says that the daemon is gone, silence that it is stuck. The jobs of a stuck daemon
//! also leave the group that gives way to everybody. A daemon that was only slow reads a byte from
//! the socket once its jobs were released. Only it knows which of them are to stand still, and
//! moves them back into that group. The guardian stands above every gang, so that it runs even
//! while gangs spin on all CPUs.
//!
//! The guardian of a daemon that a program started has a cgroup of its own, at the root of version
//! 2.
//! A manager that kills the daemon's group (cgroup.kill, memory.oom.group) does not kill the
//! guardian with it. One group is enough: of version 1 such a daemon is in no group below a root.
//! The guardian makes and removes the group itself, so that no other process has to know when.

use std::{io::Read, os::fd::AsFd, time::Duration};

use gang_linux::{Result, Roots, cgroup::Group, clock, memory, sched};
use gang_timetable::priority;
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{SendFlags, send},
};

use crate::{release, store::Store, thread};

/// Silence after which the daemon counts as stuck. It writes several times as often.
pub const SILENCE: Duration = Duration::from_secs(2);

/// The daemon goes on, or is gone.
fn has_news(daemon: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(daemon, PollFlags::IN)];
    poll(&mut fds, Some(&clock::timespec(Duration::ZERO))).is_ok_and(|ready| ready > 0)
}

/// Waits above all gangs for the end of the daemon, then releases its jobs and returns.
///
/// The guardian is in the group `apart` meanwhile, where one is given.
pub fn run(roots: &Roots, store: &Store, daemon: impl Read + AsFd, apart: Option<&Group>) {
    // Without the right to either it still works, only later.
    let _ = sched::become_fifo(priority::GUARDIAN);
    let _ = memory::lock_all();
    // After SCHED_FIFO: a group may not have real-time threads (RT_GROUP_SCHED). The kernel refuses
    // to move one there, and a guardian of high priority matters more than one apart.
    if let Some(group) = apart {
        if let Err(error) = enter(group) {
            tracing::info!(%error, source = %error.source, "the guardian shares its daemon's group");
        }
    }
    watch(roots, store, daemon, SILENCE);
    apart.into_iter().for_each(leave);
}

/// How often a group is made anew. The guardian before, whose daemon had the same name, may remove
/// the group as its last act.
const ENTRIES: usize = 3;

/// Makes the group and moves this process into it.
fn enter(group: &Group) -> Result<()> {
    let once = || group.create().and_then(|()| group.add(std::process::id()));
    (1..ENTRIES).find_map(|_| once().ok()).map_or_else(once, Ok)
}

/// Moves this process to the group above, and removes the group, where it is not another guardian's
/// by now.
fn leave(group: &Group) {
    if let Some(above) = group.path().parent() {
        let _ = Group::at(above).add(std::process::id());
    }
    let _ = group.remove();
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
            release::all_from_common_groups(roots, store, || !has_news(&daemon));
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
    // Of another daemon, of owners that want the same, or missed: they are not changed. All threads
    // of a machine are many, and nobody waits for this.
    let _ = sched::set(0, &sched::Attributes::other(0));
    if let Some(left) = still_raised(&thread::as_in_slot(&roots.proc).unwrap_or_default()) {
        tracing::warn!("{left}");
    }
}

/// Threads that are named in the log, at most.
const NAMED_MAX: usize = 16;

/// The words for threads that are raised after a release; none where there are none.
fn still_raised(tids: &[u32]) -> Option<String> {
    let names: Vec<String> = tids.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let more = match tids.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = names.join(", ");
    (!tids.is_empty()).then(|| {
        format!("no job on file has them, and they are as in a slot: threads {names}{more}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_raised_yet_are_named() {
        assert_eq!(still_raised(&[]), None);
        let text = |count| still_raised(&(1..=count).collect::<Vec<u32>>()).unwrap();
        assert!(text(2).ends_with("as in a slot: threads 1, 2"), "{}", text(2));
        assert!(text(20).ends_with("15, 16 and 4 more"), "{}", text(20));
    }
}
