//! `gang why`: why a job is as fast or as slow as it is.

use anyhow::Result;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;
use gang_view::spanning::{self, Spanning};
use gang_view::why::{Evidence, judge, judge_elsewhere};

use crate::cli::Show;
use crate::connect::{Part, connect, part_here};
use crate::show_values::print_json;
use crate::table::terminal_width;

pub fn why(args: &Show, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job.job)?;
    let cluster = client.cluster()?;
    let spanning = Spanning::find(cluster.as_ref(), id);
    let verdict = match part_here(&mut client, id, cluster.as_ref())? {
        Part::Here(shown) => {
            let status = client.status()?.status;
            let jobs = client.list_jobs()?.jobs;
            let jobs: Vec<_> = jobs.iter().collect();
            judge(Evidence { job: &shown.details, status: &status, jobs: &jobs, spanning })
        }
        Part::Elsewhere(of) => judge_elsewhere(of),
    };
    if args.listing.json {
        return print_json(&verdict);
    }
    let width = terminal_width().unwrap_or(usize::MAX);
    let faults = spanning::faults(cluster.as_ref(), id).into_iter();
    let faults = faults.map(|fault| format!("The cluster's record {fault}."));
    let text: Vec<String> = std::iter::once(verdict.paragraph()).chain(faults).collect();
    for line in gang_view::table::wrapped(&text.join(" "), width) {
        println!("{line}");
    }
    Ok(())
}
