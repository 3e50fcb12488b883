//! libgang: the C library of gangd.
//!
//! The headers `include/gang.h` and `include/GangUserAPI.h` are its documentation; this is what
//! they declare. Everything that comes from C is checked here, and what cannot be checked is said
//! there.
//!
//! Properties: no call panics into C; a call that fails leaves what its arguments point to as it
//! was; a handle that nobody got, or that was given back, is found out without looking at what it
//! points to.

#![allow(unsafe_code)]

mod barrier;
mod connection;
mod handle;
mod job;
mod llnl;
mod mutex;
mod page;
mod progress;
mod result;
mod span;
mod waiting;
