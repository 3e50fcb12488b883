//! Requests of a user who has used up his part of the allowance, one at a time.
//!
//! Problem: beyond the allowance, requests are served by ordinary threads. As many threads as a
//! user has connections would want CPUs at once: in gaps, where everybody else has his short tasks
//! and his requests, and as a load for which gangs would have to make room.
//!
//! Approach: each user has a queue of his own. The first in it is at work; the next one begins when
//! the first has its answer, or waits for something itself. It begins in a gap, or once the user's
//! part of the [allowance](crate::allowance) has grown: what it asks of the conductor costs gangs
//! time elsewhere.
//!
//! Properties: one request of a user is at work at most, and requests of one user stay in their
//! order. Nobody waits for another user.

use std::collections::{BTreeMap, VecDeque};

use gang_schedule::{Gap, UserId};

/// The requests at work, and those that wait.
#[derive(Debug)]
pub struct AtWork<T> {
    /// Those who wait, of each user of whom somebody is at work.
    waiting: BTreeMap<UserId, VecDeque<T>>,
}

impl<T> Default for AtWork<T> {
    fn default() -> Self {
        AtWork { waiting: BTreeMap::new() }
    }
}

impl<T> AtWork<T> {
    /// A request comes; true where it is at work from now on, false where it waits.
    pub fn come(&mut self, user: UserId, request: T) -> bool {
        let Some(waiting) = self.waiting.get_mut(&user) else {
            self.waiting.insert(user, VecDeque::new());
            return true;
        };
        waiting.push_back(request);
        false
    }

    /// The request at work is over; returns the one that is at work from now on.
    pub fn leave(&mut self, user: UserId) -> Option<T> {
        let next = self.waiting.get_mut(&user)?.pop_front();
        if next.is_none() {
            self.waiting.remove(&user);
        }
        next
    }
}

/// How long a request waits that its user's part of the allowance permits in `due_in_ns`: until
/// then, or until the next gap, of which gangs have nothing. `utc_ns` is the time of day.
pub fn begins_in_ns(gap: Gap, utc_ns: u64, due_in_ns: u64) -> u64 {
    if gap.length_ns == 0 {
        return due_in_ns;
    }
    let begins_ns = gap.period_ns - gap.length_ns;
    due_in_ns.min(begins_ns.saturating_sub(utc_ns % gap.period_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: UserId = UserId(1);
    const OTHER: UserId = UserId(2);

    #[test]
    fn one_request_of_each_user_is_at_work() {
        let mut at_work = AtWork::default();
        assert!(at_work.come(ONE, 1));
        assert!((2..100).all(|request| !at_work.come(ONE, request)));
        assert!(at_work.come(OTHER, 100), "nobody waits for another user");
        assert!(!at_work.come(OTHER, 101));
        assert_eq!(at_work.leave(OTHER), Some(101));
        assert_eq!(at_work.leave(OTHER), None);
        assert!(at_work.come(OTHER, 102), "nobody of his was at work");
        for request in 2..100 {
            assert_eq!(at_work.leave(ONE), Some(request));
            assert!(!at_work.come(ONE, 100 + request), "one that comes again is the last");
        }
        assert_eq!(at_work.leave(ONE), Some(102));
    }

    #[test]
    fn who_left_before_is_nobody() {
        let mut at_work = AtWork::<u32>::default();
        assert_eq!(at_work.leave(ONE), None);
        assert!(at_work.come(ONE, 1));
    }

    #[test]
    fn request_beyond_the_allowance_begins_in_a_gap() {
        let gap = Gap { period_ns: 20, length_ns: 2 };
        let begins = |utc_ns: u64, due_in_ns| begins_in_ns(gap, 1000 + utc_ns, due_in_ns);
        assert_eq!([0, 17, 18, 19, 20].map(|utc_ns| begins(utc_ns, 100)), [18, 1, 0, 0, 18]);
        assert_eq!([0, 17].map(|utc_ns| begins(utc_ns, 5)), [5, 1], "his part grows before");
        assert_eq!(begins(0, 0), 0);
        assert_eq!(begins_in_ns(Gap::NONE, 1000, 100), 100);
    }
}
