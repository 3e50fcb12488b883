//! Jobs that stand still because somebody said so, or because the group does in which they were
//! called.
//!
//! The owner of a job has no power over the members of another user, an administrator has: these
//! go on where the owner suspends the job, and stand still with it where an administrator does.
//! A job goes on with its caller's group only where it stands still for no other reason.

use gang_schedule::{Event, JobId};
use gang_timetable::{Action, Signal, record::Record};

use crate::{
    Conductor, Job, Now,
    life::{Filed, Moment, permit},
};

/// How much of a job stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    None,
    /// All but the members of other users than its own.
    Own,
    All,
}

impl Suspension {
    pub fn of(job: &Job) -> Suspension {
        let stops_foreign = job.home.as_ref().is_some_and(|home| home.members.stops_foreign);
        Suspension::new(job.suspended, stops_foreign)
    }

    pub fn on_file(record: &Record) -> Suspension {
        Suspension::new(record.suspended, record.stops_foreign)
    }

    fn new(suspended: bool, stops_foreign: bool) -> Suspension {
        match (suspended, stops_foreign) {
            (false, _) => Suspension::None,
            (true, false) => Suspension::Own,
            (true, true) => Suspension::All,
        }
    }

    /// After an order of somebody who has power over all members, or over the owner's alone. A job
    /// that the owner suspends once more stands still as it did.
    #[must_use]
    pub fn after(self, suspended: bool, with_foreign: bool) -> Suspension {
        match Suspension::new(suspended, with_foreign) {
            Suspension::Own if self == Suspension::All => Suspension::All,
            after => after,
        }
    }
}

impl Job {
    /// Whether it is to do as the group in which it was called, which stands still or does not. An
    /// order counts for more.
    pub fn differs_from_group(&self, stands_still: bool) -> bool {
        if stands_still { !self.suspended } else { self.suspended_by_group }
    }
}

impl Conductor {
    /// Has a job stand still, or go on, by an order.
    pub fn suspend(&mut self, now: Now, id: JobId, suspension: Suspension) -> Filed {
        let suspended = suspension != Suspension::None;
        let job = self.job_mut(id)?;
        permit(job, if suspended { Moment::Suspend } else { Moment::Resume })?;
        job.permit_on_processes(suspended, "suspend", "only whole processes can stand still")?;
        (job.suspended, job.suspended_by_group) = (suspended, false);
        // Nobody can use CPU while it stands still: that is not to be held against it.
        job.activity.last_used_ns = now.monotonic_ns;
        self.stop_foreign(id, suspension == Suspension::All);
        self.schedule.apply(match suspended {
            true => Event::Suspended { job: id },
            false => Event::Resumed { job: id },
        })?;
        Ok(self.job(id)?.record())
    }

    /// Has a job stand still, or go on, because the group in which it was called does
    /// ([`Job::differs_from_group`]).
    pub fn suspend_with_group(&mut self, now: Now, id: JobId, suspension: Suspension) -> Filed {
        self.suspend(now, id, suspension)?;
        let job = self.job_mut(id)?;
        job.suspended_by_group = job.suspended;
        Ok(job.record())
    }

    /// Whether members of other users than the job's stand still with the job.
    fn stop_foreign(&mut self, id: JobId, stops: bool) {
        let home = self.jobs.get_mut(&id).and_then(|job| job.home.as_mut());
        let Some(members) = home.map(|home| &mut home.members) else { return };
        let did_stop = std::mem::replace(&mut members.stops_foreign, stops);
        let foreign = members.threads().iter().filter(|thread| thread.is_foreign);
        let stopped: Vec<u32> = foreign.map(|thread| thread.tid).collect();
        if did_stop && !stops {
            self.continue_all(id, &stopped);
        }
        if did_stop != stops {
            self.has_new_members.insert(id);
        }
    }

    /// Has processes of a job without a cgroup go on, of these threads.
    pub(crate) fn continue_all(&mut self, id: JobId, tids: &[u32]) {
        let signal = Signal::Continue;
        self.order(tids.iter().map(|&pid| Action::Signal { job: id, pid, signal }));
    }
}

#[cfg(test)]
mod tests {
    use super::Suspension::{self, All, None, Own};

    #[test]
    fn owner_has_no_power_over_administrators_suspension() {
        let orders = |first: Suspension, orders: &[(bool, bool)]| {
            orders.iter().fold(first, |it, &(suspended, all)| it.after(suspended, all))
        };
        assert_eq!(orders(None, &[(true, false)]), Own);
        assert_eq!(orders(None, &[(true, true), (true, false)]), All);
        assert_eq!(orders(Own, &[(true, true)]), All);
        assert_eq!(orders(All, &[(false, false), (true, false)]), Own);
        assert_eq!(orders(Own, &[(false, true)]), None);
    }
}
