//! A new cluster: its first records, its certificates, and what hosts may write. And hosts
//! that leave one for good.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::Context;
use gang_cluster::{
    keys::{Keys, is_name},
    record::{self, Users},
};
use gang_linux::own_files;

use crate::{
    args::Args,
    settings::{Settings, cluster::Cluster},
};

/// The cluster that the configuration names.
fn named(settings: &Settings) -> anyhow::Result<(&Cluster, Keys)> {
    let of = settings.cluster.as_ref();
    let cluster = of.context("the configuration names no cluster: [cluster] needs name")?;
    let keys = Keys::new(&cluster.name).context("the name of the cluster")?;
    Ok((cluster, keys))
}

/// Takes hosts out of the cluster that the configuration names: this one where the name is empty.
pub fn leave(settings: &Settings, hosts: &[String]) -> anyhow::Result<()> {
    let (cluster, keys) = named(settings)?;
    let of_name = |host: &String| if host.is_empty() { &cluster.host } else { host }.clone();
    let hosts: BTreeSet<String> = hosts.iter().map(of_name).collect();
    gang_etcd::leave_blocking(&cluster.address()?, &keys, &hosts)
        .with_context(|| format!("cannot take hosts out of cluster {}", cluster.name))?;
    for host in hosts {
        println!("host {host} is in cluster {} no more", cluster.name);
    }
    Ok(())
}

/// Writes certificates for etcd, its administrator and hosts.
pub fn write_certificates(
    settings: &Settings,
    args: &Args,
    directory: &Path,
) -> anyhow::Result<()> {
    let (cluster, _) = named(settings)?;
    let days = Duration::from_secs(u64::from(args.certificate_days) * 86_400);
    // A key that somebody else put there would sign for all hosts.
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    own_files::check_directory_behind_links(directory)?;
    let (etcd, hosts) = (&args.etcd_name, &args.certificate_host);
    let wanted = gang_etcd::Wanted { cluster: &cluster.name, etcd, hosts, lasts: days };
    for file in gang_etcd::write_certificates(directory, &wanted)? {
        println!("{}", file.display());
    }
    Ok(())
}

/// Makes the cluster that the configuration names.
pub fn init(settings: &Settings, args: &Args) -> anyhow::Result<()> {
    let (cluster, keys) = named(settings)?;
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("no random number")?;
    let users = if args.users_by_number { Users::Uid } else { Users::Name };
    let record = record::ClusterSettings {
        id: id.trim().to_owned(),
        slice_ns: settings.schedule.slice_ns,
        rows: args.rows,
        by_program: args.by_program,
        users,
        lost_after_ms: args.lost_after.as_millis() as u64,
    };
    for host in &args.permit_host {
        anyhow::ensure!(is_name(host), "{host:?} cannot be the name of a host");
    }
    let address = cluster.address()?;
    gang_etcd::init_blocking(&address, &keys, &record)?;
    println!("cluster {} is there", cluster.name);
    for host in &args.permit_host {
        gang_etcd::permit_host_blocking(&address, &cluster.name, host)
            .with_context(|| format!("cannot make the user of host {host} in etcd"))?;
        let user = gang_etcd::user_of(&cluster.name, host);
        println!("host {host} is user {user} of etcd: its certificate has that common name");
    }
    Ok(())
}
