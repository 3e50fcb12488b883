//! Conditions that alternate within one run.
//!
//! A machine drifts: other users come and go, clocks change their frequency. So every round runs
//! each condition once, every second round in the reverse order, and figures are compared within
//! rounds only. Before each round, and after the last, the noise of the machine is sampled.
//!
//! A daemon says how much programs are coscheduled. Beside plain Linux it would be part of what
//! gangs are compared with. So conditions under plain Linux run once more in the end, beside a
//! daemon that does nothing else, and nothing else is taken of that round.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::budget::Budget;
use super::progress;
use super::samples::{Sample, Series};
use crate::harness::gangs::{APART, COSCHEDULED};
use crate::harness::lab::Lab;
use crate::harness::machine::Machine;
use crate::harness::noise::{self, Noise};
use crate::harness::origin::Origin;

/// One way to run the workload of an experiment.
pub struct Condition<'a> {
    pub name: String,
    measure: Box<Measure<'a>>,
}

type Measure<'a> = dyn Fn(&Lab) -> Result<Sample> + 'a;

impl<'a> Condition<'a> {
    /// `measure` returns all that there is to know of one round; the lab that it is given says
    /// whether the round is compared or only looked at.
    pub fn new(name: impl Into<String>, measure: impl Fn(&Lab) -> Result<Sample> + 'a) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// All that was measured, and the machine.
pub struct Run {
    pub experiment: &'static str,
    pub origin: Origin,
    pub machine: Machine,
    /// Of all conditions.
    pub rounds: usize,
    /// Rounds after those, of some conditions.
    pub more_rounds: usize,
    /// Rounds for which a first answer had no time.
    pub rounds_left_out: usize,
    pub series: Vec<Series>,
    pub noise: Vec<Noise>,
    /// The first of them, which are of the file of `--resume`.
    pub noise_on_file: usize,
}

#[cfg(test)]
impl Run {
    /// One that nobody measured.
    pub fn made_up(
        experiment: &'static str,
        rounds: usize,
        series: Vec<Series>,
        noise: Vec<Noise>,
    ) -> Run {
        Run {
            experiment,
            origin: Origin::default(),
            machine: Machine::this(2),
            rounds,
            more_rounds: 0,
            rounds_left_out: 0,
            series,
            noise,
            noise_on_file: 0,
        }
    }
}

/// How many rounds conditions are measured.
pub struct Rounds<'a> {
    pub of_all: usize,
    /// Those that want more have so many, not counting a first answer.
    pub at_most: usize,
    /// Whether a condition, by its place, is to be measured on, after what was measured of all of
    /// them.
    pub wants_more: &'a dyn Fn(&[Series], usize) -> bool,
}

/// Runs all conditions `rounds` times, and says on the standard error how far it is. Rounds in the
/// file of `--resume` are not measured again.
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
    let mut origin = Origin::now();
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
    let noise_on_file = noise.len();
    let listen = |noise: &mut Vec<Noise>| -> Result<()> {
        let sample = noise::sample()?;
        noise.push(sample);
        journal.map_or(Ok(()), |journal| journal.add_noise(experiment, sample))
    };

    let mut series: Vec<Series> =
        conditions.iter().map(|c| Series::new(&c.name, BTreeMap::new())).collect();
    let mut budget = Budget::begin(lab);
    // Whether a first answer has time for more is known after each.
    let certain = if budget.is_limited() { 1 } else { rounds.of_all };
    let steps = (0..certain).map(|round| missing(round, &every)).sum();
    let bar = progress::bar(experiment, steps);
    let at_most = match budget.is_limited() {
        true => rounds.of_all,
        false => rounds.at_most.max(rounds.of_all),
    };
    let mut done = 0;
    for round in 0..at_most {
        let wants = |index: &usize| round < rounds.of_all || (rounds.wants_more)(&series, *index);
        let mut now: Vec<usize> = every.iter().copied().filter(wants).collect();
        if now.is_empty() {
            break;
        }
        let missing = missing(round, &now);
        if missing > 0 {
            if !budget.has_measured() && !lab.options.noisy {
                quiet_enough(noise::at_rest()?)?;
            }
            // And for the looks that follow.
            if !budget.has_time_for(1.0 + part_apart(&series)) {
                break;
            }
            listen(&mut noise)?;
            budget.take_round();
        }
        if round >= certain {
            bar.inc_length(missing as u64);
        }
        if round % 2 == 1 {
            now.reverse();
        }
        for index in now {
            let condition = &conditions[index];
            let sample = match known(round, condition) {
                Some(sample) => {
                    origin.goes_on = true;
                    sample
                }
                None => {
                    let of = if round < rounds.of_all { rounds.of_all } else { at_most };
                    bar.set_message(format!("round {} of {of}: {}", round + 1, condition.name));
                    let sample = take(lab, experiment, condition, round)?;
                    bar.inc(1);
                    sample
                }
            };
            origin.daemons.extend(sample.daemons.iter().cloned());
            series[index].add(round, sample);
        }
        done = round + 1;
    }
    if budget.has_time_for(part_apart(&series)) {
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
            series
                .add_look(done, Sample::not_measured("--quick had no time to look at plain Linux"));
        }
    }
    if budget.has_measured() {
        listen(&mut noise)?;
    }
    machine.look_again();
    let rounds_left_out = rounds.of_all.saturating_sub(done);
    let more_rounds = done.saturating_sub(rounds.of_all);
    let rounds = done - more_rounds;
    Ok(Run {
        experiment,
        origin,
        machine,
        rounds,
        more_rounds,
        rounds_left_out,
        series,
        noise,
        noise_on_file,
    })
}

/// Measures a condition once.
fn take(lab: &Lab, experiment: &str, condition: &Condition, round: usize) -> Result<Sample> {
    let sample = (condition.measure)(lab)
        .with_context(|| format!("round {}, {}", round + 1, condition.name))?;
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

/// Runs a condition once more, to see how much its programs are coscheduled.
fn look(lab: &Lab, experiment: &str, condition: &Condition) -> Result<Sample> {
    let name = format!("{}, looked at", condition.name);
    let journal = lab.journal.as_ref();
    if let Some(known) = journal.and_then(|journal| journal.sample(experiment, &name, 0)) {
        return Ok(known);
    }
    let seen = match (condition.measure)(&lab.looking()) {
        Ok(sample) => sample.of_gangs(),
        // The figures that are compared are there all the same.
        Err(error) => return Ok(Sample::not_measured(format!("{error:#}"))),
    };
    let is_told = match &seen.not_measured {
        Some(reason) => reason != APART,
        None => seen.figures.contains_key(COSCHEDULED),
    };
    if !is_told {
        return Ok(Sample::not_measured("its programs were not looked at"));
    }
    if let Some(journal) = journal {
        journal.add_sample(experiment, &name, 0, &seen)?;
    }
    Ok(seen)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::budget::FIRST_ANSWER;
    use crate::harness::options::{Options, Takes};
    use std::cell::RefCell;
    use std::path::Path;
    use std::time::{Duration, Instant};

    fn lab(resume: Option<&Path>) -> Lab {
        let resume = resume.map(Path::to_owned);
        Lab::new(&Options { noisy: true, resume, ..Options::default() }).unwrap()
    }

    #[test]
    fn every_second_round_runs_backwards() {
        let order = RefCell::new(String::new());
        let condition = |name: &'static str| {
            let order = &order;
            Condition::new(name, move |_| {
                order.borrow_mut().push_str(name);
                Ok(Sample::default().with([("rounds", order.borrow().len() as f64)]))
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
    fn a_condition_that_wants_more_rounds_is_measured_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let order = RefCell::new(String::new());
        let condition = |name: &'static str| {
            let order = &order;
            Condition::new(name, move |_| {
                order.borrow_mut().push_str(name);
                Ok(Sample::default().with([("n", 1.0)]))
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
        let fails = Condition::new("on fire", |_| anyhow::bail!("smoke"));
        let error = alternate(&lab(None), "fire", 1, &[fails]).map(|_| ()).unwrap_err();
        assert_eq!(format!("{error:#}"), "round 1, on fire: smoke");
    }

    #[test]
    fn what_was_measured_is_not_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let measured = RefCell::new(0);
        let count = |_: &Lab| {
            *measured.borrow_mut() += 1;
            anyhow::ensure!(*measured.borrow() != 3, "interrupted");
            Ok(Sample::default().with([("n", f64::from(*measured.borrow()))]))
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
            if !lab.only_looks {
                return Ok(Sample::not_measured(APART).with([("n", 1.0)]));
            }
            *looks.borrow_mut() += 1;
            anyhow::ensure!(!fails, "smoke");
            Ok(Sample::default().with([(COSCHEDULED, 40.0), ("n", 7.0)]))
        };
        let run = |quick: bool, began: Instant| {
            let lab = match quick {
                true => Lab::new(&Options { noisy: true, quick, ..Options::default() }).unwrap(),
                false => lab(Some(&path)),
            };
            let mut lab = lab;
            lab.began = began;
            let conditions = [
                Condition::new("a", |lab| measure(lab, false)),
                Condition::new("b", |lab| measure(lab, true)),
                Condition::new("gangs", |_| Ok(Sample::default().with([("n", 2.0)]))),
                Condition::new("blind", |_| Ok(Sample::not_measured(APART).with([("n", 3.0)]))),
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
    fn an_option_without_use_is_told() {
        let asked = Options {
            noisy: true,
            seconds: Some(Duration::from_secs(1)),
            threads: Some(1),
            backend: Some("rt".into()),
            ..Options::default()
        };
        let lab = Lab::new(&asked).unwrap().for_experiment(&[Takes::Threads]);
        let uses =
            Condition::new("a", |lab| Ok(Sample::default().with([("n", lab.threads() as f64)])));
        let run = alternate(&lab, "uses", 1, &[uses]).unwrap();
        let report = crate::harness::report::Report::new(&lab, "about", run, "n");
        let left_out = ["--seconds", "--backend"]
            .map(|it| format!("{it}: it has no part in this experiment."));
        assert_eq!(report.left_out(), left_out);
    }

    #[test]
    fn rounds_without_time_are_counted() {
        let run = |options: Options| {
            let lab = Lab::new(&Options { noisy: true, ..options }).unwrap();
            // So long ago that there is no time for a second round.
            let began = Instant::now().checked_sub(FIRST_ANSWER).unwrap();
            let mut lab = lab;
            lab.began = began;
            let conditions = [Condition::new("a", |_| Ok(Sample::default().with([("n", 1.0)])))];
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
