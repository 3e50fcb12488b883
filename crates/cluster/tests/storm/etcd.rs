//! A model of etcd: revisions, transactions, leases, watches whose history is cut, and roles.

use std::collections::{BTreeMap, VecDeque};

use gang_cluster::keys::Keys;
use gang_cluster::store::{Condition, Event, Item, Op, Outcome, Revision, Snapshot, Txn};

/// A lease ends so long after it was last kept alive.
pub const TTL_NS: u64 = 3_000_000_000;
/// Revisions that can be watched from.
const HISTORY: usize = 40;

#[derive(Debug, Clone)]
struct Stored {
    value: String,
    modified: Revision,
    /// The host whose lease the key goes with.
    lease: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct Etcd {
    pub revision: Revision,
    keys: BTreeMap<String, Stored>,
    history: VecDeque<(Revision, Vec<Event>)>,
    /// The same, for one reader of all.
    pub unread: Vec<(Revision, Vec<Event>)>,
    leases: BTreeMap<String, u64>,
    /// When the lease of a host ended last.
    pub gone: BTreeMap<String, u64>,
    pub is_full: bool,
}

impl Etcd {
    /// Whether the role of a host permits all of a transaction.
    fn is_permitted(keys: &Keys, host: &str, txn: &Txn) -> bool {
        let (prefixes, alive) = keys.writable(host);
        txn.ops.iter().all(|op| {
            let (Op::Put { key, .. } | Op::Delete { key }) = op;
            prefixes.iter().any(|prefix| key.starts_with(prefix)) || *key == alive
        })
    }

    pub fn commit(&mut self, keys: &Keys, host: &str, txn: &Txn, now_ns: u64) -> Outcome {
        assert!(txn.is_within_limits(), "a transaction is within etcd's limits");
        assert!(host.is_empty() || Etcd::is_permitted(keys, host, txn), "{host} may do {txn:?}");
        if self.is_full {
            return Outcome::Refused("mvcc: database space exceeded".to_owned());
        }
        let holds = |(key, is): &(String, Condition)| match (self.keys.get(key), is) {
            (None, Condition::Absent) => true,
            (Some(stored), Condition::ModifiedAt(revision)) => stored.modified == *revision,
            _ => false,
        };
        if !txn.compares.iter().all(holds) {
            let compared = txn.compares.iter().filter_map(|(key, _)| self.keys.get(key));
            let last = compared.map(|stored| stored.modified).max();
            return Outcome::Conflict(last.unwrap_or(0));
        }
        let is_leased = |op: &Op| matches!(op, Op::Put { leased: true, .. });
        if txn.ops.iter().any(is_leased) {
            self.leases.insert(host.to_owned(), now_ns + TTL_NS);
        }
        let missing = |op: &Op| matches!(op, Op::Delete { key } if !self.keys.contains_key(key));
        if txn.ops.iter().all(missing) {
            // As etcd does: no revision has this transaction.
            return Outcome::Committed(self.revision);
        }
        self.revision += 1;
        let mut events = Vec::new();
        for op in &txn.ops {
            let (key, value) = match op {
                Op::Put { key, value, leased } => {
                    let lease = leased.then(|| host.to_owned());
                    let (value, modified) = (value.clone(), self.revision);
                    self.keys.insert(key.clone(), Stored { value: value.clone(), modified, lease });
                    (key, Some(value))
                }
                Op::Delete { key } => {
                    if self.keys.remove(key).is_none() {
                        continue;
                    }
                    (key, None)
                }
            };
            events.push(Event { key: key.clone(), value });
        }
        self.remember(events);
        Outcome::Committed(self.revision)
    }

    fn remember(&mut self, events: Vec<Event>) {
        self.unread.push((self.revision, events.clone()));
        self.history.push_back((self.revision, events));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    /// Whether there is a lease of a host, which goes on from now.
    pub fn keep_alive(&mut self, host: &str, now_ns: u64) -> bool {
        let lease = self.leases.get_mut(host);
        lease.map(|until_ns| *until_ns = now_ns + TTL_NS).is_some()
    }

    /// Leases end.
    pub fn expire(&mut self, now_ns: u64) {
        let over: Vec<String> = self
            .leases
            .iter()
            .filter(|(_, until_ns)| **until_ns <= now_ns)
            .map(|(host, _)| host.clone())
            .collect();
        for host in over {
            self.leases.remove(&host);
            self.gone.insert(host.clone(), now_ns);
            let is_of = |stored: &Stored| stored.lease.as_ref() == Some(&host);
            let keys: Vec<String> =
                self.keys.iter().filter(|(_, it)| is_of(it)).map(|(key, _)| key.clone()).collect();
            self.revision += 1;
            keys.iter().for_each(|key| _ = self.keys.remove(key));
            self.remember(keys.into_iter().map(|key| Event { key, value: None }).collect());
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    pub fn snapshot(&self, prefix: &str) -> Snapshot {
        let items = self.keys.iter().filter(|(key, _)| key.starts_with(prefix));
        let item = |(key, it): (&String, &Stored)| Item {
            key: key.clone(),
            value: it.value.clone(),
            modified: it.modified,
        };
        Snapshot { revision: self.revision, items: items.map(item).collect() }
    }

    /// The revisions after one, with their events below a prefix. None where they are compacted.
    pub fn after(&self, revision: Revision, prefix: &str) -> Option<Vec<(Revision, Vec<Event>)>> {
        let first = self.history.front().map_or(self.revision + 1, |(first, _)| *first);
        if revision + 1 < first {
            return None;
        }
        let later = self.history.iter().filter(|(at, _)| *at > revision);
        let of_prefix = later.map(|(at, events)| {
            let of = events.iter().filter(|event| event.key.starts_with(prefix));
            (*at, of.cloned().collect())
        });
        // A watch says nothing of revisions that changed nothing it watches.
        Some(of_prefix.filter(|(_, events): &(_, Vec<Event>)| !events.is_empty()).collect())
    }

    /// The keys are as at another time; nobody can watch from before.
    pub fn restore(&mut self, backup: &Etcd, now_ns: u64) {
        let hosts = std::mem::take(&mut self.leases).into_keys();
        self.gone.extend(hosts.map(|host| (host, now_ns)));
        (self.keys, self.revision) = (backup.keys.clone(), backup.revision + 1);
        self.history = VecDeque::new();
        self.unread.clear();
        self.keys.retain(|_, stored| stored.lease.is_none());
    }

    /// Somebody with a root user of etcd writes a key.
    pub fn write(&mut self, key: &str, value: Option<String>) {
        self.revision += 1;
        match &value {
            Some(value) => {
                let (value, modified) = (value.clone(), self.revision);
                self.keys.insert(key.to_owned(), Stored { value, modified, lease: None });
            }
            None => _ = self.keys.remove(key),
        }
        self.remember(vec![Event { key: key.to_owned(), value }]);
    }
}
