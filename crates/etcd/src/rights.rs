//! Users and roles of etcd: what each host of a cluster may write.
//!
//! Every host has a user of its own, by whom etcd knows it: by the common name of its certificate,
//! or by a password. Its role permits to read the whole cluster, and to write below the host's own
//! prefix, in the matrix, and the key that says that the host is alive. So a host can register jobs
//! as coming from itself alone.

use etcd_client::{Client, Error, Permission, UserAddOptions};
use gang_cluster::keys::Keys;

/// The user of a host, which is the common name of its certificate.
pub fn user_of(cluster: &str, host: &str) -> String {
    // Names have no @: no two hosts of any clusters are one user.
    format!("gang-{host}@{cluster}")
}

/// Makes the user and the role of a host, or gives those that are there what they need. Without a
/// password, only a certificate shows who somebody is.
///
/// # Errors
/// etcd is away, or does not permit it: that needs its root.
pub async fn permit_host(
    client: &mut Client,
    cluster: &str,
    host: &str,
    password: Option<&str>,
) -> Result<(), Error> {
    let Some(keys) = Keys::new(cluster) else {
        return Err(Error::InvalidArgs(format!("{cluster:?} cannot be the name of a cluster")));
    };
    let name = user_of(cluster, host);
    let (prefixes, alive) = keys.writable(host);
    let unless_there = |done: Result<(), Error>| match done {
        Err(Error::GRpcStatus(status)) if status.message().contains("already exists") => Ok(()),
        done => done,
    };
    unless_there(client.role_add(name.clone()).await.map(drop))?;
    let reads = [keys.registry(), keys.all_alive()];
    let reads = reads.map(|prefix| Permission::read(prefix).with_prefix());
    let writes = prefixes.map(|prefix| Permission::read_write(prefix).with_prefix());
    let all = reads.into_iter().chain(writes).chain([Permission::read_write(alive)]);
    for permission in all {
        client.role_grant_permission(name.clone(), permission).await?;
    }
    let options = match password {
        Some(_) => UserAddOptions::new(),
        None => UserAddOptions::new().with_no_pwd(),
    };
    let added = client.user_add(name.clone(), password.unwrap_or_default(), Some(options)).await;
    unless_there(added.map(drop))?;
    client.user_grant_role(name.clone(), name).await.map(drop)
}
