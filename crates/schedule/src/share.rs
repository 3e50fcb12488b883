//! The worth of a weight.
//!
//! Problem: a person asks for what share of the time a gang is to be in slot, and the checker has
//! to know what the policy owes. Approach: the share that holds for any packing. Gangs take turns,
//! one at a time; the rest takes turns of its own and is served beside the gangs. Packing gives
//! more.
//!
//! Algorithm. Let m CPUs be there for the rest's n threads when it leads, and mᵢ beside gang i. Let
//! each gang be in slot for λ·wᵢ of the time. The threads of the rest are owed the time of a gang's
//! thread at their weight W:
//!
//! ```text
//! W·λ·n = (1 − λ·Σwᵢ)·m + λ·Σwᵢ·mᵢ   ⇒   λ = m / (W·n + Σwᵢ·(m − mᵢ))
//! ```
//!
//! and λ·Σwᵢ is at most the cap (L8), which is all there is to it where nothing
//! but gangs runs. Where spanning jobs have a part of the CPUs, λ is as much less. Nobody has more
//! than the rows with room for it (`entries`).
//!
//! One case is worse: gangs packed side by side leave the rest less, so that it leads more often.
//! Where it has fewer threads than CPUs, CPUs idle in its turns. Only the turns are then
//! *guaranteed*: λ = 1 / (W + Σwᵢ).
//!
//! Beside spanning jobs, turns are guaranteed out of the rows with room. Let r of F rows have room
//! for gang i, and let the fewest CPUs that a row leaves serve u of the n threads. The gang has
//! wᵢ / (W·n/u + Σw) of the r rows. Under a cap the rows of spanning jobs come first: the others
//! have what the cap leaves beside these.
//!
//! Properties: shares of turns add up to the cap at most; L15's 4 threads of 16
//! on 8 CPUs are every other slice; over a frame, nobody has less than what is
//! guaranteed ([`check::Frame`](crate::check::Frame)).

use crate::entries::{List, fits};
use crate::matrix::Rows;
use crate::schedule::{Job, Readiness, Schedule};
use crate::seating::Seating;
use crate::turn::Tier;
use crate::{JobId, Policy};
use std::collections::BTreeMap;

impl Schedule {
    /// The fraction of the time for which a job is to be in slot by its weight, as things are now.
    /// It is 0 while the job cannot be in a row; `None` if there is no such job or it is not
    /// scheduled by us. Where gangs fit side by side it gets more.
    pub fn share_wanted(&self, job: JobId) -> Option<f64> {
        let of = self.jobs.get(&job)?;
        if of.spec.policy == Policy::None {
            return None;
        }
        if of.spans && of.readiness() == Readiness::Runnable {
            let list = self.list_in_force();
            let entry = list.and_then(|list| Some((list.entry(job)?, list.frame())));
            return entry.map(|(entry, frame)| f64::from(entry.rows.len()) / f64::from(frame));
        }
        Some(self.shares().get(&job).copied().unwrap_or(0.0))
    }

    /// The shares of all jobs that take turns, as
    /// [`share_wanted`](Schedule::share_wanted) gives them.
    pub fn shares(&self) -> BTreeMap<JobId, f64> {
        let mut shares = self.shares_by(|_, _, _| false);
        let cap = f64::from(self.config.cap_permille) / 1000.0;
        let whole = if self.rest.threads > 0 { 1.0 } else { cap };
        self.within_caps(&mut shares, whole);
        if let Some(list) = self.list_in_force() {
            for (id, share) in &mut shares {
                *share = share.min(self.part_with_room(&self.jobs[id], list));
            }
        }
        shares
    }

    /// The list of the slice that was planned last.
    pub(crate) fn list_in_force(&self) -> Option<&List> {
        self.in_force.and_then(|slice| self.entries.at(slice))
    }

    /// The rows with room for a gang.
    pub(crate) fn rows_with_room(&self, job: &Job, list: &List) -> Rows {
        list.rows_with(self.topology.set(), |left| fits(job, left))
    }

    /// The part of the CPUs that spanning jobs leave over a frame.
    fn part_of_local(&self) -> f64 {
        let Some(list) = self.list_in_force() else { return 1.0 };
        1.0 - list.cpus_taken() / f64::from(self.topology.len())
    }

    fn part_with_room(&self, job: &Job, list: &List) -> f64 {
        f64::from(self.rows_with_room(job, list).len()) / f64::from(list.frame())
    }

    /// The shares below which nobody falls, however gangs are packed.
    pub(crate) fn guaranteed(&self) -> BTreeMap<JobId, f64> {
        if let Some(list) = self.list_in_force() {
            return self.guaranteed_beside(list);
        }
        self.shares_by(|gangs, threads, left| {
            threads < left && self.two_fit(gangs.iter().map(|(_, job)| *job), left)
        })
    }

    fn guaranteed_beside(&self, list: &List) -> BTreeMap<JobId, f64> {
        let cap = f64::from(self.config.cap_permille) / 1000.0;
        let by_cap = if cap < 1.0 {
            (cap - f64::from(list.rows_taken()) / f64::from(list.frame())).max(0.0)
        } else {
            1.0
        };
        let mut shares = BTreeMap::new();
        for tier in Tier::ALL {
            let gangs = || self.jobs.iter().filter(|(_, it)| it.takes_turns() && it.tier == tier);
            let mut weights: f64 = gangs().map(|(_, job)| job.weight as f64).sum();
            let threads = self.rest.threads;
            if tier == Tier::Shared && threads > 0 {
                let served = list.least_room(self.topology.set()).min(threads as usize);
                weights += self.rest.weight as f64 / served.max(1) as f64;
            }
            // Those behind a tier have what it leaves.
            let is_first = shares.is_empty() && (tier != Tier::Standby || threads == 0);
            for (&id, job) in gangs() {
                let most = self.part_with_room(job, list).min(by_cap);
                let share = job.weight as f64 / weights * most;
                shares.insert(id, if is_first { share } else { 0.0 });
            }
        }
        shares
    }

    /// Whether any two gangs fit side by side.
    pub(crate) fn packs(&self) -> bool {
        let runnable = self.jobs.values().filter(|job| job.takes_turns());
        self.two_fit(runnable, self.topology.len())
    }

    fn two_fit<'a>(&self, gangs: impl Iterator<Item = &'a Job>, left: u32) -> bool {
        let mut widths: Vec<u32> = gangs.map(Job::width).collect();
        widths.sort_unstable();
        widths.len() > 1 && widths[0] + widths[1] <= left
    }

    /// `idles`: whether packing these gangs on so many CPUs beside so many
    /// threads of the rest can make CPUs idle.
    fn shares_by(
        &self,
        idles: impl Fn(&[(JobId, &Job)], u32, u32) -> bool,
    ) -> BTreeMap<JobId, f64> {
        let machine = self.topology.len();
        let cap = f64::from(self.config.cap_permille) / 1000.0;
        let runnable = |tier: Tier| -> Vec<(JobId, &Job)> {
            let jobs = self.jobs.iter().map(|(&id, job)| (id, job));
            jobs.filter(|(_, job)| job.takes_turns() && job.tier == tier).collect()
        };
        let mut shares = BTreeMap::new();

        let express = runnable(Tier::Express);
        let wanted: u64 = express.iter().map(|(_, job)| u64::from(job.width())).sum();
        // CPUs that are there in every slice after express.
        let mut seating = Seating::new(self.topology.set().clone());
        let all_fit = wanted <= u64::from(machine)
            && express.iter().all(|(_, job)| seating.seat(job.parts()));
        let left = if all_fit {
            shares.extend(express.iter().map(|&(id, _)| (id, cap)));
            machine - wanted as u32
        } else {
            shares.extend(turns(&express, (0, 0), (machine, 1.0), cap, false));
            0
        };

        let mut fits = |job: &Job| job.width() <= left && seating.could_seat(job.parts());
        let (fit, wide): (Vec<_>, Vec<_>) =
            runnable(Tier::Shared).into_iter().partition(|(_, job)| fits(job));
        shares.extend(wide.iter().map(|&(id, _)| (id, 0.0)));
        let threads = self.rest.threads;
        let rest = (threads, self.rest.weight);
        let part = self.part_of_local();
        shares.extend(turns(&fit, rest, (left, part), cap, idles(&fit, threads, left)));

        // Standby is owed something only where nobody else is there.
        let standby = runnable(Tier::Standby);
        if shares.is_empty() && self.rest.threads == 0 {
            shares.extend(turns(&standby, (0, 0), (machine, 1.0), cap, false));
        } else {
            shares.extend(standby.iter().map(|&(id, _)| (id, 0.0)));
        }
        shares
    }
}

/// The shares of gangs that take turns on `left` CPUs with `threads` threads of the rest, of some
/// weight together. Of the CPUs there is only a part over a frame.
fn turns(
    gangs: &[(JobId, &Job)],
    (threads, weight): (u32, u128),
    (left, part): (u32, f64),
    cap: f64,
    idles: bool,
) -> Vec<(JobId, f64)> {
    let weights: f64 = gangs.iter().map(|(_, job)| job.weight as f64).sum();
    let mut unit = cap / weights;
    let led = threads.min(left);
    if led > 0 {
        let taken: f64 = gangs
            .iter()
            .map(|(_, job)| {
                let beside = threads.min(left - job.width());
                job.weight as f64 * f64::from(led - beside)
            })
            .sum();
        let owed = weight as f64;
        unit = unit.min(f64::from(led) * part / (owed + taken));
        if idles {
            unit = unit.min(1.0 / (owed / f64::from(threads) + weights));
        }
    }
    gangs.iter().map(|&(id, job)| (id, unit * job.weight as f64)).collect()
}
