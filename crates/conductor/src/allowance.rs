//! How much of a CPU the daemon may take before the gangs, and on whose behalf.
//!
//! Problem: a client that asks while gangs have all CPUs would wait for a gap. The daemon can
//! answer at once, in the gangs' time, but not without a bound. And within one bound for all, a
//! client that asks much would leave nothing to the others.
//!
//! Approach: an allowance grows with time, up to a little that is saved. Each user who asked lately
//! has an equal part of its growth, and saves as large a part for himself. Time that is used is
//! taken off his part and off the whole: time of a thread that serves him before the gangs, and
//! time of the conductor for what he asks of it. A new user finds his part even where the whole is
//! used up. The whole is below 0 then, and the others are not before the gangs until it has grown
//! again.
//!
//! Properties: all together take no more than [`SHARE`] of one CPU, besides what was saved and the
//! parts that new users find: the n-th user of those who asked lately finds an n-th of
//! [`AT_ONCE_NS`]. A user who asks for the first time finds his part, however much others ask.

use std::collections::BTreeMap;

use crate::turns::Payer;

/// The share of one CPU that grows, and the most at once. A gang that arrives takes 1.5 ms on a
/// nested virtual machine, so that six may come in a second.
pub const SHARE: f64 = 0.01;
pub const AT_ONCE_NS: f64 = 10e6;

/// The whole saves more than one part, so that one who comes finds something.
const SAVED_NS: f64 = 2.0 * AT_ONCE_NS;

/// The time over which the use is averaged.
const MEMORY_NS: f64 = 1e9;

/// A user who has not asked for so long has no part.
const FORGOTTEN_NS: u64 = 10_000_000_000;

/// The allowance of all.
#[derive(Debug)]
pub struct Allowance {
    /// Less than a nanosecond counts: it may grow by no more from one request to the next.
    left_ns: f64,
    at_ns: u64,
    /// Share of the time that was used lately.
    used: f64,
    parts: BTreeMap<Payer, Part>,
}

/// The part of a user.
#[derive(Debug)]
struct Part {
    left_ns: f64,
    /// He has not used up yet what he found.
    is_newcomer: bool,
    /// When he last asked.
    at_ns: u64,
}

impl Allowance {
    /// `now_ns` is CLOCK_MONOTONIC here and below.
    pub fn new(now_ns: u64) -> Allowance {
        Allowance { left_ns: SAVED_NS, at_ns: now_ns, used: 0.0, parts: BTreeMap::new() }
    }

    /// Takes note of what was used; true where there is something left for that user.
    pub fn charge(&mut self, now_ns: u64, payer: Payer, used_ns: u64) -> bool {
        self.pass(now_ns);
        let used_ns = used_ns as f64;
        self.left_ns -= used_ns;
        self.used += used_ns / MEMORY_NS;
        let new = Part { left_ns: AT_ONCE_NS, is_newcomer: true, at_ns: now_ns };
        self.parts.entry(payer).or_insert(new);
        let parts = self.parts.len() as f64;
        let Some(part) = self.parts.get_mut(&payer) else { return false };
        part.left_ns = part.left_ns.min(AT_ONCE_NS / parts) - used_ns;
        part.at_ns = now_ns;
        part.is_newcomer &= part.left_ns > 0.0;
        part.is_newcomer || (part.left_ns > 0.0 && self.left_ns > 0.0)
    }

    /// How long until a user has something left of his part, if he uses nothing. Nobody waits for
    /// the use of others.
    pub fn due_in_ns(&mut self, now_ns: u64, payer: Payer) -> u64 {
        self.pass(now_ns);
        let parts = self.parts.len() as f64;
        match self.parts.get(&payer) {
            Some(part) if !part.is_newcomer && part.left_ns <= 0.0 => {
                (-part.left_ns * parts / SHARE).ceil() as u64 + 1
            }
            _ => 0,
        }
    }

    /// The share of one CPU that was used lately.
    pub fn used(&mut self, now_ns: u64) -> f64 {
        self.pass(now_ns);
        self.used
    }

    /// Everything grows.
    fn pass(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.at_ns) as f64;
        self.at_ns = self.at_ns.max(now_ns);
        self.used *= (-passed_ns / MEMORY_NS).exp();
        let grown_ns = passed_ns * SHARE;
        self.left_ns = (self.left_ns + grown_ns).min(SAVED_NS);
        self.parts.retain(|_, part| part.at_ns + FORGOTTEN_NS > now_ns || part.left_ns < 0.0);
        let parts = self.parts.len() as f64;
        for part in self.parts.values_mut() {
            part.left_ns = (part.left_ns + grown_ns / parts).min(AT_ONCE_NS / parts);
        }
    }
}

#[cfg(test)]
mod tests {
    use gang_schedule::UserId;

    use super::*;

    const MS: u64 = 1_000_000;
    const ONE: Payer = Some(UserId(1));
    const OTHER: Payer = Some(UserId(2));

    #[test]
    fn used_allowance_grows_again() {
        let mut allowance = Allowance::new(0);
        assert!(allowance.charge(0, ONE, 8 * MS));
        assert!(!allowance.charge(0, ONE, 8 * MS), "10 ms at once");
        assert!(!allowance.charge(500 * MS, ONE, 0), "half a second gives 5 ms");
        assert!(allowance.charge(1000 * MS, ONE, 0));
        // Not more than 10 ms are saved.
        assert!(!allowance.charge(3_600_000 * MS, ONE, 10 * MS));
    }

    /// A client that asks for ever, from one moment to another (ms); what it used.
    fn greedy(allowance: &mut Allowance, payer: Payer, from: u64, to: u64) -> u64 {
        let asks = (from..to).filter(|ms| {
            let may = allowance.charge(ms * MS, payer, 0);
            may.then(|| allowance.charge(ms * MS, payer, MS / 10)).is_some()
        });
        asks.count() as u64 * MS / 10
    }

    #[test]
    fn gangs_lose_no_more_than_the_allowance() {
        let mut allowance = Allowance::new(0);
        let used_ns = greedy(&mut allowance, ONE, 0, 10_000);
        // The allowance that grew in ten seconds, the one saved before, and a tenth of a
        // millisecond that was begun.
        let allowed_ns = (10_000 * MS) as f64 * SHARE + AT_ONCE_NS + (MS / 10) as f64;
        assert!(used_ns as f64 <= allowed_ns, "{used_ns} of {allowed_ns}");
        assert!((allowance.used - SHARE).abs() < 0.002, "{}", allowance.used);
    }

    #[test]
    fn many_users_have_no_more_together() {
        let mut allowance = Allowance::new(0);
        let mut used_ns = 0;
        for ms in 0..10_000 {
            for user in 0..50 {
                used_ns += greedy(&mut allowance, Some(UserId(user)), ms, ms + 1);
            }
        }
        let found_ns: f64 = (1..=50).map(|users| AT_ONCE_NS / f64::from(users)).sum();
        // Each has begun a tenth of a millisecond with less than that.
        let begun_ns = (50 * MS / 10) as f64;
        let allowed_ns = (10_000 * MS) as f64 * SHARE + found_ns.max(SAVED_NS) + begun_ns;
        assert!(used_ns as f64 <= allowed_ns, "{used_ns} of {allowed_ns}");
    }

    #[test]
    fn who_comes_finds_his_part_however_much_others_ask() {
        let mut allowance = Allowance::new(0);
        greedy(&mut allowance, ONE, 0, 60_000);
        assert!(!allowance.charge(60_000 * MS, ONE, MS));
        assert!(allowance.charge(60_000 * MS, OTHER, 3 * MS));
        assert!(!allowance.charge(60_000 * MS, OTHER, 3 * MS), "half of 10 ms");
        // From now on both have as much.
        let (one, other) = (60_001..70_000)
            .map(|ms| {
                let his = greedy(&mut allowance, OTHER, ms, ms + 1);
                (greedy(&mut allowance, ONE, ms, ms + 1), his)
            })
            .fold((0, 0), |(one, other), (of_one, of_other)| (one + of_one, other + of_other));
        assert!(one.abs_diff(other) < 3 * MS, "{one} and {other}");
    }

    #[test]
    fn who_waits_until_it_is_due_has_something_left() {
        let mut allowance = Allowance::new(0);
        assert_eq!(allowance.due_in_ns(0, ONE), 0, "a new user finds his part");
        assert!(allowance.charge(0, ONE, MS));
        assert_eq!(allowance.due_in_ns(0, ONE), 0);
        let mut now_ns = 0;
        for used_ms in [12, 30, 1] {
            for payer in [ONE, OTHER] {
                allowance.charge(now_ns, payer, used_ms * MS);
                let due_in_ns = allowance.due_in_ns(now_ns, payer);
                assert!(used_ms == 1 || due_in_ns > used_ms * MS, "{due_in_ns}");
                now_ns += due_in_ns;
                assert_eq!(allowance.due_in_ns(now_ns, payer), 0);
                let waits = Some(UserId(3));
                allowance.charge(now_ns, waits, 0);
                allowance.charge(now_ns, payer, 500 * MS);
                assert_eq!(allowance.due_in_ns(now_ns, waits), 0, "nobody waits for another");
                allowance = Allowance::new(now_ns);
            }
        }
    }

    #[test]
    fn each_who_comes_finds_his_part() {
        let mut allowance = Allowance::new(0);
        let mut takes_all = |user: u32, ms: u64| {
            let payer = Some(UserId(user));
            let mut used_ns = 0;
            while allowance.charge(ms * MS, payer, 0) {
                allowance.charge(ms * MS, payer, MS / 100);
                used_ns += MS / 100;
            }
            used_ns
        };
        for users in 1..=20 {
            let part_ns = AT_ONCE_NS as u64 / u64::from(users);
            let found_ns = takes_all(users, users.into());
            assert!(found_ns.abs_diff(part_ns) <= MS / 100, "user {users} found {found_ns}");
            // Those who came before go on asking.
            let others = (1..users).map(|user| takes_all(user, users.into())).sum::<u64>();
            assert!(users < 5 || others == 0, "the whole is used up");
        }
    }

    #[test]
    fn parts_grow_however_often_somebody_asks() {
        let mut allowance = Allowance::new(0);
        let last = Some(UserId(500));
        for user in 1..=500 {
            allowance.charge(0, Some(UserId(user)), MS);
        }
        let before_ns = allowance.parts[&last].left_ns;
        // Each time the whole grows by 50 ns, and a part by a tenth of a nanosecond.
        for time in 0..=400_000 {
            allowance.used(time * 5_000);
        }
        let grown_ns = allowance.parts[&last].left_ns - before_ns;
        assert!((grown_ns - 2e9 * SHARE / 500.0).abs() < 100.0, "{grown_ns}");
    }

    #[test]
    fn who_is_silent_leaves_his_part_to_the_others() {
        let mut allowance = Allowance::new(0);
        allowance.charge(0, OTHER, 0);
        let shared = greedy(&mut allowance, ONE, 0, 9_000);
        let alone = greedy(&mut allowance, ONE, 20_000, 29_000);
        assert!(alone > shared * 3 / 2, "{shared}, then {alone}");
    }
}
