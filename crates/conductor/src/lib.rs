//! What gangd decides beyond the policy, without Linux.
//!
//! What was seen and the time are arguments; what is decided is returned. The same code can so be
//! run by a daemon, by a test from a seed, and by a simulator.
//!
//! A [`Conductor`] holds the jobs. [`life`] says what may happen to a job; [`planning`], when plans
//! are made and what becomes of them; [`effects`], what is done about it, and in which order;
//! [`published`](Conductor), from when a change shows.
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
mod conductor;
pub mod effects;
pub mod eligibility;
pub mod forecast;
pub mod gap;
mod job;
pub mod life;
pub mod load;
pub mod planning;
mod published;
mod refused;
mod survey;
pub mod uncontended;
pub mod usage;

pub use activity::Activity;
pub use conductor::{Candidate, Conductor, Limits, Now, Settings, Setup, Terms};
pub use effects::{Effects, Measure, Note};
pub use eligibility::{Eligibility, Facts};
pub use forecast::Forecast;
pub use gap::Gaps;
pub use job::{Auto, Gain, Home, Job, Progress};
pub use load::Load;
pub use planning::{Due, Followed, NewThreads, Planning};
pub use refused::Refused;
pub use survey::{Counted, JobSeen};
pub use uncontended::{Measured, Uncontended};
pub use usage::{Width, Window};
