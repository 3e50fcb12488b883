//! The CPUs that the threads of jobs may use.
//!
//! Problem: people, runtimes, cgroups and the kernel change at any moment where threads may run. A
//! slot elsewhere would overrule them; a plan made anew for each change would be all that gangd
//! does where a program makes a thousand a second.
//!
//! Approach: each time that the threads of a job are read, what they may use is compared with what
//! the schedule knows. A difference becomes an event before the next plans, for each job some time
//! after the one before at the earliest. A cpuset that widens does not show in threads that gangd
//! has restricted: the kernel takes that for their own choice. So the cpuset is read besides.
//!
//! Properties: a job has no slot that begins later than [`CHANGES_EVERY_NS`] and the plans in force
//! after a look, other than on CPUs that its threads may use.

use gang_schedule::{CpuSet, Event, JobId};

use crate::{Conductor, Now, life::Filed};

/// Changes of one job are followed at most this often.
pub const CHANGES_EVERY_NS: u64 = 200_000_000;

impl Conductor {
    /// From the next step on, plans follow the CPUs that the threads of a job may use now.
    pub(crate) fn saw_cpus_of(&mut self, id: JobId) {
        let online = self.schedule.topology().set();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(home) = &mut job.home else { return };
        let allowed = home.members.allowed(online);
        let overruled = home.members.take_overruled();
        match allowed == job.spec.allowed {
            true => drop(self.confined.remove(&id)),
            false => drop(self.confined.insert(id, allowed)),
        }
        if !overruled.is_empty() {
            self.order(overruled);
            self.schedule.renew();
        }
    }

    /// The cpuset in which a job was called has these CPUs now. A job that had all of them has all
    /// from now on: it changes on file.
    pub fn saw_cpuset(&mut self, id: JobId, cpus: CpuSet) -> Filed {
        let Some(home) = &mut self.job_mut(id)?.home else { return Ok(None) };
        if home.cpuset.is_none() && cpus != home.members.everywhere {
            return Ok(None);
        }
        let before = home.cpuset.replace(cpus.clone());
        if before.is_none_or(|before| before == cpus) {
            return Ok(None);
        }
        home.affinity = cpus.iter().collect();
        home.members.follow_cpuset(cpus);
        self.members_came(id, &[])?;
        Ok(self.job(id)?.record())
    }

    /// The threads of a job may use other CPUs than plans know of.
    pub fn is_confined_anew(&self, id: JobId) -> bool {
        self.confined.contains_key(&id)
    }

    /// Plans with the CPUs that threads may use now.
    pub(crate) fn follow_confinement(&mut self, now: Now) {
        let is_due = |id: &JobId| {
            let job = self.jobs.get(id);
            job.is_some_and(|job| job.confined_at_ns + CHANGES_EVERY_NS <= now.monotonic_ns)
        };
        let due: Vec<JobId> = self.confined.keys().copied().filter(is_due).collect();
        for id in due {
            let Some(to) = self.confined.remove(&id) else { continue };
            let event = Event::Confined { job: id, to: to.clone() };
            let (Ok(()), Some(job)) = (self.schedule.apply(event), self.jobs.get_mut(&id)) else {
                continue;
            };
            (job.spec.allowed, job.confined_at_ns) = (to, now.monotonic_ns);
            self.note_places();
        }
    }

    /// Notes of each job whether the CPUs do for it; to be done after each event that changes that.
    pub(crate) fn note_places(&mut self) {
        for (&id, job) in &mut self.jobs {
            job.unplaceable = self.schedule.unplaceable(id).cloned();
        }
    }
}
