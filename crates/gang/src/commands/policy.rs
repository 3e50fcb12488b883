//! `gang policy`: another policy for a job that runs.

use anyhow::Result;

use crate::cli::{Policy, SetPolicy};
use crate::commands::run::tell_unproved;
use crate::connect::connect;
use crate::job_ref::resolve;

pub fn policy(args: &SetPolicy) -> Result<()> {
    let mut client = connect()?;
    let id = resolve(&mut client, &args.job.job)?;
    client.set_policy(id, args.policy.into())?;
    if args.policy == Policy::Auto {
        tell_unproved(&mut client)?;
    }
    Ok(())
}
