//! `gang suspend`: stop a job until it is resumed.

use anyhow::Result;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;

use crate::cli::OneJob;
use crate::connect::connect;

pub fn suspend(args: &OneJob, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job)?;
    Ok(client.suspend(id)?)
}
