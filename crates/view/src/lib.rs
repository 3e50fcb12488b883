//! What gangd does, to be seen: a live model of its daemon, and the views of it.
//!
//! [`live`] is the one place that asks the daemon. What it finds is a [`Snapshot`](live::Snapshot), and
//! every view shows that and nothing else, so that two views never disagree. All of it is an
//! unprivileged client: it may do what its user may.

pub mod details;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod live;
pub mod metrics;
pub mod table;
pub mod top;
pub mod values;
pub mod web;
pub mod why;
