//! The figures of a job, each defined once. `gang show`, `gang ls`, `gang top`, `gang metrics` and
//! the page of `gang web` take names, titles, units, explanations and order from [`FIGURES`].
//!
//! A figure that was not measured, or that does not apply to a job, has no value. It is never 0.

use std::borrow::Cow;
use std::cmp::Ordering;

use gang_protocol::v1;
use prometheus_client::metrics::MetricType;
use serde::Serialize;

use crate::live::JobView;
use crate::values::{cpu_list, duration, percent, progress, size, word};

/// A gang that is coscheduled for less than this share of its slots is hardly a gang.
pub const COSCHEDULED_LEAST: f64 = 0.9;

/// A figure of a job. The page gets all fields but those that only Rust can use.
#[derive(Debug, Serialize)]
pub struct Figure {
    /// As in the interface file where it has the figure. It is also the key on the page.
    pub name: &'static str,
    pub title: &'static str,
    pub unit: Unit,
    /// A sentence without a full stop.
    pub help: &'static str,
    #[serde(flatten)]
    pub column: Option<Column>,
    /// Tables that are sorted by it begin with the least.
    pub ascending: bool,
    /// BPF measures it. Where that is impossible, `Job.not_measured` says why.
    pub measured: bool,
    /// A smaller value is marked.
    pub least: Option<f64>,
    #[serde(skip)]
    pub metric: Option<Metric>,
    #[serde(skip)]
    value: fn(&JobView) -> Option<Value<'_>>,
}

/// The column of a figure in the tables of `gang top` and the page.
#[derive(Debug, Serialize)]
pub struct Column {
    /// The greatest is left out first where there is no room for all columns: 3 is for the widest
    /// terminals alone.
    pub rank: u8,
    /// The heading in `gang top`.
    #[serde(skip)]
    pub heading: &'static str,
    /// Its cells in `gang top`, in a narrow terminal and in a wide one.
    #[serde(skip)]
    pub widths: (usize, usize),
    /// It is left out where no job has a value.
    #[serde(skip)]
    pub optional: bool,
}

/// The metric of a figure.
#[derive(Debug)]
pub struct Metric {
    pub kind: MetricType,
    /// The name between `gangd_job_` and the unit; absent: the figure's own.
    stem: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Text,
    /// A word; in order of priority.
    Class,
    /// A word.
    State,
    /// A whole number.
    Count,
    /// A mean or a rate, with decimals.
    Mean,
    /// 0 to 1.
    Share,
    Percent,
    Ns,
    /// Nanoseconds since the Unix epoch, UTC.
    Moment,
    Bytes,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value<'a> {
    Text(Cow<'a, str>),
    Whole(i64),
    Real(f64),
}

use Unit::{Bytes, Class, Count, Mean, Moment, Ns, Percent, Share, State, Text};
use Value::{Real, Whole};

const fn figure(
    name: &'static str,
    title: &'static str,
    unit: Unit,
    help: &'static str,
    value: fn(&JobView) -> Option<Value<'_>>,
) -> Figure {
    let (column, metric, least) = (None, None, None);
    let ascending = matches!(unit, Text | Class | State);
    Figure { name, title, unit, help, column, ascending, measured: false, least, metric, value }
}

/// A sum over a job's threads that BPF measures.
const fn sum(
    name: &'static str,
    title: &'static str,
    help: &'static str,
    value: fn(&JobView) -> Option<Value<'_>>,
) -> Figure {
    figure(name, title, Ns, help, value).measured().metric(MetricType::Counter, None)
}

/// A part of the time of a job's turns that BPF measures.
const fn part(
    name: &'static str,
    title: &'static str,
    help: &'static str,
    stem: &'static str,
    value: fn(&JobView) -> Option<Value<'_>>,
) -> Figure {
    figure(name, title, Ns, help, value).measured().metric(MetricType::Counter, Some(stem))
}

impl Figure {
    const fn column(self, rank: u8, heading: &'static str, widths: (usize, usize)) -> Figure {
        let column = Column { rank, heading, widths, optional: false };
        Figure { column: Some(column), ..self }
    }

    const fn gauge(self) -> Figure {
        self.metric(MetricType::Gauge, None)
    }

    const fn metric(self, kind: MetricType, stem: Option<&'static str>) -> Figure {
        Figure { metric: Some(Metric { kind, stem }), ..self }
    }

    const fn measured(self) -> Figure {
        Figure { measured: true, ..self }
    }

    const fn ascending(self) -> Figure {
        Figure { ascending: true, ..self }
    }
}

/// In the order in which views show them.
pub const FIGURES: &[Figure] = &[
    figure("id", "ID", Count, "Number of the job", |view| Some(Whole(view.job.id)))
        .column(0, "ID", (5, 5))
        .ascending(),
    figure("name", "name", Text, "Name of the job", |view| text(&view.job.name)).column(
        0,
        "NAME",
        (10, 10),
    ),
    figure("owner", "owner", Text, "User who owns the job", |view| text(&*view.owner)).column(
        2,
        "OWNER",
        (6, 12),
    ),
    figure(
        "class",
        "class",
        Class,
        "Class of the job; in order of priority: express, interactive, batch, standby",
        |view| text(word(&view.job.class)),
    )
    .column(1, "CLASS", (5, 11))
    .gauge(),
    figure("policy", "policy", Text, "How the job is scheduled: gang, none or auto", |view| {
        text(word(&view.job.policy))
    }),
    figure("state", "state", State, "Whether the job takes turns, and if not, why", |view| {
        text(word(&view.job.state))
    })
    .column(0, "STATE", (5, 9))
    .gauge(),
    figure("cpus", "CPUs", Count, "CPUs that the job asks for, all at once", |view| {
        Some(Whole(view.job.cpus))
    })
    .column(1, "CPU", (3, 4))
    .gauge(),
    figure("min_cpus", "CPUs at least", Count, "Fewest CPUs with which the job runs", |view| {
        Some(Whole(view.job.min_cpus))
    }),
    figure("cpu_list", "on CPUs", Text, "CPUs that the job has, or had last", |view| {
        text(cpu_list(&view.job.cpu_list))
    }),
    Figure {
        column: Some(Column { rank: 1, heading: "HOSTS", widths: (7, 16), optional: true }),
        ..figure("hosts", "hosts", Text, "CPUs of the job by host, where it spans hosts", |view| {
            text(view.hosts.as_deref()?)
        })
    },
    figure("weight", "weight", Percent, "Weight of the job; 100 % is the default", |view| {
        Some(Whole(view.job.weight))
    })
    .column(3, "WEIGHT", (6, 6))
    .gauge(),
    figure(
        "overhead",
        "pays for switches",
        Share,
        "Part of a slice that switching its threads takes; the job weighs less by as much",
        |view| Some(Real(view.job.overhead)).filter(|_| view.job.overhead > 0.0),
    )
    .gauge(),
    figure(
        "user_cap",
        "owner's cap",
        Share,
        "Share of all CPUs that the gangs of the job's owner have together at most",
        |view| view.job.user_cap.map(Real),
    )
    .gauge(),
    figure(
        "share_wanted",
        "share wanted",
        Share,
        "Share of the time in slot that the job's weight gives it now",
        |view| Some(Real(view.job.share_wanted)),
    )
    .column(1, "WANT%", (5, 6))
    .gauge(),
    figure(
        "share_had",
        "share had",
        Share,
        "Share of the time that the job was in slot, over the last ten seconds",
        |view| Some(Real(view.job.share_had)),
    )
    .column(0, "HAD%", (5, 6))
    .gauge(),
    figure(
        "cpus_used",
        "CPUs used",
        Mean,
        "CPUs that the job used over the last seconds",
        |view| view.rates.cpus_used.map(Real),
    )
    .column(3, "USED", (5, 5)),
    Figure {
        least: Some(COSCHEDULED_LEAST),
        ..figure(
            "coscheduled",
            "coscheduled",
            Share,
            "Share of the time in its slots, as far as the job wanted to run, in which all of its \
             runnable threads were on CPUs",
            |view| view.job.coscheduled().map(Real),
        )
        .column(0, "COSCHED%", (8, 8))
        .ascending()
        .measured()
        .gauge()
    },
    figure(
        "skew_ns_p99",
        "skew, p99",
        Ns,
        "From the first thread to the last at the beginnings and ends of slots: what 99 of 100 do \
         not exceed",
        |view| view.job.skew_ns_p99().map(Whole),
    )
    .column(2, "SKEW99", (6, 8))
    .measured()
    .metric(MetricType::Gauge, Some("skew")),
    figure(
        "whole",
        "whole",
        Share,
        "Share of the time that the job asked for all CPUs of its row, in slots and the gaps that \
         interrupt them, in which it or another gang had all of them",
        |view| Some(Real(whole(view)?.share)),
    )
    .column(3, "WHOLE%", (6, 6))
    .ascending()
    .measured()
    .gauge(),
    figure(
        "whole_steady",
        "on a steady host",
        Share,
        "The same without turns at the start of which the host let a CPU wait for more than 200 µs; \
         absent where that leaves out more than a tenth",
        |view| whole(view)?.steady_share.map(Real),
    )
    .measured()
    .gauge(),
    figure(
        "left_out",
        "left out of that",
        Share,
        "Share of the time that is left out for such turns",
        |view| Some(Real(whole(view)?.left_out)),
    )
    .measured()
    .metric(MetricType::Gauge, Some("whole_left_out")),
    figure(
        "lost",
        "waits in slot",
        Mean,
        "Threads that waited for a CPU in slot, on average over the last seconds",
        |view| view.rates.lost.map(Real),
    )
    .column(3, "LOST", (5, 5))
    .measured(),
    figure(
        "waiting",
        "waits out of slot",
        Mean,
        "Threads that waited for a CPU out of slot, on average over the last seconds",
        |view| view.rates.waiting.map(Real),
    )
    .column(3, "WAITS", (5, 5))
    .measured(),
    figure(
        "filling",
        "filling",
        Share,
        "Share of its CPU time that the job had out of its slots over the last seconds, in holes \
         that others left",
        |view| view.rates.filling.map(Real),
    )
    .column(2, "FILL%", (5, 6))
    .measured(),
    Figure {
        column: Some(Column { rank: 1, heading: "DONE%", widths: (5, 6), optional: true }),
        ..figure(
            "progress",
            "done",
            Share,
            "Share of its work that the job has done, where its program says so",
            |view| progress(&view.job).map(Real),
        )
        .gauge()
    },
    figure("work", "work done", Text, "What the program says it has done, in its unit", |view| {
        let v1::Progress { done, total, .. } = valid(&view.job)?;
        text(format!("{done} of {total}"))
    }),
    figure("progress_at_ns", "work reported", Moment, "When the program said so last", |view| {
        Some(Whole(valid(&view.job)?.at_ns))
    }),
    figure(
        "memory_used_bytes",
        "memory used",
        Bytes,
        "Memory that the job uses, where it was promised some",
        |view| view.job.used_memory().map(Whole),
    )
    .column(2, "MEM", (5, 7))
    .gauge(),
    figure(
        "memory_promised_bytes",
        "memory promised",
        Bytes,
        "Memory that the job was promised",
        |view| view.job.promised_memory().map(Whole),
    )
    .gauge(),
    figure(
        "memory_limit",
        "memory limit",
        Text,
        "Whether the kernel lets the job have no more memory than it was promised",
        |view| text(if view.job.memory.as_ref()?.enforced { "enforced" } else { "not enforced" }),
    ),
    figure(
        "disk_promised_bytes",
        "disk promised",
        Bytes,
        "Disk that the job was promised",
        |view| view.job.disk_bytes.map(Whole),
    )
    .gauge(),
    figure("slots", "slots", Count, "Slots that the job had", |view| Some(Whole(view.job.slots)))
        .metric(MetricType::Counter, None),
    figure("in_slot_ns", "time in slot", Ns, "Time that the job was in slot", |view| {
        Some(Whole(view.job.in_slot_ns))
    })
    .metric(MetricType::Counter, Some("slot")),
    figure("cpu_time_ns", "CPU time", Ns, "CPU time of the job", |view| {
        Some(Whole(view.job.cpu_time_ns))
    })
    .column(3, "CPU TIME", (11, 11))
    .metric(MetricType::Counter, Some("cpu")),
    part(
        "asked_ns",
        "asked for its row",
        "Time in which the job asked for all CPUs of its row",
        "asked",
        |view| Some(Whole(whole(view)?.asked_ns)),
    ),
    part(
        "split_ns",
        "split",
        "Of it, time in which no gang was whole and the CPUs ran different gangs",
        "split",
        |view| Some(Whole(whole(view)?.split_ns)),
    ),
    part(
        "partly_ns",
        "partly",
        "Of it, time in which no gang was whole and some CPUs ran none",
        "partly",
        |view| Some(Whole(whole(view)?.partly_ns)),
    ),
    part(
        "gap_ns",
        "not whole in gaps",
        "Time in gaps in which no gang was whole",
        "not_whole_in_gaps",
        |view| Some(Whole(whole(view)?.gap_ns)),
    ),
    part(
        "edge_ns",
        "not whole at edges",
        "Time in slots before the job was whole, or after it was so for the last time",
        "not_whole_at_edges",
        |view| Some(Whole(whole(view)?.edge_ns)),
    ),
    part(
        "noise_ns",
        "not whole between",
        "Time in slots in which something else had a CPU of a job that was whole before and after",
        "not_whole_between",
        |view| Some(Whole(whole(view)?.noise_ns)),
    ),
    sum(
        "lost_ns",
        "waited in slot",
        "Time that threads of the job waited for a CPU in slot, summed over its threads",
        |view| Some(Whole(view.job.measured.as_ref()?.lost_ns)),
    ),
    sum(
        "waiting_ns",
        "waited out of slot",
        "Time that threads of the job waited for a CPU out of slot, summed over its threads",
        |view| Some(Whole(view.job.measured.as_ref()?.waiting_ns)),
    ),
    sum(
        "filled_ns",
        "ran out of slot",
        "CPU time that the job had out of its slots, in holes that others left",
        |view| Some(Whole(view.job.measured.as_ref()?.filled_ns)),
    ),
    figure(
        "gave_way",
        "gave way",
        Count,
        "How often a thread of the job gave way in slot to real-time threads of its priority",
        |view| Some(Whole(view.job.measured.as_ref()?.gave_way)),
    )
    .measured()
    .metric(MetricType::Counter, None),
    sum(
        "gave_way_ns",
        "gave way for",
        "Time for which threads of the job gave way in slot to real-time threads of their priority",
        |view| Some(Whole(view.job.measured.as_ref()?.gave_way_ns)),
    ),
    figure("processes", "processes", Count, "Processes of the job", |view| {
        Some(Whole(view.job.processes))
    }),
    figure("threads", "threads", Count, "Threads of the job", |view| Some(Whole(view.job.threads)))
        .gauge(),
    figure("cgroup", "cgroup", Text, "Cgroup of the job, from the root of the hierarchy", |view| {
        text(view.job.cgroup.as_deref()?)
    }),
    figure("registered_at_ns", "registered", Moment, "When the job was registered", |view| {
        Some(Whole(view.job.registered_at_ns))
    })
    .metric(MetricType::Gauge, Some("start_time")),
];

/// The classes in order of priority.
pub const CLASSES: [v1::Class; 4] =
    [v1::Class::express, v1::Class::interactive, v1::Class::batch, v1::Class::standby];

fn text<'a>(value: impl Into<Cow<'a, str>>) -> Option<Value<'a>> {
    Some(Value::Text(value.into()))
}

fn whole(view: &JobView) -> Option<&v1::WholeTime> {
    view.job.measured.as_ref()?.whole.as_ref()
}

/// The report of a program that makes sense.
fn valid(job: &v1::Job) -> Option<&v1::Progress> {
    progress(job).and(job.progress.as_ref())
}

/// The figure of that name, which a view has of its own accord.
pub fn named(name: &str) -> &'static Figure {
    FIGURES.iter().find(|figure| figure.name == name).expect("a name of the table")
}

impl Figure {
    pub fn value<'a>(&self, view: &'a JobView) -> Option<Value<'a>> {
        (self.value)(view)
    }

    /// Whether a table of these jobs has the figure.
    pub fn is_shown(&self, jobs: &[JobView]) -> bool {
        let is_optional = self.column.as_ref().is_some_and(|column| column.optional);
        !is_optional || jobs.iter().any(|view| self.value(view).is_some())
    }

    /// A number, and not a word.
    pub fn is_number(&self) -> bool {
        !matches!(self.unit, Text | Class | State)
    }

    /// A value as a sentence has it, at a moment (UTC).
    pub fn text(&self, value: &Value<'_>, now_ns: i64) -> String {
        match (self.unit, value) {
            (State, Value::Text(word)) => word.replace('_', " "),
            (Share, Real(share)) => percent(*share),
            (Percent, Whole(percent)) => format!("{percent} %"),
            (Ns, Whole(ns)) => duration(*ns),
            (Moment, Whole(at_ns)) => format!("{} ago", duration(now_ns.saturating_sub(*at_ns))),
            (Bytes, Whole(bytes)) => size(*bytes),
            (_, Value::Text(text)) => text.clone().into_owned(),
            (_, Whole(number)) => number.to_string(),
            (_, Real(mean)) => format!("{mean:.2}"),
        }
    }

    /// A value as it fits a column of `gang top`, whose heading has the unit.
    pub fn cell(&self, value: &Value<'_>) -> String {
        match (self.unit, value) {
            (State, Value::Text(word)) => state(word).to_owned(),
            (Share, Real(share)) => format!("{:.1}", share * 100.0),
            (Percent, Whole(percent)) => percent.to_string(),
            (Ns, Whole(ns)) => short_duration(*ns),
            (Bytes, Whole(bytes)) => short_size(*bytes),
            (_, Real(mean)) => format!("{mean:.*}", if *mean < 9.995 { 2 } else { 1 }),
            _ => self.text(value, 0),
        }
    }

    /// Compares two jobs as they stand in a table that is sorted by this figure. A job without a
    /// value comes last.
    pub fn compare(&self, one: &JobView, other: &JobView) -> Ordering {
        let (Some(one), Some(other)) = (self.value(one), self.value(other)) else {
            return self.value(one).is_none().cmp(&self.value(other).is_none());
        };
        let least_first = match (&one, &other) {
            (Value::Text(one), Value::Text(other)) if self.unit == Class => {
                rank(one).cmp(&rank(other))
            }
            (Value::Text(one), Value::Text(other)) => one.cmp(other),
            _ => one.number().total_cmp(&other.number()),
        };
        if self.ascending { least_first } else { least_first.reverse() }
    }

    /// The name of the metric, with its unit.
    pub fn metric_name(&self, metric: &Metric) -> String {
        let (of_figure, of_metric) = match self.unit {
            Share | Percent => ("", "_ratio"),
            Ns | Moment => ("_ns", "_seconds"),
            Bytes => ("_bytes", "_bytes"),
            Text | Class | State | Count | Mean => ("", ""),
        };
        let stem = metric.stem.unwrap_or(self.name.strip_suffix(of_figure).unwrap_or(self.name));
        format!("gangd_job_{stem}{of_metric}")
    }

    /// A value in the unit of the metric.
    pub fn sample(&self, value: &Value<'_>) -> f64 {
        match self.unit {
            Percent => value.number() / 100.0,
            Ns | Moment => value.number() / 1e9,
            _ => value.number(),
        }
    }
}

impl Value<'_> {
    /// Of a word, 1: a metric has the word as a label.
    pub fn number(&self) -> f64 {
        match self {
            Value::Text(_) => 1.0,
            Whole(number) => *number as f64,
            Real(number) => *number,
        }
    }
}

/// Place of a class in order of priority.
fn rank(class: &str) -> usize {
    CLASSES.iter().position(|known| word(known) == class).unwrap_or(CLASSES.len())
}

/// In and out of slot alternate faster than anybody can read. A word that fits says why a job has
/// no slots.
fn state(word: &str) -> &str {
    match word {
        "running" | "waiting" | "not_scheduled" => "active",
        "too_many_threads" => "threads",
        "too_few_cpus" => "cpus",
        other => other,
    }
}

/// A length of time without a space, below a minute; longer ones have two units.
fn short_duration(ns: i64) -> String {
    let us = ns.max(0) as f64 / 1e3;
    match us {
        ..1e3 => format!("{us:.0}µs"),
        1e3..1e5 => format!("{:.1}ms", us / 1e3),
        1e5..1e6 => format!("{:.0}ms", us / 1e3),
        1e6..6e7 => format!("{:.1}s", us / 1e6),
        _ => duration(ns),
    }
}

fn short_size(bytes: i64) -> String {
    let mut size = bytes.max(0) as f64;
    for unit in ["B", "K", "M", "G", "T"] {
        if size < 999.5 {
            let is_small = size < 9.95 && unit != "B";
            return if is_small { format!("{size:.1}{unit}") } else { format!("{size:.0}{unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.0}P")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fixture;

    #[test]
    fn names_are_unique_and_help_is_one_sentence() {
        let names: BTreeSet<_> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), FIGURES.len());
        for Figure { name, help, .. } in FIGURES {
            let begins = help.chars().next().is_some_and(char::is_uppercase);
            assert!(begins && !help.ends_with('.'), "{name}: {help}");
        }
    }

    #[test]
    fn a_job_without_measurements_has_no_measured_value() {
        let job = v1::Job { measured: None, ..fixture::job(3, "lu") };
        let view = JobView { job, owner: "root".into(), hosts: None, rates: Default::default() };
        for figure in FIGURES.iter().filter(|figure| figure.measured) {
            assert_eq!(figure.value(&view), None, "{}", figure.name);
        }
        assert_eq!(named("memory_used_bytes").value(&view), None);
        assert_eq!(named("share_had").value(&view), Some(Real(0.49)));
    }

    #[test]
    fn cells_are_short() {
        let short = |us: f64| short_duration((us * 1e3) as i64);
        assert_eq!(
            [0.4, 45.0, 999.0, 1234.0, 123_456.0, 2e6].map(short),
            ["0µs", "45µs", "999µs", "1.2ms", "123ms", "2.0s"]
        );
        assert_eq!(
            [0, 1023, 1 << 20, 1536 << 20, 40 << 30].map(short_size),
            ["0B", "1.0K", "1.0M", "1.5G", "40G"]
        );
        for bytes in (0..62).map(|shift| 1i64 << shift) {
            assert!(short_size(bytes).len() <= 5);
        }
        let used = named("cpus_used");
        assert_eq!([1.234, 128.0].map(|cpus| used.cell(&Real(cpus))), ["1.23", "128.0"]);
    }
}
