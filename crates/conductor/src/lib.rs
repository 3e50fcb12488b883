//! What gangd decides beyond the policy, without Linux.
//!
//! What was seen and the time are arguments; what is decided is returned. The same code can so be
//! run by a daemon, by a test from a seed, and by a simulator.
//!
//! - [`activity`]: who falls asleep, and who wakes.
//! - [`admission`]: whether there is memory and disk for a job.
//! - [`eligibility`]: whether a job takes turns, and if not, why.
//! - [`forecast`]: plans that are made ahead, and taken back when something changes.
//! - [`gap`]: how often there are gaps, and how long they are.
//! - [`load`]: how many threads outside of all gangs want to run.
//! - [`uncontended`]: whether gangs have the machine for themselves.
//! - [`usage`]: what a job had and wanted over a while.

pub mod activity;
pub mod admission;
pub mod eligibility;
pub mod forecast;
pub mod gap;
pub mod load;
pub mod uncontended;
pub mod usage;

pub use activity::Activity;
pub use eligibility::{Eligibility, Facts};
pub use forecast::Forecast;
pub use gap::Gaps;
pub use load::Load;
pub use uncontended::{Measured, Uncontended};
pub use usage::{Width, Window};
