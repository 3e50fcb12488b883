//! `gang why`: why a job is as fast or as slow as it is.

use anyhow::Result;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;
use gang_view::why::{Evidence, judge};

use crate::cli::Show;
use crate::connect::connect;
use crate::show_values::print_json;
use crate::table::terminal_width;

pub fn why(args: &Show, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job.job)?;
    let job = client.show_job(id)?.details;
    let status = client.status()?.status;
    let jobs = client.list_jobs()?.jobs;
    let jobs: Vec<_> = jobs.iter().collect();
    let verdict = judge(Evidence { job: &job, status: &status, jobs: &jobs });
    if args.listing.json {
        return print_json(&verdict);
    }
    let width = terminal_width().unwrap_or(usize::MAX);
    for line in gang_view::table::wrapped(&verdict.paragraph(), width) {
        println!("{line}");
    }
    Ok(())
}
