//! The most that some gangs get together: those of a user with a cap, or of a group with a quota.
//!
//! Problem: a site wants to keep part of the machine from a user, also where nobody else asks for
//! it. And the kernel throttles a cgroup that has used up its quota of CPU time, at a moment that
//! no plan knows. The rest of a slot that was planned then is lost to all gangs.
//!
//! Approach: a *holder* is a user with a cap, or a group with a quota. Each slice adds to its
//! *allowance*, and a slot costs its CPUs. Gangs for which the allowance does not suffice do not
//! contend in this slice, as those that do not fit.
//!
//! Algorithm. The gangs of a holder are gone through by tier, and by a virtual time of their
//! own: that of turns is raised to the floor while they do not contend. Each takes the CPUs of a
//! slot from the allowance until one finds too few: that gang is *out*, and so are those after it.
//! So a wide gang is not kept waiting for ever by narrow ones of the same holder. Groups come
//! before users, so that a gang that is out of its group's quota takes nothing from its user's cap.
//! One whose user has too little left takes nothing from its group. A slot costs a group no more
//! than the kernel lets it have at a time, which is its quota for one of the kernel's periods.
//!
//! A user's slice adds his part of all CPUs. Less than a whole row is carried over, and he begins
//! with that. A group's slice adds its quota. Less than a slot of its widest gang is carried over,
//! and it begins with nothing, so that a group that ends and comes again gains nothing. Of jobs
//! that know different quotas of one group the least holds.
//!
//! The CPUs of a spanning slot are taken from the allowance, too, as far as it goes. The slot is
//! never denied, since the job's other hosts do not know of the allowance.
//!
//! Properties: over any stretch of slices a user's local gangs are within one whole row of his cap,
//! and those of a group within one slot of its widest gang of its quota, as slots cost. Each of
//! them has slots, unless spanning jobs use the allowance up, or a gang of the same holder comes
//! first for which there is never room. Others have no less together than without caps. Of quotas
//! on several groups, one above the other, the least counts alone. The kernel counts what
//! processes of a group use that are in no gang, and what its gangs fill; plans do not.

use std::collections::{BTreeMap, BTreeSet};

use crate::schedule::{Job, Schedule};
use crate::{JobId, Policy, Slot, UserId};

/// A CPU for a slice, in the unit of allowances.
const SLOT: i64 = 1000;

/// A holder of an allowance. Groups come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Group(u64),
    User(UserId),
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Group(group) => write!(f, "group {group}"),
            Holder::User(user) => write!(f, "user {user}"),
        }
    }
}

/// The allowances of users without a slice yet: a whole row, with what the first slice adds.
pub(crate) fn at_first(caps: &BTreeMap<UserId, u32>, machine: u32) -> BTreeMap<Holder, i64> {
    let allowance = |permille| (SLOT - i64::from(permille)) * i64::from(machine);
    caps.iter().map(|(&user, &permille)| (Holder::User(user), allowance(permille))).collect()
}

/// The cost of a slot of so many CPUs to a holder. A group has no more of a slot than its quota of
/// a period, and then stands still.
fn cost_of(job: &Job, cpus: i64, holder: Holder, slice_ns: u64) -> i64 {
    let whole = SLOT * cpus;
    let (Holder::Group(_), Some(quota)) = (holder, job.spec.quota) else { return whole };
    let period_ns = u128::from(quota.period_us) * 1000;
    let (slice_ns, permille) = (u128::from(slice_ns), u128::from(quota.cpu_permille.max(1)));
    let most = permille * period_ns.max(slice_ns) / slice_ns;
    whole.min(i64::try_from(most).unwrap_or(i64::MAX))
}

fn cost(job: &Job, holder: Holder, slice_ns: u64) -> i64 {
    cost_of(job, job.width().into(), holder, slice_ns)
}

/// A job has a slot, for which each of its holders pays.
pub(crate) fn add_cost(costs: &mut BTreeMap<Holder, i64>, job: &Job, slice_ns: u64) {
    for holder in holders(job) {
        *costs.entry(holder).or_default() += cost(job, holder, slice_ns);
    }
}

/// Its user, capped or not, and its group.
fn holders(job: &Job) -> impl Iterator<Item = Holder> {
    let group = job.spec.quota.map(|quota| Holder::Group(quota.group));
    group.into_iter().chain([Holder::User(job.spec.user)])
}

/// The virtual time of a job among the gangs of a holder.
fn vtime_of(job: &Job, holder: Holder) -> u128 {
    match holder {
        Holder::Group(_) => job.group_vtime,
        Holder::User(_) => job.own_vtime,
    }
}

/// The grant of a slice to a group, and the cost of its widest gang's slot.
#[derive(Clone, Copy)]
struct OfGroup {
    grant: i64,
    widest: i64,
}

impl Schedule {
    /// A slice begins.
    pub(crate) fn grant_allowances(&mut self) {
        let machine = i64::from(self.topology.len());
        let groups = self.groups();
        for (holder, allowance) in &mut self.allowances {
            let (grant, most) = match holder {
                Holder::User(user) => {
                    let permille = self.config.caps.get(user).copied().unwrap_or(0);
                    (i64::from(permille) * machine, SLOT * machine - 1)
                }
                Holder::Group(group) => {
                    let Some(OfGroup { grant, widest }) = groups.get(group) else { continue };
                    (*grant, (widest - 1).max(0))
                }
            };
            *allowance = (*allowance).min(most) + grant;
        }
    }

    /// The groups with a quota that jobs are in.
    fn groups(&self) -> BTreeMap<u64, OfGroup> {
        let mut groups: BTreeMap<u64, OfGroup> = BTreeMap::new();
        for job in self.jobs.values() {
            let Some(quota) = job.spec.quota else { continue };
            let grant = i64::from(quota.cpu_permille.max(1));
            let of = groups.entry(quota.group).or_insert(OfGroup { grant, widest: 0 });
            of.grant = of.grant.min(grant);
            if job.spec.policy == Policy::Gang {
                let holder = Holder::Group(quota.group);
                of.widest = of.widest.max(cost(job, holder, self.config.slice_ns));
            }
        }
        groups
    }

    /// Spanning slots are not denied. Local gangs of their holders give way for the CPUs.
    pub(crate) fn charge_spanning(&mut self, slots: &[Slot]) {
        for slot in slots {
            let Some(job) = self.jobs.get(&slot.job) else { continue };
            for holder in holders(job) {
                if let Some(allowance) = self.allowances.get_mut(&holder) {
                    let cpus = slot.cpus.len() as i64;
                    let cost = cost_of(job, cpus, holder, self.config.slice_ns);
                    *allowance = (*allowance - cost).max(0);
                }
            }
        }
    }

    /// Gangs of holders had slots that cost so much.
    pub(crate) fn charge_allowances(&mut self, costs: BTreeMap<Holder, i64>) {
        for (holder, cost) in costs {
            if let Some(allowance) = self.allowances.get_mut(&holder) {
                *allowance -= cost;
            }
        }
    }

    /// The gangs that are out of allowances, of those that `wait`.
    pub(crate) fn beyond_caps(&self, waits: impl Fn(JobId, &Job) -> bool) -> BTreeSet<JobId> {
        let mut out = BTreeSet::new();
        for (holder, gangs) in self.of_holders(waits) {
            let mut left = self.allowances.get(&holder).copied().unwrap_or(0);
            let mut is_out = false;
            for (id, job) in gangs {
                if out.contains(&id) {
                    continue;
                }
                if is_group(&holder) && self.is_beyond_cap(job) {
                    out.insert(id);
                    continue;
                }
                let cost = cost(job, holder, self.config.slice_ns);
                is_out |= cost > left;
                if is_out {
                    out.insert(id);
                } else {
                    left -= cost;
                }
            }
        }
        out
    }

    /// Whether a gang's user has too little for its slot, whoever else of his has one.
    fn is_beyond_cap(&self, job: &Job) -> bool {
        let holder = Holder::User(job.spec.user);
        let left = self.allowances.get(&holder);
        left.is_some_and(|&left| cost(job, holder, self.config.slice_ns) > left)
    }

    /// A gang that did not wait was owed nothing by the others of its user, or of its group.
    pub(crate) fn forget_own_credit(&mut self, id: JobId) {
        let Some(of) = self.jobs.get(&id) else { return };
        let least: Vec<(Holder, u128)> = holders(of)
            .filter_map(|holder| Some((holder, self.least_beside(id, holder)?)))
            .collect();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        for (holder, least) in least {
            match holder {
                Holder::Group(_) => job.group_vtime = job.group_vtime.max(least),
                Holder::User(_) => job.own_vtime = job.own_vtime.max(least),
            }
        }
    }

    /// The least virtual time among the other gangs of a holder that take turns; of all of them
    /// where none does, so that a gang that comes meanwhile is not before them for long.
    fn least_beside(&self, id: JobId, holder: Holder) -> Option<u128> {
        let others = || {
            let is_other = |(other, job): &(&JobId, &Job)| {
                **other != id && holders(job).any(|it| it == holder)
            };
            self.jobs.iter().filter(is_other).map(|(_, job)| job)
        };
        let in_turns = others().filter(|job| job.takes_turns()).map(|job| vtime_of(job, holder));
        in_turns.min().or_else(|| others().map(|job| vtime_of(job, holder)).min())
    }

    /// A job is in another group from now on: as far as the least of the gangs there.
    pub(crate) fn enter_group(&mut self, id: JobId) {
        let group = self.jobs.get(&id).and_then(|job| job.spec.quota).map(|quota| quota.group);
        let least = group.and_then(|group| self.least_beside(id, Holder::Group(group)));
        if let Some(job) = self.jobs.get_mut(&id) {
            job.group_vtime = least.unwrap_or(0);
        }
    }

    /// The gangs of holders that `wait`, those of each by tier, and by what they had among
    /// themselves. Of many users with caps few have gangs.
    fn of_holders(
        &self,
        waits: impl Fn(JobId, &Job) -> bool,
    ) -> BTreeMap<Holder, Vec<(JobId, &Job)>> {
        let mut gangs: BTreeMap<Holder, Vec<(JobId, &Job)>> = BTreeMap::new();
        if self.allowances.is_empty() {
            return gangs;
        }
        for (&id, job) in &self.jobs {
            if self.is_capped(job) && job.takes_turns() && waits(id, job) {
                for holder in self.capped_holders(job) {
                    gangs.entry(holder).or_default().push((id, job));
                }
            }
        }
        for (&holder, gangs) in &mut gangs {
            gangs.sort_by_key(|(id, job)| (job.tier, vtime_of(job, holder), *id));
        }
        gangs
    }

    fn capped_holders(&self, job: &Job) -> impl Iterator<Item = Holder> {
        holders(job).filter(|holder| self.allowances.contains_key(holder))
    }

    /// Whether a cap or a quota bounds a job.
    pub(crate) fn is_capped(&self, job: &Job) -> bool {
        self.capped_holders(job).next().is_some()
    }

    /// The users who had more than their caps give them, and the groups that had more than their
    /// quotas.
    pub(crate) fn overdrawn(&self) -> impl Iterator<Item = Holder> {
        self.allowances.iter().filter(|(_, left)| **left < 0).map(|(&holder, _)| holder)
    }

    /// Users have these caps from now on, in ‰. A user who had one keeps what is left of it.
    pub(crate) fn cap_anew(&mut self, caps: BTreeMap<UserId, u32>) {
        let mut allowances = at_first(&caps, self.topology.len());
        let before = std::mem::take(&mut self.allowances).into_iter();
        allowances.extend(before.filter(|(holder, _)| match holder {
            Holder::User(user) => caps.contains_key(user),
            Holder::Group(_) => true,
        }));
        (self.config.caps, self.allowances) = (caps, allowances);
    }

    /// Allowances are of the groups with a quota that jobs are in now.
    pub(crate) fn cap_groups(&mut self) {
        let groups: BTreeSet<u64> =
            self.jobs.values().filter_map(|job| Some(job.spec.quota?.group)).collect();
        self.allowances.retain(|holder, _| match holder {
            Holder::Group(group) => groups.contains(group),
            Holder::User(_) => true,
        });
        for group in groups {
            self.allowances.entry(Holder::Group(group)).or_insert(0);
        }
    }

    /// Shares as holders have them at most, and the others what these leave, as far as `whole`
    /// goes, which all have together.
    pub(crate) fn within_caps(&self, shares: &mut BTreeMap<JobId, f64>, whole: f64) {
        if self.allowances.is_empty() {
            return;
        }
        let machine = f64::from(self.topology.len());
        let before: f64 = self.of_capped(shares);
        for kind in [is_group, is_user] {
            // The part of the machine that the shares of each holder are.
            let mut parts: BTreeMap<Holder, f64> = BTreeMap::new();
            for (id, share) in shares.iter() {
                let job = &self.jobs[id];
                for holder in self.capped_holders(job).filter(kind) {
                    *parts.entry(holder).or_default() += share * f64::from(job.width()) / machine;
                }
            }
            let groups = self.groups();
            let factor = |holder: Holder| {
                let most = match holder {
                    Holder::User(user) => f64::from(self.config.caps[&user]) / 1000.0,
                    Holder::Group(group) => groups[&group].grant as f64 / SLOT as f64 / machine,
                };
                parts.get(&holder).filter(|part| **part > 0.0).map_or(1.0, |part| most / part)
            };
            for (id, share) in shares.iter_mut() {
                let of_kind = self.capped_holders(&self.jobs[id]).find(kind);
                *share *= of_kind.map_or(1.0, factor).min(1.0);
            }
        }
        let after: f64 = self.of_capped(shares);
        // Where gangs take turns, one at a time.
        let left = whole - before;
        if left > 0.0 && after < before {
            let more = (whole - after) / left;
            let others = shares.iter_mut().filter(|(id, _)| !self.is_capped(&self.jobs[id]));
            others.for_each(|(_, share)| *share = (*share * more).min(whole));
        }
    }

    /// The shares of capped jobs together.
    fn of_capped(&self, shares: &BTreeMap<JobId, f64>) -> f64 {
        shares.iter().filter(|(id, _)| self.is_capped(&self.jobs[id])).map(|(_, share)| share).sum()
    }
}

pub(crate) fn is_group(holder: &Holder) -> bool {
    matches!(holder, Holder::Group(_))
}

pub(crate) fn is_user(holder: &Holder) -> bool {
    !is_group(holder)
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
        let gangs = schedule.of_holders(|id, _| {
            asked.set(asked.get() + 1);
            id != JobId(0)
        });
        let counts: Vec<(String, usize)> =
            gangs.iter().map(|(holder, of_user)| (holder.to_string(), of_user.len())).collect();
        assert_eq!(counts, [("user 3".into(), 166), ("user 7".into(), 333)]);
        assert_eq!(asked.get(), 500, "each gang once");
        assert_eq!(gangs[&Holder::User(UserId(7))][0].0, JobId(2));
    }
}
