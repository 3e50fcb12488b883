//! How long the calls of libgang take beside 100 jobs, as a program in C sees it: to register, to
//! add the first process of a job and another one, to read the slot page, and to report progress.
//!
//! The jobs sleep, so that what is measured is the calls and not the wait for a CPU. To add a
//! process moves it between groups of the kernel, which can keep a mover until every CPU has been
//! seen to pass through the scheduler.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::compiled::compile_with_libgang;
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::Lab;
use crate::harness::report::{Promise, Report};
use crate::harness::samples::Sample;
use crate::promises::list;

const SOURCE: &str = include_str!("../../../../demo/calls.c");
const JOBS: u32 = 100;
const LIMIT: Duration = Duration::from_secs(600);
const CONDITION: &str = "100 jobs that sleep";

/// The figures of the program, what is promised of them, and how many of the promise's unit one is.
const FIGURES: [(&str, Option<(&Promise, f64)>); 9] = [
    ("register_us_p99", Some((&list::REGISTER, 1e-3))),
    ("register_us_median", None),
    ("add_first_us_p99", Some((&list::ADD_FIRST, 1e-3))),
    ("add_first_us_median", None),
    ("add_another_us_p99", Some((&list::ADD_ANOTHER, 1e-3))),
    ("add_another_us_median", None),
    ("page_read_ns", Some((&list::PAGE_READ, 1.0))),
    ("progress_ns", Some((&list::PROGRESS, 1.0))),
    ("progress_us_max", None),
];

pub fn run(lab: &Lab) -> Result<Report> {
    lab.needs_gangd("plain Linux has no calls of gangd")?;
    let dir = tempfile::tempdir().context("making a directory for the program")?;
    let program = compile_with_libgang(&lab.programs, dir.path(), "calls", SOURCE)?;
    let times = if lab.options.quick { 100 } else { 300 };
    let measure = |lab: &Lab| -> Result<Sample> {
        let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
        let mut command = daemon.program(&program);
        command.args([JOBS.to_string(), times.to_string()]);
        let said: BTreeMap<String, Value> =
            Running::start(&mut command)?.outcome(Instant::now() + LIMIT)?;
        let figure = |name: &str| said.get(name).and_then(Value::as_f64);
        let figures = FIGURES.iter().filter_map(|(name, ..)| Some((*name, figure(name)?)));
        Ok(daemon.sample().with_all(figures.collect()))
    };
    let run = alternate(lab, "calls", lab.runs(), &[Condition::new(CONDITION, measure)])?;
    let about = format!("{times} calls each of a program in C, beside {JOBS} jobs that sleep");
    let mut report = Report::new(lab, about, run, "add_another_us_p99");
    for (name, promise) in FIGURES {
        let Some((promise, scale)) = promise else { continue };
        let measured = report.mean(CONDITION, name);
        report.promise(promise, measured.map(|it| it.scaled(scale)));
    }
    Ok(report)
}
