//! The checker of the invariants.

use crate::{Plan, Schedule};

/// Something that must never be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, as one sentence.
    pub invariant: &'static str,
    /// What was found instead, with the numbers.
    pub found: String,
}

/// What is wrong with a plan of this schedule.
pub fn plan(_schedule: &Schedule, _plan: &Plan) -> Vec<Violation> {
    Vec::new()
}
