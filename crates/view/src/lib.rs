//! A live model of gangd's daemon, and the views of it.
//!
//! [`live`] alone asks the daemon, and makes a [`Snapshot`](live::Snapshot) of the answers. Every
//! view shows snapshots and nothing else, so that two views never disagree. The whole is an
//! unprivileged client, with the rights of its user.

pub mod details;
pub mod figures;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
pub mod live;
pub mod metrics;
pub mod spanning;
pub mod table;
pub mod top;
pub mod values;
pub mod web;
pub mod whole;
pub mod why;
