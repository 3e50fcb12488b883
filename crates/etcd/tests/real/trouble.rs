//! An etcd that is full, a registry of which there is too much, two clusters in one etcd, and hosts
//! that leave.

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, DeleteOptions};
use gang_cluster::change::{By, Granted, Refused, Wish};
use gang_cluster::keys::{Key, Keys};
use gang_cluster::record::{Alive, Job, OnHostLost, Wanted};
use gang_cluster::store::{Bound, Op, Outcome, Txn};
use gang_etcd::{Find, LeaveError, commit, init, leave, user_of};
use gang_harness::etcd::Etcd;
use gang_harness::{wait_for, wait_until};
use gang_schedule::JobId;

use crate::hosts::{Running, address, init_cluster, job, runtime, settings};

#[test]
fn full_etcd_costs_no_slot_and_recovers_with_room() {
    let quota = ["--quota-backend-bytes", "2097152"].map(Into::into).to_vec();
    let Some(etcd) = Etcd::with(quota) else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    let [a, b] = ["a", "b"].map(|name| Running::start(&runtime, address(&etcd), name, 4));
    wait_until("both join", || a.is_in() && b.is_in());
    let id = a.register(&job("one", &[("a", 1), ("b", 1)]));
    wait_until("b has the job, too", || b.cpus_of(id).is_some());
    let mut at = 0;
    wait_until("it is full", || {
        at += 1;
        let (key, value) = (format!("/other/{at}"), "x".repeat(300_000));
        let ops = vec![Op::Put { key, value, leased: false }];
        let put = async {
            let mut client = address(&etcd).connect().await?;
            commit(&mut client, &Txn { compares: Vec::new(), ops }, 0).await
        };
        let put: Result<Outcome, gang_etcd::Error> = runtime.block_on(put);
        matches!(put, Ok(Outcome::Refused(why)) if why.contains("space exceeded"))
    });
    let why = wait_for("a change is refused", || {
        match a.wish(Wish::Register(job("two", &[("a", 1), ("b", 1)]))) {
            Err(Refused::Store(why)) => Some(why),
            Err(Refused::Unreachable | Refused::Unanswered) => a.away(),
            other => panic!("{other:?}"),
        }
    });
    assert!(why.contains("space exceeded"), "{why}");
    assert!(a.cpus_of(id).is_some() && b.cpus_of(id).is_some(), "the rows go on");
    // As administrators do then (etcdctl compact, defrag, alarm disarm).
    runtime.block_on(async {
        let mut client = address(&etcd).connect().await.expect("a connection");
        let prefix = DeleteOptions::new().with_prefix();
        let revision = client.delete("/other/", Some(prefix)).await.expect("it deletes");
        let revision = revision.header().expect("a header").revision();
        client.compact(revision, None).await.expect("it compacts");
        client.defragment().await.expect("it defragments");
        let (get, disarm, no_space) =
            (AlarmAction::Get, AlarmAction::Deactivate, AlarmType::Nospace);
        let alarms = client.alarm(get, no_space, None).await.expect("the alarms");
        for alarm in alarms.alarms() {
            let mut of = AlarmOptions::new();
            of.with_member(alarm.member_id());
            client.alarm(disarm, no_space, Some(of)).await.expect("the alarm is off");
        }
    });
    wait_for("changes are taken again", || {
        a.wish(Wish::Register(job("two", &[("a", 1), ("b", 1)]))).ok()
    });
    assert!(a.cpus_of(id).is_some() && b.cpus_of(id).is_some());
}

/// A host whose daemon is somebody else's writes below its own prefix what it likes.
#[test]
fn registry_of_too_much_costs_no_slot_and_says_so() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    let keys = Keys::new("test").unwrap();
    let put = |key: String, value: String| {
        let ops = vec![Op::Put { key, value, leased: false }];
        let done = runtime.block_on(async {
            let mut client = address(&etcd).connect().await?;
            commit(&mut client, &Txn { compares: Vec::new(), ops }, 0).await
        });
        assert!(matches!(done, Ok(Outcome::Committed(_))), "{done:?}");
    };
    put(keys.alive("rogue"), "x".repeat(300_000));
    let bound = Bound { bytes: 400_000, ..Bound::default() };
    let [a, b] = ["a", "b"].map(|name| {
        let address = address(&etcd);
        let find: Find = Box::new(move || Ok(address.clone()));
        Running::bounded(&runtime, "test", find, name, 4, bound)
    });
    wait_until("both join", || a.is_in() && b.is_in());
    let long = || "x".repeat(60_000);
    // Keys that mean nothing are not kept.
    (0..10).for_each(|at| put(format!("{}hosts/b/other/{at}", keys.registry()), long()));
    let id = a.register(&job("one", &[("a", 1), ("b", 1)]));
    wait_until("b has the job, too", || b.cpus_of(id).is_some());
    let of_rogue = |it: &Alive| it.unwilling.clone();
    let rogue_says = || a.look(|it| it.alive().get("rogue").and_then(of_rogue));
    wait_until("a hears of it", || rogue_says().is_some());
    let why = rogue_says().unwrap();
    assert!(why.contains("300000 bytes, more than the 262144"), "{why}");
    // Those of jobs are.
    let rogue = |at: u64| Key::Job { host: "rogue".to_owned(), job: JobId(id.0 + 1_000 + at) };
    (0..8).for_each(|at| put(keys.of(&rogue(at)), long()));
    let is_told = |it: &Running| it.away().is_some_and(|why| why.contains("has more than 0.38"));
    wait_until("both say why", || is_told(&a) && is_told(&b));
    let refused = a.wish(Wish::Register(job("two", &[("a", 1), ("b", 1)])));
    assert!(matches!(refused, Err(Refused::Unreachable)), "{refused:?}");
    assert!(a.cpus_of(id).is_some() && b.cpus_of(id).is_some(), "the rows go on");
    runtime.block_on(async {
        let mut client = address(&etcd).connect().await.expect("a connection");
        let prefix = DeleteOptions::new().with_prefix();
        let rogue = format!("{}hosts/rogue/", keys.registry());
        client.delete(rogue, Some(prefix)).await.expect("it deletes");
    });
    wait_until("both read it again", || a.is_up() && b.is_up() && a.away().is_none());
    a.register(&job("two", &[("a", 1), ("b", 1)]));
    assert!(a.cpus_of(id).is_some() && b.cpus_of(id).is_some());
}

#[test]
fn two_clusters_in_one_etcd_do_not_see_each_other() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    let other = Keys::new("other").unwrap();
    runtime.block_on(init(&address(&etcd), &other, &settings())).expect("another cluster");
    let start = |cluster: &str, host: &str| {
        let address = address(&etcd);
        let find: Find = Box::new(move || Ok(address.clone()));
        Running::find(&runtime, cluster, find, host, 4)
    };
    let [a, b] = ["a", "b"].map(|host| start("test", host));
    let [other_a, other_b] = ["a", "b"].map(|host| start("other", host));
    let all = [&a, &b, &other_a, &other_b];
    wait_until("all join", || all.iter().all(|it| it.is_in()));
    let (one, two) = (
        a.register(&job("one", &[("a", 4), ("b", 4)])),
        other_a.register(&job("two", &[("a", 4), ("b", 4)])),
    );
    assert_eq!(one, two, "each cluster counts its own jobs");
    for (host, name) in [(&b, "one"), (&other_b, "two")] {
        let names = || host.look(|it| Some(it.view().jobs().map(|it| it.2.name.clone()).collect()));
        wait_until("each has its own", || names() == Some(vec![name.to_owned()]));
    }
    // No two of their hosts are one user, whatever the names.
    assert_ne!(user_of("a-b", "c"), user_of("a", "b-c"));
}

#[test]
fn host_leaves_once_jobs_and_daemon_have_ended() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    let keys = Keys::new("test").unwrap();
    let a = Running::start(&runtime, address(&etcd), "a", 4);
    let other = crate::hosts::runtime();
    let b = Running::start(&other, address(&etcd), "b", 4);
    wait_until("both join", || a.is_in() && b.is_in());
    let id = a.register(&job("one", &[("a", 1), ("b", 1)]));
    wait_until("b has the job, too", || b.cpus_of(id).is_some());
    let leaves =
        |host: &str| runtime.block_on(leave(&address(&etcd), &keys, &[host.to_owned()].into()));
    wait_until("it is alive", || matches!(leaves("b"), Err(LeaveError::Alive(_))));
    assert!(matches!(leaves("nobody"), Err(LeaveError::NoHost(_))));
    other.shutdown_timeout(std::time::Duration::from_secs(1));
    drop(b);
    let why = wait_for("its lease ends", || match leaves("b") {
        Err(LeaveError::Alive(_)) => None,
        done => Some(done),
    });
    assert!(matches!(why, Err(LeaveError::Refused { .. })), "{why:?}");
    a.wish(Wish::Remove { job: id }).expect("the job is removed");
    leaves("b").expect("it leaves");
    wait_until("a knows it no more", || a.look(|it| Some(it.view().hosts().len())) == Some(1));
}

/// Each of two hosts has registered a job on both, and both jobs were killed by a third one.
#[test]
fn two_lost_homes_leave_together() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    let keys = Keys::new("test").unwrap();
    let others = crate::hosts::runtime();
    let start = |runtime, name| Running::start(runtime, address(&etcd), name, 4);
    let (a, b, c) = (start(&others, "a"), start(&others, "b"), start(&runtime, "c"));
    wait_until("all join", || [&a, &b, &c].iter().all(|it| it.is_in()));
    let of = |name| Job { on_host_lost: OnHostLost::Mark, ..job(name, &[("a", 1), ("b", 1)]) };
    let jobs = [a.register(&of("one")), b.register(&of("two"))];
    wait_until("c knows them", || {
        jobs.iter().all(|&id| c.look(|it| it.view().job(id).map(|_| ())).is_some())
    });
    let leaves = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        runtime.block_on(leave(&address(&etcd), &keys, &hosts))
    };
    others.shutdown_timeout(std::time::Duration::from_secs(1));
    drop((a, b));
    let is_lost =
        |it: &gang_cluster::Member, id| it.view().entries(id).map(|it| it.lost().len() == 2);
    wait_until("both are lost", || {
        jobs.iter().all(|&id| c.look(|it| is_lost(it, id)) == Some(true))
    });
    for job in jobs {
        let by = By { uid: 0, name: "root".to_owned() };
        let killed = c.wish(Wish::Want { job, wanted: Wanted::Kill, by });
        assert!(matches!(killed, Ok(Granted::Done { .. })), "{killed:?}");
    }
    for host in ["a", "b"] {
        let why = leaves(&[host]);
        assert!(matches!(why, Err(LeaveError::Refused { .. })), "{host}: {why:?}");
    }
    assert!(matches!(leaves(&["a", "b", "c"]), Err(LeaveError::Alive(_))));
    leaves(&["a", "b"]).expect("both leave");
    wait_until("c is alone", || c.look(|it| Some(it.view().hosts().len())) == Some(1));
    assert_eq!(c.look(|it| Some(it.view().all_entries().count())), Some(0));
}
