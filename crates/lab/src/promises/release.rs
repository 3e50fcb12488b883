//! Fail open: the time from `kill -9` of the daemon, at any moment of its slices, until every
//! thread of its gangs is an ordinary one again.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::Estimate;
use crate::promises::list;
use crate::workload::release::ReleaseOutcome;

const RELEASED: &str = "released_after_ms";
const HELD: &str = "threads_held_before";
const CONDITION: &str = "kill -9 of the daemon";
/// Above every gang, so that the watcher runs while they hold the CPUs.
const WATCHER_PRIORITY: &str = "99";

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has no daemon to kill")?;
    // Kills fall anywhere in a slice.
    let conditions = [Condition::new(CONDITION, |lab| measure(lab, fastrand::u64(0..100_000_000)))];
    // A kill takes a second, and its worst case matters: more rounds than elsewhere.
    let run = alternate(lab, "release", lab.runs() * 3, &conditions)?;
    let about = "time until all threads are released after kill -9 of the daemon";
    let mut report = Report::new(lab, about, run, RELEASED);
    let held = report.samples(CONDITION, HELD).unwrap_or_default();
    // In a gap nobody is held; where nobody ever was, the backend is one that holds groups, which
    // are not watched.
    let is_watched = 2 * held.iter().filter(|&&held| held > 0.0).count() > held.len();
    let worst = report.samples(CONDITION, RELEASED).filter(|_| is_watched);
    let worst = worst.map(|samples| Estimate {
        value: samples.iter().copied().fold(0.0, f64::max),
        interval: None,
        samples: samples.len(),
    });
    if !is_watched {
        report
            .notes
            .push("Threads were seldom seen to be held before the kill: this says nothing.".into());
    }
    report.promise(&list::RELEASE, worst);
    Ok(report)
}

fn measure(lab: &Lab, moment_ns: u64) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
    let span = Span::soon(Duration::from_secs(10));
    let gang =
        Launch::gang(lab.threads().min(lab.cpus), &format!("hog --threads {}", lab.threads()));
    let arguments = [gang.arguments.as_slice(), &span.arguments()].concat();
    let mut gangs = Vec::new();
    for _ in 0..2 {
        gangs.push(lab.start_workload(Some(&daemon), gang.gang, &arguments)?);
    }
    let watched: Vec<String> = gangs.iter().map(|gang| gang.pid().to_string()).collect();
    let mut command = Command::new("chrt");
    command.args(["-f", WATCHER_PRIORITY]).arg(&lab.programs.lab);
    command.args(["workload", "release", "--kill", &daemon.pid().to_string()]);
    command.args(["--watch", &watched.join(",")]);
    command.args(["--at", &(span.start_ns + moment_ns).to_string()]);
    let outcome: ReleaseOutcome = Running::start(&mut command)?.outcome(span.deadline)?;
    ensure!(outcome.released, "threads were still held {} ns after", outcome.released_after_ns);
    Ok(daemon.sample().with([
        (RELEASED, outcome.released_after_ns as f64 / 1e6),
        (HELD, outcome.raised_before as f64),
    ]))
}
