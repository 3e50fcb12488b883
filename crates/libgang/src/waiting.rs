//! How a thread waits for other threads of its gang: whether it spins, and how long.
//!
//! Problem: a wait that is short is over soonest for a thread that spins. But a thread that spins for one
//! that has no CPU takes the CPU from it. Which of the two holds cannot be seen from within a program.
//!
//! Approach: the slot page says it. While the slot runs, the other threads run: spin. Out of slot they do
//! not: block. Where nobody knows (there is no page, the job is not scheduled, gangd is gone, or the slot
//! has fewer CPUs than threads wait), spin for a fixed time and block then (E9; 50 µs after Kontothanassis).
//!
//! Property: every spin is bounded. A page that is wrong, or a thread that waits for a disk in its slot,
//! costs a millisecond; a wake-up costs little beside that, and others can have the CPU meanwhile.

use std::{
    hint,
    sync::atomic::AtomicU32,
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

/// Spins as long as it is worth it; whether `done` was true meanwhile. `threads` wait for each other.
#[inline]
pub fn spin(page: Option<&Page>, threads: u32, done: impl Fn() -> bool) -> bool {
    let mut begun = None;
    loop {
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
            hint::spin_loop();
        }
        let longest = match page.map_or(Partners::NotKnown, |page| page.partners(threads)) {
            Partners::Run => IN_SLOT,
            Partners::NotKnown => NOT_KNOWN,
            Partners::Stand => return false,
        };
        if begun.get_or_insert_with(Instant::now).elapsed() >= longest {
            return false;
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
