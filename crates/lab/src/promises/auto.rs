//! The cost of policy `auto` to a program that runs long: two gangs whose threads meet every 100 µs
//! and spin, as BARRIER's (E10) do, share the machine for five minutes. The work of one is counted,
//! as a gang and of policy auto, which comes to the same; both from its beginning, and beside the
//! same rival.
//!
//! A step is time that a thread has its CPU ([`own`](crate::workload::own)), not an amount of work:
//! the speed of a machine differs by more from one five minutes to the next than auto may cost.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::duration;
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::loss_percent;
use crate::harness::wait::{TIME_LIMIT, wait_for};
use crate::promises::list;
use crate::workload::own::OwnOutcome;

const RATE: &str = "steps_per_s";
const GANG: &str = "a gang";
const AUTO: &str = "auto";
/// 1 where the program had been decided to be a gang by the end.
const IS_DECIDED: &str = "was_decided";
/// Where the program is over before it can be measured, it is given longer, and so long once at
/// least.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
/// A program that runs for so long runs long.
const LONG: Duration = Duration::from_secs(300);
/// For a first answer it may pay at once, and is compared within so long.
const QUICK: Duration = Duration::from_secs(20);
/// Of its time, what it may pay then: as much as it takes.
const AT_ONCE: f64 = 0.5;

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has no policies")?;
    let conditions = [
        Condition::new(GANG, |lab| measure(lab, false)),
        Condition::new(AUTO, |lab| measure(lab, true)),
    ];
    let run = alternate(lab, "auto", lab.runs(), &conditions)?;
    let about = format!(
        "what policy auto costs a gang of {} threads beside another of its kind",
        lab.threads()
    );
    let mut report = Report::new(lab, about, run, RATE);
    let cost = report.ratio(AUTO, GANG, RATE).map(loss_percent);
    tell_undecided(&mut report);
    if lab.options.quick {
        report.notes.push(
            "With --quick comparisons are paid for at once, not by a hundredth of the program's time, so that what \
             they cost is a larger part of the time that is measured."
                .into(),
        );
    } else {
        report.promise_of(&list::AUTO, &duration::show(length(lab)), cost);
    }
    Ok(report)
}

fn length(lab: &Lab) -> Duration {
    let long = if lab.options.quick { QUICK } else { LONG };
    lab.seconds_asked().unwrap_or(long)
}

/// Rounds in which it was not decided are measured all the same: what auto costs then is its price,
/// too.
fn tell_undecided(report: &mut Report) {
    let decided = report.samples(AUTO, IS_DECIDED).unwrap_or_default();
    let undecided = decided.iter().filter(|&&decided| decided == 0.0).count();
    if undecided > 0 {
        let rounds = decided.len();
        let reasons: Vec<&str> = report
            .series
            .iter()
            .flat_map(|series| series.notes.iter().map(String::as_str))
            .collect();
        let because =
            if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
        report.notes.push(format!(
            "In {undecided} of {rounds} rounds the program had not been decided to be a gang by the end{because}."
        ));
    }
}

/// The rate of one of two copies; of policy auto with the reason why nothing was decided.
fn measure(lab: &Lab, is_auto: bool) -> Result<Sample> {
    let proof_cost = lab.options.quick.then_some(AT_ONCE);
    let daemon =
        lab.daemon(&lab.settings(DaemonOptions { proof_cost, ..DaemonOptions::default() }))?;
    let run = |span: &Span| run_over(lab, &daemon, span, is_auto);
    let (seen, longer_s) = lab.over_window(length(lab), LONG_ENOUGH, run, Option::is_some)?;
    let sample = seen.context(
        "the program did nothing, or was over before it could be measured: --seconds gives it longer",
    )?;
    Ok(sample.over(longer_s))
}

/// The work of one of two copies, with a note why nothing was decided of it; nothing where the time
/// was too short for that.
fn run_over(lab: &Lab, daemon: &Daemon, span: &Span, is_auto: bool) -> Result<Option<Sample>> {
    let threads = lab.threads();
    let copy = Launch::gang(
        threads.min(lab.cpus),
        &format!("own --threads {threads} --step 100us --wait spin"),
    );
    let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
    let rival = lab.start_workload(Some(daemon), copy.gang, &arguments)?;
    let mut program = lab.start_workload(Some(daemon), copy.gang, &arguments)?;
    if is_auto && !becomes_auto(lab, daemon, &mut program)? {
        return Ok(None);
    }
    let mut sample = daemon.look(span);
    if is_auto {
        let jobs = daemon.jobs()?;
        let is_decided = jobs.iter().any(|job| job["decision"]["policy"] == "gang");
        sample.figures.insert(IS_DECIDED, f64::from(u8::from(is_decided)));
        if !is_decided {
            let why = jobs.iter().find_map(|job| job["decision"]["because"].as_str());
            sample.notes.extend(why.map(String::from));
        }
    }
    let outcome: OwnOutcome = program.outcome(span.deadline)?;
    rival.finish(span.deadline)?;
    let steps: u64 = outcome.parts.iter().sum();
    sample.figures.insert(RATE, steps as f64 / span.length.as_secs_f64());
    Ok((steps > 0).then_some(sample))
}

/// Has the job of a program measured, as soon as it is one; false where the program had ended
/// before.
fn becomes_auto(lab: &Lab, daemon: &Daemon, program: &mut Running) -> Result<bool> {
    wait_for("the program is a job", || match become_auto(lab, daemon, program.pid()) {
        Ok(true) => Ok(Some(true)),
        Ok(false) | Err(_) if program.ends_by(Instant::now()) => Ok(Some(false)),
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    })
}

/// Has the job of a process measured; false where it is none yet.
fn become_auto(lab: &Lab, daemon: &Daemon, pid: i32) -> Result<bool> {
    let gang = lab.programs.gang()?;
    let end = Instant::now() + TIME_LIMIT;
    for job in daemon.jobs()? {
        let id = job["id"].as_i64().context("a job has no number")?.to_string();
        let mut show = daemon.program(gang);
        let shown = Running::start(show.args(["show", "--json", &id]))?.finish(end)?;
        let shown: Value = serde_json::from_str(&shown).context("what gang show wrote")?;
        let mut processes = shown["processes"].as_array().into_iter().flatten();
        if processes.any(|process| process["pid"] == pid) {
            let mut policy = daemon.program(gang);
            Running::start(policy.args(["set", &id, "--policy", "auto"]))?
                .finish(end)
                .context("having the program measured")?;
            let status = daemon.status()?;
            let reason = status["not_proved"].as_str();
            return match reason {
                Some(reason) => bail!("policy auto cannot be measured here: {reason}"),
                None => Ok(true),
            };
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undecided_rounds_are_reported_and_kept() {
        use crate::harness::alternate::Run;
        use crate::harness::options::Options;
        use crate::harness::samples::Series;
        let report = |decided: [f64; 3]| {
            let lab = Lab::new(&Options { noisy: true, ..Options::default() }).unwrap();
            let of = |name, figures: &[(&'static str, [f64; 3])]| {
                Series::new(name, figures.iter().map(|(name, it)| (*name, it.to_vec())).collect())
            };
            let rate = (RATE, [100.0; 3]);
            let mut series = vec![of(GANG, &[rate]), of(AUTO, &[rate, (IS_DECIDED, decided)])];
            series[1].notes = vec!["it is being measured".into()];
            let noise = Vec::new();
            let run = Run::made_up("auto", 3, series, noise);
            let mut report = Report::new(&lab, "about", run, RATE);
            tell_undecided(&mut report);
            let ratio = report.ratio(AUTO, GANG, RATE).unwrap();
            assert_eq!((ratio.value, ratio.samples), (1.0, 3), "all rounds count");
            report.notes
        };
        assert_eq!(report([1.0; 3]).len(), 0);
        let notes = report([1.0, 0.0, 1.0]);
        assert!(
            notes[0].starts_with("In 1 of 3 rounds")
                && notes[0].ends_with(": it is being measured.")
        );
    }
}
