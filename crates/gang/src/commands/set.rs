//! `gang set`: a job that runs is changed, all that is asked or nothing.

use anyhow::Result;
use gang_protocol::client::Change;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;

use crate::cli::{Policy, Set, SetTo};
use crate::commands::run::report_unproved;
use crate::connect::connect;

pub fn set(args: &Set, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job.job)?;
    let SetTo { class, policy, cpus, min, weight, mem, disk } = args.to;
    let change = Change {
        class: class.map(Into::into),
        policy: policy.map(Into::into),
        cpus,
        min_cpus: min,
        weight,
        mem_bytes: mem,
        disk_bytes: disk,
    };
    client.set(id, &change)?;
    if policy == Some(Policy::Auto) {
        report_unproved(&mut client)?;
    }
    Ok(())
}
