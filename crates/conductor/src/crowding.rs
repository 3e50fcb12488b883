//! The jobs whose threads take more time to switch than an edge has.
//!
//! Problem: a switcher makes the calls of an edge one after the other. A job with thousands of
//! threads, also of threads that sleep, keeps the next gang from its slot for milliseconds, at each
//! edge of its own slots. That the job pays for the time ([`overhead`](crate::overhead)) gives the
//! other gang none back.
//!
//! Approach: an edge has so much time on each switcher, and an action takes as long as switchers
//! have measured. Each timetable says [where its edges ask for more](gang_timetable::Load). There
//! the account whose jobs have the most actions together loses its largest job, which is *crowded*.
//! So it goes on until the rest fits. A crowded job takes no turns, as one that has more threads
//! than are switched.
//!
//! It takes turns again once it is small enough: an eighth smaller than what the others of that
//! edge leave, or than its equal part of the edge if that is more. That is the equal part of its
//! account, as far as other jobs of it leave that, or an equal part of this. Some seconds later it
//! is compared again, with the others that still take turns and with the time that the edge has by
//! then.
//!
//! Properties: what is left of an edge fits. Of an account whose jobs ask of no switcher more than
//! its equal part of an edge none is ever crowded, however many jobs others have. A job that does
//! not change is crowded no more often than once in [`BACK_NS`], whatever its others do.

use std::collections::BTreeMap;

use gang_schedule::{JobId, UserId};
use gang_timetable::{Backend, Load, Members};

use crate::{Conductor, Eligibility, Home, Job, Note, accounts::ROOT};

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
    asks: Asks,
    /// The others, as far as they fit.
    others: BTreeMap<JobId, Asks>,
}

/// The actions of a job at an edge, on some account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asks {
    account: UserId,
    actions: usize,
}

/// The jobs that must go so that each switcher has time for the rest, of those that can.
fn excess(
    loads: &[Load],
    actions_max: usize,
    account: impl Fn(JobId) -> UserId,
    can_go: impl Fn(JobId) -> bool,
) -> Vec<Excess> {
    let mut found: Vec<Excess> = Vec::new();
    for load in loads {
        let asks = |(&job, &actions): (&JobId, &usize)| {
            let account = account(job);
            (job, Asks { account, actions })
        };
        let mut left: BTreeMap<JobId, Asks> = load.actions.iter().map(asks).collect();
        left.retain(|job, _| !found.iter().any(|it| it.job == *job));
        let mut of_accounts: BTreeMap<UserId, usize> = BTreeMap::new();
        for asks in left.values() {
            *of_accounts.entry(asks.account).or_default() += asks.actions;
        }
        let mut gone = 0;
        while of_accounts.values().sum::<usize>() > actions_max {
            // Of equals the youngest.
            let largest = left.iter().filter(|(job, _)| can_go(**job));
            let largest = largest.max_by_key(|(job, asks)| {
                (of_accounts[&asks.account], asks.account, asks.actions, **job)
            });
            let Some((&job, &asks)) = largest else { break };
            left.remove(&job);
            *of_accounts.entry(asks.account).or_default() -= asks.actions;
            found.push(Excess { job, asks, others: BTreeMap::new() });
            gone += 1;
        }
        let first = found.len() - gone;
        found[first..].iter_mut().for_each(|it| it.others.clone_from(&left));
    }
    found
}

/// The actions that a job of an account may have at an edge beside others: what they leave, or its
/// equal part if that is more.
fn room<'a>(account: UserId, others: impl Iterator<Item = &'a Asks>, actions_max: usize) -> usize {
    let mut of_others: BTreeMap<UserId, usize> = [(account, 0)].into();
    let mut own_jobs = 1;
    for asks in others {
        *of_others.entry(asks.account).or_default() += asks.actions;
        own_jobs += usize::from(asks.account == account);
    }
    let left = actions_max.saturating_sub(of_others.values().sum());
    let of_account = actions_max / of_others.len();
    let left_of_account = of_account.saturating_sub(of_others[&account]);
    left.max(left_of_account).max(of_account / own_jobs)
}

impl Excess {
    /// The actions with which the job fits again, if it must have fewer.
    fn actions_max(&self, actions_max: usize) -> usize {
        let most = room(self.asks.account, self.others.values(), actions_max);
        let most = most.min(self.asks.actions);
        most - most.div_ceil(MARGIN)
    }

    /// The actions with which the job fits beside those of the others that stay.
    fn actions_max_beside(&self, actions_max: usize, stays: impl Fn(JobId) -> bool) -> usize {
        let others = self.others.iter().filter(|(job, _)| stays(**job));
        let most = room(self.asks.account, others.map(|(_, asks)| asks), actions_max);
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
        let account = |id: JobId| {
            let owner_uid = self.jobs.get(&id).map_or(ROOT.0, |job| job.owner_uid);
            self.account_of(owner_uid)
        };
        for found in excess(loads, actions_max, account, can_go) {
            let id = found.job;
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let size = job.home.as_ref().map_or(0, |home| size(self.backend, home));
            let most = found.actions_max(actions_max);
            let of_others: usize = found.others.values().map(|asks| asks.actions).sum();
            job.crowded = Some(Crowded {
                size,
                size_max: size * most / found.asks.actions,
                takes_ns: found.asks.actions as u64 * action_ns,
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
            size_max = crowded.size * most / crowded.excess.asks.actions;
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

    /// Each job is of a user of its own.
    fn alone(job: JobId) -> UserId {
        UserId(job.0 as u32)
    }

    /// Jobs below 100 are of one user, those below 200 of the next one.
    fn by_hundreds(job: JobId) -> UserId {
        UserId((job.0 / 100) as u32)
    }

    fn crowded(loads: &[Load], account: impl Fn(JobId) -> UserId) -> Vec<(u64, usize)> {
        let found = excess(loads, 1_000, account, |_| true);
        found.iter().map(|it| (it.job.0, it.actions_max(1_000))).collect()
    }

    #[test]
    fn largest_job_goes_first_until_the_rest_fits() {
        for account in [alone as fn(JobId) -> UserId, |_| UserId(0)] {
            assert_eq!(crowded(&[load(&[(1, 400), (2, 600)])], account), []);
            // The others leave 400, which is less than half; an eighth less than half it is.
            assert_eq!(crowded(&[load(&[(1, 600), (2, 700)])], account), [(2, 437)]);
            assert_eq!(crowded(&[load(&[(1, 10), (2, 995)])], account), [(2, 866)]);
            let three = load(&[(1, 438), (2, 400), (3, 300)]);
            assert_eq!(crowded(&[three], account), [(1, 291)]);
            let two_of_three = load(&[(1, 2_000), (2, 1_500), (3, 300)]);
            assert_eq!(crowded(&[two_of_three], account), [(1, 612), (2, 612)]);
            assert_eq!(crowded(&[load(&[(1, 500), (2, 500), (3, 1)])], account), [(2, 436)]);
        }
    }

    #[test]
    fn user_with_most_goes_first_though_jobs_are_small() {
        // 19 jobs of 40 beside one of 400: the edge has time for 600 of the one user.
        let mut jobs: Vec<(u64, usize)> = (100..119).map(|job| (job, 40)).collect();
        jobs.push((1, 400));
        let found = crowded(&[load(&jobs)], by_hundreds);
        let gone: Vec<u64> = found.iter().map(|&(job, _)| job).collect();
        assert_eq!(gone, [118, 117, 116, 115]);
        // No single job of 40 is small enough beside the others of its user.
        assert!(found.iter().all(|&(_, most)| most < 40), "{found:?}");
        // Of the user with most it is the largest one, though others' are larger.
        let larger = load(&[(1, 500), (100, 300), (101, 310)]);
        assert_eq!(crowded(&[larger], by_hundreds), [(101, 218)]);
        // A user has the part of the other one once that one asks for less than half.
        let beside = load(&[(1, 900), (100, 100), (101, 100)]);
        assert_eq!(crowded(&[beside], by_hundreds), [(1, 700)]);
    }

    #[test]
    fn user_within_his_part_has_no_job_crowded() {
        for many in 1..100 {
            // As many jobs as there may be, each of them smaller than his.
            let mut jobs: Vec<(u64, usize)> = (100..100 + many).map(|job| (job, 450)).collect();
            jobs.extend([(1, 250), (2, 250)]);
            let found = crowded(&[load(&jobs)], by_hundreds);
            assert!(found.iter().all(|&(job, _)| job >= 100), "{found:?}");
        }
    }

    #[test]
    fn one_job_goes_once_for_all_edges() {
        let loads = [load(&[(1, 600), (2, 700)]), load(&[(2, 700), (3, 650)]), load(&[(1, 2_000)])];
        assert_eq!(crowded(&loads, alone), [(2, 437), (1, 875)]);
    }

    #[test]
    fn who_takes_no_turns_stays() {
        let found = excess(&[load(&[(1, 900), (2, 400)])], 1_000, alone, |job| job == JobId(2));
        assert_eq!(found.iter().map(|it| it.job.0).collect::<Vec<u64>>(), [2]);
        assert_eq!(excess(&[load(&[(1, 1_001)])], 1_000, alone, |_| false), []);
    }

    /// A job that has shrunk as far as it must fits beside the same others, and those of a user
    /// who asks for his equal part are never among those that do not fit.
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
            let (count, below) = (1 + next(6), 1 + next(900));
            let job = |it: u64| (100 * next(3) + it, next(below) as usize);
            let jobs: BTreeMap<u64, usize> = (0..count).map(job).collect();
            let jobs: Vec<(u64, usize)> = jobs.into_iter().collect();
            let found = excess(&[load(&jobs)], 1_000, by_hundreds, |_| true);
            let gone: usize = found.iter().map(|it| it.asks.actions).sum();
            assert!(jobs.iter().map(|(_, it)| it).sum::<usize>() - gone <= 1_000, "{jobs:?}");
            let users = jobs.iter().map(|(job, _)| job / 100);
            let users = users.collect::<std::collections::BTreeSet<_>>().len();
            for it in &found {
                let of_user = |job: u64| by_hundreds(JobId(job)) == it.asks.account;
                let of_user = jobs.iter().filter(|(job, _)| of_user(*job));
                let of_user: usize = of_user.map(|(_, actions)| actions).sum();
                assert!(of_user > 1_000 / users, "{jobs:?}: {it:?}");
                assert!(it.others.keys().all(|other| found.iter().all(|it| it.job != *other)));
                let most = it.actions_max(1_000);
                assert!(most < it.asks.actions, "{jobs:?}: {it:?}");
                let again = it.others.iter().map(|(&job, asks)| (job, asks.actions));
                let again = again.chain([(it.job, most)]).collect();
                let load = Load { switcher: 0, actions: again };
                let found = excess(&[load], 1_000, by_hundreds, |_| true);
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
