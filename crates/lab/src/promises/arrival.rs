//! The wait of a gang of class interactive for its first slot, from before it is registered, while
//! four batch gangs spin on all CPUs.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::wait::wait_until;
use crate::promises::list;
use crate::workload::LONGEST;
use crate::workload::arrivals::{ArrivalsOutcome, Wait};
use crate::workload::window::now_ns;

const P99: &str = "waited_slices_p99";
const CONDITION: &str = "an interactive gang beside four batch gangs";
const ARRIVALS: u64 = 200;
const BATCH: usize = 4;
/// Longer than what is before the arrivals takes, and each of them; batch gangs are killed after
/// the last.
const BEFORE: Duration = Duration::from_secs(240);
const EACH: Duration = Duration::from_secs(10);

#[derive(Args, Debug, Clone, Default)]
pub struct Arrival {
    /// Gangs that arrive [default: 200, with --quick 50]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub arrivals: Option<u64>,
}

impl Arrival {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        let default = if lab.options.quick { ARRIVALS / 4 } else { ARRIVALS };
        run(lab, self.arrivals.unwrap_or(default))
    }
}

fn run(lab: &Lab, arrivals: u64) -> Result<Report> {
    lab.needs_gangd("plain Linux has no slots")?;
    let conditions = [Condition::new(CONDITION, |lab| measure(lab, arrivals))];
    let run = alternate(lab, "arrival", lab.runs(), &conditions)?;
    let about = format!("wait of an interactive gang for its first slot, {arrivals} arrivals");
    let mut report = Report::new(lab, about, run, P99);
    let p99 = report.mean(CONDITION, P99);
    report.promise(&list::ARRIVAL, p99);
    Ok(report)
}

fn measure(lab: &Lab, arrivals: u64) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
    let span = Span::soon((BEFORE + EACH * arrivals as u32).min(LONGEST));
    let cpus = lab.threads().min(lab.cpus);
    let gang = Launch::gang(cpus, &format!("hog --threads {}", lab.threads()));
    let arguments = [gang.arguments.as_slice(), &span.arguments()].concat();
    let mut gangs = Vec::new();
    for _ in 0..BATCH {
        gangs.push(lab.start_workload(Some(&daemon), gang.gang, &arguments)?);
    }
    wait_until("the batch gangs have slots", || {
        let jobs = daemon.jobs()?;
        let has_slots = |job: &&Value| job["slots"].as_i64() > Some(0);
        Ok(jobs.iter().filter(has_slots).count() == BATCH)
    })?;
    let mut command = Command::new("chrt");
    command.args(["-f", "50"]).arg(&lab.programs.lab);
    command.args(["workload", "arrivals", "--socket"]).arg(daemon.socket());
    command.args(["--arrivals", &arrivals.to_string(), "--cpus", &cpus.to_string()]);
    let outcome: ArrivalsOutcome = Running::start(&mut command)?.outcome(span.deadline)?;
    let all_ran = gangs.iter_mut().all(|gang| !gang.ends_by(Instant::now()));
    ensure!(all_ran, "the batch gangs ended before all others had come");
    // Those that came are gone again.
    let seen = daemon.look_at(now_ns());
    let waited = |of: fn(&Wait) -> u64| {
        let mut slices: Vec<f64> =
            outcome.waited.iter().map(|wait| of(wait) as f64 / outcome.slice_ns as f64).collect();
        slices.sort_by(f64::total_cmp);
        move |part: f64| slices[((slices.len() - 1) as f64 * part).round() as usize]
    };
    let since_arrival = waited(|wait| wait.since_arrival_ns);
    let since_process = waited(|wait| wait.since_process_ns);
    Ok(seen.with([
        ("waited_slices_p50", since_arrival(0.5)),
        (P99, since_arrival(0.99)),
        ("waited_slices_max", since_arrival(1.0)),
        ("waited_since_process_slices_p50", since_process(0.5)),
        ("waited_since_process_slices_p99", since_process(0.99)),
    ]))
}
