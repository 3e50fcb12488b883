//! The status file (L32): what everybody may know of the jobs, rewritten all the time.
//!
//! It is for those who look often, or without asking the daemon: monitors, and shells. It is replaced as
//! a whole, so that nobody reads half of one; at the start of every slice or ten times a second, whichever
//! is less often; and not at all while there is no job.

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

use gang_linux::clock;
use serde::Serialize;

use crate::{
    daemon::Daemon,
    description::{self, Described},
};

/// The shortest time from one writing to the next.
const LEAST_NS: u64 = 100_000_000;

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
        let (stop, stopped) = channel();
        let file = path.clone();
        let thread = std::thread::Builder::new().name("status".into()).spawn(move || {
            let mut was_empty = false;
            let mut has_failed = false;
            loop {
                let slice_ns = match write(&file, &daemon, &mut was_empty) {
                    Ok(slice_ns) => {
                        has_failed = false;
                        slice_ns
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut has_failed, true) {
                            tracing::warn!(%error, path = %file.display(), "no status file");
                        }
                        LEAST_NS
                    }
                };
                let period_ns = slice_ns.max(LEAST_NS);
                let now_ns = clock::utc_ns();
                let next_ns = (now_ns + 1).next_multiple_of(period_ns) - now_ns;
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

/// Writes the file, where there is something new; returns the length of a slice.
fn write(path: &Path, daemon: &Daemon, was_empty: &mut bool) -> io::Result<u64> {
    let status = daemon.conductor.ask(|state| {
        let now_ns = clock::utc_ns();
        let schedule = &state.schedule;
        let shares = schedule.shares();
        let jobs = state.jobs.values();
        Status {
            version: 1,
            written_at_ns: now_ns,
            slice_ns: schedule.config().slice_ns,
            cpus: schedule.topology().cpus().len(),
            unregistered_threads: schedule.load(),
            jobs: jobs.map(|job| Described::of(state, job, &shares, now_ns).brief()).collect(),
            frame: description::frame(state, now_ns),
        }
    });
    let status = status.map_err(|_| io::Error::other("the conductor has ended"))?;
    let is_empty = status.jobs.is_empty();
    if is_empty && std::mem::replace(was_empty, is_empty) {
        return Ok(status.slice_ns);
    }
    *was_empty = is_empty;
    let new = path.with_extension("json.new");
    fs::write(&new, serde_json::to_vec(&status)?)?;
    fs::rename(&new, path)?;
    Ok(status.slice_ns)
}
