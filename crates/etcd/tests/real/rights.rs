//! The rights of a host in etcd.

use gang_cluster::keys::{Key, Keys};
use gang_cluster::store::{Op, Outcome, Txn};
use gang_etcd::{Address, commit, permit_host, user_of};
use gang_harness::etcd::Etcd;
use gang_harness::wait_until;

use crate::hosts::{Running, address, init_cluster, job, runtime};

#[test]
fn host_writes_only_what_is_its_own() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = runtime();
    init_cluster(&runtime, &etcd).expect("a new cluster");
    let address = address(&etcd);
    runtime.block_on(async {
        let mut root = address.connect().await.expect("a connection");
        for host in ["a", "b"] {
            permit_host(&mut root, "test", host, Some("secret")).await.expect("a user");
            // Once more changes nothing.
            permit_host(&mut root, "test", host, Some("secret")).await.expect("the same user");
        }
        root.user_add("root", "secret", None).await.expect("a user");
        root.user_grant_role("root", "root").await.expect("a role");
        root.auth_enable().await.expect("users are asked who they are");
    });
    let of = |host: &str| {
        let user = Some((user_of("test", host), "secret".to_owned()));
        Address { user, ..address.clone() }
    };
    let [a, b] = ["a", "b"].map(|host| Running::start(&runtime, of(host), host, 4));
    wait_until("both join", || a.is_in() && b.is_in());
    let id = a.register(&job("one", &[("a", 1), ("b", 1)]));
    wait_until("b has the job, too", || b.cpus_of(id).is_some());
    runtime.block_on(async {
        let keys = Keys::new("test").unwrap();
        let mut b = of("b").connect().await.expect("a connection");
        let of_a = keys.of(&Key::Job { host: "a".to_owned(), job: id });
        for key in [of_a, keys.of(&Key::Settings), keys.alive("a"), "/gang/other/x".to_owned()] {
            let put = Op::Put { key: key.clone(), value: "{}".to_owned(), leased: false };
            let txn = Txn { compares: Vec::new(), ops: vec![put] };
            let outcome = commit(&mut b, &txn, 0).await.expect("an answer");
            assert!(matches!(outcome, Outcome::Refused(_)), "{key}: {outcome:?}");
        }
    });
    // A host that is somebody else is not let in.
    let wrong =
        Address { user: Some((user_of("test", "a"), "guess".to_owned())), ..address.clone() };
    assert!(runtime.block_on(wrong.connect()).is_err());
}
