//! The barrier of `gang.h`.
//!
//! Approach: a count of those who have come and a generation that the last one advances. The
//! generation plays the part of the sense of a sense-reversing barrier, and is the word that
//! threads sleep on.
//!
//! Properties: nobody leaves before all have come; what was written before is seen by all after; no
//! wake-up is lost.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    page::{self, Page},
    result::{Code, Failure, answer},
    waiting::{Marked, SpinHistory, known, sleep, spin, wake},
};

/// As in `gang.h`. Words that some threads write lie apart from words that others read in a loop.
#[repr(C)]
pub struct Barrier {
    mark: AtomicU32,
    threads: u32,
    page: *const Page,
    _apart: [u64; 14],
    arrived: AtomicU32,
    history: SpinHistory,
    _apart_too: [u32; 28],
    generation: AtomicU32,
    blocked: AtomicU32,
    _to_its_end: [u32; 30],
}

const _: () = assert!(size_of::<Barrier>() == 384 && align_of::<Barrier>() == 8);

const MARK: u32 = 0x474e_4201;
/// Nobody has more threads, and it is no number that was never filled in.
const MOST_THREADS: u32 = 1 << 20;

impl Marked for Barrier {
    const NAME: &'static str = "barrier";

    fn is_marked(&self) -> bool {
        self.mark.load(Ordering::Relaxed) == MARK
    }
}

impl Barrier {
    fn new(threads: u32, page: *const Page) -> Barrier {
        Barrier {
            mark: AtomicU32::new(MARK),
            threads,
            page,
            _apart: [0; 14],
            arrived: AtomicU32::new(0),
            history: SpinHistory::default(),
            _apart_too: [0; 28],
            generation: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            _to_its_end: [0; 30],
        }
    }

    #[inline]
    fn meet(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            // SeqCst, as below: of the two, one sees the other's store, so that a thread about to
            // sleep is either woken or sees the new generation.
            self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
            if self.blocked.load(Ordering::SeqCst) > 0 {
                wake(&self.generation, u32::MAX >> 1);
            }
            return;
        }
        let gone_on = || self.generation.load(Ordering::Acquire) != generation;
        // SAFETY: checked when the barrier was made, and the caller keeps it mapped as long.
        let page = unsafe { self.page.as_ref() };
        if spin(page, self.threads, &self.history, gone_on) {
            return;
        }
        self.blocked.fetch_add(1, Ordering::SeqCst);
        while self.generation.load(Ordering::SeqCst) == generation {
            sleep(&self.generation, generation);
        }
        self.blocked.fetch_sub(1, Ordering::SeqCst);
    }
}

/// # Safety
/// As in `gang.h`: `barrier` is null, or can be written; `page` is null, or stays mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_barrier_init(
    barrier: *mut Barrier,
    threads: u32,
    page: *const Page,
) -> u32 {
    answer(|| {
        if barrier.is_null() || barrier.addr() % align_of::<Barrier>() != 0 {
            return Err(Failure::invalid("there is no place for the barrier"));
        }
        if !(1..=MOST_THREADS).contains(&threads) {
            return Err(Failure::invalid(format!("no barrier is for {threads} threads")));
        }
        // SAFETY: as the caller says.
        unsafe { page::check(page) }?;
        // SAFETY: not null and aligned, and the caller lets us write it.
        unsafe { barrier.write(Barrier::new(threads, page)) };
        Ok(())
    })
}

/// # Safety
/// As in `gang.h`: `barrier` is null, or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_barrier_wait(barrier: *mut Barrier) -> u32 {
    // SAFETY: as the caller says.
    match unsafe { known(barrier) } {
        // Nothing in there panics, and threads that meet a million times a second feel more than
        // that.
        Ok(barrier) => {
            barrier.meet();
            Code::Ok as u32
        }
        Err(failure) => answer(|| Err(failure)),
    }
}

/// # Safety
/// As in `gang.h`: `barrier` is null, or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_barrier_destroy(barrier: *mut Barrier) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let barrier: &Barrier = unsafe { known(barrier) }?;
        if barrier.arrived.load(Ordering::Acquire) > 0 {
            return Err(Failure::invalid("threads wait at the barrier"));
        }
        barrier.mark.store(0, Ordering::Relaxed);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ptr, sync::atomic::AtomicU64};

    struct Shared(Barrier);
    // SAFETY: all that is written after its making is atomic; the page is read only.
    unsafe impl Sync for Shared {}

    /// No thread may be more than one round ahead of another.
    fn makes_threads_meet(threads: usize, page: *const Page, rounds: u64) {
        let barrier = Shared(Barrier::new(threads as u32, page));
        let rounds_done: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for me in 0..threads {
                let (barrier, rounds_done) = (&barrier, &rounds_done);
                scope.spawn(move || {
                    for round in 1..=rounds {
                        rounds_done[me].store(round, Ordering::Relaxed);
                        barrier.0.meet();
                        for other in rounds_done {
                            let other = other.load(Ordering::Relaxed);
                            assert!(other == round || other == round + 1, "{other} at {round}");
                        }
                    }
                });
            }
        });
        assert_eq!(barrier.0.blocked.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_meet_whatever_the_page_says() {
        for threads in [1, 2, 5] {
            makes_threads_meet(threads, ptr::null(), 1_000);
            for (running, cpus, validity) in [(1, 8, 0), (0, 8, 0), (1, 1, 0), (1, 8, 2)] {
                let page = Page::made_up(running, cpus, validity);
                makes_threads_meet(threads, &page, 300);
            }
        }
    }
}
