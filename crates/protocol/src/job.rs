//! Fields of a job's groups that may be absent.

use crate::v1::{Job, Policy};

impl Job {
    /// Memory that it was promised, in bytes.
    pub fn promised_memory(&self) -> Option<i64> {
        self.memory.as_ref().map(|memory| memory.promised_bytes)
    }

    /// Memory that it uses, in bytes.
    pub fn used_memory(&self) -> Option<i64> {
        self.memory.as_ref()?.used_bytes
    }

    /// Whether the kernel lets it have no more memory than it was promised.
    pub fn is_memory_enforced(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.enforced)
    }

    /// The policy that was decided on for a job of policy auto.
    pub fn decided(&self) -> Option<&Policy> {
        self.decision.as_ref()?.policy.as_ref()
    }

    /// Share of the time in its slots in which all of its runnable threads were on CPUs.
    pub fn coscheduled(&self) -> Option<f64> {
        self.measured.as_ref()?.coscheduled
    }

    /// First to last thread at the edges of its slots.
    pub fn skew_ns_p99(&self) -> Option<i64> {
        self.measured.as_ref()?.skew_ns_p99
    }
}
