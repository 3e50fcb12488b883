//! What a weight is worth.
//!
//! Problem: a person asks what share of the time a gang is to be in slot, and
//! the checker has to know what the policy owes.
//! Approach: the share that holds whatever can or cannot be packed: gangs take
//! turns, one at a time, and the rest takes turns of its own and is served
//! beside the gangs. Packing gives more.
//!
//! Algorithm. Let m CPUs be there for the rest's n threads when it leads and
//! mᵢ beside gang i, and let each gang be in slot for λ·wᵢ of the time. The
//! threads of the rest are owed the time of a gang's thread at their weight W:
//!
//! ```text
//! W·λ·n = (1 − λ·Σwᵢ)·m + λ·Σwᵢ·mᵢ   ⇒   λ = m / (W·n + Σwᵢ·(m − mᵢ))
//! ```
//!
//! and λ·Σwᵢ is at most the cap (L8), which is all there is to it where nothing
//! but gangs runs.
//!
//! Properties: shares of turns add up to the cap at most; L15's 4 threads of 16
//! on 8 CPUs are every other slice. What the policy gives is not less over a
//! frame ([`check::Frame`](crate::check::Frame)).

use crate::schedule::{Job, Schedule, Standing};
use crate::turn::{REST_WEIGHT, Tier};
use crate::{JobId, Policy};
use std::collections::BTreeMap;

impl Schedule {
    /// The fraction of the time for which a job is to be in slot by its weight,
    /// as things are now: 0 while it cannot be in a row, `None` if there is no
    /// such job or it is not scheduled by us. Where gangs fit side by side it
    /// gets more.
    pub fn share_wanted(&self, job: JobId) -> Option<f64> {
        if self.jobs.get(&job)?.spec.policy == Policy::None {
            return None;
        }
        Some(self.shares().get(&job).copied().unwrap_or(0.0))
    }

    /// The shares of all jobs that take turns.
    pub fn shares(&self) -> BTreeMap<JobId, f64> {
        let machine = self.topology.len();
        let cap = f64::from(self.config.cap_permille) / 1000.0;
        let runnable = |tier: Tier| -> Vec<(JobId, &Job)> {
            let jobs = self.jobs.iter().map(|(&id, job)| (id, job));
            jobs.filter(|(_, j)| j.standing(machine) == Standing::Runnable && j.tier() == tier)
                .collect()
        };
        let mut shares = BTreeMap::new();

        let express = runnable(Tier::Express);
        let wanted: u64 = express.iter().map(|(_, job)| u64::from(job.width(machine))).sum();
        // CPUs that are there in every slice after express.
        let left = if wanted <= u64::from(machine) {
            shares.extend(express.iter().map(|&(id, _)| (id, cap)));
            machine - wanted as u32
        } else {
            shares.extend(turns(&express, machine, 0, machine, cap));
            0
        };

        let (fit, wide): (Vec<_>, Vec<_>) =
            runnable(Tier::Shared).into_iter().partition(|(_, job)| job.width(machine) <= left);
        shares.extend(wide.iter().map(|&(id, _)| (id, 0.0)));
        shares.extend(turns(&fit, machine, self.rest.threads, left, cap));

        // Standby is owed something only where nobody else is there.
        let standby = runnable(Tier::Standby);
        if shares.is_empty() && self.rest.threads == 0 {
            shares.extend(turns(&standby, machine, 0, machine, cap));
        } else {
            shares.extend(standby.iter().map(|&(id, _)| (id, 0.0)));
        }
        shares
    }
}

/// The shares of gangs that take turns on `left` CPUs with `threads` threads
/// of the rest.
fn turns(
    gangs: &[(JobId, &Job)],
    machine: u32,
    threads: u32,
    left: u32,
    cap: f64,
) -> Vec<(JobId, f64)> {
    let weights: f64 = gangs.iter().map(|(_, job)| job.weight as f64).sum();
    let mut unit = cap / weights;
    let led = threads.min(left);
    if led > 0 {
        let taken: f64 = gangs
            .iter()
            .map(|(_, job)| {
                let beside = threads.min(left - job.width(machine));
                job.weight as f64 * f64::from(led - beside)
            })
            .sum();
        let owed = REST_WEIGHT as f64 * f64::from(threads);
        unit = unit.min(f64::from(led) / (owed + taken));
    }
    gangs.iter().map(|&(id, job)| (id, unit * job.weight as f64)).collect()
}
