//! `gang policy`: another policy for a job that runs.

use anyhow::Result;

use crate::cli::SetPolicy;
use crate::connect::connect;
use crate::job_ref::resolve;

pub fn policy(args: &SetPolicy) -> Result<()> {
    let mut client = connect()?;
    let id = resolve(&mut client, &args.job.job)?;
    Ok(client.set_policy(id, args.policy.into())?)
}
