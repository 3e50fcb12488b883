//! The files of jobs, kept equal to what the conductor has decided.
//!
//! The record of a job is written before anything is done to the job, and removed after everything
//! is undone. The guardian and the next daemon know a job by its files alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gang_engine::{release, store::Store};
use gang_schedule::JobId;
use gang_timetable::record::Record;

use super::cleanup::Remains;
use crate::{conduct::state::State, daemon::Daemon, error::Error};

/// The files of jobs, and the lock under which they change.
#[derive(Debug)]
pub struct JobFiles {
    pub store: Store,
    /// Held while a job changes and its record follows. A thread that holds it never waits for the
    /// queue of admission.
    filing: Mutex<()>,
}

impl JobFiles {
    pub fn new(store: Store) -> JobFiles {
        JobFiles { store, filing: Mutex::default() }
    }

    /// Keeps records from changing, for a change that is more than one question to the conductor.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.filing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a record, if there is one. The caller holds the lock.
    pub fn put(&self, record: Option<Record>) -> Result<(), Error> {
        let Some(record) = record else { return Ok(()) };
        self.store.put(&record).map_err(|e| Error::Failed {
            operation: format!("{} {}", e.operation, e.path.display()),
            reason: e.source.to_string(),
        })
    }

    /// Writes the record of a job that has changed and cannot change back. Where the disk fails,
    /// what is on file is older, and still names all that a release needs. The caller holds the
    /// lock.
    pub fn put_if_possible(&self, record: Option<Record>) {
        if let Err(error) = self.put(record) {
            tracing::warn!(?error, "what is on file of a job is older than the job");
        }
    }
}

/// The inverse of a change of a job, as long as it is not on file.
pub type Undo = Box<dyn FnOnce(&mut State) -> Result<(), Error> + Send>;

impl Daemon {
    /// Changes a job, and then what is on file of it: in the same order as other threads do.
    pub fn change_on_file(
        &self,
        change: impl FnOnce(&mut State) -> Result<Option<Record>, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let _filing = self.jobs.files.lock();
        let record = self.conductor.ask(change)??;
        self.jobs.files.put(record)
    }

    /// The same, of a change that can be undone: it is, where it does not come on file.
    pub fn change_or_undo(
        &self,
        change: impl FnOnce(&mut State) -> Result<(Option<Record>, Undo), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let _filing = self.jobs.files.lock();
        let (record, undo) = self.conductor.ask(change)??;
        self.jobs.files.put(record).inspect_err(|_| {
            if let Err(error) = self.conductor.ask(undo).map_err(Error::from).and_then(|it| it) {
                tracing::warn!(?error, "a change that is not on file cannot be undone");
            }
        })
    }

    /// Leaves no trace of a job that is over but its processes, if it has any. Remains that
    /// cannot be cleared away yet are tried again, and on file meanwhile.
    pub fn clear_away(&self, record: Record) {
        self.clear_remains(Remains::of(Box::new(record)));
    }

    /// The same, of what an earlier try has left.
    pub fn clear_remains(&self, mut remains: Remains) {
        if self.try_to_clear(&mut remains) {
            self.jobs.files.store.remove_page(remains.record.id);
        } else {
            tracing::info!(job = remains.record.id, "a job cannot be cleared away yet");
            self.jobs.admission.cleanup.add_remains(remains);
        }
    }

    /// Clears away everything but the slot page; false where something stays for now.
    pub fn try_to_clear(&self, remains: &mut Remains) -> bool {
        let (store, record) = (&self.jobs.files.store, &remains.record);
        remains.is_released =
            remains.is_released || release::job(&self.roots, store, record).missed == 0;
        // Threads are read in the groups of their job.
        if !remains.is_released || !release::dissolve(record) {
            return false;
        }
        // A change of policy that failed may have left others.
        if self.jobs.cgroups.remove_all_of(JobId(record.id)) {
            return false;
        }
        if let Err(error) = store.remove_record(record.id) {
            tracing::warn!(%error, source = %error.source, "a job file stays behind");
        }
        true
    }
}
