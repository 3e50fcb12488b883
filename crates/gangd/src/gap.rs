//! How long gaps must be.
//!
//! Problem: the kernel keeps a share of each CPU for ordinary threads, 5 % unless it is set otherwise. Where gangs
//! leave them less in a second, it stops the gangs, at another moment on every CPU, and the switchers with them. The
//! deadline server does so not for what was missing, but for up to 50 ms at once.
//!
//! Approach: gangs leave that share by themselves, where periods are well below a second. A gap takes what the kernel
//! keeps, what gangs have of it because they are lowered late, by as much as was measured, and a margin: that threads
//! are interrupted in a gap, too, is not measured. Two gangs that spin on two CPUs had a switch late by 50 to 70 ms in
//! four of six tens of seconds without the margin, and none later than 8 ms in twelve with it.

use gang_engine::timing::Timings;
use gang_linux::{Roots, sched};
use gang_schedule::Gap;

/// How often the length is looked at again (CLOCK_MONOTONIC).
const EVERY_NS: u64 = 500_000_000;

/// Part of a period that gaps are longer than they must be.
const MARGIN: f64 = 0.01;

/// Before anything was measured.
const LATE_NS_AT_FIRST: u64 = 100_000;

/// The length of the gaps, as the machine needs it.
#[derive(Clone, Debug)]
pub struct GapLength {
    asked: Gap,
    /// What the kernel keeps of a CPU for ordinary threads, 0 to 1.
    kept: f64,
    length_ns: u64,
    next_ns: u64,
    is_left_out: bool,
}

impl GapLength {
    pub fn new(roots: &Roots, asked: Gap) -> GapLength {
        let kept = sched::kept_for_ordinary(roots);
        let length_ns = needed_ns(asked, kept, LATE_NS_AT_FIRST);
        GapLength { asked, kept, length_ns, next_ns: 0, is_left_out: false }
    }

    /// The gaps of the next period.
    pub fn gap(&self) -> Gap {
        let length_ns = if self.is_left_out { 0 } else { self.length_ns };
        Gap { length_ns, ..self.asked }
    }

    /// The gaps that there are where gangs are raised.
    pub fn usual(&self) -> Gap {
        Gap { length_ns: self.length_ns, ..self.asked }
    }

    /// There are none as long as gangs are not raised.
    pub fn leave_out(&mut self, is_left_out: bool) {
        self.is_left_out = is_left_out;
    }

    /// Looks at what switches took, now and then.
    /// `clients` is the share of a CPU that real-time threads of the daemon have besides.
    pub fn adapt<'a>(
        &mut self,
        now_ns: u64,
        timings: impl Iterator<Item = &'a Timings>,
        clients: f64,
    ) {
        if self.asked.length_ns == 0 || self.kept == 0.0 || now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + EVERY_NS;
        let measured_ns = timings.map(Timings::mean_lower_ns).max().unwrap_or(0);
        if measured_ns > 0 {
            let of_clients_ns = (clients * self.asked.period_ns as f64) as u64;
            let taken_ns = measured_ns + of_clients_ns;
            self.length_ns = needed_ns(self.asked, self.kept, taken_ns);
        }
    }
}

/// At least what was asked for, at most half the period. A quarter more than the mean, since what is
/// too little costs much and what is too much costs little.
fn needed_ns(asked: Gap, kept: f64, late_ns: u64) -> u64 {
    if asked.length_ns == 0 || kept == 0.0 {
        return asked.length_ns;
    }
    let kept_ns = ((kept + MARGIN) * asked.period_ns as f64).round() as u64;
    let needed_ns = kept_ns + late_ns + late_ns / 4;
    needed_ns.next_multiple_of(10_000).clamp(asked.length_ns, asked.period_ns / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Gap = Gap { period_ns: 10_000_000, length_ns: 500_000 };

    #[test]
    fn gaps_leave_the_kernel_what_it_keeps() {
        assert_eq!(needed_ns(ASKED, 0.05, 40_000), 650_000);
        assert_eq!(needed_ns(ASKED, 0.01, 40_000), 500_000);
        assert_eq!(needed_ns(ASKED, 0.0, 40_000), 500_000);
        assert_eq!(needed_ns(ASKED, 1.0, 40_000), 5_000_000);
        assert_eq!(needed_ns(Gap { length_ns: 0, ..ASKED }, 0.05, 40_000), 0);
    }
}
