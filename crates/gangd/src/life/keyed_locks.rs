//! Locks by number: of a process, or of a job.
//!
//! Problem: a request looks where a process or a job is, and changes that within milliseconds.
//! Another request would still find it as before meanwhile. One lock for all would have them wait
//! for other users.
//!
//! Approach: a request holds the lock of one number until the change is done. Another request for
//! the same number looks once it holds the lock. A number is known as long as its lock is held, so
//! nothing is left of numbers that have ended.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::conduct::at_work;

#[derive(Debug)]
pub struct KeyedLocks<K> {
    held: Mutex<BTreeSet<K>>,
    changed: Condvar,
}

/// The lock of a number, until it is dropped.
pub struct KeyedLock<'a, K: Ord> {
    locks: &'a KeyedLocks<K>,
    key: K,
}

impl<K> Default for KeyedLocks<K> {
    fn default() -> KeyedLocks<K> {
        KeyedLocks { held: Mutex::default(), changed: Condvar::new() }
    }
}

impl<K: Ord> KeyedLocks<K> {
    fn held(&self) -> MutexGuard<'_, BTreeSet<K>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Copy> KeyedLocks<K> {
    /// Waits until nobody else has the lock of that number.
    pub fn of(&self, key: K) -> KeyedLock<'_, K> {
        let is_held = |held: &mut BTreeSet<K>| held.contains(&key);
        let mut held = self.held();
        if is_held(&mut held) {
            at_work::leave();
            let waited = self.changed.wait_while(held, is_held);
            held = waited.unwrap_or_else(PoisonError::into_inner);
        }
        held.insert(key);
        KeyedLock { locks: self, key }
    }

    /// Absent where somebody else has the lock of that number.
    pub fn try_of(&self, key: K) -> Option<KeyedLock<'_, K>> {
        self.held().insert(key).then(|| KeyedLock { locks: self, key })
    }
}

impl<K: Ord> Drop for KeyedLock<'_, K> {
    fn drop(&mut self) {
        self.locks.held().remove(&self.key);
        self.locks.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
            mpsc::channel,
        },
        thread,
    };

    use super::*;

    #[test]
    fn lock_of_a_number_keeps_only_its_own_waiting() {
        let locks = Arc::new(KeyedLocks::default());
        let lock = locks.of(7);
        drop(locks.of(8));
        assert!(locks.try_of(7).is_none() && locks.try_of(8).is_some());
        let (came, comes) = channel();
        let second = thread::spawn({
            let locks = locks.clone();
            move || {
                let _lock = locks.of(7);
                came.send(()).unwrap();
            }
        });
        assert!(comes.try_recv().is_err());
        drop(lock);
        comes.recv().unwrap();
        second.join().unwrap();
        drop(locks.of(7));
    }

    #[test]
    fn one_of_many_has_the_lock_and_nothing_stays() {
        let (locks, inside) = (KeyedLocks::default(), [const { AtomicU32::new(0) }; 3]);
        thread::scope(|scope| {
            for number in 0..12 {
                let (locks, inside) = (&locks, &inside[number % 3]);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let _lock = locks.of(number % 3);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(locks.held().is_empty());
    }
}
