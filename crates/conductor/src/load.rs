//! How many threads outside all gangs want to run (L18). Threads of jobs that Linux alone schedules
//! are among them.
//!
//! The kernel says how many threads are runnable on the whole machine. Those of the jobs are
//! counted one by one and taken off. A thread that wakes for a moment is no load that needs slices
//! of its own: the gaps serve it. So counts are taken at the end of a gap, when short tasks are
//! done, and the least of the last few is the load.
//!
//! Of a job with many threads that is not measured, only a part is counted, and new threads may not
//! be known yet. Threads that may be the job's own are no reason to take others for load: within
//! the limits of what is known, the figure stays as it was. But such a job is no reason either to
//! keep the rest from its turns. Where every count of a second finds others, they are a load, of as
//! many threads as there are CPUs at most.
//!
//! Lists of the users whose threads these are come less often, at any moment, and from the kernel's
//! programs alone. Of each user, again, the least of the last few lists counts, as long as none of
//! these is old.

use std::collections::{BTreeMap, VecDeque};

use gang_schedule::UserId;
use gang_timetable::Runnable;

/// The counts that the least is taken of.
const RECENT: usize = 3;

/// As many of them as make a second.
const REMEMBERED: usize = 10;

/// A list says nothing any more after so long.
const LISTS_HOLD_NS: u64 = 5_000_000_000;

/// The load of the rest of the machine.
#[derive(Clone, Debug, Default)]
pub struct Load {
    last: VecDeque<u32>,
    threads: u32,
    /// Counts since one was missing.
    in_a_row: usize,
    /// The last lists: when (CLOCK_MONOTONIC), and how many threads were whose.
    lists: VecDeque<(u64, BTreeMap<UserId, u32>)>,
}

impl Load {
    /// Takes note of a count: all runnable threads, those of jobs, and those of the daemon itself.
    pub fn saw(&mut self, all: u32, of_jobs: Runnable, of_daemon: u32, machine: u32) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        let others = all.saturating_sub(of_jobs.threads + of_daemon);
        self.last.push_back(others);
        self.in_a_row += 1;
        let likely = self.least_of(RECENT);
        let certain = likely.saturating_sub(of_jobs.unseen);
        let lasting = self.least_of(REMEMBERED).min(machine);
        self.threads = self.threads.clamp(certain.max(lasting), likely);
    }

    /// The least of the last counts; 0 where there have been fewer.
    fn least_of(&self, counts: usize) -> u32 {
        let last = self.last.iter().rev().take(counts).copied();
        last.min().filter(|_| self.last.len() >= counts).unwrap_or(0)
    }

    /// More threads want to run than at the count before: one that came, or one that slept.
    pub fn rises(&self) -> bool {
        let mut counts = self.last.iter().rev();
        counts.next() > counts.next()
    }

    /// Runnable threads that stayed so.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Takes note of whose the threads are that want to run.
    pub fn saw_users(&mut self, now_ns: u64, threads: BTreeMap<UserId, u32>) {
        self.lists.push_back((now_ns, threads));
        if self.lists.len() > RECENT {
            self.lists.pop_front();
        }
    }

    /// Of how many of the threads it is known whose they are.
    pub fn of_users(&mut self, now_ns: u64) -> BTreeMap<UserId, u32> {
        self.lists.retain(|(at_ns, _)| at_ns + LISTS_HOLD_NS > now_ns);
        let Some((_, last)) = self.lists.back().filter(|_| self.lists.len() >= RECENT) else {
            return BTreeMap::new();
        };
        let least =
            |user| self.lists.iter().map(|(_, of)| of.get(user).copied().unwrap_or(0)).min();
        let seen = last.keys().filter_map(|user| Some((*user, least(user)?)));
        let seen: BTreeMap<UserId, u32> = seen.filter(|(_, count)| *count > 0).collect();
        let (all, mut left) = (seen.values().sum::<u32>(), self.threads);
        if all <= self.threads {
            return seen;
        }
        // There were more at those moments than stay: each has his part of those that stay.
        let part = |(user, count): (UserId, u32)| {
            let part = u64::from(count) * u64::from(self.threads);
            let part = (part.div_ceil(u64::from(all)) as u32).min(left);
            left -= part;
            (user, part)
        };
        seen.into_iter().map(part).collect()
    }

    /// There are as many counts as make a load. Before that, the load is 0 in any case.
    pub fn is_known(&self) -> bool {
        self.in_a_row >= RECENT
    }

    /// Nobody counted for a while.
    pub fn pauses(&mut self) {
        self.in_a_row = 0;
        self.lists.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exactly(threads: u32) -> Runnable {
        Runnable { threads, unseen: 0 }
    }

    #[test]
    fn momentary_wakings_are_no_load() {
        let mut load = Load::default();
        for all in [3, 4, 3, 4, 3] {
            load.saw(all, exactly(2), 1, 2);
        }
        assert_eq!(load.threads(), 0);
        for _ in 0..3 {
            load.saw(5, exactly(2), 1, 2);
        }
        assert_eq!(load.threads(), 2);
        load.saw(3, exactly(2), 1, 2);
        assert_eq!(load.threads(), 0);
    }

    #[test]
    fn it_is_known_after_as_many_counts_as_a_load_takes() {
        let mut load = Load::default();
        let after = |load: &mut Load, all| {
            load.saw(all, exactly(2), 1, 2);
            (load.threads(), load.is_known())
        };
        assert_eq!([5, 5, 5].map(|all| after(&mut load, all)), [(0, false), (0, false), (2, true)]);
        load.pauses();
        assert_eq!([3, 5, 5].map(|all| after(&mut load, all)), [(0, false), (0, false), (0, true)]);
    }

    #[test]
    fn threads_that_stay_are_charged_to_their_users() {
        let mut load = Load::default();
        let (one, other) = (UserId(1), UserId(2));
        (0..3).for_each(|_| load.saw(7, exactly(2), 1, 2));
        load.saw_users(1, [(one, 3), (other, 1)].into());
        load.saw_users(2, [(one, 2), (other, 3)].into());
        assert!(load.of_users(2).is_empty(), "two lists are too few");
        load.saw_users(3, [(one, 5), (other, 1), (UserId(3), 9)].into());
        assert_eq!(
            load.of_users(3),
            [(one, 2), (other, 1)].into(),
            "one is nobody's that is known"
        );
        // One thread stays, whoever has it.
        (0..3).for_each(|_| load.saw(4, exactly(2), 1, 2));
        assert_eq!(load.of_users(3).values().sum::<u32>(), 1);
        load.saw_users(3 + LISTS_HOLD_NS, [(one, 2)].into());
        assert!(load.of_users(3 + LISTS_HOLD_NS).is_empty(), "the others are too old");
    }

    #[test]
    fn old_lists_say_nothing_though_no_other_comes() {
        let mut load = Load::default();
        (0..3).for_each(|_| load.saw(7, exactly(2), 1, 2));
        (1..4).for_each(|at_ns| load.saw_users(at_ns, [(UserId(1), 4)].into()));
        assert_eq!(load.of_users(LISTS_HOLD_NS), [(UserId(1), 4)].into());
        assert!(load.of_users(1 + LISTS_HOLD_NS).is_empty());
    }

    #[test]
    fn other_runnable_threads_count_at_once() {
        let mut load = Load::default();
        let mut rises = |all, of_jobs| {
            load.saw(all, exactly(of_jobs), 1, 2);
            load.rises()
        };
        assert!(rises(5, 2), "nothing is known of before");
        assert!(!rises(5, 2) && !rises(6, 3) && !rises(4, 2));
        assert!(rises(5, 2) && !rises(5, 2));
    }

    #[test]
    fn threads_of_a_sampled_job_are_no_load() {
        let mut load = Load::default();
        let mut after = |all, threads, unseen| {
            (0..3).for_each(|_| load.saw(all, Runnable { threads, unseen }, 1, 2));
            load.threads()
        };
        assert_eq!(after(5, 2, 0), 2);
        // More than were counted of it, or others: nobody knows.
        assert_eq!(after(2_100, 2_000, 300), 2);
        assert_eq!(after(1_900, 2_000, 300), 0, "there is nobody else");
        assert_eq!(after(2_100, 2_000, 300), 0);
        assert_eq!(after(2_501, 2_000, 300), 200, "that many are others in any case");
        assert_eq!(after(2_051, 2_000, 300), 50, "and no more than these");
    }

    #[test]
    fn a_large_job_does_not_keep_others_from_their_turns() {
        let mut load = Load::default();
        let unsure = Runnable { threads: 300, unseen: 106 };
        (0..9).for_each(|_| load.saw(305, unsure, 1, 2));
        assert_eq!(load.threads(), 0, "it may be the job's own");
        load.saw(305, unsure, 1, 2);
        assert_eq!(
            load.threads(),
            2,
            "as many as there are CPUs: there have been others for a second"
        );
        load.saw(301, unsure, 1, 2);
        assert_eq!(load.threads(), 0, "a count without");
    }
}
