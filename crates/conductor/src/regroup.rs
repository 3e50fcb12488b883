//! Moves of a gang's processes between groups of the cpu controller.
//!
//! A gang lives in the group of all gangs, in a group for itself because its threads are
//! short-lived, or where it was called because something limits it there. The daemon that moves
//! the processes waits until no timetable is followed that was made before. Until the move has
//! ended the threads are ordinary ones. A move that failed is tried again a minute later.

use std::collections::BTreeSet;

use gang_schedule::{JobId, Policy};
use gang_timetable::{Action, Backend, Control, Group, Weight, record::Placement};

use crate::{Conductor, Now, Refused, job::Job, life::State};

/// A move of a gang's processes between groups of the cpu controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regroup {
    /// To a group for themselves.
    ToOwn,
    /// Back to the group of all gangs.
    ToShared,
    /// To where the gang was called: something limits the processes there from now on.
    ToCaller,
    /// From there to the group of all gangs: nothing limits the processes any more.
    FromCaller,
}

/// After a move that failed, for so long none is tried.
const RETRY_NS: u64 = 60_000_000_000;

impl Conductor {
    /// Decides which gangs move. `uncontended` are those that are left to Linux: there is nobody to
    /// come before.
    pub(crate) fn decide_regroups(&mut self, now: Now, uncontended: &BTreeSet<JobId>) {
        let machine = self.machine();
        let to = |job: &Job| {
            let has_failed =
                job.regroup_failed_ns.is_some_and(|at_ns| now.monotonic_ns < at_ns + RETRY_NS);
            let is_leaving = job.home.as_ref().is_some_and(|home| !home.leaving.is_empty());
            let is_settled = State::of(job) == State::Present && !is_leaving && !has_failed;
            let eligibility = job.eligibility(machine);
            if job.regroup.is_some() || !is_settled || !eligibility.may_run() {
                return None;
            }
            if job.way_by_limits.is_some() || !eligibility.is_gang() {
                return job.way_by_limits;
            }
            match (job.has_own_group(), job.short_lived.is_so()) {
                (false, true) if uncontended.contains(&job.id) => None,
                (false, true) => self.can_have_own_group(job).then_some(Regroup::ToOwn),
                (true, false) => Some(Regroup::ToShared),
                (false, false) | (true, true) => None,
            }
        };
        let found = self.jobs.values().filter(|_| self.backend == Backend::Rt);
        let found: Vec<_> = found.filter_map(|job| Some((job.id, to(job)?))).collect();
        for (id, to) in found {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.regroup = Some(to);
                self.effects.regroups.push(id);
            }
        }
    }

    /// The way that a gang is to go because of the limits where it was called, if any. It goes as
    /// soon as it may run.
    pub fn move_for_limits(&mut self, id: JobId, way: Option<Regroup>) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if std::mem::replace(&mut job.way_by_limits, way) != way && way.is_some() {
            self.schedule.renew();
        }
    }

    /// The move that a gang is to make, and where it lives. Once no timetable is followed that was
    /// made before, its threads are ordinary ones.
    pub fn regroup(&self, id: JobId) -> Option<(Regroup, Placement)> {
        let job = self.jobs.get(&id).filter(|job| job.spec.policy == Policy::Gang)?;
        Some((job.regroup?, job.home.as_ref()?.placement.clone()))
    }

    /// The own group of a gang weighs what others weigh from the next timetable on, so that its
    /// processes can leave it. Each timetable states that, until they have left: a switcher that is
    /// late may have weighed the group by an earlier one.
    pub fn forsake_own_group(&mut self, id: JobId) -> Result<(), Refused> {
        let job = self.job_mut(id)?;
        let Some(home) = &mut job.home else { return Ok(()) };
        home.members.controls.weighs_as_others = true;
        self.members_came(id, &[])
    }

    /// The actions by which a group weighs what others weigh.
    pub fn as_others(job: JobId) -> [Action; 2] {
        [Control::Idle(false), Control::Weight(Weight::Usual)]
            .map(|control| Action::Control { group: Group::Job(job), control })
    }

    /// A gang could not be moved, and is where it was.
    pub fn cannot_regroup(&mut self, now: Now, id: JobId) -> Result<(), Refused> {
        let job = self.job_mut(id)?;
        job.regroup = None;
        job.regroup_failed_ns = Some(now.monotonic_ns);
        let home = job.home.iter_mut();
        home.for_each(|home| home.members.controls.weighs_as_others = false);
        self.members_came(id, &[])
    }
}
