//! Gaussian elimination as of L35: tightly synchronised, with a barrier after each pivot.
//!
//! Rows belong to threads in turn, so that all have work to the end. The owner of the next pivot
//! row publishes it, in one of two places that alternate: the other was read by all before the last
//! barrier, so nobody ever waits for a lock. Systems are solved one after the other, and the
//! floating-point operations done inside the window are counted.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::Result;
use clap::Args;

use super::rendezvous::Wait;
use super::steps::in_steps;
use super::{Outcome, When, thread_count};

#[derive(Args, Debug, Clone)]
pub struct Gauss {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Equations of a system
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(2..=8192))]
    pub size: u64,
    /// spin, spin-block, or spin-block:TIME
    #[arg(long, default_value = "spin")]
    pub wait: Wait,
    #[command(flatten)]
    pub when: When,
}

impl Gauss {
    pub fn run(&self) -> Result<Outcome> {
        let size = self.size as usize;
        let pivots = Pivots::new(size);
        let start = |number: usize| {
            let mut rows = Rows::of(number, self.threads, size);
            let pivots = &pivots;
            move |step: u64| rows.step(pivots, step as usize % size)
        };
        let units = |step: u64| operations(size, step as usize % size);
        in_steps("gauss", self.threads, self.wait, self.when.window()?, start, units)
    }
}

/// The two places where pivot rows are published.
struct Pivots([RwLock<Vec<f64>>; 2]);

impl Pivots {
    fn new(size: usize) -> Self {
        let row = || RwLock::new(vec![0.0; size + 1]);
        Self([row(), row()])
    }

    // A thread that panics ends the process, so a lock is never poisoned and still in use.
    fn read(&self, pivot: usize) -> RwLockReadGuard<'_, Vec<f64>> {
        self.0[pivot % 2].read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self, pivot: usize) -> RwLockWriteGuard<'_, Vec<f64>> {
        self.0[pivot % 2].write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The rows of one thread, each with its right-hand side as the last element.
struct Rows {
    number: usize,
    threads: usize,
    size: usize,
    rows: Vec<Vec<f64>>,
}

impl Rows {
    fn of(number: usize, threads: usize, size: usize) -> Self {
        let count = size.saturating_sub(number).div_ceil(threads);
        Self { number, threads, size, rows: vec![vec![0.0; size + 1]; count] }
    }

    /// The elimination of one column; step 0 sets the system up and publishes its first row.
    ///
    /// Each step ends with a barrier, before which the row for the next step is published.
    fn step(&mut self, pivots: &Pivots, step: usize) {
        if step == 0 {
            self.fill();
        } else {
            let column = step - 1;
            let above = pivots.read(column);
            let first = (column + 1).saturating_sub(self.number).div_ceil(self.threads);
            for row in &mut self.rows[first..] {
                let factor = row[column] / above[column];
                for (here, above) in row[column..].iter_mut().zip(&above[column..]) {
                    *here -= factor * above;
                }
            }
        }
        if step % self.threads == self.number {
            pivots.write(step).copy_from_slice(&self.rows[step / self.threads]);
        }
    }

    /// A system whose unknowns are all 1, and which needs no exchange of rows.
    fn fill(&mut self) {
        let size = self.size;
        for (index, row) in self.rows.iter_mut().enumerate() {
            let here = index * self.threads + self.number;
            let mut random = here as u64 + 1;
            let mut sum = 0.0;
            for (column, element) in row[..size].iter_mut().enumerate() {
                random =
                    random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let diagonal = if column == here { size as f64 } else { 0.0 };
                *element = (random >> 40) as f64 / (1u64 << 24) as f64 - 0.5 + diagonal;
                sum += *element;
            }
            row[size] = sum;
        }
    }
}

/// Multiplications, subtractions and divisions of all threads in a step. Setting up counts as none.
fn operations(size: usize, step: usize) -> u64 {
    let below = (size - step) as u64;
    if step == 0 { 0 } else { below * (2 * (below + 2) + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_is_solved_with_any_number_of_threads() {
        for (threads, size) in [(1, 2), (1, 17), (2, 16), (3, 16), (5, 7), (9, 4)] {
            let pivots = Pivots::new(size);
            let mut all: Vec<Rows> =
                (0..threads).map(|number| Rows::of(number, threads, size)).collect();
            for step in 0..size {
                for rows in &mut all {
                    rows.step(&pivots, step);
                }
            }
            let mut unknowns = vec![0.0; size];
            for row in (0..size).rev() {
                let elements = &all[row % threads].rows[row / threads];
                assert!(elements[..row].iter().all(|x| x.abs() < 1e-9), "row {row} of {size}");
                let known: f64 = (row + 1..size).map(|n| elements[n] * unknowns[n]).sum();
                unknowns[row] = (elements[size] - known) / elements[row];
            }
            assert!(unknowns.iter().all(|x| (x - 1.0).abs() < 1e-9), "{threads}: {unknowns:?}");
        }
    }

    #[test]
    fn operations_add_up_to_two_thirds_of_the_cube() {
        let size = 300;
        let all: u64 = (0..size).map(|step| operations(size, step)).sum();
        let expected = 2.0 / 3.0 * (size as f64).powi(3);
        assert!((all as f64 / expected - 1.0).abs() < 0.02, "{all} against {expected}");
    }
}
