//! How often `gang doctor` is right: its predictions against measured gains, over programs of every
//! kind.
//!
//! Two copies of each program share the machine: under plain Linux, the same while the doctor
//! watches one of them, and as gangs. The doctor is right where it says that gang scheduling helps
//! by more than 5 %, and it does, or that it does not, and it does not. The cost of watching to the
//! copy that is watched is the first against the second, over the part of its time in which it is
//! watched.
//!
//! A few rounds show that a program gains, and not always by more than 5 % or less: who is near
//! that, or treated differently by plain Linux from one round to the next, is measured on. By what
//! is true alone, not by what was said.

mod subjects;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use crate::harness::alternate::{Condition, Rounds, alternate_on};
use crate::harness::child::Running;
use crate::harness::confusion::Confusion;
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::lab::{Lab, Span};
use crate::harness::report::{Promise, Report};
use crate::harness::samples::{Figures, Sample, Series};
use crate::harness::stats::{self, Estimate};
use crate::promises::list;
use crate::workload::window::sleep_until_ns;
pub(super) use subjects::COPIES;
use subjects::{Subject, choose};

const RATE: &str = "iterations_per_s";
/// The same of the copy that is watched, where one is.
const OF_FIRST: &str = "first_copy_iterations_per_s";
/// For how much of its time that copy was watched.
const PART_WATCHED: &str = "part_watched";
const PREDICTED: &str = "predicted_gain";
/// 1 where the doctor says that it helps, 0 where not; absent where it does not know.
const HELPS: &str = "said_to_help";
/// A gain that counts as help.
const GAIN: f64 = 0.05;
/// Programs whose rate under plain Linux varies by less than this part of it (sd) are steady: what
/// differs while they are watched is due to watching. Others plain Linux now and then lets
/// collapse.
const STEADY: f64 = 0.03;

/// How long workloads count: as long as the doctor watches by default, and what it takes to begin.
/// Half of it is what real programs take alone.
const LENGTH: Duration = Duration::from_millis(10_500);
const QUICK_LENGTH: Duration = Duration::from_secs(3);
/// The time in which the doctor has to begin, so that it ends before the programs do.
const BEGINS: Duration = Duration::from_millis(500);
/// Where programs do nothing, or end before the doctor has come, they are given longer, and so long
/// once at least.
pub(super) const LONG_ENOUGH: Duration = Duration::from_secs(60);
pub(super) const TOO_SHORT: &str =
    "programs did nothing, or had ended before the doctor was done: --seconds gives them longer";
/// With more rounds of all programs, it takes hours.
const ROUNDS: usize = 3;
/// Of programs of which it is not known whether they gain.
const MOST_ROUNDS: usize = 6;

#[derive(Args, Debug, Clone, Default)]
pub struct Doctor {
    /// Only programs with one of these words in their names [default: all, with --quick some of the
    /// lab's own]
    #[arg(long, value_delimiter = ',', value_name = "WORD")]
    pub only: Vec<String>,
    /// Measure programs on of which it is open whether they gain more than 5 %, up to so many
    /// rounds [default: 6, or --runs where that is given; none with --quick]
    #[arg(long, value_name = "ROUNDS")]
    pub at_most: Option<usize>,
}

impl Doctor {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("without gangd there is nothing to be right about")?;
        let dir = tempfile::tempdir().context("making a directory for the programs")?;
        let subjects = choose(lab, dir.path(), &self.only, length(lab) / 2)?;
        let mut conditions = Vec::new();
        for subject in &subjects.chosen {
            for (way, name) in WAYS {
                let name = format!("{}: {name}", subject.name());
                conditions.push(Condition::new(name, move |lab| measure(lab, subject, way)));
            }
        }
        let run = alternate_on(lab, "doctor", &self.rounds(lab), &conditions)?;
        let chosen = subjects.chosen.len();
        let about = format!("what gang doctor says of {chosen} programs, and what is true");
        let mut report = Report::new(lab, about, run, RATE);
        if chosen + subjects.missing.len() < subjects.all && self.only.is_empty() {
            report.notes.push(format!(
                "{} of {} programs: --quick is to answer within a minute.",
                subjects.all - chosen,
                subjects.all
            ));
        }
        report.notes.extend(subjects.missing);
        let names = subjects.chosen.iter().map(Subject::name);
        let scores: Vec<Score> = names.filter_map(|name| score(&mut report, name)).collect();
        report_scores(&mut report, &scores);
        Ok(report)
    }

    fn rounds(&self, lab: &Lab) -> Rounds<'static> {
        let of_all = lab.options.runs.unwrap_or(ROUNDS);
        let at_most = self.at_most.or(lab.options.runs).unwrap_or(MOST_ROUNDS);
        Rounds { of_all, at_most, wants_more: &|series, index| !is_gain_known(series, index) }
    }
}

/// Whether the program of a condition, by its place, gains more than what counts as help, or does
/// not, for sure.
fn is_gain_known(series: &[Series], index: usize) -> bool {
    let of_program = index - index % WAYS.len();
    let [plain, .., gangs] = &series[of_program..of_program + WAYS.len()] else { return true };
    let (gangs, plain) = gangs.paired(plain, RATE);
    stats::is_told_apart(&gangs, &plain, 1.0 + GAIN)
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Plain,
    Watched,
    Gangs,
}

const WAYS: [(Way, &str); 3] =
    [(Way::Plain, "plain Linux"), (Way::Watched, "watched"), (Way::Gangs, "gangs")];

fn length(lab: &Lab) -> Duration {
    lab.length(if lab.options.quick { QUICK_LENGTH } else { LENGTH })
}

fn measure(lab: &Lab, subject: &Subject, way: Way) -> Result<Sample> {
    // Under plain Linux programs are jobs only where they are to be looked at.
    let only_watch = way == Way::Plain && lab.watches_plain();
    let daemon =
        lab.daemon(&lab.settings(DaemonOptions { only_watch, ..DaemonOptions::default() }))?;
    let run = |span: &Span| run_over(lab, &daemon, subject, way, span);
    let (sample, longer_s) = lab.over_window(length(lab), LONG_ENOUGH, run, Option::is_some)?;
    Ok(sample.context(TOO_SHORT)?.over(longer_s))
}

/// The figures of a program in that time; none where it was too short for that.
fn run_over(
    lab: &Lab,
    daemon: &Daemon,
    subject: &Subject,
    way: Way,
    span: &Span,
) -> Result<Option<Sample>> {
    let is_job = way == Way::Gangs || way == Way::Plain && lab.watches_plain();
    let longer = span.length.as_secs_f64() / length(lab).as_secs_f64();
    let mut copies = subject.start(lab, Some(daemon).filter(|_| is_job), span, longer)?;
    let mut sample = if way == Way::Watched {
        sleep_until_ns(span.start_ns);
        match ask(lab, daemon, copies.first().pid(), span) {
            Ok(Asked { said, gangs }) => gangs.with_all(said),
            // A doctor that comes when a program is over has nothing to say of it.
            Err(_) if copies.first().ends_by(Instant::now()) => return Ok(None),
            Err(error) => return Err(error),
        }
    } else if is_job {
        copies.look(daemon, span)
    } else {
        Sample::not_measured("it is that of the same program, watched")
    };
    let done = copies.done(span)?;
    sample.figures.extend([(RATE, done.rate), (OF_FIRST, done.of_first)]);
    if way == Way::Watched {
        let part = (watched(span).as_secs_f64() / done.first_s).min(1.0);
        sample.figures.insert(PART_WATCHED, part);
    }
    Ok((done.rate > 0.0 && done.of_first > 0.0).then_some(sample))
}

/// For how long the doctor watches.
pub(super) fn watched(span: &Span) -> Duration {
    span.length.saturating_sub(BEGINS).max(span.length / 2)
}

/// The doctor's answer, and the figures of the program that the daemon had meanwhile.
pub(super) struct Asked {
    said: Figures,
    pub(super) gangs: Sample,
}

/// Has the doctor watch a process.
pub(super) fn ask(lab: &Lab, daemon: &Daemon, pid: i32, span: &Span) -> Result<Asked> {
    let seconds = watched(span).as_secs_f64().to_string();
    let mut command = daemon.program(lab.programs.gang()?);
    command.args(["doctor", "--json", "--seconds", &seconds, "--pid"]).arg(pid.to_string());
    let doctor = Running::start(&mut command)?;
    // The program is a job while the doctor watches it.
    let gangs = daemon.look_at(span.start_ns + span.length.as_nanos() as u64 / 2);
    let said = doctor.finish(span.deadline)?;
    let said: Value =
        serde_json::from_str(&said).with_context(|| format!("gang doctor wrote {said:?}"))?;
    let gain = said["predicted_gain"]["gain"].as_f64().map(|gain| (PREDICTED, gain));
    let helps = said["helps"].as_bool().map(|helps| (HELPS, f64::from(u8::from(helps))));
    Ok(Asked { said: gain.into_iter().chain(helps).collect(), gangs })
}

/// The verdict on a program, and the truth.
struct Score {
    name: String,
    /// Absent where the doctor did not know in most rounds.
    said: Option<bool>,
    predicted: Option<f64>,
    gain: Estimate,
    /// That it is more than what counts as help, or less.
    is_gain_known: bool,
    is_steady: bool,
    cost_percent: Option<Estimate>,
}

impl Score {
    fn cost(&self) -> f64 {
        self.cost_percent.map_or(f64::NEG_INFINITY, |cost| cost.value)
    }
}

fn score(report: &mut Report, name: &str) -> Option<Score> {
    let condition = |way: &str| format!("{name}: {way}");
    let (plain, watched, gangs) =
        (condition("plain Linux"), condition("watched"), condition("gangs"));
    let ratio = report.ratio(&gangs, &plain, RATE)?;
    let place = report.series.iter().position(|series| series.condition == plain)?;
    let alone = report.samples(&plain, OF_FIRST).and_then(stats::mean_sd);
    let cost = report.ratio(&watched, &plain, OF_FIRST);
    let part = report.mean(&watched, PART_WATCHED);
    let rounds = report.samples(&watched, OF_FIRST).map_or(0, <[f64]>::len);
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
        is_gain_known: is_gain_known(&report.series, place),
        is_steady: rounds > 1 && alone.is_some_and(|(mean, sd)| sd < STEADY * mean),
        cost_percent: cost.zip(part).map(|(it, part)| {
            let percent = |ratio: f64| (1.0 - ratio) / part.value * 100.0;
            let interval = it.interval.map(|[low, high]| [percent(high), percent(low)]);
            Estimate { value: percent(it.value), interval, ..it }
        }),
    })
}

fn report_scores(report: &mut Report, scores: &[Score]) {
    if scores.is_empty() {
        return;
    }
    let confusion = Confusion::of(scores.iter().map(|it| (it.said, it.gain.value > GAIN)));
    report.confusion = Some(confusion);
    report.verdict.push(format!(
        "Of {} programs {} are judged right.",
        scores.len(),
        confusion.right()
    ));
    for it in scores {
        let said = match it.said {
            Some(true) => "helps",
            Some(false) => "does not help",
            None => "does not know",
        };
        let percent = |gain: f64| format!("{:+.0} %", gain * 100.0);
        let predicted = it.predicted.map_or_else(|| "–".into(), percent);
        let sure = if it.is_gain_known { "" } else { ", not told apart from 5 %" };
        report.verdict.push(format!(
            "{}: {said}, {predicted} predicted, {} measured{sure}.",
            it.name,
            percent(it.gain.value)
        ));
    }
    let right = confusion.right() as f64 / scores.len() as f64 * 100.0;
    let right = Estimate { value: right, interval: None, samples: scores.len() };
    report.promise_of(&list::DOCTOR, &format!("{} programs", scores.len()), Some(right));
    let (median, worst) = (&list::WATCHING_MEDIAN, &list::WATCHING_WORST);
    report_costs(report, median, worst, scores.iter().collect());
    let steady: Vec<&Score> = scores.iter().filter(|it| it.is_steady).collect();
    let (median, worst) = (&list::WATCHING_MEDIAN_STEADY, &list::WATCHING_WORST_STEADY);
    report_costs(report, median, worst, steady);
}

/// The cost of watching at the median, and to the program that it costs most. The interval keeps
/// apart what is the doctor's and what is Linux's.
fn report_costs(report: &mut Report, median: &Promise, worst: &Promise, mut scores: Vec<&Score>) {
    scores.retain(|it| it.cost_percent.is_some());
    scores.sort_by(|a, b| a.cost().total_cmp(&b.cost()));
    let (Some(middle), Some(last)) = (scores.get(scores.len() / 2), scores.last()) else { return };
    let cost = Estimate { value: middle.cost(), interval: None, samples: scores.len() };
    report.promise_of(median, &format!("{} programs", scores.len()), Some(cost));
    report.promise_of(worst, &last.name, last.cost_percent);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::alternate::Run;
    use crate::harness::confusion::True;
    use crate::harness::options::Options;
    use crate::harness::samples::Series;

    /// A program: its name, what was said of it, and its rates under plain Linux, watched, and as
    /// gangs.
    type Program = (&'static str, Option<f64>, [f64; 3]);

    /// One that plain Linux lets collapse in one of three rounds.
    const COLLAPSES: &str = "collapses";

    /// The report on programs.
    fn report_on(programs: &[Program], part: f64) -> Report {
        let lab = Lab::new(&Options { noisy: true, ..Options::default() }).unwrap();
        let mut series = Vec::new();
        for (name, said, rates) in programs {
            for (way, rate) in ["plain Linux", "watched", "gangs"].into_iter().zip(rates) {
                // The other copy has what the one that is watched loses.
                let of_both = if way == "watched" { rates[0] } else { *rate };
                let (of_both, mut of_first) = (vec![of_both; 3], vec![*rate / 2.0; 3]);
                if *name == COLLAPSES && way == "plain Linux" {
                    of_first[1] /= 10.0;
                }
                let mut samples = BTreeMap::from([(RATE, of_both), (OF_FIRST, of_first)]);
                if way == "watched" {
                    samples.insert(PART_WATCHED, vec![part; 3]);
                    samples.extend(said.map(|said| (HELPS, vec![said; 3])));
                }
                series.push(Series::new(format!("{name}: {way}"), samples));
            }
        }
        let noise = Vec::new();
        let run = Run::made_up("doctor", 3, series, noise);
        let mut report = Report::new(&lab, "about", run, RATE);
        let scores: Vec<Score> =
            programs.iter().filter_map(|(name, ..)| score(&mut report, name)).collect();
        report_scores(&mut report, &scores);
        report
    }

    #[test]
    fn what_is_said_is_held_against_what_is_true() {
        let (yes, no) = (Some(1.0), Some(0.0));
        let report = report_on(
            &[
                ("a", yes, [100.0, 99.0, 106.0]),
                ("b", yes, [100.0, 99.0, 200.0]),
                ("c", yes, [100.0, 99.0, 300.0]),
                ("d", yes, [100.0, 99.0, 104.0]),
                ("e", no, [100.0, 99.0, 104.0]),
                ("f", no, [100.0, 99.0, 50.0]),
                ("g", no, [100.0, 99.0, 106.0]),
                ("h", None, [100.0, 99.0, 106.0]),
            ],
            1.0,
        );
        let verdict = "Of 8 programs 5 are judged right.";
        assert_eq!(report.verdict[0], verdict);
        let [helps, does_not, none] =
            [(3, 1), (1, 2), (1, 0)].map(|(helps, does_not_help)| True { helps, does_not_help });
        let matrix = Confusion { said_to_help: helps, said_not_to_help: does_not, undecided: none };
        assert_eq!(report.confusion, Some(matrix));
        assert!(report.text().contains("undecided"), "{}", report.text());
        assert_eq!(report.verdict[2], "b: helps, – predicted, +100 % measured.");
        let right = report.measures[0].measured.unwrap();
        assert_eq!((right.value, report.measures[0].met), (5.0 / 8.0 * 100.0, false));
    }

    #[test]
    fn what_is_true_is_measured_on_until_it_is_known() {
        let program = |plain: [f64; 3], gangs: [f64; 3]| {
            let of = |name: &str, rates: [f64; 3]| {
                Series::new(name, BTreeMap::from([(RATE, rates.to_vec())]))
            };
            [of("plain Linux", plain), of("watched", [1.0; 3]), of("gangs", gangs)]
        };
        let series: Vec<Series> = [
            program([100.0, 101.0, 100.0], [120.0, 121.0, 120.0]),
            program([100.0, 101.0, 100.0], [105.0, 108.0, 104.0]),
            program([100.0, 101.0, 100.0], [100.0, 101.0, 101.0]),
            program([100.0, 1.0, 0.1], [150.0, 151.0, 149.0]),
            program([100.0, 90.0, 110.0], [110.0, 111.0, 109.0]),
        ]
        .into_iter()
        .flatten()
        .collect();
        let known: Vec<bool> = (0..series.len()).map(|it| is_gain_known(&series, it)).collect();
        let of_programs: Vec<&[bool]> = known.chunks(WAYS.len()).collect();
        let [yes, no] = [[true; 3], [false; 3]];
        assert_eq!(of_programs, [yes, no, yes, no, no]);
        let rounds = |runs: Option<usize>, at_most: Option<usize>| {
            let lab = Lab::new(&Options { runs, ..Options::default() }).unwrap();
            let rounds = Doctor { at_most, ..Doctor::default() }.rounds(&lab);
            (rounds.of_all, rounds.at_most)
        };
        assert_eq!(rounds(None, None), (3, 6));
        assert_eq!(rounds(Some(2), None), (2, 2), "as many as were asked for");
        assert_eq!(rounds(Some(2), Some(4)), (2, 4));
    }

    #[test]
    fn a_program_that_watching_slows_is_named() {
        let report = report_on(
            &[
                ("a", Some(1.0), [100.0, 99.0, 200.0]),
                ("b", Some(1.0), [100.0, 90.0, 200.0]),
                ("c", Some(1.0), [100.0, 101.0, 200.0]),
            ],
            0.8,
        );
        let [_, median, worst, steady_median, steady_worst] = &report.measures[..] else {
            panic!("{:?}", report.measures)
        };
        assert!(median.met && !worst.met, "{worst:?}");
        assert!(worst.measure.ends_with("(b)"), "{worst:?}");
        assert!(
            (worst.measured.unwrap().value - 12.5).abs() < 1e-9,
            "while it is watched: {worst:?}"
        );
        assert!(
            steady_median.measure.ends_with("(3 programs)"),
            "all are steady: {steady_median:?}"
        );
        assert!(steady_worst.measure.ends_with("(b)"), "{steady_worst:?}");
    }

    #[test]
    fn collapse_under_plain_linux_tells_nothing() {
        let report = report_on(
            &[("a", Some(1.0), [100.0, 99.0, 200.0]), (COLLAPSES, Some(1.0), [100.0, 50.0, 200.0])],
            1.0,
        );
        let [.., worst, _, steady] = &report.measures[..] else { panic!("{:?}", report.measures) };
        assert!(worst.measure.contains(COLLAPSES) && steady.measure.ends_with("(a)"));
        assert!(steady.met, "{steady:?}");
    }
}
