//! Placement: which CPUs a gang gets.
//!
//! Problem: the threads of a gang talk to each other, so they should share
//! caches; moving them costs warm caches, so they should stay; and a gang that
//! is spread needlessly takes a whole node from the next wide gang.
//! Approach: a gang whose CPUs of last time are free keeps them. Another gets
//! the smallest domain of the machine that has room for it.
//! Terms: a *domain* is the machine, a node, a cache, a core or a CPU; its
//! *room* is how many of its CPUs are free.
//! Algorithm: to take k CPUs from a domain, take them from the child with the
//! least room that is enough; where no child has enough, take all of the child
//! with the most room and go on with what is left. The first of equals.
//! Properties: exactly k CPUs, all of them free before; a child is split only
//! where k is not the sum of whole children; the same state gives the same
//! CPUs. Equal to a naive version of the same rules (tests/policy/naive.rs).

use crate::topology::LEVELS;
use crate::{CpuSet, Topology};

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
