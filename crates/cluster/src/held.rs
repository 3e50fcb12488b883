//! The jobs that clients of this host have registered, and started nowhere yet.
//!
//! Problem. A job of the registry is removed once no host has a process of it. One that was just
//! registered has none.
//!
//! Approach. The host of the client that registered a job holds it, as long as the client is there:
//! for a while, or until a process of it has come somewhere. One whose ranks a launcher starts is
//! held longer, since a launcher may be slow.
//!
//! Properties: a job that has lapsed is known for ten minutes, so that its client hears why it is
//! over; an account holds [`JOBS_MAX`] jobs at most.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{JobId, UserId};

/// Jobs that an account may have registered and not started, at a time.
pub const JOBS_MAX: usize = 64;

/// Jobs that have lapsed are known for so long, while their clients are there.
const KNOWN_NS: u64 = 600_000_000_000;

/// A job that a client of this host has registered.
#[derive(Clone, Copy, Debug)]
struct HeldJob {
    account: UserId,
    /// Its number, once the registry has given it one.
    job: Option<JobId>,
    /// When it was registered (CLOCK_MONOTONIC).
    since_ns: u64,
    /// Its ranks come when a launcher starts them.
    awaits_ranks: bool,
    /// A process of it has come on another host.
    has_started: bool,
}

/// An account holds as many jobs as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// All of them, by their nonces. Moments are those of CLOCK_MONOTONIC, in nanoseconds.
#[derive(Debug, Default)]
pub struct Held {
    /// A job is held for so long without a process.
    lapses_after_ns: u64,
    jobs: BTreeMap<String, HeldJob>,
}

impl Held {
    pub fn new(lapses_after_ns: u64) -> Held {
        Held { lapses_after_ns, jobs: BTreeMap::new() }
    }

    fn holds(&self, held: &HeldJob, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(held.since_ns);
        held.has_started || held.awaits_ranks || age_ns < self.lapses_after_ns
    }

    /// A client is about to register a job. Administrators hold any number.
    pub fn add(
        &mut self,
        nonce: String,
        account: UserId,
        awaits_ranks: bool,
        is_administrator: bool,
        now_ns: u64,
    ) -> Result<(), TooMany> {
        let is_his = |held: &&HeldJob| held.account == account && self.holds(held, now_ns);
        if !is_administrator && self.jobs.values().filter(is_his).count() >= JOBS_MAX {
            return Err(TooMany);
        }
        let (job, since_ns, has_started) = (None, now_ns, false);
        self.jobs.insert(nonce, HeldJob { account, job, since_ns, awaits_ranks, has_started });
        Ok(())
    }

    /// The registry has given a job its number. Its time begins now: the registry may have been
    /// slow.
    pub fn is_registered(&mut self, nonce: &str, job: JobId, now_ns: u64) {
        if let Some(held) = self.jobs.get_mut(nonce) {
            (held.job, held.since_ns) = (Some(job), now_ns);
        }
    }

    /// The job turned out to be there already, under another nonce: that one is held, too.
    pub fn is_also(&mut self, nonce: &str, other: &str) {
        if let Some(&held) = self.jobs.get(nonce) {
            self.jobs.entry(other.to_owned()).or_insert(held);
        }
    }

    /// Its client has gone, or a process of it has come here.
    pub fn remove(&mut self, nonce: &str) {
        self.jobs.remove(nonce);
    }

    /// Whether there is a job of which no process has come anywhere.
    pub fn has_unstarted(&self) -> bool {
        self.jobs.values().any(|held| !held.has_started)
    }

    /// A process of a job has come on another host.
    pub fn has_started(&mut self, nonce: &str) {
        if let Some(held) = self.jobs.get_mut(nonce) {
            held.has_started = true;
        }
    }

    /// Whether a client holds a job.
    pub fn is_held(&self, nonce: &str, now_ns: u64) -> bool {
        self.jobs.get(nonce).is_some_and(|held| self.holds(held, now_ns))
    }

    /// The nonces of the jobs that clients hold. Those that lapsed long ago are forgotten.
    pub fn nonces(&mut self, now_ns: u64) -> BTreeSet<String> {
        let known_ns = KNOWN_NS.max(self.lapses_after_ns);
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.retain(|_, held| {
            self.holds(held, now_ns) || now_ns.saturating_sub(held.since_ns) < known_ns
        });
        self.jobs = jobs;
        let held = self.jobs.iter().filter(|(_, held)| self.holds(held, now_ns));
        held.map(|(nonce, _)| nonce.clone()).collect()
    }

    /// Whether a job may lapse soon: processes of it may have come elsewhere.
    pub fn may_lapse(&self, now_ns: u64) -> bool {
        let may =
            |held: &HeldJob| !held.has_started && !held.awaits_ranks && self.holds(held, now_ns);
        self.jobs.values().any(|held| held.job.is_some() && may(held))
    }

    /// Whether a job, of an account if one is given, had no process within its time, and its client
    /// is there still.
    pub fn has_lapsed(&self, job: JobId, account: Option<UserId>, now_ns: u64) -> bool {
        let is_his = |held: &HeldJob| account.is_none_or(|account| held.account == account);
        let is_it = |held: &&HeldJob| held.job == Some(job) && is_his(held);
        self.jobs.values().filter(is_it).any(|held| !self.holds(held, now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const ACCOUNT: UserId = UserId(1000);

    #[test]
    fn registration_without_a_process_lapses() {
        let (job, since) = (JobId(7), 100 * S);
        let mut held = Held::new(10 * S);
        for (nonce, awaits_ranks) in [("plain", false), ("ranks", true), ("there", false)] {
            held.add(nonce.to_owned(), ACCOUNT, awaits_ranks, false, since - 50 * S).unwrap();
        }
        held.is_registered("plain", job, since);
        held.has_started("there");
        assert!(held.has_unstarted());
        let [soon, later] = [since + 9 * S, since + 11 * S];
        assert_eq!([held.nonces(soon).len(), held.nonces(later).len()], [3, 2]);
        assert_eq!([soon, later].map(|now| held.is_held("plain", now)), [true, false]);
        let lapsed = |held: &Held, account, now| held.has_lapsed(job, account, now);
        assert_eq!([soon, later].map(|now| lapsed(&held, Some(ACCOUNT), now)), [false, true]);
        assert!(!lapsed(&held, Some(UserId(7)), later), "another's");
        assert!(lapsed(&held, None, later), "to an administrator");
        assert_eq!([soon, later].map(|now| held.may_lapse(now)), [true, false]);
        let at_last = since + 3_600 * S;
        assert_eq!(held.nonces(at_last).len(), 2);
        assert!(!lapsed(&held, None, at_last), "forgotten");
    }

    #[test]
    fn nobody_holds_any_number_of_jobs() {
        let mut held = Held::new(10 * S);
        let nonce = |number: usize| format!("nonce {number}");
        for number in 0..JOBS_MAX {
            held.add(nonce(number), ACCOUNT, false, false, S).unwrap();
        }
        let one_more = |held: &mut Held, account, is_administrator, now_ns| {
            held.add(nonce(JOBS_MAX), account, false, is_administrator, now_ns)
        };
        assert_eq!(one_more(&mut held, ACCOUNT, false, S), Err(TooMany));
        assert_eq!(one_more(&mut held, UserId(7), false, S), Ok(()), "another account");
        assert_eq!(one_more(&mut held, ACCOUNT, true, S), Ok(()), "an administrator");
        assert_eq!(one_more(&mut held, ACCOUNT, false, 12 * S), Ok(()), "they have lapsed");
        held.remove(&nonce(0));
        assert!(!held.is_held(&nonce(0), S));
        held.is_also(&nonce(1), "other");
        assert!(held.is_held("other", S));
    }
}
