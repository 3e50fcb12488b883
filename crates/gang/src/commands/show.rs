//! `gang show`: one job, and all of its hosts where it spans some.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use gang_protocol::job_ref::resolve;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use gang_view::details;
use gang_view::spanning::{self, Spanning};
use serde::Serialize;

use crate::cli::Show;
use crate::connect::{Part, connect, part_here};
use crate::show_values::print_json;
use crate::table::terminal_width;

/// The answer of ShowJob, absent for a job without a part on this host; and of GetCluster what is
/// of the job.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    here: Option<&'a v1::ShowJob_Reply>,
    #[serde(flatten)]
    spanning: Option<OfCluster<'a>>,
}

#[derive(Serialize)]
struct OfCluster<'a> {
    spanning: &'a v1::SpanningJob,
    /// Hosts of the job.
    hosts: Vec<&'a v1::Host>,
}

pub fn show(args: &Show, daemon: &Surroundings) -> Result<()> {
    let mut client = connect(daemon)?;
    let id = resolve(&mut client, &args.job.job)?;
    let cluster = client.cluster()?;
    let spanning = Spanning::find(cluster.as_ref(), id);
    let part = part_here(&mut client, id, cluster.as_ref())?;
    if args.listing.json {
        let spanning = spanning.map(|of| OfCluster {
            spanning: of.job,
            hosts: of.hosts().filter_map(|(_, host)| host).collect(),
        });
        let here = match &part {
            Part::Here(reply) => Some(&**reply),
            Part::Elsewhere(_) => None,
        };
        return print_json(&Shown { here, spanning });
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let width = terminal_width();
    let text = match part {
        Part::Here(reply) => details::text(&reply, spanning, now_ns, width),
        Part::Elsewhere(of) => of.text_elsewhere(now_ns, width),
    };
    print!("{text}");
    for fault in spanning::faults(cluster.as_ref(), id) {
        println!("  {:<18}  {fault}", "cluster");
    }
    Ok(())
}
