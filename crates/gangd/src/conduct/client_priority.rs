//! Threads that serve clients run before the gangs, within an allowance.
//!
//! Problem: while gangs have all CPUs, an ordinary thread of the daemon runs in gaps only. A client
//! that asks for three things in a row, as a gang that arrives does, waits for three gaps.
//!
//! Approach: threads that serve clients are real-time ones above the gangs, as long as all of them
//! together keep to an allowance. Beyond the allowance they are ordinary threads, until it has
//! grown again. Requests for which no gang waits, such as those of views, are always served by
//! ordinary threads. The reader of CPUs ([`super::cpu_reader`]) has an allowance of its own.
//!
//! Properties: however much clients ask for, gangs lose no more than the allowance. The part of it
//! that was used lengthens the gaps. So gangs and daemon together leave ordinary threads what the
//! kernel keeps for them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use gang_linux::{
    clock,
    sched::{self, Attributes},
};
use gang_timetable::priority;

/// The share of one CPU that all clients together may use, or the reader of CPUs, and the most at
/// once. A gang that arrives takes 1.5 ms on a nested virtual machine, so that six may come in a
/// second.
const SHARE: f64 = 0.01;
const AT_ONCE_NS: i64 = 10_000_000;

/// The time over which the use is averaged.
const MEMORY_NS: f64 = 1e9;

/// The allowance of all threads that share it.
#[derive(Debug)]
pub struct ClientPriority {
    allowance: Option<Mutex<Allowance>>,
    /// The share that was used lately, as last asked for: the bits of an `f64`.
    used: AtomicU64,
}

#[derive(Debug)]
struct Allowance {
    left_ns: i64,
    at_ns: u64,
    /// Share of the time that was used lately.
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
    /// No thread is lifted where threads are not `realtime`.
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

    /// The share of one CPU that was used lately. Never waits: the holder of the lock may be an
    /// ordinary thread that the gangs keep from a CPU.
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

    /// Charges the thread for the time it used, and lifts it above the gangs where something is
    /// left.
    pub fn renew(&mut self) {
        let now_ns = clock::thread_cpu_ns();
        let used_ns = now_ns.saturating_sub(std::mem::replace(&mut self.charged_ns, now_ns));
        let is_due = self.client_priority.charge(if self.is_above { used_ns } else { 0 });
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

    const MS: u64 = 1_000_000;

    #[test]
    fn used_allowance_grows_again() {
        let mut allowance = Allowance::new(0);
        assert!(allowance.charge(0, 8 * MS));
        assert!(!allowance.charge(0, 8 * MS), "10 ms at once");
        assert!(!allowance.charge(500 * MS, 0), "half a second gives 5 ms");
        assert!(allowance.charge(1000 * MS, 0));
        // Not more than 10 ms are saved.
        assert!(!allowance.charge(3_600_000 * MS, 10 * MS));
    }

    #[test]
    fn used_share_is_read_without_waiting() {
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
            // The client asks for ever.
            if allowance.charge(ms * MS, 0) {
                allowance.charge(ms * MS, MS / 10);
                used_ns += MS / 10;
            }
        }
        // The allowance that grew in ten seconds, the one saved before, and a tenth of a
        // millisecond that was begun.
        let allowed_ns = (10_000 * MS) as f64 * SHARE + (AT_ONCE_NS as u64 + MS / 10) as f64;
        assert!(used_ns as f64 <= allowed_ns, "{used_ns} of {allowed_ns}");
        assert!((allowance.used - SHARE).abs() < 0.002, "{}", allowance.used);
    }
}
