//! How a program stands, from look to look at its ports: it goes on, has ended, is deadlocked, or
//! has been stalled for long.
//!
//! Problem: a process that polls for messages may do something else next, and nobody sees that it
//! will not. Ports may be of other hosts, or not be opened yet, and a process that has died is
//! about to be missed by those that wait for it. A false alarm is worse than none.
//!
//! Approach: a deadlock is what [`Global`] finds of ports whose threads wait without a timeout.
//! All that is not known counts as one process more, which computes: ports that are waited for and
//! not seen, and outsiders, where somebody waits for anybody. Processes that have died count so,
//! too, until their peers have missed them. With processes that poll taken for such that wait, the
//! same finds a program that is *stalled*, once that has held for [`STALLED_NS`].
//!
//! Properties: a program with outsiders is not terminated. One in which a port that is not closed
//! neither waits nor polls, or has something to take, is not terminated. A
//! deadlock held at both looks and in between.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Activity, AtFlush, Global, Rank, Verdict};

/// After such a time without a message a program whose processes all wait or poll is stalled.
pub const STALLED_NS: u64 = 10_000_000_000;

/// All that is not seen.
const UNSEEN: Rank = Rank(u32::MAX);

/// The activity of a port's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Computes,
    Polls,
    /// One thread waits without a timeout, and has looked at all that came.
    Waits,
    Closed,
    /// Its process has died.
    Gone,
}

/// A port at a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub port: u64,
    pub doing: Doing,
    /// The numbers of ports that it waits for; none: any.
    pub awaited: Option<BTreeSet<u64>>,
    pub sent: u64,
    pub taken: u64,
    /// Grows with all that its process does: see [`AtFlush::turn`].
    pub turn: u64,
    /// Its host holds something that it has not taken.
    pub has_inbound: bool,
}

/// Ports that wait, and for which ones: for any, where there are none.
pub type Waits = BTreeMap<u64, BTreeSet<u64>>;

/// The state of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stands {
    #[default]
    Running,
    Terminated,
    /// Since when, as far as that was seen.
    Deadlocked(u64, Waits),
    Stalled(u64, Waits),
}

/// The looks at a program so far.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    waiting: Global,
    polling: Global,
    deadlocked_ns: Option<u64>,
    stalled_ns: Option<u64>,
    /// The ports at the last look, and what came of it.
    last: (Vec<Seen>, Stands),
}

impl Standing {
    /// Takes note of all ports at a look. Nothing was under way where `is_settled`; processes that
    /// have no port might open one where `has_outsiders`.
    ///
    /// Where no port of a program that stands has sent or taken anything, and each waits as before,
    /// the program stands yet, also at a look that is not settled.
    pub fn looked(
        &mut self,
        now_ns: u64,
        is_settled: bool,
        has_outsiders: bool,
        ports: &[Seen],
    ) -> Stands {
        if !is_settled && self.last.0 == ports && self.last.1 != Stands::Running {
            return self.last.1.clone();
        }
        let stands = self.judged(now_ns, is_settled, has_outsiders, ports);
        self.last = (ports.to_vec(), stands.clone());
        stands
    }

    fn judged(
        &mut self,
        now_ns: u64,
        is_settled: bool,
        has_outsiders: bool,
        ports: &[Seen],
    ) -> Stands {
        let deadlock = verdict(&mut self.waiting, is_settled, has_outsiders, ports, false);
        let stall = verdict(&mut self.polling, is_settled, has_outsiders, ports, true);
        let since = |of: &mut Option<u64>, verdict: &Verdict| match verdict {
            Verdict::Deadlocked(_) => Some(*of.get_or_insert(now_ns)),
            Verdict::GoesOn | Verdict::Ended => of.take().and(None),
        };
        let deadlocked_ns = since(&mut self.deadlocked_ns, &deadlock);
        let stalled_ns = since(&mut self.stalled_ns, &stall);
        let named = |of: BTreeMap<Rank, BTreeSet<Rank>>| {
            let number = |rank: &Rank| ports.get(rank.0 as usize).map(|seen| seen.port);
            let all = of.iter().filter_map(|(rank, whom)| {
                Some((number(rank)?, whom.iter().filter_map(number).collect()))
            });
            all.collect()
        };
        match (deadlock, deadlocked_ns, stall, stalled_ns) {
            // An outsider may open a port yet.
            (Verdict::Ended, ..) if !has_outsiders => Stands::Terminated,
            (Verdict::Deadlocked(waits), Some(since_ns), ..) => {
                Stands::Deadlocked(since_ns, named(waits))
            }
            (_, _, Verdict::Deadlocked(waits), Some(since_ns))
                if now_ns.saturating_sub(since_ns) >= STALLED_NS =>
            {
                Stands::Stalled(since_ns, named(waits))
            }
            _ => Stands::Running,
        }
    }
}

fn verdict(
    global: &mut Global,
    is_settled: bool,
    has_outsiders: bool,
    ports: &[Seen],
    polls_wait: bool,
) -> Verdict {
    if !is_settled {
        return global.flushed(BTreeMap::new());
    }
    let places: BTreeMap<u64, Rank> =
        (0..).zip(ports).map(|(at, seen)| (seen.port, Rank(at))).collect();
    let is_over = |seen: &Seen| matches!(seen.doing, Doing::Closed | Doing::Gone);
    let are_over = ports.iter().all(is_over);
    let mut has_unseen = false;
    let mut activity = |seen: &Seen| match seen.doing {
        Doing::Closed => Activity::Done,
        Doing::Gone if are_over => Activity::Done,
        Doing::Waits | Doing::Polls
            if !seen.has_inbound && (polls_wait || seen.doing == Doing::Waits) =>
        {
            let whom = seen.awaited.iter().flatten();
            let whom: BTreeSet<Rank> =
                whom.map(|port| places.get(port).copied().unwrap_or(UNSEEN)).collect();
            has_unseen |= whom.contains(&UNSEEN) || (whom.is_empty() && has_outsiders);
            Activity::Waits(whom)
        }
        Doing::Gone | Doing::Computes | Doing::Waits | Doing::Polls => Activity::Computes,
    };
    let of_port = |(at, seen): (u32, &Seen)| {
        let Seen { sent, taken, turn, .. } = *seen;
        let ready = BTreeSet::new();
        (Rank(at), AtFlush { activity: activity(seen), sent, taken, turn, ready })
    };
    let mut all: BTreeMap<Rank, AtFlush> = (0..).zip(ports).map(of_port).collect();
    if has_unseen {
        let (activity, ready) = (Activity::Computes, BTreeSet::new());
        all.insert(UNSEEN, AtFlush { activity, sent: 0, taken: 0, turn: 0, ready });
    }
    global.flushed(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(port: u64, doing: Doing, awaited: &[u64]) -> Seen {
        let awaited = (!awaited.is_empty()).then(|| awaited.iter().copied().collect());
        Seen { port, doing, awaited, sent: 1, taken: 1, turn: 1, has_inbound: false }
    }

    fn ring(doing: Doing) -> Vec<Seen> {
        (0..4).map(|at| seen(10 + at, doing, &[10 + (at + 1) % 4])).collect()
    }

    /// Of looks at the same ports.
    fn last(ports: &[Seen], has_outsiders: bool, looks: u64) -> Stands {
        let mut standing = Standing::default();
        let of = |at| standing.looked(at * 1_000_000_000, true, has_outsiders, ports);
        (1..=looks).map(of).last().unwrap()
    }

    #[test]
    fn ring_is_deadlocked_at_the_second_look() {
        assert_eq!(last(&ring(Doing::Waits), false, 1), Stands::Running);
        let Stands::Deadlocked(since_ns, waits) = last(&ring(Doing::Waits), true, 5) else {
            panic!("four wait for each other by name");
        };
        assert_eq!(since_ns, 2_000_000_000);
        assert_eq!(waits, (10..14).map(|at| (at, [10 + (at - 9) % 4].into())).collect());
    }

    #[test]
    fn ring_that_polls_is_stalled_after_long() {
        assert_eq!(last(&ring(Doing::Polls), false, 11), Stands::Running);
        assert!(matches!(last(&ring(Doing::Polls), false, 12), Stands::Stalled(2_000_000_000, _)));
        let mut mixed = ring(Doing::Waits);
        mixed[2].doing = Doing::Polls;
        assert!(matches!(last(&mixed, false, 12), Stands::Stalled(..)));
        mixed[2].doing = Doing::Computes;
        assert_eq!(last(&mixed, false, 100), Stands::Running);
    }

    #[test]
    fn message_or_move_between_two_looks_is_no_deadlock() {
        fn add_turn(of: &mut Seen) {
            of.turn += 2;
        }
        fn add_taken(of: &mut Seen) {
            of.taken += 1;
        }
        fn add_sent(of: &mut Seen) {
            of.sent += 1;
        }
        let mut standing = Standing::default();
        let mut ports = ring(Doing::Waits);
        for change in [add_turn, add_taken, add_sent] {
            change(&mut ports[1]);
            assert_eq!(standing.looked(1, true, false, &ports), Stands::Running);
        }
        assert_eq!(standing.looked(2, false, false, &ports), Stands::Running, "under way");
        assert_eq!(standing.looked(3, true, false, &ports), Stands::Running);
        assert!(matches!(standing.looked(4, true, false, &ports), Stands::Deadlocked(4, _)));
        assert!(matches!(standing.looked(5, false, false, &ports), Stands::Deadlocked(4, _)));
        add_sent(&mut ports[2]);
        assert_eq!(standing.looked(5, false, false, &ports), Stands::Running, "it goes on");
        for _ in 0..2 {
            standing.looked(5, true, false, &ports);
        }
        assert!(matches!(standing.looked(5, true, false, &ports), Stands::Deadlocked(5, _)));
        ports[3].has_inbound = true;
        assert_eq!(standing.looked(5, true, false, &ports), Stands::Running);
        assert_eq!(standing.looked(6, true, false, &ports), Stands::Running);
    }

    #[test]
    fn whoever_is_not_seen_may_send() {
        let two =
            |awaited: &[u64]| vec![seen(1, Doing::Waits, &[2]), seen(2, Doing::Waits, awaited)];
        assert_eq!(last(&two(&[7]), false, 5), Stands::Running, "of another host");
        assert!(matches!(last(&two(&[]), false, 5), Stands::Deadlocked(..)));
        assert_eq!(last(&two(&[]), true, 5), Stands::Running, "an outsider may open a port");
        assert!(matches!(last(&two(&[1]), true, 5), Stands::Deadlocked(..)));
    }

    #[test]
    fn dead_process_is_missed_first() {
        let mut ports = vec![seen(1, Doing::Waits, &[2]), seen(2, Doing::Gone, &[])];
        assert_eq!(last(&ports, false, 5), Stands::Running);
        ports[1].doing = Doing::Closed;
        assert!(matches!(last(&ports, false, 5), Stands::Deadlocked(..)), "it sends no more");
        ports[0].doing = Doing::Gone;
        assert_eq!(last(&ports, false, 5), Stands::Terminated);
        assert_eq!(last(&ports, true, 5), Stands::Running);
        assert_eq!(last(&[], false, 5), Stands::Running);
    }
}
