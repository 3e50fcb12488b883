//! Whether there is memory and disk for a job (L26).
//!
//! Problem: a gang that pages holds all its CPUs while it waits for a disk. Only its user knows
//! what a job is going to need, and must say so before it starts.
//!
//! Approach: a job may say what it needs. Its needs are held against what is free now, less what
//! others were promised and do not use yet. A job that does not fit is refused with the numbers, or
//! waits its turn.
//!
//! Properties: a job gets only what is left after the jobs that wait and came earlier, as far as
//! [`Overclaims`] lets them keep it; all claims count for that, whoever asks. So a job that needs
//! much does not wait for ever, and does not keep all others out. Of the places in the queue,
//! nobody has more than half of what others leave. A client that goes away waits no longer.

use std::{
    collections::VecDeque,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gang_conductor::{
    Accounts,
    admission::{Claim, Overclaims, Stock, Supply},
    quota::Quota,
};
use gang_linux::{clock, memory};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::{cleanup::Cleanup, job_ids::JobIds};
use crate::{conduct::at_work, error::Error};

/// The stock of the machine now. Promises are added to it ([`Stock::promise`]).
pub fn stock_of_machine(proc_root: &Path, disk: &Path) -> Result<Stock, Error> {
    let memory = memory::of_machine(proc_root)?;
    let space = rustix::fs::statvfs(disk).map_err(|e| Error::Failed {
        operation: format!("ask for the free space of {}", disk.display()),
        reason: e.to_string(),
    })?;
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    Ok(Stock {
        memory: Supply { total: memory.total, free: memory.available, promised: 0 },
        disk: Supply { total: bytes(space.f_blocks), free: bytes(space.f_bavail), promised: 0 },
    })
}

/// Jobs that wait at a time.
const WAITING_MAX: usize = 256;

const WAITING: Quota = Quota {
    maximum: WAITING_MAX,
    of_user: WAITING_MAX,
    names: ["jobs that wait for memory or disk", "jobs of a user that wait for memory or disk"],
};

/// How often the first job that waits looks again: no event reports that more is free. The second
/// job looks half as often, and so on, so that many cost little more than a few.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The queue and the room that a new job has to pass, and the number that it gets.
#[derive(Debug)]
pub struct Admission {
    /// Jobs that wait for memory or disk.
    pub queue: Queue,
    /// Jobs that are over and not cleared away yet: new ones wait for room.
    pub cleanup: Cleanup,
    /// The numbers that jobs get.
    pub ids: JobIds,
}

impl Admission {
    pub fn new(ids: JobIds) -> Admission {
        Admission { queue: Queue::default(), cleanup: Cleanup::default(), ids }
    }
}

/// The jobs that wait, in the order in which they came.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    tickets: VecDeque<Ticket>,
    next: u64,
    overclaims: Overclaims,
}

/// The claims that a job which comes or waits is held against besides the promises to others.
pub struct Ahead<'a> {
    /// Those of all jobs that wait, in the order in which they came.
    pub waiting: Vec<Claim>,
    /// So many of them came before.
    pub before: usize,
    pub overclaims: &'a mut Overclaims,
}

impl Ahead<'_> {
    /// The claims of the jobs that came before.
    pub fn claims(&self) -> &[Claim] {
        &self.waiting[..self.before]
    }
}

/// A job that waits.
#[derive(Debug)]
struct Ticket {
    number: u64,
    claim: Claim,
    /// Rung when there may be more than before.
    bell: Arc<OwnedFd>,
}

impl Waiting {
    /// The claims of the jobs before a ticket, or of all where the ticket is not in the queue.
    fn ahead_of(&mut self, number: u64) -> Ahead<'_> {
        let before = self.tickets.iter().take_while(|ticket| ticket.number != number).count();
        let waiting = self.tickets.iter().map(|ticket| ticket.claim).collect();
        Ahead { waiting, before, overclaims: &mut self.overclaims }
    }

    /// Whether a user may have one more place in the queue.
    fn admit(&self, accounts: &Accounts, claim: Claim) -> Result<(), Error> {
        let his = self.tickets.iter().filter(|ticket| ticket.claim.user == claim.user).count();
        Ok(WAITING.admit(accounts, claim.user, his, self.tickets.len())?)
    }
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries to let a job in that needs something. Where a client waits, tries again and again
    /// while there is not enough, until the client hangs up. One attempt is made at a time; it gets
    /// the needs of the jobs that came before.
    pub fn pass<T>(
        &self,
        accounts: &Accounts,
        claim: Claim,
        client: Option<BorrowedFd<'_>>,
        mut attempt: impl FnMut(Ahead<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        let client = match (attempt(waiting.ahead_of(number)), client) {
            (Err(Error::NotEnough { .. }), Some(client)) => client,
            (outcome, _) => return outcome,
        };
        waiting.admit(accounts, claim)?;
        let failed =
            |reason: String| Error::Failed { operation: "wait for memory and disk".into(), reason };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| failed(e.to_string()))?;
        let bell = Arc::new(bell);
        let mut ahead = waiting.tickets.len();
        waiting.tickets.push_back(Ticket { number, claim, bell: bell.clone() });
        drop(waiting);
        let outcome = loop {
            at_work::leave();
            let io_deadline = LOOK_EVERY * (ahead as u32 + 1);
            if !waits_on(client, &bell, io_deadline) {
                break Err(failed("the client has gone".into()));
            }
            let mut waiting = self.waiting();
            let before = waiting.ahead_of(number);
            ahead = before.before;
            match attempt(before) {
                Err(Error::NotEnough { .. }) => {}
                outcome => break outcome,
            }
        };
        self.waiting().tickets.retain(|ticket| ticket.number != number);
        self.look_again();
        outcome
    }

    /// A job has ended, or needs less: somebody may fit now.
    pub fn look_again(&self) {
        for ticket in &self.waiting().tickets {
            let _ = rustix::io::write(&ticket.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// Waits until the bell rings, or for so long; false as soon as the client has hung up.
fn waits_on(client: BorrowedFd<'_>, bell: &OwnedFd, io_deadline: Duration) -> bool {
    let mut fds =
        [PollFd::from_borrowed_fd(client, PollFlags::RDHUP), PollFd::new(bell, PollFlags::IN)];
    let _ = poll(&mut fds, Some(&clock::timespec(io_deadline)));
    let hung_up = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let is_there = !fds[0].revents().intersects(hung_up);
    let _ = rustix::io::read(bell, &mut [0; 8]);
    is_there
}

#[cfg(test)]
mod tests {
    use std::{
        os::{fd::AsFd, unix::net::UnixStream},
        sync::atomic::{AtomicU64, Ordering},
    };

    use gang_conductor::admission::Resources;
    use gang_schedule::UserId;

    use super::*;

    const ONE: UserId = UserId(1);

    fn claim(wanted: u64) -> Claim {
        Claim { user: ONE, unused: memory(wanted) }
    }

    fn stock(free: u64, promised: u64) -> Stock {
        let memory = Supply { total: 100, free, promised };
        Stock { memory, disk: Supply { total: 10, free: 10, promised: 0 } }
    }

    fn memory(mem_bytes: u64) -> Resources {
        Resources { mem_bytes, disk_bytes: 0 }
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
                let (client, _open) = UnixStream::pair().unwrap();
                mine.pass(&Accounts::default(), claim(wanted), Some(client.as_fd()), |ahead| {
                    let mut stock = stock(free.load(Ordering::Acquire), 0);
                    ahead.claims().iter().for_each(|other| stock.promise(other.unused));
                    stock.admit(memory(wanted))?;
                    order.lock().unwrap().push(wanted);
                    Ok(())
                })
            });
            while queue.waiting().tickets.len() == before {
                std::thread::yield_now();
            }
            thread
        });
        // The lesser one would fit, and does not overtake.
        free.store(20, Ordering::Release);
        queue.look_again();
        let seen = queue
            .pass(&Accounts::default(), claim(5), None, |ahead| Ok(ahead.claims().to_vec()))
            .unwrap();
        assert_eq!(seen, [claim(50), claim(10)]);
        assert!(order.lock().unwrap().is_empty());
        free.store(60, Ordering::Release);
        queue.look_again();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        assert_eq!(order.lock().unwrap().len(), 2);
    }

    #[test]
    fn first_in_the_queue_is_before_all_and_sees_all() {
        let mut waiting = Waiting::default();
        for number in 0..2 {
            let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
            waiting.tickets.push_back(Ticket { number, claim: claim(number), bell });
        }
        let first = waiting.ahead_of(0);
        assert_eq!((first.claims().len(), first.waiting), (0, vec![claim(0), claim(1)]));
        assert_eq!(waiting.ahead_of(1).claims(), [claim(0)]);
        assert_eq!(waiting.ahead_of(2).claims().len(), 2, "one that comes is the last");
    }

    #[test]
    fn client_that_hangs_up_waits_no_longer() {
        let queue = Queue::default();
        let attempt = |_: Ahead<'_>| stock(0, 0).admit(memory(1)).map_err(Error::from);
        let (client, other_end) = UnixStream::pair().unwrap();
        drop(other_end);
        let outcome = queue.pass(&Accounts::default(), claim(1), Some(client.as_fd()), attempt);
        assert!(matches!(outcome, Err(Error::Failed { .. })));
        assert!(queue.waiting().tickets.is_empty());
    }
}
