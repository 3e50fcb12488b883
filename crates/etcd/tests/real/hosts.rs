//! Hosts that run over a real etcd.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gang_cluster::change::{Granted, Refused, Wish};
use gang_cluster::keys::Keys;
use gang_cluster::member::{Identity, Member, Note, Now, Observation};
use gang_cluster::record::{Clock, ClusterSettings, Job, OnHostLost, Owner, Users, numbers};
use gang_cluster::store::Bound;
use gang_etcd::{Address, Ask, Driver, Find, Host, InitError, init};
use gang_harness::etcd::Etcd;
use gang_harness::wait_for;
use gang_schedule::{CpuSet, JobId};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};

pub const SLICE_NS: u64 = 20_000_000;

/// Where it is.
pub fn address(etcd: &Etcd) -> Address {
    Address { endpoints: vec![etcd.url()], ..Address::default() }
}

/// The state of a host, as its daemon was shown it.
#[derive(Default)]
pub struct Shown {
    pub member: Option<Member>,
    pub notes: Vec<Note>,
    /// Why there is no link, if so.
    pub away: Option<String>,
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
            missing: BTreeMap::new(),
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
        self.shown.lock().unwrap().away = is_up.err();
    }
}

/// A host of the cluster, on the runtime.
pub struct Running {
    wishes: mpsc::Sender<Ask>,
    pub shown: Arc<Mutex<Shown>>,
}

impl Running {
    pub fn start(runtime: &Runtime, address: Address, name: &str, cpus: u32) -> Running {
        let find: Find = Box::new(move || Ok(address.clone()));
        Running::find(runtime, "test", find, name, cpus)
    }

    /// The same in any cluster, and with certificates that may be others later.
    pub fn find(runtime: &Runtime, cluster: &str, find: Find, name: &str, cpus: u32) -> Running {
        Running::bounded(runtime, cluster, find, name, cpus, Bound::default())
    }

    /// The same, and it keeps so much of the registry at most.
    pub fn bounded(
        runtime: &Runtime,
        cluster: &str,
        find: Find,
        name: &str,
        cpus: u32,
        bound: Bound,
    ) -> Running {
        let (wishes, asked) = mpsc::channel(8);
        let shown = Arc::new(Mutex::new(Shown::default()));
        let me = Identity {
            name: name.to_owned(),
            cpus,
            numbers: numbers(0..cpus),
            machine: format!("machine of {name}"),
            boot: "one kernel".to_owned(),
            slice_ns: SLICE_NS,
            clock_percent: 5,
        };
        let host = Fake { began: Instant::now(), shown: Arc::clone(&shown) };
        let driver = Driver::new(find, me, Keys::new(cluster).unwrap(), Box::new(host), asked);
        runtime.spawn(driver.keeping_at_most(bound).run());
        Running { wishes, shown }
    }

    pub fn wish(&self, wish: Wish) -> Result<Granted, Refused> {
        let (answer, answered) = oneshot::channel();
        self.wishes.blocking_send(Ask::Wish(Box::new(wish), answer)).expect("the driver runs");
        answered.blocking_recv().expect("each wish has an answer")
    }

    pub fn look<T>(&self, at: impl FnOnce(&Member) -> Option<T>) -> Option<T> {
        self.shown.lock().unwrap().member.as_ref().and_then(at)
    }

    pub fn is_in(&self) -> bool {
        self.look(|member| member.host()).is_some()
    }

    /// The CPUs that a job has here in some slice of the last step.
    pub fn cpus_of(&self, job: JobId) -> Option<CpuSet> {
        self.look(|member| {
            let step = member.timeline().steps().last()?;
            let part = step.parts.iter().find(|part| part.job == job)?;
            (!part.rows.is_empty()).then(|| part.cpus.clone())
        })
    }
}

pub fn settings() -> ClusterSettings {
    ClusterSettings {
        id: "test".to_owned(),
        slice_ns: SLICE_NS,
        rows: 16,
        by_program: true,
        users: Users::Name,
        lost_after_ms: 1_000,
    }
}

pub fn job(name: &str, hosts: &[(&str, u32)]) -> Job {
    Job {
        name: name.to_owned(),
        owner: Owner { uid: 1000, name: "ada".to_owned(), by_root: false, payer: None },
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

pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

pub fn init_cluster(runtime: &Runtime, etcd: &Etcd) -> Result<(), InitError> {
    let keys = Keys::new("test").unwrap();
    wait_for("etcd answers", || match runtime.block_on(init(&address(etcd), &keys, &settings())) {
        Err(InitError::Etcd { .. }) => None,
        done => Some(done),
    })
}

impl Running {
    /// Why it has no link.
    pub fn away(&self) -> Option<String> {
        self.shown.lock().unwrap().away.clone()
    }

    pub fn is_up(&self) -> bool {
        self.look(|it| it.is_up().then_some(())).is_some()
    }

    /// Registers a job, as soon as its hosts are seen alive.
    pub fn register(&self, job: &Job) -> JobId {
        wait_for("the job is registered", || match self.wish(Wish::Register(job.clone())) {
            Ok(Granted::Registered { job, .. }) => Some(job),
            Err(Refused::Away(_)) => None,
            other => panic!("{other:?}"),
        })
    }
}
