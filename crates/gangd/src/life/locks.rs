//! Locks that a client thread holds while a job changes in several steps.
//!
//! Problem: the conductor does each step at once, but the kernel's part of a step takes
//! milliseconds, and another request may come meanwhile.
//!
//! Approach: locks, taken in this order: that of a process and then that of the job which it comes
//! into, or that of a job's groups, never both kinds; the queue of jobs that wait for memory or
//! disk ([`super::admission`]); the lock of the files ([`super::files::JobFiles::lock`]). Each is
//! of one process or job, but for the last two: nobody waits for another user's job to move.

use gang_schedule::JobId;

use super::keyed_locks::{KeyedLock, KeyedLocks};

#[derive(Debug, Default)]
pub struct JobLocks {
    processes: KeyedLocks<u32>,
    empty_jobs: KeyedLocks<JobId>,
    homes: KeyedLocks<JobId>,
}

impl JobLocks {
    /// Held for a process that is brought into a job or taken out, or a thread of it: a process is
    /// in one job at a time, and so is each of its threads.
    pub fn process(&self, pid: u32) -> KeyedLock<'_, u32> {
        self.processes.of(pid)
    }

    /// Held while the first process or thread of a job comes in: another one is a further one then.
    pub fn empty_job(&self, job: JobId) -> KeyedLock<'_, JobId> {
        self.empty_jobs.of(job)
    }

    /// Held while a job's policy, or the limits of its groups change, or processes move to where
    /// its policy has them.
    pub fn home(&self, job: JobId) -> KeyedLock<'_, JobId> {
        self.homes.of(job)
    }

    /// The same, for a thread that has other jobs to look after; absent where it is held.
    pub fn try_home(&self, job: JobId) -> Option<KeyedLock<'_, JobId>> {
        self.homes.try_of(job)
    }
}
