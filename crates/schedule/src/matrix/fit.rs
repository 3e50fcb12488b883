//! Packing: the columns of a host that a job gets.

use crate::CpuSet;
use crate::matrix::Rows;
use std::cmp::Reverse;

/// The choice of columns for a job on one of its hosts.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// The rows in which each column is taken.
    pub taken: &'a [Rows],
    /// The rows that are left to the job by its hosts so far.
    pub left: &'a Rows,
    /// The columns that the job needs, as many as there are at most.
    pub width: u32,
    /// The rows that the job is due.
    pub due: u32,
}

impl Choice<'_> {
    /// The rows that are left where the job has these columns, too.
    pub fn left_with(&self, columns: impl IntoIterator<Item = usize>) -> Rows {
        let mut left = self.left.clone();
        columns.into_iter().for_each(|column| left.subtract(&self.taken[column]));
        left
    }
}

/// A way of packing: a pure function, so that benchmarks can compare others with [`most_room`]. It
/// gives exactly as many columns as the job needs.
pub type Fit = fn(Choice) -> CpuSet;

/// Column after column, that which leaves the most rows; the first of equals.
pub fn most_room(choice: Choice) -> CpuSet {
    let mut left = choice.left.clone();
    let mut columns = CpuSet::new();
    for _ in 0..choice.width {
        let free = (0..choice.taken.len() as u32).filter(|&column| !columns.contains(column));
        let rows = |&column: &u32| Reverse(left.len_without(&choice.taken[column as usize]));
        let Some(column) = free.min_by_key(rows) else { break };
        columns.insert(column);
        left.subtract(&choice.taken[column as usize]);
    }
    columns
}
