//! Gangs that move between groups of the cpu controller while they run.
//!
//! Problem: the conductor decides which gangs are weighed as a whole
//! ([`gang_conductor::short_lived`]), and the limits where a gang was called decide whether it
//! lives there ([`super::limits`]). The kernel moves processes, and neither may wait for that. A
//! kernel that groups real-time threads lets none of them into a group with a quota.
//!
//! Approach: a thread of its own moves gangs, one after the other, and passes over those that a
//! request changes. It waits until no timetable makes threads of the gang real-time ones; where the
//! gang has a group for itself, until each of them has the group weigh what others weigh. The group
//! to which the gang moves is on file as soon as a process may be in it, beside the group that the
//! gang came from.
//!
//! A gang that cannot be moved is where it was, and as it was scheduled there.

use std::{sync::mpsc::Receiver, time::Duration};

use gang_conductor::Regroup;
use gang_schedule::{JobId, Policy};

use super::{detach::perform, waiting::wait_for};
use crate::{
    conduct::{
        client_priority::ThreadPriority,
        state::{State, now},
    },
    daemon::Daemon,
    error::Error,
    groups::cgroups::Cgroups,
};

/// A gang that a request changes is looked at again after so long.
const CHANGING: Duration = Duration::from_millis(10);

impl Daemon {
    /// Moves gangs as the conductor decides. Returns when it ends.
    pub fn move_gangs(&self, regroups: &Receiver<JobId>) {
        let mut waiting = Vec::new();
        loop {
            if waiting.is_empty() {
                let Ok(job) = regroups.recv() else { return };
                waiting.push(job);
            }
            waiting.extend(regroups.try_iter());
            let were = waiting.len();
            waiting.retain(|&job| !self.move_gang(job));
            if waiting.len() == were {
                std::thread::sleep(CHANGING);
            }
        }
    }

    /// Moves a gang, and has it keep the limits where it lives then. False where a request changes
    /// where the gang lives: nobody else waits for that.
    fn move_gang(&self, job: JobId) -> bool {
        let Some(_changing) = self.jobs.locks.try_home(job) else { return false };
        // While gangs spin on all CPUs, an ordinary thread would move one process in each gap.
        let mut priority = ThreadPriority::of(&self.client_priority, None);
        match self.regroup(job, &mut priority) {
            // The job has ended meanwhile.
            Ok(()) | Err(Error::NoSuchJob(_)) => {}
            Err(error) => {
                tracing::warn!(%job, ?error, "a gang stays in the groups in which it is");
                // Without a conductor nothing is decided either.
                let _ = self.conductor.ask(move |state| state.core.cannot_regroup(now(), job));
            }
        }
        match self.renew_limits(job) {
            Ok(()) | Err(Error::NoSuchJob(_)) => {}
            Err(error) => {
                tracing::warn!(%job, ?error, "a job has not all limits it is to have");
                let failed = move |state: &mut State| {
                    state.limits_failed_ns.insert(job, now().monotonic_ns);
                };
                // Without a conductor there are no jobs either.
                let _ = self.conductor.ask(failed);
            }
        }
        true
    }

    /// The caller has the lock of where the gang lives.
    fn regroup(&self, job: JobId, priority: &mut ThreadPriority) -> Result<(), Error> {
        let asked = self.conductor.ask(move |state| state.core.regroup(job))?;
        let Some((way, from)) = asked else { return Ok(()) };
        let to = self.jobs.cgroups.regrouped(job, way, &from)?;
        let to = to.ok_or_else(|| Error::not_permitted("move a gang", "it has no such group"))?;
        if self.jobs.cgroups.has_own(&from) {
            let generation = self.conductor.ask(move |state| {
                state.core.forsake_own_group(job)?;
                Ok::<_, Error>(state.core.generation() + 1)
            })??;
            self.wait_until_in_force(job, generation)?;
            let actions = self.conductor.ask(move |state| state.weigh_as_others(job))?;
            perform(&actions);
        } else {
            // In this timetable, or an earlier one, its threads are ordinary ones.
            let generation = self.conductor.ask(|state| state.core.generation())?;
            self.wait_until_in_force(job, generation)?;
            self.release_again(job);
        }
        // A release is to find the group of all gangs as long as a process may be in it.
        let left = match way {
            Regroup::ToOwn | Regroup::ToCaller => {
                from.clone().with_other(Cgroups::made_for_move(&from, &to))
            }
            Regroup::ToShared | Regroup::FromCaller => {
                to.clone().with_other(Cgroups::made_for_move(&to, &from))
            }
        };
        priority.renew();
        self.change_on_file(move |state| Ok(state.core.expect_at(job, left)?))?;
        self.relocate(job, (Policy::Gang, Policy::Gang), &from, &to)
    }

    /// Waits until no switcher follows a timetable from before this generation.
    fn wait_until_in_force(&self, job: JobId, generation: u64) -> Result<(), Error> {
        wait_for(|| self.conductor.is_in_force(generation).then_some(())).ok_or_else(|| {
            let operation = format!("move job {job} between groups");
            let reason = "switchers follow an earlier timetable".to_owned();
            Error::Failed { operation, reason }
        })
    }
}
