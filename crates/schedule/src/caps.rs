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
//! The CPUs of a spanning slot are taken from the allowance, too, as far as it goes. The slot is
//! never denied, since the job's other hosts do not know of the allowance.
//!
//! Properties: over any stretch of slices a user's local gangs are within one whole row of his cap.
//! Each of them has slots, unless his spanning jobs use the cap up. Others have no less together
//! than without caps.

use std::collections::{BTreeMap, BTreeSet};

use crate::schedule::{Job, Schedule};
use crate::{JobId, Slot, UserId};

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

    /// Spanning slots are not denied. Local gangs of their users give way for the CPUs.
    pub(crate) fn charge_spanning(&mut self, slots: &[Slot]) {
        for slot in slots {
            let Some(user) = self.jobs.get(&slot.job).map(|job| job.spec.user) else { continue };
            if let Some(allowance) = self.allowances.get_mut(&user) {
                *allowance = (*allowance - SLOT * slot.cpus.len() as i64).max(0);
            }
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
        for (user, gangs) in self.of_capped_users(waits) {
            let mut left = self.allowances.get(&user).copied().unwrap_or(0);
            let mut is_out = false;
            for (id, job) in gangs {
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
            **other != id && job.spec.user == user && job.takes_turns()
        };
        let least = self.jobs.iter().filter(is_other).map(|(_, job)| job.own_vtime).min();
        if let (Some(least), Some(job)) = (least, self.jobs.get_mut(&id)) {
            job.own_vtime = job.own_vtime.max(least);
        }
    }

    /// The gangs of capped users that `wait`, those of each by tier, and by what they had among
    /// themselves. Of many users with caps few have gangs.
    fn of_capped_users(
        &self,
        waits: impl Fn(JobId, &Job) -> bool,
    ) -> BTreeMap<UserId, Vec<(JobId, &Job)>> {
        let mut gangs: BTreeMap<UserId, Vec<(JobId, &Job)>> = BTreeMap::new();
        if self.config.caps.is_empty() {
            return gangs;
        }
        for (&id, job) in &self.jobs {
            let is_capped = self.config.caps.contains_key(&job.spec.user);
            if is_capped && job.takes_turns() && waits(id, job) {
                gangs.entry(job.spec.user).or_default().push((id, job));
            }
        }
        for of_user in gangs.values_mut() {
            of_user.sort_by_key(|(id, job)| (job.tier, job.own_vtime, *id));
        }
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
        // The shares of each capped user, and the part of the machine that they are.
        let mut of_users: BTreeMap<UserId, (f64, f64)> = BTreeMap::new();
        for (id, share) in shares.iter() {
            let job = &self.jobs[id];
            if self.config.caps.contains_key(&job.spec.user) {
                let (had, part) = of_users.entry(job.spec.user).or_default();
                *had += share;
                *part += share * f64::from(job.width()) / machine;
            }
        }
        let mut factors: BTreeMap<UserId, f64> = BTreeMap::new();
        let (mut before, mut after) = (0.0, 0.0);
        for (user, (had, part)) in of_users {
            if part <= 0.0 {
                continue;
            }
            let most = f64::from(self.config.caps[&user]) / 1000.0;
            let factor = (most / part).min(1.0);
            (before, after) = (before + had, after + had * factor);
            factors.insert(user, factor);
        }
        for (id, share) in shares.iter_mut() {
            *share *= factors.get(&self.jobs[id].spec.user).copied().unwrap_or(1.0);
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Config, Event, Spec, Topology};

    #[test]
    fn capped_users_without_gangs_cost_nothing() {
        let caps = (1..=2_000).map(|user| (UserId(user), 500)).collect();
        let config = Config { caps, ..Config::default() };
        let mut schedule = Schedule::new(config, Topology::flat(4)).unwrap();
        // The second half has no caps.
        for (job, user) in (0..1_000).zip([7, 3, 7, 2_001, 2_002, 2_003].into_iter().cycle()) {
            let spec = Spec { user: UserId(user), ..Spec::new(2) };
            schedule.apply(Event::Arrived { job: JobId(job), spec }).unwrap();
        }
        schedule.apply(Event::Slept { job: JobId(1) }).unwrap();
        let asked = Cell::new(0);
        let gangs = schedule.of_capped_users(|id, _| {
            asked.set(asked.get() + 1);
            id != JobId(0)
        });
        let counts: Vec<(u32, usize)> =
            gangs.iter().map(|(user, of_user)| (user.0, of_user.len())).collect();
        assert_eq!(counts, [(3, 166), (7, 333)]);
        assert_eq!(asked.get(), 500, "each gang once");
        assert_eq!(gangs[&UserId(7)][0].0, JobId(2));
    }
}
