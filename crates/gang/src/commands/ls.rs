//! `gang ls`: the jobs.

use anyhow::Result;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;

use crate::cli::Listing;
use crate::connect::connect;
use crate::show_values::{Owners, duration, percent, print_json, progress, word, words};
use crate::table::{Align, render, terminal_width};

/// Only where a program says how far it is.
const DONE: (&str, Align) = ("DONE", Align::Right);

const COLUMNS: [(&str, Align); 10] = [
    ("ID", Align::Right),
    ("NAME", Align::Shrink),
    ("OWNER", Align::Left),
    ("CLASS", Align::Left),
    ("STATE", Align::Left),
    ("CPUS", Align::Right),
    ("SHARE", Align::Right),
    ("WANTED", Align::Right),
    ("TOGETHER", Align::Right),
    ("CPU TIME", Align::Right),
];

pub fn ls(args: &Listing, daemon: &Surroundings) -> Result<()> {
    let reply = connect(daemon)?.list_jobs()?;
    if args.json {
        return print_json(&reply);
    }
    print!("{}", table(&reply.jobs, terminal_width()));
    Ok(())
}

fn table(jobs: &[v1::Job], width: Option<usize>) -> String {
    if jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut owners = Owners::default();
    let is_told = jobs.iter().any(|job| progress(job).is_some());
    let columns: Vec<_> = COLUMNS.into_iter().chain(is_told.then_some(DONE)).collect();
    let row = |job: &v1::Job| {
        let mut row = vec![
            job.id.to_string(),
            job.name.clone(),
            owners.name(job.owner_uid),
            word(&job.class),
            words(&job.state),
            job.cpus.to_string(),
            percent(job.share_had),
            percent(job.share_wanted),
            together(job),
            duration(job.cpu_time_ns),
        ];
        row.extend(is_told.then(|| progress(job).map_or_else(|| "-".into(), percent)));
        row
    };
    render(&columns, &jobs.iter().map(row).collect::<Vec<_>>(), width)
}

/// Why it is not measured is in `gang show`.
fn together(job: &v1::Job) -> String {
    match (job.coscheduled(), &job.not_measured) {
        (Some(share), _) => percent(share),
        (None, Some(_)) => "not measured".into(),
        (None, None) => "-".into(),
    }
}
