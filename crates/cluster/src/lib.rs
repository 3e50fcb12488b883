//! Gangs across hosts: the registry, and what a host decides by it.
//!
//! etcd holds hosts, jobs and the entries of the matrix. Any host changes them by a transaction
//! that fails where another was first, and each host follows them by its own clock. There is no
//! leader, no protocol between daemons, and no message at a switch.
//!
//! This room is pure, as the conductor is: revisions, answers and the time go in, transactions and
//! the rows of this host come out. gangd's driver talks to etcd.
//!
//! - [`store`]: what is asked of etcd, and what it says, as data.
//! - [`keys`] and [`record`]: the names and the values of the registry's keys.
//! - [`view`]: the registry as a host has read it, and the matrix that it makes.
//! - [`change`]: wishes, and the transactions that they become.
//! - [`timeline`]: this host's entries, by the slices from which they hold.
//! - [`member`]: one host of the cluster, from reading to rows.
//! - [`held`]: the jobs that clients of this host have registered, and started nowhere yet.
//! - [`upkeep`]: the steps by which the parts of this host come to be as they are wanted.

pub mod change;
pub mod held;
pub mod keys;
pub mod member;
pub mod record;
pub mod store;
pub mod timeline;
pub mod upkeep;
pub mod view;

pub use member::Member;
