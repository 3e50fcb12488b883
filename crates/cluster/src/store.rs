//! The registry's vocabulary as data: what is asked of etcd, and what etcd says.
//!
//! Nothing here does I/O. A driver sends a [`Txn`] to etcd and returns its [`Outcome`]; it reads a
//! [`Snapshot`], then watches, and hands on each revision's [`Event`]s together.

/// The count of changes that etcd has committed; it grows by one with each.
pub type Revision = u64;

/// The most operations of a transaction, by etcd's default (`--max-txn-ops`).
pub const OPS_MAX: usize = 128;
/// The most bytes of a request, by etcd's default (`--max-request-bytes`, 1.5 MiB).
pub const BYTES_MAX: usize = 1_572_864;

/// The most of a registry that a host keeps: any host of the cluster may write up to etcd's quota,
/// and that must not become memory of all daemons. Only keys that [`crate::keys::Keys::parse`]
/// knows count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    pub keys: usize,
    /// Of keys and values.
    pub bytes: usize,
}

impl Default for Bound {
    fn default() -> Bound {
        Bound { keys: 1_000_000, bytes: 256 << 20 }
    }
}

/// Keys and values, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub keys: usize,
    pub bytes: usize,
}

impl Count {
    pub fn add(&mut self, bytes: usize) {
        (self.keys, self.bytes) = (self.keys + 1, self.bytes + bytes);
    }

    pub fn remove(&mut self, bytes: usize) {
        self.keys = self.keys.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub fn is_within(&self, bound: Bound) -> bool {
        self.keys <= bound.keys && self.bytes <= bound.bytes
    }
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub key: String,
    pub value: String,
    /// The revision of its last change.
    pub modified: Revision,
}

/// All keys of the registry as of one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub revision: Revision,
    pub items: Vec<Item>,
}

/// One key that a revision changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    /// None where the key was deleted, or its lease ended.
    pub value: Option<String>,
}

/// A condition on a key, without which a transaction is not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Absent,
    /// Its last change was this revision's.
    ModifiedAt(Revision),
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Put {
        key: String,
        value: String,
        /// The key goes with the lease of the host that wrote it.
        leased: bool,
    },
    Delete {
        key: String,
    },
}

/// A transaction: all of its operations are done in one revision if all comparisons hold, else
/// none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    pub compares: Vec<(String, Condition)>,
    pub ops: Vec<Op>,
}

impl Txn {
    /// The bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Put { key, value, .. } => key.len() + value.len(),
            Op::Delete { key } => key.len(),
        };
        let compared = self.compares.iter().map(|(key, _)| key.len());
        self.ops.iter().map(of).chain(compared).sum()
    }

    /// Whether etcd takes it.
    pub fn is_within_limits(&self) -> bool {
        self.ops.len().max(self.compares.len()) <= OPS_MAX && self.bytes() < BYTES_MAX
    }
}

/// The outcome of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Committed(Revision),
    /// A comparison did not hold, as of this revision. Nothing was done.
    Conflict(Revision),
    /// etcd does not permit it, or has no space: its own words. Nothing was done.
    Refused(String),
    /// No answer came: it was committed, or not.
    Unknown,
}
