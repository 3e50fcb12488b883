//! Accounts: what a job weighs, by its user.
//!
//! Problem: whoever starts more jobs, or asks for greater weights, would have more of the machine.
//! And who leaves while he is ahead and comes back would be at the floor again.
//!
//! Approach: shares are of two levels ([`Sharing::ByUser`]). Users share the machine; the jobs of a
//! user share his part by their weights and classes. Ordinary threads of his outside of all jobs
//! are among them, each like a job of default weight on one CPU (L18). A tier is shared by those
//! that can run in it. [`Sharing::ByProgram`] has one level: each job weighs what it asks for
//! (L15).
//!
//! Terms:
//! - *rows of a user*: the machine's worth of his jobs. Jobs that are as wide as the machine have a
//!   row each; narrow ones fit side by side.
//! - *debt*: how far jobs of a user were ahead of the floor when they left.
//!
//! Algorithm. Let a user have the share S, and let job i ask for the weight wᵢ and have mᵢ of m
//! CPUs. It weighs
//!
//! ```text
//! S · wᵢ / max(w, max wₖ, Σ wₖ·mₖ/m)
//! ```
//!
//! where w is the usual weight. So the user is there in as many rows as one who has a single job,
//! and in fewer where he asks for less than the usual weight: whoever is nice is so to all. The
//! users of some threads outside of all jobs are not known. They weigh against all others as they
//! would by program.
//!
//! A job of many threads takes time to switch that would be others'. It weighs as much less as its
//! slots cost more ([`Event::Overhead`](crate::Event)).
//!
//! A job that leaves ahead of the floor leaves a debt. The next job of its user, in the same tier,
//! begins ahead by as many slices. A debt that the floor has passed is forgotten.
//!
//! Properties: by user, the number of jobs and their weights say nothing of what others have; and
//! neither leaving nor coming back brings a slot sooner.

use std::collections::BTreeMap;

use crate::schedule::{Job, Readiness, Rest, Schedule};
use crate::turn::{REST_WEIGHT, SCALE, Tier};
use crate::{JobId, UserId};

/// How the machine is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// All jobs with each other.
    ByProgram,
    /// Users with each other, then the jobs of each. Shares of users that are not 100, 1 to 10,000.
    ByUser(BTreeMap<UserId, u32>),
}

impl Sharing {
    /// The share of a user for whom nothing else is said.
    pub const USUAL: u32 = 100;
    /// The greatest share.
    pub const MAX: u32 = 10_000;

    /// The weight of all of a user.
    fn of(shares: &BTreeMap<UserId, u32>, user: UserId) -> u128 {
        let share = shares.get(&user).copied().unwrap_or(Sharing::USUAL);
        u128::from(share) * u128::from(REST_WEIGHT * SCALE) / u128::from(Sharing::USUAL)
    }
}

/// The weights of all jobs, and of the rest.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// Of jobs that cannot run, some are missing: their weights stay.
    pub gangs: BTreeMap<JobId, u64>,
    pub rest: u128,
}

impl Weights {
    /// Adds the weights of these gangs, and that of the rest beside them.
    fn add(&mut self, gangs: &[Asking], (weights, rest): (Vec<u64>, u128)) {
        self.gangs.extend(gangs.iter().map(|gang| gang.job).zip(weights));
        self.rest += rest;
    }
}

/// Those of one user who share a tier.
#[derive(Debug, Default)]
struct Account {
    greatest: u128,
    /// Weights by widths.
    sum: u128,
}

impl Account {
    fn add(&mut self, weight: u128, width: u128) {
        self.greatest = self.greatest.max(weight);
        self.sum += weight * width;
    }
}

/// A gang among those that share: its user, the weight that it asks for, and its CPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking {
    pub job: JobId,
    pub user: UserId,
    pub weight: u64,
    pub width: u32,
}

impl Sharing {
    /// The weights of these gangs, in their order, and of so many threads outside of all jobs, on a
    /// machine.
    pub(crate) fn weigh(
        &self,
        machine: u32,
        gangs: &[Asking],
        threads: u32,
        of_users: &BTreeMap<UserId, u32>,
    ) -> (Vec<u64>, u128) {
        let (machine, threads) = (u128::from(machine), u128::from(threads));
        let usual = u128::from(REST_WEIGHT * SCALE);
        let Sharing::ByUser(shares) = self else {
            return (gangs.iter().map(|gang| gang.weight).collect(), threads * usual);
        };
        let of_users = || of_users.iter().filter(|(_, count)| **count > 0);
        let mut accounts: BTreeMap<UserId, Account> = BTreeMap::new();
        for gang in gangs {
            accounts.entry(gang.user).or_default().add(gang.weight.into(), gang.width.into());
        }
        for (&user, &count) in of_users() {
            accounts.entry(user).or_default().add(usual, count.into());
        }
        let of = |user: UserId, asked: u128| {
            let Account { greatest, sum } = &accounts[&user];
            let rows = ((*greatest).max(usual) * machine).max(*sum);
            (Sharing::of(shares, user) * asked * machine / rows).max(SCALE.into())
        };
        let mut weights = Vec::with_capacity(gangs.len());
        let (mut given, mut asked_in_all) = (0, 0);
        for gang in gangs {
            let asked = gang.weight.into();
            let weight = of(gang.user, asked);
            weights.push(weight.try_into().unwrap_or(u64::MAX));
            given += weight;
            asked_in_all += asked;
        }
        let (mut known, mut rest) = (0, 0);
        for (&user, &count) in of_users() {
            let count = u128::from(count);
            known += count;
            given += count * of(user, usual);
            asked_in_all += count * usual;
            rest += count * of(user, usual);
        }
        let unknown = threads - known;
        rest += match asked_in_all {
            0 => unknown * usual,
            asked => (unknown * usual * given / asked).max(unknown * u128::from(SCALE)),
        };
        (weights, rest)
    }
}

impl Schedule {
    pub(crate) fn weigh(&self) -> Weights {
        let machine = self.topology.len();
        let asking = |(&id, job): (&JobId, &Job)| {
            let (weight, width) = (self.config.weight(&job.spec), job.width());
            Asking { job: id, user: job.spec.user, weight, width }
        };
        let sharing = &self.config.sharing;
        let Rest { threads, of_users, .. } = &self.rest;
        let mut weights = Weights::default();
        if *sharing == Sharing::ByProgram {
            let gangs: Vec<Asking> = self.jobs.iter().map(asking).collect();
            weights.add(&gangs, sharing.weigh(machine, &gangs, *threads, of_users));
            return weights;
        }
        for tier in Tier::ALL {
            let in_tier = |(_, job): &(&JobId, &Job)| {
                self.config.tier(&job.spec) == tier && job.readiness() == Readiness::Runnable
            };
            let gangs: Vec<Asking> = self.jobs.iter().filter(in_tier).map(asking).collect();
            let of_tier = match tier {
                Tier::Shared => sharing.weigh(machine, &gangs, *threads, of_users),
                Tier::Express | Tier::Standby => {
                    sharing.weigh(machine, &gangs, 0, &BTreeMap::new())
                }
            };
            weights.add(&gangs, of_tier);
        }
        weights
    }

    /// A job leaves; what it is ahead of the floor is its user's debt.
    pub(crate) fn note_debt(&mut self, job: &Job) {
        let floors = &self.floors;
        self.debts.retain(|&(_, tier), until| *until > floors.of(tier));
        let floor = floors.of(job.tier);
        let ahead = job.vtime.saturating_sub(floor);
        if ahead > 0 {
            let until = self.debts.entry((job.spec.user, job.tier)).or_insert(floor);
            *until += ahead * u128::from(job.weight) / u128::from(REST_WEIGHT * SCALE);
        }
    }

    /// How far a job of that weight begins ahead of the floor: its user's debt, which is its own
    /// from now on.
    pub(crate) fn take_debt(&mut self, user: UserId, tier: Tier, weight: u64) -> u128 {
        let until = self.debts.remove(&(user, tier)).unwrap_or(0);
        let ahead = until.saturating_sub(self.floors.of(tier));
        ahead * u128::from(REST_WEIGHT * SCALE) / u128::from(weight)
    }
}
