//! The flush of a gang's ports around the end of its slot, as data.
//!
//! Problem: a flush is to be over when the slot is, and to take no more of the slot than it must. A
//! program may compute for seconds without a call, and acknowledges nothing meanwhile. A peer may
//! be gone, and never answer.
//!
//! Approach: the host says what it holds for the program, in its place: frames that the program has
//! taken, and those that lie in its page's ring ([`Held`]). A frame is *under way* until the peer
//! has acknowledged it, or the peer's host has. A flush begins ahead of the edge by what the
//! longest of the last flushes took ([`Lead`]). It fails after a time that the settings bound; then
//! the gang keeps what it has for another slice, and nothing is lost.
//!
//! The numbers of a port's page are the program's, who may write there what it likes. So no
//! number here is an index or a length, and sums do not overflow.
//!
//! Properties: a flush of a gang of which all frames have come to their hosts is over, whatever the
//! programs do. A lead is within its bounds.

use std::collections::BTreeSet;

/// The numbers of frames at one end of a channel: those below a number, but for `seen`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Were sent.
    pub next: u64,
    /// The peer has acknowledged.
    pub acknowledged: u64,
    /// The peer's host holds.
    pub receipted: u64,
    /// Have come from the peer.
    pub expected: u64,
    /// Bit n: the frame `expected + 1 + n` has come.
    pub seen: u64,
    /// The peer was told of last.
    pub answered: u64,
}

impl Numbers {
    /// Frames that were sent, and that neither the peer nor a host holds as far as is known; `host`
    /// is what the peer's host has said to this one.
    pub fn under_way(&self, host: u64) -> u64 {
        self.next.saturating_sub(self.acknowledged.max(self.receipted).max(host))
    }
}

/// Frames of one peer that a host holds for a port, beside those that the port has taken.
#[derive(Clone, Debug, Default)]
pub struct Held {
    numbers: BTreeSet<u64>,
    /// The number in the last receipt to the peer.
    receipted: u64,
}

impl Held {
    /// Frames beyond the first that has not come, of which note is taken; senders have less credit.
    pub const MOST: u64 = 4_096;

    /// The host has put a frame into the port's page, which has come to `expected` itself.
    pub fn holds(&mut self, number: u64, expected: u64) {
        if number >= expected && number - expected < Held::MOST {
            self.numbers.insert(number);
        }
    }

    /// All frames below the first number are held, and of those after it, bit by bit, which.
    pub fn receipt(&mut self, expected: u64, seen: u64) -> (u64, u64) {
        self.numbers = self.numbers.split_off(&expected);
        let port_has = |number: u64| {
            let bit = number.wrapping_sub(expected).wrapping_sub(1);
            number > expected && bit < 64 && seen >> bit & 1 == 1
        };
        let has = |number: &u64| self.numbers.contains(number) || port_has(*number);
        let below = (expected..=u64::MAX).find(|number| !has(number)).unwrap_or(u64::MAX);
        let after = (0..64).filter(|bit| below.checked_add(1 + bit).is_some_and(|it| has(&it)));
        (below, after.fold(0, |bits, bit| bits | 1 << bit))
    }

    /// Whether the peer is to be sent a receipt: it has heard of less, from port and host.
    pub fn owes(&mut self, below: u64, answered: u64) -> bool {
        let is_new = below > self.receipted && below > answered;
        if is_new {
            self.receipted = below;
        }
        is_new
    }

    /// The peer asks, since a receipt may be lost.
    pub fn asked(&mut self) {
        self.receipted = 0;
    }
}

/// The furthest moment until which a port begins no frame: of one beyond it, the clock is another.
pub const HELD_MAX_NS: u64 = 10_000_000;

/// Whether frames are held back now, if they are until a moment of the same clock.
pub fn is_held(until_ns: u64, now_ns: u64) -> bool {
    until_ns > now_ns && until_ns - now_ns <= HELD_MAX_NS
}

/// The times of one flush of a gang, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Until nothing was under way, or until it failed.
    pub flush_ns: u64,
    /// To take down where the rings stand: they are the gang's own, so nothing is copied.
    pub save_ns: u64,
    /// To hand the context over.
    pub switch_ns: u64,
}

/// The flushes of a gang since its first port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub flushes: u64,
    /// Of these, those after which something was under way still.
    pub failed: u64,
    /// Of those that did not fail.
    pub times: Times,
    pub longest_ns: u64,
}

impl Sums {
    /// Counts a flush; no times where it failed.
    pub fn add(&mut self, times: Option<Times>) {
        self.flushes = self.flushes.saturating_add(1);
        let Some(times) = times else {
            self.failed = self.failed.saturating_add(1);
            return;
        };
        let Times { flush_ns, save_ns, switch_ns } = &mut self.times;
        *flush_ns = flush_ns.saturating_add(times.flush_ns);
        *save_ns = save_ns.saturating_add(times.save_ns);
        *switch_ns = switch_ns.saturating_add(times.switch_ns);
        self.longest_ns = self.longest_ns.max(times.flush_ns);
    }

    /// Counts the flushes of another gang as well.
    pub fn join(&mut self, other: &Sums) {
        self.flushes = self.flushes.saturating_add(other.flushes);
        self.failed = self.failed.saturating_add(other.failed);
        let (own, others) = (&mut self.times, &other.times);
        own.flush_ns = own.flush_ns.saturating_add(others.flush_ns);
        own.save_ns = own.save_ns.saturating_add(others.save_ns);
        own.switch_ns = own.switch_ns.saturating_add(others.switch_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

/// How long before the edge a flush begins.
#[derive(Clone, Debug, Default)]
pub struct Lead {
    last: Vec<u64>,
    next: usize,
}

impl Lead {
    /// Flushes that are looked back at.
    const LAST: usize = 16;
    /// A thread that sleeps until a moment is late by about as much.
    const LEAST_NS: u64 = 50_000;

    pub fn took(&mut self, flush_ns: u64) {
        if self.last.len() < Lead::LAST {
            self.last.push(flush_ns);
        } else {
            self.last[self.next] = flush_ns;
        }
        self.next = (self.next + 1) % Lead::LAST;
    }

    /// In nanoseconds; `timeout_ns` at most, after which a flush has failed.
    pub fn ns(&self, timeout_ns: u64) -> u64 {
        let longest = self.last.iter().copied().max().unwrap_or(0);
        longest.saturating_add(Lead::LEAST_NS).min(timeout_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HELD_MAX_NS, Held, Lead, Numbers, Sums, Times, is_held};

    #[test]
    fn frame_is_under_way_until_peer_or_host_has_it() {
        let numbers = Numbers { next: 10, acknowledged: 4, receipted: 7, ..Numbers::default() };
        assert_eq!(numbers.under_way(0), 3);
        assert_eq!((numbers.under_way(9), numbers.under_way(10)), (1, 0));
        let lies = Numbers { acknowledged: u64::MAX, ..numbers };
        assert_eq!(lies.under_way(0), 0, "it harms its own job alone");
    }

    #[test]
    fn receipt_joins_port_and_ring() {
        let mut held = Held::default();
        assert_eq!(held.receipt(5, 0), (5, 0));
        // The port has 6 and 9, the ring 5, 7 and 11.
        [5, 7, 11, 3].into_iter().for_each(|number| held.holds(number, 5));
        assert_eq!(held.receipt(5, 1 | 1 << 3), (8, 1 | 1 << 2));
        // It has taken all of them meanwhile.
        assert_eq!(held.receipt(12, 0), (12, 0));
        held.holds(12 + Held::MOST, 12);
        held.holds(u64::MAX, u64::MAX);
        assert_eq!(held.receipt(u64::MAX, u64::MAX).0, u64::MAX);
    }

    #[test]
    fn receipt_goes_once_unless_asked_for() {
        let mut held = Held::default();
        assert!(!held.owes(4, 4), "the port has said so itself");
        assert!(held.owes(5, 4) && !held.owes(5, 4));
        held.asked();
        assert!(held.owes(5, 4) && held.owes(6, 4));
    }

    #[test]
    fn failed_flush_counts_without_times() {
        let mut sums = Sums::default();
        sums.add(Some(Times { flush_ns: 7, save_ns: 2, switch_ns: 1 }));
        sums.add(None);
        sums.add(Some(Times { flush_ns: 5, save_ns: 1, switch_ns: u64::MAX }));
        assert_eq!((sums.flushes, sums.failed, sums.longest_ns), (3, 1, 7));
        assert_eq!(sums.times, Times { flush_ns: 12, save_ns: 3, switch_ns: u64::MAX });
        let mut both = sums;
        both.join(&sums);
        assert_eq!((both.flushes, both.failed, both.times.flush_ns), (6, 2, 24));
    }

    #[test]
    fn frames_are_held_back_for_a_short_time() {
        assert!(is_held(2, 1) && is_held(1 + HELD_MAX_NS, 1));
        assert!(!is_held(1, 1) && !is_held(0, 1) && !is_held(2 + HELD_MAX_NS, 1));
        assert!(!is_held(u64::MAX, 0));
    }

    #[test]
    fn lead_follows_the_longest_of_late() {
        let mut lead = Lead::default();
        assert_eq!(lead.ns(200_000), Lead::LEAST_NS);
        lead.took(90_000);
        assert_eq!(lead.ns(200_000), 140_000);
        (0..16).for_each(|_| lead.took(1_000));
        assert_eq!(lead.ns(200_000), 51_000, "the long one is long ago");
        lead.took(u64::MAX);
        assert_eq!(lead.ns(200_000), 200_000);
    }

    proptest! {
        /// Beside a list of all that has come.
        #[test]
        fn receipt_is_what_has_come(
            expected in 0u64..20,
            came in proptest::collection::vec(0u64..120, 0..60),
        ) {
            let (mut held, mut seen, mut all) = (Held::default(), 0_u64, vec![false; 400]);
            all[..expected as usize].fill(true);
            for (turn, &number) in came.iter().enumerate() {
                if number < expected {
                    continue;
                }
                // Some have come to the port, others to the ring.
                let bit = number.wrapping_sub(expected + 1);
                if turn % 2 == 0 && number > expected && bit < 64 {
                    seen |= 1 << bit;
                } else {
                    held.holds(number, expected);
                }
                all[number as usize] = true;
            }
            let (below, after) = held.receipt(expected, seen);
            let first = all.iter().position(|&has| !has).unwrap() as u64;
            prop_assert_eq!(below, first);
            for bit in 0..64 {
                prop_assert_eq!(after >> bit & 1 == 1, all[(first + 1 + bit) as usize]);
            }
        }
    }
}
