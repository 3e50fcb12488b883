//! `gang kill`: a signal to every process of a job.

use anyhow::Result;

use crate::cli::Kill;
use crate::connect::connect;
use crate::job_ref::resolve;

pub fn kill(args: &Kill) -> Result<()> {
    let mut client = connect()?;
    let id = resolve(&mut client, &args.job.job)?;
    Ok(client.kill(id, args.signal)?)
}
