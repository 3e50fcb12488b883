//! Whether gangs have the machine for themselves.
//!
//! Problem: a gang that nobody competes with has nobody to be raised above, and pays for being
//! raised. Each gap interrupts its threads for nobody. Threads that block and wake in a gap gather
//! on few CPUs: 2 to 3 % of a program that blocks often.
//!
//! Approach: where every row has the same gangs, no other gang wants a slot, and no other thread is
//! known to want a CPU, gangs are left to Linux in their slots, without gaps. A thread that wants a
//! CPU only for a moment, again and again, is no load, and disturbs gangs all the same. So it is
//! measured for which part of the time some thread of theirs waited. Above a bound, and after a
//! load, gangs are raised for a second. They are raised for twice as long each time that this
//! happens soon after they were let go: so an intermittent load does not have them change all the
//! time.
//!
//! Properties: a gang that is not measured is raised. So are all gangs, from the next slice on,
//! when another gang or a load comes.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{JobId, Plan, Slot};

use crate::Load;

/// The figures of a gang up to a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    pub job: JobId,
    /// Time in which it wanted to run, and in which all of its threads that wanted to did.
    pub wanted_ns: u64,
    pub coscheduled_ns: u64,
}

/// The part of the time in which not all threads that want to run do so, from which on gangs are
/// raised. Two processes that each took a CPU for 5 of 100 ms from a program of many barriers cost
/// it 3.5 % more where it was not raised. With 0.5 of 50 ms, 2 % of the time, it was the other way
/// round.
const DISTURBED: f64 = 0.05;

/// The time over which that is judged.
const JUDGED_NS: u64 = 250_000_000;

/// For how long they are raised, at first and at most.
const RAISED_NS: u64 = 1_000_000_000;
const RAISED_NS_MAX: u64 = 16_000_000_000;

/// Whether gangs are disturbed, as far as it is known. Times are CLOCK_MONOTONIC.
#[derive(Debug)]
pub struct Uncontended {
    /// The setting `uncontended_passthrough`.
    is_on: bool,
    /// Sums of each uncontended gang at the last look.
    figures: BTreeMap<JobId, (u64, u64)>,
    looked_ns: u64,
    raised_until_ns: u64,
    /// How long that was, or is to be after a load; 0 before the first time.
    raised_for_ns: u64,
    /// Somebody is left to Linux by the last plans, since when.
    let_go_ns: Option<u64>,
}

impl Uncontended {
    pub fn new(is_on: bool) -> Uncontended {
        Uncontended {
            is_on,
            figures: BTreeMap::new(),
            looked_ns: 0,
            raised_until_ns: 0,
            raised_for_ns: 0,
            let_go_ns: None,
        }
    }

    /// The gangs that are left to Linux in their slots of these plans: all that have one, or none.
    /// `is_possible` is whether the daemon schedules in a way that permits it, `can_be` whether one
    /// gang can be left.
    pub fn gangs(
        &mut self,
        now_ns: u64,
        is_possible: bool,
        load: &Load,
        plans: &[Plan],
        can_be: impl Fn(JobId) -> bool,
    ) -> BTreeSet<JobId> {
        let is_let_go = self.is_on && is_possible && self.is_let_go(now_ns, load);
        let row =
            same_row(plans).filter(|row| is_let_go && row.iter().all(|slot| can_be(slot.job)));
        let gangs: BTreeSet<JobId> = row.into_iter().flatten().map(|slot| slot.job).collect();
        self.let_go_ns = self.let_go_ns.or(Some(now_ns)).filter(|_| !gangs.is_empty());
        gangs
    }

    /// Takes note of other threads that want a CPU; true where none does, and none did a moment
    /// ago.
    fn is_let_go(&mut self, now_ns: u64, load: &Load) -> bool {
        if load.threads() > 0 {
            if self.let_go_ns.is_some() {
                self.raise_for_a_while(now_ns);
            }
            self.raised_until_ns = self.raised_until_ns.max(now_ns + self.raised_for_ns);
            return false;
        }
        load.is_known() && now_ns >= self.raised_until_ns
    }

    /// Other gangs are uncontended from now on, or none is: earlier figures are of another time.
    pub fn begin_anew(&mut self, now_ns: u64) {
        self.figures.clear();
        self.looked_ns = now_ns;
    }

    /// Takes note of what was measured of uncontended gangs; true where they are to be raised
    /// now.
    pub fn is_disturbed(&mut self, now_ns: u64, measured: impl Iterator<Item = Measured>) -> bool {
        if now_ns < self.looked_ns + JUDGED_NS {
            return false;
        }
        let sums = |of: Measured| (of.job, (of.wanted_ns, of.coscheduled_ns));
        let figures: BTreeMap<JobId, (u64, u64)> = measured.map(sums).collect();
        let is_disturbed = figures.iter().any(|(job, now)| {
            let Some(before) = self.figures.get(job) else { return false };
            let wanted_ns = now.0.saturating_sub(before.0);
            let apart_ns = wanted_ns.saturating_sub(now.1.saturating_sub(before.1));
            // Of one that hardly ran, a moment is a large part.
            apart_ns as f64 > DISTURBED * wanted_ns.max(JUDGED_NS) as f64
        });
        (self.figures, self.looked_ns) = (figures, now_ns);
        if is_disturbed {
            self.raise_for_a_while(now_ns);
        }
        is_disturbed
    }

    fn raise_for_a_while(&mut self, now_ns: u64) {
        if now_ns < self.raised_until_ns {
            return;
        }
        let is_soon = self.let_go_ns.is_some_and(|at_ns| now_ns < at_ns + self.raised_for_ns);
        self.raised_for_ns = match is_soon {
            true => (2 * self.raised_for_ns).min(RAISED_NS_MAX),
            false => RAISED_NS,
        };
        self.raised_until_ns = now_ns + self.raised_for_ns;
    }
}

/// The slots that all plans have, where nobody waits for another one.
fn same_row(plans: &[Plan]) -> Option<&[Slot]> {
    let row = &plans.first().filter(|plan| !plan.row.is_empty())?.row;
    let is_same = |plan: &Plan| {
        let slots = plan.row.iter();
        plan.row.len() == row.len() && slots.into_iter().all(|slot| row.contains(slot))
    };
    plans.iter().all(|plan| is_same(plan) && plan.fillers.is_empty()).then_some(row)
}

#[cfg(test)]
mod tests {
    use gang_schedule::{Config, Event, Schedule, Spec, Topology};
    use gang_timetable::Runnable;

    use super::*;

    const MS: u64 = 1_000_000;

    fn figures(wanted_ns: u64, coscheduled_ns: u64) -> impl Iterator<Item = Measured> {
        std::iter::once(Measured { job: JobId(1), wanted_ns, coscheduled_ns })
    }

    #[test]
    fn a_row_is_the_same_where_nobody_waits() {
        let mut schedule = Schedule::new(Config::default(), Topology::flat(4)).unwrap();
        let mut plans = |number: u64| -> Vec<Plan> {
            let arrived = Event::Arrived { job: JobId(number), spec: Spec::new(2) };
            schedule.apply(arrived).unwrap();
            (100 * number..100 * number + 20).map(|slice| schedule.plan(slice)).collect()
        };
        let jobs = |plans: &[Plan]| {
            same_row(plans).map(|row| row.iter().map(|slot| slot.job.0).collect::<BTreeSet<_>>())
        };
        assert_eq!(jobs(&[]), None);
        let (one, two, three) = (plans(1), plans(2), plans(3));
        assert_eq!(jobs(&one), Some(BTreeSet::from([1])));
        assert_eq!(jobs(&two), Some(BTreeSet::from([1, 2])), "they fit beside each other");
        assert_eq!(jobs(&three), None, "one of three waits");
        assert_eq!(jobs(&[one, two].concat()), None, "one comes");
    }

    #[test]
    fn disturbed_gangs_are_raised_longer_each_time() {
        let mut uncontended = Uncontended::new(true);
        let mut now_ns = 1_000 * MS;
        let mut wanted_ns = 0;
        // Undisturbed as long as all threads run for 95 % of the time.
        for apart in [0, 1, 4, 5] {
            wanted_ns += 250 * MS;
            now_ns += 250 * MS;
            let coscheduled_ns = wanted_ns - apart * 250 * MS / 100;
            assert!(
                !uncontended.is_disturbed(now_ns, figures(wanted_ns, coscheduled_ns)),
                "{apart} %"
            );
            // The next one begins anew.
            uncontended.figures.insert(JobId(1), (wanted_ns, wanted_ns));
        }
        for raised_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 16_000] {
            uncontended.let_go_ns = Some(now_ns);
            (0..2).for_each(|_| now_ns += 250 * MS);
            uncontended.figures.insert(JobId(1), (0, 0));
            assert!(uncontended.is_disturbed(now_ns, figures(250 * MS, 200 * MS)));
            assert_eq!(uncontended.raised_until_ns, now_ns + raised_ms * MS);
            now_ns = uncontended.raised_until_ns;
        }
        uncontended.let_go_ns = Some(now_ns);
        now_ns += 20_000 * MS;
        uncontended.figures.insert(JobId(1), (0, 0));
        assert!(uncontended.is_disturbed(now_ns, figures(250 * MS, 200 * MS)));
        assert_eq!(uncontended.raised_until_ns, now_ns + 1_000 * MS, "long after they were let go");
    }

    fn load_of(threads: u32) -> Load {
        let mut load = Load::default();
        (0..3).for_each(|_| load.saw(threads, Runnable::default(), 0, 2));
        load
    }

    #[test]
    fn after_a_load_they_are_raised_for_a_while() {
        let mut uncontended = Uncontended::new(true);
        let [quiet, busy] = [0, 1].map(load_of);
        let mut now_ns = 1_000 * MS;
        assert!(!uncontended.is_let_go(now_ns, &Load::default()), "nobody looked yet");
        assert!(!uncontended.is_let_go(now_ns, &busy));
        assert!(uncontended.is_let_go(now_ns, &quiet), "no gang was uncontended before the load");
        let mut comes = |quiet_ms, stays_ms, raised_ms| {
            uncontended.let_go_ns = Some(now_ns);
            now_ns += quiet_ms * MS;
            assert!(!uncontended.is_let_go(now_ns, &busy));
            uncontended.let_go_ns = None;
            now_ns += stays_ms * MS;
            assert!(!uncontended.is_let_go(now_ns, &busy));
            now_ns += raised_ms * MS;
            assert!(
                !uncontended.is_let_go(now_ns - 1, &quiet) && uncontended.is_let_go(now_ns, &quiet)
            );
        };
        comes(500, 0, 1_000);
        comes(500, 3_000, 2_000);
        comes(1_999, 10_000, 4_000);
        comes(4_000, 10_000, 1_000);
    }

    #[test]
    fn a_load_that_disturbs_counts_once() {
        let mut uncontended = Uncontended::new(true);
        let now_ns = 1_000 * MS;
        uncontended.let_go_ns = Some(now_ns - 500 * MS);
        uncontended.figures.insert(JobId(1), (0, 0));
        assert!(uncontended.is_disturbed(now_ns, figures(250 * MS, 100 * MS)));
        assert!(!uncontended.is_let_go(now_ns + MS, &load_of(1)));
        assert_eq!(uncontended.raised_until_ns, now_ns + MS + RAISED_NS);
    }

    #[test]
    fn first_look_finds_no_disturbance() {
        let mut uncontended = Uncontended::new(true);
        assert!(!uncontended.is_disturbed(1_000 * MS, figures(900 * MS, 0)));
        assert!(
            !uncontended.is_disturbed(1_100 * MS, figures(1_000 * MS, 0)),
            "too early to judge"
        );
        assert!(uncontended.is_disturbed(1_250 * MS, figures(1_150 * MS, 0)));
        uncontended.begin_anew(1_300 * MS);
        assert!(
            !uncontended.is_disturbed(1_600 * MS, figures(1_900 * MS, 0)),
            "others are uncontended"
        );
        assert!(uncontended.is_disturbed(1_900 * MS, figures(2_200 * MS, 0)));
    }
}
