//! Requests that wait, by turns among users.
//!
//! After each request of a user, every other user who waits has one: a flood of requests is waited
//! for by its own user alone. Requests of one user stay in their order.

use std::collections::{BTreeMap, VecDeque};

use gang_schedule::UserId;

/// On whose behalf something is asked; `None` is the daemon itself.
pub type Payer = Option<UserId>;

/// The requests that wait.
#[derive(Debug)]
pub struct Turns<T> {
    /// Queues that are not empty.
    waiting: BTreeMap<Payer, VecDeque<T>>,
    /// The user of the last request.
    last: Payer,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Turns { waiting: BTreeMap::new(), last: None }
    }
}

impl<T> Turns<T> {
    pub fn push(&mut self, payer: Payer, request: T) {
        self.waiting.entry(payer).or_default().push_back(request);
    }

    /// The first request of the user after the one who was served last, in the order of their
    /// numbers.
    pub fn pop(&mut self) -> Option<T> {
        let after = |&&payer: &&Payer| payer > self.last;
        let payer = *self.waiting.keys().find(after).or(self.waiting.keys().next())?;
        let queue = self.waiting.get_mut(&payer)?;
        let request = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&payer);
        }
        self.last = payer;
        request
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The share of the last measurement in the mean.
const NEWEST: f64 = 0.1;

/// The cost of a request for the conductor besides its own time: to wake, and to see what is due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overhead {
    mean_ns: f64,
}

impl Overhead {
    /// Takes note of the time that so many requests took in a step in which nothing else was done,
    /// and of their own time.
    pub fn saw(&mut self, requests: u32, took_ns: u64, own_ns: u64) {
        if requests > 0 {
            let each_ns = took_ns.saturating_sub(own_ns) as f64 / f64::from(requests);
            self.mean_ns += (each_ns - self.mean_ns) * NEWEST;
        }
    }

    pub fn ns(&self) -> u64 {
        self.mean_ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_much_waits_for_himself() {
        let (one, other) = (Some(UserId(1)), Some(UserId(2)));
        let mut turns = Turns::default();
        (0..100).for_each(|number| turns.push(one, (1, number)));
        assert_eq!(turns.pop(), Some((1, 0)));
        turns.push(other, (2, 0));
        turns.push(other, (2, 1));
        turns.push(None, (0, 0));
        let next: Vec<_> = (0..6).map_while(|_| turns.pop()).collect();
        assert_eq!(next, [(2, 0), (0, 0), (1, 1), (2, 1), (1, 2), (1, 3)]);
        assert_eq!(std::iter::from_fn(|| turns.pop()).count(), 96);
        assert!(turns.is_empty());
    }

    #[test]
    fn overhead_is_that_of_the_last_requests() {
        let mut overhead = Overhead::default();
        overhead.saw(0, 1_000_000, 0);
        assert_eq!(overhead.ns(), 0);
        (0..100).for_each(|_| overhead.saw(2, 50_000, 10_000));
        assert!(overhead.ns().abs_diff(20_000) < 10, "{}", overhead.ns());
        (0..100).for_each(|_| overhead.saw(1, 3_000, 5_000));
        assert!(overhead.ns() < 10, "{}", overhead.ns());
    }
}
