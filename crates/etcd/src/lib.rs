//! Carries what a host of a cluster decides to etcd, and what etcd says back.
//!
//! A [`Member`](gang_cluster::Member) decides; this room has the connection, the watch and the
//! lease. It adds nothing: a transaction is sent as it is, and a revision is handed on whole. Where
//! etcd is away, the driver tries again, and the member goes on with the rows that it has.
//!
//! One task does one thing at a time, so that the member sees revisions and answers in the order in
//! which etcd gave them.

mod convert;
mod driver;
mod link;
mod rights;

pub use convert::{commit, read};
pub use driver::{Address, Ask, Driver, Find, Host, Tls};
pub use etcd_client::Error;
pub use link::Link;
pub use rights::{permit_host, user_of};

use etcd_client::Client;
use gang_cluster::change::Refused;
use gang_cluster::keys::Keys;
use gang_cluster::record::Settings;
use gang_cluster::store::Outcome;

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
pub fn init_blocking(address: &Address, keys: &Keys, settings: &Settings) -> Result<(), InitError> {
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

fn block_on<T>(of: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime takes a few descriptors").block_on(of)
}

/// Writes the first records of a cluster.
///
/// # Errors
/// [`InitError`]; nothing was written then.
pub async fn init(address: &Address, keys: &Keys, settings: &Settings) -> Result<(), InitError> {
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
