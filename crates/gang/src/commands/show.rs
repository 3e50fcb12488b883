//! `gang show`: one job.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;
use gang_view::details;

use crate::cli::Show;
use crate::connect::connect;
use crate::show_values::print_json;
use crate::table::terminal_width;

pub fn show(args: &Show, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job.job)?;
    let reply = client.show_job(id)?;
    if args.listing.json {
        return print_json(&reply);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    print!("{}", details::text(&reply, now_ns, terminal_width()));
    Ok(())
}
