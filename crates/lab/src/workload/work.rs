//! Work that takes a known number of cycles and cannot be mistaken for time.
//!
//! A thread that waits for a cycle counter to advance counts the time in which it was preempted as
//! work done. Here a step is one link of a chain of dependent squarings and additions, four cycles
//! on today's x86-64 and Arm cores, so that work left undone stays undone. (Squarings, because a
//! compiler composes several linear steps into one.)

use std::hint::black_box;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::harness::duration;

const CYCLES_PER_STEP: u64 = 4;

/// Does about `cycles` cycles of work. Returns a value that depends on all of it.
#[inline]
pub fn spend(cycles: u64, seed: u64) -> u64 {
    let mut x = seed | 1;
    for _ in 0..cycles / CYCLES_PER_STEP {
        x = x.wrapping_mul(x).wrapping_add(0x1405_7b7e_f767_814f);
    }
    black_box(x)
}

/// An amount of work: cycles (`2000`), or what takes a length of time (`40us`) on a CPU of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Cycles(u64),
    Time(Duration),
}

impl Amount {
    /// The amount in cycles; a length of time is converted by a measurement of some milliseconds.
    pub fn cycles(self) -> u64 {
        match self {
            Amount::Cycles(cycles) => cycles,
            Amount::Time(time) => (time.as_secs_f64() * cycles_per_second()) as u64,
        }
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.chars().all(|c| c.is_ascii_digit()) && !text.is_empty() {
            return text.parse().map(Amount::Cycles).map_err(|e| format!("{text:?}: {e}"));
        }
        duration::parse(text).map(Amount::Time)
    }
}

/// The speed of [`spend`], as the best of many short samples: those during which the thread was
/// preempted come out slow and fall away.
fn cycles_per_second() -> f64 {
    const SAMPLE_CYCLES: u64 = 100_000;
    let mut best = Duration::MAX;
    for seed in 0..100 {
        let before = Instant::now();
        spend(SAMPLE_CYCLES, seed);
        best = best.min(before.elapsed());
    }
    SAMPLE_CYCLES as f64 / best.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_cycles_or_time() {
        assert_eq!("2000".parse(), Ok(Amount::Cycles(2000)));
        assert_eq!("40us".parse(), Ok(Amount::Time(Duration::from_micros(40))));
        assert!("".parse::<Amount>().is_err());
        assert!("-3".parse::<Amount>().is_err());
        assert!("99999999999999999999999".parse::<Amount>().is_err());
    }

    #[test]
    fn work_depends_on_every_step() {
        assert_ne!(spend(4000, 1), spend(4004, 1));
        assert_ne!(spend(8, 1), spend(8, 3));
    }

    #[test]
    fn time_becomes_cycles() {
        let one = Amount::Time(Duration::from_micros(100)).cycles();
        assert!(one > 1000, "100 us of work came out as {one} cycles");
    }
}
