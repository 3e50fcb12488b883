//! The messages to the page. The other side is `crates/view/web/src/wire.ts`.
//!
//! Names and units are those of the interface file, nanoseconds among them. A number of JavaScript
//! holds a point in time to 256 ns, which no picture shows. Lists of CPUs are texts such as
//! `0-3,8`: a row of 128 CPUs is a tenth as long.

use gang_protocol::limits::{CPUS_MAX, WEIGHT_MAX, WEIGHT_MIN};
use gang_protocol::v1;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::figures::{FIGURES, Figure};
use crate::live::{JobView, SPAN_NS};
use crate::spanning::{self, Spanning};
use crate::values;

/// Once, at the beginning of a stream.
#[derive(Debug, Serialize)]
pub struct Hello<'a> {
    pub version: &'a str,
    pub host: &'a str,
    pub user: &'a str,
    pub read_only: bool,
    pub figures: &'static [Figure],
    pub limits: Limits,
}

/// Bounds that the page keeps.
#[derive(Debug, Serialize)]
pub struct Limits {
    cpus_max: i64,
    weight_min: i64,
    weight_max: i64,
    /// How much of the past a new reader is sent.
    past_ns: i64,
}

pub const LIMITS: Limits =
    Limits { cpus_max: CPUS_MAX, weight_min: WEIGHT_MIN, weight_max: WEIGHT_MAX, past_ns: SPAN_NS };

/// The state of things. An absent field is as it was before.
#[derive(Debug, Serialize)]
pub struct Frame<'a> {
    pub at_ns: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<Job<'a>>>,
    /// At the beginning of a stream, absent also where the daemon is in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster<'a>>,
    /// First the rows that ended since the frame before, then the coming rows, which replace all
    /// earlier coming rows.
    pub rows: Vec<Row>,
    /// How many of the rows have ended.
    pub ended: usize,
}

/// There is no daemon, and why.
#[derive(Debug, Serialize)]
pub struct Gone<'a> {
    pub at_ns: i64,
    pub code: String,
    pub message: &'a str,
}

/// Slice, begin and end, whether it is a turn of the rest, the CPUs of each job, and length and
/// period of the gaps.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row(i64, i64, i64, u8, Vec<(i64, String)>, Option<(i64, i64)>);

impl From<&v1::Row> for Row {
    fn from(row: &v1::Row) -> Row {
        let slot = |slot: &v1::Slot| (slot.job, values::cpu_list(&slot.cpu_list));
        let slots = row.slots.iter().filter(|slot| !slot.cpu_list.is_empty()).map(slot);
        let gap = row.gap.as_ref().map(|gap| (gap.length_ns, gap.period_ns));
        Row(row.slice, row.start_ns, row.end_ns, row.rest_turn.into(), slots.collect(), gap)
    }
}

#[derive(Debug, Serialize)]
pub struct Status<'a> {
    #[serde(flatten)]
    status: &'a v1::Status,
    /// Why a stronger backend is not used.
    obstacle: Option<&'a str>,
}

impl<'a> From<&'a v1::Status> for Status<'a> {
    fn from(status: &'a v1::Status) -> Status<'a> {
        let is_better = |backend: &&v1::Backend| backend.name != status.backend;
        let mut better = status.backends.iter().take_while(is_better);
        Status { status, obstacle: better.find_map(|backend| backend.reason.as_deref()) }
    }
}

/// The figures of a job by their names; one without a value is absent.
#[derive(Debug)]
pub struct Job<'a>(&'a JobView);

impl<'a> From<&'a JobView> for Job<'a> {
    fn from(view: &'a JobView) -> Job<'a> {
        Job(view)
    }
}

impl Serialize for Job<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for figure in FIGURES {
            if let Some(value) = figure.value(self.0) {
                map.serialize_entry(figure.name, &value)?;
            }
        }
        if let Some(reason) = &self.0.job.not_measured {
            map.serialize_entry("not_measured", reason)?;
        }
        if let Some(reason) = &self.0.job.unplaceable {
            map.serialize_entry("unplaceable", reason)?;
        }
        map.end()
    }
}

/// The cluster that the daemon is in.
#[derive(Debug, Serialize)]
pub struct Cluster<'a> {
    name: &'a str,
    /// The name of the daemon's host in it.
    host: &'a str,
    unreachable: Option<&'a str>,
    slice_ns: Option<i64>,
    frame: Option<i64>,
    hosts: Vec<ClusterHost<'a>>,
    jobs: Vec<SpanningJob<'a>>,
}

#[derive(Debug, Serialize)]
struct ClusterHost<'a> {
    name: &'a str,
    cpus: i64,
    is_alive: bool,
    /// Its state in a few words.
    state: String,
}

#[derive(Debug, Serialize)]
struct SpanningJob<'a> {
    id: i64,
    name: &'a str,
    owner: &'a str,
    class: &'a v1::Class,
    /// In a few words.
    state: String,
    /// Its CPUs by host: `a:4,b:4`.
    hosts: String,
    share: Option<f64>,
    /// A list, such as `0-7`; empty while it has no entries.
    rows: String,
    /// Hosts, each with the CPUs of it that the job has in its rows, as a list.
    columns: Vec<(&'a str, String)>,
    registered_at_ns: i64,
}

/// A list of numbers that is empty where there are none.
fn list(numbers: &[i64]) -> String {
    if numbers.is_empty() { String::new() } else { values::cpu_list(numbers) }
}

impl<'a> From<&'a v1::Cluster> for Cluster<'a> {
    fn from(cluster: &'a v1::Cluster) -> Cluster<'a> {
        let host = |host: &'a v1::Host| ClusterHost {
            name: &host.name,
            cpus: host.cpus,
            is_alive: host.is_alive,
            state: spanning::host_state(host),
        };
        let job = |of: Spanning<'a>| SpanningJob {
            id: of.job.id,
            name: &of.job.name,
            owner: &of.job.owner,
            class: &of.job.class,
            state: of.state(),
            hosts: spanning::places(of.job),
            share: of.share(),
            rows: list(&of.job.rows),
            columns: of.job.columns.iter().map(|it| (&*it.host, list(&it.columns))).collect(),
            registered_at_ns: of.job.registered_at_ns,
        };
        Cluster {
            name: &cluster.name,
            host: &cluster.host,
            unreachable: cluster.unreachable.as_deref(),
            slice_ns: cluster.slice_ns,
            frame: cluster.frame,
            hosts: cluster.hosts.iter().map(host).collect(),
            jobs: Spanning::all(Some(cluster)).map(job).collect(),
        }
    }
}

/// The answer about one job.
#[derive(Debug, Serialize)]
pub struct Details {
    /// Why it is as fast or as slow as it is, in plain words.
    pub why: String,
    pub processes: Option<Vec<v1::Process>>,
    pub lost_to: Option<Vec<v1::Culprit>>,
}

#[derive(Debug, Serialize)]
pub struct EndedJob {
    #[serde(flatten)]
    pub job: v1::EndedJob,
    /// The name of its user.
    pub owner: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn rows_are_short() {
        let mut row = fixture::row(7, 10_000_000, &[(3, &[0, 1, 2, 5]), (4, &[])]);
        row.rest_turn = true;
        let json = serde_json::to_string(&Row::from(&row)).unwrap();
        assert_eq!(json, r#"[7,70000000,80000000,1,[[3,"0-2,5"]],null]"#);
        row.gap = Some(v1::Gap { period_ns: 20_000_000, length_ns: 1_000_000 });
        let json = serde_json::to_string(&Row::from(&row)).unwrap();
        assert!(json.ends_with(",[1000000,20000000]]"), "{json}");
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let mut job = fixture::job(3, "<b>\u{202e}");
        job.measured = None;
        job.not_measured = Some("no BPF".to_owned());
        let view = JobView::alone(job);
        let json = serde_json::to_value(Job::from(&view)).unwrap();
        assert_eq!(json["name"], "<b>\u{202e}");
        assert_eq!(json["not_measured"], "no BPF");
        assert_eq!(
            (json["class"].as_str(), json["cpu_list"].as_str()),
            (Some("interactive"), Some("0-1"))
        );
        for absent in [
            "progress",
            "coscheduled",
            "cpus_used",
            "filling",
            "lost",
            "waiting",
            "memory_used_bytes",
        ] {
            assert!(json.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn jobs_of_all_hosts_have_short_rows_and_columns() {
        let json = serde_json::to_value(Cluster::from(&fixture::cluster())).unwrap();
        assert_eq!(
            (json["frame"].as_i64(), json["slice_ns"].as_i64()),
            (Some(16), Some(20_000_000))
        );
        assert_eq!(json["hosts"][1]["state"], "away");
        let jobs = &json["jobs"];
        assert_eq!(
            (jobs[0]["rows"].as_str(), jobs[0]["hosts"].as_str()),
            (Some("0-7"), Some("a:2,b:2"))
        );
        assert_eq!(jobs[0]["columns"], serde_json::json!([["a", "0-1"], ["b", "0-1"]]));
        assert_eq!((jobs[1]["rows"].as_str(), jobs[1]["share"].as_f64()), (Some(""), Some(0.0)));
    }

    #[test]
    fn the_status_is_that_of_the_interface_file() {
        let switches = serde_json::to_value(Status::from(&fixture::status())).unwrap();
        let switches = &switches["switches"];
        assert_eq!(
            (switches["late_plans"].as_i64(), switches["ran_out"].as_i64()),
            (Some(3), Some(0))
        );
        assert_eq!(switches["late"]["p99_ns"], 45_000);
    }

    #[test]
    fn status_says_why_no_stronger_backend_is_used() {
        let mut status = fixture::status();
        assert!(Status::from(&status).obstacle.is_none());
        status.backends[0].reason = Some("no CAP_SYS_NICE".to_owned());
        status.backend = "signal".to_owned();
        assert_eq!(Status::from(&status).obstacle, Some("no CAP_SYS_NICE"));
    }
}
