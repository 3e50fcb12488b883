//! How often `gang doctor` is right: its predictions against measured gains, over programs of every kind.
//!
//! Two copies of each program share the machine: under plain Linux, the same while the doctor watches one of
//! them, and as gangs. The doctor is right where it says that gang scheduling helps by more than 5 %, and it
//! does, or that it does not, and it does not. What watching costs is the first against the second.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::child::Running;
use crate::daemon::Settings;
use crate::harness::{Condition, Figures, alternate};
use crate::lab::{Lab, Launch, Span};
use crate::report::{Must, Report};
use crate::stats::{self, Estimate};
use crate::workload::window::sleep_until_ns;

const RATE: &str = "iterations_per_s";
const PREDICTED: &str = "predicted_gain";
/// 1 where the doctor says that it helps, 0 where not; absent where it cannot tell.
const HELPS: &str = "said_to_help";
const COPIES: usize = 2;
/// A gain that counts as help.
const GAIN: f64 = 0.05;
/// What watching may cost, in percent.
const COST_MAX: f64 = 2.0;

/// Programs, by what they are for.
const PROGRAMS: [(&str, &str); 22] = [
    ("barrier, 1 µs, spins", "barrier --interval 1us --wait spin"),
    ("barrier, 10 µs, spins", "barrier --interval 10us --wait spin"),
    ("barrier, 100 µs, spins", "barrier --interval 100us --wait spin"),
    ("barrier, 1 ms, spins", "barrier --interval 1ms --wait spin"),
    ("barrier, 5 ms, spins", "barrier --interval 5ms --wait spin"),
    ("barrier, 20 ms, spins", "barrier --interval 20ms --wait spin"),
    ("barrier, 50 ms, spins", "barrier --interval 50ms --wait spin"),
    ("barrier, 10 µs, blocks", "barrier --interval 10us --wait spin-block"),
    ("barrier, 100 µs, blocks", "barrier --interval 100us --wait spin-block"),
    ("barrier, 1 ms, blocks", "barrier --interval 1ms --wait spin-block"),
    ("barrier, 10 ms, blocks", "barrier --interval 10ms --wait spin-block"),
    ("barrier, 50 ms, blocks", "barrier --interval 50ms --wait spin-block"),
    ("barrier, 100 µs ± 100 µs, spins", "barrier --interval 100us --variance 200us --wait spin"),
    ("barrier, 1 ms ± 3 ms, spins", "barrier --interval 1ms --variance 6ms --wait spin"),
    ("gauss, spins", "gauss --wait spin"),
    ("gauss, blocks", "gauss --wait spin-block"),
    ("gauss, small, spins", "gauss --size 128 --wait spin"),
    ("matmul, spins", "matmul --wait spin"),
    ("matmul, small, spins", "matmul --size 96 --wait spin"),
    ("matmul, blocks", "matmul --wait spin-block"),
    ("independent threads", "hog"),
    ("independent threads over memory", "scan"),
];

/// A first answer is made of every so many of them, watched for a shorter time.
const QUICK: usize = 5;
const LENGTH: Duration = Duration::from_secs(6);
const QUICK_LENGTH: Duration = Duration::from_secs(3);

pub fn run(lab: &Lab) -> Result<Report> {
    anyhow::ensure!(!lab.options.plain, "without gangd there is nothing to be right about");
    let every = if lab.options.quick { QUICK } else { 1 };
    let programs: Vec<_> = PROGRAMS.iter().step_by(every).collect();
    let mut conditions = Vec::new();
    for (name, arguments) in &programs {
        let under = |way: &str| format!("{name}: {way}");
        conditions
            .push(Condition::new(under("plain Linux"), || measure(lab, arguments, Way::Plain)));
        conditions.push(Condition::new(under("watched"), || measure(lab, arguments, Way::Watched)));
        conditions.push(Condition::new(under("gangs"), || measure(lab, arguments, Way::Gangs)));
    }
    let run = alternate(lab, "doctor", lab.rounds(3), &conditions)?;
    let about = format!("what gang doctor says of {} programs, and what is true", programs.len());
    let mut report = Report::new(lab, about, run, RATE);
    if programs.len() < PROGRAMS.len() {
        let left_out = PROGRAMS.len() - programs.len();
        report.notes.push(format!(
            "{left_out} of {} programs: --quick is to answer within a minute.",
            PROGRAMS.len()
        ));
    }
    let scores: Vec<Score> =
        programs.iter().filter_map(|(name, _)| score(&mut report, name)).collect();
    tell(&mut report, &scores);
    Ok(report)
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Watched,
    Gangs,
}

fn measure(lab: &Lab, arguments: &str, way: Way) -> Result<Figures> {
    // Under plain Linux programs are jobs only where they are to be looked at.
    let only_watch = way == Way::Plain && lab.options.watch_plain;
    let daemon = lab.daemon(&lab.settings(Settings { only_watch, ..Settings::default() }))?;
    let long = if lab.options.quick { QUICK_LENGTH } else { LENGTH };
    let span = Span::soon(lab.length(long));
    let threads = lab.threads();
    let arguments = format!("{arguments} --threads {threads}");
    let copy = match way {
        Way::Plain | Way::Watched if !only_watch => Launch::unregistered(&arguments),
        _ => Launch::gang(threads.min(lab.cpus), &arguments),
    };
    let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
    let mut running = Vec::new();
    for _ in 0..COPIES {
        running.push(lab.start_workload(Some(&daemon), copy.gang, &arguments)?);
    }
    let mut figures = Figures::new();
    if way == Way::Watched {
        sleep_until_ns(span.start_ns);
        let seconds = (span.length * 3 / 4).as_secs_f64().to_string();
        let mut command = daemon.program(lab.programs.gang()?);
        command.args(["doctor", "--json", "--seconds", &seconds]);
        command.arg(running[0].pid().to_string());
        let doctor = Running::start(&mut command)?;
        // The program is a job while the doctor watches it.
        lab.look_at_gangs_at(Some(&daemon), span.start_ns + span.length.as_nanos() as u64 / 2);
        let said = doctor.finish(span.deadline)?;
        let said: Value =
            serde_json::from_str(&said).with_context(|| format!("gang doctor wrote {said:?}"))?;
        figures.extend(said["predicted_gain"]["gain"].as_f64().map(|gain| (PREDICTED, gain)));
        figures.extend(said["helps"].as_bool().map(|helps| (HELPS, f64::from(u8::from(helps)))));
    }
    match way {
        Way::Watched => {}
        Way::Plain if !only_watch => lab.note_plain(),
        _ => lab.look_at_gangs(Some(&daemon), &span),
    }
    let mut rate = 0.0;
    for copy in running {
        let outcome: crate::workload::Outcome = copy.outcome(span.deadline)?;
        rate += outcome.rate();
    }
    figures.insert(RATE, rate);
    Ok(figures)
}

/// What was said of a program, and what is true.
struct Score {
    name: String,
    /// Absent where the doctor could not tell in most rounds.
    said: Option<bool>,
    predicted: Option<f64>,
    gain: Estimate,
    cost_percent: Option<Estimate>,
}

fn score(report: &mut Report, name: &str) -> Option<Score> {
    let condition = |way: &str| format!("{name}: {way}");
    let (plain, watched, gangs) =
        (condition("plain Linux"), condition("watched"), condition("gangs"));
    let ratio = report.ratio(&gangs, &plain, RATE)?;
    let cost = report.ratio(&watched, &plain, RATE);
    let rounds = report.rounds;
    let votes = report.samples(&watched, HELPS).unwrap_or_default();
    let predicted = report.samples(&watched, PREDICTED).and_then(stats::mean_sd);
    let minus_one = |it: Estimate| Estimate {
        value: it.value - 1.0,
        interval: it.interval.map(|[low, high]| [low - 1.0, high - 1.0]),
        ..it
    };
    Some(Score {
        name: name.into(),
        said: (2 * votes.len() > rounds)
            .then(|| stats::mean_sd(votes).map(|(share, _)| share > 0.5))
            .flatten(),
        predicted: predicted.map(|(mean, _)| mean),
        gain: minus_one(ratio),
        cost_percent: cost.map(|it| Estimate {
            value: (1.0 - it.value) * 100.0,
            interval: it.interval.map(|[low, high]| [(1.0 - high) * 100.0, (1.0 - low) * 100.0]),
            ..it
        }),
    })
}

fn tell(report: &mut Report, scores: &[Score]) {
    if scores.is_empty() {
        return;
    }
    let count = |said: Option<bool>, helps: bool| {
        scores.iter().filter(|it| it.said == said && (it.gain.value > GAIN) == helps).count()
    };
    let [yes_right, yes_wrong] = [count(Some(true), true), count(Some(true), false)];
    let [no_right, no_wrong] = [count(Some(false), false), count(Some(false), true)];
    let silent = scores.iter().filter(|it| it.said.is_none()).count();
    report.verdict.push(format!(
        "Of {} programs it is said to help {} that it helps and {} that it does not; not to help {} that it \
         does not help and {} that it does; {silent} times it could not be told.",
        scores.len(),
        yes_right,
        yes_wrong,
        no_right,
        no_wrong
    ));
    for it in scores {
        let said = match it.said {
            Some(true) => "helps",
            Some(false) => "does not help",
            None => "cannot tell",
        };
        let percent = |gain: f64| format!("{:+.0} %", gain * 100.0);
        let predicted = it.predicted.map_or_else(|| "–".into(), percent);
        report.verdict.push(format!(
            "{}: {said}, {predicted} predicted, {} measured.",
            it.name,
            percent(it.gain.value)
        ));
    }
    let right = (yes_right + no_right) as f64 / scores.len() as f64 * 100.0;
    let right = Estimate { value: right, interval: None, samples: scores.len() };
    report.promise("gang doctor is right", Must::AtLeast(90.0), "%", Some(right));
    // The median over programs: of those that plain Linux now and then lets collapse, a round says more of
    // Linux than of the doctor.
    let costs = scores.iter().filter_map(|it| it.cost_percent).map(|cost| cost.value);
    let mut costs: Vec<f64> = costs.collect();
    costs.sort_by(f64::total_cmp);
    let median = costs.get(costs.len() / 2);
    let cost = median.map(|&value| Estimate { value, interval: None, samples: costs.len() });
    report.promise("what watching costs a program, median", Must::AtMost(COST_MAX), "%", cost);
    // No program is to be slowed by more; the interval tells what is the doctor's from what is Linux's.
    let cost = |it: &Score| it.cost_percent.map_or(f64::NEG_INFINITY, |cost| cost.value);
    let worst = scores.iter().max_by(|a, b| cost(a).total_cmp(&cost(b)));
    if let Some((name, Some(cost))) = worst.map(|it| (&it.name, it.cost_percent)) {
        let what = format!("what watching costs a program, the worst: {name}");
        report.promise(what, Must::AtMost(COST_MAX), "%", Some(cost));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::{Run, Series};
    use crate::lab::Options;
    use crate::machine::Machine;

    /// A program: its name, what was said of it, and its rates under plain Linux, watched, and as gangs.
    type Program = (&'static str, Option<f64>, [f64; 3]);

    /// What is told of programs.
    fn told(programs: &[Program]) -> Report {
        let lab = Lab::new(&Options { noisy: true, ..Options::default() }).unwrap();
        let mut series = Vec::new();
        for (name, said, rates) in programs {
            for (way, rate) in ["plain Linux", "watched", "gangs"].into_iter().zip(rates) {
                let mut samples = BTreeMap::from([(RATE, vec![*rate; 3])]);
                if way == "watched" {
                    samples.extend(said.map(|said| (HELPS, vec![said; 3])));
                }
                series.push(Series::new(format!("{name}: {way}"), samples));
            }
        }
        let (machine, noise) = (Machine::this(2), Vec::new());
        let run =
            Run { experiment: "doctor", machine, rounds: 3, rounds_left_out: 0, series, noise };
        let mut report = Report::new(&lab, "about", run, RATE);
        let scores: Vec<Score> =
            programs.iter().filter_map(|(name, ..)| score(&mut report, name)).collect();
        tell(&mut report, &scores);
        report
    }

    #[test]
    fn what_is_said_is_held_against_what_is_true() {
        let (yes, no) = (Some(1.0), Some(0.0));
        let report = told(&[
            ("a", yes, [100.0, 99.0, 106.0]),
            ("b", yes, [100.0, 99.0, 200.0]),
            ("c", yes, [100.0, 99.0, 300.0]),
            ("d", yes, [100.0, 99.0, 104.0]),
            ("e", no, [100.0, 99.0, 104.0]),
            ("f", no, [100.0, 99.0, 50.0]),
            ("g", no, [100.0, 99.0, 106.0]),
            ("h", None, [100.0, 99.0, 106.0]),
        ]);
        let matrix = "it is said to help 3 that it helps and 1 that it does not; not to help 2 that it \
                      does not help and 1 that it does; 1 times it could not be told.";
        assert!(report.verdict[0].ends_with(matrix), "{}", report.verdict[0]);
        assert_eq!(report.verdict[2], "b: helps, – predicted, +100 % measured.");
        let right = report.measures[0].measured.unwrap();
        assert_eq!((right.value, report.measures[0].met), (5.0 / 8.0 * 100.0, false));
    }

    #[test]
    fn a_program_that_watching_slows_is_named() {
        let report = told(&[
            ("a", Some(1.0), [100.0, 99.0, 200.0]),
            ("b", Some(1.0), [100.0, 90.0, 200.0]),
            ("c", Some(1.0), [100.0, 101.0, 200.0]),
        ]);
        let [_, median, worst] = &report.measures[..] else { panic!("{:?}", report.measures) };
        assert!(median.met && !worst.met, "{worst:?}");
        assert!(worst.measure.ends_with("the worst: b"), "{worst:?}");
        assert!((worst.measured.unwrap().value - 10.0).abs() < 1e-9, "{worst:?}");
    }
}
