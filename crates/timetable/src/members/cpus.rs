//! The CPUs of members: those that their owners chose, and those of slots.
//!
//! Problem: a thread has one set of CPUs, whoever set it. A set that differs from what gangd gave
//! is its owner's choice, and stays. But what gangd gave is not known for certain: a switcher may
//! follow a timetable from before, threads inherit the CPUs of a slot that is over, and the kernel
//! lets a thread run anywhere of whose CPUs none is online.
//!
//! Approach: the CPUs of all timetables that a switcher may still follow are remembered. A set
//! that is none of these, nor the job's, is a choice. A timetable from before it was seen may
//! overrule it, and it is given back then.

use gang_schedule::{Allowed, CpuSet};

use super::{Members, Seen, Thread};
use crate::Action;

/// A choice of CPUs that a timetable from before it may overrule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// No timetable is made with it.
    New,
    /// The last one is.
    Planned,
}

/// Whether a thread that chose these CPUs of the machine would run out of a slot.
pub fn is_outside(own: &CpuSet, slot: &CpuSet, machine: &CpuSet) -> bool {
    !own.intersection(machine).is_subset(slot)
}

impl Members {
    /// A thread that is known was seen with these CPUs, those that are offline among them. Where
    /// they are neither the job's nor of a timetable, its program or somebody else has chosen them.
    /// True where those that it chose are others from now on: it may stand otherwise in its slot.
    pub fn see_cpus(&mut self, tid: u32, cpus: CpuSet, were_given: bool, online: &CpuSet) -> bool {
        let before = self.own_cpus.get(&tid).cloned();
        self.note_own_cpus(tid, cpus, were_given, online);
        self.own_cpus.get(&tid) != before.as_ref()
    }

    fn note_own_cpus(&mut self, tid: u32, cpus: CpuSet, were_given: bool, online: &CpuSet) {
        let Ok(at) = self.find(tid) else { return };
        // The kernel lets a thread run anywhere of whose CPUs none is online any more.
        let is_free = online.is_subset(&cpus);
        let is = |set: &CpuSet| *set == cpus || (is_free && set.is_disjoint(online));
        let is_jobs = (is_free && self.may_use_all(online)) || is(&self.everywhere);
        // One that is left alone waits to be let go from CPUs that may be those of any slot.
        let may_be_of_any = self.pins_are_unknown || self.threads[at].is_exempt();
        let is_of_slot = self.slot_pins().any(is) || (may_be_of_any && were_given);
        // It has them until it is restricted otherwise, which may take a timetable.
        if may_be_of_any && were_given {
            self.note_inherited(cpus.clone());
        }
        let Some(own) = self.own_cpus.get(&tid) else {
            if !is_jobs && !is_of_slot {
                self.threads[at].user_pinned = true;
                self.own_cpus.insert(tid, cpus);
                self.chosen.insert(tid, Choice::New);
            }
            // It may use all of its job's CPUs again, and is to go to those of the slot.
            self.pins_are_unknown |= self.pinned.is_some() && !is_of_slot && is_jobs;
            return;
        };
        if is_jobs && *own != cpus {
            self.pins_are_unknown = true;
            self.threads[at].user_pinned = false;
            self.own_cpus.remove(&tid);
            self.chosen.remove(&tid);
            self.restricted.remove(&tid);
            return;
        }
        let is_given_back = self.given_back.contains_key(&tid);
        self.restricted.remove(&tid);
        if *own != cpus && is_of_slot && (is_given_back || self.chosen.contains_key(&tid)) {
            // By a timetable from before the choice was seen. Once is enough.
            self.overruled.extend((!is_given_back).then_some(tid));
            self.restricted.insert(tid);
        } else if *own != cpus {
            self.own_cpus.insert(tid, cpus);
            // The one before is given back at any moment.
            self.overruled.extend(is_given_back.then_some(tid));
        }
    }

    /// Whether these are CPUs that a thread has from its job, from its slot or by its own choice,
    /// as far as is known: there is no need to look closer.
    pub fn is_usual(&self, tid: u32, cpus: &CpuSet) -> bool {
        let own = self.own_cpus.get(&tid);
        match own {
            Some(own) => own == cpus && !self.restricted.contains(&tid),
            None => *cpus == self.everywhere || self.slot_pins().any(|of_slot| of_slot == cpus),
        }
    }

    /// The CPUs of slots that threads may have.
    fn slot_pins(&self) -> impl Iterator<Item = &CpuSet> {
        let recent = self.recent_pins.iter().chain([&self.inherited_pins]);
        recent.flatten().chain(&self.pinned)
    }

    /// The CPUs that a thread has chosen, as they were last read.
    pub fn own_cpus(&self, tid: u32) -> Option<&CpuSet> {
        self.own_cpus.get(&tid)
    }

    /// The threads that chose CPUs of the machine that are not all of a slot, in order of number:
    /// they would run raised where others have theirs.
    pub fn outside(&self, slot: &CpuSet, machine: &CpuSet) -> Vec<u32> {
        let switched = self.threads.iter().filter(|it| it.user_pinned && !it.is_exempt());
        let own = switched.filter_map(|it| Some((it.tid, self.own_cpus.get(&it.tid)?)));
        own.filter(|(_, own)| is_outside(own, slot, machine)).map(|(tid, _)| tid).collect()
    }

    /// The threads that chose their CPUs themselves, and have them for certain: a release leaves
    /// these as they are.
    pub fn user_pinned(&self) -> impl Iterator<Item = u32> {
        let chose = self.threads.iter().filter(|thread| thread.user_pinned);
        let chose = chose.map(|thread| thread.tid);
        chose.filter(|tid| !self.chosen.contains_key(tid) && !self.restricted.contains(tid))
    }

    /// The actions that give threads back the CPUs that they chose, of those that had others from a
    /// timetable since.
    pub fn take_overruled(&mut self) -> Vec<Action> {
        let overruled = std::mem::take(&mut self.overruled);
        self.given_back.extend(overruled.iter().map(|&tid| (tid, Choice::New)));
        let overruled = overruled.into_iter();
        let own = overruled.filter_map(|tid| Some((tid, self.own_cpus.get(&tid)?.clone())));
        own.map(|(tid, cpus)| Action::Affinity { tid, cpus }).collect()
    }

    /// A thread has CPUs of a slot that is none of the last timetable's.
    pub(super) fn note_inherited(&mut self, cpus: CpuSet) {
        if !self.inherited_pins.contains(&cpus) {
            self.inherited_pins.push(cpus);
        }
    }

    /// The job is restricted to these CPUs in the timetable that begins, one after the other.
    pub fn begin_pins(&mut self, pins: Vec<CpuSet>) {
        let [last, before] = &mut self.recent_pins;
        before.append(last);
        before.sort();
        before.dedup();
        // Threads keep what they have as it begins until the first of its pins.
        last.append(&mut self.inherited_pins);
        last.extend(self.pinned.iter().cloned().chain(pins));
    }

    /// All switchers follow the last timetable: its threads have no CPUs of one before it any more.
    pub fn end_pins(&mut self) {
        self.recent_pins[1].clear();
        for choices in [&mut self.chosen, &mut self.given_back] {
            choices.retain(|_, choice| *choice == Choice::New);
            choices.values_mut().for_each(|choice| *choice = Choice::Planned);
        }
    }

    /// The cpuset of which the job had all CPUs has these ones from now on. Threads that the kernel
    /// put on all of them chose none. Those that gangd restricted before are restricted until it
    /// does so again.
    pub fn follow_cpuset(&mut self, cpus: CpuSet) {
        let before = std::mem::replace(&mut self.everywhere, cpus);
        let is_all = |own: &CpuSet| *own == before || *own == self.everywhere;
        let own = self.own_cpus.iter().filter(|(_, own)| is_all(own));
        for tid in own.map(|(&tid, _)| tid).collect::<Vec<u32>>() {
            if let Ok(at) = self.find(tid) {
                self.threads[at].user_pinned = false;
            }
            self.own_cpus.remove(&tid);
            self.chosen.remove(&tid);
            self.restricted.remove(&tid);
        }
        self.note_inherited(before);
        (self.may_use_all, self.pins_are_unknown) = (None, true);
    }

    fn may_use_all(&mut self, online: &CpuSet) -> bool {
        *self.may_use_all.get_or_insert(online.is_subset(&self.everywhere))
    }

    /// The CPUs that the threads of the job may use, of those that are `online`.
    pub fn allowed(&mut self, online: &CpuSet) -> Allowed {
        let may_use_all = self.may_use_all(online);
        let switched = || self.threads.iter().filter(|thread| !thread.is_exempt());
        let own = switched().filter_map(|thread| self.own_cpus.get(&thread.tid));
        let is_bound = |thread: &Thread| self.own_cpus.contains_key(&thread.tid);
        let own_of_all = || own.clone().fold(CpuSet::new(), |all, cpus| all.union(cpus));
        let are_all_bound = switched().next().is_some() && switched().all(is_bound);
        let all = if are_all_bound { own_of_all() } else { self.everywhere.clone() };
        let allowed = match online.is_subset(&all) || (may_use_all && !are_all_bound) {
            true => Allowed::anywhere(),
            false => Allowed::within(all),
        };
        // A bound thread is restricted no further, so that its slot is to have all of its CPUs.
        let bound = own.clone().filter(|cpus| !online.is_subset(cpus));
        allowed.with_bound(bound.map(|cpus| (cpus.clone(), cpus.len() as u32)))
    }

    /// Whether a thread that is seen for the first time chose its CPUs. One that was started by a
    /// thread in a slot has those of that slot, which may be over.
    pub(super) fn is_user_pinned(&self, seen: &Seen) -> bool {
        let has_gangds = Some(&seen.cpus) == self.pinned.as_ref() || seen.were_given;
        seen.cpus != self.everywhere && !has_gangds
    }

    /// The CPUs of a slot that threads which chose none may use. The slot may have others for the
    /// sake of threads that did; those that may use none of it run anywhere in it, as where the
    /// kernel has no CPU of theirs.
    pub fn within(&self, slot: &CpuSet) -> CpuSet {
        let inside = slot.intersection(&self.everywhere);
        // CPUs that came since are everybody's who had all.
        let has_all = self.may_use_all != Some(false) || inside.is_empty();
        if has_all { slot.clone() } else { inside }
    }

    /// The actions that restrict the threads to some CPUs, of those that have not chosen their own.
    pub fn pinning(&self, cpus: &CpuSet) -> impl Iterator<Item = Action> {
        let threads =
            self.threads.iter().filter(|thread| !thread.is_exempt() && !thread.user_pinned);
        threads.map(move |thread| Action::Affinity { tid: thread.tid, cpus: cpus.clone() })
    }

    /// Appends the actions that let the threads run on every CPU again, where they may be
    /// restricted.
    pub fn unpin(&mut self, out: &mut Vec<Action>) {
        let is_unknown = std::mem::take(&mut self.pins_are_unknown);
        if (self.pinned.take().is_some() || is_unknown) && !self.keeps_cpus {
            out.extend(self.pinning(&self.everywhere));
        }
    }
}
