//! When gangs give way to their rivals.
//!
//! Problem: a *rival* is a real-time thread of the priority that gangs have in their slots, and of
//! no gang. The kernel puts a rival that wakes behind the gang's thread that has the CPU, so that
//! the rival waits for the end of the slot. If gangs gave way each time, a rival that hardly sleeps
//! would have the slots.
//!
//! Approach: the gang's thread goes behind the rival, and has the CPU again as soon as the rival
//! sleeps. Rivals have an allowance on each CPU, which grows with the time of slots there. The time
//! that they have because a gang gave way is charged. When the allowance is used up, the CPU is
//! *closed* until some of it has grown again: rivals that wake wait for the end of the slot.
//!
//! A rival that has a CPU keeps it until it sleeps, or until its turn is over (SCHED_RR), as the
//! kernel has it among equals.
//!
//! Properties: on each CPU, rivals that sleep at times take [`SHARE`] of the slots at most, and
//! [`AT_ONCE_NS`] besides. Rivals are heard of less than 1,000 times a second there in the long
//! run.

use std::collections::BTreeMap;

/// The share of slots that rivals may take. The compositor of a desktop needs some milliseconds in
/// each 16.7; gangs keep most of their slots beside it.
pub const SHARE: f64 = 0.2;

/// The most that rivals may take at once: what they may take of slots of a second.
pub const AT_ONCE_NS: i64 = 200_000_000;

/// The price of one report to the gangs: two threads of the daemon run before them.
const REPORT_NS: i64 = 200_000;

/// A closed CPU opens again with so much: the work of a frame.
const OPENS_WITH_NS: i64 = 10_000_000;

/// A rival waits behind a gang's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub cpu: u32,
    /// The gang's thread that has the CPU.
    pub raised: u32,
    /// The thread was asked to give way a moment ago, and did not.
    pub was_asked: bool,
    /// The time of slots on the CPU, ever, and what rivals had of it because gangs gave way.
    pub slots_ns: u64,
    pub used_ns: u64,
}

/// The next step for a rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A gang's thread goes behind its rivals. As a rule the switcher of the CPU has the thread in
    /// its timetable; `by_any` says that another one must.
    GiveWay { cpu: u32, tid: u32, by_any: bool },
    /// Rivals on the CPU are not heard of until the time of slots there is so long.
    Close { cpu: u32, until_ns: u64 },
}

#[derive(Debug)]
struct Way {
    left_ns: i64,
    /// As they were when it was last charged.
    slots_ns: u64,
    used_ns: u64,
}

impl Way {
    fn charge(&mut self, slots_ns: u64, used_ns: u64) {
        let passed_ns = slots_ns.saturating_sub(self.slots_ns) as f64;
        let more_ns = used_ns.saturating_sub(self.used_ns) as i64 + REPORT_NS;
        let left_ns = self.left_ns + (passed_ns * SHARE) as i64 - more_ns;
        *self = Way { left_ns: left_ns.clamp(-AT_ONCE_NS, AT_ONCE_NS), slots_ns, used_ns };
    }
}

/// The allowances of rivals.
#[derive(Debug, Default)]
pub struct Ways(BTreeMap<u32, Way>);

impl Ways {
    /// A rival was reported.
    pub fn reported(&mut self, report: Report) -> Step {
        let Report { cpu, raised: tid, was_asked, slots_ns, used_ns } = report;
        let new = || Way { left_ns: AT_ONCE_NS, slots_ns, used_ns };
        let way = self.0.entry(cpu).or_insert_with(new);
        way.charge(slots_ns, used_ns);
        if way.left_ns > 0 {
            return Step::GiveWay { cpu, tid, by_any: was_asked };
        }
        let missing_ns = (OPENS_WITH_NS - way.left_ns) as f64;
        Step::Close { cpu, until_ns: slots_ns + (missing_ns / SHARE) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const S: u64 = 1_000_000_000;

    fn report(slots_ns: u64, used_ns: u64) -> Report {
        Report { cpu: 3, raised: 70, was_asked: false, slots_ns, used_ns }
    }

    /// A rival that wants a CPU for some time, every so often, beside a slot without an end.
    /// Returns the time it had, and how often it was heard of.
    fn wants(work_ns: u64, every_ns: u64, until_ns: u64) -> (u64, u64) {
        let (mut ways, mut used_ns, mut heard, mut closed_until_ns) = (Ways::default(), 0, 0, 0);
        for slots_ns in (0..until_ns).step_by(every_ns as usize) {
            if slots_ns < closed_until_ns {
                continue;
            }
            heard += 1;
            match ways.reported(report(slots_ns, used_ns)) {
                Step::GiveWay { cpu: 3, tid: 70, by_any: false } => used_ns += work_ns,
                Step::Close { cpu: 3, until_ns } => closed_until_ns = until_ns,
                other => panic!("{other:?}"),
            }
        }
        (used_ns, heard)
    }

    #[test]
    fn compositor_is_never_late() {
        assert_eq!(wants(3 * MS, 16_700 * US, 1670 * S), (100_000 * 3 * MS, 100_000));
    }

    #[test]
    fn rival_that_hardly_sleeps_has_its_share() {
        assert_eq!(wants(9 * MS, 10 * MS, 100 * MS).0, 90 * MS);
        for (work_ns, every_ns) in [(9 * MS, 10 * MS), (90 * MS, 91 * MS), (900 * US, MS)] {
            for seconds in [1, 10, 100] {
                let most_ns = (seconds * S) as f64 * SHARE + AT_ONCE_NS as f64 + work_ns as f64;
                let used_ns = wants(work_ns, every_ns, seconds * S).0 as f64;
                assert!((most_ns * 0.6..=most_ns).contains(&used_ns), "{seconds} s: {used_ns}");
            }
        }
    }

    #[test]
    fn rival_that_wakes_too_often_is_not_heard() {
        let heard = wants(0, 20 * US, 10 * S).1;
        assert!((8_000..=11_100).contains(&heard), "{heard} in 10 s");
    }

    #[test]
    fn every_cpu_has_its_allowance() {
        let mut ways = Ways::default();
        ways.reported(report(0, 0));
        // A second on the CPU counts for no more than all that there is.
        let closed = Step::Close { cpu: 3, until_ns: S + 210 * MS * 5 };
        assert_eq!(ways.reported(report(S, S)), closed);
        let again = Report { cpu: 4, was_asked: true, ..report(9 * S, 5 * S) };
        let gives_way = Step::GiveWay { cpu: 4, tid: 70, by_any: true };
        assert_eq!(ways.reported(again), gives_way);
    }

    #[test]
    fn an_allowance_that_was_not_used_grows_to_its_limit() {
        let mut ways = Ways::default();
        ways.reported(report(0, 0));
        // Less than its share all the time, and then much at once.
        assert!(matches!(ways.reported(report(3600 * S, 360 * S)), Step::GiveWay { .. }));
        let used_ns = 360 * S + 2 * AT_ONCE_NS as u64;
        assert!(matches!(ways.reported(report(3600 * S, used_ns)), Step::Close { .. }));
    }
}
