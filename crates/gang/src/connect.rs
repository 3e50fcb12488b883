//! The way of every command to a daemon.

use anyhow::{Context, Result};
use gang_protocol::client::Client;
use gang_protocol::error::ClientError;
use gang_protocol::paths::Surroundings;

use crate::{leftovers, start};

/// How often a daemon is started that then is not there, because it ended for want of jobs
/// between its start and our connecting.
const STARTS_MAX: usize = 3;

/// Connects to a daemon. Where none listens, first releases what a dead one left behind.
pub fn connect(daemon: &Surroundings) -> Result<Client> {
    Client::find_from(daemon).map_err(|error| {
        if error.is_no_daemon() {
            leftovers::release_and_report(daemon);
        }
        error.into()
    })
}

/// As [`connect`], and starts a daemon of the user's where none listens.
pub fn connect_or_start(daemon: &Surroundings, backend: Option<&str>) -> Result<Client> {
    let mut outcome = connect(daemon);
    for _ in 0..STARTS_MAX {
        if !outcome.as_ref().is_err_and(is_no_daemon) {
            break;
        }
        let socket = daemon.own_socket();
        start::start(&socket, backend)
            .with_context(|| format!("cannot start a daemon at {}", socket.display()))?;
        outcome = Client::find_from(daemon).map_err(Into::into);
    }
    outcome
}

fn is_no_daemon(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(ClientError::is_no_daemon)
}
