//! The end of jobs.

use std::time::Instant;

use gang_conductor::accounts::ROOT;
use gang_engine::release;
use gang_schedule::JobId;

use super::{
    cleanup::{Due, Remains},
    waiting::wait_for,
};
use crate::{conduct::state::Over, daemon::Daemon, groups::watch::Source};

/// Strays of a job that is over are released again after a rest that is so many times as long as
/// their release took.
const REST: u32 = 10;

impl Daemon {
    /// A job has no process any more, never got one, or is to go on without gangd.
    pub fn end(&self, job: JobId) {
        self.jobs.watch.remove_job(job);
        self.dismiss_deputy(job);
        let over = {
            let _filing = self.jobs.files.lock();
            self.conductor.ask(move |state| state.end(job))
        };
        self.ports.end(job);
        // No thread files a job that the state has no more, and no other job gets its number.
        match over {
            Ok(Some(Over::Ended(record, ended))) => {
                let mut remains = Remains::of(record);
                let found = release::job(&self.roots, &self.jobs.files.store, &remains.record);
                let is_gone = found.threads == 0 && found.strays == 0;
                remains.is_released = is_gone && found.missed == 0;
                if !remains.is_released {
                    // A timetable in force would raise again what is released. Where strays are
                    // many, a release takes long.
                    let mut next = Instant::now();
                    self.wait_until_unplanned(job, || {
                        let began = Instant::now();
                        if found.strays > 0 && began >= next {
                            release::job(&self.roots, &self.jobs.files.store, &remains.record);
                            next = Instant::now() + REST * began.elapsed();
                        }
                    });
                }
                let (job, name) = (ended.job, ended.name.clone());
                self.clear_remains(remains);
                self.ended.add(ended);
                tracing::info!(job, name, "job ended");
            }
            // Such a job has a slot page on file at most.
            Ok(Some(Over::Unstarted)) => self.jobs.files.store.remove_page(job.0),
            // The job has ended already; without a conductor there are no jobs either.
            Ok(None) | Err(_) => {}
        }
        self.jobs.admission.queue.look_again();
    }

    /// Waits until no switcher follows a timetable that has a job which is over, and does something
    /// meanwhile.
    fn wait_until_unplanned(&self, job: JobId, mut meanwhile: impl FnMut()) {
        wait_for(|| {
            meanwhile();
            let unplanned = self.conductor.ask(move |state| {
                let is_planned = state.core.planned_gangs().contains(&job);
                (!is_planned).then_some(state.core.generation())
            });
            match unplanned {
                Ok(generation) => generation.filter(|&it| self.conductor.is_in_force(it)).map(drop),
                // Its switchers have lowered all gangs.
                Err(_) => Some(()),
            }
        });
    }

    /// Clears away jobs as they end, until no more come.
    pub fn clear_ended(&self) {
        while let Some(due) = self.jobs.admission.cleanup.next() {
            match due {
                Due::End(job) => self.end_if_over(job),
                Due::ClearAway(remains) => self.clear_remains(remains),
            }
        }
    }

    /// Releases all jobs, and removes their files and groups; their programs run on.
    pub fn release_all(&self) -> release::Found {
        let store = &self.jobs.files.store;
        let records = release::Jobs::read(&self.roots, store).records;
        let found = release::all(&self.roots, store);
        for record in records {
            self.clear_away(record);
        }
        self.jobs.cgroups.close();
        found
    }

    /// Has those jobs cleared away, of the sources of some events, that have no process any more.
    pub fn jobs_changed(&self, sources: &[Source]) {
        let of_job = |source: &Source| match *source {
            Source::Job(job) => Some(job),
            _ => None,
        };
        let jobs = sources.iter().filter_map(of_job);
        let over: Vec<JobId> = jobs.filter(|&job| self.jobs.watch.is_over(job)).collect();
        if over.is_empty() {
            return;
        }
        over.iter().for_each(|&job| drop(self.jobs.watch.remove_job(job)));
        let asked = over.clone();
        let users = self.conductor.ask(move |state| {
            let user = |&job: &JobId| state.job(job).map_or(ROOT, |job| job.spec.user);
            asked.iter().map(user).collect::<Vec<_>>()
        });
        // No job is to stay behind, however the conductor is.
        let users = users.unwrap_or_else(|_| vec![ROOT; over.len()]);
        users
            .into_iter()
            .zip(over)
            .for_each(|(user, job)| self.jobs.admission.cleanup.add(user, job));
    }

    /// Ends a job that had no process any more a while ago, and was not watched since, unless
    /// another process came.
    pub fn end_if_over(&self, job: JobId) {
        let address = self.address(job).ok().flatten();
        let is_watched =
            address.is_some_and(|at| self.jobs.watch.add_job(job, &at.placement).is_ok());
        if !is_watched || self.jobs.watch.is_over(job) {
            self.end(job);
        }
    }

    /// Ends a job that has no process yet, and is not watched.
    pub fn end_unstarted(&self, job: JobId) {
        let filing = self.jobs.files.lock();
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
            self.jobs.files.store.remove_page(job.0);
            self.jobs.admission.queue.look_again();
        }
    }
}
