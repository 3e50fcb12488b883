//! `gang cluster`: a new cluster. The daemon's program makes it, which talks to etcd.

use std::os::unix::process::CommandExt;

use anyhow::{Context, Result};

use crate::cli::{Cluster, ClusterCommand, ClusterInit};
use crate::programs;

pub fn cluster(args: &Cluster) -> Result<()> {
    let ClusterCommand::Init(args) = &args.command;
    let ClusterInit { config, rows, by_program, users_by_number, lost_after, permit_host } = args;
    let mut gangd = programs::gangd_command()?;
    gangd.arg("--init-cluster");
    if let Some(config) = config {
        gangd.arg("--config").arg(config);
    }
    gangd.arg("--rows").arg(rows.to_string()).arg("--lost-after").arg(lost_after);
    let flags = [("--by-program", *by_program), ("--users-by-number", *users_by_number)];
    gangd.args(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
    for host in permit_host {
        gangd.arg("--permit-host").arg(host);
    }
    Err(gangd.exec()).context("cannot execute gangd")
}
