//! What proving a job has cost it, and what it may.
//!
//! Approach: a job has to its account two thirds of a share of the time that it has lived, a hundredth unless it is
//! set. The rest is for what the account does not have (jobs are listed every second), or has too low. What is taken
//! from it: of each pair of periods the part that was lost in the worse of the two, what it takes to begin to
//! watch, and a share of all time in which it is watched. A comparison or a glance that it cannot pay is not made until
//! it can. Only the glance at the end of a comparison, by which it is known later, is taken from it in any case.

/// What watching costs: twice what was measured (SPECIFICATION.md).
const WATCHING: f64 = 0.03;

/// Of what may be spent, what is. While it was all of it, five minutes of threads that meet every 100 µs, which spend what
/// they may, cost 1.2 % (`gang lab auto`).
const SPENT: f64 = 2.0 / 3.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ledger {
    /// What may be spent of the job's time.
    share: f64,
    spent_s: f64,
}

impl Ledger {
    /// What it takes to begin to watch, most of it for the kernel, which checks the programs that look.
    pub const BEGINNING_S: f64 = 0.05;

    pub fn new(share: f64) -> Ledger {
        Ledger { share, spent_s: 0.0 }
    }

    /// Whether something can be paid that costs at most `cost_s`, by a job that has lived for `lived_s`.
    pub fn affords(&self, lived_s: f64, cost_s: f64) -> bool {
        self.spent_s + cost_s <= SPENT * self.share * lived_s
    }

    /// What it costs to watch once, for so long.
    pub fn watching_once(seconds: f64) -> f64 {
        Ledger::BEGINNING_S + Ledger::watching(seconds)
    }

    /// What watching for so long costs.
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
            // The worst there is: by Linux alone nothing is done at all.
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
    fn glances_of_one_that_changes_all_the_time_cost_no_more_either() {
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
