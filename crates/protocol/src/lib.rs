//! The one interface of the daemon: its types, a blocking client, and what both sides of the
//! socket share.
//!
//! `org.gangd.v1.varlink` describes the interface and is all that another client needs.

pub mod client;
mod convert;
pub mod error;
pub mod exit;
pub mod frame;
pub mod hash;
pub mod job_ref;
pub mod limits;
pub mod name;
pub mod paths;
pub mod progress;
pub mod timeout;

/// Generated from `org.gangd.v1.varlink`: types, errors, the client and the server's trait.
#[allow(clippy::all, missing_docs, non_camel_case_types, unused_qualifications)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/org.gangd.v1.rs"));
}
