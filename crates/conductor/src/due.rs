//! The step that is due now, and when to ask again.
//!
//! Problem: the machine is to be looked at, and plans are to be there in time, but each waking of
//! the conductor's thread takes a CPU from a gang.
//!
//! Approach: [`Conductor::due`] says what is due, and for how long nothing is. Looks come at the
//! ends of gaps, when short tasks have been served. Plans come with the look before the last ones
//! run out, or a lead before the boundary from which a change shows. The lead is as long as
//! planning takes.

use std::collections::BTreeSet;

use gang_schedule::JobId;

use crate::{Conductor, Eligibility, Now};

/// The least time that planning is given, and the most.
pub(crate) const LEAD_NS_MIN: u64 = 150_000;
const LEAD_NS_MAX: u64 = 5_000_000;

/// How far plans are made ahead.
const AHEAD_NS: u64 = 250_000_000;

/// The time before the end of a gap at which the machine is looked at.
pub(crate) const SURVEY_AHEAD_NS: u64 = 120_000;

/// The least step back of the clock that counts as one: two clocks are read one after the other.
const SET_BACK_NS_MIN: u64 = 100_000;

/// How often the machine is looked at while no job takes part in the schedule.
const QUIET_NS: u64 = 50_000_000;

/// The gangs that have threads which are in no timetable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewThreads {
    None,
    Of(BTreeSet<JobId>),
    /// The clock was set, or nothing was planned: anything may have changed.
    Anywhere,
}

impl NewThreads {
    pub fn is_none(&self) -> bool {
        *self == NewThreads::None
    }

    pub fn are_of(&self, job: JobId) -> bool {
        match self {
            NewThreads::None => false,
            NewThreads::Of(jobs) => jobs.contains(&job),
            NewThreads::Anywhere => true,
        }
    }

    /// These, and those of further gangs.
    #[must_use]
    pub fn and(self, mut others: BTreeSet<JobId>) -> NewThreads {
        match self {
            NewThreads::None if others.is_empty() => NewThreads::None,
            NewThreads::None => NewThreads::Of(others),
            NewThreads::Of(mut jobs) => {
                jobs.append(&mut others);
                NewThreads::Of(jobs)
            }
            NewThreads::Anywhere => NewThreads::Anywhere,
        }
    }
}

/// The step that is due now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing for so long, unless something happens.
    Sleep(u64),
    /// Look at the machine, then ask again.
    Look,
    /// Look at the machine where that is due, then plan from a moment on (UTC).
    Plan { look: bool, resume_ns: u64, new_threads: NewThreads },
}

impl Conductor {
    /// Begins a step: all requests and plans in it happen at this moment.
    pub fn begin_step(&mut self, now: Now) {
        let before = std::mem::replace(&mut self.step_began, now);
        let since_ns = now.monotonic_ns.saturating_sub(before.monotonic_ns);
        if now.utc_ns + SET_BACK_NS_MIN <= before.utc_ns + since_ns {
            self.was_set_back = true;
            // The next look for strays would be a far one.
            self.looks.at_ns = None;
            self.state_anew();
        }
        self.account(now);
        let stands_until_ns = self.boundary(now.utc_ns + self.lead_ns);
        self.schedule.stand_until(stands_until_ns);
        self.follow_entries_that_began();
        self.follow_confinement(now);
        self.follow_quotas(now);
    }

    fn is_quiet(&self) -> bool {
        let machine = self.machine();
        // Plans read anew which CPUs the threads of a job may use for which there is no slot.
        let is_due = |it: Eligibility| it.is_gang() || it == Eligibility::Unplaceable;
        !self.jobs.values().any(|job| is_due(job.eligibility(machine)))
    }

    /// The step that is due now. A look at the machine is due in `look_in_ns`; `beat_ns` is the
    /// longest sleep.
    pub fn due(&mut self, now: Now, look_in_ns: u64, beat_ns: u64, new_threads: NewThreads) -> Due {
        let now_ns = now.utc_ns;
        let quiet = self.is_quiet();
        if quiet && look_in_ns == 0 && new_threads.is_none() {
            return Due::Look;
        }
        // The end was not reached, or the clock was set.
        let until_ns = self.published.until_ns;
        if std::mem::take(&mut self.was_set_back) || until_ns < now_ns {
            let period_ns = self.config().gap.period_ns;
            let resume_ns = now_ns - now_ns % period_ns;
            return Due::Plan { look: false, resume_ns, new_threads: NewThreads::Anywhere };
        }
        let stands_until_ns = self.schedule.stands_until_ns();
        if self.schedule.is_changed() || !new_threads.is_none() {
            let due_ns = stands_until_ns.saturating_sub(self.lead_ns);
            if now_ns >= due_ns || !new_threads.is_none() {
                return Due::Plan { look: false, resume_ns: stands_until_ns, new_threads };
            }
            return Due::Sleep(due_ns - now_ns);
        }
        if quiet {
            return Due::Sleep(QUIET_NS.min(beat_ns));
        }
        // Short tasks have been served at the end of a gap: a thread that is runnable then will
        // stay so.
        let look_ns = self.look_ns.filter(|&at_ns| at_ns <= until_ns);
        let look_ns = look_ns.unwrap_or_else(|| self.next_look_ns(now_ns, look_in_ns));
        self.look_ns = Some(look_ns).filter(|&at_ns| now_ns < at_ns);
        if now_ns < look_ns {
            return Due::Sleep(look_ns - now_ns);
        }
        let look = look_in_ns == 0;
        if self.runs_out_ns() <= look_ns + SURVEY_AHEAD_NS {
            return Due::Plan { look, resume_ns: stands_until_ns, new_threads: NewThreads::None };
        }
        if look { Due::Look } else { Due::Sleep(0) }
    }

    /// The next moment at which plans can change: a slice begins, or a gap has ended.
    pub(crate) fn boundary(&self, at_ns: u64) -> u64 {
        let config = self.config();
        let begins = |length_ns: u64| at_ns.next_multiple_of(length_ns.max(1));
        begins(config.slice_ns).min(begins(config.gap.period_ns))
    }

    /// How far so many slices reach at most, beyond the next boundary.
    pub(crate) fn ahead_of(&self, slices: u64) -> u64 {
        let config = self.config();
        let slices_ns = config.slice_ns.saturating_mul(slices);
        AHEAD_NS.min(slices_ns).next_multiple_of(config.gap.period_ns) + 2 * config.gap.period_ns
    }

    /// The end of the next gap at which it is time to look, or to plan on.
    fn next_look_ns(&self, now_ns: u64, look_in_ns: u64) -> u64 {
        let period_ns = self.config().gap.period_ns;
        let due_ns = (now_ns + look_in_ns).min(self.runs_out_ns()).max(now_ns);
        (due_ns + SURVEY_AHEAD_NS).next_multiple_of(period_ns) - SURVEY_AHEAD_NS
    }

    /// When to plan on, so that another timetable is there in time.
    fn runs_out_ns(&self) -> u64 {
        self.published.until_ns - 2 * self.config().gap.period_ns
    }

    /// Planning took so long: the next time it begins early enough.
    pub fn planned_within(&mut self, took_ns: u64) {
        // Rises at once, falls slowly.
        let lead_ns = (took_ns + took_ns / 2).max(self.lead_ns - self.lead_ns / 64);
        self.lead_ns = lead_ns.clamp(LEAD_NS_MIN, LEAD_NS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_threads_are_of_some_gangs_or_of_any() {
        let of = |new: &NewThreads| [1, 2].map(|job| new.are_of(JobId(job)));
        assert_eq!(of(&NewThreads::None), [false, false]);
        assert_eq!(of(&NewThreads::Of([JobId(2)].into())), [false, true]);
        assert_eq!(of(&NewThreads::Anywhere), [true, true]);
        let both = |new: NewThreads| new.and([JobId(1)].into());
        assert_eq!(of(&both(NewThreads::Of([JobId(2)].into()))), [true, true]);
        assert_eq!(of(&both(NewThreads::None)), [true, false]);
        assert!(NewThreads::None.and(BTreeSet::new()).is_none());
        assert_eq!(both(NewThreads::Anywhere), NewThreads::Anywhere);
    }
}
