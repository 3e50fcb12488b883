//! `gang start-daemon`: the second gang of `gang run`.

use anyhow::Result;

use crate::cli::StartDaemon;
use crate::start;

pub fn start_daemon(args: &StartDaemon) -> Result<()> {
    println!("{}", start::start_daemon(&args.socket, args.backend.as_deref()));
    Ok(())
}
