//! Two daemons in one cluster over a real etcd: jobs that span both, and what becomes of them when
//! etcd, a daemon or a user is missing, or a record cannot be used.
//!
//! The hosts are mount namespaces of this machine, each with one of its CPUs.

mod bed;
mod jobs;
#[path = "../place/mod.rs"]
mod place;
mod trouble;
