//! `gang kill`: a signal to every process of a job.

use anyhow::Result;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;

use crate::cli::Kill;
use crate::connect::connect;

pub fn kill(args: &Kill, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job.job)?;
    Ok(client.kill(id, args.signal)?)
}
