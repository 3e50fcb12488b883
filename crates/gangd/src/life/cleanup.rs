//! Jobs that are over, and wait to be cleared away.
//!
//! Problem: the kernel takes some milliseconds for the groups of each job, and no client is to wait
//! for that. But where jobs come faster than they are cleared away, their remains fill the daemon
//! until it has no descriptors.
//!
//! Approach: a queue, which one thread works off. A client that registers a job waits while the
//! queue is long.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gang_schedule::JobId;

/// Jobs that may wait before others have to.
pub const ROOM: usize = 128;

#[derive(Debug, Default)]
pub struct Cleanup {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<JobId>,
    is_closed: bool,
}

impl Cleanup {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job is over.
    pub fn add(&self, job: JobId) {
        self.queue().jobs.push_back(job);
        self.changed.notify_all();
    }

    /// The next one to clear away; waits for it. `None` once there will be no more.
    pub fn next(&self) -> Option<JobId> {
        let is_idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.is_closed;
        let queue = self.changed.wait_while(self.queue(), is_idle);
        let next = queue.unwrap_or_else(PoisonError::into_inner).jobs.pop_front();
        self.changed.notify_all();
        next
    }

    /// No more will come.
    pub fn close(&self) {
        self.queue().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until there is room for another job; false where there is none in time.
    pub fn has_room_within(&self, io_deadline: Duration) -> bool {
        let is_full = |queue: &mut Queue| queue.jobs.len() >= ROOM && !queue.is_closed;
        let waited = self.changed.wait_timeout_while(self.queue(), io_deadline, is_full);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn registration_waits_while_many_jobs_are_over() {
        let cleanup = Arc::new(Cleanup::default());
        (0..ROOM as u64).for_each(|job| cleanup.add(JobId(job)));
        assert!(!cleanup.has_room_within(Duration::from_millis(1)));
        let waiting = Arc::clone(&cleanup);
        let waiter = std::thread::spawn(move || waiting.has_room_within(Duration::from_secs(60)));
        assert_eq!(cleanup.next(), Some(JobId(0)));
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn all_are_cleared_away_before_the_end() {
        let cleanup = Arc::new(Cleanup::default());
        let worked = Arc::clone(&cleanup);
        let worker = std::thread::spawn(move || std::iter::from_fn(|| worked.next()).count());
        (0..5).for_each(|job| cleanup.add(JobId(job)));
        cleanup.close();
        assert_eq!(worker.join().unwrap(), 5);
    }
}
