//! `gang resume`: let a suspended job run again.

use anyhow::Result;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;

use crate::cli::OneJob;
use crate::connect::connect;

pub fn resume(args: &OneJob, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job)?;
    Ok(client.resume(id)?)
}
