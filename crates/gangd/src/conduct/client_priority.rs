//! Clients are served before the gangs, within bounds; and so is who looks where their threads are.
//!
//! Problem: while gangs have all CPUs, an ordinary thread of the daemon runs in gaps only. Who asks for
//! three things in a row, as a gang that arrives does, waits for three of them.
//!
//! Approach: threads that serve clients are real-time ones above the gangs, as long as all of them together
//! keep to an allowance. Beyond it they are ordinary threads, until it has grown again. What nobody waits for
//! with a gang, such as what views ask for, is done by ordinary threads at all times. Who looks where threads are
//! ([`crate::conduct::cpu_reader`]) has an allowance of its own.
//!
//! Properties: however much clients ask for, gangs lose no more than the allowance. What was used lengthens
//! the gaps, so that gangs and daemon together leave ordinary threads what the kernel keeps for them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use gang_linux::{
    clock,
    sched::{self, Attributes},
};
use gang_timetable::priority;

/// What all clients together, or who looks, may use of one CPU, as a share of the time; and at once, at most. A gang that
/// arrives takes 1.5 ms of it on a nested virtual machine, so that six may come in a second.
const SHARE: f64 = 0.01;
const AT_ONCE_NS: i64 = 10_000_000;

/// Over how long it is averaged what was used.
const MEMORY_NS: f64 = 1e9;

/// The allowance of all who share it.
#[derive(Debug)]
pub struct ClientPriority {
    allowance: Option<Mutex<Allowance>>,
    /// What was used of late, when that was asked for last: the bits of an `f64`.
    used: AtomicU64,
}

#[derive(Debug)]
struct Allowance {
    left_ns: i64,
    at_ns: u64,
    /// Share of the time that was used of late.
    used: f64,
}

impl Allowance {
    fn new(now_ns: u64) -> Allowance {
        Allowance { left_ns: AT_ONCE_NS, at_ns: now_ns, used: 0.0 }
    }

    /// Takes note of what was used; true where there is something left.
    fn charge(&mut self, now_ns: u64, used_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.at_ns) as f64;
        self.at_ns = self.at_ns.max(now_ns);
        let grown_ns = self.left_ns + (passed_ns * SHARE) as i64;
        self.left_ns = grown_ns.min(AT_ONCE_NS) - used_ns as i64;
        self.used *= (-passed_ns / MEMORY_NS).exp();
        self.used += used_ns as f64 / MEMORY_NS;
        self.left_ns > 0
    }
}

impl ClientPriority {
    /// None has precedence where threads are not `realtime`.
    pub fn new(realtime: bool) -> Arc<ClientPriority> {
        let allowance = realtime.then(|| Mutex::new(Allowance::new(clock::monotonic_ns())));
        Arc::new(ClientPriority { allowance, used: AtomicU64::new(0) })
    }

    fn charge(&self, used_ns: u64) -> bool {
        self.allowance.as_ref().is_some_and(|allowance| {
            let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
            allowance.charge(clock::monotonic_ns(), used_ns)
        })
    }

    /// The share of the time of one CPU that was used of late. Waits for nobody: who holds the lock may be an ordinary
    /// thread that the gangs keep from a CPU.
    pub fn used(&self) -> f64 {
        if let Some(Ok(mut allowance)) = self.allowance.as_ref().map(Mutex::try_lock) {
            allowance.charge(clock::monotonic_ns(), 0);
            self.used.store(allowance.used.to_bits(), Ordering::Relaxed);
        }
        f64::from_bits(self.used.load(Ordering::Relaxed))
    }
}

/// The priority of the calling thread, while this is there.
#[derive(Debug)]
pub struct ThreadPriority {
    client_priority: Arc<ClientPriority>,
    is_above: bool,
    /// CPU time up to which it was charged.
    charged_ns: u64,
}

impl ThreadPriority {
    /// Puts the calling thread above the gangs, where that is allowed.
    pub fn of(client_priority: &Arc<ClientPriority>) -> ThreadPriority {
        let client_priority = client_priority.clone();
        let mut priority =
            ThreadPriority { client_priority, is_above: false, charged_ns: clock::thread_cpu_ns() };
        priority.renew();
        priority
    }

    /// Charges the thread for what it used, and lets it have what it is due.
    pub fn renew(&mut self) {
        let now_ns = clock::thread_cpu_ns();
        let used_ns = now_ns.saturating_sub(std::mem::replace(&mut self.charged_ns, now_ns));
        let is_due = self.client_priority.charge(if self.is_above { used_ns } else { 0 });
        self.set(is_due);
    }

    /// Makes it an ordinary thread until it is settled again.
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

    const MS: u64 = 1_000_000;

    #[test]
    fn what_is_used_up_grows_again() {
        let mut allowance = Allowance::new(0);
        assert!(allowance.charge(0, 8 * MS));
        assert!(!allowance.charge(0, 8 * MS), "10 ms at once");
        assert!(!allowance.charge(500 * MS, 0), "half a second gives 5 ms");
        assert!(allowance.charge(1000 * MS, 0));
        // Not more than 10 ms are saved.
        assert!(!allowance.charge(3_600_000 * MS, 10 * MS));
    }

    #[test]
    fn what_was_used_is_told_without_waiting() {
        let client_priority = ClientPriority::new(true);
        client_priority.charge(20 * MS);
        let used = client_priority.used();
        assert!(used > 0.0 && used <= 0.02, "{used}");
        let _held = client_priority.allowance.as_ref().unwrap().lock().unwrap();
        assert_eq!(client_priority.used(), used);
        assert_eq!(ClientPriority::new(false).used(), 0.0);
    }

    #[test]
    fn gangs_lose_no_more_than_the_allowance() {
        let mut allowance = Allowance::new(0);
        let mut used_ns = 0;
        for ms in 0..10_000 {
            // Asks for ever.
            if allowance.charge(ms * MS, 0) {
                allowance.charge(ms * MS, MS / 10);
                used_ns += MS / 10;
            }
        }
        // What grew in the ten seconds, what was saved before, and a tenth of a millisecond that was begun.
        let allowed_ns = (10_000 * MS) as f64 * SHARE + (AT_ONCE_NS as u64 + MS / 10) as f64;
        assert!(used_ns as f64 <= allowed_ns, "{used_ns} of {allowed_ns}");
        assert!((allowance.used - SHARE).abs() < 0.002, "{}", allowance.used);
    }
}
