//! The time of a first answer.

use std::time::{Duration, Instant};

use crate::harness::lab::Lab;

/// In so much time a first answer is there, but for the last round and what is measured in one
/// piece.
pub(super) const FIRST_ANSWER: Duration = Duration::from_secs(60);

/// The part of it that a run has taken.
pub(super) struct Budget<'a> {
    lab: &'a Lab,
    begun: Instant,
    /// Rounds that were measured since then.
    measured: u32,
}

impl<'a> Budget<'a> {
    pub(super) fn begin(lab: &'a Lab) -> Budget<'a> {
        Budget { lab, begun: Instant::now(), measured: 0 }
    }

    /// Whether it is limited: where a first answer is asked for, and not how many rounds.
    pub(super) fn is_limited(&self) -> bool {
        self.lab.options.quick && self.lab.options.runs.is_none()
    }

    /// Whether there is time for what takes so many times as long as a round.
    pub(super) fn has_time_for(&self, rounds: f64) -> bool {
        let taken = self.begun.elapsed().mul_f64(rounds);
        !self.is_limited() || is_time_for_another(self.measured, taken, self.lab.began.elapsed())
    }

    pub(super) fn has_measured(&self) -> bool {
        self.measured > 0
    }

    /// Counts one more round.
    pub(super) fn take_round(&mut self) {
        self.measured += 1;
    }
}

/// Whether a first answer has time for one more round: where it takes as long as those that were
/// measured in `taken`. There is one in any case.
fn is_time_for_another(measured: u32, taken: Duration, since_beginning: Duration) -> bool {
    measured == 0 || since_beginning + taken / measured <= FIRST_ANSWER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_answer_takes_a_minute() {
        let s = Duration::from_secs;
        assert!(is_time_for_another(0, s(0), s(500)), "without a round there is no answer");
        assert!(is_time_for_another(1, s(20), s(30)) && is_time_for_another(2, s(40), s(40)));
        assert!(!is_time_for_another(1, s(31), s(31)) && !is_time_for_another(2, s(40), s(41)));
    }
}
