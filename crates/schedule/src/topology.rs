//! The CPUs of a machine and how near they are to each other.
//!
//! Problem: placement has to know which CPUs share a core, a cache and a
//! node, and tests need machines that nobody has.
//! Approach: the topology is a value. It is kept as a tree of five levels
//! (machine, node, cache, core, CPU), each level an array in which the
//! children of a domain are neighbours.
//! Properties: every CPU is a leaf once; a core never spans two caches, nor a
//! cache two nodes (numbers that claim so are taken as two domains).

use crate::{CpuSet, Refusal};
use std::ops::Range;

/// One more than the greatest CPU number.
pub const MAX_CPUS: u32 = 65_536;

/// One CPU that is online. The numbers only say what CPUs share. Two CPUs of one node with the same
/// `cache` share their last-level cache; two CPUs of one cache with the same `core` are siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    /// The kernel's number of the CPU, below [`MAX_CPUS`].
    pub id: u32,
    pub core: u32,
    pub cache: u32,
    pub node: u32,
}

impl Cpu {
    fn nearness(&self) -> (u32, u32, u32, u32) {
        (self.node, self.cache, self.core, self.id)
    }
}

/// The levels of the tree that have children, from the machine to the core.
pub(crate) const LEVELS: usize = 4;

/// The CPUs that are online.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Neighbours in this order are near each other.
    cpus: Vec<Cpu>,
    set: CpuSet,
    /// `children[level][domain]`: its children, as indices into the next level.
    children: [Vec<Range<u32>>; LEVELS],
}

impl Topology {
    /// A machine of these CPUs, in any order.
    ///
    /// # Errors
    /// [`Refusal::NoCpus`], [`Refusal::DuplicateCpu`] and
    /// [`Refusal::CpuOutOfRange`].
    pub fn new(mut cpus: Vec<Cpu>) -> Result<Topology, Refusal> {
        if cpus.is_empty() {
            return Err(Refusal::NoCpus);
        }
        let mut set = CpuSet::new();
        for cpu in &cpus {
            if cpu.id >= MAX_CPUS {
                return Err(Refusal::CpuOutOfRange { cpu: cpu.id, max: MAX_CPUS });
            }
            if !set.insert(cpu.id) {
                return Err(Refusal::DuplicateCpu { cpu: cpu.id });
            }
        }
        cpus.sort_unstable_by_key(Cpu::nearness);

        // From the leaves up: neighbours with the same key are one domain.
        let shares = |level: usize, cpu: &Cpu| match level {
            0 => (0, 0, 0),
            1 => (cpu.node, 0, 0),
            2 => (cpu.node, cpu.cache, 0),
            _ => (cpu.node, cpu.cache, cpu.core),
        };
        let mut firsts: Vec<u32> = (0..cpus.len() as u32).collect();
        let mut children: [Vec<Range<u32>>; LEVELS] = Default::default();
        for level in (0..LEVELS).rev() {
            let key = |child: usize| shares(level, &cpus[firsts[child] as usize]);
            let mut starts: Vec<usize> = Vec::new();
            for child in 0..firsts.len() {
                if child == 0 || key(child) != key(child - 1) {
                    starts.push(child);
                }
            }
            let ends = starts.iter().skip(1).copied().chain([firsts.len()]);
            children[level] =
                starts.iter().zip(ends).map(|(&start, end)| start as u32..end as u32).collect();
            firsts = starts.iter().map(|&start| firsts[start]).collect();
        }
        Ok(Topology { cpus, set, children })
    }

    /// A machine of `n` CPUs (0 to n − 1), each its own core, that share one
    /// cache and one node. At least one CPU, at most [`MAX_CPUS`].
    pub fn flat(n: u32) -> Topology {
        let cpu = |id| Cpu { id, core: id, cache: 0, node: 0 };
        let cpus = (0..n.clamp(1, MAX_CPUS)).map(cpu).collect();
        Topology::new(cpus).expect("distinct numbers within the limit")
    }

    /// The CPUs that are online, those near each other side by side.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPUs that are online, as a set.
    pub fn set(&self) -> &CpuSet {
        &self.set
    }

    /// How many CPUs are online; never 0.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// The domains of a level of the tree, each as the indices of its
    /// children in the next level. Level 0 is the machine; the children of
    /// the last level are indices into [`Topology::cpus`].
    pub(crate) fn domains(&self, level: usize) -> &[Range<u32>] {
        &self.children[level]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus() -> impl Strategy<Value = Vec<Cpu>> {
        proptest::collection::btree_map(0u32..200, (0u32..6, 0u32..4, 0u32..3), 1..60).prop_map(
            |cpus| {
                cpus.into_iter()
                    .map(|(id, (core, cache, node))| Cpu { id, core, cache, node })
                    .collect()
            },
        )
    }

    #[test]
    fn impossible_machines_are_refused() {
        let cpu = |id| Cpu { id, core: 0, cache: 0, node: 0 };
        assert_eq!(Topology::new(vec![]), Err(Refusal::NoCpus));
        assert_eq!(Topology::new(vec![cpu(3), cpu(3)]), Err(Refusal::DuplicateCpu { cpu: 3 }));
        let far = MAX_CPUS;
        assert_eq!(
            Topology::new(vec![cpu(far)]),
            Err(Refusal::CpuOutOfRange { cpu: far, max: MAX_CPUS })
        );
    }

    proptest! {
        #[test]
        fn every_cpu_is_one_leaf_of_shared_domains(cpus in cpus()) {
            let topology = Topology::new(cpus.clone()).unwrap();
            prop_assert_eq!(topology.domains(0).len(), 1);
            for level in 0..LEVELS {
                let below =
                    if level + 1 < LEVELS { topology.domains(level + 1).len() } else { cpus.len() };
                let order: Vec<u32> = topology.domains(level).iter().cloned().flatten().collect();
                prop_assert_eq!(order, (0..below as u32).collect::<Vec<_>>());
            }
            let of_core = |cpu: &Cpu| (cpu.node, cpu.cache, cpu.core);
            for core in topology.domains(LEVELS - 1) {
                let members = &topology.cpus()[core.start as usize..core.end as usize];
                let key = of_core(&members[0]);
                let expected = cpus.iter().filter(|cpu| of_core(cpu) == key).count();
                prop_assert!(members.iter().all(|cpu| of_core(cpu) == key));
                prop_assert_eq!(members.len(), expected);
            }
        }
    }
}
