//! The figures that gangd has of its gangs: the share of their slots in which they are coscheduled,
//! with nothing else running and beside hogs; and what measuring costs, BARRIER (E10) with and
//! without it in turn.
//!
//! The cost is reported twice. By what BARRIER completes, which is all of it, and which varies
//! from one start to the next by more than it costs. And by what is taken of the CPUs, which hardly
//! varies: for how long the kernel's programs run, by its own count, and what the daemon uses more
//! than without. The cost of the kernel's counting is in both.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use gang_linux::{bpf_stats, clock};
use serde_json::Value;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::gangs::Scheduled;
use crate::harness::lab::{LONG_ENOUGH, Lab, Launch, Span, Together, all_completed};
use crate::harness::report::Report;
use crate::harness::samples::{Figures, Sample};
use crate::harness::stats::loss_percent;
use crate::harness::wait::{TIME_LIMIT, wait_for};
use crate::promises::list;
use crate::workload::Outcome;
use crate::workload::barrier::DEFAULT_INTERVAL;
use crate::workload::window::{now_ns, sleep_until_ns};

const RATE: &str = "iterations_per_s";
/// The part of all CPUs that the daemon and its programs in the kernel use.
const TAKEN: &str = "taken_percent";
const PROGRAMS: &str = "programs_percent";
const LEAST: &str = "least_coscheduled_percent";
const SKEW: &str = "skew_us_p99";
const SLICE: Duration = Duration::from_millis(20);
const GAP: &str = "1ms/20ms";
const COPIES: usize = 2;
const ALONE: &str = "two spinning gangs";
const BESIDE: &str = "two spinning gangs, hogs";
const MEASURED: &str = "BARRIER, measured";
const NOT_MEASURED: &str = "BARRIER, not measured";

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux measures no gangs")?;
    // Another right than that to load programs, which who has the other may lack.
    let refused = bpf_stats::Counting::start().err().map(anyhow::Error::from);
    let counts = refused.is_none();
    let conditions = [
        Condition::new(MEASURED, |lab| barrier(lab, false, counts)),
        Condition::new(NOT_MEASURED, |lab| barrier(lab, true, counts)),
        Condition::new(ALONE, |lab| spinning(lab, 0)),
        Condition::new(BESIDE, |lab| spinning(lab, lab.cpus)),
    ];
    let run = alternate(lab, "coscheduled", lab.runs(), &conditions)?;
    let about = "what is measured of gangs, and what that costs, slices of 20 ms";
    let mut report = Report::new(lab, about, run, RATE);
    let cost = report.ratio(MEASURED, NOT_MEASURED, RATE).map(loss_percent);
    report.promise(&list::MEASURING_BARRIER, cost);
    if let Some(refused) = &refused {
        report
            .notes
            .push(format!("What measuring takes of the CPUs is not measured: {refused:#}."));
    }
    let taken = report.difference(MEASURED, NOT_MEASURED, TAKEN);
    report.promise(&list::MEASURING_CPU, taken);
    report.promise(&list::COSCHEDULED, report.mean(ALONE, LEAST));
    report.promise(&list::COSCHEDULED_HOGS, report.mean(BESIDE, LEAST));
    Ok(report)
}

/// Two copies of BARRIER, with and without measuring. Gaps are the same: where nothing is measured
/// they come more often.
fn barrier(lab: &Lab, no_measure: bool, counts: bool) -> Result<Sample> {
    let settings = DaemonOptions { no_measure, gap: Some(GAP), ..DaemonOptions::slice(SLICE) };
    let daemon = lab.daemon(&lab.settings(settings))?;
    let threads = lab.threads();
    let arguments =
        format!("barrier --threads {threads} --interval {DEFAULT_INTERVAL} --wait spin");
    let copies = vec![Launch::gang(threads.min(lab.cpus), &arguments); COPIES];
    let length = lab.length(Duration::from_secs(4));
    if !counts {
        let Together { outcomes, sample } =
            lab.run_together(Scheduled::By(&daemon), &copies, length)?;
        return Ok(sample.with([(RATE, rate_of(&outcomes))]));
    }
    let counting = if no_measure { None } else { Some(bpf_stats::Counting::start()?) };
    let run = |span: &Span| {
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| taken(&daemon, span));
            let together = lab.run_in(span, Scheduled::By(&daemon), &copies)?;
            let taken =
                taken.join().map_err(|_| anyhow!("nobody looked at what the daemon uses"))??;
            anyhow::Ok((together, taken))
        })
    };
    let is_enough = |(together, _): &(Together, _)| all_completed(&together.outcomes);
    let ((Together { outcomes, sample }, taken), longer_s) =
        lab.over_window(length, LONG_ENOUGH, run, is_enough)?;
    drop(counting);
    match (taken.programs, no_measure) {
        (0, false) => match daemon.status()?["not_measured"].as_str() {
            Some(reason) => bail!("gangd did not measure: {reason}"),
            None => bail!("gangd was to measure, and has no programs in the kernel"),
        },
        (1.., true) => bail!("gangd measured, though it was not to"),
        _ => {}
    }
    let percent = |ns: u64| ns as f64 / (taken.elapsed_ns as f64 * lab.cpus as f64) * 100.0;
    Ok(sample.over(longer_s).with([
        (RATE, rate_of(&outcomes)),
        (PROGRAMS, percent(taken.programs_ns)),
        (TAKEN, percent(taken.programs_ns + taken.daemon_ns)),
    ]))
}

fn rate_of(copies: &[Outcome]) -> f64 {
    copies.iter().map(Outcome::rate).sum()
}

/// CPU time that was used in a window.
struct Taken {
    elapsed_ns: u64,
    /// How many programs the daemon has in the kernel, and how long they ran.
    programs: usize,
    programs_ns: u64,
    daemon_ns: u64,
}

fn taken(daemon: &Daemon, span: &Span) -> Result<Taken> {
    let root = Path::new("/proc");
    let look = |at_ns| -> Result<_> {
        sleep_until_ns(at_ns);
        let runs = bpf_stats::of_process(root, daemon.pid() as u32)?;
        Ok((now_ns(), runs, clock::cpu_ns_of(daemon.pid() as u32)?))
    };
    let (start_ns, runs, cpu_ns) = look(span.start_ns)?;
    // Before the programs end, which has the daemon do more than usual.
    let (end_ns, runs_then, cpu_then_ns) = look(span.end_ns() - span.length.as_nanos() as u64 / 8)?;
    let programs_ns = runs_then.time_ns.checked_sub(runs.time_ns);
    Ok(Taken {
        elapsed_ns: end_ns - start_ns,
        programs: runs_then.programs,
        programs_ns: programs_ns.context("gangd closed programs while they were looked at")?,
        daemon_ns: cpu_then_ns.saturating_sub(cpu_ns),
    })
}

/// The daemon's figures of two gangs that spin on all CPUs.
fn spinning(lab: &Lab, hogs: usize) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::slice(SLICE)))?;
    let length = lab.length(Duration::from_secs(4));
    // Gangs last longer than they are looked at, and are killed when that is over.
    let span = Span::soon(length + 2 * TIME_LIMIT);
    let gang =
        Launch::gang(lab.threads().min(lab.cpus), &format!("hog --threads {}", lab.threads()));
    let mut all = vec![gang; COPIES];
    if hogs > 0 {
        all.push(Launch::unregistered(&format!("hog --threads {hogs}")));
    }
    let mut running = Vec::new();
    for copy in &all {
        let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
        running.push(lab.start_workload(Some(&daemon), copy.gang, &arguments)?);
    }
    sleep_until_ns(span.start_ns + length.as_nanos() as u64);
    // However busy the machine is, each has a slot at last.
    let is_known = |job: &Value| {
        let has = |key: &str| job["measured"][key].is_number();
        has("coscheduled") && has("skew_ns_p99") || job["not_measured"].is_string()
    };
    let jobs = wait_for("both gangs have run in their slots", || {
        let jobs = daemon.jobs()?;
        Ok((jobs.len() == COPIES && jobs.iter().all(is_known)).then_some(jobs))
    })?;
    Ok(daemon.sample().with_all(figures(&jobs)?))
}

/// The worst of the jobs counts.
fn figures(jobs: &[Value]) -> Result<Figures> {
    let number = |job: &Value, key: &str| {
        let reason = job["not_measured"].as_str().unwrap_or("the job had no slot");
        job["measured"][key]
            .as_f64()
            .with_context(|| format!("gangd did not measure {key}: {reason}"))
    };
    let all = |key| jobs.iter().map(|job| number(job, key)).collect::<Result<Vec<f64>>>();
    let (shares, skews) = (all("coscheduled")?, all("skew_ns_p99")?);
    ensure!(shares.len() == COPIES, "{} jobs instead of {COPIES}", shares.len());
    Ok(Figures::from([
        (LEAST, shares.into_iter().fold(1.0, f64::min) * 100.0),
        (SKEW, skews.into_iter().fold(0.0, f64::max) / 1e3),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_job_counts() {
        let job =
            |share, skew| json!({ "measured": { "coscheduled": share, "skew_ns_p99": skew } });
        let figures = figures(&[job(0.99, 60_000), job(0.98, 20_000)]).unwrap();
        assert_eq!((figures[LEAST], figures[SKEW]), (98.0, 60.0));
    }

    #[test]
    fn what_was_not_measured_is_an_error_and_not_zero() {
        let job = json!({ "not_measured": "it is switched off" });
        let error = figures(&[job.clone(), job]).unwrap_err().to_string();
        assert!(error.contains("it is switched off"), "{error}");
    }
}
