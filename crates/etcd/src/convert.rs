//! The registry's vocabulary in etcd's own.

use std::collections::BTreeMap;

use etcd_client::{
    Client, Compare, CompareOp, Error, EventType, GetOptions, PutOptions, Txn as EtcdTxn, TxnOp,
    TxnOpResponse, WatchResponse,
};
use gang_cluster::store::{Condition, Event, Item, Op, Outcome, Revision, Snapshot, Txn};

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

/// All keys below a prefix, as of one revision.
///
/// # Errors
/// The connection is gone, etcd does not permit it, or the revision was compacted meanwhile.
pub async fn read(client: &mut Client, prefix: &str) -> Result<Snapshot, Error> {
    let item = |kv: &etcd_client::KeyValue| Item {
        key: text(kv.key()),
        value: text(kv.value()),
        modified: revision(kv.mod_revision()),
    };
    let (mut at, mut items, mut keys) = (0, Vec::new(), KEYS_MAX);
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
        items.extend(answer.kvs().iter().map(item));
        match answer.kvs().last().filter(|_| answer.more()) {
            // The least key after the last one.
            Some(last) => from = [last.key(), &[0]].concat(),
            None => return Ok(Snapshot { revision: revision(at), items }),
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
