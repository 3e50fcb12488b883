//! `gang resize`: a job asks for something else while it runs.

use anyhow::Result;
use gang_protocol::client::Change;

use crate::cli::{Resize, ResizeTo};
use crate::connect::connect;
use crate::job_ref::resolve;

pub fn resize(args: &Resize) -> Result<()> {
    let mut client = connect()?;
    let id = resolve(&mut client, &args.job.job)?;
    let ResizeTo { cpus, min, weight, mem, disk } = args.to;
    let change = Change { cpus, min_cpus: min, weight, mem_bytes: mem, disk_bytes: disk };
    Ok(client.resize(id, &change)?)
}
