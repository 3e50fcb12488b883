//! `gang cluster`: a new cluster, its certificates, and hosts that leave it. The daemon's program
//! does all of these, which talks to etcd.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::cli::{Cluster, ClusterCertificates, ClusterCommand, ClusterInit, ClusterLeave};
use crate::programs;

pub fn cluster(args: &Cluster) -> Result<()> {
    let mut gangd = programs::gangd_command()?;
    let (ClusterCommand::Init(ClusterInit { config, .. })
    | ClusterCommand::Certificates(ClusterCertificates { config, .. })
    | ClusterCommand::Leave(ClusterLeave { config, .. })) = &args.command;
    if let Some(config) = config {
        gangd.arg("--config").arg(config);
    }
    match &args.command {
        ClusterCommand::Init(args) => init(&mut gangd, args),
        ClusterCommand::Certificates(args) => {
            gangd.arg("--certificates").arg(&args.directory);
            gangd.arg("--certificate-days").arg(args.days.to_string());
            args.etcd.iter().for_each(|name| _ = gangd.arg("--etcd-name").arg(name));
            args.hosts.iter().for_each(|host| _ = gangd.arg("--certificate-host").arg(host));
        }
        ClusterCommand::Leave(args) => {
            // This host has no name here.
            let this = [String::new()];
            let hosts = if args.hosts.is_empty() { &this[..] } else { &args.hosts };
            hosts.iter().for_each(|host| _ = gangd.arg("--leave-cluster").arg(host));
        }
    }
    Err(gangd.exec()).context("cannot execute gangd")
}

fn init(gangd: &mut std::process::Command, args: &ClusterInit) {
    let ClusterInit { rows, by_program, users_by_number, lost_after, permit_host, .. } = args;
    gangd.arg("--init-cluster");
    gangd.arg("--rows").arg(rows.to_string()).arg("--lost-after").arg(lost_after);
    let flags = [("--by-program", *by_program), ("--users-by-number", *users_by_number)];
    gangd.args(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
    for host in permit_host {
        gangd.arg("--permit-host").arg(host);
    }
}
