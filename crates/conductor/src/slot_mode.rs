//! How gangs are raised in their slots.
//!
//! A gang is raised thread by thread, as one that is wider than its slot, as a whole because its
//! threads are short-lived, or not at all while nobody else wants a CPU. The mode is chosen with
//! the plans, and holds from the timetable on that is made of them.

use std::collections::BTreeSet;

use gang_schedule::{JobId, Plan};
use gang_timetable::{Backend, InSlot};

use crate::{Conductor, Eligibility, Job, Measured, Note, Now};

/// A job without slots that has used no CPU for this long disturbs nobody.
const USED_NS: u64 = 1_000_000_000;

impl Conductor {
    /// Chooses the slot modes of gangs in these plans. The standing of a gang whose mode changes is
    /// stated in each timetable until one of these is in force. Its assumed standing is that of the
    /// last timetable that was made, whose gaps differ from those of the timetable in force.
    pub(crate) fn choose_slot_modes(
        &mut self,
        now: Now,
        plans: &[Plan],
        measured: &BTreeSet<JobId>,
    ) {
        let uncontended = self.uncontended_gangs(now, plans, measured);
        self.gaps.leave_out(!uncontended.is_empty());
        self.decide_regroups(now, &uncontended);
        let machine = self.machine();
        let stays_weighed = |job: &Job| {
            // No timetable would state how it stands otherwise.
            let is_stated = job.eligibility(machine).is_gang();
            self.is_weighed(job) || (job.in_slot == InSlot::Weighed && !is_stated)
        };
        let weighed = self.jobs.values().filter(|job| stays_weighed(job));
        let weighed: BTreeSet<JobId> = weighed.map(|job| job.id).collect();
        let mut is_changed = false;
        for job in self.jobs.values_mut() {
            // The kernel would end programs for their time as real-time ones, or not bind them.
            let is_limited = self.backend == Backend::Rt
                && job.home.as_ref().is_some_and(|home| home.members.is_rt_limited());
            let in_slot = match job.oversubscription.is_so {
                _ if weighed.contains(&job.id) => InSlot::Weighed,
                true => InSlot::Oversubscribed,
                false if uncontended.contains(&job.id) => InSlot::Uncontended,
                false if is_limited => InSlot::Oversubscribed,
                false => InSlot::Exclusive,
            };
            if let (InSlot::Oversubscribed, Some(home)) = (in_slot, &mut job.home) {
                home.members.begin_oversubscribed();
            }
            if std::mem::replace(&mut job.in_slot, in_slot) != in_slot {
                self.effects.notes.push(Note::InSlot(job.id, in_slot));
                self.restated.insert(job.id);
                is_changed = true;
            }
        }
        if is_changed {
            self.uncontended.begin_anew(now.monotonic_ns);
        }
    }

    /// The gangs that are left to Linux in their slots of these plans.
    fn uncontended_gangs(
        &mut self,
        now: Now,
        plans: &[Plan],
        measured: &BTreeSet<JobId>,
    ) -> BTreeSet<JobId> {
        let machine = self.machine();
        let is_possible = self.backend == Backend::Rt && self.config().fill;
        // One with too many threads for slots of its own is not counted as load, and disturbs
        // others unless it sleeps.
        let is_load = |job: &Job| {
            job.eligibility(machine) == Eligibility::TooManyThreads
                && now.monotonic_ns < job.activity.last_used_ns + USED_NS
        };
        let any_is_load = self.jobs.values().any(is_load);
        let jobs = &self.jobs;
        let can_be = |job: JobId| {
            // One that is weighed as a whole would take what threads outside want for a moment.
            let is_exclusive =
                |job: &Job| !job.oversubscription.is_so && job.in_slot != InSlot::Weighed;
            let can_be = jobs.get(&job).is_some_and(is_exclusive);
            !any_is_load && can_be && measured.contains(&job)
        };
        let load = &self.load;
        self.uncontended.gangs(now.monotonic_ns, is_possible, load, plans, can_be)
    }

    /// Takes note of what was measured of the gangs that are left to Linux. Disturbed gangs are
    /// raised again.
    pub fn measured_uncontended(&mut self, now: Now, measured: impl Iterator<Item = Measured>) {
        if self.uncontended.is_disturbed(now.monotonic_ns, measured) {
            self.note(Note::Disturbed);
            self.schedule.renew();
        }
    }

    /// The gangs that are left to Linux in their slots.
    pub fn uncontended_jobs(&self) -> impl Iterator<Item = JobId> {
        let uncontended = self.jobs.values().filter(|job| job.in_slot == InSlot::Uncontended);
        uncontended.map(|job| job.id)
    }
}
