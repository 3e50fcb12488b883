//! Whether the demands of several gangs can be met at once.
//!
//! Problem: a confined gang fits beside others only if each has the CPUs that it may use. Counts
//! do not say so, and a choice made for one gang can be wrong for the next.
//! Approach: a bipartite flow between parts and CPUs. A part that finds none of its CPUs free has
//! another part give one up that can have another CPU instead (augmenting paths, Ford and Fulkerson
//! 1956).
//! Properties: parts that are seated stay so, on whatever CPUs; a part is refused only if no choice
//! of CPUs meets all of them; gangs that are not confined need no seat, since whatever is left will
//! do for them.

use std::collections::VecDeque;

use crate::CpuSet;
use crate::allowed::Part;

/// Parts, each with the CPUs that it has for now.
#[derive(Debug, Clone)]
pub(crate) struct Seating {
    free: CpuSet,
    parts: Vec<Seated>,
}

#[derive(Debug, Clone)]
struct Seated {
    may_use: CpuSet,
    has: CpuSet,
}

impl Seating {
    /// Nobody is seated on these CPUs yet.
    pub fn new(free: CpuSet) -> Seating {
        Seating { free, parts: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The same parts on these CPUs, too, which are new.
    pub fn with(&self, cpus: &CpuSet) -> Seating {
        Seating { free: self.free.union(cpus), ..self.clone() }
    }

    /// Seats all of these parts beside the others, or none of them.
    pub fn seat(&mut self, parts: &[Part]) -> bool {
        let first = self.parts.len();
        let seats_all = parts.iter().all(|part| {
            self.add(part.cpus.clone());
            let at = self.parts.len() - 1;
            (0..part.count).all(|_| self.extend(at))
        });
        if !seats_all {
            self.unseat(first);
        }
        seats_all
    }

    /// Whether these parts could be seated beside the others.
    pub fn could_seat(&mut self, parts: &[Part]) -> bool {
        let first = self.parts.len();
        let could = self.seat(parts);
        self.unseat(first);
        could
    }

    /// Adds a part without CPUs.
    pub fn add(&mut self, may_use: CpuSet) {
        self.parts.push(Seated { may_use, has: CpuSet::new() });
    }

    fn unseat(&mut self, first: usize) {
        for part in self.parts.drain(first.min(self.parts.len())..) {
            self.free = self.free.union(&part.has);
        }
    }

    /// Gives one more CPU to a part, if there is a way.
    pub fn extend(&mut self, at: usize) -> bool {
        let mut before: Vec<Option<(usize, u32)>> = vec![None; self.parts.len()];
        let mut asked = VecDeque::from([at]);
        while let Some(part) = asked.pop_front() {
            if let Some(cpu) = self.parts[part].may_use.first_common(&self.free) {
                self.free.remove(cpu);
                self.pass_on(part, cpu, &before);
                return true;
            }
            for (other, asked_by) in before.iter_mut().enumerate() {
                if other == at || asked_by.is_some() {
                    continue;
                }
                let gives = self.parts[part].may_use.first_common(&self.parts[other].has);
                if let Some(cpu) = gives {
                    *asked_by = Some((part, cpu));
                    asked.push_back(other);
                }
            }
        }
        false
    }

    /// A part gets a CPU; the part that asked it for one gets that, and so on.
    fn pass_on(&mut self, mut part: usize, mut cpu: u32, before: &[Option<(usize, u32)>]) {
        loop {
            self.parts[part].has.insert(cpu);
            let Some((asking, given)) = before[part] else { return };
            self.parts[part].has.remove(given);
            (part, cpu) = (asking, given);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(cpus: &str, count: u32) -> Part {
        Part { cpus: cpus.parse().unwrap(), count }
    }

    #[test]
    fn parts_give_way_to_others() {
        let mut seating = Seating::new("0-3".parse().unwrap());
        assert!(seating.seat(&[part("0-2", 1)]) && seating.seat(&[part("0-1", 1)]));
        assert!(seating.seat(&[part("0", 1)]), "both others move on");
        assert!(!seating.seat(&[part("0-1,9", 1), part("2", 1)]), "three parts have 0 to 2");
        assert!(!seating.could_seat(&[part("3", 1), part("0-3", 1)]));
        assert!(seating.could_seat(&[part("3", 1)]) && seating.seat(&[part("3", 1)]));
        assert!(!seating.could_seat(&[part("0-3", 1)]));
    }
}
