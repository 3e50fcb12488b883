//! Sets of rows.
//!
//! Problem: a job of a thousand hosts holds the same rows on each of them, and packing asks for
//! every column which rows are left. Approach: one bit a row, as in a [`CpuSet`].

use crate::CpuSet;
use std::fmt;

/// A set of rows of the matrix. Its text is a list such as `0-3,8`; the empty set is the empty
/// string.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rows(CpuSet);

impl Rows {
    /// No row.
    pub const fn new() -> Rows {
        Rows(CpuSet::new())
    }

    /// The number of rows.
    pub fn len(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, row: u32) -> bool {
        self.0.contains(row)
    }

    /// The rows in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter()
    }

    /// The greatest row.
    pub fn last(&self) -> Option<u32> {
        self.0.last()
    }

    pub fn is_disjoint(&self, other: &Rows) -> bool {
        self.0.is_disjoint(&other.0)
    }

    /// All rows of a frame.
    pub(crate) fn all(frame: u32) -> Rows {
        (0..frame).collect()
    }

    pub(crate) fn remove(&mut self, row: u32) {
        self.0.remove(row);
    }

    /// Adds every row of `other`.
    pub fn add(&mut self, other: &Rows) {
        self.0.add(&other.0);
    }

    /// Removes every row of `other`.
    pub(crate) fn subtract(&mut self, other: &Rows) {
        self.0.subtract(&other.0);
    }

    /// The number of rows that are not in `other`.
    pub fn len_without(&self, other: &Rows) -> u32 {
        self.0.len_without(&other.0) as u32
    }
}

impl FromIterator<u32> for Rows {
    fn from_iter<I: IntoIterator<Item = u32>>(rows: I) -> Rows {
        Rows(rows.into_iter().collect())
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
