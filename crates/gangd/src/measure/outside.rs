//! The owners of threads that want to run outside of gangs.
//!
//! Problem: a list of the threads that want to run has as many as the machine has, tens of
//! thousands of one user. The conductor has microseconds.
//!
//! Approach: the thread that has the list asks the conductor which groups and threads are gangs',
//! and sends how many of the others are on which account.

use std::collections::{BTreeMap, BTreeSet};

use gang_bpf::RunnableThread;
use gang_conductor::Accounts;
use gang_schedule::UserId;

/// The gangs, as a list of threads shows them.
#[derive(Debug, Default)]
pub struct Gangs {
    /// The groups of those that have one.
    pub groups: Vec<u64>,
    /// The threads of the others.
    pub tids: Vec<u32>,
}

impl Gangs {
    /// How many of the threads that are no gang's are on which account.
    pub fn others(self, threads: &[RunnableThread], accounts: &Accounts) -> BTreeMap<UserId, u32> {
        let groups: BTreeSet<u64> = self.groups.into_iter().collect();
        let tids: BTreeSet<u32> = self.tids.into_iter().collect();
        let mut others = BTreeMap::new();
        for thread in threads {
            if !groups.contains(&thread.group) && !tids.contains(&thread.tid) {
                *others.entry(accounts.of(thread.uid)).or_default() += 1;
            }
        }
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_gangs_are_on_no_account() {
        let thread = |group, tid, uid| RunnableThread { group, tid, uid };
        let threads = [
            thread(1, 10, 1000),
            thread(2, 11, 1000),
            thread(3, 12, 1000),
            thread(3, 13, 100_000),
            thread(3, 14, 1001),
        ];
        let gangs = Gangs { groups: vec![2, 1], tids: vec![14, 2] };
        let accounts = Accounts::new(vec![], [(100_000..=165_535, 1000)]);
        assert_eq!(gangs.others(&threads, &accounts), [(UserId(1000), 2)].into());
        assert_eq!(Gangs::default().others(&threads, &accounts).values().sum::<u32>(), 5);
    }
}
