//! Jobs whose policy changes while they run.
//!
//! Problem: a job that Linux alone schedules lives in other groups than a gang. The groups of gangs
//! are idle as a whole: an ordinary thread in them would give way to everybody.
//!
//! Approach: a gang is first taken out of its slots, and its threads get back what they had; then
//! its processes move. The other way round, the processes move first. Until the last process has
//! left them, the groups of gangs are the ones on file. So guardian and next daemon find all that a
//! release needs.

use std::time::{Duration, Instant};

use gang_engine::bound::ProcessHandle;
use gang_schedule::{JobId, Policy};
use gang_timetable::{Standing, record::Placement};

use crate::{daemon::Daemon, error::Error, groups::watch::Watch, life::detach::perform};

/// The longest that threads are waited for that get back what they had: slices may be long.
const RELEASED_WITHIN: Duration = Duration::from_secs(5);

/// How often they are looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Rounds of moving; each finds those that were started during the one before.
const ROUNDS_MAX: usize = 100;

impl Daemon {
    /// Schedules a job by another policy from now on. The caller holds the lock of policies:
    /// processes that move in must not meet processes that move out.
    pub fn reschedule(&self, job: JobId, policy: Policy) -> Result<(), Error> {
        let from = self.conductor.ask(move |state| {
            let machine = state.core.schedule.topology().len();
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
        let to = self.cgroups.placement_by(job, policy, &from)?;
        match policy {
            Policy::None => {
                // Not on file yet: the record says where gangs are.
                self.conductor
                    .ask(move |state| state.core.change(job, |spec, _| spec.policy = policy))??;
                self.wait_until_released(job);
            }
            Policy::Gang => {
                let known = to.clone();
                self.change_on_file(move |state| Ok(state.core.expect_at(job, known)?))?;
            }
        }
        let moved = self.move_all(job, policy, &from, &to);
        if moved.is_ok() {
            self.cgroups.unmake(&from, &to);
        } else {
            self.stay(job, policy_before, &from, &to);
            self.cgroups.unmake(&to, &from);
        }
        // The job may have ended while it was not watched, and its groups with it.
        if self.watch.is_over(job) {
            self.end(job);
            return Err(Error::NoSuchJob(job));
        }
        self.deputize(job, if moved.is_ok() { &to } else { &from });
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
        self.cgroups.make(to)?;
        // Opened before anything moves: a job that nobody watches would never end.
        let there = Watch::events_of(to)?;
        // The job is not watched meanwhile: the group that its processes leave becomes empty, and
        // the job is not over.
        let here = self.watch.remove_job(job);
        let moved = self.move_over(from, to).and_then(|()| self.finish_move(job, policy, to));
        let watched = self.watch.add_events(job, if moved.is_ok() { there } else { here });
        moved.and_then(|()| Ok(watched?))
    }

    /// A job that did not move, or only in part, goes on where it was.
    fn stay(&self, job: JobId, policy: Policy, from: &Placement, to: &Placement) {
        let at = from.clone();
        let stays = self.change_on_file(move |state| {
            state.core.expect_at(job, at)?;
            Ok(state.core.change(job, |spec, _| spec.policy = policy)?)
        });
        if let Err(error) = stays.and(self.move_over(to, from)) {
            tracing::warn!(%job, ?error, "a change that failed is not undone whole");
        }
    }

    /// Waits until no switcher follows a timetable that has a job which takes no turns; then gives
    /// its threads what they had.
    fn wait_until_released(&self, job: JobId) {
        let end = Instant::now() + RELEASED_WITHIN;
        while Instant::now() < end {
            let released = self.conductor.ask(move |state| {
                let job = state.core.jobs.get(&job)?;
                job.home.as_ref()?;
                Some((job.standing == Standing::Released).then_some(state.core.generation))
            });
            match released {
                Ok(Some(Some(generation))) if self.conductor.is_in_force(generation) => {
                    // One switcher has done so already, but another may have been late with an
                    // earlier action.
                    return self.release_again(job);
                }
                Ok(Some(_)) => {}
                // The job has ended, or the conductor has.
                Ok(None) | Err(_) => return,
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn release_again(&self, job: JobId) {
        let actions = self.conductor.ask(move |state| state.release_again(job));
        // Without a conductor everything is released.
        perform(&actions.unwrap_or_default());
    }

    /// Moves all processes of a job.
    fn move_over(&self, from: &Placement, to: &Placement) -> Result<(), Error> {
        let mut moved = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let all = self.cgroups.processes_of(from)?;
            let new: Vec<u32> = all.into_iter().filter(|pid| !moved.contains(pid)).collect();
            if new.is_empty() {
                break;
            }
            for &pid in &new {
                // One that has ended needs no move.
                if let Ok(process) = ProcessHandle::open(pid) {
                    self.cgroups.move_over(from, to, &process)?;
                }
            }
            moved.extend(new);
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
        let members = self.cgroups.members(to, normal, &affinity)?;
        let at = to.clone();
        {
            let _filing = self.files.lock();
            let record =
                self.conductor.ask(move |state| state.moved(job, policy, at, members))??;
            self.files.put_if_possible(record);
        }
        self.measuring.start_over(to);
        Ok(())
    }
}
