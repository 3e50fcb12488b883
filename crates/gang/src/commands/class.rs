//! `gang class`: another class for a job that runs.

use anyhow::Result;

use crate::cli::SetClass;
use crate::connect::connect;
use crate::job_ref::resolve;

pub fn class(args: &SetClass) -> Result<()> {
    let mut client = connect()?;
    let id = resolve(&mut client, &args.job.job)?;
    Ok(client.set_class(id, args.class.into())?)
}
