//! When a job that is decided is glanced at again, and whether it has changed.
//!
//! Problem: a glance costs a job 0.065 s (`ledger`), and most jobs stay what they are.
//!
//! Approach: after each glance at which the job is as it was, it rests for twice as long, up to a
//! minute. Its competitors are known without a glance: where they change, it rests no longer. Only
//! glances decide that the job has changed, two in a row. A difference that no glance shows by
//! itself may show in the pool of the last four. A glance that shows a great difference is not
//! pooled, so that it counts by itself.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::behaviour::{Behaviour, Competition};

/// How long a job rests after a first glance, and after one at which it was not as it was.
const REST: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(60);

/// Glances in a row that must see a change.
const CHANGED: usize = 2;

/// The last glances that show nothing by themselves are pooled, so many. Where threads that waited
/// for a tenth of their time wait no more, two glances show it in one case of two.
const POOLED: usize = 4;

#[derive(Debug)]
pub struct Glances {
    /// How it behaves by what was decided.
    usual: Option<Behaviour>,
    /// The glances after that one which showed no change by themselves, the last first.
    lately: VecDeque<Behaviour>,
    /// How many glances in a row have found it otherwise.
    differ: usize,
    last: Instant,
    rest: Duration,
}

impl Glances {
    pub fn new(now: Instant) -> Glances {
        Glances { usual: None, lately: VecDeque::new(), differ: 0, last: now, rest: REST }
    }

    pub fn last(&self) -> Instant {
        self.last
    }

    pub fn is_due(&self, competition: &Competition, now: Instant) -> bool {
        let Some(usual) = &self.usual else { return true };
        let has_rested = now.saturating_duration_since(self.last) >= self.rest;
        has_rested || usual.competition.change(competition).is_some()
    }

    /// Takes note of a glance; what has changed, if that is sure.
    pub fn saw(&mut self, seen: Behaviour, now: Instant) -> Option<&'static str> {
        self.last = now;
        let Some(usual) = &self.usual else {
            self.usual = Some(seen);
            return None;
        };
        let mut change = usual.change(&seen);
        // Where nobody competes it is no matter how it behaves.
        if change.is_none() && seen.competition.is_tight {
            self.lately.truncate(POOLED - 1);
            self.lately.push_front(seen);
            change = usual.change_over(self.lately.make_contiguous());
        }
        (self.differ, self.rest) = match change {
            None => (0, (self.rest * 2).min(REST_MAX)),
            Some(_) => (self.differ + 1, REST),
        };
        change.filter(|_| self.differ >= CHANGED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIGHT: Competition = Competition { threads: 2.0, has_gangs: true, is_tight: true };

    fn behaviour(threads: usize) -> Behaviour {
        Behaviour { threads, sleeps_per_s: 5.0, looks: 200, spinning: 0.1, competition: TIGHT }
    }

    /// With so many threads at each second: see [`glances_of`].
    fn glances(seconds: u64, threads_at: impl Fn(u64) -> usize) -> (Vec<u64>, Option<u64>) {
        glances_of(seconds, |second| behaviour(threads_at(second)))
    }

    /// Glanced at each time it is due, looked at each second; the seconds of each glance after the
    /// first.
    fn glances_of(seconds: u64, is_at: impl Fn(u64) -> Behaviour) -> (Vec<u64>, Option<u64>) {
        let began = Instant::now();
        let mut glances = Glances::new(began);
        assert!(glances.is_due(&TIGHT, began));
        glances.saw(is_at(0), began);
        let mut at = Vec::new();
        for second in 1..=seconds {
            let now = began + Duration::from_secs(second);
            if glances.is_due(&TIGHT, now) {
                at.push(second);
                if glances.saw(is_at(second), now).is_some() {
                    return (at, Some(second));
                }
            }
        }
        (at, None)
    }

    #[test]
    fn who_stays_the_same_is_glanced_at_the_more_seldom() {
        assert_eq!(glances(300, |_| 2), (vec![5, 15, 35, 75, 135, 195, 255], None));
    }

    #[test]
    fn a_change_is_sure_when_it_was_seen_twice_in_a_row() {
        assert_eq!(glances(300, |second| if second < 20 { 2 } else { 4 }).1, Some(40));
        let once = |second| if second == 35 { 4 } else { 2 };
        assert_eq!(glances(100, once), (vec![5, 15, 35, 40, 50, 70], None));
    }

    #[test]
    fn small_change_is_sure_after_several_glances() {
        // A tenth of fifty looks, and none of them any more after half a minute.
        let is_at = |second| {
            let spinning = if second < 30 { 0.1 } else { 0.0 };
            Behaviour { looks: 50, spinning, ..behaviour(2) }
        };
        let (at, sure) = glances_of(600, is_at);
        assert_eq!((at, sure), (vec![5, 15, 35, 75, 135, 195, 200], Some(200)));
        // Once it waits for half of its time, which is more than a pool of four should have.
        let once = |second| {
            let spinning = if second == 35 { 0.5 } else { 0.02 };
            Behaviour { looks: 100, spinning, ..behaviour(2) }
        };
        assert_eq!(glances_of(600, once).1, None, "one glance is one");
        let always = |_| Behaviour { looks: 50, ..behaviour(2) };
        assert_eq!(glances_of(600, always).1, None);
    }

    #[test]
    fn who_competes_with_others_does_not_rest() {
        let began = Instant::now();
        let mut glances = Glances::new(began);
        glances.saw(behaviour(2), began);
        let no_gangs = Competition { has_gangs: false, ..TIGHT };
        assert!(!glances.is_due(&TIGHT, began) && glances.is_due(&no_gangs, began));
        let nobody = Competition { threads: 0.0, has_gangs: false, is_tight: false };
        assert!(!glances.is_due(&nobody, began), "it is the same to it then what it is");
    }
}
