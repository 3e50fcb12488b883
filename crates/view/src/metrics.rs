//! A snapshot as OpenMetrics text.
//!
//! Names follow Prometheus' conventions: base units (seconds, bytes, ratios from 0 to 1), counters
//! end in `_total`. The labels of a job do not change while it lives. Its class and state change,
//! and have metrics of their own. A figure that was not measured has no sample. The table of
//! docs/metrics.md is made of these texts; a test compares, and REWRITE=1 renews it.

use std::fmt;

use gang_protocol::v1::{self, Phase, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::figures::{FIGURES, Value};
use crate::live::{JobView, Snapshot};
use crate::values::word;

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
        for figure in FIGURES {
            let Some(metric) = &figure.metric else { continue };
            let sample = |view| {
                let value = figure.value(view)?;
                Some((labels(view, figure.name, &value), figure.sample(&value)))
            };
            let samples = snapshot.jobs.iter().filter_map(sample).collect();
            write(&mut encoder, &figure.metric_name(metric), figure.help, metric.kind, samples)?;
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
    let whole = status.whole.as_ref();
    let asked = whole.map_or(Vec::new(), |it| one(seconds(it.asked_ns)));
    let had = whole.map_or(Vec::new(), |it| one(seconds(it.whole_ns + it.other_ns)));
    let steady = whole.and_then(|it| it.steady_share).map_or(Vec::new(), one);
    let causes = whole.map_or(Vec::new(), |it| {
        let causes = [("gap", it.gap_ns), ("edge", it.edge_ns), ("noise", it.noise_ns)];
        causes.map(|(cause, ns)| (vec![("cause", cause.to_owned())], seconds(ns))).into()
    });
    vec![
        (
            "gangd_build_info",
            "Version, backend and guarantee of the daemon; always 1",
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
            "How long a gang of the class keeps its slot once it leads",
            Gauge,
            class_slices.collect(),
        ),
        (
            "gangd_class_weight_ratio",
            "What the class weighs now; express only where it has a weight, standby never",
            Gauge,
            class_weights.collect(),
        ),
        (
            "gangd_gang_share_max_ratio",
            "Share of the machine that all gangs together may take",
            Gauge,
            one(status.gang_share_max),
        ),
        ("gangd_cpus", "CPUs that are scheduled", Gauge, one(status.cpus as f64)),
        ("gangd_jobs", "Jobs", Gauge, one(status.jobs as f64)),
        (
            "gangd_unregistered_threads",
            "Runnable threads that no gang has",
            Gauge,
            one(status.unregistered_threads as f64),
        ),
        (
            "gangd_working_time",
            "Whether these are working hours; absent where none are configured",
            Gauge,
            hours,
        ),
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
            "gangd_asked_seconds",
            "Time in which gangs asked for all CPUs of their rows",
            Counter,
            asked,
        ),
        ("gangd_whole_seconds", "Of it, time in which a whole gang had them", Counter, had),
        (
            "gangd_whole_steady_ratio",
            "Share of it in which a whole gang had them, without turns that the host disturbed",
            Gauge,
            steady,
        ),
        ("gangd_not_whole_seconds", "Of it, time in which none did, by cause", Counter, causes),
        (
            "gangd_switches",
            "Switches from one row to the next",
            Counter,
            one(switches.count as f64),
        ),
        (
            "gangd_late_plans",
            "Plans that were handed to the switchers after their beginning",
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
            "Times of the last 1,024 switches by phase: late, after the time asked for; lower, \
             taking gangs out of slot; raise, raising the next; skew, first to last thread",
            Gauge,
            phases.into_iter().flat_map(statistics).collect(),
        ),
    ]
}

/// A word is a label beside those that all have.
fn labels(view: &JobView, figure: &'static str, value: &Value<'_>) -> Labels {
    let mut labels = vec![
        ("id", view.job.id.to_string()),
        ("name", view.job.name.clone()),
        ("owner", view.owner.to_string()),
    ];
    if let Value::Text(word) = value {
        labels.push((figure, word.clone().into_owned()));
    }
    labels
}

#[cfg(test)]
mod tests;
