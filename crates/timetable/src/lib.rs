//! The actions on the threads of jobs, and their moments: as data.
//!
//! A [`Backend`] says which [`Action`]s take a job from one [`Standing`] to another. [`compose()`]
//! lays the actions for the next few milliseconds out by the edges of the clock, in a [`Timetable`]
//! for each switcher. A thread, a process, a group or a page is a number here: who carries an
//! action out knows what the number stands for.

mod action;
mod attributes;
mod backend;
mod compose;
pub mod follower;
mod load;
mod members;
#[cfg(feature = "model")]
pub mod model;
pub mod record;
mod runnable;
mod standing;
mod switchers;
mod timetable;
pub mod ways;
mod word;

pub use action::{Action, Control, Group, Signal, Weight};
pub use attributes::{
    Attributes, Known, OVERSUBSCRIBED, SchedPolicy, as_default, before_gangd,
    is_of_oversubscribed_slot, is_raised, lowered, released, released_inheritor,
};
pub use backend::{Backend, pause};
pub use compose::{Composition, Gang, Pin, Stretch, compose};
pub use load::Load;
pub use members::{
    Controls, Gone, Members, Seen, Starter, THREADS_MAX, Thread, Turnover, is_outside,
};
pub use runnable::Runnable;
pub use standing::{Guarantee, InSlot, Standing, priority};
pub use switchers::{SWITCHERS_MAX, Switchers};
pub use timetable::{EdgeActions, Timetable};
pub use word::{Validity, Word};
