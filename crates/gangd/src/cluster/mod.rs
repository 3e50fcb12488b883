//! This host in a cluster: what its daemon does for jobs that span hosts.
//!
//! [`gang_cluster::Member`] decides, [`gang_etcd`] carries it to etcd and back. Here are the
//! daemon's ends of both.
//!
//! - [`host`]: the daemon, as the member sees it: time, load, clock, parts. It hands the conductor
//!   the entries of spanning jobs as they change.
//! - [`parts`]: the parts that this host has, kept as the registry wants them.
//! - [`ranks`]: the processes that were added to parts, which await some.
//! - [`orders`]: what clients ask of jobs that span hosts.
//! - [`names`]: the names of users, looked up beside the link.
//! - [`clock`]: how good the clock is.
//! - [`init`](init()): a new cluster.

mod clock;
mod host;
mod init;
mod names;
mod orders;
mod parts;
mod ranks;

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use anyhow::Context;
use gang_cluster::{
    held,
    keys::Keys,
    member::{Identity, Overview},
    record::{self, Users, Wanted},
};
use gang_conductor::{Part, admission::LAPSES_AFTER_NS};
use gang_etcd::Link;
use gang_schedule::{CpuSet, JobId, UserId};

use crate::{
    conduct::{state::now, survey},
    daemon::Daemon,
    settings::cluster,
};

use ranks::Ranks;

pub use init::{init, leave, write_certificates};
pub use orders::{SpanningJob, name_of};

/// This host in its cluster.
pub struct Cluster {
    pub name: String,
    pub host: String,
    link: Link,
    shared: Arc<Shared>,
    parts: Mutex<Option<JoinHandle<()>>>,
}

/// The state that threads of the cluster share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Why etcd cannot be reached; None while it can.
    unreachable: Option<String>,
    /// Absent until the registry was read.
    wanted: Option<Arc<[WantedPart]>>,
    held: held::Held,
    /// Why parts are not here that should be.
    missing: BTreeMap<JobId, String>,
    /// The processes that were added to parts.
    ranks: Ranks,
    clock_bounds: clock::Bounds,
    is_closed: bool,
}

impl State {
    /// Whether as many processes were added to a part.
    fn has_come(&self, job: JobId, awaited: u32) -> bool {
        self.ranks.count(job) >= awaited as usize
    }
}

/// A part of this host, as the registry wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WantedPart {
    /// Its owner is not known here by that number yet.
    part: Part,
    owner: String,
    users: Users,
    wanted: Wanted,
    /// The wanted state holds from this moment on (UTC).
    from_ns: u64,
    /// Processes that are to come here before the first slot.
    ranks: u32,
    /// The CPUs of its entries.
    entries: CpuSet,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job that was registered and started nowhere yet is held, as long as this is there.
pub struct Held {
    shared: Arc<Shared>,
    nonce: String,
}

impl Held {
    /// The job turned out to be there already: it is held by this one, too.
    fn of(self, nonce: String) -> Held {
        let shared = self.shared.clone();
        shared.state().held.is_also(&self.nonce, &nonce);
        Held { shared, nonce }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.state().held.remove(&self.nonce);
    }
}

impl Cluster {
    /// Joins the cluster, and stays in it until [`Cluster::close`]. Whether etcd is there does not
    /// matter yet, nor whether the certificates are: both are reasons why etcd is away.
    pub fn start(daemon: &Arc<Daemon>, settings: &cluster::Cluster) -> anyhow::Result<Cluster> {
        let keys = Keys::new(&settings.name).context("the name of the cluster")?;
        let columns: Vec<u32> =
            survey::machine(&daemon.roots)?.cpus().iter().map(|cpu| cpu.id).collect();
        let boot = fs::read_to_string(daemon.roots.proc.join("sys/kernel/random/boot_id"));
        let boot = boot.context("cannot read the boot id")?.trim().to_owned();
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
        let me = Identity {
            name: settings.host.clone(),
            cpus: columns.len() as u32,
            numbers: record::numbers(columns.iter().copied()),
            machine: if machine.is_empty() { boot.clone() } else { machine },
            boot,
            slice_ns: daemon.settings().schedule.slice_ns,
            clock_percent: daemon.settings().clock.slice_percent,
        };
        let state = State {
            unreachable: Some("it was not asked yet".to_owned()),
            wanted: None,
            held: held::Held::new(LAPSES_AFTER_NS),
            missing: BTreeMap::new(),
            ranks: Ranks::read(daemon.jobs.store().ranks()),
            clock_bounds: clock::Bounds::default(),
            is_closed: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let quality = clock::Clock::start(daemon.settings().clock)?;
        let host = host::ThisHost::new(daemon, &shared, me.name.clone(), columns, quality);
        let of = settings.clone();
        let find = move || of.address().map_err(|error| format!("{error:#}"));
        let link = Link::start(Box::new(find), me, keys, Box::new(host));
        let link = link.context("cannot start the thread of the cluster")?;
        let parts = parts::start(daemon, &shared).context("cannot start the thread of parts")?;
        let parts = Mutex::new(Some(parts));
        let (name, host) = (settings.name.clone(), settings.host.clone());
        Ok(Cluster { name, host, link, shared, parts })
    }

    /// The cluster as it is now, or as it was read last where etcd is away.
    pub fn look(&self) -> Option<Overview> {
        self.link.look()
    }

    /// Why etcd cannot be reached, if so.
    pub fn unreachable(&self) -> Option<String> {
        self.shared.state().unreachable.clone()
    }

    /// Whether a client of this host has registered a job, for an account if one is given, that
    /// lapsed: no process of it came.
    pub fn has_lapsed(&self, job: JobId, account: Option<UserId>) -> bool {
        self.shared.state().held.has_lapsed(job, account, now().monotonic_ns)
    }

    /// How near to UTC the clock of this host was, lately.
    pub fn clock_bounds(&self) -> clock::Bounds {
        self.shared.state().clock_bounds.clone()
    }

    /// Why parts are not here as they are wanted.
    pub fn missing(&self) -> BTreeMap<JobId, String> {
        self.shared.state().missing.clone()
    }

    /// Ends the link, and waits until nothing is done to parts any more.
    pub fn close(&self) {
        self.shared.state().is_closed = true;
        self.shared.changed.notify_all();
        self.link.close();
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        parts.into_iter().for_each(|thread| drop(thread.join()));
    }
}
