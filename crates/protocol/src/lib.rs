//! The interfaces of the daemon: their types, a blocking client, and what both sides of the
//! socket share.
//!
//! `org.gangd.v1.varlink` is all that another client needs. `org.gangd.auto1.varlink` is for the
//! program that measures jobs of policy auto.

pub mod caller;
pub mod client;
mod convert;
pub mod error;
pub mod exit;
pub mod frame;
pub mod hash;
mod job;
pub mod job_ref;
pub mod limits;
pub mod name;
pub mod paths;
pub mod peer;
pub mod progress;
pub mod timeout;

pub use convert::cpu_numbers;

/// Generated from `org.gangd.auto1.varlink`.
#[allow(clippy::all, missing_docs, non_camel_case_types, unused_qualifications)]
pub mod auto1 {
    include!(concat!(env!("OUT_DIR"), "/org.gangd.auto1.rs"));
}

/// Generated from `org.gangd.v1.varlink`: types, errors, the client and the server's trait.
#[allow(clippy::all, missing_docs, non_camel_case_types, unused_qualifications)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/org.gangd.v1.rs"));
}
