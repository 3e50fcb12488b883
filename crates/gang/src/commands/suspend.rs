//! `gang suspend`: stop a job until it is resumed.

use anyhow::Result;

use crate::cli::OneJob;
use crate::connect::connect;
use crate::job_ref::resolve;

pub fn suspend(args: &OneJob) -> Result<()> {
    let mut client = connect()?;
    let id = resolve(&mut client, &args.job)?;
    Ok(client.suspend(id)?)
}
