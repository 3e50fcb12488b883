//! X5: domains of as many threads as CPUs repeat a step of two quanta and count together; a thread
//! that falls behind the others misses a deadline.
//!
//! The paper's step takes 100 ms and its quantum 50 ms. Unless `--paper` is asked for, both are a
//! fifth of that here: as many counts take less time, and plain Linux, which lets threads drift
//! apart by some of its own slices whatever the length of a step, has more to miss. The paper's
//! 28,000 deadlines of 8 domains with 14 threads are 250 steps of each thread, which all rounds of
//! `--paper` have together.

use std::time::Duration;

use anyhow::Result;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::duration;
use crate::harness::lab::{Gang, LONG_ENOUGH, Lab, Span, Under, words};
use crate::harness::picture::{Line, Picture};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::{self, Estimate};
use crate::harness::table::figure;
use crate::promises::list;
use crate::workload::deadlines::DeadlinesOutcome;

pub const MISSED: &str = "missed_percent";
pub const STEPS: &str = "steps";
const PUBLISHED: usize = 8;
/// Long enough for 250 steps of each of 8 domains in as many rounds.
const PUBLISHED_LENGTH: Duration = Duration::from_secs(25);
const WAYS: [&str; 2] = ["plain Linux", "gangd"];
const MOST: usize = 8;

pub fn run(lab: &Lab) -> Result<Report> {
    let domains: &[usize] = if lab.options.quick { &[2, MOST] } else { &[1, 2, 4, MOST] };
    let (step, quantum) = step_and_quantum(lab);
    let unders = [Under::Plain, Under::Gangd(lab.settings(DaemonOptions::slice(quantum)))];
    let ways = if lab.options.plain { 1 } else { 2 };
    let mut conditions = Vec::new();
    for &domains in domains {
        for (way, under) in WAYS.iter().zip(&unders).take(ways) {
            conditions.push(Condition::new(name(domains, way), move |lab| {
                measure(lab, under, domains, step, length(lab))
            }));
        }
    }
    let run = alternate(lab, "deadlines", lab.rounds(PUBLISHED), &conditions)?;
    let about = format!(
        "missed deadlines: domains of {} threads, steps of {}, slices of {} (X5)",
        lab.threads(),
        duration::show(step),
        duration::show(quantum)
    );
    let mut report = Report::new(lab, about, run, MISSED);
    let lines = WAYS[..ways].iter().map(|way| {
        let names: Vec<String> = domains.iter().map(|&domains| name(domains, way)).collect();
        let at = domains.iter().zip(&names).map(|(&domains, name)| (domains as f64, name.as_str()));
        Line::of(&report, *way, MISSED, at)
    });
    let lines = lines.collect();
    report.picture = Some(Picture::lines("domains", "missed deadlines in percent", lines));
    if !lab.options.plain {
        let missed = |way| report.mean(&name(MOST, way), MISSED);
        let (plain, gang) = (missed(WAYS[0]), missed(WAYS[1]));
        if let (Some(plain), Some(gang), true) = (plain, gang, report.compared) {
            report.verdict.push(format!(
                "With {MOST} domains {} % of the deadlines are missed under plain Linux, {} % as gangs (Xen \
                 on 14 CPUs: 86 % and 0.1 %).",
                figure(plain.value),
                figure(gang.value)
            ));
        }
        let missed = missed_of(lab, &report, &name(MOST, WAYS[1]));
        report.promise(&list::DEADLINES, missed);
    }
    Ok(report)
}

/// The share that was missed: where none was, by how many steps there were in all rounds. A
/// step happens to all threads of a domain alike, so that they are one case.
pub fn missed_of(lab: &Lab, report: &Report, condition: &str) -> Option<Estimate> {
    let missed = report.mean(condition, MISSED)?;
    let steps: f64 = report.samples(condition, STEPS)?.iter().sum();
    let none = stats::none_of(steps / lab.threads() as f64, missed.samples);
    if missed.value > 0.0 { Some(missed) } else { none }
}

/// Work of a step, and the slice that is half of it.
fn step_and_quantum(lab: &Lab) -> (Duration, Duration) {
    let quantum = Duration::from_millis(if lab.options.paper { 50 } else { 10 });
    (2 * quantum, quantum)
}

fn length(lab: &Lab) -> Duration {
    lab.length(if lab.options.paper { PUBLISHED_LENGTH } else { Duration::from_secs(4) })
}

fn name(domains: usize, way: &str) -> String {
    let plural = if domains == 1 { "" } else { "s" };
    format!("{domains} domain{plural}, {way}")
}

/// Domains at once, and what part of their deadlines they miss.
fn measure(
    lab: &Lab,
    under: &Under,
    domains: usize,
    step: Duration,
    length: Duration,
) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let gang = Gang { cpus: lab.threads().min(lab.cpus), weight: None };
    let domain =
        words(&format!("deadlines --threads {} --step {}", lab.threads(), duration::show(step)));
    let run = |span: &Span| {
        let arguments = [domain.as_slice(), &span.arguments()].concat();
        let mut running = Vec::new();
        for _ in 0..domains {
            running.push(lab.start_workload(daemon.as_ref(), Some(gang), &arguments)?);
        }
        let seen = lab.by(daemon.as_ref()).look(span);
        let outcomes = running.into_iter().map(|domain| domain.outcome(span.deadline));
        Ok((outcomes.collect::<Result<Vec<DeadlinesOutcome>>>()?, seen))
    };
    // Of no steps it would be said that none missed its deadline.
    let is_enough =
        |(outcomes, _): &(Vec<DeadlinesOutcome>, _)| outcomes.iter().all(|domain| domain.steps > 0);
    let ((outcomes, seen), longer_s) = lab.over_window(length, LONG_ENOUGH, run, is_enough)?;
    let steps: u64 = outcomes.iter().map(|outcome| outcome.steps).sum();
    let missed: u64 = outcomes.iter().map(|outcome| outcome.missed).sum();
    Ok(seen
        .over(longer_s)
        .with([(MISSED, missed as f64 / steps.max(1) as f64 * 100.0), (STEPS, steps as f64)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::alternate::Run;
    use crate::harness::options::Options;
    use crate::harness::samples::Series;

    #[test]
    fn bound_without_misses_follows_from_all_steps() {
        let options = Options { noisy: true, threads: Some(2), ..Options::default() };
        let lab = Lab::new(&options).unwrap();
        let of = |missed: [f64; 2]| {
            let samples = [(MISSED, missed.to_vec()), (STEPS, vec![1_000.0, 2_000.0])];
            let series = vec![Series::new("domains", samples.into())];
            let noise = Vec::new();
            let run = Run::made_up("deadlines", 2, series, noise);
            missed_of(&lab, &Report::new(&lab, "about", run, MISSED), "domains").unwrap()
        };
        let none = of([0.0, 0.0]);
        assert_eq!((none.value, none.interval, none.samples), (0.0, Some([0.0, 0.2]), 2));
        assert_eq!(of([0.0, 1.0]).value, 0.5);
    }
}
