//! E16: priorities as an alternative to gangs, in five bars. Two BARRIERs of the same priority; one
//! of a high one; the same with 4 ms of spin before a thread blocks; both as gangs; and as gangs of
//! which one has twice the share.
//!
//! A high priority is ten steps of nice above the other's, which takes no privilege: the other is
//! lowered.

use std::time::Duration;

use anyhow::Result;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::{Gang, Lab, Launch, Together, Under, words};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::verdict::Better;

const FIRST: &str = "first_per_s";
const SUM: &str = "both_per_s";
const PUBLISHED: usize = 10;
const IDENTICAL: &str = "same priority";
const HIGH: &str = "first high";
const HIGH_SPIN: &str = "first high, 4 ms of spin";
const GANGS: &str = "gangs";
const LONGER: &str = "gangs, first with twice the share";

pub fn run(lab: &Lab) -> Result<Report> {
    let gangd = &lab.gangd();
    let plain = &Under::Plain;
    let condition = |name, under, nice, spin, weight| {
        Condition::new(name, move |lab| measure(lab, under, nice, spin, weight))
    };
    let mut conditions = vec![
        condition(IDENTICAL, plain, 0, "50us", 100),
        condition(HIGH, plain, 10, "50us", 100),
        condition(HIGH_SPIN, plain, 10, "4ms", 100),
    ];
    if !lab.options.plain {
        conditions.push(condition(GANGS, gangd, 0, "50us", 100));
        conditions.push(condition(LONGER, gangd, 0, "50us", 200));
    }
    let run = alternate(lab, "priority", lab.rounds(PUBLISHED), &conditions)?;
    let mut report = Report::new(lab, "two BARRIERs, by priority and as gangs (E16)", run, SUM);
    report.judge(HIGH, IDENTICAL, SUM, Better::More);
    report.judge(HIGH_SPIN, IDENTICAL, SUM, Better::More);
    report.judge(GANGS, IDENTICAL, SUM, Better::More);
    report.judge(GANGS, HIGH, SUM, Better::More);
    report.judge(LONGER, GANGS, FIRST, Better::More);
    Ok(report)
}

/// The second copy is lowered by `nice`; the first has the weight.
fn measure(lab: &Lab, under: &Under, nice: i32, spin: &str, weight: u32) -> Result<Sample> {
    let (threads, cpus) = (lab.threads(), lab.threads().min(lab.cpus));
    let barrier = format!("barrier --threads {threads} --interval 40us --wait spin-block:{spin}");
    let copy = |nice: i32, weight: u32| {
        // As the lab itself is scheduled, unless a priority is asked for.
        let priority = if nice == 0 { String::new() } else { format!(" --nice {nice}") };
        let arguments = words(&format!("{barrier}{priority}"));
        Launch { arguments, gang: Some(Gang { cpus, weight: Some(weight) }) }
    };
    let daemon = lab.daemon_of(under)?;
    let copies = [copy(0, weight), copy(nice, 100)];
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &copies, lab.length(Duration::from_secs(2)))?;
    let (first, second) = (outcomes[0].rate(), outcomes[1].rate());
    Ok(sample.with([(FIRST, first), ("second_per_s", second), (SUM, first + second)]))
}
