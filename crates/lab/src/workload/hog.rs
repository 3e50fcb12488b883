//! Threads that compute without pause: CPU hogs, and the tight loop of E11.

use anyhow::Result;
use clap::Args;

use super::steps::apart;
use super::work::spend;
use super::{Outcome, When, thread_count};

/// One iteration. Long against a look at the clock, short against a slice.
const CHUNK_CYCLES: u64 = 20_000;

#[derive(Args, Debug, Clone)]
pub struct Hog {
    #[arg(long, default_value = "1", value_parser = thread_count)]
    pub threads: usize,
    #[command(flatten)]
    pub when: When,
}

impl Hog {
    pub fn run(&self) -> Result<Outcome> {
        let start = |number: usize| {
            move || {
                spend(CHUNK_CYCLES, number as u64);
            }
        };
        apart("hog", self.threads, self.when.window()?, start)
    }
}
