//! The cost to programs of being watched by `gang doctor`: two copies of each share the machine
//! under plain Linux, and one of them is watched for a third of the time, in between.
//!
//! Threads are compared with themselves, because where Linux puts them differs more from one start
//! to the next than watching costs, and by the time that they have CPUs
//! ([`own`](crate::workload::own)), because the speed of a machine does, too.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::doctor::{self, COPIES};
use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::lab::{Lab, Span, words};
use crate::harness::report::{Promise, Report};
use crate::harness::samples::Sample;
use crate::harness::stats::mean_sd;
use crate::promises::list;
use crate::workload::own::OwnOutcome;
use crate::workload::window::sleep_until_ns;

/// Of the copy that is watched, and of both.
const COST: &str = "cost_percent";
const OF_BOTH: &str = "cost_of_both_percent";

/// Programs by what they do, as workloads of the lab.
const PROGRAMS: [(&str, &str, &Promise); 4] = [
    ("threads that do not meet", "own", &list::WATCHING_APART),
    ("threads that meet every 1 ms, and block", "own --wait spin-block", &list::WATCHING_BLOCK_1MS),
    ("threads that meet every 1 ms, and spin", "own --wait spin", &list::WATCHING_SPIN_1MS),
    (
        "threads that meet every 5 ms, and spin",
        "own --step 5ms --wait spin",
        &list::WATCHING_SPIN_5MS,
    ),
];

/// Of these is a first answer.
const QUICK: usize = 2;

/// As long as the doctor watches by default, and what it takes to begin: where it watches
/// for less, what it costs to begin is more of that.
const LENGTH: Duration = Duration::from_millis(10_500);

/// Not watched, watched, not watched.
const PARTS: u32 = 3;
const WATCHED: usize = 1;

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("without gangd nobody watches")?;
    let condition =
        |&(name, arguments, _)| Condition::new(name, move |lab| measure(lab, arguments));
    let programs = &PROGRAMS[..if lab.options.quick { QUICK } else { PROGRAMS.len() }];
    let conditions: Vec<Condition> = programs.iter().map(condition).collect();
    let run = alternate(lab, "watching", lab.runs(), &conditions)?;
    let mut report =
        Report::new(lab, "what it costs programs that gang doctor watches them", run, COST);
    for &(name, _, promise) in programs {
        report.promise(promise, report.mean(name, COST));
    }
    if programs.len() < PROGRAMS.len() {
        let (some, all) = (programs.len(), PROGRAMS.len());
        report
            .notes
            .push(format!("{some} of {all} programs: --quick is to answer within a minute."));
    }
    Ok(report)
}

fn measure(lab: &Lab, arguments: &str) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
    let length = lab.seconds_asked().unwrap_or(LENGTH);
    let run = |span: &Span| run_over(lab, &daemon, arguments, span);
    let long_enough = doctor::LONG_ENOUGH * PARTS;
    let (sample, longer_s) = lab.over_window(length * PARTS, long_enough, run, Option::is_some)?;
    Ok(sample.context(doctor::TOO_SHORT)?.over(longer_s))
}

/// The cost of watching in that time; none where it was too short for that.
fn run_over(lab: &Lab, daemon: &Daemon, arguments: &str, span: &Span) -> Result<Option<Sample>> {
    let length = span.length / PARTS;
    let mut words = words(&format!("{arguments} --threads {} --parts {PARTS}", lab.threads()));
    words.extend(span.arguments());
    let start = |_| lab.start_workload(None, None, &words);
    let mut copies: Vec<Running> = (0..COPIES).map(start).collect::<Result<_>>()?;
    let start_ns = span.start_ns + length.as_nanos() as u64 * WATCHED as u64;
    let watched = Span { start_ns, length, ..*span };
    sleep_until_ns(watched.start_ns);
    let gangs = match doctor::ask(lab, daemon, copies[0].pid(), &watched) {
        Ok(asked) => asked.gangs,
        // A doctor that comes when a program is over has nothing to say of it.
        Err(_) if copies[0].ends_by(Instant::now()) => return Ok(None),
        Err(error) => return Err(error),
    };
    let outcomes = copies.into_iter().map(|copy| copy.outcome(span.deadline));
    let outcomes: Vec<OwnOutcome> = outcomes.collect::<Result<_>>()?;
    let of_first = &outcomes[0].parts;
    let of_both: Vec<u64> = (0..of_first.len())
        .map(|part| outcomes.iter().filter_map(|copy| copy.parts.get(part)).sum())
        .collect();
    let share = doctor::watched(&watched).as_secs_f64() / length.as_secs_f64();
    let cost = |parts: &[u64]| cost_percent(parts).map(|percent| percent / share);
    let sample = |(first, both)| gangs.with([(COST, first), (OF_BOTH, both)]);
    Ok(cost(of_first).zip(cost(&of_both)).map(sample))
}

/// By how much less was done while it was watched than before and after; none where nothing was
/// done then.
fn cost_percent(parts: &[u64]) -> Option<f64> {
    let others = parts.iter().enumerate().filter(|(part, _)| *part != WATCHED);
    let others: Vec<f64> = others.map(|(_, steps)| *steps as f64).collect();
    let (alone, _) = mean_sd(&others).filter(|(mean, _)| *mean > 0.0)?;
    let watched = *parts.get(WATCHED)?;
    Some((alone - watched as f64) / alone * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_the_loss_against_before_and_after() {
        assert_eq!(cost_percent(&[90, 98, 106]).unwrap(), 0.0);
        assert_eq!(cost_percent(&[100, 99, 100]).unwrap(), 1.0);
        assert_eq!(cost_percent(&[100, 150, 100]).unwrap(), -50.0);
        assert!(cost_percent(&[0, 1, 0]).is_none());
        assert!(cost_percent(&[1]).is_none());
    }
}
