//! The verdict of pairs of periods: whether a job is to be a gang.
//!
//! Approach: a sequential test. After a few pairs the interval of the gain may lie on one side of
//! the bound above which gang scheduling helps; then it is decided, and no more is spent on it.
//! After many pairs the best guess decides. A program may change while it is compared: where the
//! later pairs clearly say something else than all of them, the earlier ones are forgotten.
//!
//! The gain misses one case. Beside gangs, a program that Linux schedules has the time between
//! their slots, and all CPUs at once. If its threads wait for each other, it loses nothing there
//! until somebody else comes to share that time. So where there is no difference, such a program
//! stays a gang.

use gang_protocol::v1::Policy;

use crate::{
    diagnosis::{Gain, HELPS},
    proof::{self, Pair},
};

/// Fewer say nothing.
pub const PAIRS_MIN: usize = 4;

/// After so many it is decided anyway.
pub const PAIRS_MAX: usize = 14;

/// The facts that are known besides the pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Nature {
    /// Its threads wait for each other, often, and are balanced.
    pub waits: bool,
    /// Gangs are among those that it competes with.
    pub beside_gangs: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub policy: Policy,
    pub gain: Gain,
    pub because: String,
}

/// The decision, once there can be one.
pub fn verdict(pairs: &[Pair], nature: Nature) -> Option<Verdict> {
    if pairs.len() < PAIRS_MIN {
        return None;
    }
    // One that did not compute may do so later.
    let gain = proof::gain_or_bound(pairs)?;
    if proof::is_above(pairs, HELPS).is_none() && pairs.len() < PAIRS_MAX {
        return None;
    }
    let helps = helps(pairs, gain);
    let no_difference = gain.gain.abs() <= HELPS
        || gain.interval.is_some_and(|[low, high]| low <= 0.0 && 0.0 <= high);
    let (policy, because) = if helps {
        (Policy::gang, "it does more as a gang")
    } else if no_difference && nature.waits && nature.beside_gangs {
        (
            Policy::gang,
            "it makes no difference beside gangs, and its threads wait for each other, so that \
             any newcomer would delay them",
        )
    } else if gain.gain < -HELPS {
        (Policy::none, "it does more under plain Linux")
    } else {
        (Policy::none, "it does not do more as a gang")
    };
    Some(Verdict { policy, gain, because: because.to_owned() })
}

fn helps(pairs: &[Pair], gain: Gain) -> bool {
    proof::is_above(pairs, HELPS).unwrap_or(gain.gain > HELPS)
}

/// How many of the first pairs say nothing any more of a program that has changed.
pub fn outdated(pairs: &[Pair]) -> usize {
    let half = pairs.len() / 2;
    let all = proof::gain_or_bound(pairs).map(|gain| helps(pairs, gain));
    let later = proof::is_above(&pairs[half..], HELPS);
    let has_changed = all.zip(later).is_some_and(|(all, later)| all != later);
    if has_changed { half } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(gang: f64, linux: f64, noise: f64, count: usize) -> Vec<Pair> {
        let sign = |at: usize| if at % 2 == 0 { noise } else { -noise };
        (0..count).map(|at| Pair { gang: gang + sign(at), linux: linux - sign(at) }).collect()
    }

    fn decided(pairs: &[Pair], waits: bool, beside_gangs: bool) -> Option<Policy> {
        verdict(pairs, Nature { waits, beside_gangs }).map(|verdict| verdict.policy)
    }

    #[test]
    fn what_is_clear_is_decided_at_once() {
        assert_eq!(decided(&pairs(0.45, 0.1, 0.02, 3), true, false), None);
        assert_eq!(decided(&pairs(0.45, 0.1, 0.02, 4), true, false), Some(Policy::gang));
        assert_eq!(decided(&pairs(0.50, 0.5, 0.002, 4), false, true), Some(Policy::none));
        assert_eq!(decided(&pairs(0.30, 0.5, 0.02, 4), true, true), Some(Policy::none));
        assert_eq!(decided(&pairs(0.30, 0.0, 0.0, 4), false, false), Some(Policy::gang));
    }

    #[test]
    fn unclear_job_is_measured_on_then_decided() {
        let unclear = |count| pairs(0.52, 0.5, 0.1, count);
        assert_eq!(decided(&unclear(4), false, false), None);
        assert_eq!(decided(&unclear(PAIRS_MAX), false, false), Some(Policy::none));
        assert_eq!(decided(&pairs(0.55, 0.5, 0.1, PAIRS_MAX), false, false), Some(Policy::gang));
    }

    #[test]
    fn waiting_threads_without_difference_stay_a_gang() {
        let same = pairs(0.49, 0.5, 0.002, 6);
        assert_eq!(decided(&same, true, true), Some(Policy::gang));
        assert_eq!(decided(&same, true, false), Some(Policy::none));
        assert_eq!(decided(&same, false, true), Some(Policy::none));
    }

    #[test]
    fn changed_program_counts_by_its_later_pairs() {
        // It met, for three pairs, and has nothing to meet for since.
        let mut changed = [pairs(0.45, 0.05, 0.005, 3), pairs(0.5, 0.5, 0.005, 11)].concat();
        assert_eq!(decided(&changed, false, false), Some(Policy::gang));
        changed.drain(..outdated(&changed));
        assert_eq!(decided(&changed, false, false), Some(Policy::none));
        assert_eq!(outdated(&changed), 0);
        for same in [pairs(0.45, 0.05, 0.005, 4), pairs(0.52, 0.5, 0.1, 14), Vec::new()] {
            assert_eq!(outdated(&same), 0);
        }
    }

    #[test]
    fn one_that_does_nothing_is_not_judged() {
        assert_eq!(decided(&pairs(0.0, 0.0, 0.0, PAIRS_MAX), true, true), None);
    }
}
