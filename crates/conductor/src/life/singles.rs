//! Single threads of a job come and go.

use gang_schedule::JobId;
use gang_timetable::record::{Placement, Record, Single};

use super::{Filed, Leaver, Moment, SINGLES_MAX, permit};
use crate::{Conductor, Refused};

impl Conductor {
    /// The record to be on file before a single thread comes into a job; absent where the thread is
    /// the first one.
    pub fn with_thread(&self, id: JobId, single: Single) -> Filed {
        let job = self.job(id)?;
        job.permit_threads(&format!("add thread {} to job {id}", single.tid))?;
        let Some(mut record) = job.record() else { return Ok(None) };
        let Placement::Threads { threads } = &mut record.placement else {
            return Err(Refused::mixed(id, false));
        };
        if threads.len() >= SINGLES_MAX {
            let limit = "single threads of a job";
            return Err(Refused::LimitReached { limit, maximum: SINGLES_MAX });
        }
        threads.push(single);
        Ok(Some(record))
    }

    /// A further single thread comes; it is on file.
    pub fn add_thread(&mut self, id: JobId, single: Single) -> Result<(), Refused> {
        let job = self.job_mut(id)?;
        if permit(job, Moment::AddThread)? {
            if let Some(Placement::Threads { threads }) =
                job.home.as_mut().map(|home| &mut home.placement)
            {
                threads.push(single);
            }
        }
        // The timetables in force do not have it.
        self.schedule.renew();
        Ok(())
    }

    /// A single thread leaves its job. The thread stays on file until [`Conductor::set_threads`].
    pub fn detach_thread(&mut self, id: JobId, tid: u32) -> Result<Leaver, Refused> {
        let job = self.job_mut(id)?;
        let gone = Refused::NoSuchThread(tid);
        permit(job, Moment::DetachThread).map_err(|_| gone.clone())?;
        let home = job.home.as_mut().ok_or(gone)?;
        let mut actions = Vec::new();
        let normal = home.members.default_of(tid);
        home.members.let_go(&[tid], &mut actions);
        home.leaving.push(tid);
        self.order(actions.iter().cloned());
        // The timetables in force still have it.
        self.schedule.renew();
        let gone_from = self.generation + 1;
        let record = self.job(id)?.record();
        Ok(Leaver { known: vec![tid], actions, normal, joined: None, gone_from, record })
    }

    /// The single threads that a job has now.
    pub fn set_threads(&mut self, id: JobId, singles: &[Single]) -> Option<Record> {
        let job = self.jobs.get_mut(&id)?;
        if let Some(home) = &mut job.home {
            if let Placement::Threads { threads } = &mut home.placement {
                let is_kept = |single: &Single| {
                    singles.contains(single) || home.leaving.contains(&single.tid)
                };
                threads.retain(is_kept);
            }
        }
        job.record()
    }

    /// A single thread that was detached is in no timetable any more.
    pub fn thread_has_left(&mut self, id: JobId, tid: u32) {
        if let Some(home) = self.jobs.get_mut(&id).and_then(|job| job.home.as_mut()) {
            home.leaving.retain(|&leaver| leaver != tid);
        }
    }
}
