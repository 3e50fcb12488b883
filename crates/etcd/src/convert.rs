//! The registry's vocabulary in etcd's own.

use std::collections::BTreeMap;

use etcd_client::{
    Client, Compare, CompareOp, Error, EventType, GetOptions, KeyValue, PutOptions, Txn as EtcdTxn,
    TxnOp, TxnOpResponse, WatchResponse,
};
use gang_cluster::keys::{Keys, is_name};
use gang_cluster::record::Alive;
use gang_cluster::store::{
    Bound, Condition, Count, Event, Item, Op, Outcome, Revision, Snapshot, Txn,
};

/// A revision of etcd is never negative.
pub(crate) fn revision(of: i64) -> Revision {
    u64::try_from(of).unwrap_or(0)
}

fn number(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Bytes of keys and values that are not UTF-8 are of nobody we know: they cannot be parsed either.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The most keys of one answer. A value has some hundred bytes and an answer 4 MiB at most; where
/// values are longer, fewer are asked for.
const KEYS_MAX: i64 = 1_000;
/// gRPC's code of an answer that is too long (OUT_OF_RANGE).
const TOO_LONG: i32 = 11;

/// Why a registry was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection is gone, etcd does not permit it, or the revision was compacted meanwhile.
    #[error(transparent)]
    Etcd(#[from] Error),
    #[error(
        "the registry has more than {} MiB or {} keys, which is the most that is read: `etcdctl \
         get --prefix --keys-only {prefix}` lists them",
        .bound.bytes as f64 / f64::from(1 << 20), .bound.keys
    )]
    TooMuch { prefix: String, bound: Bound },
}

/// The registry as of one revision, without keys that mean nothing here.
///
/// # Errors
/// [`ReadError`].
pub async fn read(client: &mut Client, keys: &Keys, bound: Bound) -> Result<Snapshot, ReadError> {
    let (prefix, mut items, mut count) = (keys.registry(), Vec::new(), Count::default());
    let keep = |kv: &KeyValue| {
        let key = text(kv.key());
        if keys.parse(&key).is_none() {
            return true;
        }
        let (value, modified) = (text(kv.value()), revision(kv.mod_revision()));
        count.add(key.len() + value.len());
        items.push(Item { key, value, modified });
        count.is_within(bound)
    };
    match pages(client, &prefix, keep).await? {
        Some(revision) => Ok(Snapshot { revision, items }),
        None => Err(ReadError::TooMuch { prefix, bound }),
    }
}

/// The hosts that are alive, and what they say of themselves. Only that is kept of each which can
/// be read.
///
/// # Errors
/// [`ReadError`].
pub(crate) async fn read_alive(
    client: &mut Client,
    keys: &Keys,
    bound: Bound,
) -> Result<BTreeMap<String, Alive>, ReadError> {
    let (prefix, mut alive, mut count) = (keys.all_alive(), BTreeMap::new(), Count::default());
    let keep = |kv: &KeyValue| {
        let key = text(kv.key());
        let Some(name) = key.strip_prefix(&prefix).filter(|name| is_name(name)) else {
            return true;
        };
        let said = Alive::read(&text(kv.value()));
        count.add(key.len() + if said.fault.is_some() { 0 } else { kv.value().len() });
        alive.insert(name.to_owned(), said);
        count.is_within(bound)
    };
    match pages(client, &prefix, keep).await? {
        Some(_) => Ok(alive),
        None => Err(ReadError::TooMuch { prefix, bound }),
    }
}

/// Hands on all keys below a prefix, as of one revision, which is returned. None where one of the
/// keys was the last that is wanted.
async fn pages(
    client: &mut Client,
    prefix: &str,
    mut keep: impl FnMut(&KeyValue) -> bool,
) -> Result<Option<Revision>, Error> {
    let (mut at, mut keys) = (0, KEYS_MAX);
    let (mut from, end) = (prefix.as_bytes().to_vec(), after_all(prefix));
    loop {
        let page = GetOptions::new().with_range(end.clone()).with_limit(keys);
        let answer = match client.get(from.clone(), Some(page.with_revision(at))).await {
            Err(Error::GRpcStatus(status)) if status.code() as i32 == TOO_LONG && keys > 1 => {
                keys /= 2;
                continue;
            }
            answer => answer?,
        };
        if at == 0 {
            at = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        }
        if !answer.kvs().iter().all(&mut keep) {
            return Ok(None);
        }
        match answer.kvs().last().filter(|_| answer.more()) {
            // The least key after the last one.
            Some(last) => from = [last.key(), &[0]].concat(),
            None => return Ok(Some(revision(at))),
        }
    }
}

/// The end of the keys below a prefix, whose last byte is no 255.
fn after_all(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The revisions of a message, each whole.
pub(crate) fn revisions(message: &WatchResponse) -> BTreeMap<Revision, Vec<Event>> {
    let mut revisions: BTreeMap<Revision, Vec<Event>> = BTreeMap::new();
    for event in message.events() {
        let Some(kv) = event.kv() else { continue };
        let is_put = event.event_type() == EventType::Put;
        let value = is_put.then(|| text(kv.value()));
        let of = revisions.entry(revision(kv.mod_revision())).or_default();
        of.push(Event { key: text(kv.key()), value });
    }
    revisions
}

/// Commits a transaction; leased keys go with this lease. A conflict tells the last change of the
/// keys that were compared: other keys may have changed since.
///
/// # Errors
/// The connection is gone, or etcd cannot be asked. Nothing is known of the transaction then.
pub async fn commit(client: &mut Client, txn: &Txn, lease: i64) -> Result<Outcome, Error> {
    let compare = |(key, is): &(String, Condition)| match is {
        Condition::Absent => Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
        Condition::ModifiedAt(at) => {
            Compare::mod_revision(key.as_str(), CompareOp::Equal, number(*at))
        }
    };
    let op = |op: &Op| match op {
        Op::Put { key, value, leased } => {
            let options = leased.then(|| PutOptions::new().with_lease(lease));
            TxnOp::put(key.as_str(), value.as_str(), options)
        }
        Op::Delete { key } => TxnOp::delete(key.as_str(), None),
    };
    let get = |(key, _): &(String, Condition)| TxnOp::get(key.as_str(), None);
    let sent = EtcdTxn::new()
        .when(txn.compares.iter().map(compare).collect::<Vec<_>>())
        .and_then(txn.ops.iter().map(op).collect::<Vec<_>>())
        .or_else(txn.compares.iter().map(get).collect::<Vec<_>>());
    match client.txn(sent).await {
        Ok(answer) if answer.succeeded() => {
            let at = answer.header().map_or(0, |header| revision(header.revision()));
            Ok(Outcome::Committed(at))
        }
        Ok(answer) => {
            let of = |answer: &TxnOpResponse| match answer {
                TxnOpResponse::Get(it) => it.kvs().iter().map(|kv| kv.mod_revision()).max(),
                _ => None,
            };
            let last = answer.op_responses().iter().filter_map(of).max();
            Ok(Outcome::Conflict(revision(last.unwrap_or(0))))
        }
        Err(Error::GRpcStatus(status)) if is_refusal(status.code() as i32) => {
            Ok(Outcome::Refused(status.message().to_owned()))
        }
        Err(err) => Err(err),
    }
}

/// Codes of gRPC by which etcd says that it did nothing, and would do nothing again: invalid
/// argument, permission denied, resource exhausted (no space), failed precondition,
/// unauthenticated.
fn is_refusal(code: i32) -> bool {
    matches!(code, 3 | 7 | 8 | 9 | 16)
}
