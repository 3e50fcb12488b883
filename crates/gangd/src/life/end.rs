//! The end of jobs.

use gang_schedule::JobId;

use crate::daemon::Daemon;

impl Daemon {
    /// A job has no process any more, or never got one.
    pub fn end(&self, job: JobId) {
        self.watch.remove_job(job);
        self.dismiss_deputy(job);
        let record = {
            let _filing = self.files.lock();
            self.conductor.ask(move |state| state.end(job))
        };
        // No thread files a job that the state has no more, and no other job gets its number.
        if let Ok(Some((record, ended))) = record {
            self.clear_away(&record);
            if let Some(history) = &self.history {
                history.add(ended);
            }
            tracing::info!(job = record.id, name = record.name, "job ended");
        }
        self.admission.queue.look_again();
    }

    /// Ends a job that had no process any more a while ago, and was not watched since, unless
    /// another process came.
    pub fn end_if_over(&self, job: JobId) {
        let address = self.address(job).ok().flatten();
        let is_watched = address.is_some_and(|at| self.watch.add_job(job, &at.placement).is_ok());
        if !is_watched || self.watch.is_over(job) {
            self.end(job);
        }
    }

    /// Ends a job that has no process yet. Such a job has a slot page on file at most, and is not
    /// watched.
    pub fn end_unstarted(&self, job: JobId) {
        let filing = self.files.lock();
        let ended = self.conductor.ask(move |state| {
            let is_unstarted = state.job(job).is_ok_and(|job| job.home.is_none());
            if is_unstarted {
                state.end(job);
            }
            is_unstarted
        });
        drop(filing);
        // Without a conductor there are no jobs either.
        if matches!(ended, Ok(true)) {
            // No thread makes another page for a job that is over.
            let _ = std::fs::remove_file(self.files.store.page(job.0));
            self.admission.queue.look_again();
        }
    }
}
