//! How much of the CPUs the rest of the machine takes while nothing is measured.
//!
//! A loop on each CPU does nothing but read the clock. Where two readings lie apart, somebody else
//! had the CPU: a program, the kernel, or the host of a virtual machine, which no counter of the
//! guest shows. A machine on which others take more than [`LIMIT_PERCENT`] cannot show differences
//! of a few percent, so nothing is compared on it unless that is asked for.
//!
//! Besides, neighbouring CPUs hand a word of memory to each other: how long that takes follows from
//! where the host of a virtual machine has put them, which was seen to change fourfold from one
//! minute to the next, and with it whatever meets at barriers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::harness::machine::allowed_cpus;
use crate::harness::stats;
use crate::workload::on_threads;

/// The most that others may take of the CPUs where conditions are compared.
pub const LIMIT_PERCENT: f64 = 5.0;
/// Long enough to see programs that run now and then, short beside a measurement.
const LENGTH: Duration = Duration::from_millis(200);
/// Shorter gaps are the timer tick and the clock itself.
const GAP: Duration = Duration::from_micros(100);
/// For how long CPUs hand a word to each other, how often they look at it before they look at the
/// clock, and how many turns of a CPU are timed together.
const HANDED: Duration = Duration::from_millis(20);
const LOOKS: u32 = 1 << 10;
const TURNS: u32 = 1 << 7;
/// From this ratio of the longest to the shortest handover of a run on, the report says that the
/// machine was not one machine.
const UNEVEN: f64 = 1.2;
/// How often a machine is asked whether it has come to rest, and the time in between.
const ATTEMPTS: usize = 5;
const REST: Duration = Duration::from_secs(1);

/// The rest of the machine, as loops on all CPUs saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    pub lost_percent: f64,
    pub longest_ms: f64,
    /// Until a word that one CPU writes is seen by its neighbour; absent where there is one CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover_ns: Option<f64>,
}

/// Noise over a whole run, from samples before each of its rounds and after the last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub lost_percent_mean: f64,
    pub lost_percent_worst: f64,
    pub longest_ms: f64,
    pub limit_percent: f64,
    /// The shortest and the longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handover_ns: Option<[f64; 2]>,
    pub samples: usize,
}

impl Summary {
    /// None where nothing was sampled.
    pub fn of(samples: &[Noise]) -> Option<Self> {
        let lost: Vec<f64> = samples.iter().map(|noise| noise.lost_percent).collect();
        let (mean, _) = stats::mean_sd(&lost)?;
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let handovers = samples.iter().map(|noise| noise.handover_ns.map(|ns| [ns; 2]));
        Some(Self {
            handover_ns: handovers.fold(None, hull),
            lost_percent_mean: mean,
            lost_percent_worst: largest(&mut lost.iter().copied()),
            longest_ms: largest(&mut samples.iter().map(|noise| noise.longest_ms)),
            limit_percent: LIMIT_PERCENT,
            samples: samples.len(),
        })
    }

    /// That of two runs in one report: of what others took, that in which they took more.
    pub fn worse(self, other: Self) -> Self {
        let worse = if other.lost_percent_mean > self.lost_percent_mean { other } else { self };
        Self { handover_ns: hull(self.handover_ns, other.handover_ns), ..worse }
    }

    pub fn too_noisy(&self) -> bool {
        self.lost_percent_mean > self.limit_percent
    }

    /// The CPUs were nearer to each other at some times than at others.
    pub fn is_uneven(&self) -> bool {
        self.handover_ns.is_some_and(|[least, most]| most > UNEVEN * least)
    }

    pub fn line(&self) -> String {
        let handover = self.handover_ns.map(|[least, most]| {
            format!(", and one CPU saw what another wrote after {least:.0} to {most:.0} ns")
        });
        format!(
            "others took {:.1} % of the CPUs ({:.1} % at worst, for {:.1} ms at a time){}",
            self.lost_percent_mean,
            self.lost_percent_worst,
            self.longest_ms,
            handover.unwrap_or_default()
        )
    }
}

/// The range that has both.
fn hull(one: Option<[f64; 2]>, other: Option<[f64; 2]>) -> Option<[f64; 2]> {
    match (one, other) {
        (Some([a, b]), Some([c, d])) => Some([a.min(c), b.max(d)]),
        (one, other) => one.or(other),
    }
}

/// Samples until the machine is at rest, for some seconds at most, and returns the last sample.
pub fn at_rest() -> Result<Noise> {
    let mut noise = sample()?;
    for _ in 1..ATTEMPTS {
        if noise.lost_percent <= LIMIT_PERCENT {
            break;
        }
        std::thread::sleep(REST);
        noise = sample()?;
    }
    Ok(noise)
}

/// One sample, on all CPUs that this process may use.
pub fn sample() -> Result<Noise> {
    let cpus = allowed_cpus()?;
    let on_own = |number: usize| {
        let mut own = CpuSet::new();
        own.set(cpus[number]);
        // A CPU that went meanwhile is watched from another.
        let _ = sched_setaffinity(None, &own);
    };
    let seen = on_threads(cpus.len(), |number| {
        on_own(number);
        watch()
    })?;
    let words: Vec<Apart> = (0..cpus.len() / 2).map(|_| Apart::default()).collect();
    let handovers = on_threads(2 * words.len(), |number| {
        on_own(number);
        hand_over(&words[number / 2].0, number as u32 % 2)
    })?;
    let lost: f64 = seen.iter().map(|(lost, _)| lost.as_secs_f64()).sum();
    let length = LENGTH.as_secs_f64() * seen.len() as f64;
    let longest = seen.iter().map(|(_, longest)| *longest).max().unwrap_or_default();
    Ok(Noise {
        lost_percent: (lost / length * 100.0).min(100.0),
        longest_ms: longest.as_secs_f64() * 1e3,
        handover_ns: median(handovers.into_iter().flatten().collect()),
    })
}

/// A word in a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Apart(AtomicU32);

/// Counts a word on whenever it is this thread's turn, which is whenever it is even, or odd.
/// Returns the time that each took, in ns, at the median of some at a time: it may have waited for
/// the other thread to begin, or to go on.
fn hand_over(word: &AtomicU32, turn: u32) -> Option<f64> {
    let begin = Instant::now();
    let (mut before, mut turns, mut each_ns) = (begin, 0, Vec::new());
    while begin.elapsed() < HANDED {
        for _ in 0..LOOKS {
            let now = word.load(Ordering::Acquire);
            if now % 2 == turn {
                word.store(now.wrapping_add(1), Ordering::Release);
                turns += 1;
            }
        }
        if turns >= TURNS {
            let now = Instant::now();
            // Between two turns of this thread was one of the other.
            each_ns.push((now - before).as_nanos() as f64 / f64::from(2 * turns));
            (before, turns) = (now, 0);
        }
    }
    median(each_ns)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The time this thread did not run, in all and at a stretch.
fn watch() -> (Duration, Duration) {
    let begin = Instant::now();
    let (mut before, mut lost, mut longest) = (begin, Duration::ZERO, Duration::ZERO);
    loop {
        let now = Instant::now();
        let gap = now - before;
        if gap >= GAP {
            lost += gap;
            longest = longest.max(gap);
        }
        before = now;
        if now - begin >= LENGTH {
            return (lost, longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_a_share_of_the_cpus() {
        let noise = sample().unwrap();
        assert!((0.0..=100.0).contains(&noise.lost_percent), "{noise:?}");
        assert!(noise.longest_ms >= 0.0);
        let has_neighbours = allowed_cpus().unwrap().len() > 1;
        assert!(noise.handover_ns.is_none() || has_neighbours, "{noise:?}");
    }

    #[test]
    fn two_threads_hand_a_word_to_each_other() {
        if allowed_cpus().unwrap().len() < 2 {
            gang_harness::skipped("one CPU has no neighbour to hand a word to");
            return;
        }
        // Where others have the CPUs the two may hardly meet.
        let [first_ns, second_ns] = gang_harness::wait_for("they meet", || {
            let word = Apart::default();
            let found = on_threads(2, |number| hand_over(&word.0, number as u32)).unwrap();
            Some([found[0]?, found[1]?])
        });
        assert!(first_ns > 0.0 && second_ns > 0.0, "{first_ns}, {second_ns}");
    }

    #[test]
    fn a_machine_whose_cpus_come_nearer_is_uneven() {
        let noise = |handover_ns| Noise { lost_percent: 0.0, longest_ms: 0.0, handover_ns };
        let of = |first, last| Summary::of(&[noise(first), noise(None), noise(last)]).unwrap();
        assert_eq!(of(None, None).handover_ns, None);
        assert!(!of(None, None).is_uneven() && !of(Some(70.0), Some(80.0)).is_uneven());
        let uneven = of(Some(110.0), Some(70.0));
        assert!(uneven.is_uneven());
        assert!(uneven.line().ends_with("after 70 to 110 ns"), "{}", uneven.line());
        let near = Summary::of(&[Noise { lost_percent: 1.0, ..noise(Some(45.0)) }]).unwrap();
        let joined = near.worse(of(Some(200.0), None));
        assert_eq!((joined.handover_ns, joined.lost_percent_mean), (Some([45.0, 200.0]), 1.0));
        assert_eq!(of(None, None).worse(near).handover_ns, Some([45.0; 2]));
    }

    #[test]
    fn the_mean_decides() {
        let noise =
            |lost_percent, longest_ms| Noise { lost_percent, longest_ms, handover_ns: None };
        let quiet = Summary::of(&[noise(0.5, 1.0), noise(8.5, 30.0)]).unwrap();
        assert!(!quiet.too_noisy() && quiet.lost_percent_worst == 8.5 && quiet.longest_ms == 30.0);
        assert!(Summary::of(&[noise(6.0, 1.0)]).unwrap().too_noisy());
        assert_eq!(Summary::of(&[]), None);
    }
}
