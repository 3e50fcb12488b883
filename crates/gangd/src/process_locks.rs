//! One at a time of those who bring the same process into jobs, or a thread of it.
//!
//! Problem: a process is in one job at a time, and so is each of its threads. But a process moves in within
//! milliseconds, and who asks meanwhile would still find it outside.
//!
//! Approach: who brings a process in, or a thread of it, holds its door until it is in, and looks whether
//! somebody else has it once the door is his.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

#[derive(Debug, Default)]
pub struct ProcessLocks {
    held: Mutex<BTreeSet<u32>>,
    changed: Condvar,
}

/// The door of a process, until it is dropped.
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
    fn who_brings_the_same_process_waits_and_nobody_else() {
        let process_locks = Arc::new(ProcessLocks::default());
        let door = process_locks.of(7);
        drop(process_locks.of(8));
        let (came, comes) = channel();
        let second = thread::spawn({
            let process_locks = process_locks.clone();
            move || {
                let _door = process_locks.of(7);
                came.send(()).unwrap();
            }
        });
        assert!(comes.try_recv().is_err());
        drop(door);
        comes.recv().unwrap();
        second.join().unwrap();
        drop(process_locks.of(7));
    }
}
