//! Jobs whose policy changes while they run.
//!
//! Problem: a job that Linux alone schedules lives in other groups than a gang. The groups of gangs
//! are idle as a whole: an ordinary thread in them would give way to everybody.
//!
//! Approach: a gang is first taken out of its slots, and its threads get back what they had; then
//! its processes move. The other way round, the processes move first. Until the last process has
//! left them, the groups of gangs are the ones on file. So guardian and next daemon find all that a
//! release needs.

use gang_engine::bound::ProcessHandle;
use gang_schedule::{JobId, Policy};
use gang_timetable::{Standing, record::Placement};

use crate::{
    daemon::Daemon,
    error::Error,
    groups::{cgroups::Cgroups, watch::Watch},
    life::{detach::perform, waiting::wait_for},
};

/// Rounds of moving; each finds those that were started during the one before.
const ROUNDS_MAX: usize = 100;

impl Daemon {
    /// Schedules a job by another policy from now on. The caller holds the lock of
    /// the job's home: processes that move in must not meet processes that move out.
    pub fn reschedule(&self, job: JobId, policy: Policy) -> Result<(), Error> {
        let from = self.conductor.ask(move |state| {
            let machine = state.core.schedule().topology().len();
            let job = state.job(job)?;
            let mut spec = job.spec.clone();
            spec.policy = policy;
            spec.validate(machine)?;
            let home = job.home.as_ref().map(|home| home.placement.clone());
            Ok::<_, Error>((job.spec.policy != policy).then_some((home, job.spec.policy)))
        })??;
        let Some((home, policy_before)) = from else { return Ok(()) };
        let Some(from) = home else {
            return self.change_on_file(move |state| {
                Ok(state.core.change(job, |spec, _| spec.policy = policy)?)
            });
        };
        let to = self.jobs.cgroups.placement_by(job, policy, &from)?;
        let known = match policy {
            Policy::None => {
                // Not on file yet: the record says where gangs are.
                self.conductor
                    .ask(move |state| state.core.change(job, |spec, _| spec.policy = policy))??;
                self.wait_until_released(job);
                from.clone().with_other(Cgroups::made_for_move(&from, &to))
            }
            Policy::Gang => to.clone().with_other(Cgroups::made_for_move(&to, &from)),
        };
        self.change_on_file(move |state| Ok(state.core.expect_at(job, known)?))?;
        self.relocate(job, (policy_before, policy), &from, &to)
    }

    /// Has a job live elsewhere, by another policy perhaps: its processes move, and then it is
    /// there. Some memory that it used is still counted where it came from. A job that cannot move
    /// whole stays where it was.
    pub(super) fn relocate(
        &self,
        job: JobId,
        (policy_before, policy): (Policy, Policy),
        from: &Placement,
        to: &Placement,
    ) -> Result<(), Error> {
        let moved = self.move_all(job, policy, from, to);
        if moved.is_ok() {
            self.jobs.cgroups.unmake(from, to);
        } else {
            self.stay(job, policy_before, from, to);
            self.jobs.cgroups.unmake(to, from);
        }
        // The job may have ended while it was not watched, and its groups with it.
        if self.jobs.watch.is_over(job) {
            self.end(job);
            return Err(Error::NoSuchJob(job));
        }
        self.deputize(job, if moved.is_ok() { to } else { from });
        moved
    }

    /// Makes the groups where a job is going to live, and moves its processes there.
    fn move_all(
        &self,
        job: JobId,
        policy: Policy,
        from: &Placement,
        to: &Placement,
    ) -> Result<(), Error> {
        self.jobs.cgroups.make(to)?;
        self.limit_memory_at(job, to)?;
        // Opened before anything moves: a job that nobody watches would never end.
        let there = Watch::events_of(to)?;
        // The job is not watched meanwhile: the group that its processes leave becomes empty, and
        // the job is not over.
        let here = self.jobs.watch.remove_job(job);
        let moved = self.move_over(from, to).and_then(|()| self.finish_move(job, policy, to));
        let watched = self.jobs.watch.add_events(job, if moved.is_ok() { there } else { here });
        moved.and_then(|()| Ok(watched?))
    }

    /// A job that did not move, or only in part, goes on where it was.
    fn stay(&self, job: JobId, policy: Policy, from: &Placement, to: &Placement) {
        let on_its_way = from.clone().with_other(Cgroups::made_for_move(from, to));
        let stays = self.change_on_file(move |state| {
            state.core.expect_at(job, on_its_way)?;
            Ok(state.core.change(job, |spec, _| spec.policy = policy)?)
        });
        let is_back =
            stays.and(self.move_over(to, from)).and_then(|()| self.finish_move(job, policy, from));
        if let Err(error) = is_back {
            tracing::warn!(%job, ?error, "a move that failed is not undone whole");
        }
    }

    /// Has the kernel keep a job to its memory in the group of version 2 in which it is to live.
    fn limit_memory_at(&self, job: JobId, to: &Placement) -> Result<(), Error> {
        let Some(at) = to.confinement().filter(|at| at.origin.is_none()) else { return Ok(()) };
        let mem_bytes = self
            .conductor
            .ask(move |state| state.job(job).map(|job| job.resources.mem_bytes))??;
        Ok(self.jobs.cgroups.limit(at, mem_bytes)?)
    }

    /// Waits until no switcher follows a timetable that has a job which takes no turns; then gives
    /// its threads what they had. Those of one that is suspended stand still, and stay lowered.
    fn wait_until_released(&self, job: JobId) {
        let is_released = wait_for(|| {
            let released = self.conductor.ask(move |state| {
                let job = state.core.jobs().get(&job)?;
                job.home.as_ref()?;
                let is_out = match job.standing {
                    Standing::Released => true,
                    Standing::Paused => job.suspended,
                    Standing::Raised | Standing::Filling => false,
                };
                Some(is_out.then_some((state.core.generation(), job.suspended)))
            });
            match released {
                Ok(Some(out)) => {
                    let is_in_force = |&(generation, _): &_| self.conductor.is_in_force(generation);
                    out.filter(is_in_force).map(|(_, is_suspended)| !is_suspended)
                }
                // The job has ended, or the conductor has.
                Ok(None) | Err(_) => Some(false),
            }
        });
        if is_released == Some(true) {
            // One switcher has done so already, but another may have been late with an earlier
            // action.
            self.release_again(job);
        }
    }

    pub(super) fn release_again(&self, job: JobId) {
        let actions = self.conductor.ask(move |state| state.release_again(job));
        // Without a conductor everything is released.
        perform(&actions.unwrap_or_default());
    }

    /// Moves all processes of a job. While they move, they start others.
    fn move_over(&self, from: &Placement, to: &Placement) -> Result<(), Error> {
        for _ in 0..ROUNDS_MAX {
            let outside = self.jobs.cgroups.processes_outside(from, to)?;
            if outside.is_empty() {
                break;
            }
            for pid in outside {
                // One that has ended needs no move.
                let Ok(process) = ProcessHandle::open(pid) else { continue };
                match self.jobs.cgroups.move_over(from, to, &process) {
                    Err(error) if process.is_alive() => return Err(error.into()),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// All have moved: the job is there now.
    fn finish_move(&self, job: JobId, policy: Policy, to: &Placement) -> Result<(), Error> {
        let kept = self.conductor.ask(move |state| {
            let home = state.job(job)?.home.as_ref().ok_or(Error::NoSuchJob(job))?;
            Ok::<_, Error>((home.normal, home.affinity.clone()))
        })??;
        let (normal, affinity) = kept;
        let members = self.jobs.cgroups.members(to, normal, &affinity)?;
        let at = to.clone();
        {
            let _filing = self.jobs.files.lock();
            let record =
                self.conductor.ask(move |state| state.moved(job, policy, at, members))??;
            self.jobs.files.put_if_possible(record);
        }
        self.measuring.start_over(to);
        Ok(())
    }
}
