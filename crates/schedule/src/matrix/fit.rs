//! Packing: the columns of a host that a job gets.

use crate::CpuSet;
use crate::matrix::Rows;

/// The choice of columns for a job on one of its hosts.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// The rows in which each column is taken. Rows that are not left count neither way.
    pub taken: &'a [Rows],
    /// The rows that are left to the job by its hosts so far.
    pub left: &'a Rows,
    /// The columns that the job needs, as many as it may have at most.
    pub width: u32,
    /// The columns that it may have; None: any.
    pub allowed: Option<&'a CpuSet>,
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
        let (all, mut best) = (left.len(), None);
        for (column, taken) in (0..).zip(choice.taken) {
            let is_barred = choice.allowed.is_some_and(|allowed| !allowed.contains(column));
            if is_barred || columns.contains(column) {
                continue;
            }
            let rows = left.len_without(taken);
            if best.is_none_or(|(most, _)| rows > most) {
                best = Some((rows, column));
            }
            // No other leaves more.
            if rows == all {
                break;
            }
        }
        let Some((_, column)) = best else { break };
        columns.insert(column);
        left.subtract(&choice.taken[column as usize]);
    }
    columns
}
