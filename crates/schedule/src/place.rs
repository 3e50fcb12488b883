//! Placement: which CPUs a gang gets.
//!
//! Problem: the threads of a gang talk to each other, so they should share
//! caches; moving them costs warm caches, so they should stay; and a gang that
//! is spread needlessly takes a whole node from the next wide gang.
//! Approach: a gang whose CPUs of last time are free keeps them. Another gets
//! the smallest domain of the machine that has room for it.
//! Confined gangs choose before the others, which can take whatever is left.
//! Terms: a *domain* is the machine, a node, a cache, a core or a CPU; its
//! *room* is how many of its CPUs are free.
//! Algorithm: to take k CPUs from a domain, take them from the child with the
//! least room that is enough; where no child has enough, take all of the child
//! with the most room and go on with what is left. The first of equals.
//! A confined gang takes the parts of its demand one after the other, in this way. Where that
//! leaves too little for the confined gangs after it, the part gets the first CPUs that leave
//! enough.
//! Properties: exactly k CPUs, all of them free before, out of those that the gang may use; a child
//! is split only where k is not the sum of whole children; the same state gives the same CPUs.
//! Equal to a naive version of the same rules (tests/policy/naive.rs).

use crate::allowed::{Demand, Part};
use crate::seating::Seating;
use crate::topology::LEVELS;
use crate::{CpuSet, JobId, Slot, Topology};

/// The CPUs that are free while a row is being filled.
pub(crate) struct Room<'a> {
    topology: &'a Topology,
    free: CpuSet,
    /// Free CPUs of each domain of each level; in the last, of each CPU.
    room: [Vec<u32>; LEVELS + 1],
    /// Whether `room` is up to date. Rows that keep their CPUs never need it.
    counted: bool,
}

impl<'a> Room<'a> {
    /// `free` must be CPUs of the topology.
    pub fn new(topology: &'a Topology, free: CpuSet) -> Room<'a> {
        Room { topology, free, room: Default::default(), counted: false }
    }

    /// The CPUs that are still free.
    pub fn into_free(self) -> CpuSet {
        self.free
    }

    /// Takes exactly these CPUs, if all of them are free.
    pub fn take_these(&mut self, cpus: &CpuSet) -> bool {
        if !cpus.is_subset(&self.free) {
            return false;
        }
        self.free.subtract(cpus);
        self.counted = false;
        true
    }

    /// Takes `count` CPUs near each other; at least as many must be free.
    pub fn take(&mut self, count: u32) -> CpuSet {
        self.count();
        debug_assert!(self.room[0][0] >= count);
        let mut taken = CpuSet::new();
        self.take_from(0, 0, count, &mut taken);
        self.free.subtract(&taken);
        taken
    }

    /// Takes the CPUs of a confined gang, so that these parts of others find theirs.
    fn take_parts(&mut self, demand: &Demand, others: &[&[Part]]) -> CpuSet {
        let mut all = CpuSet::new();
        for (at, part) in demand.parts.iter().enumerate() {
            let mut after: Vec<&[Part]> = vec![&demand.parts[at + 1..]];
            after.extend(others);
            let mut near = Room::new(self.topology, self.free.intersection(&part.cpus));
            let near = near.take(part.count);
            let taken = match can_seat(&self.free.difference(&near), &after) {
                true => near,
                false => self.first_of(part, &after),
            };
            self.free.subtract(&taken);
            all = all.union(&taken);
        }
        self.counted = false;
        all
    }

    /// The first CPUs for a part that leave enough for these parts.
    fn first_of(&self, part: &Part, after: &[&[Part]]) -> CpuSet {
        let (mut free, mut taken) = (self.free.clone(), CpuSet::new());
        let mut left = part.clone();
        for cpu in self.topology.cpus().iter().map(|cpu| cpu.id) {
            if left.count == 0 || !free.contains(cpu) || !part.cpus.contains(cpu) {
                continue;
            }
            free.remove(cpu);
            left.count -= 1;
            let all: Vec<&[Part]> =
                [std::slice::from_ref(&left)].into_iter().chain(after.iter().copied()).collect();
            if can_seat(&free, &all) {
                taken.insert(cpu);
            } else {
                free.insert(cpu);
                left.count += 1;
            }
        }
        taken
    }

    fn count(&mut self) {
        if self.counted {
            return;
        }
        self.counted = true;
        let free = &self.free;
        self.room[LEVELS] =
            self.topology.cpus().iter().map(|cpu| u32::from(free.contains(cpu.id))).collect();
        for level in (0..LEVELS).rev() {
            let below = &self.room[level + 1];
            let sum = |children: &std::ops::Range<u32>| {
                below[children.start as usize..children.end as usize].iter().sum()
            };
            self.room[level] = self.topology.domains(level).iter().map(sum).collect();
        }
    }

    fn take_from(&mut self, level: usize, domain: usize, count: u32, taken: &mut CpuSet) {
        self.room[level][domain] -= count;
        if level == LEVELS {
            taken.insert(self.topology.cpus()[domain].id);
            return;
        }
        let children = self.topology.domains(level)[domain].clone();
        let children = children.start as usize..children.end as usize;
        let mut left = count;
        while left > 0 {
            let (mut enough, mut most) = (None, 0);
            for child in children.clone() {
                let room = self.room[level + 1][child];
                most = most.max(room);
                if room == left {
                    enough = Some((room, child));
                    break;
                }
                if room > left && enough.is_none_or(|(least, _)| room < least) {
                    enough = Some((room, child));
                }
            }
            if let Some((_, child)) = enough {
                return self.take_from(level + 1, child, left, taken);
            }
            // None has room for what is left, so all of equals are taken one
            // after the other; a pass for each would be quadratic in CPUs.
            for child in children.clone() {
                if left < most {
                    break;
                }
                if self.room[level + 1][child] == most {
                    self.take_from(level + 1, child, most, taken);
                    left -= most;
                }
            }
        }
    }
}

/// Gives each gang of a row its CPUs: those it had if they are free, else new ones.
pub(crate) fn place(room: &mut Room, row: Vec<(JobId, &Demand, &mut CpuSet)>) -> Vec<Slot> {
    let mut is_placed = vec![false; row.len()];
    let demands: Vec<&Demand> = row.iter().map(|(_, demand, _)| *demand).collect();
    // Confined gangs without CPUs yet.
    let others = |is_placed: &[bool], at: usize| -> Vec<&[Part]> {
        let others = demands.iter().zip(is_placed).enumerate();
        let others = others.filter(|&(other, (_, is_placed))| other != at && !is_placed);
        others.map(|(_, (demand, _))| &demand.parts[..]).filter(|it| !it.is_empty()).collect()
    };
    let mut slots: Vec<(JobId, &mut CpuSet)> =
        row.into_iter().map(|(job, _, last_cpus)| (job, last_cpus)).collect();
    for is_confined in [true, false] {
        let of_kind: Vec<usize> =
            (0..slots.len()).filter(|&at| demands[at].is_confined() == is_confined).collect();
        for &at in &of_kind {
            let last_cpus = &*slots[at].1;
            let others = others(&is_placed, at);
            let leaves_room = || {
                let mut parts = others.iter().copied().flatten();
                parts.all(|part| part.cpus.is_disjoint(last_cpus))
                    || can_seat(&room.free.difference(last_cpus), &others)
            };
            is_placed[at] = demands[at].is_met_by(last_cpus)
                && last_cpus.is_subset(&room.free)
                && leaves_room()
                && room.take_these(last_cpus);
        }
        for at in of_kind {
            if !is_placed[at] {
                *slots[at].1 = match is_confined {
                    true => room.take_parts(demands[at], &others(&is_placed, at)),
                    false => room.take(demands[at].width),
                };
                is_placed[at] = true;
            }
        }
    }
    slots.into_iter().map(|(job, cpus)| Slot { job, cpus: cpus.clone() }).collect()
}

/// Whether all of these parts can be had at once.
fn can_seat(free: &CpuSet, parts: &[&[Part]]) -> bool {
    let mut seating = Seating::new(free.clone());
    parts.iter().all(|parts| seating.seat(parts))
}
