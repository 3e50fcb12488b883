//! The messages to the page. The other side is `crates/view/web/src/wire.ts`.
//!
//! Points in time are microseconds since the Unix epoch, which a number of JavaScript holds
//! exactly, and lists of CPUs are texts such as `0-3,8`: a row of 128 CPUs is a tenth as long.

use gang_protocol::v1;
use serde::Serialize;

use crate::live::{JobView, Rates};
use crate::values;

/// Once, at the beginning of a stream.
#[derive(Debug, Serialize)]
pub struct Hello<'a> {
    pub version: &'a str,
    pub host: &'a str,
    pub user: &'a str,
    pub uid: u32,
    pub read_only: bool,
}

/// The state of things. An absent field is as it was before.
#[derive(Debug, Serialize)]
pub struct Frame<'a> {
    pub at_us: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<Job<'a>>>,
    /// First the rows that ended since the frame before, then the coming rows, which replace all
    /// earlier coming rows.
    pub rows: Vec<Row>,
    /// How many of the rows have ended.
    pub ended: usize,
}

/// There is no daemon, and why.
#[derive(Debug, Serialize)]
pub struct Gone<'a> {
    pub at_us: i64,
    pub code: String,
    pub message: &'a str,
}

/// Slice, begin and end, whether it is a turn of the rest, the CPUs of each job, and length and
/// period of the gaps.
#[derive(Debug, PartialEq, Serialize)]
pub struct Row(i64, i64, i64, u8, Vec<(i64, String)>, Option<(f64, f64)>);

impl From<&v1::Row> for Row {
    fn from(row: &v1::Row) -> Row {
        let slot = |slot: &v1::Slot| (slot.job, values::cpu_list(&slot.cpu_list));
        let slots = row.slots.iter().filter(|slot| !slot.cpu_list.is_empty()).map(slot);
        let (start_us, end_us) = (row.start_ns / 1000, row.end_ns / 1000);
        let gap = row.gap.as_ref().map(|gap| (micros(gap.length_ns), micros(gap.period_ns)));
        Row(row.slice, start_us, end_us, row.rest_turn.into(), slots.collect(), gap)
    }
}

#[derive(Debug, Serialize)]
pub struct Status<'a> {
    version: &'a str,
    uptime_s: f64,
    backend: &'a str,
    guarantee: &'a v1::Guarantee,
    #[serde(skip_serializing_if = "Option::is_none")]
    obstacle: Option<&'a str>,
    slice_us: f64,
    gap_us: f64,
    gap_period_us: f64,
    fill: bool,
    cap: f64,
    cpus: i64,
    unregistered_threads: i64,
    load_average: f64,
    switches: Switches,
    measuring: &'a v1::Measuring,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_measured: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_hours: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    express_weight: Option<i64>,
    interactive_weight: i64,
    batch_weight: i64,
    memory: &'a v1::Supply,
    disk: &'a v1::Supply,
}

impl<'a> From<&'a v1::Status> for Status<'a> {
    fn from(status: &'a v1::Status) -> Status<'a> {
        let is_better = |backend: &&v1::Backend| backend.name != status.backend;
        let mut better = status.backends.iter().take_while(is_better);
        Status {
            version: &status.version,
            uptime_s: seconds(status.uptime_ns),
            backend: &status.backend,
            guarantee: &status.guarantee,
            obstacle: better.find_map(|backend| backend.reason.as_deref()),
            slice_us: micros(status.slice_ns),
            gap_us: micros(status.gap_ns),
            gap_period_us: micros(status.gap_period_ns),
            fill: status.fill,
            cap: status.gang_share_max,
            cpus: status.cpus,
            unregistered_threads: status.unregistered_threads,
            load_average: status.load_average,
            switches: (&status.switches).into(),
            measuring: &status.measuring,
            not_measured: status.not_measured.as_deref(),
            working_hours: status.working_hours,
            express_weight: status.express_weight,
            interactive_weight: status.interactive_weight,
            batch_weight: status.batch_weight,
            memory: &status.memory,
            disk: &status.disk,
        }
    }
}

/// Times of one phase of the switches, in microseconds.
#[derive(Debug, Serialize)]
struct Phase {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl From<&v1::Phase> for Phase {
    fn from(phase: &v1::Phase) -> Phase {
        let [p50_us, p99_us, max_us] = [phase.p50_ns, phase.p99_ns, phase.max_ns].map(micros);
        Phase { p50_us, p99_us, max_us }
    }
}

#[derive(Debug, Serialize)]
struct Switches {
    count: i64,
    late: Phase,
    lower: Phase,
    raise: Phase,
    skew: Phase,
    late_plans: i64,
    ran_out: i64,
}

impl From<&v1::Switches> for Switches {
    fn from(switches: &v1::Switches) -> Switches {
        Switches {
            count: switches.count,
            late: (&switches.late).into(),
            lower: (&switches.lower).into(),
            raise: (&switches.raise).into(),
            skew: (&switches.skew).into(),
            late_plans: switches.late_plans,
            ran_out: switches.ran_out,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Job<'a> {
    id: i64,
    name: &'a str,
    owner: &'a str,
    uid: i64,
    class: &'a v1::Class,
    policy: &'a v1::Policy,
    state: &'a v1::JobState,
    weight: i64,
    cpus: i64,
    min_cpus: i64,
    cpu_list: String,
    processes: i64,
    threads: i64,
    share_wanted: f64,
    share_had: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    coscheduled: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_us_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_measured: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus_used: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filling: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mem_bytes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mem_used_bytes: Option<i64>,
    mem_enforced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes: Option<i64>,
    /// The progress that its program reports: done, total, and the time of the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<(f64, f64, i64)>,
    registered_us: i64,
    slots: i64,
    in_slot_s: f64,
    cpu_time_s: f64,
}

impl<'a> From<&'a JobView> for Job<'a> {
    fn from(view: &'a JobView) -> Job<'a> {
        let JobView { job, owner, rates } = view;
        let Rates { cpus_used, filling, lost, waiting, .. } = *rates;
        Job {
            id: job.id,
            name: &job.name,
            owner,
            uid: job.owner_uid,
            class: &job.class,
            policy: &job.policy,
            state: &job.state,
            weight: job.weight,
            cpus: job.cpus,
            min_cpus: job.min_cpus,
            cpu_list: values::cpu_list(&job.cpu_list),
            processes: job.processes,
            threads: job.threads,
            share_wanted: job.share_wanted,
            share_had: job.share_had,
            coscheduled: job.coscheduled(),
            skew_us_p99: job.skew_ns_p99().map(micros),
            not_measured: job.not_measured.as_deref(),
            cpus_used,
            filling,
            lost,
            waiting,
            mem_bytes: job.promised_memory(),
            mem_used_bytes: job.used_memory(),
            mem_enforced: job.is_memory_enforced(),
            disk_bytes: job.disk_bytes,
            progress: values::progress(job).and_then(|_| {
                let v1::Progress { done, total, at_ns } = job.progress.as_ref()?;
                Some((*done, *total, at_ns / 1000))
            }),
            registered_us: job.registered_at_ns / 1000,
            slots: job.slots,
            in_slot_s: seconds(job.in_slot_ns),
            cpu_time_s: seconds(job.cpu_time_ns),
        }
    }
}

/// The answer about one job.
#[derive(Debug, Serialize)]
pub struct Details {
    /// Why it is as fast or as slow as it is, in plain words; absent while too little is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<v1::Process>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_to: Option<Vec<Culprit>>,
}

/// A process that ran in a gang's place: by which kernel's class it was scheduled, and for how long.
#[derive(Debug, Serialize)]
pub struct Culprit {
    name: String,
    pid: i64,
    class: String,
    ns: i64,
}

impl From<v1::Culprit> for Culprit {
    fn from(v1::Culprit { name, pid, sched_policy, ns }: v1::Culprit) -> Culprit {
        Culprit { name, pid, class: sched_policy, ns }
    }
}

#[derive(Debug, Serialize)]
pub struct EndedJob {
    id: i64,
    name: String,
    owner: String,
    class: v1::Class,
    cpus: i64,
    registered_us: i64,
    ended_us: i64,
    slots: i64,
    in_slot_s: f64,
    cpu_time_s: f64,
}

impl EndedJob {
    pub fn new(job: v1::EndedJob, owner: String) -> EndedJob {
        EndedJob {
            id: job.id,
            name: job.name,
            owner,
            class: job.class,
            cpus: job.cpus,
            registered_us: job.registered_at_ns / 1000,
            ended_us: job.ended_at_ns / 1000,
            slots: job.slots,
            in_slot_s: seconds(job.in_slot_ns),
            cpu_time_s: seconds(job.cpu_time_ns),
        }
    }
}

fn seconds(ns: i64) -> f64 {
    micros(ns) / 1e6
}

fn micros(ns: i64) -> f64 {
    ns as f64 / 1000.0
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
        assert_eq!(json, r#"[7,70000,80000,1,[[3,"0-2,5"]],null]"#);
        row.gap = Some(v1::Gap { period_ns: 20_000_000, length_ns: 1_000_000 });
        let json = serde_json::to_string(&Row::from(&row)).unwrap();
        assert!(json.ends_with(",[1000.0,20000.0]]"), "{json}");
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let mut job = fixture::job(3, "<b>\u{202e}");
        job.measured = None;
        job.not_measured = Some("no BPF".to_owned());
        let view = JobView { job, owner: "root".into(), rates: Rates::default() };
        let json = serde_json::to_value(Job::from(&view)).unwrap();
        assert_eq!(json["name"], "<b>\u{202e}");
        assert_eq!(json["not_measured"], "no BPF");
        assert_eq!(
            (json["class"].as_str(), json["cpu_list"].as_str()),
            (Some("interactive"), Some("0-1"))
        );
        for absent in
            ["progress", "coscheduled", "cpus_used", "filling", "lost", "waiting", "mem_bytes"]
        {
            assert!(json.get(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn times_of_switches_are_told_in_microseconds() {
        let switches = serde_json::to_value(Status::from(&fixture::status())).unwrap();
        let switches = &switches["switches"];
        assert_eq!(
            (switches["late_plans"].as_i64(), switches["ran_out"].as_i64()),
            (Some(3), Some(0))
        );
        assert_eq!(switches["late"]["p99_us"], 45.0);
    }

    #[test]
    fn the_status_says_why_a_stronger_backend_is_not_used() {
        let mut status = fixture::status();
        assert!(Status::from(&status).obstacle.is_none());
        status.backends[0].reason = Some("no CAP_SYS_NICE".to_owned());
        status.backend = "signal".to_owned();
        assert_eq!(Status::from(&status).obstacle, Some("no CAP_SYS_NICE"));
    }
}
