//! The jobs whose threads take more time to switch than an edge has.
//!
//! Problem: a switcher makes the calls of an edge one after the other. A job with thousands of
//! threads, also of threads that sleep, keeps the next gang from its slot for milliseconds, at each
//! edge of its own slots. That the job pays for the time ([`overhead`](crate::overhead)) gives the
//! other gang none back.
//!
//! Approach: an edge has so much time on each switcher, and an action takes as long as switchers
//! have measured. Each timetable says [where its edges ask for more](gang_timetable::Load). There
//! the job with the most actions is *crowded*, then the next one, until the rest fits. A crowded
//! job takes no turns, as one that has more threads than are switched.
//!
//! It takes turns again once it is small enough: an eighth smaller than what the others of that
//! edge leave, or than an equal part of the edge if that is more. Some seconds later it is compared
//! again, with the others that still take turns and with the time that the edge has by then.
//!
//! Properties: what is left of an edge fits. A job that asks of no switcher more than its equal
//! part of an edge is never crowded. A job that does not change is crowded no more often than once
//! in [`BACK_NS`], whatever its others do.

use std::collections::BTreeMap;

use gang_schedule::JobId;
use gang_timetable::{Backend, Load, Members};

use crate::{Conductor, Eligibility, Home, Job, Note};

/// The time that an action takes where that was not measured (SPECIFICATION.md: 0.8 µs for a thread
/// that sleeps, 1.5 for one that is awake).
pub const ACTION_NS: u64 = 1_000;

/// An action is taken to cost no less than this, and no more than what SPECIFICATION.md promises: a
/// switcher that was interrupted measures the interruption, too.
const ACTION_NS_MIN: u64 = 500;
const ACTION_NS_MAX: u64 = 2_000;

/// A measurement changes what an action is taken to cost if it differs by more than one part in so
/// many.
const DIFFERS: u64 = 4;

/// How often switchers are asked, of the switches since.
pub const EVERY_NS: u64 = 10_000_000_000;

/// A crowded job that does not shrink takes turns again after so long at the soonest.
pub const BACK_NS: u64 = 10_000_000_000;

/// A crowded job must be smaller by one part in so many.
const MARGIN: usize = 8;

/// The cost of an action, as last measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    action_ns: u64,
    /// When it is asked for next (CLOCK_MONOTONIC).
    next_ns: u64,
}

impl Default for Cost {
    fn default() -> Cost {
        Cost { action_ns: ACTION_NS, next_ns: 0 }
    }
}

impl Cost {
    fn saw(&mut self, measured_ns: u64) {
        let measured_ns = measured_ns.clamp(ACTION_NS_MIN, ACTION_NS_MAX);
        if measured_ns.abs_diff(self.action_ns) * DIFFERS > self.action_ns {
            self.action_ns = measured_ns;
        }
    }

    /// A job that is alone, and crowded because of one high measurement, is never switched. So that
    /// is not the last word.
    fn saw_none(&mut self) {
        self.action_ns = self.action_ns.min(ACTION_NS);
    }
}

/// Why a job is crowded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crowded {
    /// Its threads or processes that were switched one by one.
    pub size: usize,
    /// It takes turns again with so many of these.
    pub size_max: usize,
    /// The time that they took on one switcher, and that the other jobs of the edge took there.
    pub takes_ns: u64,
    pub others_ns: u64,
    /// The time that an edge had.
    pub edge_ns: u64,
    /// When it was found (CLOCK_MONOTONIC).
    since_ns: u64,
    excess: Excess,
}

/// A job that does not fit into an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excess {
    job: JobId,
    actions: usize,
    /// Of the others, as far as they fit.
    others: BTreeMap<JobId, usize>,
}

/// The jobs that must go so that each switcher has time for the rest, of those that can.
fn excess(loads: &[Load], actions_max: usize, can_go: impl Fn(JobId) -> bool) -> Vec<Excess> {
    let mut found: Vec<Excess> = Vec::new();
    for load in loads {
        let mut left = load.actions.clone();
        left.retain(|job, _| !found.iter().any(|it| it.job == *job));
        let mut gone = 0;
        while left.values().sum::<usize>() > actions_max {
            // Of equals the youngest.
            let largest = left.iter().filter(|(job, _)| can_go(**job));
            let largest = largest.max_by_key(|(job, actions)| (**actions, **job));
            let Some((&job, &actions)) = largest else { break };
            left.remove(&job);
            found.push(Excess { job, actions, others: BTreeMap::new() });
            gone += 1;
        }
        let first = found.len() - gone;
        found[first..].iter_mut().for_each(|it| it.others.clone_from(&left));
    }
    found
}

/// The actions that an edge has beside those of others, or an equal part if that is more.
fn room(others: impl Iterator<Item = usize> + Clone, actions_max: usize) -> usize {
    let equal_part = actions_max / (others.clone().count() + 1);
    actions_max.saturating_sub(others.sum()).max(equal_part)
}

impl Excess {
    /// The actions with which the job fits again, if it must have fewer.
    fn actions_max(&self, actions_max: usize) -> usize {
        let most = room(self.others.values().copied(), actions_max).min(self.actions);
        most - most.div_ceil(MARGIN)
    }

    /// The actions with which the job fits beside those of the others that stay.
    fn actions_max_beside(&self, actions_max: usize, stays: impl Fn(JobId) -> bool) -> usize {
        let others = self.others.iter().filter(|(job, _)| stays(**job));
        let most = room(others.map(|(_, &actions)| actions), actions_max);
        most - most.div_ceil(MARGIN)
    }
}

/// The threads or processes of a job that a backend may switch one by one.
fn size(backend: Backend, home: &Home) -> usize {
    let Members { processes, .. } = &home.members;
    let threads = home.members.threads().iter().filter(|thread| !thread.is_exempt()).count();
    let threads = if backend.can_fill() { threads } else { 0 };
    threads + processes.len() + home.listeners.len()
}

impl Conductor {
    /// The actions for which a switcher has time at an edge.
    pub fn actions_max(&self) -> usize {
        (self.settings.limits.edge_ns / self.cost.action_ns).max(1) as usize
    }

    /// Whether some job was found to be crowded, and the plans have it yet.
    pub fn is_crowding(&self) -> bool {
        !self.over_thread_limit.is_empty()
    }

    /// Now and then, takes note of the time that an action takes, of which `measured` is asked;
    /// absent where there were too few.
    pub fn saw_cost(&mut self, now_ns: u64, measured: impl FnOnce() -> Option<u64>) {
        if now_ns < self.cost.next_ns {
            return;
        }
        self.cost.next_ns = now_ns + EVERY_NS;
        match measured() {
            Some(measured_ns) => self.cost.saw(measured_ns),
            None => self.cost.saw_none(),
        }
    }

    /// Some jobs take no turns from the next plans on, where switchers have no time for all.
    pub(crate) fn crowd(&mut self, loads: &[Load]) {
        let machine = self.machine();
        let takes_turns = |job: &Job| job.eligibility(machine) == Eligibility::TakesTurns;
        let can_go = |id: JobId| self.jobs.get(&id).is_some_and(takes_turns);
        let actions_max = self.actions_max();
        let (edge_ns, action_ns) = (self.settings.limits.edge_ns, self.cost.action_ns);
        let since_ns = self.step_began.monotonic_ns;
        for found in excess(loads, actions_max, can_go) {
            let id = found.job;
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let size = job.home.as_ref().map_or(0, |home| size(self.backend, home));
            let most = found.actions_max(actions_max);
            let of_others: usize = found.others.values().sum();
            job.crowded = Some(Crowded {
                size,
                size_max: size * most / found.actions,
                takes_ns: found.actions as u64 * action_ns,
                others_ns: of_others as u64 * action_ns,
                edge_ns,
                since_ns,
                excess: found,
            });
            self.over_thread_limit.insert(id);
            self.note(Note::Crowded(id));
        }
    }

    /// The threads of a crowded job were read.
    pub(crate) fn follow_crowding_of(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(crowded) = &job.crowded else { return };
        let size = job.home.as_ref().map_or(0, |home| size(self.backend, home));
        let mut size_max = crowded.size_max;
        if self.step_began.monotonic_ns >= crowded.since_ns.saturating_add(BACK_NS) {
            let machine = self.machine();
            let takes_turns = |job: &Job| job.eligibility(machine) == Eligibility::TakesTurns;
            let stays = |other: JobId| self.jobs.get(&other).is_some_and(takes_turns);
            let most = crowded.excess.actions_max_beside(self.actions_max(), stays);
            size_max = crowded.size * most / crowded.excess.actions;
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        match &mut job.crowded {
            Some(crowded) if size > size_max => crowded.size_max = size_max,
            crowded => *crowded = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(actions: &[(u64, usize)]) -> Load {
        let actions = actions.iter().map(|&(job, count)| (JobId(job), count)).collect();
        Load { switcher: 0, actions }
    }

    fn crowded(loads: &[Load]) -> Vec<(u64, usize)> {
        let found = excess(loads, 1_000, |_| true);
        found.iter().map(|it| (it.job.0, it.actions_max(1_000))).collect()
    }

    #[test]
    fn largest_job_goes_first_until_the_rest_fits() {
        assert_eq!(crowded(&[load(&[(1, 400), (2, 600)])]), []);
        // The others leave 400, which is less than half; an eighth less than half it is.
        assert_eq!(crowded(&[load(&[(1, 600), (2, 700)])]), [(2, 437)]);
        assert_eq!(crowded(&[load(&[(1, 10), (2, 995)])]), [(2, 866)]);
        let three = load(&[(1, 438), (2, 400), (3, 300)]);
        assert_eq!(crowded(&[three]), [(1, 291)]);
        let two_of_three = load(&[(1, 2_000), (2, 1_500), (3, 300)]);
        assert_eq!(crowded(&[two_of_three]), [(1, 612), (2, 612)]);
        assert_eq!(crowded(&[load(&[(1, 500), (2, 500), (3, 1)])]), [(2, 436)]);
    }

    #[test]
    fn one_job_goes_once_for_all_edges() {
        let loads = [load(&[(1, 600), (2, 700)]), load(&[(2, 700), (3, 650)]), load(&[(1, 2_000)])];
        assert_eq!(crowded(&loads), [(2, 437), (1, 875)]);
    }

    #[test]
    fn who_takes_no_turns_stays() {
        let found = excess(&[load(&[(1, 900), (2, 400)])], 1_000, |job| job == JobId(2));
        assert_eq!(found.iter().map(|it| it.job.0).collect::<Vec<u64>>(), [2]);
        assert_eq!(excess(&[load(&[(1, 1_001)])], 1_000, |_| false), []);
    }

    /// A job that has shrunk as far as it must fits beside the same others, and one that asks for
    /// its equal part is never the largest of those that do not fit.
    #[test]
    fn job_that_returns_fits() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..20_000 {
            let count = 1 + next(5);
            let jobs: Vec<(u64, usize)> = (0..count).map(|job| (job, next(900) as usize)).collect();
            let found = excess(&[load(&jobs)], 1_000, |_| true);
            let gone: usize = found.iter().map(|it| it.actions).sum();
            assert!(jobs.iter().map(|(_, it)| it).sum::<usize>() - gone <= 1_000, "{jobs:?}");
            for it in &found {
                assert!(it.actions > 1_000 / count as usize, "{jobs:?}: {it:?}");
                assert!(it.others.keys().all(|other| found.iter().all(|it| it.job != *other)));
                let most = it.actions_max(1_000);
                assert!(most < it.actions, "{jobs:?}: {it:?}");
                let mut again = it.others.clone();
                again.insert(it.job, most);
                let load = Load { switcher: 0, actions: again };
                let found = excess(&[load], 1_000, |_| true);
                assert!(found.iter().all(|other| other.job != it.job), "{jobs:?}: {it:?}");
            }
        }
    }

    #[test]
    fn cost_follows_what_differs_much() {
        let mut cost = Cost::default();
        let mut after = |measured_ns| {
            cost.saw(measured_ns);
            cost.action_ns
        };
        assert_eq!(
            [900, 1_250, 1_251, 1_000, 930].map(&mut after),
            [1_000, 1_000, 1_251, 1_251, 930]
        );
        assert_eq!([50_000, 1].map(&mut after), [ACTION_NS_MAX, ACTION_NS_MIN]);
        let mut after_none = |measured_ns| {
            cost.saw(measured_ns);
            cost.saw_none();
            cost.action_ns
        };
        assert_eq!([50_000, 1].map(&mut after_none), [ACTION_NS, ACTION_NS_MIN]);
    }
}
