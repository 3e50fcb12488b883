//! The CPUs that the threads of a job may use, and what a gang needs of them.
//!
//! Problem: a person, a runtime or a cgroup confines a program to some CPUs, and ranks of one
//! program to different ones. A slot elsewhere would overrule them, and two gangs within the same
//! CPUs cannot run at once. Approach: each gang has a *demand*, worked out from its CPUs and from
//! those that are online. Rows are packed by demands (`seating`).
//!
//! Terms:
//! - *confined*: a gang with a CPU online that its threads may not use, or with bound threads.
//! - *bound*: a thread that may use fewer CPUs than its gang.
//! - *part* of a demand: so many CPUs out of a set. The parts of a gang have different CPUs.
//!
//! Algorithm. A gang is as wide as it asks for, as far as there are CPUs that its threads may use.
//! Sets of bound threads are taken in order of their sizes, then of their CPUs:
//! 1. each set that contains none before it is a part of one CPU, where the others leave one;
//! 2. then each set in turn has one more CPU, up to one for each of its threads, as long as the
//!    gang is wide enough and the others leave one;
//! 3. what is left of the width comes out of all CPUs that the gang may use.
//!
//! Properties: on the CPUs of a demand each bound thread has a CPU of its set; the parts of a
//! demand can be had at once on the CPUs that are online. Equal to a naive version of the same
//! rules (tests/policy/naive.rs).

use crate::seating::Seating;
use crate::{CpuSet, Spec};

/// Threads that may use fewer CPUs than the others of their gang.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Bound {
    pub cpus: CpuSet,
    pub threads: u32,
}

/// The CPUs that the threads of a job may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Allowed {
    /// Absent where there are threads that may use any CPU.
    cpus: Option<CpuSet>,
    /// By size, then by CPUs; no set twice.
    bound: Vec<Bound>,
}

impl Allowed {
    /// Every CPU.
    pub fn anywhere() -> Allowed {
        Allowed::default()
    }

    /// These CPUs, for all of its threads.
    pub fn within(cpus: CpuSet) -> Allowed {
        Allowed { cpus: Some(cpus), bound: Vec::new() }
    }

    /// The same, with threads that may use fewer; their CPUs are among the gang's.
    #[must_use]
    pub fn with_bound(mut self, sets: impl IntoIterator<Item = (CpuSet, u32)>) -> Allowed {
        for (cpus, threads) in sets {
            if threads == 0 || self.cpus.as_ref() == Some(&cpus) {
                continue;
            }
            if let Some(all) = &mut self.cpus {
                *all = all.union(&cpus);
            }
            self.bound.push(Bound { cpus, threads });
        }
        self.bound.sort_by(|a, b| key(&a.cpus).cmp(&key(&b.cpus)));
        self.bound.dedup_by(|later, first| {
            let is_same = later.cpus == first.cpus;
            if is_same {
                first.threads = first.threads.saturating_add(later.threads);
            }
            is_same
        });
        self
    }

    /// The CPUs that any of its threads may use; absent where that is every CPU.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.cpus.as_ref()
    }

    /// The threads that may use fewer.
    pub fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// Those of these CPUs that any of its threads may use.
    pub fn of(&self, online: &CpuSet) -> CpuSet {
        self.cpus.as_ref().map_or_else(|| online.clone(), |cpus| cpus.intersection(online))
    }
}

/// The order of sets.
fn key(cpus: &CpuSet) -> (usize, &CpuSet) {
    (cpus.len(), cpus)
}

/// Why a gang can have no slot on the CPUs that are online.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplaceable {
    /// It needs more CPUs than are online.
    TooWide { min_cpus: u32, online: u32 },
    /// None of these CPUs is online, and some of its threads may use no other.
    Offline { cpus: CpuSet },
    /// Its threads may use fewer CPUs of those that are online than it needs.
    TooFew { min_cpus: u32, cpus: CpuSet },
    /// Its bound threads need CPUs in so many different places, and it asks for fewer.
    Spread { places: u32, cpus: u32 },
    /// It is the part of a spanning job, and no entries name it.
    NoEntries,
}

impl std::fmt::Display for Unplaceable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unplaceable::TooWide { min_cpus, online } => {
                write!(f, "it needs at least {min_cpus} CPUs, and {online} are online")
            }
            Unplaceable::Offline { cpus } if cpus.is_empty() => {
                f.write_str("it has threads that may use no CPU which is online")
            }
            Unplaceable::Offline { cpus } => {
                write!(f, "it has threads that may use CPUs {cpus} alone, and none is online")
            }
            Unplaceable::TooFew { min_cpus, cpus } => write!(
                f,
                "it needs at least {min_cpus} CPUs, and its threads may use {} of those online: \
                 {cpus}",
                cpus.len()
            ),
            Unplaceable::Spread { places, cpus } => write!(
                f,
                "its threads are bound to CPUs in {places} different places, and it asks for {cpus}"
            ),
            Unplaceable::NoEntries => {
                f.write_str("it spans hosts, and the matrix has no row for it")
            }
        }
    }
}

/// So many CPUs out of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub cpus: CpuSet,
    pub count: u32,
}

/// The CPUs that a gang needs for a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Demand {
    pub width: u32,
    /// Empty where any CPUs will do.
    pub parts: Vec<Part>,
}

impl Demand {
    /// The demand of a gang on a machine with these CPUs online.
    pub fn of(spec: &Spec, online: &CpuSet) -> Result<Demand, Unplaceable> {
        let Spec { cpus, min_cpus, ref allowed, .. } = *spec;
        let machine = online.len() as u32;
        if min_cpus > machine {
            return Err(Unplaceable::TooWide { min_cpus, online: machine });
        }
        let is_anywhere = allowed.cpus.as_ref().is_none_or(|cpus| online.is_subset(cpus));
        if is_anywhere && allowed.bound.is_empty() {
            return Ok(Demand { width: cpus.min(machine), parts: Vec::new() });
        }
        let usable = allowed.of(online);
        if usable.is_empty() {
            let cpus = allowed.cpus.clone().unwrap_or_default();
            return Err(Unplaceable::Offline { cpus });
        }
        let width = cpus.min(usable.len() as u32);
        if min_cpus > width {
            return Err(Unplaceable::TooFew { min_cpus, cpus: usable });
        }
        let mut parts = of_bound(&allowed.bound, online, width)?;
        let left = width - parts.iter().map(|part| part.count).sum::<u32>();
        join_full(&mut parts);
        if left > 0 {
            parts.push(Part { cpus: usable, count: left });
        }
        Ok(Demand { width, parts })
    }

    pub fn is_confined(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Whether these CPUs are a slot.
    pub fn is_met_by(&self, cpus: &CpuSet) -> bool {
        let has_parts = || Seating::new(cpus.clone()).seat(&self.parts);
        cpus.len() == self.width as usize && (self.parts.is_empty() || has_parts())
    }
}

/// The parts of bound threads, of `width` CPUs at most.
fn of_bound(bound: &[Bound], online: &CpuSet, width: u32) -> Result<Vec<Part>, Unplaceable> {
    let mut parts: Vec<(Part, u32)> = Vec::new();
    for Bound { cpus, threads } in bound {
        let there = cpus.intersection(online);
        if there.is_empty() {
            return Err(Unplaceable::Offline { cpus: cpus.clone() });
        }
        match parts.iter_mut().find(|(part, _)| part.cpus == there) {
            Some((_, most)) => *most = most.saturating_add(*threads),
            None => parts.push((Part { cpus: there, count: 0 }, *threads)),
        }
    }
    parts.sort_by(|(a, _), (b, _)| key(&a.cpus).cmp(&key(&b.cpus)));
    // Where a set has no CPU left, every slot has all of its CPUs.
    let mut seating = Seating::new(online.clone());
    let mut taken = 0;
    for at in 0..parts.len() {
        let cpus = parts[at].0.cpus.clone();
        let has_one = parts[..at].iter().any(|(part, _)| part.cpus.is_subset(&cpus));
        seating.add(cpus);
        if !has_one && seating.extend(at) {
            (parts[at].0.count, taken) = (1, taken + 1);
        }
    }
    if taken > width {
        return Err(Unplaceable::Spread { places: taken, cpus: width });
    }
    let mut is_full = vec![false; parts.len()];
    while taken < width && is_full.contains(&false) {
        for (at, (part, threads)) in parts.iter_mut().enumerate() {
            let has_more = !is_full[at] && part.count < *threads && taken < width;
            if has_more && seating.extend(at) {
                (part.count, taken) = (part.count + 1, taken + 1);
            } else {
                is_full[at] = true;
            }
        }
    }
    Ok(parts.into_iter().map(|(part, _)| part).filter(|part| part.count > 0).collect())
}

/// Joins the parts that are all of their sets into one. They have no CPU in common.
fn join_full(parts: &mut Vec<Part>) {
    let is_full = |part: &Part| part.count as usize == part.cpus.len();
    let mut full = Part { cpus: CpuSet::new(), count: 0 };
    for part in parts.iter().filter(|part| is_full(part)) {
        full.cpus = full.cpus.union(&part.cpus);
        full.count += part.count;
    }
    parts.retain(|part| !is_full(part));
    if full.count > 0 {
        parts.insert(0, full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &str) -> CpuSet {
        cpus.parse().unwrap()
    }

    fn demand(cpus: u32, within: &str, bound: &[(&str, u32)]) -> Result<String, Unplaceable> {
        let allowed = Allowed::within(set(within))
            .with_bound(bound.iter().map(|&(cpus, threads)| (set(cpus), threads)));
        let spec = Spec { allowed, min_cpus: 1, ..Spec::new(cpus) };
        let demand = Demand::of(&spec, &set("0-7"))?;
        let parts = demand.parts.iter().map(|part| format!("{} of {}", part.count, part.cpus));
        Ok(parts.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn parts_follow_bound_threads() {
        let found = |cpus, within, bound| demand(cpus, within, bound).unwrap();
        assert_eq!(found(4, "2-3", &[]), "2 of 2-3");
        assert_eq!(found(3, "0-7,9", &[]), "", "any CPUs");
        assert_eq!(found(4, "0-7", &[("0", 1), ("1", 1)]), "2 of 0-1, 2 of 0-7");
        // Helpers of a bound rank do not take the CPUs of others.
        assert_eq!(found(2, "0-7", &[("0", 3), ("5", 2)]), "2 of 0,5");
        assert_eq!(found(4, "0-7", &[("0-3", 4), ("4-7", 4)]), "2 of 0-3, 2 of 4-7");
        assert_eq!(
            found(3, "0-3", &[("0-1", 1), ("1-2", 1), ("0-3", 9)]),
            "1 of 0-1, 1 of 1-2, 1 of 0-3"
        );
        // One CPU serves both sets.
        assert_eq!(found(1, "0-3", &[("2", 1), ("1-3", 1)]), "1 of 2");
    }

    #[test]
    fn gangs_without_a_slot_say_why() {
        let places = demand(1, "0-7", &[("0", 1), ("1", 1)]);
        assert_eq!(places, Err(Unplaceable::Spread { places: 2, cpus: 1 }));
        assert_eq!(demand(2, "8-9", &[]), Err(Unplaceable::Offline { cpus: set("8-9") }));
        let offline = demand(2, "0-9", &[("9", 1)]);
        assert_eq!(offline, Err(Unplaceable::Offline { cpus: set("9") }));
        let spec = |cpus: u32, within: &str| Spec {
            allowed: Allowed::within(set(within)),
            ..Spec::new(cpus)
        };
        let found = |spec: &Spec| Demand::of(spec, &set("0-7")).unwrap_err().to_string();
        let few = "it needs at least 2 CPUs, and its threads may use 1 of those online: 1";
        assert_eq!(found(&spec(2, "1")), few);
        let wide = "it needs at least 9 CPUs, and 8 are online";
        assert_eq!(found(&spec(9, "1")), wide);
    }

    #[test]
    fn same_sets_are_one() {
        let one = Allowed::within(set("0-3")).with_bound([(set("1"), 1), (set("0-3"), 4)]);
        let other = Allowed::within(set("0-3")).with_bound([(set("1"), 1), (set("2"), 0)]);
        assert_eq!(one, other);
        let twice = one.with_bound([(set("1"), 2), (set("5"), 1)]);
        assert_eq!(twice.bound()[0], Bound { cpus: set("1"), threads: 3 });
        assert_eq!(twice.cpus(), Some(&set("0-3,5")));
    }
}
