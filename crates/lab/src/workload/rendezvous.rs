//! The barrier at which threads of a workload meet.
//!
//! Problem: what is measured is what becomes of threads that wait for each other, so the barrier
//! must be one that programs really have, in its two kinds: spinning until the last one comes, and
//! spinning for a fixed time before blocking (E8, E9; 50 µs after Kontothanassis).
//!
//! Approach: a count of those who have arrived and a generation that the last one advances. The
//! generation plays the part of the sense of a sense-reversing barrier, and is the word that
//! blocked threads sleep on.
//!
//! Properties: nobody leaves before all have arrived; the last one runs a closure of its own
//! before anybody leaves, and what it wrote is seen by all; no wake-up is lost.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;

use crate::harness::duration;

/// The fixed spin of E9.
const DEFAULT_SPIN: Duration = Duration::from_micros(50);

/// How a thread waits for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Spin,
    /// Spins for the time given, then blocks.
    SpinBlock(Duration),
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "spin" => Ok(Wait::Spin),
            None if text == "spin-block" => Ok(Wait::SpinBlock(DEFAULT_SPIN)),
            Some(("spin-block", spin)) => Ok(Wait::SpinBlock(duration::parse(spin)?)),
            _ => Err(format!("{text:?} is neither spin nor spin-block nor spin-block:50us")),
        }
    }
}

/// Keeps a word that one thread writes away from the words others read in a loop.
#[repr(align(128))]
struct Apart(AtomicU32);

pub struct Rendezvous {
    threads: u32,
    arrived: Apart,
    generation: Apart,
    blocked: Apart,
}

impl Rendezvous {
    pub fn new(threads: usize) -> Self {
        let word = || Apart(AtomicU32::new(0));
        Self { threads: threads as u32, arrived: word(), generation: word(), blocked: word() }
    }

    /// Waits until all threads have come. The last one runs `last` before it lets the others go.
    #[inline]
    pub fn meet(&self, wait: Wait, last: impl FnOnce()) {
        let generation = self.generation.0.load(Ordering::Acquire);
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            last();
            self.arrived.0.store(0, Ordering::Relaxed);
            // SeqCst, as in `block`: of the two, one sees the other's store, so that a thread
            // about to sleep is either woken or sees the new generation.
            self.generation.0.store(generation.wrapping_add(1), Ordering::SeqCst);
            if self.blocked.0.load(Ordering::SeqCst) > 0 {
                let _ = futex::wake(&self.generation.0, futex::Flags::PRIVATE, u32::MAX >> 1);
            }
            return;
        }
        match wait {
            // Without a pause instruction, as spin loops in programs without care for their
            // neighbours are; in a virtual machine a pause can also leave the guest.
            Wait::Spin => while self.generation.0.load(Ordering::Acquire) == generation {},
            Wait::SpinBlock(spin) => self.spin_then_block(generation, spin),
        }
    }

    fn spin_then_block(&self, generation: u32, spin: Duration) {
        let end = Instant::now() + spin;
        while Instant::now() < end {
            if self.generation.0.load(Ordering::Acquire) != generation {
                return;
            }
        }
        self.blocked.0.fetch_add(1, Ordering::SeqCst);
        while self.generation.0.load(Ordering::SeqCst) == generation {
            // Any return is followed by another look at the generation.
            let _ = futex::wait(&self.generation.0, futex::Flags::PRIVATE, generation, None);
        }
        self.blocked.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// No thread may be more than one round ahead of another, and what the last one of a round
    /// wrote must be seen by all before the next.
    fn keeps_threads_together(wait: Wait, threads: usize, rounds: u64) {
        let barrier = Rendezvous::new(threads);
        let rounds_done: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
        let counted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for me in 0..threads {
                let (barrier, rounds_done, counted) = (&barrier, &rounds_done, &counted);
                scope.spawn(move || {
                    for round in 1..=rounds {
                        rounds_done[me].store(round, Ordering::Relaxed);
                        barrier.meet(wait, || {
                            counted.fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(counted.load(Ordering::Relaxed) >= round);
                        for other in rounds_done {
                            let other = other.load(Ordering::Relaxed);
                            assert!(other == round || other == round + 1, "{other} at {round}");
                        }
                    }
                });
            }
        });
        assert_eq!(counted.load(Ordering::Relaxed), rounds);
    }

    #[test]
    fn spinning() {
        keeps_threads_together(Wait::Spin, 1, 100);
        keeps_threads_together(Wait::Spin, 2, 200);
    }

    #[test]
    fn spinning_then_blocking() {
        for spin in [Duration::ZERO, Duration::from_micros(1), DEFAULT_SPIN] {
            for threads in [1, 2, 3, 8] {
                keeps_threads_together(Wait::SpinBlock(spin), threads, 2_000);
            }
        }
    }

    #[test]
    fn ways_to_wait_are_read() {
        assert_eq!("spin".parse(), Ok(Wait::Spin));
        assert_eq!("spin-block".parse(), Ok(Wait::SpinBlock(Duration::from_micros(50))));
        assert_eq!("spin-block:1ms".parse(), Ok(Wait::SpinBlock(Duration::from_millis(1))));
        assert!("block".parse::<Wait>().is_err());
        assert!("spin:50us".parse::<Wait>().is_err());
    }
}
