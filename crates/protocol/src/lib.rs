//! The one interface of the daemon.

/// Generated from `org.gangd.v1.varlink`: types, errors, the client and the server's trait.
#[allow(clippy::all, missing_docs, non_camel_case_types, unused_qualifications)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/org.gangd.v1.rs"));
}
