//! All that is made for a job when its first process or thread comes.
//!
//! Problem: groups, files and a place in the schedule are made one after the other, and any step
//! may fail. The process ends on its way, the disk is full, the daemon has no descriptors left.
//!
//! Approach: one owner of all of it. The record on file says what is going to be made; then it is
//! made. An owner that is dropped before the job is complete undoes whatever is there by then, also
//! what the job's first member had in a slot meanwhile.
//!
//! Properties: a start that fails leaves nothing but a job without members, or none. A step that
//! cannot be undone at once is undone later ([`super::cleanup`]).

use std::sync::Arc;

use gang_engine::bound::ProcessHandle;
use gang_schedule::JobId;
use gang_timetable::record::Record;

use super::cleanup::Remains;
use crate::{daemon::Daemon, error::Error};

/// A job that is being made, until it is complete. The thread that has this also has the lock of
/// the empty job.
pub struct Founding<'a> {
    daemon: &'a Daemon,
    record: Box<Record>,
    /// The first process; absent where a single thread comes.
    process: Option<Arc<ProcessHandle>>,
    is_complete: bool,
}

impl<'a> Founding<'a> {
    /// Nothing is made yet. The record says what is going to be.
    pub fn new(
        daemon: &'a Daemon,
        record: Record,
        process: Option<Arc<ProcessHandle>>,
    ) -> Founding<'a> {
        Founding { daemon, record: Box::new(record), process, is_complete: false }
    }

    /// Puts on file what is going to be made.
    pub fn file(&self) -> Result<(), Error> {
        self.daemon.jobs.files.put(Some(*self.record.clone()))
    }

    /// Makes less than was to be made.
    pub fn change(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), Error> {
        change(&mut self.record);
        self.file()
    }

    /// The job lives on its own from now on.
    pub fn complete(mut self) {
        self.is_complete = true;
    }

    fn undo(&self) {
        let (daemon, job) = (self.daemon, JobId(self.record.id));
        let is_in_schedule = daemon
            .conductor
            .ask(move |state| state.job(job).is_ok_and(|job| job.home.is_some()))
            .unwrap_or(false);
        if is_in_schedule {
            if !self.process.as_ref().is_some_and(|first| daemon.leave_to_others(job, first)) {
                daemon.end(job);
            }
            return;
        }
        let mut remains = Remains::of(self.record.clone());
        if !daemon.try_to_clear(&mut remains) {
            // No other process is to come where the job is cleared away later.
            daemon.end(job);
            daemon.jobs.admission.cleanup.add_remains(remains);
        }
    }
}

impl Drop for Founding<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.undo();
        }
    }
}

impl Daemon {
    /// Takes the first process out of a job that could not be made; true where processes that
    /// have followed it go on as the job.
    fn leave_to_others(&self, job: JobId, first: &Arc<ProcessHandle>) -> bool {
        if let Err(error) = self.take_out(job, first) {
            tracing::debug!(%job, ?error, "a process that could not come is not out of its job");
        }
        let others = self.processes(job).unwrap_or_default();
        if others.into_iter().all(|pid| pid == first.pid) {
            return false;
        }
        let arrived = self.change_on_file(move |state| state.arrive(job));
        if arrived.is_ok() {
            self.end_if_over(job);
        }
        arrived.is_ok()
    }
}
