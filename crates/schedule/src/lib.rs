//! The policy of gangd: which gangs run in which slice, on which CPUs.
//!
//! Problem. All threads of a job (a *gang*) must run at the same moment, and gangs must share the
//! machine by weight. Everything else must not starve, and no CPU should idle for it.
//!
//! Approach. A pure function: [`Event`]s in, immutable [`Plan`]s out, one for each slice. No clock,
//! no I/O, no threads, no randomness, no unordered maps. Time is an argument, and the same events
//! give the same plans on every host and in the tests.
//!
//! Terms.
//! - *slice*: a stretch of UTC time; its number is time / length ([`clock`]).
//! - *row*: the gangs that are raised in a slice. *slot*: a gang's CPUs in it.
//! - *frame*: the slices in which every gang that can run is in a row.
//! - *leader*: who chooses first in a slice. *guest*: a gang packed beside it.
//! - *rest*: everything on the machine that is no gang; it leads like a gang
//!   when its turn comes (L18).
//! - *filler*: a job out of the row that may run in holes.
//! - *confined*: a gang whose threads may not use every CPU.
//! - *spanning*: a job of several hosts, which has rows of a matrix. Others are *local* (L14).
//!
//! The parts: [`Schedule`] keeps the state and says how a row is chosen;
//! [`check`] looks for what must never be; `turn` decides whose turn it is,
//! `allowed` what a gang needs, `seating` whether several get that at once,
//! `place` on which CPUs, `accounts` what each weighs, `share` what a weight is worth.
//! [`matrix`] gives jobs of several hosts their rows. A schedule is of one host: `entries` says
//! which CPUs such jobs have in which rows, `claim` keeps the turns of gangs that these exclude.
//!
//! ```
//! use gang_schedule::{Config, Event, JobId, Schedule, Spec, Topology};
//!
//! let mut schedule = Schedule::new(Config::default(), Topology::flat(2))?;
//! schedule.apply(Event::Arrived { job: JobId(1), spec: Spec::new(2) })?;
//! schedule.apply(Event::load(2))?;
//! let turns: Vec<bool> = (0..4).map(|slice| schedule.plan(slice).rest_turn).collect();
//! assert_eq!(turns, [false, true, false, true]); // L18
//! # Ok::<(), gang_schedule::Refusal>(())
//! ```

mod accounts;
mod allowed;
mod caps;
pub mod check;
mod claim;
pub mod clock;
mod config;
mod cpus;
mod entries;
mod event;
mod job;
mod line;
pub mod matrix;
mod place;
mod plan;
mod request;
mod row;
mod schedule;
mod seating;
mod share;
mod topology;
mod turn;

pub use accounts::Sharing;
pub use allowed::{Allowed, Bound, Unplaceable};
pub use clock::{Edge, EdgeKind};
pub use config::{ClassSlices, ClassWeights, Config, Gap};
pub use cpus::{CpuSet, NotCpus};
pub use entries::{Entries, Entry, EntryList};
pub use event::{Event, Refusal};
pub use job::{Class, JobId, Policy, Quota, Spec, UnknownName, UserId};
pub use plan::{Diff, Plan, Slot};
pub use schedule::{MAX_JOBS, Readiness, Schedule};
pub use topology::{Cpu, MAX_CPUS, Topology};
