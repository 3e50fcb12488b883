//! The most that a user's gangs get together.
//!
//! Problem: a site wants to keep part of the machine from a user, also where nobody else asks for
//! it.
//!
//! Approach: each slice adds the user's part of all CPUs to his *allowance*, and a slot costs its
//! CPUs. Gangs for which the allowance does not suffice do not contend in this slice, as those that
//! do not fit.
//!
//! Algorithm. The gangs of a capped user are gone through by tier, and by a virtual time of their
//! own: that of turns is raised to the floor while they do not contend. Each takes the CPUs of a
//! slot from the allowance until one finds too few: that gang is *out*, and so are those after it.
//! So a wide gang is not kept waiting for ever by narrow ones of the same user. Less than a whole
//! row of allowance is carried over.
//!
//! Properties: over any stretch of slices a user's gangs are within one whole row of his cap. Each
//! of them has slots. Others have no less than without caps.

use std::collections::{BTreeMap, BTreeSet};

use crate::schedule::{Job, Readiness, Schedule};
use crate::{JobId, UserId};

/// A CPU for a slice, in the unit of allowances.
const SLOT: i64 = 1000;

/// The allowances of users without a slice yet: a whole row, with what the first slice adds.
pub(crate) fn at_first(caps: &BTreeMap<UserId, u32>, machine: u32) -> BTreeMap<UserId, i64> {
    let allowance = |permille| (SLOT - i64::from(permille)) * i64::from(machine);
    caps.iter().map(|(&user, &permille)| (user, allowance(permille))).collect()
}

/// What a slot of a job costs its user.
pub(crate) fn cost(job: &Job) -> i64 {
    SLOT * i64::from(job.width())
}

impl Schedule {
    /// A slice begins.
    pub(crate) fn grant_allowances(&mut self) {
        let machine = self.topology.len();
        for (user, &permille) in &self.config.caps {
            let Some(allowance) = self.allowances.get_mut(user) else { continue };
            let most = SLOT * i64::from(machine) - 1;
            *allowance = (*allowance).min(most) + i64::from(permille) * i64::from(machine);
        }
    }

    /// Gangs of a user had slots that cost so much.
    pub(crate) fn charge_allowances(&mut self, costs: BTreeMap<UserId, i64>) {
        for (user, cost) in costs {
            if let Some(allowance) = self.allowances.get_mut(&user) {
                *allowance -= cost;
            }
        }
    }

    /// The gangs that are out of their users' allowances, of those that `wait`.
    pub(crate) fn beyond_caps(&self, waits: impl Fn(JobId, &Job) -> bool) -> BTreeSet<JobId> {
        let mut out = BTreeSet::new();
        for user in self.config.caps.keys() {
            let mut left = self.allowances.get(user).copied().unwrap_or(0);
            let mut is_out = false;
            for (id, job) in self.in_order(*user, &waits) {
                is_out |= cost(job) > left;
                if is_out {
                    out.insert(id);
                } else {
                    left -= cost(job);
                }
            }
        }
        out
    }

    /// A gang that did not wait was owed nothing by the others of its user.
    pub(crate) fn forget_own_credit(&mut self, id: JobId) {
        let Some(user) = self.jobs.get(&id).map(|job| job.spec.user) else { return };
        let is_other = |(other, job): &(&JobId, &Job)| {
            **other != id && job.spec.user == user && job.readiness() == Readiness::Runnable
        };
        let least = self.jobs.iter().filter(is_other).map(|(_, job)| job.own_vtime).min();
        if let (Some(least), Some(job)) = (least, self.jobs.get_mut(&id)) {
            job.own_vtime = job.own_vtime.max(least);
        }
    }

    /// The gangs of a user by tier, and by what they had among themselves.
    fn in_order(&self, user: UserId, waits: impl Fn(JobId, &Job) -> bool) -> Vec<(JobId, &Job)> {
        let jobs = self.jobs.iter().map(|(&id, job)| (id, job));
        let mut gangs: Vec<(JobId, &Job)> = jobs
            .filter(|(id, job)| {
                job.spec.user == user && job.readiness() == Readiness::Runnable && waits(*id, job)
            })
            .collect();
        gangs.sort_by_key(|(id, job)| (job.tier, job.own_vtime, *id));
        gangs
    }

    /// The users who had more than their caps give them.
    pub(crate) fn overdrawn(&self) -> impl Iterator<Item = UserId> {
        self.allowances.iter().filter(|(_, left)| **left < 0).map(|(&user, _)| user)
    }

    /// Users have these caps from now on, in ‰. Who had one keeps what is left of it.
    pub(crate) fn cap_anew(&mut self, caps: BTreeMap<UserId, u32>) {
        let mut allowances = at_first(&caps, self.topology.len());
        let before = std::mem::take(&mut self.allowances).into_iter();
        allowances.extend(before.filter(|(user, _)| caps.contains_key(user)));
        (self.config.caps, self.allowances) = (caps, allowances);
    }

    /// Shares as capped users have them at most, and the others what these leave, as far as `whole`
    /// goes, which all have together.
    pub(crate) fn within_caps(&self, shares: &mut BTreeMap<JobId, f64>, whole: f64) {
        if self.config.caps.is_empty() {
            return;
        }
        let machine = f64::from(self.topology.len());
        let (mut before, mut after) = (0.0, 0.0);
        for (user, &permille) in &self.config.caps {
            let of_user = |id: &JobId| &self.jobs[id].spec.user == user;
            let part =
                |(id, share): (&JobId, &f64)| share * f64::from(self.jobs[id].width()) / machine;
            let his = || shares.iter().filter(|(id, _)| of_user(id));
            let has: f64 = his().map(part).sum();
            if has <= 0.0 {
                continue;
            }
            let most = f64::from(permille) / 1000.0;
            let factor = (most / has).min(1.0);
            let had: f64 = his().map(|(_, share)| share).sum();
            (before, after) = (before + had, after + had * factor);
            let his = shares.iter_mut().filter(|(id, _)| of_user(id));
            his.for_each(|(_, share)| *share *= factor);
        }
        // Where gangs take turns, one at a time.
        let left = whole - before;
        if left > 0.0 && after < before {
            let more = (whole - after) / left;
            let others = shares.iter_mut();
            let others =
                others.filter(|(id, _)| !self.config.caps.contains_key(&self.jobs[id].spec.user));
            others.for_each(|(_, share)| *share = (*share * more).min(whole));
        }
    }
}
