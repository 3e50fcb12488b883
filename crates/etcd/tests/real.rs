//! Hosts over a real etcd on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gang_cluster::change::{By, Granted, Refused, Wish};
use gang_cluster::keys::{Key, Keys};
use gang_cluster::member::{Identity, Member, Note, Now, Observation};
use gang_cluster::record::{Clock, Job, OnHostLost, Owner, Settings, Users, Wanted, numbers};
use gang_cluster::store::{Op, Outcome, Txn};
use gang_etcd::{Address, Ask, Driver, Host, InitError, commit, init, permit_host, user_of};
use gang_harness::etcd::Etcd;
use gang_harness::{wait_for, wait_until};
use gang_schedule::{CpuSet, JobId};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

const SLICE_NS: u64 = 20_000_000;

/// Where it is.
fn address(etcd: &Etcd) -> Address {
    Address { endpoints: vec![etcd.url()], ..Address::default() }
}

/// The state of a host, as its daemon was shown it.
#[derive(Default)]
struct Shown {
    member: Option<Member>,
    notes: Vec<Note>,
    is_up: bool,
}

struct Fake {
    began: Instant,
    shown: Arc<Mutex<Shown>>,
}

impl Host for Fake {
    fn now(&self) -> Now {
        let utc = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let monotonic_ns = self.began.elapsed().as_nanos() as u64;
        Now { utc_ns: utc.as_nanos() as u64, monotonic_ns }
    }

    fn first_slice(&self) -> u64 {
        self.now().utc_ns / SLICE_NS + 2
    }

    fn seen(&mut self) -> Observation {
        let clock = Clock { source: "chrony".to_owned(), offset_ns: 0, bound_ns: 100_000 };
        let nonces = ["one", "two"].map(str::to_owned).into();
        Observation {
            clock,
            threads: 0,
            of_users: BTreeMap::new(),
            parts: Vec::new(),
            complete: BTreeSet::new(),
            nonces,
        }
    }

    fn changed(&mut self, member: &Member) {
        self.shown.lock().unwrap().member = Some(member.clone());
    }

    fn note(&mut self, note: Note) {
        self.shown.lock().unwrap().notes.push(note);
    }

    fn link(&mut self, is_up: Result<(), String>) {
        self.shown.lock().unwrap().is_up = is_up.is_ok();
    }
}

/// A host of the cluster, on the runtime.
struct Running {
    wishes: mpsc::Sender<Ask>,
    shown: Arc<Mutex<Shown>>,
}

impl Running {
    fn start(runtime: &Runtime, address: Address, name: &str, cpus: u32) -> Running {
        let (wishes, asked) = mpsc::channel(8);
        let shown = Arc::new(Mutex::new(Shown::default()));
        let me = Identity {
            name: name.to_owned(),
            cpus,
            numbers: numbers(0..cpus),
            machine: format!("machine of {name}"),
            boot: "one kernel".to_owned(),
            slice_ns: SLICE_NS,
        };
        let host = Fake { began: Instant::now(), shown: Arc::clone(&shown) };
        let find = Box::new(move || Ok(address.clone()));
        let driver = Driver::new(find, me, Keys::new("test").unwrap(), Box::new(host), asked);
        runtime.spawn(driver.run());
        Running { wishes, shown }
    }

    fn wish(&self, wish: Wish) -> Result<Granted, Refused> {
        let (answer, answered) = oneshot::channel();
        self.wishes.blocking_send(Ask::Wish(Box::new(wish), answer)).expect("the driver runs");
        answered.blocking_recv().expect("each wish has an answer")
    }

    fn look<T>(&self, at: impl FnOnce(&Member) -> Option<T>) -> Option<T> {
        self.shown.lock().unwrap().member.as_ref().and_then(at)
    }

    fn is_in(&self) -> bool {
        self.look(|member| member.host()).is_some()
    }

    /// The CPUs that a job has here in some slice of the last step.
    fn cpus_of(&self, job: JobId) -> Option<CpuSet> {
        self.look(|member| {
            let step = member.timeline().steps().last()?;
            let part = step.parts.iter().find(|part| part.job == job)?;
            (!part.rows.is_empty()).then(|| part.cpus.clone())
        })
    }
}

fn settings() -> Settings {
    Settings {
        id: "test".to_owned(),
        slice_ns: SLICE_NS,
        rows: 16,
        by_program: true,
        users: Users::Name,
        lost_after_ms: 1_000,
    }
}

fn job(name: &str, hosts: &[(&str, u32)]) -> Job {
    Job {
        name: name.to_owned(),
        owner: Owner { uid: 1000, name: "ada".to_owned(), by_root: false },
        class: "batch".to_owned(),
        weight: 100,
        cpus: hosts.iter().map(|&(host, cpus)| (host.to_owned(), cpus)).collect(),
        allowed: BTreeMap::new(),
        ranks: BTreeMap::new(),
        launched_as: None,
        on_host_lost: OnHostLost::Suspend,
        registered_at_ns: 0,
        nonce: name.to_owned(),
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn found(runtime: &Runtime, etcd: &Etcd) -> Result<(), InitError> {
    let keys = Keys::new("test").unwrap();
    wait_for("etcd answers", || match runtime.block_on(init(&address(etcd), &keys, &settings())) {
        Err(InitError::Etcd { .. }) => None,
        done => Some(done),
    })
}

#[test]
fn hosts_share_one_matrix_and_outlive_etcd() {
    let Some(mut etcd) = Etcd::start() else { return };
    let runtime = runtime();
    found(&runtime, &etcd).expect("a new cluster");
    assert!(matches!(found(&runtime, &etcd), Err(InitError::Exists)));
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
    wait_until("the link is lost", || hosts.iter().all(|it| !it.shown.lock().unwrap().is_up));
    assert_eq!(a.wish(Wish::Remove { job: first }), Err(Refused::Unreachable));
    assert_eq!(a.cpus_of(first).map(|cpus| cpus.len()), Some(4), "the rows go on");
    etcd.start_again();
    wait_until("the link is back", || {
        hosts.iter().all(|it| it.look(|it| it.is_up().then_some(())).is_some())
    });
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
    found(&runtime, &etcd).expect("a new cluster");
    let a = Running::start(&runtime, address(&etcd), "a", 4);
    let other = self::runtime();
    let b = Running::start(&other, address(&etcd), "b", 4);
    wait_until("both join", || a.is_in() && b.is_in());
    let id = wait_for("the job is registered", || {
        match a.wish(Wish::Register(job("one", &[("a", 1), ("b", 1)]))) {
            Ok(Granted::Registered { job, .. }) => Some(job),
            Err(Refused::Away(_)) => None,
            other => panic!("{other:?}"),
        }
    });
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

#[test]
fn host_writes_only_what_is_its_own() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = runtime();
    found(&runtime, &etcd).expect("a new cluster");
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
    let id = wait_for("the job is registered", || {
        match a.wish(Wish::Register(job("one", &[("a", 1), ("b", 1)]))) {
            Ok(Granted::Registered { job, .. }) => Some(job),
            Err(Refused::Away(_)) => None,
            other => panic!("{other:?}"),
        }
    });
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

/// A slice a second from now: changes hold by then.
fn a_slice() -> u64 {
    let utc = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    (utc.as_nanos() as u64 + 1_000_000_000) / SLICE_NS
}
