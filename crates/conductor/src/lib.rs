//! The decisions of gangd beyond the policy, without Linux.
//!
//! Time and observations are arguments; decisions are returned. So the same code can be run by a
//! daemon, by a test from a seed, and by a simulator.
//!
//! A [`Conductor`] holds the jobs. [`life`] has the states of a job, and what may happen in each.
//! [`due`] says when plans are made, and [`planning`] makes them. [`effects`] has the effects of
//! decisions, in their order. [`published`](Conductor) remembers from when a change shows.
//!
//! - [`accounts`]: on whose account the time of a job is.
//! - [`activity`]: when a job falls asleep, and when it wakes.
//! - [`admission`]: whether there is memory and disk for a job.
//! - [`allowance`]: how much of a CPU the daemon may take before the gangs.
//! - [`at_work`]: requests beyond the allowance, one of each user at a time.
//! - [`confinement`]: which CPUs the threads of jobs may use.
//! - [`cpu_time`]: the quotas of CPU time that bind jobs.
//! - [`eligibility`]: whether a job takes turns, and if not, why.
//! - [`forecast`]: plans that are made ahead, and taken back when something changes.
//! - [`gap`]: how often there are gaps, and how long they are.
//! - [`load`]: how many threads outside of all gangs want to run.
//! - [`overhead`]: the cost of switching the threads of a job.
//! - [`quota`]: how much of what is scarce one user may have.
//! - [`regroup`]: which gangs move between groups of the cpu controller.
//! - [`short_lived`]: gangs whose threads live too short to be switched one by one.
//! - [`strays`]: threads that leave their job without asking.
//! - [`slot_mode`](Conductor::uncontended_jobs): how gangs are raised in their slots.
//! - [`spanning`]: parts of jobs that span hosts.
//! - [`Suspension`]: jobs that stand still because somebody said so.
//! - [`turns`]: whose request comes next.
//! - [`uncontended`]: whether gangs have the machine for themselves.
//! - [`usage`]: the time that a job had and wanted over a while.

pub mod accounts;
pub mod activity;
pub mod admission;
pub mod allowance;
pub mod at_work;
mod conductor;
pub mod confinement;
pub mod cpu_time;
pub mod crowding;
pub mod due;
pub mod effects;
pub mod eligibility;
pub mod forecast;
pub mod gap;
mod job;
pub mod life;
pub mod load;
pub mod overhead;
pub mod planning;
mod published;
pub mod quota;
mod refused;
pub mod regroup;
mod settings;
pub mod short_lived;
mod slot_mode;
pub mod spanning;
pub mod strays;
mod survey;
mod suspension;
pub mod turns;
pub mod uncontended;
pub mod usage;

pub use accounts::Accounts;
pub use activity::Activity;
pub use conductor::{Candidate, Conductor, Now};
pub use crowding::Crowded;
pub use due::{Due, NewThreads};
pub use effects::{Carrier, Effects, Measure, Note};
pub use eligibility::{Eligibility, Facts};
pub use forecast::Forecast;
pub use gap::Gaps;
pub use job::{Auto, Gain, Home, Job, Progress, Reading};
pub use load::Load;
pub use planning::{Followed, Planning};
pub use refused::Refused;
pub use regroup::Regroup;
pub use settings::{Limits, Setup, Terms, Tunables};
pub use short_lived::{ShortLived, ShortLivedGang};
pub use spanning::{AgreedEntries, Part};
pub use strays::{Looked, Stray};
pub use survey::{Counted, JobSeen};
pub use suspension::Suspension;
pub use uncontended::{Measured, Uncontended};
pub use usage::{Oversubscription, Window};
