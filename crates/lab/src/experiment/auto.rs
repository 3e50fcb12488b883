//! What policy `auto` costs a program that runs long: BARRIER (E10) beside another gang of its kind, as a gang,
//! and of policy auto, which comes to the same. Once from its beginning, while it is measured, and once when
//! that is decided and it is only glanced at.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::child::Running;
use crate::daemon::{Daemon, Settings};
use crate::harness::{Condition, Figures, alternate};
use crate::lab::{Lab, Launch, Span};
use crate::report::{Must, Report};
use crate::stats::Estimate;
use crate::workload::seconds;
use crate::workload::window::{now_ns, sleep_until_ns};

const RATE: &str = "iterations_per_s";
const GANG: &str = "a gang";
const FIRST: &str = "auto, from its beginning";
const DECIDED: &str = "auto, decided";
/// How long it takes until the program has been decided: as long it is watched from its beginning, or waited for.
const DECIDES: Duration = Duration::from_secs(12);
/// A program that runs for so long runs long.
const LONG_S: f64 = 300.0;

#[derive(Args, Debug, Clone, Default)]
pub struct Auto {
    /// How long it takes to decide: so long the program is watched from its beginning, and waited for where it is
    /// to be decided [default: 12s]
    #[arg(long, value_parser = seconds)]
    pub decides: Option<Duration>,
}

impl Auto {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        run(lab, self.decides.unwrap_or(DECIDES))
    }
}

fn run(lab: &Lab, decides: Duration) -> Result<Report> {
    ensure!(!lab.options.plain, "plain Linux has no policies");
    let conditions = [
        Condition::new(GANG, || measure(lab, Way::Gang, decides)),
        Condition::new(FIRST, || measure(lab, Way::First, decides)),
        Condition::new(DECIDED, || measure(lab, Way::Decided, decides)),
    ];
    let run = alternate(lab, "auto", lab.runs(), &conditions)?;
    let about = "what policy auto costs BARRIER beside another gang of its kind";
    let mut report = Report::new(lab, about, run, RATE);
    let first = report.ratio(FIRST, GANG, RATE);
    let decided = report.ratio(DECIDED, GANG, RATE);
    let cost = first.zip(decided).map(|(first, decided)| cost_percent(first, decided, decides));
    report.promise("what policy auto costs in five minutes", Must::AtMost(1.0), "%", cost);
    Ok(report)
}

/// Of a program that runs long, in percent: what the beginning costs once, and the rest all the time.
fn cost_percent(first: Estimate, decided: Estimate, decides: Duration) -> Estimate {
    let once = decides.as_secs_f64() / LONG_S;
    let cost =
        |first: f64, decided: f64| ((1.0 - first) * once + (1.0 - decided) * (1.0 - once)) * 100.0;
    let interval = first.interval.zip(decided.interval);
    Estimate {
        value: cost(first.value, decided.value),
        interval: interval
            .map(|(first, decided)| [cost(first[1], decided[1]), cost(first[0], decided[0])]),
        samples: decided.samples,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Gang,
    First,
    Decided,
}

/// The rate of the first of two copies.
fn measure(lab: &Lab, way: Way, decides: Duration) -> Result<Figures> {
    let decided = way == Way::Decided;
    let daemon = lab.daemon(&lab.settings(Settings::default()))?;
    let threads = lab.threads();
    let before = if decided { decides } else { Duration::ZERO };
    // Both are there from the beginning, and the window opens when it is to.
    let mut span = Span::soon(if decided { lab.length(Duration::from_secs(20)) } else { decides });
    span.start_ns += before.as_nanos() as u64;
    span.deadline += before;
    let copy = Launch::gang(
        threads.min(lab.cpus),
        &format!("barrier --threads {threads} --interval 100us --wait spin"),
    );
    let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
    let rival = lab.start_workload(Some(&daemon), copy.gang, &arguments)?;
    let program = lab.start_workload(Some(&daemon), copy.gang, &arguments)?;
    if way != Way::Gang {
        become_auto(lab, &daemon, program.pid())?;
    }
    if decided {
        sleep_until_ns(span.start_ns);
        ensure!(
            daemon.jobs()?.iter().any(|job| job["decided"] == "local"),
            "BARRIER was not decided to be a gang within {decides:?}: {:?}",
            daemon.jobs()?.iter().map(|job| job["because"].clone()).collect::<Vec<Value>>()
        );
    }
    lab.look_at_gangs(Some(&daemon), &span);
    let outcome: crate::workload::Outcome = program.outcome(span.deadline)?;
    rival.finish(span.deadline)?;
    Ok(Figures::from([(RATE, outcome.rate())]))
}

/// Has the job of a process measured, as soon as it is one.
fn become_auto(lab: &Lab, daemon: &Daemon, pid: i32) -> Result<()> {
    let gang = lab.programs.gang()?;
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        for job in daemon.jobs()? {
            let id = job["id"].as_i64().context("a job has no number")?.to_string();
            let mut show = daemon.program(gang);
            let shown = Running::start(show.args(["show", "--json", &id]))?.finish(end)?;
            let shown: Value = serde_json::from_str(&shown).context("what gang show wrote")?;
            let mut processes = shown["processes"].as_array().into_iter().flatten();
            if processes.any(|process| process["pid"] == pid) {
                let mut policy = daemon.program(gang);
                Running::start(policy.args(["policy", &id, "auto"]))?.finish(end)?;
                let status = daemon.status()?;
                let reason = status["not_proved"].as_str();
                return match reason {
                    Some(reason) => bail!("policy auto cannot be measured here: {reason}"),
                    None => Ok(()),
                };
            }
        }
    }
    bail!("process {pid} became no job, at {} ns", now_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_counts_once() {
        let estimate = |value| Estimate { value, interval: Some([value, value]), samples: 3 };
        let cost = cost_percent(estimate(0.9), estimate(1.0), DECIDES);
        assert!((cost.value - 0.4).abs() < 1e-9, "{cost:?}");
        let cost = cost_percent(estimate(0.9), estimate(0.99), DECIDES);
        assert!((cost.value - 1.36).abs() < 1e-9, "{cost:?}");
    }
}
