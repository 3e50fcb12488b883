//! Conditions that alternate within one run.
//!
//! A machine drifts: other users come and go, clocks change their frequency. So every round runs
//! each condition once, every second round in the reverse order, and figures are compared within
//! rounds only. Before each round, and after the last, the noise of the machine is sampled.
//!
//! How much programs run as a whole a daemon says, which beside plain Linux would be part of what gangs are compared
//! with. So conditions under plain Linux run once more in the end, beside a daemon that does nothing else, and nothing
//! else is taken of that round.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{HumanDuration, ProgressBar, ProgressFinish, ProgressState, ProgressStyle};
use serde::{Deserialize, Serialize, Serializer};

use crate::gangs::{APART, COSCHEDULED};
use crate::lab::Lab;
use crate::machine::Machine;
use crate::noise::{self, Noise};

/// Figures of one measurement, by name with the unit last.
pub type Figures = BTreeMap<&'static str, f64>;

/// What one measurement of a condition gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Sample {
    pub figures: Figures,
    /// Why it is not known how much its gangs ran as a whole; absent where it is, and where it has no gangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// For how long threads waited in their slots, by who had their CPU; where the experiment is about that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_to_ns: BTreeMap<String, i64>,
}

/// One way to run the workload of an experiment.
pub struct Condition<'a> {
    pub name: String,
    measure: Box<dyn Fn() -> Result<Figures> + 'a>,
}

impl<'a> Condition<'a> {
    pub fn new(name: impl Into<String>, measure: impl Fn() -> Result<Figures> + 'a) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// The raw samples of one condition, one for each round in which the figure was there.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub condition: String,
    pub samples: BTreeMap<&'static str, Vec<f64>>,
    /// The rounds that they are of, counted from 0; written, from 1, where a figure is not there in all of them.
    #[serde(skip_serializing_if = "are_all", serialize_with = "from_one")]
    rounds: BTreeMap<&'static str, Vec<usize>>,
    /// As of a [`Sample`], where it is known of no round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// In how many rounds it is not known, by the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rounds_not_measured: BTreeMap<String, usize>,
    /// How much its programs ran as a whole is of one more round, of which nothing else is told.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub looked_at_apart: bool,
    /// As of a [`Sample`], in all rounds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_to_ns: BTreeMap<String, i64>,
}

impl Series {
    /// Of all rounds, from the first one on.
    pub fn new(condition: impl Into<String>, samples: BTreeMap<&'static str, Vec<f64>>) -> Self {
        let rounds = samples.iter().map(|(&name, values)| (name, (0..values.len()).collect()));
        let rounds = rounds.collect();
        let condition = condition.into();
        Self {
            condition,
            samples,
            rounds,
            not_measured: None,
            rounds_not_measured: BTreeMap::new(),
            looked_at_apart: false,
            lost_to_ns: BTreeMap::new(),
        }
    }

    /// Takes in the figures of one round.
    pub fn add(&mut self, round: usize, sample: Sample) {
        for (name, value) in sample.figures {
            self.samples.entry(name).or_default().push(value);
            self.rounds.entry(name).or_default().push(round);
        }
        for (who, ns) in sample.lost_to_ns {
            *self.lost_to_ns.entry(who).or_default() += ns;
        }
        if let Some(reason) = sample.not_measured {
            *self.rounds_not_measured.entry(reason.clone()).or_default() += 1;
            self.not_measured = Some(reason);
        }
        if self.samples.contains_key(COSCHEDULED) {
            self.not_measured = None;
        }
    }

    /// Whether it is to be looked at apart how much its programs run as a whole.
    fn wants_look(&self) -> bool {
        self.not_measured.as_deref() == Some(APART)
    }

    /// Takes in what was seen then, after so many rounds.
    fn add_look(&mut self, rounds: usize, seen: Sample) {
        self.rounds_not_measured.clear();
        self.looked_at_apart = seen.figures.contains_key(COSCHEDULED);
        self.add(rounds, seen);
    }

    /// What was measured of a figure, with the round, counted from 0.
    pub fn by_round(&self, figure: &str) -> impl Iterator<Item = (usize, f64)> + '_ {
        let rounds = self.rounds.get(figure).into_iter().flatten().copied();
        rounds.zip(self.samples.get(figure).into_iter().flatten().copied())
    }

    /// In how many rounds it was measured.
    pub fn measured(&self) -> usize {
        self.rounds.values().map(Vec::len).max().unwrap_or(0)
    }

    /// A figure of two conditions, of the rounds in which both have it.
    pub fn paired(&self, other: &Series, figure: &str) -> (Vec<f64>, Vec<f64>) {
        let others: BTreeMap<usize, f64> = other.by_round(figure).collect();
        let both = |(round, value)| Some((value, *others.get(&round)?));
        self.by_round(figure).filter_map(both).unzip()
    }
}

fn are_all(rounds: &BTreeMap<&'static str, Vec<usize>>) -> bool {
    let most = rounds.values().flatten().max().map_or(0, |last| last + 1);
    rounds.values().all(|of| of.len() == most)
}

fn from_one<S: Serializer>(
    rounds: &BTreeMap<&'static str, Vec<usize>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let from_one = |of: &Vec<usize>| of.iter().map(|round| round + 1).collect::<Vec<_>>();
    serializer.collect_map(rounds.iter().map(|(figure, of)| (figure, from_one(of))))
}

/// What was measured, and on what.
pub struct Run {
    pub experiment: &'static str,
    pub machine: Machine,
    /// Of all conditions.
    pub rounds: usize,
    /// Rounds after those, of some conditions.
    pub more_rounds: usize,
    /// Rounds for which a first answer had no time.
    pub rounds_left_out: usize,
    pub series: Vec<Series>,
    pub noise: Vec<Noise>,
}

/// How many rounds conditions are measured.
pub struct Rounds<'a> {
    pub of_all: usize,
    /// Those that want more have so many, not counting a first answer.
    pub at_most: usize,
    /// Whether a condition, by its place, is to be measured on, after what was measured of all of them.
    pub wants_more: &'a dyn Fn(&[Series], usize) -> bool,
}

/// In so much time a first answer is there, but for the last round and what is measured in one piece.
const FIRST_ANSWER: Duration = Duration::from_secs(60);

/// Runs all conditions `rounds` times, and says on the standard error how far it is. What the file of
/// `--resume` has of them is not measured again.
pub fn alternate(
    lab: &Lab,
    experiment: &'static str,
    rounds: usize,
    conditions: &[Condition],
) -> Result<Run> {
    let rounds = Rounds { of_all: rounds, at_most: rounds, wants_more: &|_, _| false };
    alternate_on(lab, experiment, &rounds, conditions)
}

/// The same, and goes on with conditions that want more rounds.
pub fn alternate_on(
    lab: &Lab,
    experiment: &'static str,
    rounds: &Rounds,
    conditions: &[Condition],
) -> Result<Run> {
    let mut machine = Machine::this(lab.cpus);
    let journal = lab.journal.as_ref();
    if let Some(journal) = journal {
        journal.begin(experiment, &lab.describe(&machine)?)?;
    }
    let known = |round: usize, condition: &Condition| {
        journal.and_then(|journal| journal.sample(experiment, &condition.name, round))
    };
    let missing = |round: usize, of: &[usize]| {
        of.iter().filter(|&&index| known(round, &conditions[index]).is_none()).count()
    };
    let every: Vec<usize> = (0..conditions.len()).collect();
    let mut noise = journal.map_or_else(Vec::new, |journal| journal.noise(experiment));
    let listen = |noise: &mut Vec<Noise>| -> Result<()> {
        let sample = noise::sample()?;
        noise.push(sample);
        journal.map_or(Ok(()), |journal| journal.add_noise(experiment, sample))
    };

    let bar = progress(experiment, (0..rounds.of_all).map(|round| missing(round, &every)).sum());
    let mut series: Vec<Series> =
        conditions.iter().map(|c| Series::new(&c.name, BTreeMap::new())).collect();
    let bounded = lab.options.quick && lab.options.runs.is_none();
    let begun = Instant::now();
    let at_most = if bounded { rounds.of_all } else { rounds.at_most.max(rounds.of_all) };
    let (mut done, mut measured) = (0, 0);
    for round in 0..at_most {
        let wants = |index: &usize| round < rounds.of_all || (rounds.wants_more)(&series, *index);
        let mut now: Vec<usize> = every.iter().copied().filter(wants).collect();
        if now.is_empty() {
            break;
        }
        let missing = missing(round, &now);
        if round >= rounds.of_all {
            bar.inc_length(missing as u64);
        }
        if missing > 0 {
            if measured == 0 && !lab.options.noisy {
                quiet_enough(noise::at_rest()?)?;
            }
            // And for the looks that follow.
            let taken = begun.elapsed().mul_f64(1.0 + part_apart(&series));
            if bounded && !is_time_for_another(measured, taken, lab.began.get().elapsed()) {
                break;
            }
            listen(&mut noise)?;
            measured += 1;
        }
        if round % 2 == 1 {
            now.reverse();
        }
        for index in now {
            let condition = &conditions[index];
            let sample = match known(round, condition) {
                Some(sample) => sample,
                None => {
                    let of = if round < rounds.of_all { rounds.of_all } else { at_most };
                    bar.set_message(format!("round {} of {of}: {}", round + 1, condition.name));
                    let sample = take(lab, experiment, condition, round)?;
                    bar.inc(1);
                    sample
                }
            };
            series[index].add(round, sample);
        }
        done = round + 1;
    }
    let taken = begun.elapsed().mul_f64(part_apart(&series));
    if !bounded || is_time_for_another(measured, taken, lab.began.get().elapsed()) {
        bar.inc_length(series.iter().filter(|series| series.wants_look()).count() as u64);
        for (condition, series) in conditions.iter().zip(&mut series) {
            if series.wants_look() {
                bar.set_message(format!("looking at {}", condition.name));
                series.add_look(done, look(lab, experiment, condition)?);
                bar.inc(1);
            }
        }
    } else {
        for series in series.iter_mut().filter(|series| series.wants_look()) {
            series.add_look(done, not_seen("--quick had no time to look at plain Linux"));
        }
    }
    if measured > 0 {
        listen(&mut noise)?;
    }
    machine.look_again();
    let rounds_left_out = rounds.of_all.saturating_sub(done);
    let more_rounds = done.saturating_sub(rounds.of_all);
    let rounds = done - more_rounds;
    Ok(Run { experiment, machine, rounds, more_rounds, rounds_left_out, series, noise })
}

/// Measures a condition once.
fn take(lab: &Lab, experiment: &str, condition: &Condition, round: usize) -> Result<Sample> {
    lab.measured.take();
    let figures = (condition.measure)()
        .with_context(|| format!("round {}, {}", round + 1, condition.name))?;
    let mut sample = lab.measured.take();
    sample.figures.extend(figures);
    if let Some(journal) = &lab.journal {
        journal.add_sample(experiment, &condition.name, round, &sample)?;
    }
    Ok(sample)
}

/// How many of the conditions are to be looked at apart.
fn part_apart(series: &[Series]) -> f64 {
    let apart = series.iter().filter(|series| series.wants_look()).count();
    apart as f64 / series.len().max(1) as f64
}

fn not_seen(reason: impl Into<String>) -> Sample {
    Sample { not_measured: Some(reason.into()), ..Sample::default() }
}

/// Runs a condition once more, to see how much its programs run as a whole.
fn look(lab: &Lab, experiment: &str, condition: &Condition) -> Result<Sample> {
    let name = format!("{}, looked at", condition.name);
    let journal = lab.journal.as_ref();
    if let Some(known) = journal.and_then(|journal| journal.sample(experiment, &name, 0)) {
        return Ok(known);
    }
    lab.measured.take();
    lab.only_looks.set(true);
    let measured = (condition.measure)();
    lab.only_looks.set(false);
    let seen = lab.measured.take();
    if let Err(error) = measured {
        // What was compared is there all the same.
        return Ok(not_seen(format!("{error:#}")));
    }
    let is_told = match &seen.not_measured {
        Some(reason) => reason != APART,
        None => seen.figures.contains_key(COSCHEDULED),
    };
    if !is_told {
        return Ok(not_seen("its programs were not looked at"));
    }
    if let Some(journal) = journal {
        journal.add_sample(experiment, &name, 0, &seen)?;
    }
    Ok(seen)
}

/// Whether a first answer has time for one more round: where it takes as long as those that were measured in
/// `taken`. There is one in any case.
fn is_time_for_another(measured: u32, taken: Duration, since_beginning: Duration) -> bool {
    measured == 0 || since_beginning + taken / measured <= FIRST_ANSWER
}

/// Refuses a machine on which a run could not be compared, before it is measured for minutes.
fn quiet_enough(noise: Noise) -> Result<()> {
    ensure!(
        noise.lost_percent <= noise::LIMIT_PERCENT,
        "the machine is too noisy to compare anything: others take {:.0} % of the CPUs, for {:.1} ms at \
         a time, and {} % is the limit. Stop what else runs, or measure all the same with --noisy",
        noise.lost_percent,
        noise.longest_ms,
        noise::LIMIT_PERCENT
    );
    Ok(())
}

/// Shows how far a run is and how long it will take; nothing where nobody watches.
fn progress(experiment: &'static str, steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64).with_finish(ProgressFinish::AndClear);
    let style =
        ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len}, {left} left: {wide_msg}");
    // Without a style of its own the bar says the same in another order.
    if let Ok(style) = style {
        bar.set_style(style.with_key("left", left));
    }
    bar.set_prefix(experiment);
    // No thread that redraws it: the lab uses no CPU while it measures.
    bar
}

/// How much longer it takes, which nobody knows before something was measured.
fn left(state: &ProgressState, to: &mut dyn std::fmt::Write) {
    let _ = match state.pos() {
        0 => write!(to, "not known how long is"),
        _ => write!(to, "{}", HumanDuration(state.eta())),
    };
}

/// Shows what is being done, in place; nothing where nobody watches.
pub fn say(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Options;
    use std::cell::RefCell;
    use std::path::Path;

    fn lab(resume: Option<&Path>) -> Lab {
        let resume = resume.map(Path::to_owned);
        Lab::new(&Options { noisy: true, resume, ..Options::default() }).unwrap()
    }

    #[test]
    fn every_second_round_runs_backwards() {
        let order = RefCell::new(String::new());
        let condition = |name: &'static str| {
            let order = &order;
            Condition::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(Figures::from([("rounds", order.borrow().len() as f64)]))
            })
        };
        let conditions = [condition("a"), condition("b"), condition("c")];
        let run = alternate(&lab(None), "order", 3, &conditions).unwrap();
        assert_eq!(*order.borrow(), "abccbaabc");
        assert_eq!(run.series[1].condition, "b");
        assert_eq!(run.series[1].samples["rounds"], [2.0, 5.0, 8.0]);
        assert_eq!(run.noise.len(), 4, "before each round and after the last");
        assert!(run.machine.load_before.is_some() && run.machine.load_after.is_some());
    }

    #[test]
    fn a_figure_that_a_round_does_not_have_is_paired_with_none() {
        let series = |missing: usize| {
            let mut series = Series::new("a", BTreeMap::new());
            for round in 0..3 {
                let value = (round * 10 + missing) as f64;
                let figures = (round != missing).then_some(("n", value));
                series.add(
                    round,
                    Sample { figures: figures.into_iter().collect(), ..Sample::default() },
                );
            }
            series
        };
        let (first, second) = (series(0), series(1));
        assert_eq!(first.by_round("n").collect::<Vec<_>>(), [(1, 10.0), (2, 20.0)]);
        assert_eq!(first.paired(&second, "n"), (vec![20.0], vec![21.0]));
        assert_eq!(first.paired(&second, "m"), (vec![], vec![]));
        assert_eq!(
            serde_json::to_value(&second).unwrap()["rounds"]["n"],
            serde_json::json!([1, 3])
        );
        let whole = serde_json::to_value(series(3)).unwrap();
        assert!(whole.get("rounds").is_none(), "{whole}");
    }

    #[test]
    fn a_condition_that_wants_more_rounds_is_measured_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let order = RefCell::new(String::new());
        let condition = |name: &'static str| {
            let order = &order;
            Condition::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(Figures::from([("n", 1.0)]))
            })
        };
        let conditions = [condition("a"), condition("b"), condition("c")];
        // The second one has enough with the first rounds, the third with one more.
        let wants_more = |series: &[Series], index: usize| match index {
            0 => true,
            1 => false,
            _ => series[index].samples["n"].len() < 3,
        };
        let run = |lab: &Lab| {
            let rounds = Rounds { of_all: 2, at_most: 5, wants_more: &wants_more };
            let run = alternate_on(lab, "on", &rounds, &conditions).unwrap();
            let measured: Vec<usize> = run.series.iter().map(Series::measured).collect();
            (run.rounds, run.more_rounds, run.rounds_left_out, measured)
        };
        assert_eq!(run(&lab(Some(&path))), (2, 3, 0, vec![5, 2, 3]));
        assert_eq!(order.take(), "abccbaacaa");
        assert_eq!(run(&lab(Some(&path))), (2, 3, 0, vec![5, 2, 3]), "from the file");
        assert_eq!(order.take(), "", "nothing is measured again");
        let quick = Lab::new(&Options { noisy: true, quick: true, ..Options::default() }).unwrap();
        assert_eq!(run(&quick), (2, 0, 0, vec![2, 2, 2]), "a first answer does not wait for it");
    }

    #[test]
    fn a_failure_names_its_condition() {
        let fails = Condition::new("on fire", || anyhow::bail!("smoke"));
        let error = alternate(&lab(None), "fire", 1, &[fails]).map(|_| ()).unwrap_err();
        assert_eq!(format!("{error:#}"), "round 1, on fire: smoke");
    }

    #[test]
    fn what_was_measured_is_not_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let measured = RefCell::new(0);
        let count = || {
            *measured.borrow_mut() += 1;
            anyhow::ensure!(*measured.borrow() != 3, "interrupted");
            Ok(Figures::from([("n", f64::from(*measured.borrow()))]))
        };
        let conditions = [Condition::new("a", count), Condition::new("b", count)];
        assert!(alternate(&lab(Some(&path)), "count", 2, &conditions).is_err());
        let run = alternate(&lab(Some(&path)), "count", 2, &conditions).unwrap();
        assert_eq!(*measured.borrow(), 5, "two of four were there");
        assert_eq!(run.series[0].samples["n"], [1.0, 5.0]);
        assert_eq!(run.series[1].samples["n"], [2.0, 4.0]);
        let again = alternate(&lab(Some(&path)), "count", 2, &conditions).unwrap();
        assert_eq!(*measured.borrow(), 5);
        assert_eq!(again.series[0].samples, run.series[0].samples);
    }

    #[test]
    fn plain_linux_is_looked_at_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let looks = RefCell::new(0);
        let measure = |lab: &Lab, fails: bool| {
            if !lab.only_looks.get() {
                lab.note_plain();
                return Ok(Figures::from([("n", 1.0)]));
            }
            *looks.borrow_mut() += 1;
            anyhow::ensure!(!fails, "smoke");
            let figures = Figures::from([(COSCHEDULED, 40.0)]);
            lab.measured.replace(Sample { figures, ..Sample::default() });
            Ok(Figures::from([("n", 7.0)]))
        };
        let run = |quick: bool, began: Instant| {
            let lab = match quick {
                true => Lab::new(&Options { noisy: true, quick, ..Options::default() }).unwrap(),
                false => lab(Some(&path)),
            };
            lab.began.set(began);
            let conditions = [
                Condition::new("a", || measure(&lab, false)),
                Condition::new("b", || measure(&lab, true)),
                Condition::new("gangs", || Ok(Figures::from([("n", 2.0)]))),
                Condition::new("blind", || {
                    lab.note_plain();
                    Ok(Figures::from([("n", 3.0)]))
                }),
            ];
            alternate(&lab, "look", 2, &conditions).unwrap().series
        };
        for _ in 0..2 {
            let [a, b, gangs, blind] = &run(false, Instant::now())[..] else { panic!() };
            assert_eq!(a.samples["n"], [1.0, 1.0], "nothing else is taken of that round");
            assert_eq!(a.samples[COSCHEDULED], [40.0]);
            assert!(a.looked_at_apart && a.not_measured.is_none());
            assert!(a.rounds_not_measured.is_empty());
            assert_eq!(b.samples["n"], [1.0, 1.0], "and nothing is lost where it fails");
            assert_eq!(b.not_measured.as_deref(), Some("smoke"));
            assert!(!b.looked_at_apart && !gangs.looked_at_apart && !blind.looked_at_apart);
            assert_eq!(blind.not_measured.as_deref(), Some("its programs were not looked at"));
        }
        assert_eq!(*looks.borrow(), 3, "what was seen is on file");
        let long_ago = Instant::now().checked_sub(FIRST_ANSWER).unwrap();
        let series = run(true, long_ago);
        assert!(series[0].not_measured.as_ref().unwrap().contains("no time"));
        assert_eq!(*looks.borrow(), 3);
    }

    #[test]
    fn a_first_answer_takes_a_minute() {
        let s = Duration::from_secs;
        assert!(is_time_for_another(0, s(0), s(500)), "without a round there is no answer");
        assert!(is_time_for_another(1, s(20), s(30)) && is_time_for_another(2, s(40), s(40)));
        assert!(!is_time_for_another(1, s(31), s(31)) && !is_time_for_another(2, s(40), s(41)));
    }

    #[test]
    fn rounds_without_time_are_counted() {
        let run = |options: Options| {
            let lab = Lab::new(&Options { noisy: true, ..options }).unwrap();
            // So long ago that there is no time for a second round.
            lab.began.set(Instant::now().checked_sub(FIRST_ANSWER).unwrap());
            let conditions = [Condition::new("a", || Ok(Figures::from([("n", 1.0)])))];
            let run = alternate(&lab, "count", 3, &conditions).unwrap();
            assert_eq!(run.series[0].samples["n"].len(), run.rounds);
            (run.rounds, run.rounds_left_out)
        };
        let quick = || Options { quick: true, ..Options::default() };
        assert_eq!(run(quick()), (1, 2));
        assert_eq!(run(Options { runs: Some(3), ..quick() }), (3, 0), "as many were asked for");
        assert_eq!(run(Options::default()), (3, 0));
    }

    #[test]
    fn a_noisy_machine_is_refused() {
        let noise = |lost_percent| Noise { lost_percent, longest_ms: 12.0, handover_ns: None };
        assert!(quiet_enough(noise(4.9)).is_ok());
        let error = quiet_enough(noise(40.0)).unwrap_err().to_string();
        assert!(error.contains("40 %") && error.contains("--noisy"), "{error}");
    }
}
