//! What policy `auto` costs a program that runs long: BARRIER (E10) beside another gang of its kind, as a gang,
//! and of policy auto, which comes to the same. Once from its beginning, while it is measured, and once when
//! that is decided and it is only glanced at; each beside what a gang does at the same age.
//!
//! By default a program pays for it with a hundredth of its time, and is decided minutes after its beginning. Here it
//! may pay at once: what it has to pay in all is the same.

use std::cell::RefCell;
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
const GANG: &str = "a gang, from its beginning";
const LATER: &str = "a gang, later";
const FIRST: &str = "auto, from its beginning";
const DECIDED: &str = "auto, decided";
/// 1 where the program was decided to be a gang when it was to be.
const IS_DECIDED: &str = "was_decided";
/// How long it takes until the program has been decided: as long it is watched from its beginning, or waited for.
const DECIDES: Duration = Duration::from_secs(12);
/// What a program may take to become a job, and that to be of policy auto; a second where nothing is emulated.
const BECOMES_JOB: Duration = Duration::from_secs(60);
/// A program that runs for so long runs long.
const LONG: Duration = Duration::from_secs(300);
/// For how long it is watched after it has been decided, at least; a first answer has half of it.
const QUICK_REST: Duration = Duration::from_secs(20);
/// Of its time, what it may pay while it is measured: as much as it takes.
const PROOF_COST: f64 = 0.5;

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
    let most = LONG - QUICK_REST;
    ensure!(decides <= most, "it is to be decided within {} s at most", most.as_secs());
    let reasons = RefCell::<Vec<String>>::default();
    let of = |way| measure(lab, way, decides, &reasons);
    let conditions = [
        Condition::new(GANG, || of(Way { is_auto: false, is_later: false })),
        Condition::new(LATER, || of(Way { is_auto: false, is_later: true })),
        Condition::new(FIRST, || of(Way { is_auto: true, is_later: false })),
        Condition::new(DECIDED, || of(Way { is_auto: true, is_later: true })),
    ];
    let run = alternate(lab, "auto", lab.runs(), &conditions)?;
    let about = "what policy auto costs BARRIER beside another gang of its kind";
    let mut report = Report::new(lab, about, run, RATE);
    let first = report.ratio(FIRST, GANG, RATE);
    let decided = report.ratio(DECIDED, LATER, RATE);
    let cost = first.zip(decided).map(|(first, decided)| cost_percent(first, decided, decides));
    tell_undecided(&mut report, decides, &reasons.borrow());
    report.promise("what policy auto costs in five minutes", Must::AtMost(1.0), "%", cost);
    Ok(report)
}

/// Rounds in which it was not decided are measured all the same: what auto costs then is its price, too.
fn tell_undecided(report: &mut Report, decides: Duration, reasons: &[String]) {
    let decided = report.samples(DECIDED, IS_DECIDED).unwrap_or_default();
    let undecided = decided.iter().filter(|&&decided| decided == 0.0).count();
    if undecided > 0 {
        let rounds = decided.len();
        let because =
            if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
        report.notes.push(format!(
            "In {undecided} of {rounds} rounds BARRIER was not decided to be a gang within {decides:?}, and \
             \"{DECIDED}\" has what it did all the same{because}."
        ));
    }
}

/// Of a program that runs long, in percent: what the beginning costs once, and the rest all the time.
fn cost_percent(first: Estimate, decided: Estimate, decides: Duration) -> Estimate {
    let once = decides.as_secs_f64() / LONG.as_secs_f64();
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

#[derive(Clone, Copy)]
struct Way {
    is_auto: bool,
    /// It is measured when it has been decided, or would have.
    is_later: bool,
}

/// The rate of the first of two copies.
fn measure(
    lab: &Lab,
    way: Way,
    decides: Duration,
    reasons: &RefCell<Vec<String>>,
) -> Result<Figures> {
    let daemon = lab
        .daemon(&lab.settings(Settings { proof_cost: Some(PROOF_COST), ..Settings::default() }))?;
    let threads = lab.threads();
    let before = if way.is_later { decides } else { Duration::ZERO };
    // Glances come ever more seldom: what they cost in the first seconds is not what they cost later.
    let rest = if lab.options.quick { QUICK_REST } else { LONG - decides };
    // Both are there from the beginning, and the window opens when it is to.
    let length = if way.is_later { lab.length(rest) } else { decides };
    let mut span = Span::soon(length);
    span.start_ns += before.as_nanos() as u64;
    span.deadline += before;
    let copy = Launch::gang(
        threads.min(lab.cpus),
        &format!("barrier --threads {threads} --interval 100us --wait spin"),
    );
    let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
    let rival = lab.start_workload(Some(&daemon), copy.gang, &arguments)?;
    let program = lab.start_workload(Some(&daemon), copy.gang, &arguments)?;
    if way.is_auto {
        become_auto(lab, &daemon, program.pid())?;
    }
    let mut figures = Figures::new();
    if way.is_auto && way.is_later {
        sleep_until_ns(span.start_ns);
        let jobs = daemon.jobs()?;
        let is_decided = jobs.iter().any(|job| job["decided"] == "local");
        figures.insert(IS_DECIDED, f64::from(u8::from(is_decided)));
        if !is_decided {
            let because = jobs.iter().find_map(|job| job["because"].as_str());
            reasons.borrow_mut().extend(because.map(String::from));
        }
    }
    lab.look_at_gangs(Some(&daemon), &span);
    let outcome: crate::workload::Outcome = program.outcome(span.deadline)?;
    rival.finish(span.deadline)?;
    figures.insert(RATE, outcome.rate());
    Ok(figures)
}

/// Has the job of a process measured, as soon as it is one.
fn become_auto(lab: &Lab, daemon: &Daemon, pid: i32) -> Result<()> {
    let gang = lab.programs.gang()?;
    let end = Instant::now() + BECOMES_JOB;
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
    fn rounds_in_which_it_was_not_decided_are_told_and_kept() {
        use crate::{
            harness::{Run, Series},
            lab::Options,
            machine::Machine,
        };
        let report = |decided: [f64; 3]| {
            let lab = Lab::new(&Options { noisy: true, ..Options::default() }).unwrap();
            let of = |name, figures: &[(&'static str, [f64; 3])]| {
                Series::new(name, figures.iter().map(|(name, it)| (*name, it.to_vec())).collect())
            };
            let rate = (RATE, [100.0; 3]);
            let series = vec![of(LATER, &[rate]), of(DECIDED, &[rate, (IS_DECIDED, decided)])];
            let (machine, noise) = (Machine::this(2), Vec::new());
            let run = Run {
                experiment: "auto",
                machine,
                rounds: 3,
                more_rounds: 0,
                rounds_left_out: 0,
                series,
                noise,
            };
            let mut report = Report::new(&lab, "about", run, RATE);
            tell_undecided(&mut report, DECIDES, &["it is being measured".into()]);
            let ratio = report.ratio(DECIDED, LATER, RATE).unwrap();
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

    #[test]
    fn the_beginning_counts_once() {
        let estimate = |value| Estimate { value, interval: Some([value, value]), samples: 3 };
        let cost = cost_percent(estimate(0.9), estimate(1.0), DECIDES);
        assert!((cost.value - 0.4).abs() < 1e-9, "{cost:?}");
        let cost = cost_percent(estimate(0.9), estimate(0.99), DECIDES);
        assert!((cost.value - 1.36).abs() < 1e-9, "{cost:?}");
    }
}
