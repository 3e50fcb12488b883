//! The life of jobs: how they come, change, lose and get members, and end.
//!
//! Client threads do this work. Each step asks the conductor for a decision, files the decision, and
//! makes the slow calls to the kernel before or after. [`crate::daemon::Daemon`] has the methods.

pub mod admission;
pub mod attach;
pub mod auto;
pub mod changes;
pub mod cleanup;
pub mod job_ids;
pub mod policy_change;
pub mod process_locks;
pub mod prover;
pub mod regroup;
pub mod single_threads;
pub mod thread_limit;
