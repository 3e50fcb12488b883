//! The state of a whole program, by two flushes in a row: it goes on, it has ended, or some of its
//! processes wait for each other for ever.
//!
//! Problem: no process sees the others. One that waits for a message cannot tell a sender that is
//! slow from one that waits as well, and its own counters say nothing of messages on their way.
//!
//! Approach: at a flush nothing is on its way. Each process is then asked what it does, one
//! after the other, so that some may have gone on meanwhile: what waited has taken a message, or
//! what computed has sent one. Where the counters of all are the same at the next flush, nobody
//! has. So what all did at the first flush held for all at the same moment.
//!
//! A process is *stuck* if it waits, no message that it waits for is there, and whoever might send
//! one is stuck or done. That is the largest set for which it is true: from all that wait, those
//! are taken out that somebody else might wake, until none is left to take out. A process that
//! waits for any of several is woken by one of them.
//!
//! Properties: a process that is said to be stuck never goes on by a message of the program. A
//! program of which some process computes is not done.

use std::collections::{BTreeMap, BTreeSet};

use crate::Rank;

/// The activity of a process at a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    Computes,
    /// It waits for a message of any of these; of anybody, where there are none.
    Waits(BTreeSet<Rank>),
    /// It sends and takes nothing any more.
    Done,
}

/// A process at a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtFlush {
    pub activity: Activity,
    /// Messages since it began.
    pub sent: u64,
    pub taken: u64,
    /// Times that it has begun or ended to wait: between two flushes with the same number it was in
    /// one and the same wait, or in none.
    pub turn: u64,
    /// From whom there are messages that it has not taken.
    pub ready: BTreeSet<Rank>,
}

/// The state of all that two flushes in a row show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As far as is known.
    GoesOn,
    /// All are done, and no message is left.
    Ended,
    /// These wait for each other, and for whom each does: for anybody, where there are none.
    Deadlocked(BTreeMap<Rank, BTreeSet<Rank>>),
}

/// The states of a program, flush by flush.
#[derive(Clone, Debug, Default)]
pub struct Global {
    last: BTreeMap<Rank, AtFlush>,
}

impl Global {
    /// Takes note of all processes of the program at a flush.
    pub fn flushed(&mut self, now: BTreeMap<Rank, AtFlush>) -> Verdict {
        let before = std::mem::replace(&mut self.last, now);
        let now = &self.last;
        let stands = |(rank, of): (&Rank, &AtFlush)| before.get(rank) == Some(of);
        if now.is_empty() || before.len() != now.len() || !now.iter().all(stands) {
            return Verdict::GoesOn;
        }
        let is_done = |of: &AtFlush| of.activity == Activity::Done && of.ready.is_empty();
        if now.values().all(is_done) {
            return Verdict::Ended;
        }
        let stuck = stuck(now);
        if stuck.is_empty() { Verdict::GoesOn } else { Verdict::Deadlocked(stuck) }
    }
}

/// Those that nobody can wake, and for whom they wait. Each wakes those that wait for it at most
/// once, so that the time grows with the waits alone.
fn stuck(all: &BTreeMap<Rank, AtFlush>) -> BTreeMap<Rank, BTreeSet<Rank>> {
    let mut stuck = BTreeMap::new();
    let mut awake = Vec::new();
    for (&rank, of) in all {
        match &of.activity {
            Activity::Waits(whom) if !has_message(of, whom) => {
                stuck.insert(rank, whom.clone());
            }
            Activity::Waits(_) | Activity::Computes => awake.push(rank),
            Activity::Done => {}
        }
    }
    let mut waiters: BTreeMap<Rank, Vec<Rank>> = BTreeMap::new();
    for (&rank, whom) in &stuck {
        whom.iter().for_each(|&other| waiters.entry(other).or_default().push(rank));
    }
    let mut for_anybody: Vec<Rank> =
        stuck.iter().filter(|(_, whom)| whom.is_empty()).map(|(&rank, _)| rank).collect();
    while let Some(rank) = awake.pop() {
        let woken = waiters.remove(&rank).into_iter().flatten().chain(for_anybody.drain(..));
        awake.extend(woken.filter(|waiter| stuck.remove(waiter).is_some()));
    }
    stuck
}

/// A message is there that a process waits for.
fn has_message(of: &AtFlush, whom: &BTreeSet<Rank>) -> bool {
    if whom.is_empty() { !of.ready.is_empty() } else { !of.ready.is_disjoint(whom) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(ranks: &[u32]) -> BTreeSet<Rank> {
        ranks.iter().copied().map(Rank).collect()
    }

    fn at(activity: Activity, ready: &[u32]) -> AtFlush {
        AtFlush { activity, sent: 1, taken: 1, turn: 1, ready: set(ready) }
    }

    fn waits(whom: &[u32], ready: &[u32]) -> AtFlush {
        at(Activity::Waits(set(whom)), ready)
    }

    /// Of two flushes that show the same.
    fn verdict(all: &[AtFlush]) -> Verdict {
        let now: BTreeMap<Rank, AtFlush> = (0..).map(Rank).zip(all.iter().cloned()).collect();
        let mut global = Global::default();
        assert_eq!(global.flushed(now.clone()), Verdict::GoesOn, "one flush shows nothing");
        global.flushed(now)
    }

    fn deadlocked(waits: &[(u32, &[u32])]) -> Verdict {
        let waits = waits.iter().map(|&(rank, whom)| (Rank(rank), set(whom)));
        Verdict::Deadlocked(waits.collect())
    }

    #[test]
    fn four_that_wait_in_a_ring_are_deadlocked() {
        let ring = [waits(&[1], &[]), waits(&[2], &[]), waits(&[3], &[]), waits(&[0], &[])];
        let expected: [(u32, &[u32]); 4] = [(0, &[1]), (1, &[2]), (2, &[3]), (3, &[0])];
        assert_eq!(verdict(&ring), deadlocked(&expected));
        let mut with_message = ring.clone();
        with_message[2].ready = set(&[3]);
        assert_eq!(verdict(&with_message), Verdict::GoesOn, "one of them has what it waits for");
        with_message[2].ready = set(&[1]);
        assert_eq!(verdict(&with_message), deadlocked(&expected), "that is another's message");
    }

    #[test]
    fn part_that_nobody_can_wake_is_found_meanwhile() {
        let all = [waits(&[1], &[]), waits(&[0], &[]), at(Activity::Computes, &[])];
        assert_eq!(verdict(&all), deadlocked(&[(0, &[1]), (1, &[0])]));
        let all = [waits(&[1, 2], &[]), waits(&[0], &[]), at(Activity::Computes, &[])];
        assert_eq!(verdict(&all), Verdict::GoesOn, "the third may wake the first");
        let all = [waits(&[], &[]), waits(&[], &[]), at(Activity::Done, &[])];
        assert_eq!(verdict(&all), deadlocked(&[(0, &[]), (1, &[])]), "for anybody");
    }

    #[test]
    fn who_waits_for_one_that_is_done_is_stuck() {
        let all = [waits(&[1], &[]), at(Activity::Done, &[])];
        assert_eq!(verdict(&all), deadlocked(&[(0, &[1])]));
    }

    #[test]
    fn a_program_ends_with_its_last_message() {
        assert_eq!(verdict(&[at(Activity::Done, &[]), at(Activity::Done, &[])]), Verdict::Ended);
        assert_eq!(verdict(&[at(Activity::Done, &[1]), at(Activity::Done, &[])]), Verdict::GoesOn);
        assert_eq!(verdict(&[at(Activity::Computes, &[])]), Verdict::GoesOn);
        assert_eq!(Global::default().flushed(BTreeMap::new()), Verdict::GoesOn);
    }

    #[test]
    fn what_moves_between_two_flushes_is_no_deadlock() {
        let ring = |taken| {
            let all = [waits(&[1], &[]), waits(&[0], &[])].map(|of| AtFlush { taken, ..of });
            (0..).map(Rank).zip(all).collect::<BTreeMap<_, _>>()
        };
        let mut global = Global::default();
        assert_eq!(global.flushed(ring(1)), Verdict::GoesOn);
        assert_eq!(global.flushed(ring(2)), Verdict::GoesOn);
        assert!(matches!(global.flushed(ring(2)), Verdict::Deadlocked(_)));
        let again = ring(2).into_iter().map(|(rank, of)| (rank, AtFlush { turn: 3, ..of }));
        assert_eq!(global.flushed(again.collect()), Verdict::GoesOn, "it has waited anew");
        let one = ring(2).into_iter().take(1).collect();
        assert_eq!(global.flushed(one), Verdict::GoesOn, "a process is gone");
    }

    proptest! {
        /// No order of sends of the others reaches one that is said to be stuck.
        #[test]
        fn nobody_wakes_who_is_stuck(
            all in proptest::collection::vec(
                (0u8..4, proptest::collection::btree_set(0u32..6, 0..3)),
                1..6,
            ),
        ) {
            let all: BTreeMap<Rank, AtFlush> = (0..).map(Rank).zip(all.into_iter().map(
                |(kind, whom)| match kind {
                    0 => at(Activity::Computes, &[]),
                    1 => at(Activity::Done, &[]),
                    _ => at(Activity::Waits(whom.into_iter().map(Rank).collect()), &[]),
                },
            )).collect();
            // One that computes may send to all; one that is woken computes.
            let mut awake: BTreeSet<Rank> = all
                .iter()
                .filter(|(_, of)| of.activity == Activity::Computes)
                .map(|(&rank, _)| rank)
                .collect();
            loop {
                let woken: Vec<Rank> = all
                    .iter()
                    .filter(|(rank, of)| match &of.activity {
                        Activity::Waits(whom) => awake.iter().any(|sender| {
                            sender != *rank && (whom.is_empty() || whom.contains(sender))
                        }),
                        Activity::Computes | Activity::Done => false,
                    })
                    .map(|(&rank, _)| rank)
                    .filter(|rank| !awake.contains(rank))
                    .collect();
                if woken.is_empty() {
                    break;
                }
                awake.extend(woken);
            }
            let waits = |of: &AtFlush| matches!(of.activity, Activity::Waits(_));
            let expected: BTreeSet<Rank> = all
                .iter()
                .filter(|(rank, of)| waits(of) && !awake.contains(rank))
                .map(|(&rank, _)| rank)
                .collect();
            let found: BTreeSet<Rank> = stuck(&all).into_keys().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
