//! Locks that a client thread holds while a job changes in several steps.
//!
//! Problem: the conductor does each step at once, but the kernel's part of a step takes
//! milliseconds, and another request may come meanwhile.
//!
//! Approach: three locks, taken in this order: the queue of jobs that wait for memory or disk
//! ([`super::admission`]); one of the two here, never both; the lock of the files
//! ([`super::files::JobFiles::lock`]).

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::process_locks::{ProcessLock, ProcessLocks};

#[derive(Debug, Default)]
pub struct JobLocks {
    processes: ProcessLocks,
    policy: Mutex<()>,
}

impl JobLocks {
    /// Held for a process that is brought into a job or taken out, or a thread of it.
    pub fn process(&self, pid: u32) -> ProcessLock<'_> {
        self.processes.of(pid)
    }

    /// Held while the policy of a job changes, or processes return to where the policy has them.
    pub fn policy(&self) -> MutexGuard<'_, ()> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
