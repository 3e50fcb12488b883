//! The lock of `gang.h`.
//!
//! Approach: one word, as in Drepper's "Futexes Are Tricky": free, held, or held with threads that
//! may sleep. Before it sleeps, a thread spins as long as the slot page makes that worth it.
//!
//! Properties: one thread holds it at a time; what the one before wrote is seen by the next; no
//! wake-up is lost. Threads do not get it in the order in which they came.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    page::{self, Page},
    result::{Code, Failure, answer},
    waiting::{Marked, SpinHistory, known, sleep, spin, wake},
};

/// As in `gang.h`.
#[repr(C)]
pub struct Mutex {
    mark: AtomicU32,
    state: AtomicU32,
    page: *const Page,
    history: SpinHistory,
}

const _: () = assert!(size_of::<Mutex>() == 32);

const MARK: u32 = 0x474e_4d01;
const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// The one that holds it, and the one that waits.
const THREADS: u32 = 2;

impl Marked for Mutex {
    const NAME: &'static str = "lock";

    fn is_marked(&self) -> bool {
        self.mark.load(Ordering::Relaxed) == MARK
    }
}

impl Mutex {
    fn new(page: *const Page) -> Mutex {
        Mutex {
            mark: AtomicU32::new(MARK),
            state: AtomicU32::new(FREE),
            page,
            history: SpinHistory::default(),
        }
    }

    #[inline]
    fn take(&self) -> bool {
        let taken = self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    #[inline]
    fn lock(&self) {
        if self.take() {
            return;
        }
        // SAFETY: checked when the lock was made, and the caller keeps it mapped as long.
        let page = unsafe { self.page.as_ref() };
        if spin(page, THREADS, &self.history, || {
            self.state.load(Ordering::Relaxed) == FREE && self.take()
        }) {
            return;
        }
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            sleep(&self.state, AWAITED);
        }
    }

    /// Whether it was held.
    #[inline]
    fn unlock(&self) -> bool {
        // Not by a swap: a lock that nobody holds may just be given to somebody.
        let mut state = self.state.load(Ordering::Relaxed);
        while state != FREE {
            match self.state.compare_exchange_weak(
                state,
                FREE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(AWAITED) => {
                    wake(&self.state, 1);
                    return true;
                }
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }
}

/// # Safety
/// As in `gang.h`: `mutex` is null, or can be written; `page` is null, or stays mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_mutex_init(mutex: *mut Mutex, page: *const Page) -> u32 {
    answer(|| {
        if mutex.is_null() || mutex.addr() % align_of::<Mutex>() != 0 {
            return Err(Failure::invalid("there is no place for the lock"));
        }
        // SAFETY: as the caller says.
        unsafe { page::check(page) }?;
        // SAFETY: not null and aligned, and the caller lets us write it.
        unsafe { mutex.write(Mutex::new(page)) };
        Ok(())
    })
}

/// # Safety
/// As in `gang.h`: `mutex` is null, or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_mutex_lock(mutex: *mut Mutex) -> u32 {
    // SAFETY: as the caller says.
    match unsafe { known(mutex) } {
        Ok(mutex) => {
            mutex.lock();
            Code::Ok as u32
        }
        Err(failure) => answer(|| Err(failure)),
    }
}

/// # Safety
/// As in `gang.h`: `mutex` is null, or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_mutex_unlock(mutex: *mut Mutex) -> u32 {
    // SAFETY: as the caller says.
    match unsafe { known(mutex) } {
        Ok(mutex) if mutex.unlock() => Code::Ok as u32,
        Ok(_) => answer(|| Err(Failure::invalid("nobody holds the lock"))),
        Err(failure) => answer(|| Err(failure)),
    }
}

/// # Safety
/// As in `gang.h`: `mutex` is null, or points to one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gang_mutex_destroy(mutex: *mut Mutex) -> u32 {
    answer(|| {
        // SAFETY: as the caller says.
        let mutex: &Mutex = unsafe { known(mutex) }?;
        if mutex.state.load(Ordering::Acquire) != FREE {
            return Err(Failure::invalid("somebody holds the lock"));
        }
        mutex.mark.store(0, Ordering::Relaxed);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::UnsafeCell, ptr};

    struct Shared(Mutex, UnsafeCell<u64>);
    // SAFETY: only the holder of the lock touches the cell.
    unsafe impl Sync for Shared {}

    #[test]
    fn one_at_a_time_whatever_the_page_says() {
        const THREADS: u64 = 4;
        const TURNS: u64 = 5_000;
        let pages = [Page::made_up(1, 8, 0), Page::made_up(0, 8, 0), Page::made_up(1, 8, 2)];
        for page in pages.iter().map(ptr::from_ref).chain([ptr::null()]) {
            let shared = Shared(Mutex::new(page), UnsafeCell::new(0));
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    let shared = &shared;
                    scope.spawn(move || {
                        for _ in 0..TURNS {
                            shared.0.lock();
                            // SAFETY: we hold the lock.
                            unsafe { *shared.1.get() += 1 };
                            assert!(shared.0.unlock());
                        }
                    });
                }
            });
            assert!(!shared.0.unlock());
            assert_eq!(shared.1.into_inner(), THREADS * TURNS);
        }
    }
}
