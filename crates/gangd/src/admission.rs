//! Whether there is memory and disk for a job (L26).
//!
//! Problem: a gang that pages holds all its CPUs while it waits for a disk. What a job is going to need
//! is known to its user alone, and before it starts.
//!
//! Approach: a job may say what it needs. It is held against what is free now, less what others were
//! promised and do not use yet. Who does not fit is refused with the numbers, or waits its turn.
//!
//! Properties: what is left after those who wait and came earlier is all that anybody gets, so a job that
//! needs much does not wait for ever; a client that goes away waits no longer.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gang_linux::memory;

use crate::denied::Denied;

/// What a job needs; 0 where it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub mem_bytes: u64,
    pub disk_bytes: u64,
}

impl Resources {
    pub fn is_none(&self) -> bool {
        *self == Resources::default()
    }
}

/// What there is of one resource, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    pub total: u64,
    pub free: u64,
    /// Promised to jobs, and not used by them yet.
    pub promised: u64,
}

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    pub memory: Supply,
    pub disk: Supply,
}

impl Stock {
    /// What the machine has now. Promises are added to it ([`Stock::promise`]).
    pub fn of_machine(proc_root: &Path, disk: &Path) -> Result<Stock, Denied> {
        let memory = memory::of_machine(proc_root)?;
        let space = rustix::fs::statvfs(disk).map_err(|e| Denied::Failed {
            operation: format!("ask for the free space of {}", disk.display()),
            reason: e.to_string(),
        })?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Stock {
            memory: Supply { total: memory.total, free: memory.available, promised: 0 },
            disk: Supply { total: bytes(space.f_blocks), free: bytes(space.f_bavail), promised: 0 },
        })
    }

    /// Takes account of what a job was promised, of which it uses `used` already.
    pub fn promise(&mut self, job: Resources, used: Resources) {
        self.memory.promised += job.mem_bytes.saturating_sub(used.mem_bytes);
        self.disk.promised += job.disk_bytes.saturating_sub(used.disk_bytes);
    }

    /// Refuses what does not fit.
    pub fn admit(&self, wanted: Resources) -> Result<(), Denied> {
        let named =
            [("memory", wanted.mem_bytes, self.memory), ("disk", wanted.disk_bytes, self.disk)];
        match named.into_iter().find(|(_, wanted, supply)| {
            *wanted > 0 && *wanted > supply.free.saturating_sub(supply.promised)
        }) {
            None => Ok(()),
            Some((resource, wanted, supply)) => Err(Denied::NotEnough { resource, wanted, supply }),
        }
    }

    /// Refuses what would not fit either if the machine were empty.
    pub fn can_ever(&self, wanted: Resources) -> Result<(), Denied> {
        let empty = |supply: Supply| Supply { free: supply.total, promised: 0, ..supply };
        Stock { memory: empty(self.memory), disk: empty(self.disk) }.admit(wanted)
    }
}

/// Jobs that wait at a time.
const WAITING_MAX: usize = 256;

/// How often somebody who waits looks again: what is free changes without a word.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Who is let in next.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    tickets: VecDeque<(u64, Resources)>,
    next: u64,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries to let a job in that needs something; where `wait`, again and again while it is told that
    /// there is not enough, and while `is_there` holds. One attempt is made at a time, and told what
    /// those need who came before.
    pub fn pass<T>(
        &self,
        wanted: Resources,
        wait: bool,
        is_there: impl Fn() -> bool,
        mut attempt: impl FnMut(&[Resources]) -> Result<T, Denied>,
    ) -> Result<T, Denied> {
        let mut waiting = self.waiting();
        let ahead: Vec<Resources> = waiting.tickets.iter().map(|&(_, wanted)| wanted).collect();
        match attempt(&ahead) {
            Err(Denied::NotEnough { .. }) if wait => {}
            outcome => return outcome,
        }
        if waiting.tickets.len() >= WAITING_MAX {
            let limit = "jobs that wait for memory or disk";
            return Err(Denied::LimitReached { limit, maximum: WAITING_MAX });
        }
        let ticket = waiting.next;
        waiting.next += 1;
        waiting.tickets.push_back((ticket, wanted));
        let outcome = loop {
            let woken = self.changed.wait_timeout(waiting, LOOK_EVERY);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
            if !is_there() {
                break Err(Denied::Failed {
                    operation: "wait for memory and disk".into(),
                    reason: "the client has gone".into(),
                });
            }
            let before = waiting.tickets.iter().take_while(|(other, _)| *other != ticket);
            let ahead: Vec<Resources> = before.map(|&(_, wanted)| wanted).collect();
            match attempt(&ahead) {
                Err(Denied::NotEnough { .. }) => {}
                outcome => break outcome,
            }
        };
        waiting.tickets.retain(|(other, _)| *other != ticket);
        self.changed.notify_all();
        outcome
    }

    /// A job has ended, or needs less: somebody may fit now.
    pub fn look_again(&self) {
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    };

    use super::*;

    fn stock(free: u64, promised: u64) -> Stock {
        let memory = Supply { total: 100, free, promised };
        Stock { memory, disk: Supply { total: 10, free: 10, promised: 0 } }
    }

    fn memory(mem_bytes: u64) -> Resources {
        Resources { mem_bytes, disk_bytes: 0 }
    }

    #[test]
    fn what_is_promised_is_not_given_twice() {
        let mut stock = stock(60, 0);
        assert_eq!(stock.admit(memory(60)), Ok(()));
        stock.promise(memory(50), memory(20));
        assert_eq!(stock.memory.promised, 30);
        assert_eq!(stock.admit(memory(30)), Ok(()));
        let refused = stock.admit(memory(31));
        assert!(matches!(refused, Err(Denied::NotEnough { resource: "memory", wanted: 31, .. })));
        // More than was promised is used: that shows in what is free.
        stock.promise(memory(10), memory(40));
        assert_eq!(stock.memory.promised, 30);
        assert_eq!(stock.admit(Resources { mem_bytes: 0, disk_bytes: 10 }), Ok(()));
        let refused = stock.admit(Resources { mem_bytes: 1, disk_bytes: 11 });
        assert!(matches!(refused, Err(Denied::NotEnough { resource: "disk", .. })));
    }

    #[test]
    fn who_asks_for_nothing_always_fits() {
        assert_eq!(stock(0, 50).admit(Resources::default()), Ok(()));
    }

    #[test]
    fn what_can_never_fit_is_known() {
        assert_eq!(stock(0, 50).can_ever(memory(100)), Ok(()));
        assert!(stock(100, 0).can_ever(memory(101)).is_err());
    }

    #[test]
    fn first_come_first_served() {
        let queue = Arc::new(Queue::default());
        let free = Arc::new(AtomicU64::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads = [50, 10].map(|wanted| {
            let (mine, free, order) = (queue.clone(), free.clone(), order.clone());
            let before = queue.waiting().tickets.len();
            let thread = std::thread::spawn(move || {
                mine.pass(
                    memory(wanted),
                    true,
                    || true,
                    |ahead| {
                        let mut stock = stock(free.load(Ordering::Acquire), 0);
                        ahead.iter().for_each(|&other| stock.promise(other, memory(0)));
                        stock.admit(memory(wanted))?;
                        order.lock().unwrap().push(wanted);
                        Ok(())
                    },
                )
            });
            while queue.waiting().tickets.len() == before {
                std::thread::yield_now();
            }
            thread
        });
        // The lesser one would fit, and does not overtake.
        free.store(20, Ordering::Release);
        queue.look_again();
        let seen = queue.pass(memory(5), false, || true, |ahead| Ok(ahead.to_vec())).unwrap();
        assert_eq!(seen, [memory(50), memory(10)]);
        assert!(order.lock().unwrap().is_empty());
        free.store(60, Ordering::Release);
        queue.look_again();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        assert_eq!(order.lock().unwrap().len(), 2);
    }

    #[test]
    fn who_goes_away_waits_no_longer() {
        let queue = Queue::default();
        let attempt = |_: &[Resources]| stock(0, 0).admit(memory(1));
        let outcome = queue.pass(memory(1), true, || false, attempt);
        assert!(matches!(outcome, Err(Denied::Failed { .. })));
        assert!(queue.waiting().tickets.is_empty());
    }
}
