//! E11: what gang scheduling costs programs that have no use for it. Two copies of a tight loop,
//! one thread on each CPU, under gangd as it comes, under plain Linux, and one after the other.

use std::time::Duration;

use anyhow::Result;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::plain_and_default;
use crate::harness::lab::{Lab, Launch, Together, Under};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::loss_percent;
use crate::promises::list;

const RATE: &str = "iterations_per_s";
const COPIES: usize = 2;

pub fn run(lab: &Lab) -> Result<Report> {
    let mut conditions = vec![Condition::new("batch", batch)];
    for (way, under) in plain_and_default(lab) {
        conditions.push(Condition::new(way, move |lab| together(lab, &under)));
    }
    let about = format!("two copies of a tight loop of {} threads (E11)", lab.threads());
    let run = alternate(lab, "overhead", lab.runs(), &conditions)?;
    let mut report = Report::new(lab, about, run, RATE);
    report.ratio("plain Linux", "batch", RATE);
    if !lab.options.plain {
        report.ratio("gangd", "batch", RATE);
        let ratio = report.ratio("gangd", "plain Linux", RATE);
        let overhead = ratio.map(loss_percent);
        report.promise(&list::OVERHEAD, overhead);
    }
    Ok(report)
}

fn copy(lab: &Lab) -> Launch {
    Launch::gang(lab.threads().min(lab.cpus), &format!("loop --threads {}", lab.threads()))
}

fn together(lab: &Lab, under: &Under) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let length = lab.length(Duration::from_secs(4));
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &vec![copy(lab); COPIES], length)?;
    Ok(sample.with([(RATE, outcomes.iter().map(|outcome| outcome.rate()).sum())]))
}

/// Each copy has the machine for its share of the time.
fn batch(lab: &Lab) -> Result<Sample> {
    let length = lab.length(Duration::from_secs(4));
    let Together { outcomes, sample } = lab.run_in_turn(&vec![copy(lab); COPIES], length)?;
    let rates: f64 = outcomes.iter().map(|outcome| outcome.rate()).sum();
    Ok(sample.with([(RATE, rates / COPIES as f64)]))
}
