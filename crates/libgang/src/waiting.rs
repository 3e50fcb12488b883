//! How a thread waits for other threads of its gang: whether it spins, and how long.
//!
//! Problem: a wait that is short is over soonest for a thread that spins. But a thread that spins
//! for one that has no CPU takes the CPU from it. Which of the two holds cannot be seen from within
//! a program.
//!
//! Approach: the slot page says it. While the slot runs, the other threads run: spin. Out of slot
//! they do not: block. Where nobody knows, spin for a fixed time and block then (E9; 50 µs after
//! Kontothanassis). Nobody knows where there is no page, the job is not scheduled, gangd is gone,
//! or the slot has fewer CPUs than threads wait. After such a spin in vain, the next wait blocks at
//! once. Each one more in vain doubles how many do, and thousands that were not halve it
//! (`SpinHistory`). So threads that share a CPU do not keep it from each other. And where CPUs are
//! short, threads that block come to share one, and need no partner on another.
//!
//! Property: every spin is bounded. A page that is wrong, or a thread that waits for a disk in its
//! slot, costs a millisecond; a wake-up costs little beside that, and others can have the CPU
//! meanwhile.

use std::{
    hint,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::thread::futex;

use crate::{
    page::{Page, Partners},
    result::Failure,
};

const IN_SLOT: Duration = Duration::from_millis(1);
const NOT_KNOWN: Duration = Duration::from_micros(50);

/// Looks at what is waited for between two looks at the page and the clock.
const LOOKS: u32 = 64;

/// Waits that block at once after a spin in vain, at most: so many wake-ups take some ten
/// milliseconds.
const MOST_DOUBLINGS: u32 = 13;

/// Spins that were worth it for one doubling less. They take longer than the time that a kernel
/// gives a thread in one go. At its end the next spin in vain is due where CPUs are short.
const WORTH_IT: u32 = 4096;

/// The success of earlier spins where nobody knew. Threads change it as they please: it is advice.
#[derive(Default)]
#[repr(C)]
pub struct SpinHistory {
    /// Waits that are to block at once.
    blocking: AtomicU32,
    doublings: AtomicU32,
    /// Since the last doubling.
    worth_it: AtomicU32,
}

impl SpinHistory {
    /// Whether this wait is to spin.
    fn spins(&self) -> bool {
        let blocking = self.blocking.load(Ordering::Relaxed);
        if blocking > 0 {
            self.blocking.store(blocking - 1, Ordering::Relaxed);
        }
        blocking == 0
    }

    fn was_in_vain(&self) {
        // Of several that waited at once, one counts.
        if self.blocking.load(Ordering::Relaxed) == 0 {
            let doublings = self.doublings.load(Ordering::Relaxed);
            self.blocking.store(1 << doublings.min(MOST_DOUBLINGS), Ordering::Relaxed);
            self.doublings.store((doublings + 1).min(MOST_DOUBLINGS), Ordering::Relaxed);
            self.worth_it.store(0, Ordering::Relaxed);
        }
    }

    fn was_worth_it(&self) {
        let doublings = self.doublings.load(Ordering::Relaxed);
        if doublings == 0 {
            return;
        }
        let worth_it = self.worth_it.load(Ordering::Relaxed) + 1;
        self.worth_it.store(worth_it % WORTH_IT, Ordering::Relaxed);
        if worth_it >= WORTH_IT {
            self.doublings.store(doublings - 1, Ordering::Relaxed);
        }
    }
}

/// Spins as long as it is worth it; whether `done` was true meanwhile. `threads` wait for each
/// other.
#[inline]
pub fn spin(
    page: Option<&Page>,
    threads: u32,
    history: &SpinHistory,
    done: impl Fn() -> bool,
) -> bool {
    let partners = || page.map_or(Partners::NotKnown, |page| page.partners(threads));
    if partners() == Partners::NotKnown && !history.spins() {
        return done();
    }
    let mut begun = None;
    loop {
        let longest = match partners() {
            Partners::Run => IN_SLOT,
            Partners::NotKnown => NOT_KNOWN,
            Partners::Stand => return done(),
        };
        for _ in 0..LOOKS {
            if done() {
                history.was_worth_it();
                return true;
            }
            hint::spin_loop();
        }
        if begun.get_or_insert_with(Instant::now).elapsed() >= longest {
            if longest == NOT_KNOWN {
                history.was_in_vain();
            }
            return done();
        }
    }
}

/// Sleeps while `word` is `value`; also returns for no reason.
///
/// The word may lie in memory that processes share.
pub fn sleep(word: &AtomicU32, value: u32) {
    let _ = futex::wait(word, futex::Flags::empty(), value, None);
}

/// Wakes as many of those who sleep on the word.
pub fn wake(word: &AtomicU32, count: u32) {
    let _ = futex::wake(word, futex::Flags::empty(), count);
}

/// Something of C's that begins with `MARK` once it was initialised.
///
/// # Safety
/// `it` is null, or points to a `T` that can be read and stays while it is used.
pub unsafe fn known<'a, T: Marked>(it: *const T) -> Result<&'a T, Failure> {
    if it.is_null() || it.addr() % align_of::<T>() != 0 {
        return Err(Failure::invalid(format!("there is no {}", T::NAME)));
    }
    // SAFETY: not null and aligned; the caller says that the rest holds.
    let it = unsafe { &*it };
    if it.is_marked() {
        Ok(it)
    } else {
        Err(Failure::invalid(format!("the {} is not initialised", T::NAME)))
    }
}

pub trait Marked {
    const NAME: &'static str;
    fn is_marked(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_in_vain_become_rare_and_come_back() {
        let history = SpinHistory::default();
        let waits = 100_000;
        let spins = (0..waits).filter(|_| {
            let spins = history.spins();
            if spins {
                history.was_in_vain();
            }
            spins
        });
        assert!((10..40).contains(&spins.count()));
        while !history.spins() {}
        for _ in 0..MOST_DOUBLINGS * WORTH_IT {
            history.was_worth_it();
            assert!(history.spins());
        }
        history.was_in_vain();
        assert!(!history.spins() && history.spins());
    }

    #[test]
    fn out_of_slot_nobody_spins() {
        let page = Page::made_up(0, 8, 0);
        let looks = AtomicU32::new(0);
        let look = || looks.fetch_add(1, Ordering::Relaxed) > 0;
        assert!(!spin(Some(&page), 2, &SpinHistory::default(), look));
        assert_eq!(looks.into_inner(), 1);
        let running = Page::made_up(1, 8, 0);
        let looks = AtomicU32::new(0);
        let look = || looks.fetch_add(1, Ordering::Relaxed) > 3;
        assert!(spin(Some(&running), 2, &SpinHistory::default(), look));
    }
}
