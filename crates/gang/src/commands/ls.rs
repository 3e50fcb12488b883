//! `gang ls`: the jobs of this host, and those of other hosts that span some.

use anyhow::Result;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use gang_view::figures::{Figure, named};
use gang_view::live::JobView;
use gang_view::spanning::{self, Spanning};
use serde::Serialize;

use crate::cli::Listing;
use crate::connect::connect;
use crate::show_values::{Owners, percent, print_json, word};
use crate::table::{Align, render, terminal_width};

const COLUMNS: [&str; 12] = [
    "id",
    "name",
    "owner",
    "class",
    "state",
    "cpus",
    "hosts",
    "share_had",
    "share_wanted",
    "coscheduled",
    "cpu_time_ns",
    "progress",
];

/// The answer of ListJobs, and the jobs of GetCluster.
#[derive(Serialize)]
struct Listed<'a> {
    jobs: &'a [v1::Job],
    /// All jobs that span hosts. Those with a part on this host are among `jobs`, too.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    spanning: &'a [v1::SpanningJob],
}

pub fn ls(args: &Listing, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let jobs = client.list_jobs()?.jobs;
    let cluster = client.cluster()?;
    if args.json {
        let spanning = cluster.as_ref().map_or(&[][..], |cluster| &cluster.jobs);
        return print_json(&Listed { jobs: &jobs, spanning });
    }
    print!("{}", table(&jobs, cluster.as_ref(), terminal_width()));
    Ok(())
}

fn table(jobs: &[v1::Job], cluster: Option<&v1::Cluster>, width: Option<usize>) -> String {
    let mut owners = Owners::default();
    let view = |job: &v1::Job| JobView {
        owner: owners.name(job.owner_uid).into(),
        hosts: Spanning::find(cluster, job.id).map(|of| spanning::places(of.job).into()),
        ..JobView::alone(job.clone())
    };
    let here: Vec<JobView> = jobs.iter().map(view).collect();
    let is_here = |id: i64| jobs.iter().any(|job| job.id == id);
    let elsewhere: Vec<_> = Spanning::all(cluster).filter(|of| !is_here(of.job.id)).collect();
    if here.is_empty() && elsewhere.is_empty() {
        return "no jobs\n".to_owned();
    }
    let is_shown = |figure: &&Figure| {
        figure.is_shown(&here) || (figure.name == "hosts" && !elsewhere.is_empty())
    };
    let figures: Vec<&Figure> = COLUMNS.into_iter().map(named).filter(is_shown).collect();
    let titles: Vec<String> = figures.iter().map(|figure| figure.title.to_uppercase()).collect();
    let align = |figure: &&Figure| match figure.name {
        "name" => Align::Shrink,
        _ if figure.is_number() => Align::Right,
        _ => Align::Left,
    };
    let columns: Vec<(&str, Align)> =
        titles.iter().map(String::as_str).zip(figures.iter().map(align)).collect();
    let row = |view: &JobView| figures.iter().map(|figure| cell(figure, view)).collect();
    let row_elsewhere =
        |of: &Spanning<'_>| figures.iter().map(|figure| cell_elsewhere(figure, *of)).collect();
    let rows: Vec<Vec<String>> =
        here.iter().map(row).chain(elsewhere.iter().map(row_elsewhere)).collect();
    render(&columns, &rows, width)
}

/// Why it is not measured is in `gang show`.
fn cell(figure: &Figure, view: &JobView) -> String {
    match (figure.value(view), &view.job.not_measured) {
        (Some(value), _) => figure.text(&value, 0),
        (None, Some(_)) if figure.measured => "not measured".to_owned(),
        (None, _) => "-".to_owned(),
    }
}

/// A figure of a job that has no part on this host. Only its hosts know how it runs there.
fn cell_elsewhere(figure: &Figure, of: Spanning<'_>) -> String {
    let job = of.job;
    match figure.name {
        "id" => job.id.to_string(),
        "name" => job.name.clone(),
        "owner" => job.owner.clone(),
        "class" => word(&job.class),
        "state" => of.state(),
        "hosts" => format!("{}, not here", spanning::places(job)),
        "share_wanted" => of.share().map_or_else(|| "-".to_owned(), percent),
        _ => "-".to_owned(),
    }
}
