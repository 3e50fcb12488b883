//! The status file (L32): jobs and plans for everybody to read, rewritten all the time. Where users
//! see their own jobs alone, only the daemon's user can read it.
//!
//! Monitors and shells look often, and need not ask the daemon. The file is replaced as a whole, so
//! that no reader gets half of one. It is written at the start of every slice or ten times a
//! second, whichever is less often. While there is no job, it is not written. Writing takes a fixed
//! part of a CPU: with many jobs it is done less often.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use gang_linux::{clock, own_files};
use serde::Serialize;

use crate::{
    daemon::Daemon,
    error::Error,
    serve::description::{self, Described},
};

/// The shortest time from one writing to the next.
const LEAST_NS: u64 = 100_000_000;

/// The time between looks for a job while there is none: each look wakes the conductor.
const QUIET_NS: u64 = 500_000_000;

/// How much longer than a writing took there is none: it takes half a percent of a CPU at most.
const REST: u64 = 200;

/// Where the file of the daemon at a socket is.
pub fn path(socket: &Path) -> PathBuf {
    socket.with_file_name("status.json")
}

#[derive(Serialize)]
struct Status {
    /// Of this layout.
    version: u32,
    written_at_ns: u64,
    slice_ns: u64,
    cpus: usize,
    /// Runnable threads outside all jobs.
    unregistered_threads: u32,
    jobs: Vec<gang_protocol::v1::Job>,
    /// The slice under way, and those planned after it.
    frame: Vec<gang_protocol::v1::Row>,
}

/// Writes until it is dropped, and removes the file then.
pub struct StatusFile {
    path: PathBuf,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StatusFile {
    pub fn start(path: PathBuf, daemon: Arc<Daemon>) -> io::Result<StatusFile> {
        let (stop, stopped) = channel::<()>();
        let file = path.clone();
        let thread = std::thread::Builder::new().name("status".into()).spawn(move || {
            let mut was_empty = false;
            let mut has_failed = false;
            loop {
                let began_ns = clock::thread_cpu_ns();
                let (slice_ns, asking_ns) = match write(&file, &daemon, &mut was_empty) {
                    Ok(times) => {
                        has_failed = false;
                        times
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut has_failed, true) {
                            tracing::warn!(%error, path = %file.display(), "no status file");
                        }
                        (LEAST_NS, 0)
                    }
                };
                let took_ns = clock::thread_cpu_ns().saturating_sub(began_ns) + asking_ns;
                let quiet_ns = if was_empty { QUIET_NS } else { 0 };
                let rest_ns = took_ns.saturating_mul(REST).max(quiet_ns);
                let next_ns = until_next(clock::utc_ns(), slice_ns, rest_ns);
                if stopped.recv_timeout(Duration::from_nanos(next_ns))
                    != Err(RecvTimeoutError::Timeout)
                {
                    return;
                }
            }
        })?;
        Ok(StatusFile { path, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// The time until the file is written again, at the start of a slice.
fn until_next(now_ns: u64, slice_ns: u64, rest_ns: u64) -> u64 {
    let period_ns = slice_ns.max(LEAST_NS.next_multiple_of(slice_ns));
    (now_ns + rest_ns.max(1)).next_multiple_of(period_ns) - now_ns
}

/// Writes the file, where there is something new; returns the length of a slice, and how long the
/// conductor was busy with it.
fn write(path: &Path, daemon: &Daemon, was_empty: &mut bool) -> io::Result<(u64, u64)> {
    let ended = |_| io::Error::other("the conductor has ended");
    let (jobs, busy_ns) = description::all_jobs(daemon).map_err(ended)?;
    let jobs = jobs.into_iter().map(Described::brief).collect();
    let asked = daemon.conductor.ask(move |state| {
        let (now_ns, began_ns) = (clock::utc_ns(), clock::monotonic_ns());
        let schedule = state.core.schedule();
        let status = Status {
            version: 1,
            written_at_ns: now_ns,
            slice_ns: schedule.config().slice_ns,
            cpus: schedule.topology().cpus().len(),
            unregistered_threads: schedule.load(),
            jobs,
            frame: description::rows(&description::frame(state, now_ns, None)),
        };
        (status, busy_ns + clock::monotonic_ns() - began_ns)
    });
    let (status, asking_ns) = asked.map_err(Error::from).map_err(ended)?;
    let is_empty = status.jobs.is_empty();
    if is_empty && std::mem::replace(was_empty, is_empty) {
        return Ok((status.slice_ns, asking_ns));
    }
    *was_empty = is_empty;
    let new = path.with_extension("json.new");
    let text = serde_json::to_vec(&status)?;
    // A file for all has no place where users see their own jobs alone.
    let mode = if daemon.settings().private { 0o600 } else { 0o644 };
    own_files::replace(path, &new, &text, mode)?;
    Ok((status.slice_ns, asking_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn file_is_written_at_starts_of_slices() {
        assert_eq!(until_next(1_000 * MS, 10 * MS, 0), 100 * MS);
        assert_eq!(until_next(1_001 * MS, 10 * MS, 20 * MS), 99 * MS);
        assert_eq!(until_next(960 * MS, 30 * MS, 0), 120 * MS);
        assert_eq!(until_next(1_000 * MS, 5_000 * MS, 0), 4_000 * MS);
    }

    #[test]
    fn file_is_written_less_often_when_writing_is_slow() {
        assert_eq!(until_next(1_000 * MS, 10 * MS, 350 * MS), 400 * MS);
    }
}
