//! Hosts that share one matrix, and lose etcd or each other.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gang_cluster::change::{By, Granted, Refused, Wish};
use gang_cluster::member::Member;
use gang_cluster::record::Wanted;
use gang_etcd::InitError;
use gang_harness::etcd::Etcd;
use gang_harness::{wait_for, wait_until};

use crate::hosts::{Running, SLICE_NS, address, init_cluster, job, runtime};

#[test]
fn hosts_share_one_matrix_and_outlive_etcd() {
    let Some(mut etcd) = Etcd::start() else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    assert!(matches!(init_cluster(&runtime, &etcd), Err(InitError::Exists)));
    let hosts = ["a", "b", "c"].map(|name| Running::start(&runtime, address(&etcd), name, 4));
    let [a, b, c] = &hosts;
    wait_until("all hosts join", || hosts.iter().all(Running::is_in));

    let Ok(Granted::Registered { job: first, .. }) = wait_for("b is seen alive", || {
        match a.wish(Wish::Register(job("one", &[("a", 4), ("b", 3)]))) {
            Err(Refused::Away(_)) => None,
            answer => Some(answer),
        }
    }) else {
        panic!("the job is registered");
    };
    for (host, cpus) in [(a, 4), (b, 3)] {
        let has = || host.cpus_of(first).is_some_and(|it| it.len() == cpus);
        wait_until("both hosts have the job's entries", has);
    }
    assert_eq!(c.cpus_of(first), None);
    let nobody = a.wish(Wish::Register(job("two", &[("a", 1), ("d", 1)])));
    assert_eq!(nobody, Err(Refused::NoHost("d".to_owned())));

    // A host where it has a part suspends it for its owner, and for nobody else.
    let by = |name: &str| By { uid: 1000, name: name.to_owned() };
    let want = |by| Wish::Want { job: first, wanted: Wanted::Suspend, by };
    assert!(matches!(c.wish(want(by("eve"))), Err(Refused::NotOwner { .. })));
    assert_eq!(c.wish(want(by("ada"))), Err(Refused::NotHere(first)));
    assert!(matches!(b.wish(want(by("ada"))), Ok(Granted::Done { .. })));
    wait_until("the job's other hosts see that", || {
        let of = |member: &Member| Some(member.view().entries(first)?.wanted);
        a.look(of) == Some(Wanted::Suspend)
    });

    etcd.stop();
    wait_until("the link is lost", || hosts.iter().all(|it| it.away().is_some()));
    assert_eq!(a.wish(Wish::Remove { job: first }), Err(Refused::Unreachable));
    assert_eq!(a.cpus_of(first).map(|cpus| cpus.len()), Some(4), "the rows go on");
    etcd.start_again();
    wait_until("the link is back", || hosts.iter().all(Running::is_up));
    let removed =
        wait_for("changes are accepted again", || match a.wish(Wish::Remove { job: first }) {
            Err(Refused::Unreachable | Refused::Unanswered) => None,
            answer => Some(answer),
        });
    assert!(removed.is_ok(), "{removed:?}");
    wait_until("the job is gone everywhere", || hosts.iter().all(|it| it.cpus_of(first).is_none()));
    for host in &hosts {
        let faults = host.look(|member| Some(member.view().faults().count()));
        assert_eq!(faults, Some(0));
    }
}

#[test]
fn job_of_a_host_that_dies_stands_still() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    let a = Running::start(&runtime, address(&etcd), "a", 4);
    let other = crate::hosts::runtime();
    let b = Running::start(&other, address(&etcd), "b", 4);
    wait_until("both join", || a.is_in() && b.is_in());
    let id = a.register(&job("one", &[("a", 1), ("b", 1)]));
    // Its lease ends with its connection, a few seconds later.
    other.shutdown_timeout(Duration::from_secs(1));
    drop(b);
    wait_until("the job is suspended, and says which host it lost", || {
        let entries = a.look(|member| member.view().entries(id).cloned());
        entries.is_some_and(|it| it.wanted == Wanted::Suspend && !it.lost().is_empty())
    });
    let slots =
        a.look(|member| Some((0..64).map(|at| member.slots(a_slice() + at).len()).sum::<usize>()));
    assert_eq!(
        slots.filter(|_| a.look(|it| it.timeline().at(a_slice()).map(|_| ())).is_some()),
        Some(0)
    );
}

/// A slice a second from now: changes hold by then.
fn a_slice() -> u64 {
    let utc = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    (utc.as_nanos() as u64 + 1_000_000_000) / SLICE_NS
}
