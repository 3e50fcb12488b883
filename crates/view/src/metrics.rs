//! A snapshot as OpenMetrics text.
//!
//! Names follow Prometheus' conventions: base units (seconds, bytes, ratios from 0 to 1), counters
//! end in `_total`. The labels of a job do not change while it lives. Its class and state change,
//! and have metrics of their own. A figure that was not measured has no sample. docs/metrics.md
//! explains each, and a test compares.

use std::fmt;

use gang_protocol::v1::{self, Phase, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::live::{JobView, Snapshot};
use crate::values::{progress, word};

/// The media type of [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a snapshot. Where there is no daemon, `gangd_up` is 0 and the only one.
pub fn render(snapshot: &Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(snapshot.clone())));
    let mut text = String::new();
    // Nothing fails that is written to a string.
    let _ = encode(&mut text, &registry);
    text
}

/// The same in the older format of Prometheus, which node_exporter reads from files. In that format
/// a counter is declared by its whole name, and nothing marks the end of the text.
pub fn render_for_textfile(snapshot: &Snapshot) -> String {
    let openmetrics = render(snapshot);
    let mut text = String::with_capacity(openmetrics.len());
    let is_counter = |name: &str| openmetrics.contains(&format!("\n# TYPE {name} counter\n"));
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some(what), Some(name), Some(rest)) if is_counter(name) => {
                text.push_str(&format!("# {what} {name}_total {rest}\n"));
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[derive(Debug)]
struct Metrics(Snapshot);

type Labels = Vec<(&'static str, String)>;

/// Of a metric: name without `_total`, explanation, type, and samples.
type Samples = Vec<(Labels, f64)>;

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = &self.0;
        let up = f64::from(u8::from(snapshot.link.is_up()));
        write(
            &mut encoder,
            "gangd_up",
            "Whether the daemon answers",
            MetricType::Gauge,
            vec![(Vec::new(), up)],
        )?;
        let Some(status) = snapshot.status.as_ref().filter(|_| snapshot.link.is_up()) else {
            return Ok(());
        };
        for (name, help, kind, samples) in of_daemon(snapshot, status) {
            write(&mut encoder, name, help, kind, samples)?;
        }
        for metric in OF_JOBS {
            let sample =
                |view: &JobView| Some((labels(view, (metric.label)(view)), (metric.value)(view)?));
            let samples = snapshot.jobs.iter().filter_map(sample).collect();
            write(&mut encoder, metric.name, metric.help, metric.kind, samples)?;
        }
        Ok(())
    }
}

fn write(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    samples: Samples,
) -> fmt::Result {
    if samples.is_empty() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        if labels.is_empty() {
            // Alone, and without braces.
            return write_sample(metric, kind, value);
        }
        let labels: Labels =
            labels.into_iter().map(|(name, value)| (name, quoted(&value))).collect();
        write_sample(metric.encode_family(&labels)?, kind, value)?;
    }
    Ok(())
}

fn write_sample(sample: MetricEncoder<'_>, kind: MetricType, value: f64) -> fmt::Result {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(sample),
        _ => ConstGauge::new(value).encode(sample),
    }
}

/// The value of a label as it stands between quotes. The library writes it as it is.
fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn of_daemon(
    snapshot: &Snapshot,
    status: &Status,
) -> Vec<(&'static str, &'static str, MetricType, Samples)> {
    use MetricType::{Counter, Gauge};
    let one = |value: f64| vec![(Vec::new(), value)];
    let build = vec![
        ("version", status.version.clone()),
        ("backend", status.backend.clone()),
        ("guarantee", word(&status.guarantee)),
    ];
    let switches = &status.switches;
    let phases = [
        ("late", &switches.late),
        ("lower", &switches.lower),
        ("raise", &switches.raise),
        ("skew", &switches.skew),
    ];
    let statistics = |(name, phase): (&'static str, &Phase)| {
        let figures = [("median", phase.p50_ns), ("p99", phase.p99_ns), ("max", phase.max_ns)];
        figures.map(|(statistic, ns)| {
            let labels = vec![("phase", name.to_owned()), ("statistic", statistic.to_owned())];
            (labels, seconds(ns))
        })
    };
    let class_slices = status
        .class_slices
        .iter()
        .map(|of| (vec![("class", word(&of.class))], seconds(of.slice_ns)));
    let class_weights = [
        (v1::Class::express, status.express_weight),
        (v1::Class::interactive, Some(status.interactive_weight)),
        (v1::Class::batch, Some(status.batch_weight)),
    ]
    .into_iter()
    .filter_map(|(class, weight)| Some((vec![("class", word(&class))], weight? as f64 / 100.0)));
    let hours = status.working_hours.map_or(Vec::new(), |are| one(f64::from(u8::from(are))));
    let (memory, disk) = (&status.memory, &status.disk);
    vec![
        (
            "gangd_build_info",
            "Version, backend and guarantee of the daemon",
            Gauge,
            vec![(build, 1.0)],
        ),
        (
            "gangd_start_time_seconds",
            "When the daemon started, since the epoch",
            Gauge,
            one(seconds(snapshot.at_ns - status.uptime_ns)),
        ),
        ("gangd_slice_seconds", "Length of a slice", Gauge, one(seconds(status.slice_ns))),
        (
            "gangd_gap_seconds",
            "Length of a gap, in which no gang is raised",
            Gauge,
            one(seconds(status.gap_ns)),
        ),
        (
            "gangd_gap_period_seconds",
            "From one gap to the next",
            Gauge,
            one(seconds(status.gap_period_ns)),
        ),
        (
            "gangd_class_slice_seconds",
            "How long a gang of a class keeps its slot once it leads",
            Gauge,
            class_slices.collect(),
        ),
        ("gangd_class_weight_ratio", "What a class weighs", Gauge, class_weights.collect()),
        (
            "gangd_gang_share_max_ratio",
            "What all gangs together may take of the machine",
            Gauge,
            one(status.gang_share_max),
        ),
        ("gangd_cpus", "CPUs that are scheduled", Gauge, one(status.cpus as f64)),
        ("gangd_jobs", "Jobs", Gauge, one(status.jobs as f64)),
        (
            "gangd_unregistered_threads",
            "Runnable threads outside all jobs",
            Gauge,
            one(status.unregistered_threads as f64),
        ),
        ("gangd_working_time", "Whether these are working hours", Gauge, hours),
        ("gangd_memory_bytes", "Memory of the machine", Gauge, one(memory.total as f64)),
        ("gangd_memory_free_bytes", "Memory that is free", Gauge, one(memory.free as f64)),
        (
            "gangd_memory_promised_bytes",
            "Memory promised to jobs that do not use it yet",
            Gauge,
            one(memory.promised as f64),
        ),
        ("gangd_disk_bytes", "Disk for scratch files", Gauge, one(disk.total as f64)),
        ("gangd_disk_free_bytes", "Disk that is free", Gauge, one(disk.free as f64)),
        (
            "gangd_disk_promised_bytes",
            "Disk promised to jobs that do not use it yet",
            Gauge,
            one(disk.promised as f64),
        ),
        (
            "gangd_switches",
            "Switches from one row to the next",
            Counter,
            one(switches.count as f64),
        ),
        (
            "gangd_late_plans",
            "Plans that were handed over after their beginning",
            Counter,
            one(switches.late_plans as f64),
        ),
        (
            "gangd_plans_ran_out",
            "Plans that no other followed in time, so that gangs left their slots",
            Counter,
            one(switches.ran_out as f64),
        ),
        (
            "gangd_switch_seconds",
            "Times of the last 1,024 switches, by phase",
            Gauge,
            phases.into_iter().flat_map(statistics).collect(),
        ),
    ]
}

/// A metric of every job.
struct OfJob {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    /// A label beside those that all have.
    label: fn(&JobView) -> Option<(&'static str, String)>,
    value: fn(&JobView) -> Option<f64>,
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    value: fn(&JobView) -> Option<f64>,
) -> OfJob {
    OfJob { name, help, kind: MetricType::Gauge, label: |_| None, value }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    value: fn(&JobView) -> Option<f64>,
) -> OfJob {
    OfJob { name, help, kind: MetricType::Counter, label: |_| None, value }
}

const OF_JOBS: &[OfJob] = &[
    OfJob {
        label: |view| Some(("class", word(&view.job.class))),
        ..gauge("gangd_job_class", "1 for the class that a job is in", |_| Some(1.0))
    },
    OfJob {
        label: |view| Some(("state", word(&view.job.state))),
        ..gauge("gangd_job_state", "1 for the state that a job is in", |_| Some(1.0))
    },
    gauge("gangd_job_start_time_seconds", "When a job was registered, since the epoch", |view| {
        Some(seconds(view.job.registered_at_ns))
    }),
    gauge("gangd_job_cpus", "CPUs that a job asks for", |view| Some(view.job.cpus as f64)),
    gauge("gangd_job_weight_ratio", "Weight of a job; 1 is the default", |view| {
        Some(view.job.weight as f64 / 100.0)
    }),
    gauge(
        "gangd_job_progress_ratio",
        "Share of its work that a job has done, as its program says",
        |view| progress(&view.job),
    ),
    gauge("gangd_job_threads", "Threads of a job", |view| Some(view.job.threads as f64)),
    gauge(
        "gangd_job_share_wanted_ratio",
        "Share of time in slot that its weight gives a job",
        |view| Some(view.job.share_wanted),
    ),
    gauge("gangd_job_share_had_ratio", "Share of time in slot that a job had in 10 s", |view| {
        Some(view.job.share_had)
    }),
    gauge(
        "gangd_job_coscheduled_ratio",
        "Share of the time in its slots in which all runnable threads of a job ran, since it began",
        |view| view.job.coscheduled(),
    ),
    gauge(
        "gangd_job_skew_seconds",
        "First to last thread at the edges of slots: what 99 of 100 do not exceed",
        |view| view.job.skew_ns_p99().map(seconds),
    ),
    counter("gangd_job_slots", "Slots that a job had", |view| Some(view.job.slots as f64)),
    counter("gangd_job_slot_seconds", "Time that a job was in slot", |view| {
        Some(seconds(view.job.in_slot_ns))
    }),
    counter("gangd_job_cpu_seconds", "CPU time of a job", |view| {
        Some(seconds(view.job.cpu_time_ns))
    }),
    counter(
        "gangd_job_lost_seconds",
        "Time that threads of a job waited for a CPU in slot, summed over its threads",
        |view| Some(seconds(view.job.measured.as_ref()?.lost_ns)),
    ),
    counter(
        "gangd_job_waiting_seconds",
        "Time that threads of a job waited for a CPU out of slot, summed over its threads",
        |view| Some(seconds(view.job.measured.as_ref()?.waiting_ns)),
    ),
    counter(
        "gangd_job_filled_seconds",
        "CPU time that a job had out of its slots, in holes",
        |view| Some(seconds(view.job.measured.as_ref()?.filled_ns)),
    ),
    gauge("gangd_job_memory_used_bytes", "Memory of a job that was promised some", |view| {
        view.job.used_memory().map(|bytes| bytes as f64)
    }),
    gauge("gangd_job_memory_promised_bytes", "Memory that a job was promised", |view| {
        view.job.promised_memory().map(|bytes| bytes as f64)
    }),
    gauge("gangd_job_disk_promised_bytes", "Disk that a job was promised", |view| {
        view.job.disk_bytes.map(|bytes| bytes as f64)
    }),
];

fn labels(view: &JobView, more: Option<(&'static str, String)>) -> Labels {
    let mut labels = vec![
        ("id", view.job.id.to_string()),
        ("name", view.job.name.clone()),
        ("owner", view.owner.to_string()),
    ];
    labels.extend(more);
    labels
}

#[cfg(test)]
mod tests;
