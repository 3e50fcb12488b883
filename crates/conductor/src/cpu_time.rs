//! The quotas of CPU time that bind jobs.
//!
//! Problem: people and managers give a cgroup a quota of CPU time, at any moment. The kernel
//! throttles a group that has used it up, and nobody hears of that. Slots that are planned
//! meanwhile are lost to all gangs.
//!
//! Approach: where a job lives says which quota binds it. The daemon reads that as the first
//! process comes, as processes move, and every few seconds. A quota other than the one that the
//! schedule knows becomes an event before the next plans, for each job some time after the one
//! before at the earliest. Where jobs stand still out of their slots, the kernel alone binds them:
//! a slot costs its width, and a job that uses less would stand still for nothing.
//!
//! Properties: a job has no slot that begins later than [`CHANGES_EVERY_NS`] and the plans in force
//! after a reading, beyond the quota that was read.

use gang_schedule::{Event, JobId, Quota};

use crate::{Conductor, Job, Now, Refused, confinement::CHANGES_EVERY_NS};

impl Conductor {
    /// Where a job lives, its threads are kept from real-time priority, or not, and this quota
    /// binds it.
    pub fn limit_cpu_time(
        &mut self,
        id: JobId,
        is_kept: bool,
        quota: Option<Quota>,
    ) -> Result<(), Refused> {
        let Some(home) = &mut self.job_mut(id)?.home else { return Ok(()) };
        let controls = &mut home.members.controls;
        if (controls.kept_from_realtime, controls.quota) == (is_kept, quota) {
            return Ok(());
        }
        (controls.kept_from_realtime, controls.quota) = (is_kept, quota);
        self.members_came(id, &[])
    }

    /// Plans with the quotas that bind jobs now.
    pub(crate) fn follow_quotas(&mut self, now: Now) {
        if !self.config().fill {
            return;
        }
        let change = |job: &Job| {
            let to = job.home.as_ref()?.members.controls.quota;
            let is_due = job.limited_at_ns + CHANGES_EVERY_NS <= now.monotonic_ns;
            (to != job.spec.quota && is_due).then_some((job.id, to))
        };
        let due: Vec<(JobId, Option<Quota>)> = self.jobs.values().filter_map(change).collect();
        for (id, to) in due {
            let event = Event::Limited { job: id, to };
            if let (Ok(()), Some(job)) = (self.schedule.apply(event), self.jobs.get_mut(&id)) {
                (job.spec.quota, job.limited_at_ns) = (to, now.monotonic_ns);
            }
        }
    }
}
