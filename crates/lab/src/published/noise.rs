//! X8: how exactly slots begin and end, and how often they are interrupted. The daemon's own record
//! of its switches says when they were due and when they came; two gangs whose threads look at the
//! clock all the time say when they ran; and what it measures says who ran instead.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use gang_protocol::client::Client;
use gang_protocol::error::ClientError;
use gang_protocol::v1::ShowJob_Reply;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::{Daemon, DaemonOptions, number};
use crate::harness::duration;
use crate::harness::lab::{Gang, LONG_ENOUGH, Lab, Span, words};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::table::figure;
use crate::workload::edges::EdgesOutcome;

const BEGIN: &str = "begin_us_p50";
const INTERRUPTIONS: &str = "interruptions_per_slot";
const PUBLISHED: usize = 8;
/// From shorter ones to those of the paper.
const SLICES_MS: [u64; 3] = [1, 10, 50];
const COPIES: usize = 2;
/// Of those whom gangs waited for, so many are named.
const NAMED: usize = 3;

/// For how long threads waited in their slots, by the name and the class of who had their CPU.
type LostTo = BTreeMap<String, i64>;

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has no slots")?;
    let slices = SLICES_MS.map(Duration::from_millis);
    let of = |slice| Condition::new(duration::show(slice), move |lab| measure(lab, slice));
    let conditions = slices.map(of);
    let run = alternate(lab, "noise", lab.rounds(PUBLISHED), &conditions)?;
    let about = "when slots begin and end, against when they should, by the length of slices (X8)";
    let mut report = Report::new(lab, about, run, BEGIN);
    for length in slices {
        let slice = duration::show(length);
        let [begin, late, interruptions] = [BEGIN, "begin_us_p99", INTERRUPTIONS]
            .map(|name| report.mean(&slice, name).map(|estimate| figure(estimate.value)));
        if let (Some(begin), Some(late), Some(interruptions)) = (begin, late, interruptions) {
            report.verdict.push(format!(
                "Slots of {slice} begin {begin} µs from their boundary in the median and {late} µs at p99, and \
                 are interrupted {interruptions} times each."
            ));
        }
        let series = report.series.iter().find(|series| series.condition == slice);
        let who = series.and_then(|series| worst(&slice, &series.lost_to_ns));
        report.verdict.extend(who);
    }
    Ok(report)
}

/// The threads that ran instead of gangs in their slots, the worst first.
fn worst(slice: &str, lost_to: &LostTo) -> Option<String> {
    let all: i64 = lost_to.values().sum();
    let mut worst: Vec<_> = lost_to.iter().filter(|(_, ns)| **ns > 0).collect();
    worst.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
    let named = worst
        .iter()
        .take(NAMED)
        .map(|(who, ns)| format!("{who} {:.0} %", **ns as f64 / all as f64 * 100.0));
    let named: Vec<String> = named.collect();
    let who = named.join(", ");
    (!named.is_empty()).then(|| format!("In slots of {slice} threads waited most for {who}."))
}

/// The threads that the gangs have waited for; nothing where that is not measured.
pub fn who_ran_instead(daemon: &Daemon) -> Result<LostTo> {
    let mut client = Client::connect(daemon.socket())?;
    let jobs = client.list_jobs()?.jobs;
    summed(jobs.into_iter().map(|job| client.show_job(job.id)))
}

/// Of the jobs that were looked at; one that ended after it was listed, as on a machine that stood
/// still for a while, has no figures any more.
fn summed(looks: impl Iterator<Item = Result<ShowJob_Reply, ClientError>>) -> Result<LostTo> {
    let mut lost_to = LostTo::new();
    for look in looks {
        let shown = match look {
            Err(ClientError::NoSuchJob { .. }) => continue,
            look => look?,
        };
        for culprit in shown.details.measured.and_then(|it| it.lost_to).unwrap_or_default() {
            let who = format!("{} ({})", culprit.name, culprit.sched_policy);
            *lost_to.entry(who).or_default() += culprit.ns;
        }
    }
    Ok(lost_to)
}

fn measure(lab: &Lab, slice: Duration) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::slice(slice)))?;
    let length = lab.length(Duration::from_secs(4));
    let run = |span: &Span| look(lab, &daemon, slice, span);
    let (sample, longer_s) =
        lab.over_window(length, LONG_ENOUGH, run, |sample| !sample.saw_no_gang_run())?;
    Ok(sample.over(longer_s))
}

fn look(lab: &Lab, daemon: &Daemon, slice: Duration, span: &Span) -> Result<Sample> {
    let gang = Gang { cpus: lab.threads().min(lab.cpus), weight: None };
    let edges =
        words(&format!("edges --threads {} --slice {}", lab.threads(), duration::show(slice)));
    let arguments = [edges, span.arguments()].concat();
    let mut running = Vec::new();
    for _ in 0..COPIES {
        running.push(lab.start_workload(Some(daemon), Some(gang), &arguments)?);
    }
    let mut seen = daemon.look(span);
    seen.lost_to_ns = who_ran_instead(daemon)?;
    let status = daemon.status()?;
    let mut outcomes: Vec<EdgesOutcome> = Vec::new();
    for gang in running {
        outcomes.push(gang.outcome(span.deadline)?);
    }
    let mean = |of: fn(&EdgesOutcome) -> f64| outcomes.iter().map(of).sum::<f64>() / COPIES as f64;
    let slots: u64 = outcomes.iter().map(|outcome| outcome.slots).sum();
    let interruptions: u64 = outcomes.iter().map(|outcome| outcome.interruptions).sum();
    let interrupted_ns: u64 = outcomes.iter().map(|outcome| outcome.interrupted_ns).sum();
    let in_slots_ns = span.length.as_nanos() as f64 * lab.threads() as f64;
    Ok(seen.with([
        (BEGIN, mean(|outcome| outcome.begin_us_p50)),
        ("begin_us_p99", mean(|outcome| outcome.begin_us_p99)),
        ("end_us_p50", mean(|outcome| outcome.end_us_p50)),
        ("end_us_p99", mean(|outcome| outcome.end_us_p99)),
        (INTERRUPTIONS, interruptions as f64 / slots.max(1) as f64),
        ("interrupted_percent", interrupted_ns as f64 / in_slots_ns * 100.0),
        ("switch_late_us_p50", number(&status, "/switches/late/p50_ns")? / 1e3),
        ("switch_late_us_p99", number(&status, "/switches/late/p99_ns")? / 1e3),
        ("switch_skew_us_p50", number(&status, "/switches/skew/p50_ns")? / 1e3),
        ("switch_skew_us_p99", number(&status, "/switches/skew/p99_ns")? / 1e3),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_are_named_first() {
        let who = |name: &str, ns| (format!("{name} (other)"), ns);
        assert_eq!(worst("10 ms", &BTreeMap::from([who("a", 0)])), None);
        let lost_to = [who("a", 10), who("b", 60), who("c", 25), who("d", 5)].into();
        assert_eq!(
            worst("10 ms", &lost_to).unwrap(),
            "In slots of 10 ms threads waited most for b (other) 60 %, c (other) 25 %, a (other) 10 %."
        );
    }

    #[test]
    fn gangs_that_have_ended_tell_nothing() {
        let ended = |job| Err(ClientError::NoSuchJob { doing: "looking".into(), job });
        assert_eq!(summed([ended(1), ended(2)].into_iter()).unwrap(), LostTo::new());
        let gone = ClientError::Closed { doing: "looking".into(), socket: "/s".into() };
        assert!(summed([ended(1), Err(gone)].into_iter()).is_err());
    }
}
