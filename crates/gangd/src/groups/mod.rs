//! The cgroups that jobs live in, what these groups limit, and how the end of a job is noticed.
//!
//! Calls of this room may take the kernel milliseconds. The threads that serve clients make them,
//! never those that schedule.

pub mod cgroups;
mod cpu;
mod limits;
pub mod location;
mod memory;
mod moves;
mod own;
pub mod watch;
