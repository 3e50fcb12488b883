//! The daemon under many clients at once: 1,000 jobs at a time, registered and ended by 50 clients
//! for a minute; what is lost, what is left over, and whether the daemon grows. And how long who
//! asks waits, with 1,000 jobs live and 10,000 ended.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::lab::Lab;
use crate::harness::proc;
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::table::thousands;
use crate::harness::wait::TIME_LIMIT;
use crate::promises::list;
use crate::workload::clients::ClientsOutcome;

const CONDITION: &str = "50 clients, 1,000 jobs at a time";
const CALLS: &str = "one client, 100 jobs at a time";
const LENGTH: Duration = Duration::from_secs(60);
/// For a first answer.
const QUICK_LENGTH: Duration = Duration::from_secs(20);
/// Before it, the daemon gets what it keeps, for as long as is measured and this at least: among
/// that the plans of the last 2,048 slices, 41 s of them at its default. More memory than it has
/// then would be growth.
const WARM_UP: Duration = Duration::from_secs(45);
/// Jobs that have ended, beside those at rest; what is promised is about so many. Fewer with
/// `--quick`.
const ENDED: usize = 10_000;
/// For which at least as many are waited for as long.
const ENDING: Duration = Duration::from_secs(240);
const LISTED: &str = "jobs_listed";
/// Jobs that the daemon has then are left over.
const DRAIN: Duration = Duration::from_secs(60);
/// How long jobs are at rest: enough for as many to come.
const REST: Duration = Duration::from_secs(20);

#[derive(Args, Debug, Clone, Default)]
pub struct Clients {
    /// Jobs that have ended before others are at rest [default: 10000, with --quick 500]
    #[arg(long)]
    pub ended: Option<usize>,
}

impl Clients {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        let usual = if lab.options.quick { ENDED / 20 } else { ENDED };
        run(lab, self.ended.unwrap_or(usual))
    }
}

fn run(lab: &Lab, ended: usize) -> Result<Report> {
    lab.needs_gangd("plain Linux has no daemon")?;
    let ended_jobs = thousands(ended as f64);
    let resting = format!("1,000 jobs at rest, {ended_jobs} ended");
    let long = if lab.options.quick { QUICK_LENGTH } else { LENGTH };
    let conditions = [
        Condition::new(CONDITION, |lab| measure(lab, MANY, lab.length(long))),
        Condition::new(CALLS, |lab| {
            let one = Load { clients: 1, jobs: 100, hold: false };
            measure(lab, one, lab.length(Duration::from_secs(5)))
        }),
        Condition::new(&resting, |lab| rest(lab, ended)),
    ];
    // One long round says more than several short ones.
    let run = alternate(lab, "clients", lab.options.runs.unwrap_or(1), &conditions)?;
    let about = "jobs registered and ended by many clients at once";
    let mut report = Report::new(lab, about, run, "jobs_per_s");
    for (figure, promise) in [
        ("lost", &list::CLIENTS_LOST),
        ("left", &list::CLIENTS_LEFT),
        ("descriptors_more", &list::CLIENTS_DESCRIPTORS),
        ("memory_more_mib", &list::CLIENTS_MEMORY),
    ] {
        report.promise(promise, report.mean(CONDITION, figure));
    }
    for (figure, promise) in
        [("register_ms_p99", &list::REGISTER), ("add_ms_p99", &list::ADD_ANOTHER)]
    {
        report.promise_of(promise, CALLS, report.mean(CALLS, figure));
    }
    // Of fewer jobs they say nothing.
    let are_there = report.samples(&resting, LISTED).is_some_and(are_all);
    for (figure, promise) in [("list_ms", &list::LIST), ("history_ms", &list::HISTORY)] {
        let estimate = report.mean(&resting, figure).filter(|_| are_there);
        report.promise_of(promise, &format!("{ended_jobs} ended"), estimate);
    }
    Ok(report)
}

/// Clients that ask the daemon.
#[derive(Clone, Copy)]
struct Load {
    clients: usize,
    /// That each has at a time.
    jobs: usize,
    hold: bool,
}

/// Whether in all rounds as many jobs were listed as were to be there.
fn are_all(listed: &[f64]) -> bool {
    listed.iter().all(|&listed| listed >= (MANY.clients * MANY.jobs) as f64)
}

const MANY: Load = Load { clients: 50, jobs: 20, hold: false };

fn measure(lab: &Lab, load: Load, length: Duration) -> Result<Sample> {
    let daemon =
        lab.daemon(&lab.settings(DaemonOptions { keeps: true, ..DaemonOptions::default() }))?;
    let warm_up = lab.length(WARM_UP).max(length);
    finish(start(lab, &daemon, load, warm_up)?, warm_up)?;
    drain(&daemon)?;
    let before = (descriptors(&daemon)?, memory_mib(&daemon)?);
    let running = start(lab, &daemon, load, length)?;
    std::thread::sleep(length * 3 / 4);
    let listed = Instant::now();
    let shown = daemon.list()?;
    let list_ms = listed.elapsed().as_secs_f64() * 1e3;
    let outcome = finish(running, length)?;
    let left = drain(&daemon)?;
    let after = (descriptors(&daemon)?, memory_mib(&daemon)?);
    let ms = |times: &[u64], part: f64| {
        let index = (times.len().saturating_sub(1)) as f64 * part;
        times.get(index.round() as usize).map_or(0.0, |&ns| ns as f64 / 1e6)
    };
    Ok(daemon.sample().with([
        ("jobs", outcome.registered as f64),
        ("jobs_per_s", outcome.registered as f64 / length.as_secs_f64()),
        (LISTED, shown as f64),
        ("list_ms", list_ms),
        ("lost", outcome.lost as f64),
        ("left", left as f64),
        ("descriptors_more", (after.0 - before.0).max(0.0)),
        ("memory_more_mib", (after.1 - before.1).max(0.0)),
        ("register_ms_p50", ms(&outcome.register_ns, 0.5)),
        ("register_ms_p99", ms(&outcome.register_ns, 0.99)),
        ("add_ms_p50", ms(&outcome.add_ns, 0.5)),
        ("add_ms_p99", ms(&outcome.add_ns, 0.99)),
    ]))
}

/// The times of calls while jobs rest, beside as many that ended.
fn rest(lab: &Lab, wanted: usize) -> Result<Sample> {
    let daemon =
        lab.daemon(&lab.settings(DaemonOptions { keeps: true, ..DaemonOptions::default() }))?;
    let part = lab.length(Duration::from_secs(10));
    let end = Instant::now() + ENDING;
    while daemon.history(wanted)? < wanted {
        ensure!(Instant::now() < end, "{wanted} jobs did not end within {ENDING:?}");
        finish(start(lab, &daemon, MANY, part)?, part)?;
        drain(&daemon)?;
    }
    let length = lab.length(REST);
    let running = start(lab, &daemon, Load { hold: true, ..MANY }, length)?;
    std::thread::sleep(length * 3 / 4);
    let timed = |ask: &dyn Fn() -> Result<usize>| -> Result<(f64, f64)> {
        let began = Instant::now();
        let shown = ask()?;
        Ok((began.elapsed().as_secs_f64() * 1e3, shown as f64))
    };
    let (list_ms, listed) = timed(&|| daemon.list())?;
    let (history_ms, _) = timed(&|| daemon.history(50))?;
    let (whole_ms, ended) = timed(&|| daemon.history(ENDED))?;
    finish(running, length)?;
    Ok(daemon.sample().with([
        ("list_ms", list_ms),
        (LISTED, listed),
        ("history_ms", history_ms),
        ("history_whole_ms", whole_ms),
        ("jobs_ended", ended),
    ]))
}

fn start(lab: &Lab, daemon: &Daemon, load: Load, length: Duration) -> Result<Running> {
    let mut command = Command::new(&lab.programs.lab);
    command.args(["workload", "clients", "--socket"]).arg(daemon.socket());
    command.args(["--clients", &load.clients.to_string(), "--jobs", &load.jobs.to_string()]);
    command.args(["--seconds", &format!("{}s", length.as_secs_f64())]);
    if load.hold {
        command.arg("--hold");
    }
    Running::start(&mut command)
}

fn finish(running: Running, length: Duration) -> Result<ClientsOutcome> {
    running.outcome(Instant::now() + length + TIME_LIMIT)
}

/// Waits until the daemon has no jobs; those that it has all the same are left over.
fn drain(daemon: &Daemon) -> Result<u64> {
    let end = Instant::now() + DRAIN;
    loop {
        let jobs = daemon.status()?.pointer("/jobs").and_then(serde_json::Value::as_u64);
        let jobs = jobs.context("the daemon did not say how many jobs it has")?;
        if jobs == 0 || Instant::now() > end {
            return Ok(jobs);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn descriptors(daemon: &Daemon) -> Result<f64> {
    let path = format!("/proc/{}/fd", daemon.pid());
    // Connections that were just closed are still being counted.
    std::thread::sleep(Duration::from_millis(300));
    Ok(fs::read_dir(&path).with_context(|| format!("listing {path}"))?.count() as f64)
}

fn memory_mib(daemon: &Daemon) -> Result<f64> {
    proc::memory_mib(Path::new("/proc"), daemon.pid())
}
