//! Sets of CPUs.
//!
//! Problem: a plan names the CPUs of every gang, on machines of up to
//! thousands of CPUs, and plans are compared and intersected all the time.
//! Approach: one bit per CPU number, in words of 64.
//! Properties: two sets with the same members are equal (no trailing empty
//! words), and the text form is the kernel's list format in both directions.

use std::fmt;
use std::str::FromStr;

/// A set of CPU numbers, one bit each.
///
/// Memory grows with the largest member, an eighth of a byte for each number
/// below it. [`Topology`](crate::Topology) bounds the numbers of a machine.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// Never ends in a zero word, so that equality is equality of members.
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    pub const fn new() -> CpuSet {
        CpuSet { words: Vec::new() }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn contains(&self, cpu: u32) -> bool {
        let (word, bit) = place(cpu);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Adds `cpu`; true if it was not a member before.
    pub fn insert(&mut self, cpu: u32) -> bool {
        let (word, bit) = place(cpu);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Removes `cpu`; true if it was a member before.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let (word, bit) = place(cpu);
        let Some(w) = self.words.get_mut(word) else { return false };
        let had = *w & bit != 0;
        *w &= !bit;
        self.trim();
        had
    }

    /// The members of either set.
    #[must_use]
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        let (long, short) =
            if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut words = long.words.clone();
        for (w, o) in words.iter_mut().zip(&short.words) {
            *w |= o;
        }
        CpuSet { words }
    }

    /// The members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect();
        let mut set = CpuSet { words };
        set.trim();
        set
    }

    /// The members of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        let mut set = self.clone();
        set.subtract(other);
        set
    }

    /// Removes every member of `other`.
    pub(crate) fn subtract(&mut self, other: &CpuSet) {
        for (w, o) in self.words.iter_mut().zip(&other.words) {
            *w &= !o;
        }
        self.trim();
    }

    /// Adds every member of `other`.
    pub(crate) fn add(&mut self, other: &CpuSet) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (w, o) in self.words.iter_mut().zip(&other.words) {
            *w |= o;
        }
    }

    /// The number of members that are not in `other`.
    pub(crate) fn len_without(&self, other: &CpuSet) -> usize {
        let of_other = other.words.iter().chain(std::iter::repeat(&0));
        self.words.iter().zip(of_other).map(|(w, o)| (w & !o).count_ones() as usize).sum()
    }

    /// The greatest member.
    pub fn last(&self) -> Option<u32> {
        let word = self.words.last()?;
        Some(self.words.len() as u32 * 64 - 1 - word.leading_zeros())
    }

    pub fn is_disjoint(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.words.len() <= other.words.len()
            && self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros();
                left &= left - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    /// The smallest member of both sets.
    pub(crate) fn first_common(&self, other: &CpuSet) -> Option<u32> {
        let mut words = self.words.iter().zip(&other.words).map(|(a, b)| a & b).enumerate();
        let (index, word) = words.find(|&(_, word)| word != 0)?;
        Some(index as u32 * 64 + word.trailing_zeros())
    }

    /// The smallest member.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

fn place(cpu: u32) -> (usize, u64) {
    ((cpu / 64) as usize, 1 << (cpu % 64))
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> CpuSet {
        let mut set = CpuSet::new();
        set.extend(cpus);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

/// The kernel's list format (`cpuset.cpus`, `/sys/devices/system/cpu/online`):
/// `0-3,8`. The empty set is the empty string.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(start) = cpus.next() {
            let mut end = start;
            while cpus.peek().is_some_and(|&next| next == end + 1) {
                end += 1;
                cpus.next();
            }
            if start == end {
                write!(f, "{comma}{start}")?;
            } else {
                write!(f, "{comma}{start}-{end}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// A text that is not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a list of CPUs below {limit} such as 0-3,8")]
pub struct NotCpus {
    text: String,
    limit: u32,
}

impl FromStr for CpuSet {
    type Err = NotCpus;

    fn from_str(text: &str) -> Result<CpuSet, NotCpus> {
        let wrong = || NotCpus { text: text.to_owned(), limit: crate::MAX_CPUS };
        let number = |part: &str| -> Result<u32, NotCpus> {
            let cpu = part.trim().parse::<u32>().map_err(|_| wrong())?;
            if cpu < crate::MAX_CPUS { Ok(cpu) } else { Err(wrong()) }
        };
        let mut set = CpuSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (start, end) = match part.split_once('-') {
                Some((start, end)) => (number(start)?, number(end)?),
                None => (number(part)?, number(part)?),
            };
            if start > end {
                return Err(wrong());
            }
            set.extend(start..=end);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn members() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0u32..300, 0..40)
    }

    fn set(members: &BTreeSet<u32>) -> CpuSet {
        members.iter().copied().collect()
    }

    #[test]
    fn text_is_the_kernels_list_format() {
        let cpus: CpuSet = [8, 0, 1, 2, 3, 64, 65].into_iter().collect();
        assert_eq!(cpus.to_string(), "0-3,8,64-65");
        assert_eq!(CpuSet::new().to_string(), "");
        assert_eq!("0-3,8\n".parse::<CpuSet>().unwrap().to_string(), "0-3,8");
        for wrong in ["3-1", "a", "1-", "0-4294967295", "-1"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_set_of_numbers(a in members(), b in members(), cpu in 0u32..300) {
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.contains(cpu), a.contains(&cpu));
            prop_assert_eq!(x.first(), a.first().copied());
            prop_assert_eq!(x.union(&y), set(&(&a | &b)));
            prop_assert_eq!(x.intersection(&y), set(&(&a & &b)));
            prop_assert_eq!(x.difference(&y), set(&(&a - &b)));
            prop_assert_eq!(x.first_common(&y), (&a & &b).first().copied());
            prop_assert_eq!(x.len_without(&y), (&a - &b).len());
            prop_assert_eq!(x.last(), a.last().copied());
            let mut both = x.clone();
            both.add(&y);
            prop_assert_eq!(both, x.union(&y));
            prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.to_string().parse::<CpuSet>().unwrap(), x.clone());

            let (mut z, mut c) = (x.clone(), a.clone());
            prop_assert_eq!(z.remove(cpu), c.remove(&cpu));
            prop_assert_eq!(&z, &set(&c));
            prop_assert_eq!(z.insert(cpu), c.insert(cpu));
            prop_assert_eq!(&z, &set(&c));
        }
    }
}
