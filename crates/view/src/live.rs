//! A live model of a daemon, which all views show.
//!
//! Problem: a view must be right whatever the daemon does. The daemon comes and goes, hangs, or is
//! of another version. Its slices may last a millisecond, a hundredth of a picture's time. And
//! looking on must cost next to nothing, on either side of the socket.
//!
//! Approach: one thread ([`Poller`]) asks the daemon at a [`Pace`] and publishes a [`Snapshot`]. It
//! asks for all slices that have ended since it asked last, so that a timeline has no holes however
//! short slices are. Figures that are means over seconds are asked for less often than slices. A
//! [`Model`] makes snapshots of the answers, and is pure.
//!
//! Terms. The slice of an *ended* row was over before the daemon was asked, so that the row does
//! not change any more. A *coming* row is under way or planned, and may be taken back.
//!
//! Properties: each ended row is published once, in order. A snapshot without a daemon says why
//! there is none, and has the last known state. Counters of two daemons are never compared.

mod model;
mod past;
mod poller;
mod rates;
mod snapshot;

pub use model::{Model, Moment};
pub use past::{Past, SPAN_NS};
pub use poller::{Pace, Poller, TIME_LIMIT, host, once};
pub use rates::Rates;
pub use snapshot::{JobView, Link, Snapshot, Trouble, with_causes};
