//! Threads that serve clients run before the gangs, within an allowance.
//!
//! Problem: while gangs have all CPUs, an ordinary thread of the daemon runs in gaps only. A client
//! that asks for three things in a row, as a gang that arrives does, waits for three gaps.
//!
//! Approach: threads that serve clients are real-time ones above the gangs, as long as all of them
//! together, and those of each user, keep to an allowance ([`gang_conductor::allowance`]). Beyond
//! it they are ordinary threads, until it has grown again. Requests for which no gang waits, such
//! as those of views, are always served by ordinary threads. The reader of CPUs
//! ([`super::readers`]) has an allowance of its own.
//!
//! Properties: however much clients ask for, gangs lose no more than the allowance. The part of it
//! that was used lengthens the gaps. So gangs and daemon together leave ordinary threads what the
//! kernel keeps for them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use gang_conductor::{allowance::Allowance, turns::Payer};
use gang_linux::{
    clock,
    sched::{self, Attributes},
};
use gang_timetable::priority;

/// The allowance of all threads that share it.
#[derive(Debug)]
pub struct ClientPriority {
    allowance: Option<Mutex<Allowance>>,
    /// The share that was used lately, as last asked for: the bits of an `f64`.
    used: AtomicU64,
}

impl ClientPriority {
    /// No thread is lifted where threads are not `realtime`.
    pub fn new(realtime: bool) -> Arc<ClientPriority> {
        let allowance = realtime.then(|| Mutex::new(Allowance::new(clock::monotonic_ns())));
        Arc::new(ClientPriority { allowance, used: AtomicU64::new(0) })
    }

    fn charge(&self, payer: Payer, used_ns: u64) -> bool {
        self.allowance.as_ref().is_some_and(|allowance| {
            let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
            allowance.charge(clock::monotonic_ns(), payer, used_ns)
        })
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
        let mut priority = ThreadPriority { client_priority, payer, is_above: false, charged_ns };
        priority.renew();
        priority
    }

    /// Charges the thread for the time it used, and lifts it above the gangs where something is
    /// left.
    pub fn renew(&mut self) {
        let now_ns = clock::thread_cpu_ns();
        let used_ns = now_ns.saturating_sub(std::mem::replace(&mut self.charged_ns, now_ns));
        let used_ns = if self.is_above { used_ns } else { 0 };
        let is_due = self.client_priority.charge(self.payer, used_ns);
        self.set(is_due);
    }

    /// Makes it an ordinary thread until its priority is renewed.
    pub fn lower(&mut self) {
        self.renew();
        self.set(false);
    }

    fn set(&mut self, above: bool) {
        let wanted = if above { Attributes::fifo(priority::CLIENT) } else { Attributes::other(0) };
        if above != self.is_above && sched::set(0, &wanted).is_ok() {
            self.is_above = above;
        }
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
}
