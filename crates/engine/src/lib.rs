//! Carries plans out.
//!
//! A [`backend::Backend`] says which calls into the kernel take a job from one [`Standing`] to
//! another; it makes none itself. [`timetable::compose`] lays the calls for the next few
//! milliseconds out by the edges of the clock. A [`switcher`] per group of CPUs sleeps until the
//! next edge and makes the calls, without allocating and without a lock. What was raised or paused
//! is undone by [`release`], from files alone, whoever is still alive; the [`guardian`] does so when
//! the daemon dies.

pub mod action;
pub mod backend;
pub mod guardian;
pub mod listeners;
pub mod members;
pub mod page;
pub mod pins;
pub mod probe;
#[cfg(feature = "recording")]
pub mod recording;
pub mod release;
pub mod runnable;
pub mod shared_group;
pub mod singles;
pub mod store;
pub mod switcher;
pub mod timetable;
pub mod timing;

mod standing;

pub use standing::{Guarantee, InSlot, Standing, priority};
