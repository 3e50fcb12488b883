//! Carries what a host of a cluster decides to etcd, and what etcd says back.
//!
//! A [`Member`](gang_cluster::Member) decides; this room has the connection, the watch and the
//! lease. It adds nothing: a transaction is sent as it is, and a revision is handed on whole. Where
//! etcd is away, the driver tries again, and the member goes on with the rows that it has.
//!
//! One task does one thing at a time, so that the member sees revisions and answers in the order in
//! which etcd gave them.

mod certificates;
mod convert;
mod driver;
mod link;
mod rights;

pub use certificates::{CertificateError, Wanted, write_certificates};
pub use convert::{ReadError, commit, read};
pub use driver::{Address, Ask, Driver, Find, Host, KEEP_ALIVE, TTL_S, Tls};
pub use etcd_client::Error;
pub use link::Link;
pub use rights::{permit_host, user_of};

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use etcd_client::Client;
use gang_cluster::change::{Draft, Inputs, Refused, Wish, draft};
use gang_cluster::keys::Keys;
use gang_cluster::record::ClusterSettings;
use gang_cluster::store::Outcome;
use gang_cluster::view::View;

/// Why a cluster could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("etcd has a cluster of this name already")]
    Exists,
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("etcd at {endpoints}: {source}")]
    Etcd { endpoints: String, source: Error },
    #[error("etcd at {endpoints} refused: {why}")]
    Store { endpoints: String, why: String },
}

/// The same as [`init`], on a runtime of its own.
///
/// # Errors
/// [`InitError`].
pub fn init_blocking(
    address: &Address,
    keys: &Keys,
    settings: &ClusterSettings,
) -> Result<(), InitError> {
    block_on(init(address, keys, settings))
}

/// The same as [`permit_host`], for a host that shows who it is by its certificate, on a connection
/// and a runtime of its own.
///
/// # Errors
/// etcd is away, or does not permit it.
pub fn permit_host_blocking(address: &Address, cluster: &str, host: &str) -> Result<(), Error> {
    block_on(async {
        let mut client = address.connect().await?;
        permit_host(&mut client, cluster, host, None).await
    })
}

/// Why hosts could not be taken out of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum LeaveError {
    #[error("the gangd of host {0} is alive: end that first, or it joins again")]
    Alive(String),
    #[error("the cluster has no host {0}")]
    NoHost(String),
    #[error("host {host} cannot leave: {why}")]
    Refused { host: String, why: Refused },
    #[error("etcd: {0}")]
    Etcd(#[from] Error),
    #[error("etcd: {0}")]
    Read(#[from] ReadError),
    #[error("others changed the cluster all the time: try again")]
    Conflict,
}

/// Takes hosts out of a cluster, with a connection and a runtime of its own.
///
/// # Errors
/// [`LeaveError`]; some of the hosts are in the cluster then.
pub fn leave_blocking(
    address: &Address,
    keys: &Keys,
    hosts: &BTreeSet<String>,
) -> Result<(), LeaveError> {
    block_on(leave(address, keys, hosts))
}

/// Takes hosts out of a cluster: this one, or with the rights of etcd's root any that are away.
/// Their jobs must have ended. As long as one of them cannot leave, none does.
///
/// # Errors
/// [`LeaveError`].
pub async fn leave(
    address: &Address,
    keys: &Keys,
    hosts: &BTreeSet<String>,
) -> Result<(), LeaveError> {
    let mut client = address.connect().await?;
    let mut view = View::new(keys.clone());
    for turn in 0..LEAVE_TURNS + hosts.len() {
        view.read(&read(&mut client, keys, view.bound()).await?);
        let left = hosts.iter().filter(|host| view.hosts().contains_key(*host));
        let left: Vec<&String> = left.collect();
        if let Some(unknown) = hosts.iter().find(|host| turn == 0 && !left.contains(host)) {
            return Err(LeaveError::NoHost(unknown.clone()));
        }
        let mut next = None;
        for host in left {
            if !client.get(keys.alive(host), None).await?.kvs().is_empty() {
                return Err(LeaveError::Alive(host.clone()));
            }
            let drafted = leaves(&view, host, hosts).map_err(of_host(host))?;
            // The homes of jobs last: a kill stays on file until no other host is there to hear
            // of it.
            let homes = view.records(host).count();
            if next.as_ref().is_none_or(|&(_, _, least)| homes < least) {
                next = Some((host, drafted, homes));
            }
        }
        let Some((host, drafted, _)) = next else { return Ok(()) };
        match commit(&mut client, &drafted.txn, 0).await? {
            Outcome::Refused(why) => return Err(of_host(host)(Refused::Store(why))),
            Outcome::Unknown => return Err(of_host(host)(Refused::Unanswered)),
            Outcome::Committed(_) | Outcome::Conflict(_) => {}
        }
    }
    Err(LeaveError::Conflict)
}

/// Some hundred jobs that are over are cleared away, and some changes of others waited for.
const LEAVE_TURNS: usize = 100;

/// The change by which a host leaves together with others.
fn leaves(view: &View, host: &str, with: &BTreeSet<String>) -> Result<Draft, Refused> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (alive, lost, now_ns) = (&BTreeMap::new(), &BTreeSet::new(), now.as_nanos() as u64);
    let machine = view.hosts().get(host).map_or("", |it| it.machine.as_str());
    let from = Inputs { view, alive, lost, host, machine, now_ns };
    draft(from, &Wish::Leave { with: with.clone() })
}

fn of_host(host: &str) -> impl FnOnce(Refused) -> LeaveError {
    let host = host.to_owned();
    move |why| LeaveError::Refused { host, why }
}

fn block_on<T>(of: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime takes a few descriptors").block_on(of)
}

/// Writes the first records of a cluster.
///
/// # Errors
/// [`InitError`]; nothing was written then.
pub async fn init(
    address: &Address,
    keys: &Keys,
    settings: &ClusterSettings,
) -> Result<(), InitError> {
    let endpoints = address.endpoints.join(", ");
    let etcd = |source| InitError::Etcd { endpoints: endpoints.clone(), source };
    let mut client: Client = address.connect().await.map_err(etcd)?;
    let txn = gang_cluster::change::init(keys, settings)?;
    match commit(&mut client, &txn, 0).await {
        Ok(Outcome::Committed(_)) => Ok(()),
        Ok(Outcome::Conflict(_)) => Err(InitError::Exists),
        Ok(Outcome::Refused(why)) => Err(InitError::Store { endpoints: endpoints.clone(), why }),
        Ok(Outcome::Unknown) => {
            let why = "no answer came".to_owned();
            Err(InitError::Store { endpoints: endpoints.clone(), why })
        }
        Err(source) => Err(etcd(source)),
    }
}
