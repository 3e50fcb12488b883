//! Threads that serve clients run before the gangs, within an allowance.
//!
//! Problem: while gangs have all CPUs, an ordinary thread of the daemon runs in gaps only. A client
//! that asks for three things in a row, as a gang that arrives does, waits for three gaps.
//!
//! Approach: threads that serve clients are real-time ones above the gangs, as long as all of them
//! together, and those of each user, keep to an allowance ([`gang_conductor::allowance`]). Beyond
//! it they are ordinary threads, until it has grown again. Requests for which no gang waits, such
//! as those of views, are always served by ordinary threads. Of these, one of each user is at work
//! at a time ([`super::at_work`]). The time that the conductor takes for a request is before the
//! gangs in any case: it is charged, too, and a user who has nothing left is served in gaps. Each
//! reader ([`super::readers`]) has an allowance of its own.
//!
//! Properties: however much clients ask for, gangs lose no more than the allowance. The part of it
//! that was used lengthens the gaps. So gangs and daemon together leave ordinary threads what the
//! kernel keeps for them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use gang_conductor::{allowance::Allowance, at_work::begins_in_ns, turns::Payer};
use gang_linux::{
    clock,
    sched::{self, Attributes},
};
use gang_schedule::{Gap, UserId};
use gang_timetable::priority;

use super::at_work::{self, Workers};

/// The allowance of all threads that share it.
#[derive(Debug)]
pub struct ClientPriority {
    allowance: Option<Mutex<Allowance>>,
    /// The share that was used lately, as last asked for: the bits of an `f64`.
    used: AtomicU64,
    pub gangs: RaisedGangs,
    pub workers: Workers,
}

/// When gangs are raised, as the conductor last published.
#[derive(Debug, Default)]
pub struct RaisedGangs {
    are_there: AtomicBool,
    gap_period_ns: AtomicU64,
    gap_length_ns: AtomicU64,
}

impl RaisedGangs {
    /// Takes note of the gaps between slots; `None` where nobody is raised.
    pub fn follow(&self, gap: Option<Gap>) {
        if let Some(Gap { period_ns, length_ns }) = gap {
            self.gap_period_ns.store(period_ns, Ordering::Relaxed);
            self.gap_length_ns.store(length_ns, Ordering::Relaxed);
        }
        self.are_there.store(gap.is_some(), Ordering::Release);
    }

    /// How long until a request may begin that its user's allowance permits in `due_in_ns`.
    fn begins_in_ns(&self, due_in_ns: u64) -> u64 {
        if !self.are_there.load(Ordering::Acquire) {
            return 0;
        }
        let period_ns = self.gap_period_ns.load(Ordering::Relaxed);
        let length_ns = self.gap_length_ns.load(Ordering::Relaxed).min(period_ns);
        begins_in_ns(Gap { period_ns, length_ns }, clock::utc_ns(), due_in_ns)
    }

    /// Whether nobody is raised at this moment.
    pub fn leave_time(&self) -> bool {
        self.begins_in_ns(u64::MAX) == 0
    }
}

impl ClientPriority {
    /// No thread is put above the gangs where threads are not `realtime`.
    pub fn new(realtime: bool) -> Arc<ClientPriority> {
        let allowance = realtime.then(|| Mutex::new(Allowance::new(clock::monotonic_ns())));
        let (gangs, workers) = Default::default();
        Arc::new(ClientPriority { allowance, used: AtomicU64::new(0), gangs, workers })
    }

    /// An allowance for a thread of the daemon alone, which clients cannot use up.
    pub fn of_its_own(&self) -> Arc<ClientPriority> {
        ClientPriority::new(self.allowance.is_some())
    }

    pub fn charge(&self, payer: Payer, used_ns: u64) -> bool {
        self.allowance.as_ref().is_some_and(|allowance| {
            let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
            allowance.charge(clock::monotonic_ns(), payer, used_ns)
        })
    }

    /// How long until a request of a user may begin that an ordinary thread serves.
    pub fn begins_in_ns(&self, user: UserId) -> u64 {
        let Some(allowance) = &self.allowance else { return 0 };
        let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
        let due_in_ns = allowance.due_in_ns(clock::monotonic_ns(), Some(user));
        drop(allowance);
        self.gangs.begins_in_ns(due_in_ns)
    }

    /// The share of one CPU that was used lately. Never waits: the holder of the lock may be an
    /// ordinary thread that the gangs keep from a CPU.
    pub fn used(&self) -> f64 {
        if let Some(Ok(mut allowance)) = self.allowance.as_ref().map(Mutex::try_lock) {
            let used = allowance.used(clock::monotonic_ns());
            self.used.store(used.to_bits(), Ordering::Relaxed);
        }
        f64::from_bits(self.used.load(Ordering::Relaxed))
    }
}

/// The priority of the calling thread, while this is there.
#[derive(Debug)]
pub struct ThreadPriority {
    client_priority: Arc<ClientPriority>,
    payer: Payer,
    /// Its user's requests wait for each other.
    has_line: bool,
    is_above: bool,
    /// CPU time up to which it was charged.
    charged_ns: u64,
}

impl ThreadPriority {
    /// Puts the calling thread above the gangs, where that is allowed, on behalf of a user or of
    /// the daemon.
    pub fn of(client_priority: &Arc<ClientPriority>, payer: Payer) -> ThreadPriority {
        let client_priority = client_priority.clone();
        let charged_ns = clock::thread_cpu_ns();
        let mut priority =
            ThreadPriority { client_priority, payer, has_line: true, is_above: false, charged_ns };
        priority.renew();
        priority
    }

    /// No limit of users holds this one: his requests wait for none of his own.
    #[must_use]
    pub fn without_line(mut self) -> ThreadPriority {
        self.has_line = false;
        self
    }

    /// A piece of work is done. Charges the thread for the time it used, and puts it above the
    /// gangs where something is left.
    pub fn renew(&mut self) {
        at_work::leave();
        let is_due = self.charge();
        self.set(is_due);
    }

    /// A request is to be read. A thread that is not above the gangs has its turn first.
    pub fn begin(&mut self) {
        if let (false, Some(user)) = (self.is_above, self.payer) {
            at_work::begin(&self.client_priority, user, self.has_line);
        }
    }

    /// Makes it an ordinary thread until its priority is renewed, and waits for its turn.
    pub fn lower(&mut self) {
        if self.is_above {
            self.charge();
            self.set(false);
        }
        self.begin();
    }

    /// True where there is something left for its user.
    fn charge(&mut self) -> bool {
        let now_ns = clock::thread_cpu_ns();
        let used_ns = now_ns.saturating_sub(std::mem::replace(&mut self.charged_ns, now_ns));
        let used_ns = if self.is_above { used_ns } else { 0 };
        // Nobody pays for requests of the daemon itself.
        let asked_ns = at_work::take_asked_ns();
        let asked_ns = if self.payer.is_some() { asked_ns } else { 0 };
        self.client_priority.charge(self.payer, used_ns + asked_ns)
    }

    fn set(&mut self, above: bool) {
        let wanted = if above { Attributes::fifo(priority::CLIENT) } else { Attributes::other(0) };
        if above != self.is_above && sched::set(0, &wanted).is_ok() {
            self.is_above = above;
        }
    }
}

impl Drop for ThreadPriority {
    fn drop(&mut self) {
        at_work::leave();
        // Also of a client that takes no answer.
        self.charge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_share_is_read_without_waiting() {
        let client_priority = ClientPriority::new(true);
        client_priority.charge(None, 20_000_000);
        let used = client_priority.used();
        assert!(used > 0.0 && used <= 0.02, "{used}");
        let _held = client_priority.allowance.as_ref().unwrap().lock().unwrap();
        assert_eq!(client_priority.used(), used);
        assert_eq!(ClientPriority::new(false).used(), 0.0);
    }

    #[test]
    fn client_that_hangs_up_has_paid() {
        let (paid, payer) = (ClientPriority::new(true), Some(UserId(7)));
        let (client_priority, charged_ns) = (paid.clone(), clock::thread_cpu_ns());
        let (has_line, is_above) = (true, false);
        let priority = ThreadPriority { client_priority, payer, has_line, is_above, charged_ns };
        at_work::asked(50_000_000);
        drop(priority);
        assert!(!paid.charge(payer, 0));
    }

    #[test]
    fn requests_wait_only_for_gangs_that_are_raised() {
        let user = UserId(7);
        let client_priority = ClientPriority::new(true);
        client_priority.charge(Some(user), 50_000_000);
        assert_eq!(client_priority.begins_in_ns(user), 0, "there are no gangs");
        client_priority.gangs.follow(Some(Gap::NONE));
        assert!(client_priority.begins_in_ns(user) > 0 && !client_priority.gangs.leave_time());
        assert_eq!(client_priority.begins_in_ns(UserId(8)), 0, "he has used nothing");
        client_priority.gangs.follow(Some(Gap { period_ns: 1000, length_ns: 1000 }));
        assert!(client_priority.begins_in_ns(user) == 0 && client_priority.gangs.leave_time());
        client_priority.gangs.follow(None);
        assert!(client_priority.gangs.leave_time());
    }
}
