//! The order of what a host does: changes that somebody waits for come before its sign of life,
//! unless that was to be written long ago.

use std::collections::{BTreeMap, BTreeSet};

use gang_cluster::Member;
use gang_cluster::change::{By, Granted, Inputs, Wish, draft, init};
use gang_cluster::keys::{Key, Keys};
use gang_cluster::member::{Identity, Now, Observation, Request};
use gang_cluster::record::{
    Alive, Clock, ClusterSettings, Host, Job, OnHostLost, Owner, Users, Wanted, encode, numbers,
};
use gang_cluster::store::{Item, Op, Outcome, Snapshot};
use gang_cluster::view::View;
use gang_schedule::JobId;

const MS: u64 = 1_000_000;
const START_NS: u64 = 1_000_000_000_000_000_000;
const SLICE_NS: u64 = 20 * MS;

fn settings() -> ClusterSettings {
    ClusterSettings {
        id: "one".to_owned(),
        slice_ns: SLICE_NS,
        rows: 16,
        by_program: true,
        users: Users::Name,
        lost_after_ms: 30_000,
    }
}

fn clock() -> Clock {
    Clock { source: "chrony".to_owned(), offset_ns: 0, bound_ns: 1_000 }
}

/// A registry with the hosts `a` and `b`, of which `b` adjusts, and a job that awaits a process on
/// each.
fn registry(keys: &Keys) -> (Snapshot, JobId) {
    let mut items: Vec<Item> = Vec::new();
    let item = |key: String, value: String| Item { key, value, modified: 1 };
    let put = |op: &Op| match op {
        Op::Put { key, value, .. } => item(key.clone(), value.clone()),
        Op::Delete { key } => panic!("{key} is deleted"),
    };
    items.extend(init(keys, &settings()).unwrap().ops.iter().map(put));
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        let (machine, boot) = (format!("of {name}"), "kernel".to_owned());
        let host = Host { number: number as u32, cpus: 4, numbers: numbers(0..4), machine, boot };
        items.push(item(keys.of(&Key::Host(name.to_owned())), encode(host)));
    }
    items.push(item(keys.of(&Key::Adjuster), "b".to_owned()));
    let mut view = View::new(keys.clone());
    view.read(&Snapshot { revision: 1, items: items.clone() });
    let on_both = |count: u32| ["a", "b"].map(|host| (host.to_owned(), count)).into();
    let job = Job {
        name: "job".to_owned(),
        owner: Owner { uid: 1000, name: "ada".to_owned(), by_root: false, payer: None },
        class: "batch".to_owned(),
        weight: 100,
        cpus: on_both(2),
        allowed: BTreeMap::new(),
        ranks: on_both(1),
        launched_as: None,
        on_host_lost: OnHostLost::Mark,
        registered_at_ns: 0,
        nonce: "nonce".to_owned(),
    };
    let alive = Alive { read: 1, clock: clock(), ..Alive::default() };
    let alive = ["a", "b"].map(|host| (host.to_owned(), alive.clone())).into();
    let (lost, host, machine) = (BTreeSet::new(), "b", "of b");
    let from = Inputs { view: &view, alive: &alive, lost: &lost, host, machine, now_ns: START_NS };
    let drafted = draft(from, &Wish::Register(job)).unwrap();
    let Granted::Registered { job, .. } = drafted.granted else { panic!("it is registered") };
    for put in drafted.txn.ops.iter().map(put) {
        items.retain(|it| it.key != put.key);
        items.push(put);
    }
    (Snapshot { revision: 1, items }, job)
}

/// Host `a`.
struct One {
    member: Member,
    job: JobId,
    now_ns: u64,
}

impl One {
    /// It has read the registry, and has nothing to do.
    fn new() -> One {
        let mut one = One::unannounced();
        one.see(&[]);
        assert!(matches!(one.next(), Some(Request::Announce { .. })));
        one.member.announced();
        assert_eq!(one.next(), None);
        one
    }

    fn unannounced() -> One {
        let keys = Keys::new("test").unwrap();
        let me = Identity {
            name: "a".to_owned(),
            cpus: 4,
            numbers: numbers(0..4),
            machine: "of a".to_owned(),
            boot: "kernel".to_owned(),
            slice_ns: SLICE_NS,
            clock_percent: 5,
        };
        let (snapshot, job) = registry(&keys);
        let mut one = One { member: Member::new(me, keys), job, now_ns: START_NS };
        one.member.is_reachable();
        assert_eq!(one.next(), Some(Request::Read));
        let now = one.now();
        one.member.read(now, START_NS / SLICE_NS + 3, &snapshot);
        one
    }

    fn now(&self) -> Now {
        Now { utc_ns: self.now_ns, monotonic_ns: self.now_ns - START_NS + 1 }
    }

    fn next(&mut self) -> Option<Request> {
        self.member.next(self.now())
    }

    /// It has these parts, all of whose processes have come.
    fn see(&mut self, parts: &[JobId]) {
        self.member.see(Observation {
            clock: clock(),
            threads: 0,
            of_users: BTreeMap::new(),
            parts: parts.to_vec(),
            complete: parts.iter().copied().collect(),
            missing: BTreeMap::new(),
            nonces: BTreeSet::new(),
        });
    }

    /// The last rank has come, and the sign of life is to be written for so long.
    fn last_rank_comes(&mut self, due_for_ns: u64) {
        self.now_ns += 500 * MS + due_for_ns;
        self.see(&[self.job]);
    }
}

#[test]
fn last_rank_comes_before_a_sign_of_life() {
    let mut one = One::new();
    one.last_rank_comes(100 * MS);
    let Some(Request::Commit(txn)) = one.next() else { panic!("the last rank is first") };
    let is_of_job = |op: &Op| matches!(op, Op::Put { key, .. } if key.contains("/matrix/jobs/"));
    assert!(txn.ops.iter().any(is_of_job), "{txn:?}");
    assert_eq!(one.next(), None, "one thing at a time");
    one.member.committed(one.now(), &Outcome::Committed(2));
    assert!(matches!(one.next(), Some(Request::Announce { .. })));
}

#[test]
fn wish_of_a_user_comes_before_a_sign_of_life() {
    let mut one = One::new();
    one.now_ns += 10_000 * MS;
    let by = By { uid: 1000, name: "ada".to_owned() };
    one.member.wish(Wish::Want { job: one.job, wanted: Wanted::Suspend, by });
    assert!(matches!(one.next(), Some(Request::Commit(_))));
    one.member.committed(one.now(), &Outcome::Committed(2));
    assert!(matches!(one.next(), Some(Request::Announce { .. })));
}

#[test]
fn sign_of_life_that_is_late_or_missing_comes_first() {
    let mut late = One::new();
    late.last_rank_comes(300 * MS);
    let mut missing = One::unannounced();
    missing.last_rank_comes(0);
    for mut one in [late, missing] {
        assert!(matches!(one.next(), Some(Request::Announce { .. })));
        one.member.announced();
        assert!(matches!(one.next(), Some(Request::Commit(_))));
    }
}
