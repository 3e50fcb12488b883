//! `gang start-daemon`: the second gang of `gang run`.

use anyhow::Result;
use gang_protocol::paths::Surroundings;

use crate::cli::StartDaemon;
use crate::start;

pub fn start_daemon(args: &StartDaemon, daemon: &Surroundings) -> Result<()> {
    println!("{}", start::start_daemon(&daemon.own_socket(), args.backend.as_deref()));
    Ok(())
}
