//! `gang resume`: let a suspended job run again.

use anyhow::Result;

use crate::cli::OneJob;
use crate::connect::connect;
use crate::job_ref::resolve;

pub fn resume(args: &OneJob) -> Result<()> {
    let mut client = connect()?;
    let id = resolve(&mut client, &args.job)?;
    Ok(client.resume(id)?)
}
