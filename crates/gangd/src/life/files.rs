//! The files of jobs, kept equal to what the conductor has decided.
//!
//! The record of a job is written before anything is done to the job, and removed after everything
//! is undone. The guardian and the next daemon know a job by its files alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gang_engine::{release, store::Store};
use gang_timetable::record::Record;

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
}

impl Daemon {
    /// Changes a job, and then what is on file of it: in the same order as other threads do.
    pub fn change_on_file(
        &self,
        change: impl FnOnce(&mut State) -> Result<Option<Record>, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let _filing = self.files.lock();
        let record = self.conductor.ask(change)??;
        self.files.put(record)
    }

    /// Leaves no trace of a job but its processes, if it has any.
    pub fn clear_away(&self, record: &Record) {
        let store = &self.files.store;
        release::job(&self.roots, store, record);
        release::dissolve(record);
        if let Err(error) = store.remove(record.id) {
            tracing::warn!(%error, source = %error.source, "a job file stays behind");
        }
    }
}
