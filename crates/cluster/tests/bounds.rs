//! A host keeps so much of a registry, and no more, whoever writes it.

use std::collections::BTreeMap;

use gang_cluster::Member;
use gang_cluster::keys::{Key, Keys};
use gang_cluster::member::{Identity, Now, Request};
use gang_cluster::record::{Alive, Fault, encode, numbers};
use gang_cluster::store::{Bound, Event, Item, Snapshot};
use gang_cluster::view::View;
use gang_schedule::JobId;

fn keys() -> Keys {
    Keys::new("test").unwrap()
}

fn job(at: u64) -> String {
    let job = JobId(JobId::FIRST_SPANNING.0 + at);
    keys().of(&Key::Job { host: "rogue".to_owned(), job })
}

fn event(key: String, bytes: Option<usize>) -> Event {
    Event { key, value: bytes.map(|bytes| "x".repeat(bytes)) }
}

#[test]
fn what_is_kept_is_counted() {
    let size = job(0).len();
    let bound = Bound { keys: 2, bytes: 2 * size + 100 };
    let mut view = View::bounded(keys(), bound);
    let mut revision = 0;
    let mut is_within = |view: &mut View, key: String, bytes: Option<usize>| {
        revision += 1;
        view.follow(revision, &[event(key, bytes)]);
        view.is_within_bound()
    };
    assert!(is_within(&mut view, job(0), Some(50)));
    assert!(is_within(&mut view, job(1), Some(50)));
    assert!(!is_within(&mut view, job(1), Some(51)), "a byte more");
    assert!(is_within(&mut view, job(1), Some(10)), "one value counts once");
    assert!(!is_within(&mut view, job(2), Some(0)), "a key more");
    assert!(is_within(&mut view, job(2), None));
    assert!(is_within(&mut view, job(2), None), "it is gone already");
    let other = format!("{}hosts/rogue/other", keys().registry());
    assert!(is_within(&mut view, other.clone(), Some(1_000)), "it means nothing");
    // A reading counts the same.
    let item = |key: String, bytes: usize| Item { key, value: "x".repeat(bytes), modified: 1 };
    let items = vec![item(job(0), 50), item(job(1), 50), item(other, 1_000)];
    view.read(&Snapshot { revision: 100, items });
    assert!(view.is_within_bound() && view.bound() == bound);
    assert!(!is_within(&mut view, job(1), Some(51)));
}

#[test]
fn registry_that_grows_too_much_is_read_again() {
    let me = Identity {
        name: "a".to_owned(),
        cpus: 4,
        numbers: numbers(0..4),
        machine: "of a".to_owned(),
        boot: "kernel".to_owned(),
        slice_ns: 20_000_000,
        clock_percent: 5,
    };
    let mut member = Member::new(me, keys());
    member.keep_at_most(Bound { keys: 10, bytes: 1_000 });
    let now = Now { utc_ns: 1_000_000_000_000_000_000, monotonic_ns: 1 };
    member.is_reachable();
    assert_eq!(member.next(now), Some(Request::Read));
    member.read(now, 3, &Snapshot::default());
    member.watched(now, 3, 1, &[event(job(0), Some(900))]);
    assert!(member.is_up());
    member.watched(now, 3, 2, &[event(job(1), Some(900))]);
    assert_eq!((member.is_up(), member.next(now)), (false, Some(Request::Read)));
    // The reading fails, and nothing more is kept meanwhile.
    member.lost();
    member.watched(now, 3, 3, &[event(job(2), Some(900))]);
    assert_eq!(member.view().revision(), 2);
    member.is_reachable();
    assert_eq!(member.next(now), Some(Request::Read));
    member.read(now, 3, &Snapshot { revision: 4, items: Vec::new() });
    assert!(member.is_up() && member.view().is_within_bound());
}

#[test]
fn too_long_sign_of_life_is_a_fault_of_its_host() {
    let missing: BTreeMap<u64, String> = [(1, "x".repeat(300_000))].into();
    let said = Alive::read(&encode(Alive { missing, threads: 7, ..Alive::default() }));
    assert!(matches!(said.fault, Some(Fault::TooLong { bytes: 300_000.., max: 262_144 })));
    assert_eq!((said.threads, said.missing.len()), (0, 0), "nothing of it is kept");
    let why = said.unwilling.unwrap();
    assert!(why.contains("not used here: it has 300") && why.contains("262144"), "{why}");
    // A host that has a reason for each of its jobs stays within that, whatever is in them.
    let control = "\u{1}".repeat(1_000);
    let reasons = (0..5_000).map(|at| (JobId(at), control.clone())).collect();
    let missing = Alive::missing_of(&reasons);
    assert!((10..64).contains(&missing.len()), "{}", missing.len());
    let said = Alive::read(&encode(Alive { missing, ..Alive::default() }));
    assert_eq!(said.fault, None);
}
