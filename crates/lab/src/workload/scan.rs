//! Threads that go over memory again and again: bound by a cache where what they go over fits into
//! it, and by memory where it does not. A switch costs them more than itself: they find the
//! cache full of what others left.

use std::hint::black_box;

use anyhow::Result;
use clap::Args;

use super::steps::apart;
use super::{Outcome, When, thread_count};

/// The memory of one iteration: short against a slice.
const CHUNK_BYTES: usize = 64 << 10;
const WORD_BYTES: usize = size_of::<u64>();

#[derive(Args, Debug, Clone)]
pub struct Scan {
    #[arg(long, default_value = "1", value_parser = thread_count)]
    pub threads: usize,
    /// Memory of all threads together
    #[arg(long, default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 36))]
    pub bytes: u64,
    #[command(flatten)]
    pub when: When,
}

impl Scan {
    pub fn run(&self) -> Result<Outcome> {
        let chunks = (self.bytes as usize / self.threads / CHUNK_BYTES).max(1);
        let start = |number: usize| {
            let mut own = vec![number as u64; chunks * CHUNK_BYTES / WORD_BYTES];
            let mut next = 0;
            move || {
                let words = CHUNK_BYTES / WORD_BYTES;
                for word in &mut own[next * words..(next + 1) * words] {
                    *word = word.wrapping_add(1);
                }
                next = (next + 1) % chunks;
                black_box(&own);
            }
        };
        apart("scan", self.threads, self.when.window()?, start)
    }
}
