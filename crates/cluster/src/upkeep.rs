//! The steps by which the parts of this host come to be as the registry wants them.
//!
//! A part is a spanning job on one host. gangd does to it what a client would do to a job: the
//! steps of one part are done in their order, and a step that fails is tried again, as all are
//! compared anew.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::Class;

use crate::record::Wanted;

/// A job that is killed has so long to end by itself.
pub const TERM_NS: u64 = 5_000_000_000;

/// A part that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Here {
    pub nonce: String,
    pub class: Class,
    pub weight: u32,
    pub has_processes: bool,
    pub is_suspended: bool,
}

/// A part as the registry wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToBe {
    pub nonce: String,
    pub class: Class,
    pub weight: u32,
    pub wanted: Wanted,
    /// The wanted state holds from this moment on: it is in force.
    pub is_due: bool,
}

/// A step for one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The part is another job's, by its nonce: it goes on without gangd.
    Release,
    Enter,
    /// It gets the class and the weight of the registry.
    Change,
    Suspend,
    Resume,
    /// Its processes are told to end, and go on until then: programs that stand still do not end.
    Term,
    /// The same; they end at once.
    Kill,
    /// It has no process, and goes.
    Remove,
}

/// The parts that were told to end, with when that was (CLOCK_MONOTONIC), by their nonces.
#[derive(Clone, Debug, Default)]
pub struct Upkeep {
    ending: BTreeMap<String, u64>,
}

impl Upkeep {
    /// The steps that bring a part where it is wanted.
    pub fn steps(&mut self, to_be: &ToBe, here: Option<&Here>, now_ns: u64) -> Vec<Step> {
        // A registry that was restored gives numbers again.
        let of_another = here.is_some_and(|here| here.nonce != to_be.nonce);
        let mut steps = Vec::from_iter(of_another.then_some(Step::Release));
        let Some(here) = here.filter(|_| !of_another) else {
            steps.extend((to_be.wanted != Wanted::Kill).then_some(Step::Enter));
            return steps;
        };
        if (here.class, here.weight) != (to_be.class, to_be.weight) {
            steps.push(Step::Change);
        }
        match to_be.wanted {
            Wanted::Suspend if to_be.is_due && !here.is_suspended => steps.push(Step::Suspend),
            Wanted::Run | Wanted::Release if here.is_suspended => steps.push(Step::Resume),
            Wanted::Kill if to_be.is_due => steps.push(self.end(here, now_ns)),
            Wanted::Run | Wanted::Release | Wanted::Suspend | Wanted::Kill => {}
        }
        steps
    }

    /// The step for a part of a job that is over everywhere, which a client of this host may
    /// [hold](crate::held). Processes that are left go on without gangd, unless they were told to
    /// end.
    pub fn of_gone(&mut self, here: &Here, is_held: bool, now_ns: u64) -> Option<Step> {
        match here.has_processes {
            false => (!is_held).then_some(Step::Remove),
            true => self.ending.contains_key(&here.nonce).then(|| self.end(here, now_ns)),
        }
    }

    fn end(&mut self, here: &Here, now_ns: u64) -> Step {
        if !here.has_processes {
            return Step::Remove;
        }
        let since_ns = *self.ending.entry(here.nonce.clone()).or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < TERM_NS { Step::Term } else { Step::Kill }
    }

    /// Forgets the parts that have none of these nonces.
    pub fn retain(&mut self, nonces: &BTreeSet<&str>) {
        self.ending.retain(|nonce, _| nonces.contains(nonce.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn here() -> Here {
        let nonce = "nonce".to_owned();
        let (class, weight) = (Class::Batch, 100);
        Here { nonce, class, weight, has_processes: true, is_suspended: false }
    }

    fn to_be(wanted: Wanted) -> ToBe {
        let Here { nonce, class, weight, .. } = here();
        ToBe { nonce, class, weight, wanted, is_due: true }
    }

    #[test]
    fn part_comes_to_be_as_it_is_wanted() {
        let suspended = Here { is_suspended: true, ..here() };
        let lighter = Here { weight: 50, ..suspended.clone() };
        let another = Here { nonce: "another".to_owned(), ..here() };
        let later = |wanted| ToBe { is_due: false, ..to_be(wanted) };
        for (to_be, here, steps) in [
            (to_be(Wanted::Run), None, vec![Step::Enter]),
            (to_be(Wanted::Kill), None, vec![]),
            (to_be(Wanted::Run), Some(&another), vec![Step::Release, Step::Enter]),
            (to_be(Wanted::Kill), Some(&another), vec![Step::Release]),
            (to_be(Wanted::Run), Some(&here()), vec![]),
            (to_be(Wanted::Run), Some(&suspended), vec![Step::Resume]),
            (to_be(Wanted::Release), Some(&lighter), vec![Step::Change, Step::Resume]),
            (to_be(Wanted::Suspend), Some(&here()), vec![Step::Suspend]),
            (to_be(Wanted::Suspend), Some(&suspended), vec![]),
            (later(Wanted::Suspend), Some(&here()), vec![]),
            (later(Wanted::Kill), Some(&here()), vec![]),
        ] {
            assert_eq!(Upkeep::default().steps(&to_be, here, S), steps, "{to_be:?} of {here:?}");
        }
    }

    #[test]
    fn killed_part_has_time_to_end() {
        let mut upkeep = Upkeep::default();
        let empty = Here { has_processes: false, ..here() };
        let kill = to_be(Wanted::Kill);
        assert_eq!(upkeep.steps(&kill, Some(&empty), S), [Step::Remove]);
        for (now_ns, step) in [(S, Step::Term), (5 * S, Step::Term), (6 * S, Step::Kill)] {
            assert_eq!(upkeep.steps(&kill, Some(&here()), now_ns), [step], "{now_ns}");
        }
        // The job is over everywhere else.
        assert_eq!(upkeep.of_gone(&here(), false, 7 * S), Some(Step::Kill));
        upkeep.retain(&BTreeSet::from(["another"]));
        assert_eq!(upkeep.of_gone(&here(), false, 8 * S), None, "they go on without gangd");
    }

    #[test]
    fn part_that_is_over_stays_while_it_is_held() {
        let mut upkeep = Upkeep::default();
        let empty = Here { has_processes: false, ..here() };
        assert_eq!(upkeep.of_gone(&empty, true, S), None);
        assert_eq!(upkeep.of_gone(&empty, false, S), Some(Step::Remove));
    }
}
