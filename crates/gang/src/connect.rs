//! The way of every command to a daemon.

use anyhow::{Result, bail};
use gang_protocol::client::Client;
use gang_protocol::error::ClientError;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use gang_view::spanning::{self, Spanning};

use crate::{leftovers, start};

/// How often a daemon is started that then is not there, because it ended for want of jobs
/// between its start and our connecting.
const STARTS_MAX: usize = 3;

/// Connects to a daemon. Where none listens, first releases what a dead one left behind.
pub fn connect(daemon: &Surroundings) -> Result<Client> {
    Client::find_beyond(daemon).map_err(|error| {
        if error.is_no_daemon() {
            leftovers::release_and_report(daemon);
        }
        error.into()
    })
}

/// A job as this host has it.
pub enum Part<'a> {
    /// A job of this host, or its part of one that spans hosts.
    Here(Box<v1::ShowJob_Reply>),
    /// It spans other hosts than this one.
    Elsewhere(Spanning<'a>),
}

/// Asks for a job, of which the cluster has what it has.
///
/// # Errors
/// Those of the daemon; that there is no such job, where the cluster has none either, or why its
/// records of the job are not used.
pub fn part_here<'a>(
    client: &mut Client,
    job: i64,
    cluster: Option<&'a v1::Cluster>,
) -> Result<Part<'a>> {
    match (client.show_job(job), Spanning::find(cluster, job)) {
        (Err(ClientError::NoSuchJob { .. }), Some(of)) => Ok(Part::Elsewhere(of)),
        (Err(error @ ClientError::NoSuchJob { .. }), None) => {
            let faults = spanning::faults(cluster, job);
            if faults.is_empty() {
                return Err(error.into());
            }
            bail!("job {job} of the cluster is not known here: {}", faults.join("; "))
        }
        (reply, _) => Ok(Part::Here(Box::new(reply?))),
    }
}

/// Connects to a daemon, and starts one of the user's where none listens. That one takes over the
/// jobs that a dead one left; where none can be started, they are released.
pub fn connect_or_start(daemon: &Surroundings, backend: Option<&str>) -> Result<Client> {
    let mut outcome = Client::find_beyond(daemon);
    for _ in 0..STARTS_MAX {
        if !outcome.as_ref().is_err_and(ClientError::is_no_daemon) {
            break;
        }
        let socket = daemon.own_socket();
        if let Err(error) = start::start(&socket, backend) {
            leftovers::release_and_report(daemon);
            let doing = format!("cannot start a daemon at {}", socket.display());
            return Err(error.context(doing));
        }
        leftovers::release_others(daemon, &socket);
        outcome = Client::find_beyond(daemon);
    }
    outcome.map_err(Into::into)
}
