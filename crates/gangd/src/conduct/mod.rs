//! The conductor's thread: its loop, the state that it alone owns, and how other threads reach it.
//!
//! [`gang_conductor`] decides; this room reads what a decision needs, and carries its effects out.
//! Nothing in this room waits for a client.

pub mod at_work;
pub mod carrier;
pub mod client_priority;
pub mod conductor;
pub mod leaving;
pub mod members;
pub mod new_threads;
pub mod readers;
pub mod registry;
pub mod requests;
pub mod state;
pub mod survey;
