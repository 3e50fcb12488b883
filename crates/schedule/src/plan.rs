//! Plans: what is to be so in one slice.
//!
//! A plan is an immutable value. It says everything that the engine needs and
//! leaves it no choices: which gang has which CPUs, who may fill holes, who is
//! paused. Two plans can be compared, and their difference is what a switch
//! has to do.

use crate::{CpuSet, JobId};
use std::collections::BTreeMap;

/// A gang in a row, with the CPUs that are its own in this slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub job: JobId,
    pub cpus: CpuSet,
}

/// The decision for one slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Grows by one with every plan that a [`Schedule`](crate::Schedule) makes
    /// and with every event that changes it.
    pub generation: u64,
    pub slice: u64,
    /// UTC, ns.
    pub start_ns: u64,
    /// UTC, ns.
    pub end_ns: u64,
    /// The gangs that are raised, the leader first. Their CPUs are disjoint.
    pub row: Vec<Slot>,
    /// The CPUs of no gang.
    pub rest: CpuSet,
    /// The rest of the machine leads this slice: it chose its CPUs before any
    /// gang that shares by weight.
    pub rest_turn: bool,
    /// How many of the CPUs of `rest` were kept for it, since it deserved them
    /// before the gangs that wait. On the others nobody could be packed.
    pub rest_kept: u32,
    /// No gang may be raised in this slice, or gangs would have more than the
    /// cap gives them (L8).
    pub capped: bool,
    /// Gangs that are not raised in this slice since their users would have more than their caps
    /// give them, or their groups more than their quotas; by id.
    pub beyond_caps: Vec<JobId>,
    /// Jobs that have no slot but may run in holes, in the order in which
    /// they deserve it.
    pub fillers: Vec<JobId>,
    /// Jobs that must not run, by id.
    pub paused: Vec<JobId>,
}

/// The changes in the row at a switch from one plan to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// In the row now, not before.
    pub enters: Vec<Slot>,
    /// In the row before, not now; with the CPUs it had.
    pub leaves: Vec<Slot>,
    /// In the row before and now, on the same CPUs.
    pub stays: Vec<JobId>,
    /// In the row before and now, on other CPUs; with the CPUs it has now.
    pub moves: Vec<Slot>,
}

impl Diff {
    /// Whether the row is the same.
    pub fn is_empty(&self) -> bool {
        self.enters.is_empty() && self.leaves.is_empty() && self.moves.is_empty()
    }
}

impl Plan {
    /// The slot of a job, if it is in the row.
    pub fn slot(&self, job: JobId) -> Option<&Slot> {
        self.row.iter().find(|slot| slot.job == job)
    }

    /// The changes in the row from the plan `before` to this one. Each list is in the order of its
    /// row.
    pub fn diff(&self, before: &Plan) -> Diff {
        let old: BTreeMap<JobId, &CpuSet> = before.row.iter().map(|s| (s.job, &s.cpus)).collect();
        let new: BTreeMap<JobId, &CpuSet> = self.row.iter().map(|s| (s.job, &s.cpus)).collect();
        let mut diff = Diff::default();
        for slot in &self.row {
            match old.get(&slot.job) {
                None => diff.enters.push(slot.clone()),
                Some(&cpus) if *cpus == slot.cpus => diff.stays.push(slot.job),
                Some(_) => diff.moves.push(slot.clone()),
            }
        }
        diff.leaves = before.row.iter().filter(|s| !new.contains_key(&s.job)).cloned().collect();
        diff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(row: &[(u64, &str)]) -> Plan {
        let slot =
            |&(job, cpus): &(u64, &str)| Slot { job: JobId(job), cpus: cpus.parse().unwrap() };
        Plan {
            generation: 0,
            slice: 0,
            start_ns: 0,
            end_ns: 0,
            row: row.iter().map(slot).collect(),
            rest: CpuSet::new(),
            rest_turn: false,
            rest_kept: 0,
            capped: false,
            beyond_caps: vec![],
            fillers: vec![],
            paused: vec![],
        }
    }

    #[test]
    fn a_diff_names_what_enters_leaves_stays_and_moves() {
        let before = plan(&[(1, "0-1"), (2, "2-3"), (3, "4")]);
        let now = plan(&[(4, "2-3"), (1, "0-1"), (3, "5")]);
        let diff = now.diff(&before);
        assert_eq!(diff.enters, now.row[..1]);
        assert_eq!(diff.leaves, before.row[1..2]);
        assert_eq!(diff.stays, [JobId(1)]);
        assert_eq!(diff.moves, now.row[2..]);
        assert!(!diff.is_empty() && now.diff(&now).is_empty());
    }
}
