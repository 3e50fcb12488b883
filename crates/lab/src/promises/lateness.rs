//! The price of a short ordinary task while two gangs spin on all CPUs, to the task and to the
//! gangs: it wakes every 10 ms and runs 0.2 ms, like a shell or an editor.
//!
//! Lateness of completion counts, since a task that is woken in time and then preempted is late
//! all the same.

use std::time::Duration;

use anyhow::Result;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::plain_and_default;
use crate::harness::lab::{LONG_ENOUGH, Lab, Launch, Span, Together, Under, all_completed, words};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::loss_percent;
use crate::promises::list;
use crate::workload::tick::TickOutcome;

const RATE: &str = "iterations_per_s";
const P99: &str = "completion_ms_p99";
const LENGTH: Duration = Duration::from_secs(10);

pub fn run(lab: &Lab) -> Result<Report> {
    let ways = plain_and_default(lab);
    let mut conditions = Vec::new();
    for (way, under) in &ways {
        for tick in [false, true] {
            conditions.push(Condition::new(name(way, tick), move |lab| measure(lab, under, tick)));
        }
    }
    let about = "lateness of a short task beside two gangs that spin";
    let run = alternate(lab, "lateness", lab.runs(), &conditions)?;
    let mut report = Report::new(lab, about, run, P99);
    let mut lost = None;
    for (way, _) in &ways {
        let ratio = report.ratio(&name(way, true), &name(way, false), RATE);
        if *way == "gangd" {
            lost = ratio.map(loss_percent);
        }
    }
    if !lab.options.plain {
        let p99 = report.mean(&name("gangd", true), P99);
        report.promise(&list::SHORT_TASK, p99);
        report.promise(&list::SHORT_TASK_COST, lost);
    }
    Ok(report)
}

fn name(way: &str, tick: bool) -> String {
    if tick { format!("{way}, short task") } else { format!("{way}, gangs only") }
}

fn measure(lab: &Lab, under: &Under, tick: bool) -> Result<Sample> {
    let barrier = format!("barrier --threads {}", lab.threads());
    let copies = vec![Launch::gang(lab.threads().min(lab.cpus), &barrier); 2];
    let daemon = lab.daemon_of(under)?;
    let run = |span: &Span| -> Result<_> {
        let task = match tick {
            true => {
                let arguments = [words("tick --every 10ms --run 0.2ms"), span.arguments()].concat();
                Some(lab.start_workload(None, None, &arguments)?)
            }
            false => None,
        };
        let gangs = lab.run_in(span, lab.by(daemon.as_ref()), &copies)?;
        let late: Option<TickOutcome> = task.map(|task| task.outcome(span.deadline)).transpose()?;
        Ok((gangs, late))
    };
    let is_enough = |(gangs, _): &(Together, _)| all_completed(&gangs.outcomes);
    let ((Together { outcomes, sample }, late), longer_s) =
        lab.over_window(lab.length(LENGTH), LONG_ENOUGH, run, is_enough)?;
    let rate = outcomes.iter().map(|outcome| outcome.rate()).sum();
    let mut sample = sample.over(longer_s).with([(RATE, rate)]);
    if let Some(outcome) = late {
        sample.figures.extend([
            ("completion_ms_p50", outcome.completion.p50_ms),
            (P99, outcome.completion.p99_ms),
            ("completion_ms_max", outcome.completion.max_ms),
            ("wake_ms_p50", outcome.wake.p50_ms),
            ("wake_ms_p99", outcome.wake.p99_ms),
        ]);
    }
    Ok(sample)
}
