//! The parts of a timetable: which switcher makes which actions of a job.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{CpuSet, JobId};

use super::{CommonWeight, Pin, Stretch};
use crate::{Action, Group, InSlot, Members, Signal, Standing, Word, lowered};

/// The threads of a gang that a part restricts to CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Restricts {
    Nobody,
    /// To those that the others have.
    New,
    /// To those of the slot.
    All,
}

/// A part follows from this.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    job: JobId,
    from: Standing,
    to: Standing,
    /// The CPUs of the slot that begins: threads that chose others fill there.
    slot: Option<CpuSet>,
    restricts: Restricts,
    /// Its slot goes on, on other CPUs.
    moves_on: bool,
}

/// The parts of a stretch, each written once, in a share for each switcher.
pub(super) struct Parts<'a> {
    stretch: &'a Stretch<'a>,
    pub(super) shares: Vec<Vec<Vec<Action>>>,
    numbers: BTreeMap<Way, usize>,
    pub(super) pins: Vec<Pin>,
    /// The edge that is walked.
    pub(super) at_ns: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(stretch: &'a Stretch<'a>) -> Parts<'a> {
        let shares = vec![Vec::new(); stretch.switchers.len()];
        Parts { stretch, shares, numbers: BTreeMap::new(), pins: Vec::new(), at_ns: 0 }
    }

    pub(super) fn part(
        &mut self,
        job: JobId,
        from: Standing,
        to: Standing,
        cpus: Option<&CpuSet>,
        new_threads: bool,
    ) -> usize {
        let (members, machine) = (self.stretch.gangs[&job].members, self.stretch.machine);
        let slot = cpus.filter(|_| to == Standing::Raised);
        let cpus = slot.map(|slot| members.within(slot));
        let cpus = cpus.filter(|cpus| self.moves(job, members, cpus));
        if let Some(cpus) = &cpus {
            self.pins.push(Pin { at_ns: self.at_ns, job, cpus: cpus.clone() });
        }
        // Threads that came from elsewhere may run anywhere yet.
        let kept = self.pinned(job, members).filter(|_| new_threads && cpus.is_none());
        let kept = kept.filter(|_| self.stretch.backend.can_fill());
        let restricts = if cpus.is_some() {
            Restricts::All
        } else if kept.is_some() {
            Restricts::New
        } else {
            Restricts::Nobody
        };
        let moves_on = from == Standing::Raised && to == Standing::Raised && !new_threads;
        let way = Way { job, from, to, slot: slot.cloned(), restricts, moves_on };
        if let Some(&number) = self.numbers.get(&way) {
            return number;
        }
        let outside = slot.map_or_else(Vec::new, |slot| members.outside(slot, machine));
        let mut actions = Vec::new();
        if let Some(cpus) = &cpus {
            actions.extend(members.pinning(cpus));
        }
        actions.extend(kept.iter().flat_map(|cpus| members.pinning(cpus)));
        let in_slot = self.stretch.gangs[&job].in_slot;
        self.stretch.backend.actions(job, members, from, to, in_slot, &mut actions);
        if in_slot.raises_threads() {
            let in_idle_group = members.controls.in_idle_group;
            actions.iter_mut().for_each(|action| fill(action, &outside, in_idle_group));
        }
        if moves_on {
            actions.retain(|action| differs_by_slot(action, members, in_slot));
        }
        let owners = self.owners(job);
        let switchers = self.stretch.switchers;
        let number = self.add(actions, |action| match action {
            Action::Attributes { tid, .. } | Action::Affinity { tid, .. } => {
                let index = members.threads().binary_search_by_key(tid, |thread| thread.tid);
                let of_cpu = |cpu: Option<u32>| {
                    cpu.map(|cpu| switchers.of_cpu(cpu)).filter(|owner| owners.contains(owner))
                };
                index.map_or(0, |index| {
                    of_cpu(members.threads()[index].cpu)
                        .unwrap_or_else(|| owners[index % owners.len()])
                })
            }
            Action::Control { .. } | Action::Signal { .. } | Action::Page { .. } => 0,
        });
        if in_slot == InSlot::Weighed {
            self.repeat_controls(number, owners);
        }
        self.numbers.insert(way, number);
        number
    }

    /// The switchers that look after a gang: those of the CPUs of its first slot. A thread belongs
    /// to that of the CPU it ran on last; threads of which that is not known are spread over them.
    ///
    /// A thread has the same one all the time: of two, the one that raises it could be late, and
    /// come after the one that lowers it.
    fn owners(&self, job: JobId) -> Vec<usize> {
        let switchers = self.stretch.switchers;
        let slot = self.stretch.plans.iter().find_map(|plan| plan.slot(job));
        let owners: Vec<usize> = match slot {
            Some(slot) => slot.cpus.iter().map(|cpu| switchers.of_cpu(cpu)).collect(),
            None => (0..switchers.len()).collect(),
        };
        debug_assert!(!owners.is_empty(), "a slot has a CPU, and a machine a group");
        if owners.is_empty() { vec![0] } else { owners }
    }

    /// Whether a gang has to be restricted to these CPUs: not where it has the whole machine, or
    /// all that its threads may use, and always had.
    fn moves(&self, job: JobId, members: &Members, cpus: &CpuSet) -> bool {
        if members.pins_are_unknown && !self.pins.iter().any(|pin| pin.job == job) {
            return self.stretch.backend.can_fill();
        }
        let everywhere = cpus == self.stretch.machine || *cpus == members.everywhere;
        let pinned = self.pinned(job, members);
        let is_there = pinned.map_or(everywhere, |pinned| pinned == *cpus);
        // Gangs that are only paused share CPUs with the rest of the machine as Linux likes.
        !is_there && self.stretch.backend.can_fill()
    }

    /// The CPUs to which the threads of a gang are restricted at the edge that is walked.
    fn pinned(&self, job: JobId, members: &Members) -> Option<CpuSet> {
        let last = self.pins.iter().rev().find(|pin| pin.job == job);
        last.map(|pin| pin.cpus.clone()).or_else(|| members.pinned.clone())
    }

    pub(super) fn page(&mut self, job: JobId, word: Word) -> Option<usize> {
        if !self.stretch.gangs[&job].has_page {
            return None;
        }
        let owner = self.owners(job)[0];
        Some(self.add(vec![Action::Page { job, word }], |_| owner))
    }

    pub(super) fn pages(&mut self) -> Option<usize> {
        let write = |&(job, word): &(JobId, Word)| Action::Page { job, word };
        let actions: Vec<Action> = self.stretch.pages.iter().map(write).collect();
        (!actions.is_empty()).then(|| self.add(actions, |_| 0))
    }

    pub(super) fn signal(&mut self, job: JobId, signal: Signal) -> usize {
        let listeners = self.stretch.gangs[&job].listeners.iter();
        let actions = listeners.map(|&pid| Action::Signal { job, pid, signal }).collect();
        let owner = self.owners(job)[0];
        self.add(actions, |_| owner)
    }

    pub(super) fn set_common_group(&mut self, weight: CommonWeight) -> Option<usize> {
        let set = |control| Action::Control { group: Group::All, control };
        let actions = weight.controls().into_iter().map(set).collect();
        self.stretch.has_common_group.then(|| self.add(actions, |_| 0))
    }

    fn add(&mut self, actions: Vec<Action>, owner: impl Fn(&Action) -> usize) -> usize {
        let number = self.shares.first().map_or(0, Vec::len);
        for share in &mut self.shares {
            share.push(Vec::new());
        }
        for action in actions {
            let owner = owner(&action);
            self.shares[owner][number].push(action);
        }
        number
    }

    /// Has each switcher of a gang set what weighs the gang as a whole.
    ///
    /// A CPU notices what a group weighs from now on when it next chooses a thread: the kernel has
    /// nobody choose anew (`sched_group_set_shares`, `sched_group_set_idle`), and the next tick may
    /// be 10 ms away. Each CPU chooses as its own switcher goes to sleep, which may be before
    /// another switcher has set the weight.
    fn repeat_controls(&mut self, number: usize, owners: Vec<usize>) {
        let is_control = |action: &&Action| matches!(action, Action::Control { .. });
        let first = self.shares[0][number].iter();
        let controls: Vec<Action> = first.filter(is_control).cloned().collect();
        for owner in BTreeSet::from_iter(owners).into_iter().filter(|&owner| owner != 0) {
            self.shares[owner][number].extend(controls.iter().cloned());
        }
    }

    pub(super) fn into_shares(self) -> impl Iterator<Item = Vec<Vec<Action>>> {
        self.shares.into_iter()
    }
}

/// Has an action leave its thread out of the slot, if the thread is one of these, in order of
/// number.
fn fill(action: &mut Action, threads: &[u32], in_idle_group: bool) {
    if let Action::Attributes { tid, attributes, known } = action {
        if threads.binary_search(tid).is_ok() {
            *attributes = lowered(&known.own, in_idle_group);
        }
    }
}

/// Whether an action that raises a gang depends on the CPUs of its slot.
fn differs_by_slot(action: &Action, members: &Members, in_slot: InSlot) -> bool {
    match action {
        Action::Affinity { .. } => true,
        Action::Attributes { tid, .. } => {
            let threads = members.threads();
            let found = threads.binary_search_by_key(tid, |thread| thread.tid);
            in_slot.raises_threads() && found.is_ok_and(|at| threads[at].user_pinned)
        }
        Action::Control { .. } | Action::Signal { .. } | Action::Page { .. } => false,
    }
}
