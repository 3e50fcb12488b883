//! Two copies of OpenMP programs with the default settings of their runtimes, over twice the time
//! of one alone.
//!
//! "Alone" is one copy under plain Linux, as a person has it who does not know of gangd; one copy
//! alone as a gang stands beside it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::plain_and_default;
use crate::harness::{Condition, Figures, alternate};
use crate::lab::{Lab, Under};
use crate::openmp::{Program, gauss, numpy};
use crate::report::{Must, Report};

const TIME: &str = "s_for_each_copy";

/// Copies under plain Linux that have not ended by then count as if they had, in favour of plain
/// Linux, and as not ended (`ended`). A third of it with `--quick`.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(lab: &Lab) -> Result<Report> {
    let dir = tempfile::tempdir().context("making a directory for the programs")?;
    let length = lab.length(Duration::from_secs(2));
    let mut programs = vec![gauss(dir.path())?.sized(lab, length)?];
    match numpy(dir.path()) {
        Ok(program) => programs.push(program.sized(lab, length)?),
        Err(error) => eprintln!("gang lab: without numpy: {error:#}"),
    }
    let ways = plain_and_default(lab);
    let mut conditions = Vec::new();
    for program in &programs {
        for (way, under) in &ways {
            for copies in [1, 2] {
                conditions.push(Condition::new(name(program, way, copies), move || {
                    measure(lab, program, under, copies)
                }));
            }
        }
    }
    let run = alternate(lab, "openmp", lab.runs(), &conditions)?;
    let about = "OpenMP programs with default settings, alone and two copies at once";
    let mut report = Report::new(lab, about, run, TIME);
    for program in &programs {
        let alone = name(program, "plain Linux", 1);
        for (way, _) in &ways {
            let ratio = report.ratio(&name(program, way, 2), &alone, TIME);
            if *way == "gangd" {
                report.ratio(&name(program, way, 2), &name(program, way, 1), TIME);
                let what = format!("two copies of {}, time over twice one alone", program.name);
                report.promise(what, Must::AtMost(1.05), "", ratio);
            }
        }
    }
    Ok(report)
}

fn name(program: &Program, way: &str, copies: usize) -> String {
    let copies = if copies == 1 { "alone".into() } else { format!("{copies} copies") };
    format!("{}, {copies}, {way}", program.name)
}

fn measure(lab: &Lab, program: &Program, under: &Under, copies: usize) -> Result<Figures> {
    let daemon = lab.daemon_of(under)?;
    let patience = if lab.options.quick { PATIENCE / 3 } else { PATIENCE };
    let mut running = program.start(lab, daemon.as_ref(), copies)?;
    // Plain Linux may keep two copies from each other for minutes.
    if matches!(under, Under::Plain) {
        running = running.within(patience);
    }
    running.look_at_gangs(lab, daemon.as_ref());
    let time_s = match under {
        Under::Plain => running.finish_in_time()?,
        _ => Some(running.finish()?),
    };
    let ended = f64::from(u8::from(time_s.is_some()));
    let time_s = time_s.unwrap_or(patience.as_secs_f64());
    Ok(Figures::from([(TIME, time_s / copies as f64), ("ended", ended)]))
}
