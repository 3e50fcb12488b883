//! Messages between processes of a gang, from user space: what the libfabric provider calls
//! (`integrations/fabric`).
//!
//! From the bottom up:
//! - [`spans`], [`region`], [`copy`]: memory of programs, of several processes, of another one.
//! - [`address`], [`packet`]: what goes over a medium, to the byte.
//! - [`queue`]: shared memory within a host. [`udp`]: frames between hosts, made reliable by
//!   `gang_net::Channel`.
//! - [`matching`], [`completion`]: which message goes to which receive, and what has ended.
//! - [`state`], with [`peer`], [`sending`], [`receiving`], [`progress`]: a port and all it does.
//! - [`page`], [`member`]: what the daemon of the host sees of a port, and what it gives it.
//! - [`slot`], [`spin`]: whether a thread that waits spins, and for how long.
//! - [`domain`], `calls`: the lock, threads that wait, and the interface for C.
//!
//! Architecture invariant: nothing that a peer writes is trusted. Numbers are looked up, lengths
//! compared, and memory of this process is written only where a receive was posted.

#![allow(unsafe_code)]

pub mod address;
mod calls;
pub mod completion;
pub mod copy;
pub mod domain;
pub mod matching;
pub mod member;
pub mod packet;
pub mod page;
pub mod peer;
pub mod progress;
pub mod queue;
pub mod receiving;
pub mod region;
pub mod sending;
pub mod settings;
pub mod slot;
pub mod spans;
pub mod spin;
pub mod state;
pub mod table;
pub mod udp;
