//! When gangs are read again because a thread was started.
//!
//! Problem: a thread that a gang starts in its slot gives way to everybody until a timetable has
//! it. A switcher notices that a thread was started ([`gang_engine::switcher::Lookout`]); only
//! reading every gang again shows which gang started it. A gang that starts threads all the time
//! would have all gangs read, and everything planned anew, in each of its slots. Reading takes
//! longer with more threads, and no other gang would be switched in time.
//!
//! Approach: the cost of a look at the gangs of an account, and of planning for them, decides when
//! these are looked at next. So the gangs of one account do not keep those of others from their
//! looks.
//!
//! Properties: looking takes a tenth of the time at most, whatever gangs do, and an account an equal
//! part of that. Each new thread is looked for in the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gang_schedule::UserId;

/// One part in so many of the time is spent on looking.
const PART: u64 = 10;

/// Threads that came since it was last looked. Times are CLOCK_MONOTONIC.
#[derive(Debug, Default)]
pub struct ThreadStarts {
    /// A thread was started somewhere.
    came: Arc<AtomicBool>,
    /// The accounts whose gangs were not looked at since one was.
    waiting: BTreeSet<UserId>,
    /// The gangs of an account are not looked at before this moment.
    from_ns: BTreeMap<UserId, u64>,
}

impl ThreadStarts {
    /// The flag that a switcher sets when it sees that a thread was started.
    pub fn sign(&self) -> Arc<AtomicBool> {
        self.came.clone()
    }

    /// How long until it is to be looked; nothing where no thread came.
    pub fn due_in_ns(&self, now_ns: u64) -> Option<u64> {
        if self.came.load(Ordering::Acquire) {
            return Some(0);
        }
        let rests_ns = |account| self.begins_ns(account).saturating_sub(now_ns);
        self.waiting.iter().map(rests_ns).min()
    }

    fn begins_ns(&self, account: &UserId) -> u64 {
        self.from_ns.get(account).copied().unwrap_or(0)
    }

    /// Threads that came are of no gang.
    pub fn forget(&mut self) {
        self.came.store(false, Ordering::Release);
        self.waiting.clear();
    }

    /// The accounts whose gangs are to be looked at now, where a thread came and it is time to: of
    /// `all` that have gangs.
    pub fn take(&mut self, now_ns: u64, all: impl Iterator<Item = UserId>) -> BTreeSet<UserId> {
        let all: BTreeSet<UserId> = all.collect();
        match self.came.swap(false, Ordering::AcqRel) {
            true => self.waiting = all,
            false => self.waiting.retain(|account| all.contains(account)),
        }
        self.from_ns.retain(|_, from_ns| now_ns < *from_ns);
        let rest = |account: &UserId| self.from_ns.contains_key(account);
        let (waiting, due) = std::mem::take(&mut self.waiting).into_iter().partition(rest);
        self.waiting = waiting;
        due
    }

    /// The gangs of an account were looked at, or new threads of theirs were planned for, at so
    /// much CPU time; so many accounts have gangs.
    pub fn looked(&mut self, account: UserId, accounts: usize, now_ns: u64, cost_ns: u64) {
        let rest_ns = PART * accounts.max(1) as u64 * cost_ns;
        let from_ns = self.from_ns.entry(account).or_default();
        *from_ns = (now_ns + rest_ns).max(*from_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: [UserId; 3] = [UserId(1000), UserId(1001), UserId(1002)];

    fn take(thread_starts: &mut ThreadStarts, now_ns: u64) -> Vec<UserId> {
        thread_starts.take(now_ns, ACCOUNTS.into_iter()).into_iter().collect()
    }

    #[test]
    fn looking_takes_a_tenth_of_the_time_at_most() {
        let mut thread_starts = ThreadStarts::default();
        let (mut now_ns, mut spent_ns) = (0, [0; 3]);
        while now_ns < 10_000_000 {
            // Threads come without end, and looking costs more and more.
            thread_starts.sign().store(true, Ordering::Release);
            for account in take(&mut thread_starts, now_ns) {
                let at = ACCOUNTS.iter().position(|it| *it == account).unwrap();
                let cost_ns = (100 + now_ns / 10_000) << at;
                now_ns += cost_ns;
                spent_ns[at] += cost_ns;
                thread_starts.looked(account, ACCOUNTS.len(), now_ns, cost_ns);
            }
            let due_in_ns = thread_starts.due_in_ns(now_ns);
            now_ns += due_in_ns.unwrap_or(50).max(1);
        }
        let most_ns = now_ns / (PART * 3);
        for spent_ns in spent_ns {
            assert!(spent_ns <= most_ns + 5_000, "{spent_ns} of {now_ns}");
            assert!(spent_ns * 2 > most_ns, "and it is looked: {spent_ns} of {now_ns}");
        }
    }

    #[test]
    fn account_waits_for_what_it_costs_itself() {
        let mut thread_starts = ThreadStarts::default();
        let [costly, cheap, _] = ACCOUNTS;
        thread_starts.sign().store(true, Ordering::Release);
        assert_eq!(take(&mut thread_starts, 0), ACCOUNTS);
        thread_starts.looked(costly, 3, 0, 1_000_000);
        thread_starts.looked(cheap, 3, 0, 10);
        thread_starts.sign().store(true, Ordering::Release);
        assert_eq!(take(&mut thread_starts, 300), ACCOUNTS[1..]);
        assert_eq!(thread_starts.due_in_ns(300), Some(30_000_000 - 300));
        assert_eq!(take(&mut thread_starts, 30_000_000), [costly]);
        assert_eq!(thread_starts.due_in_ns(30_000_000), None);
    }

    #[test]
    fn each_arrival_is_looked_for_once() {
        let mut thread_starts = ThreadStarts::default();
        let came = |thread_starts: &ThreadStarts| {
            thread_starts.sign().store(true, Ordering::Release);
        };
        assert_eq!(take(&mut thread_starts, 0), [], "nobody came");
        assert!(thread_starts.due_in_ns(0).is_none());
        came(&thread_starts);
        assert_eq!(take(&mut thread_starts, 0), ACCOUNTS);
        assert_eq!(take(&mut thread_starts, 0), []);
        for account in ACCOUNTS {
            thread_starts.looked(account, 1, 0, 7);
        }
        came(&thread_starts);
        assert_eq!(thread_starts.due_in_ns(30), Some(0));
        assert_eq!(take(&mut thread_starts, 30), []);
        assert_eq!(thread_starts.due_in_ns(30), Some(40));
        assert_eq!(take(&mut thread_starts, 69), []);
        assert_eq!(take(&mut thread_starts, 70), ACCOUNTS, "it is not forgotten meanwhile");
        // An account that has no gangs any more waits for nothing.
        came(&thread_starts);
        thread_starts.looked(ACCOUNTS[0], 1, 70, 7);
        assert_eq!(take(&mut thread_starts, 71), ACCOUNTS[1..]);
        assert!(thread_starts.take(200, [].into_iter()).is_empty());
        assert!(thread_starts.due_in_ns(200).is_none());
        came(&thread_starts);
        thread_starts.forget();
        assert_eq!(take(&mut thread_starts, 300), []);
    }
}
