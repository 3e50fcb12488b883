//! How often there are gaps, and how long they must be.
//!
//! Problem: a short task waits for the next gap, so there should be many. But each gap interrupts a
//! gang that computes, and threads that wait for each other are apart in it. Two programs that
//! block often take 2 to 3 % longer with a gap every 10 ms than with one every 20 ms. And the
//! kernel keeps a share of each CPU for ordinary threads, 5 % unless it is set otherwise. Where
//! gangs leave them less in a second, the kernel stops the gangs, at another moment on every CPU,
//! and the switchers with them. The deadline server takes up to 50 ms at once then, not only what
//! was missing.
//!
//! Approach: unless gaps were asked for, they come twice as often while short tasks come, and where
//! it is not known whether they do. The BPF programs count short tasks. A short task is an ordinary
//! thread that falls asleep on a CPU on which a gang's thread wanted to run on, as happens in gaps.
//! It counts once until a gang's thread is back. A thread that computes all the time has each gap,
//! too, but more gaps would give it no more time.
//!
//! Where periods are well below a second, gaps leave the kernel its share by themselves. A gap is
//! the kernel's share, the time by which gangs are lowered late, as measured, and a margin: that
//! threads are interrupted in a gap, too, is not measured. The time by which gangs are late counts
//! up to the kernel's share and the margin: a host that takes CPUs away lengthens gaps no further.
//! Two gangs that spin on two CPUs had a switch late by 50 to 70 ms in four of six tens of seconds
//! without the margin, and none later than 8 ms in twelve with it.
//!
//! Properties: at the end of a longer period, a shorter one ends as well. Gaps come more often from
//! the second busy look among the last ten on, until at most one of the last ten is busy.

use std::collections::VecDeque;

use gang_schedule::Gap;

/// How often the length is looked at again (CLOCK_MONOTONIC).
const EVERY_NS: u64 = 500_000_000;

/// Part of a period that gaps are longer than they must be.
const MARGIN: f64 = 0.01;

/// Before anything was measured.
const LATE_NS_AT_FIRST: u64 = 100_000;

/// Looks that are remembered: one in a tenth of a second, at the end of the gap that follows.
const LOOKS: u32 = 10;

/// Short tasks from one look to the next that are no reason for more gaps. Something wakes 10 or 20
/// times a second on most machines, and may be served at any time. A person at a terminal is served
/// by dozens of threads.
const FEW: u64 = 4;

/// Looks at more than these, of those that are remembered, from which on there are more gaps.
const BUSY_LOOKS: u32 = 2;

/// Changes that are remembered, for a look back.
const PUBLISHED_MAX: usize = 128;

/// The gaps, as the machine needs them.
#[derive(Clone, Debug)]
pub struct Gaps {
    /// As they come while there are no short tasks: as configured, or the default for the slice.
    asked: Gap,
    short_tasks: Option<ShortTasks>,
    /// The share of a CPU that the kernel keeps for ordinary threads, 0 to 1.
    kept: f64,
    late_ns: u64,
    next_ns: u64,
    is_left_out: bool,
    /// The gaps that switchers got, each with the moment from which it holds (UTC).
    published: VecDeque<(u64, Gap)>,
}

impl Gaps {
    /// Of a kernel that keeps this part of each CPU for ordinary threads. `adapt` where nobody
    /// asked for these gaps, and there may be twice as many.
    pub fn new(kept: f64, asked: Gap, adapt: bool) -> Gaps {
        let short_tasks = adapt.then(ShortTasks::default);
        let late_ns = LATE_NS_AT_FIRST;
        let published = VecDeque::new();
        Gaps { asked, short_tasks, kept, late_ns, next_ns: 0, is_left_out: false, published }
    }

    /// The gaps of the next period.
    pub fn gap(&self) -> Gap {
        let gap = self.usual();
        if self.is_left_out { Gap { length_ns: 0, ..gap } } else { gap }
    }

    /// The gaps that there are where gangs are raised.
    pub fn usual(&self) -> Gap {
        let Gap { period_ns, length_ns } = self.asked;
        let asked = match &self.short_tasks {
            Some(tasks) if tasks.come() => {
                Gap { period_ns: period_ns / 2, length_ns: length_ns / 2 }
            }
            _ => self.asked,
        };
        Gap { length_ns: needed_ns(asked, self.kept, self.late_ns), ..asked }
    }

    /// There are none while uncontended gangs are left to Linux, which raises nobody.
    pub fn leave_out(&mut self, is_left_out: bool) {
        self.is_left_out = is_left_out;
    }

    /// Takes note of the gap that the switchers get from a moment on (UTC).
    pub fn publish(&mut self, from_ns: u64, gap: Gap) {
        while self.published.back().is_some_and(|&(at_ns, _)| at_ns >= from_ns) {
            self.published.pop_back();
        }
        if self.published.back().is_none_or(|&(_, last)| last != gap) {
            self.published.push_back((from_ns, gap));
        }
        let over = self.published.len().saturating_sub(PUBLISHED_MAX);
        self.published.drain(..over);
    }

    /// The gap that was published for a moment (UTC). Before the first moment that is remembered,
    /// it is the first gap that is remembered.
    pub fn published(&self, at_ns: u64) -> Gap {
        let after = self.published.partition_point(|&(from_ns, _)| from_ns <= at_ns);
        self.published.get(after.saturating_sub(1)).map_or(Gap::NONE, |&(_, gap)| gap)
    }

    /// Takes note of how many short tasks there have been up to now; `None` where that is not
    /// measured. True where gaps come more or less often from now on.
    pub fn saw_short_tasks(&mut self, count: Option<u64>) -> bool {
        self.short_tasks.as_mut().is_some_and(|tasks| tasks.saw(count))
    }

    /// Takes note of how late gangs are lowered, on the worst CPU, now and then; `lower_ns` is
    /// asked for it.
    /// `clients` is the share of a CPU that real-time threads of the daemon have besides.
    pub fn adapt(&mut self, now_ns: u64, lower_ns: impl FnOnce() -> u64, clients: f64) {
        if self.asked.length_ns == 0 || self.kept == 0.0 || now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + EVERY_NS;
        let measured_ns = lower_ns();
        if measured_ns > 0 {
            let of_clients_ns = (clients * self.usual().period_ns as f64) as u64;
            self.late_ns = measured_ns + of_clients_ns;
        }
    }
}

/// Whether short tasks come, by the last looks.
#[derive(Clone, Debug, Default)]
struct ShortTasks {
    /// `None` where it is not known.
    count: Option<u64>,
    /// A bit for each look, the last one first: more than a few since the one before.
    looks: u32,
}

impl ShortTasks {
    fn come(&self) -> bool {
        self.count.is_none() || self.looks.count_ones() >= BUSY_LOOKS
    }

    fn saw(&mut self, count: Option<u64>) -> bool {
        let came = self.come();
        let are_many = match (self.count, count) {
            (Some(before), Some(now)) => now.saturating_sub(before) > FEW,
            _ => false,
        };
        self.count = count;
        self.looks = (self.looks << 1 | u32::from(are_many)) & ((1 << LOOKS) - 1);
        self.come() != came
    }
}

/// The length of a gap: at least what was asked for, at most half the period. It has 1.25 times
/// `late_ns`, since a gap that is too short costs much, and one that is too long costs little. This
/// part is at most as long as the other one.
fn needed_ns(asked: Gap, kept: f64, late_ns: u64) -> u64 {
    if asked.length_ns == 0 || kept == 0.0 {
        return asked.length_ns;
    }
    let kept_ns = ((kept + MARGIN) * asked.period_ns as f64).round() as u64;
    let needed_ns = kept_ns + (late_ns + late_ns / 4).min(kept_ns);
    needed_ns.next_multiple_of(10_000).clamp(asked.length_ns, asked.period_ns / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Gap = Gap { period_ns: 10_000_000, length_ns: 500_000 };
    const MS: u64 = 1_000_000;

    #[test]
    fn gaps_leave_the_kernel_its_share() {
        assert_eq!(needed_ns(ASKED, 0.05, 40_000), 650_000);
        assert_eq!(needed_ns(ASKED, 0.01, 40_000), 500_000);
        assert_eq!(needed_ns(ASKED, 0.0, 40_000), 500_000);
        assert_eq!(needed_ns(ASKED, 1.0, 40_000), 5_000_000);
        assert_eq!(needed_ns(ASKED, 0.05, 9_000_000), 1_200_000, "twice the kernel's share");
        assert_eq!(needed_ns(Gap { length_ns: 0, ..ASKED }, 0.05, 40_000), 0);
    }

    fn gaps(adapt: bool) -> Gaps {
        let asked = Gap { period_ns: 20 * MS, length_ns: MS };
        Gaps::new(0.0, asked, adapt)
    }

    fn look(gaps: &mut Gaps, looks: &[Option<u64>]) -> Vec<bool> {
        looks.iter().map(|&count| gaps.saw_short_tasks(count)).collect()
    }

    #[test]
    fn gaps_come_more_often_while_short_tasks_do() {
        let (often, seldom) = (
            Gap { period_ns: 10 * MS, length_ns: MS / 2 },
            Gap { period_ns: 20 * MS, length_ns: MS },
        );
        let mut gaps = gaps(true);
        assert_eq!(gaps.gap(), often, "nobody has looked yet");
        let [none, nobody] = [None, Some(7)].map(|count| [count; 10]);
        assert_eq!(look(&mut gaps, &none), [false; 10], "it is not measured");
        assert_eq!((look(&mut gaps, &[Some(7)]), gaps.gap()), (vec![true], seldom), "nobody yet");
        assert_eq!(look(&mut gaps, &nobody), [false; 10]);
        let few: Vec<_> = (1..=20).map(|look| Some(7 + FEW * look)).collect();
        assert_eq!(look(&mut gaps, &few), [false; 20]);
        assert_eq!(look(&mut gaps, &[120, 120].map(Some)), [false; 2], "once in a second");
        assert_eq!((look(&mut gaps, &[Some(130)]), gaps.gap()), (vec![true], often));
        assert_eq!(look(&mut gaps, &[Some(130); 7]), [false; 7], "for a while");
        assert_eq!((look(&mut gaps, &[Some(130)]), gaps.gap()), (vec![true], seldom));
        assert_eq!(look(&mut gaps, &[None, Some(150)]), [true, true], "not measured in between");
        assert_eq!(look(&mut gaps, &[None]), [true]);
        gaps.leave_out(true);
        assert_eq!((gaps.gap().length_ns, gaps.usual()), (0, often));
    }

    #[test]
    fn published_gaps_are_remembered() {
        let gap = |ms| Gap { period_ns: ms * MS, length_ns: MS };
        let mut gaps = gaps(true);
        assert_eq!(gaps.published(0), Gap::NONE);
        for (from_ns, ms) in [(100, 20), (200, 20), (300, 10), (400, 20), (350, 30)] {
            gaps.publish(from_ns, gap(ms));
        }
        let published =
            [0, 100, 299, 300, 349, 350, 1000].map(|at_ns| gaps.published(at_ns).period_ns / MS);
        assert_eq!(
            published,
            [20, 20, 20, 10, 10, 30, 30],
            "the last one took another one's place"
        );
        (0..1000).for_each(|change| gaps.publish(1000 + change, gap(10 + change % 2)));
        assert_eq!(gaps.published.len(), PUBLISHED_MAX);
        assert_eq!((gaps.published(0), gaps.published(5000)), (gap(10), gap(11)));
    }

    #[test]
    fn gaps_that_were_asked_for_do_not_change() {
        let mut gaps = gaps(false);
        assert_eq!(gaps.gap(), Gap { period_ns: 20 * MS, length_ns: MS });
        assert_eq!(look(&mut gaps, &[10, 20, 30, 40].map(Some)), [false; 4]);
        assert_eq!(gaps.gap().period_ns, 20 * MS);
    }
}
