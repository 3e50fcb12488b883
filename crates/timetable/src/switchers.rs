use gang_schedule::{CpuSet, Topology};

/// Which switcher looks after which CPUs.
///
/// One for each CPU, so that every CPU switches its own threads at the same instant (X2) and no
/// interrupt has to travel; on machines with more CPUs than [`SWITCHERS_MAX`], neighbours share
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switchers {
    cpus: Vec<CpuSet>,
}

/// The most switchers: each costs some work for every timetable.
pub const SWITCHERS_MAX: usize = 64;

impl Switchers {
    /// Neighbouring CPUs have one switcher.
    pub fn new(topology: &Topology) -> Switchers {
        let mut cpus: Vec<_> = topology.cpus().to_vec();
        cpus.sort_unstable_by_key(|cpu| (cpu.node, cpu.cache, cpu.core, cpu.id));
        let size = cpus.len().div_ceil(SWITCHERS_MAX).max(1);
        cpus.chunks(size).map(|cpus| cpus.iter().map(|cpu| cpu.id).collect()).collect()
    }

    pub fn len(&self) -> usize {
        self.cpus.len()
    }

    pub fn is_empty(&self) -> bool {
        self.cpus.is_empty()
    }

    /// The CPUs of each.
    pub fn cpus(&self) -> &[CpuSet] {
        &self.cpus
    }

    /// The switcher of a CPU; of one that came later, the first.
    pub(crate) fn of_cpu(&self, cpu: u32) -> usize {
        self.cpus.iter().position(|cpus| cpus.contains(cpu)).unwrap_or(0)
    }
}

impl FromIterator<CpuSet> for Switchers {
    /// The CPUs of each switcher, as given.
    fn from_iter<I: IntoIterator<Item = CpuSet>>(cpus: I) -> Switchers {
        Switchers { cpus: cpus.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_is_looked_after_once() {
        for cpus in [1, 2, 7, 64, 500, 2000] {
            let topology = Topology::flat(cpus);
            let switchers = Switchers::new(&topology);
            assert!(!switchers.is_empty() && switchers.len() <= SWITCHERS_MAX);
            let count: usize = switchers.cpus().iter().map(CpuSet::len).sum();
            let all = switchers.cpus().iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
            assert_eq!((count, &all), (cpus as usize, topology.set()));
        }
    }
}
