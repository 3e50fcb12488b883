//! The life of jobs: how they come, change, get and lose members, and end.
//!
//! Client threads do this work, by methods of [`crate::daemon::Daemon`]. Each method asks the
//! conductor for a decision, files the decision, and makes the slow calls to the kernel before or
//! after it.

pub mod admission;
pub mod attach;
pub mod auto;
pub mod cleanup;
pub mod deputies;
pub mod detach;
pub mod end;
pub mod files;
pub mod founding;
pub mod giving_way;
pub mod job_ids;
pub mod jobs;
pub mod keyed_locks;
pub mod limits;
pub mod locks;
pub mod members;
pub mod memory_limit;
pub mod moving;
pub mod orders;
pub mod peer;
pub mod policy_change;
pub mod power;
pub mod prover;
pub mod register;
pub mod regroup;
pub mod resize;
pub mod restore;
pub mod single_threads;
pub mod strays;
pub mod thread_limit;
pub mod trees;
pub mod upkeep;
pub mod waiting;
pub mod waking;
