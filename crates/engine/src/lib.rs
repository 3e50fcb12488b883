//! Carries timetables out.
//!
//! An action of a timetable names threads, processes, groups and pages by numbers; it is [`bound`]
//! to their descriptors as soon as it is made. A [`switcher`] per group of CPUs sleeps until the
//! next edge and makes the calls into the kernel, without allocating and without a lock. A
//! [`release`] undoes all that was raised or paused, from files only, so that any process can do
//! it; the [`guardian`] does so when the daemon dies.

pub mod bound;
pub mod guardian;
pub mod listeners;
pub mod page;
pub mod pins;
pub mod probe;
#[cfg(feature = "recording")]
pub mod recording;
pub mod release;
pub mod rivals;
pub mod roster;
mod salvage;
pub mod shared_group;
pub mod singles;
pub mod store;
pub mod switcher;
pub mod thread;
pub mod timing;
