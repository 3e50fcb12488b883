//! A live model of a daemon: what both views show, and where it comes from.
//!
//! Problem: a view must be right whatever the daemon does. It comes and goes, hangs, or is of another
//! version; its slices may last a millisecond, a hundred times less than a picture does; and looking on
//! must cost next to nothing, on either side of the socket.
//!
//! Approach: one thread ([`Watch`]) asks the daemon at a [`Pace`] and tells what it found as a
//! [`Snapshot`]. Of the frame it asks for all slices that have ended since it asked last, so that a
//! timeline has no holes however short slices are. Figures that are means over seconds are asked for less
//! often than the frame, which is what moves. What a [`Model`] makes of the answers is pure.
//!
//! Terms. An *ended* row is one whose slice was over before the daemon was asked: it does not change any
//! more. A *coming* row is under way or planned, and may be taken back.
//!
//! Properties: each ended row is told once, in order. A snapshot without a daemon says why there is none
//! and has what was known last. Counters of two daemons are never compared.

mod model;
mod past;
mod rates;
mod snapshot;
mod watch;

pub use model::{Model, Moment};
pub use past::Past;
pub use rates::Rates;
pub use snapshot::{JobView, Link, Snapshot, Trouble, told};
pub use watch::{PATIENCE, Pace, Watch, host, once};
