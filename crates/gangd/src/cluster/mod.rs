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
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::Context;
use gang_cluster::{
    keys::Keys,
    member::{Identity, Overview},
    record::{self, Users, Wanted},
};
use gang_conductor::{Part, admission::LAPSES_AFTER_NS};
use gang_etcd::Link;
use gang_schedule::{CpuSet, JobId, UserId};

use crate::{conduct::survey, daemon::Daemon, settings::cluster};

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
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Why etcd cannot be reached; None while it can.
    unreachable: Option<String>,
    /// Absent until the registry was read.
    wanted: Option<Arc<[WantedPart]>>,
    /// Jobs that a client of this host registers, or has registered and started nowhere yet, by
    /// their nonces.
    held: BTreeMap<String, HeldJob>,
    /// Why parts are not here that should be.
    missing: BTreeMap<JobId, String>,
    /// The processes that were added to parts.
    ranks: Ranks,
    clock_bounds: clock::Bounds,
    is_closed: bool,
}

/// A job that a client of this host has registered.
#[derive(Clone, Copy, Debug)]
struct HeldJob {
    account: UserId,
    /// Its number, once the registry has given it one.
    job: Option<JobId>,
    since: Instant,
    /// Its ranks come when a launcher starts them.
    awaits_ranks: bool,
    /// A process of it has come on another host.
    has_started: bool,
}

/// A job that a client has registered is held for so long without a process.
pub const LAPSES_AFTER: Duration = Duration::from_nanos(LAPSES_AFTER_NS);

/// Jobs that have lapsed are known for so long, while their clients are there.
const LAPSED_FOR: Duration = Duration::from_secs(600);

impl HeldJob {
    /// Whether the job stays though it has no process, as long as its client is there.
    fn holds(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.since);
        self.has_started || self.awaits_ranks || age < LAPSES_AFTER
    }
}

impl State {
    /// Whether a client holds a job.
    fn is_held(&self, nonce: &str, now: Instant) -> bool {
        self.held.get(nonce).is_some_and(|held| held.holds(now))
    }

    /// The nonces of the jobs that clients hold.
    fn held(&mut self, now: Instant) -> BTreeSet<String> {
        let is_known = |held: &HeldJob| {
            held.holds(now) || now.saturating_duration_since(held.since) < LAPSED_FOR
        };
        self.held.retain(|_, held| is_known(held));
        let held = self.held.iter().filter(|(_, held)| held.holds(now));
        held.map(|(nonce, _)| nonce.clone()).collect()
    }

    /// Whether a job may lapse soon: processes of it may have come elsewhere.
    fn may_lapse(&self, now: Instant) -> bool {
        let may = |held: &HeldJob| !held.has_started && !held.awaits_ranks && held.holds(now);
        self.held.values().any(|held| held.job.is_some() && may(held))
    }

    /// Whether a job, of an account if one is given, had no process within its time, and its client
    /// is there still.
    fn has_lapsed(&self, job: JobId, account: Option<UserId>, now: Instant) -> bool {
        let is_his = |held: &HeldJob| account.is_none_or(|account| held.account == account);
        let is_it = |held: &&HeldJob| held.job == Some(job) && is_his(held);
        self.held.values().filter(is_it).any(|held| !held.holds(now))
    }

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
        let mut state = shared.state();
        if let Some(held) = state.held.get(&self.nonce).copied() {
            state.held.entry(nonce.clone()).or_insert(held);
        }
        drop(state);
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
        let shared = Arc::<Shared>::default();
        shared.state().unreachable = Some("it was not asked yet".to_owned());
        shared.state().ranks = Ranks::read(daemon.jobs.store().ranks());
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
        self.shared.state().has_lapsed(job, account, Instant::now())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registration_without_a_process_lapses() {
        let since = Instant::now();
        let (account, job) = (UserId(1000), Some(JobId(7)));
        let held = HeldJob { account, job, since, awaits_ranks: false, has_started: false };
        let mut state = State::default();
        state.held.insert("plain".to_owned(), held);
        state.held.insert("ranks".to_owned(), HeldJob { job: None, awaits_ranks: true, ..held });
        state.held.insert("there".to_owned(), HeldJob { job: None, has_started: true, ..held });
        let all = |state: &mut State, after| state.held(since + Duration::from_secs(after)).len();
        assert_eq!([all(&mut state, 9), all(&mut state, 11)], [3, 2]);
        let [soon, later] = [9, 11].map(|after| since + Duration::from_secs(after));
        assert_eq!([state.is_held("plain", soon), state.is_held("plain", later)], [true, false]);
        assert_eq!(
            [soon, later].map(|now| state.has_lapsed(JobId(7), Some(account), now)),
            [false, true]
        );
        assert!(!state.has_lapsed(JobId(7), Some(UserId(7)), later), "another's");
        assert!(state.has_lapsed(JobId(7), None, later), "to an administrator");
        assert_eq!([soon, later].map(|now| state.may_lapse(now)), [true, false]);
        assert_eq!(all(&mut state, 3_600), 2);
        assert!(!state.has_lapsed(JobId(7), None, since + Duration::from_secs(3_600)), "forgotten");
    }
}
