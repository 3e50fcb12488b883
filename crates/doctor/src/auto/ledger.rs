//! The cost of proving a job so far, and its limit.
//!
//! Approach: a job has an account with two thirds of a share of its lifetime: a hundredth, unless
//! it is set. The last third is for costs that the account leaves out (jobs are listed every
//! second) or has too low. Three things are taken from it: of each pair of periods, the time that
//! the worse of the two lost; the start of each watch; and a share of all time that is watched. A
//! comparison or a glance that the job cannot pay waits until it can. Only the glance at the end of
//! a comparison, by which the job is known later, is taken in any case.

/// The cost of watching: twice the measured one (SPECIFICATION.md).
const WATCHING: f64 = 0.03;

/// Of what may be spent, what is. While it was all of it, five minutes of threads that meet every
/// 100 µs, which spend what they may, cost 1.2 % (`gang lab auto`).
const SPENT: f64 = 2.0 / 3.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ledger {
    /// The part of the job's time that may be spent.
    share: f64,
    spent_s: f64,
}

impl Ledger {
    /// The time to begin to watch, most of it in the kernel, which checks the BPF programs.
    pub const BEGINNING_S: f64 = 0.05;

    pub fn new(share: f64) -> Ledger {
        Ledger { share, spent_s: 0.0 }
    }

    /// Whether something can be paid that costs at most `cost_s`, by a job that has lived for
    /// `lived_s`.
    pub fn affords(&self, lived_s: f64, cost_s: f64) -> bool {
        self.spent_s + cost_s <= SPENT * self.share * lived_s
    }

    /// The cost of watching once, for so long.
    pub fn watching_once(seconds: f64) -> f64 {
        Ledger::BEGINNING_S + Ledger::watching(seconds)
    }

    /// The cost of watching for so long.
    pub fn watching(seconds: f64) -> f64 {
        seconds * WATCHING
    }

    pub fn began(&mut self) {
        self.spent_s += Ledger::BEGINNING_S;
    }

    pub fn watched(&mut self, seconds: f64) {
        self.spent_s += Ledger::watching(seconds);
    }

    /// One period of `seconds` went with the pace `worse` in the place of `better`.
    pub fn lost(&mut self, seconds: f64, better: f64, worse: f64) {
        if better > 0.0 {
            self.spent_s += seconds * ((better - worse) / better).clamp(0.0, 1.0);
        }
    }

    #[cfg(test)]
    pub fn spent_s(&self) -> f64 {
        self.spent_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_hundredth_is_spent() {
        let mut ledger = Ledger::new(0.01);
        let (mut lived_s, mut pairs) = (0.0, 0);
        while lived_s < 1000.0 {
            // The worst case: under plain Linux nothing is done at all.
            if ledger.affords(lived_s, Ledger::BEGINNING_S + 0.3 + Ledger::watching(0.6)) {
                ledger.began();
                ledger.lost(0.3, 1.0, 0.0);
                ledger.watched(0.6);
                pairs += 1;
            }
            lived_s += 0.6;
        }
        assert!(ledger.spent_s() <= 6.7 && pairs > 16, "{} s, {pairs}", ledger.spent_s());
    }

    #[test]
    fn glances_of_a_changing_job_cost_no_more() {
        let mut ledger = Ledger::new(0.01);
        let due = (5..1000).step_by(5).map(f64::from);
        let glances = due.filter(|&lived_s| {
            let affords = ledger.affords(lived_s, Ledger::watching_once(0.5));
            if affords {
                ledger.began();
                ledger.watched(0.5);
            }
            affords
        });
        let glances = glances.count();
        assert!(ledger.spent_s() <= 6.7 && (90..199).contains(&glances), "{glances}");
    }

    #[test]
    fn who_has_not_lived_long_enough_pays_nothing() {
        let ledger = Ledger::new(0.01);
        assert!(!ledger.affords(47.0, 0.32) && ledger.affords(49.0, 0.32));
    }

    #[test]
    fn what_makes_no_difference_costs_next_to_nothing() {
        let mut ledger = Ledger::new(0.01);
        (0..12).for_each(|_| {
            ledger.lost(0.3, 0.50, 0.49);
            ledger.watched(0.6);
        });
        assert!(ledger.spent_s() < 0.35, "{}", ledger.spent_s());
        ledger.lost(1.0, 0.0, 0.0);
    }
}
