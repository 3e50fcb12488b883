//! `gang ls`: the jobs.

use anyhow::Result;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use gang_view::figures::{Figure, named};
use gang_view::live::{JobView, Rates};

use crate::cli::Listing;
use crate::connect::connect;
use crate::show_values::{Owners, print_json};
use crate::table::{Align, render, terminal_width};

const COLUMNS: [&str; 11] = [
    "id",
    "name",
    "owner",
    "class",
    "state",
    "cpus",
    "share_had",
    "share_wanted",
    "coscheduled",
    "cpu_time_ns",
    "progress",
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
    let view = |job: &v1::Job| JobView {
        owner: owners.name(job.owner_uid).into(),
        job: job.clone(),
        rates: Rates::default(),
    };
    let jobs: Vec<JobView> = jobs.iter().map(view).collect();
    let figures = COLUMNS.into_iter().map(named);
    let figures: Vec<&Figure> = figures.filter(|figure| figure.is_shown(&jobs)).collect();
    let titles: Vec<String> = figures.iter().map(|figure| figure.title.to_uppercase()).collect();
    let align = |figure: &&Figure| match figure.name {
        "name" => Align::Shrink,
        _ if figure.is_number() => Align::Right,
        _ => Align::Left,
    };
    let columns: Vec<(&str, Align)> =
        titles.iter().map(String::as_str).zip(figures.iter().map(align)).collect();
    let row = |view: &JobView| figures.iter().map(|figure| cell(figure, view)).collect();
    render(&columns, &jobs.iter().map(row).collect::<Vec<_>>(), width)
}

/// Why it is not measured is in `gang show`.
fn cell(figure: &Figure, view: &JobView) -> String {
    match (figure.value(view), &view.job.not_measured) {
        (Some(value), _) => figure.text(&value, 0),
        (None, Some(_)) if figure.measured => "not measured".to_owned(),
        (None, _) => "-".to_owned(),
    }
}
