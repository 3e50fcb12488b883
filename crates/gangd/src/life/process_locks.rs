//! One request at a time brings a process, or a thread of it, into a job.
//!
//! Problem: a process is in one job at a time, and so is each of its threads. But a process moves
//! in within milliseconds, and another request would still find it outside meanwhile.
//!
//! Approach: a request holds the lock of the process until the process is in its job. Once it holds
//! the lock, it looks whether another job has the process.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
pub struct ProcessLocks {
    held: Mutex<BTreeSet<u32>>,
    changed: Condvar,
}

/// The lock of a process, until it is dropped.
pub struct ProcessLock<'a> {
    process_locks: &'a ProcessLocks,
    pid: u32,
}

impl ProcessLocks {
    fn held(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else brings that process in.
    pub fn of(&self, pid: u32) -> ProcessLock<'_> {
        let is_held = |held: &mut BTreeSet<u32>| held.contains(&pid);
        let mut held =
            self.changed.wait_while(self.held(), is_held).unwrap_or_else(PoisonError::into_inner);
        held.insert(pid);
        ProcessLock { process_locks: self, pid }
    }
}

impl Drop for ProcessLock<'_> {
    fn drop(&mut self) {
        self.process_locks.held().remove(&self.pid);
        self.process_locks.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc::channel},
        thread,
    };

    use super::*;

    #[test]
    fn lock_of_a_process_keeps_only_its_own_waiting() {
        let process_locks = Arc::new(ProcessLocks::default());
        let lock = process_locks.of(7);
        drop(process_locks.of(8));
        let (came, comes) = channel();
        let second = thread::spawn({
            let process_locks = process_locks.clone();
            move || {
                let _lock = process_locks.of(7);
                came.send(()).unwrap();
            }
        });
        assert!(comes.try_recv().is_err());
        drop(lock);
        comes.recv().unwrap();
        second.join().unwrap();
        drop(process_locks.of(7));
    }
}
