//! How a job behaves, as far as it matters for what is better for it, and whether that has changed.
//!
//! A change of any of these counts. The number of threads that compute: by a quarter, and one at
//! least. How often a thread blocks: by a factor of three. How much of their time on CPUs its
//! threads wait for each other: by a quarter, or by a factor of five where that is no chance. How
//! many threads compete: by a factor of two. Whether gangs are among those. A change must be seen
//! twice in a row.

use crate::figures::ProgramFigures;

/// So much of its time more or less is another waiting, and so many times as much, where it is no
/// chance.
const WAITS_MORE: f64 = 0.25;
const WAITS_TIMES: f64 = 5.0;

/// Two shares that are so many standard errors apart do not differ by chance (1 in 80).
const ERRORS: f64 = 2.5;

const WAITS: &str = "its threads wait for each other more or less than before";

/// Blocking less often than this, in sleeps a second of a thread, is as good as never.
const BLOCKS: f64 = 50.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Behaviour {
    /// Threads that compute.
    pub threads: usize,
    /// How often each of them sleeps in a second.
    pub sleeps_per_s: f64,
    /// How often it was seen on a CPU, and the share of these in which it waited for others.
    pub looks: usize,
    pub spinning: f64,
    pub competition: Competition,
}

/// The competition for the CPUs that the job could use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Competition {
    /// Threads of others.
    pub threads: f64,
    /// Some of them are gangs.
    pub has_gangs: bool,
    /// There is less for all than they want.
    pub is_tight: bool,
}

impl Behaviour {
    pub fn of(figures: &ProgramFigures, competition: Competition) -> Behaviour {
        let sleeps: u64 = figures.sleeps.values().map(|sleeps| sleeps.count).sum();
        let thread_seconds = figures.seconds.max(0.001) * figures.threads.max(1) as f64;
        Behaviour {
            threads: figures.threads,
            sleeps_per_s: sleeps as f64 / thread_seconds,
            looks: figures.looks_on_cpu,
            spinning: figures.spinning,
            competition,
        }
    }

    /// The difference because of which the decision may be wrong now.
    pub fn change(&self, now: &Behaviour) -> Option<&'static str> {
        // Where nobody competes it is the same to it what it is.
        if !now.competition.is_tight {
            return None;
        }
        let few = self.threads.min(now.threads);
        if self.threads.abs_diff(now.threads) > (few / 4) {
            return Some("another number of its threads computes");
        }
        let (slept, sleeps) = (self.sleeps_per_s.max(BLOCKS), now.sleeps_per_s.max(BLOCKS));
        if factor(slept, sleeps) > 3.0 {
            return Some("its threads block more or less often");
        }
        if self.waits_otherwise_than((now.looks, now.spinning)) {
            return Some(WAITS);
        }
        self.competition.change(&now.competition)
    }

    /// The difference that several glances show as a pool, of which none shows it by itself. One
    /// glance has some fifty looks; threads that wait for a twentieth of their time have two or
    /// three of them.
    pub fn change_over(&self, glances: &[Behaviour]) -> Option<&'static str> {
        self.waits_otherwise_than(pooled(glances)).then_some(WAITS)
    }

    /// Than at so many looks, of which this share found it waiting.
    fn waits_otherwise_than(&self, (looks, spinning): (usize, f64)) -> bool {
        let differs = (self.spinning - spinning).abs();
        let is_multiple = self.spinning.max(spinning) > WAITS_TIMES * self.spinning.min(spinning);
        let error = standard_error([(self.looks, self.spinning), (looks, spinning)]);
        differs > WAITS_MORE || is_multiple && differs > ERRORS * error
    }
}

/// The looks of some glances, and the share of them that found it waiting.
fn pooled(glances: &[Behaviour]) -> (usize, f64) {
    let looks = glances.iter().map(|it| it.looks).sum::<usize>();
    let waits = glances.iter().map(|it| it.spinning * it.looks as f64).sum::<f64>();
    (looks, waits / looks.max(1) as f64)
}

/// Of the difference of two shares of so many looks, if both are the same (the test of two
/// proportions).
fn standard_error(of: [(usize, f64); 2]) -> f64 {
    let looks = of.map(|(looks, _)| looks.max(1) as f64);
    let waits: f64 = of.iter().zip(looks).map(|((_, share), looks)| share * looks).sum();
    let share = waits / looks.iter().sum::<f64>();
    (share * (1.0 - share) * looks.map(f64::recip).iter().sum::<f64>()).sqrt()
}

impl Competition {
    /// The difference because of which the decision may be wrong now.
    pub fn change(&self, now: &Competition) -> Option<&'static str> {
        if !now.is_tight {
            return None;
        }
        if self.has_gangs != now.has_gangs {
            return Some(if now.has_gangs { "gangs compete now" } else { "no gang competes now" });
        }
        (factor(self.threads + 0.5, now.threads + 0.5) > 2.0)
            .then_some("more or fewer others compete")
    }
}

fn factor(a: f64, b: f64) -> f64 {
    a.max(b) / a.min(b).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_a_change() {
        let competition = Competition { threads: 2.0, has_gangs: true, is_tight: true };
        let usual =
            Behaviour { threads: 2, sleeps_per_s: 5.0, looks: 200, spinning: 0.1, competition };
        assert_eq!(usual.change(&usual), None);
        let slightly = Behaviour {
            sleeps_per_s: 100.0,
            spinning: 0.03,
            competition: Competition { threads: 3.0, ..competition },
            ..usual
        };
        assert_eq!(usual.change(&slightly), None);
        let more = |threads| Competition { threads, ..competition };
        let no_gangs = Competition { has_gangs: false, ..competition };
        for changed in [
            Behaviour { threads: 1, ..usual },
            Behaviour { threads: 4, ..usual },
            Behaviour { sleeps_per_s: 1000.0, ..usual },
            Behaviour { spinning: 0.0, ..usual },
            Behaviour { spinning: 0.015, ..usual },
            Behaviour { spinning: 0.5, ..usual },
            Behaviour { competition: more(6.0), ..usual },
            Behaviour { competition: more(0.5), ..usual },
            Behaviour { competition: no_gangs, ..usual },
        ] {
            assert!(usual.change(&changed).is_some(), "{changed:?}");
            assert!(changed.change(&usual).is_some(), "{changed:?}");
        }
        let seldom = Behaviour { spinning: 0.01, ..usual };
        let never = Behaviour { spinning: 0.0, ..usual };
        assert_eq!(seldom.change(&never), None, "two looks of 200 are chance");
        let nobody = Competition { threads: 0.0, has_gangs: false, is_tight: false };
        assert_eq!(usual.change(&Behaviour { competition: nobody, ..usual }), None);
    }

    #[test]
    fn what_one_glance_is_too_short_to_show_several_do() {
        let usual =
            Behaviour { threads: 2, looks: 51, spinning: 3.0 / 51.0, ..Behaviour::default() };
        let competition = Competition { threads: 6.0, has_gangs: false, is_tight: true };
        let usual = Behaviour { competition, ..usual };
        let never = Behaviour { looks: 52, spinning: 0.0, ..usual };
        assert_eq!(usual.change(&never), None, "three looks of 51 may be chance");
        assert!(usual.change_over(&[never; 3]).is_some());
        assert_eq!(usual.change_over(&[usual; 3]), None);
        assert_eq!(pooled(&[]), (0, 0.0));
    }
}
