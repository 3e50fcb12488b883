//! How far apart a thread's waits for its partners are, and how far apart the threads arrive where
//! they meet.
//!
//! Problem: threads that sleep are seen each time that they do; those that spin only at ticks,
//! which come more seldom than they wait.
//!
//! Approach: sleeps are counted. Of threads that spin, some work at one tick and wait at the next.
//! Their share says how long both last, if they last as long as a tick; where they do not, ticks
//! give a bound.

use std::collections::BTreeMap;

use crate::observation::{Doing, Observation, Sleeps};

/// Fewer looks than this say nothing.
const LOOKS_ENOUGH: usize = 100;

/// Sleeps of this many say how long they are on average.
const SLEEPS_ENOUGH: u64 = 20;

/// Two ticks with no other between them are no further apart than so many.
const STEP_MAX: f64 = 1.3;

impl Observation {
    /// How far apart threads arrive where they meet, by those that sleep until the last one is
    /// there. Where they mostly spin, the few that sleep are those that wait for long.
    pub fn spread_us(
        &self,
        threads: usize,
        sleeps: Sleeps,
        (interval_us, is_bound): (Option<f64>, bool),
    ) -> Option<f64> {
        let every_us = self.between_sleeps_us(threads, sleeps)?;
        let mostly_sleep = !is_bound && every_us <= interval_us? * 2.0;
        (mostly_sleep && sleeps.clear_count >= SLEEPS_ENOUGH)
            .then(|| sleeps.clear_ns as f64 / sleeps.clear_count as f64 / 1e3)
    }

    /// The time between two waits of a thread for its partners, in microseconds, and whether that
    /// is only a bound.
    pub fn interval(&self, threads: usize, sleeps: Sleeps) -> (Option<f64>, bool) {
        let of_sleeps = self.between_sleeps_us(threads, sleeps);
        // Where the kernel or a host keeps a CPU from its thread unseen, others wait long and the
        // estimate is too large; the bound holds.
        let of_spins = [self.interval_of_spins(), self.bound_of_spins()];
        let of_spins = of_spins.into_iter().flatten().min_by(|a, b| a.0.total_cmp(&b.0));
        match (of_sleeps, of_spins) {
            (None, None) => (None, false),
            (Some(sleeps), None) => (Some(sleeps), false),
            (None, Some(spins)) => (Some(spins.0), spins.1),
            // Where threads also spin, they wait more often than they sleep.
            (Some(sleeps), Some(spins)) if sleeps < spins.0 => (Some(sleeps), spins.1),
            (_, Some(spins)) => (Some(spins.0), spins.1),
        }
    }

    fn between_sleeps_us(&self, threads: usize, sleeps: Sleeps) -> Option<f64> {
        let length_us = self.length_ns as f64 / 1e3;
        (sleeps.count > 0).then(|| length_us * threads.max(1) as f64 / sleeps.count as f64)
    }

    /// From how often a thread that worked at one tick waits at the next. Let a thread go from one
    /// to the other at random with mean times a and b. The share of ticks at which it has changed
    /// is 2pq (1 − exp(−d (1/a + 1/b))). Here p and q are the shares of both, and d lies between
    /// the ticks.
    fn interval_of_spins(&self) -> Option<(f64, bool)> {
        let step_max_ns = STEP_MAX * self.tick_us()? * 1e3;
        let mut last: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
        let (mut pairs, mut changes, mut waits, mut steps_ns) = (0usize, 0usize, 0usize, 0u64);
        for look in self.looks.iter().filter(|look| look.waiting == 0) {
            let (tid, is_wait) = match look.doing {
                Doing::Else => continue,
                Doing::Work { tid } => (tid, false),
                Doing::Wait { tid, .. } => (tid, true),
            };
            if let Some((at_ns, was_wait)) = last.insert(tid, (look.at_ns, is_wait)) {
                let step_ns = look.at_ns.saturating_sub(at_ns);
                if (step_ns as f64) < step_max_ns {
                    pairs += 1;
                    changes += usize::from(was_wait != is_wait);
                    waits += usize::from(is_wait);
                    steps_ns += step_ns;
                }
            }
        }
        if pairs < LOOKS_ENOUGH {
            return None;
        }
        let q = waits as f64 / pairs as f64;
        // Less may be anything; more never works.
        if !(0.005..=0.995).contains(&q) {
            return None;
        }
        let step_us = steps_ns as f64 / pairs as f64 / 1e3;
        let most = 2.0 * q * (1.0 - q);
        let changed = changes as f64 / pairs as f64;
        // So near to independence only the bound is known: there are that few ticks.
        if changed > 0.7 * most {
            return Some((step_us, true));
        }
        let decay_us = -step_us / (1.0 - changed / most).ln();
        Some((decay_us / (q * (1.0 - q)), false))
    }

    /// A bound, whether its threads all had CPUs or not: so long a thread works on average, from
    /// tick to tick, until it is seen to wait.
    fn bound_of_spins(&self) -> Option<(f64, bool)> {
        let mut waited: BTreeMap<u32, bool> = BTreeMap::new();
        let (mut works, mut runs, mut waits) = (0usize, 0usize, 0usize);
        for look in &self.looks {
            match look.doing {
                Doing::Else => {}
                Doing::Work { tid } => {
                    works += 1;
                    runs += usize::from(waited.insert(tid, false) != Some(false));
                }
                Doing::Wait { tid, .. } => {
                    waits += 1;
                    waited.insert(tid, true);
                }
            }
        }
        let bound_us = self.tick_us()? * works.max(1) as f64 / runs.max(1) as f64;
        (waits >= LOOKS_ENOUGH).then_some((bound_us, true))
    }

    /// Between two ticks of a CPU.
    fn tick_us(&self) -> Option<f64> {
        let (first, last) = (self.looks.first()?.at_ns, self.looks.last()?.at_ns);
        let ticks = self.looks.len() as f64 / self.machine.max(1) as f64;
        Some(last.saturating_sub(first) as f64 / 1e3 / ticks.max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::{
        Cause,
        tests::{MS, look, two_threads},
    };

    #[test]
    fn the_interval_between_sleeps() {
        let mut observation = two_threads(Vec::new());
        let sleeps = Sleeps { count: 1000, ns: MS, ..Sleeps::default() };
        for tid in [1, 2] {
            observation.sleeps.insert((tid, Cause::Partner), sleeps);
        }
        // The third one hardly runs: for whom it waits is no matter.
        observation.sleeps.insert((3, Cause::Partner), Sleeps { count: 100_000, ..sleeps });
        let figures = observation.figures();
        assert_eq!((figures.interval_us, figures.interval_is_bound), (Some(1000.0), false));
        assert_eq!(figures.spread_us, None, "always some thread waited for a CPU");
    }

    #[test]
    fn spread_is_the_sleep_while_all_have_cpus() {
        let mut observation = two_threads(Vec::new());
        let sleeps = Sleeps { count: 2000, ns: 9_000 * MS, clear_count: 100, clear_ns: 50 * MS };
        observation.sleeps.insert((1, Cause::Partner), sleeps);
        assert_eq!(observation.figures().spread_us, Some(500.0));
        let few = Sleeps { clear_count: 19, ..sleeps };
        observation.sleeps.insert((1, Cause::Partner), few);
        assert_eq!(observation.figures().spread_us, None);
        // It meets every millisecond, and sleeps once in a hundred times.
        assert_eq!(observation.spread_us(2, sleeps, (Some(10.0), false)), None);
        // How often it waits besides is not known.
        assert!(observation.spread_us(2, sleeps, (Some(1000.0), false)).is_some());
        assert_eq!(observation.spread_us(2, sleeps, (Some(1000.0), true)), None);
    }

    #[test]
    fn the_interval_between_spins() {
        // Works for 20 ms, waits for 20 ms.
        let doing = |at: u64| match at / 20 % 2 {
            0 => Doing::Work { tid: 1 },
            _ => Doing::Wait { tid: 1, site: String::new() },
        };
        let looks = (0..2000).map(|at| look(at, doing(at), 1, 0)).collect();
        let (interval_us, is_bound) = two_threads(looks).interval_of_spins().unwrap();
        assert!(!is_bound && (30_000.0..50_000.0).contains(&interval_us), "{interval_us}");
        // Changes faster than ticks can show.
        let fast = |at: u64| match (at * 2_654_435_761) >> 7 & 1 {
            0 => Doing::Work { tid: 1 },
            _ => Doing::Wait { tid: 1, site: String::new() },
        };
        let looks = (0..2000).map(|at| look(at, fast(at), 1, 0)).collect();
        assert_eq!(two_threads(looks).interval_of_spins(), Some((1000.0, true)));
        let looks = (0..2000).map(|at| look(at, Doing::Work { tid: 1 }, 1, 0)).collect();
        let works = two_threads(looks);
        assert_eq!((works.interval_of_spins(), works.bound_of_spins()), (None, None));
        // Hardly ever all on CPUs: works for 3 ms in 10.
        let apart = |at: u64| match at % 10 {
            0..3 => Doing::Work { tid: 1 },
            _ => Doing::Wait { tid: 1, site: String::new() },
        };
        let looks = (0..2000).map(|at| look(at, apart(at), 1, 1)).collect();
        let mut apart = two_threads(looks);
        apart.machine = 1;
        let (bound_us, is_bound) = apart.bound_of_spins().unwrap();
        assert!(is_bound && (bound_us - 3000.0).abs() < 10.0, "{bound_us}");
    }
}
