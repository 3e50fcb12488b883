//! Matrix multiply as of L36: each thread computes rows of the product, and all meet when it is
//! done.

use std::hint::black_box;

use anyhow::Result;
use clap::Args;

use super::rendezvous::Wait;
use super::steps::in_steps;
use super::{Outcome, When, thread_count};

/// Of a matrix where nothing else is said.
pub const SIZE: u64 = 384;

#[derive(Args, Debug, Clone)]
pub struct Matmul {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Rows and columns of a matrix
    #[arg(long, default_value_t = SIZE, value_parser = clap::value_parser!(u64).range(1..=8192))]
    pub size: u64,
    /// spin, spin-block, or spin-block:TIME
    #[arg(long, default_value = "spin")]
    pub wait: Wait,
    #[command(flatten)]
    pub when: When,
}

impl Matmul {
    pub fn run(&self) -> Result<Outcome> {
        let size = self.size as usize;
        let right: Vec<f64> = (0..size * size).map(|n| (n % 7) as f64).collect();
        let start = |number: usize| {
            // As even a division of the rows as there is.
            let own = (number + 1) * size / self.threads - number * size / self.threads;
            let left = vec![1.0; own * size];
            let mut product = vec![0.0; own * size];
            let right = &right;
            move |_step| {
                multiply(&left, right, &mut product, size);
                black_box(&product);
            }
        };
        let operations = 2 * self.size.pow(3);
        in_steps("matmul", self.threads, self.wait, self.when.window()?, start, |_| operations)
    }
}

/// Some rows of the left matrix times the right one.
fn multiply(left: &[f64], right: &[f64], product: &mut [f64], size: usize) {
    product.fill(0.0);
    for (of_left, of_product) in left.chunks_exact(size).zip(product.chunks_exact_mut(size)) {
        for (factor, of_right) in of_left.iter().zip(right.chunks_exact(size)) {
            for (sum, element) in of_product.iter_mut().zip(of_right) {
                *sum += factor * element;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product() {
        let mut product = [9.0; 4];
        multiply(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], &mut product, 2);
        assert_eq!(product, [19.0, 22.0, 43.0, 50.0]);
    }
}
