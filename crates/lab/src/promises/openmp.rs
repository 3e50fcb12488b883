//! Two copies of OpenMP programs with the default settings of their runtimes, over twice the time
//! of one alone.
//!
//! "Alone" is one copy under plain Linux, as a person has it who does not know of gangd; one copy
//! alone as a gang stands beside it.
//!
//! `--wait default,active,passive` measures what `gang run` decides for all programs: whether it
//! should say how their threads wait for each other (OMP_WAIT_POLICY).

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::plain_and_default;
use crate::harness::lab::{Lab, Under};
use crate::harness::real_programs::{Amount, Program, Wait, gauss, numpy};
use crate::harness::report::{Promise, Report};
use crate::promises::list;

const TIME: &str = "s_for_each_copy";

#[derive(Args, Debug, Clone, Default)]
pub struct Openmp {
    /// Programs [default: all that are installed]
    #[arg(long, value_delimiter = ',')]
    pub programs: Vec<Which>,
    /// How their threads wait for each other [default: default]
    #[arg(long, value_delimiter = ',')]
    pub wait: Vec<Wait>,
    #[command(flatten)]
    pub amount: Amount,
}

/// A program that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// A Gaussian elimination with libgomp
    Gauss,
    /// numpy on the OpenMP build of OpenBLAS
    Numpy,
}

impl Which {
    fn prepare(self, dir: &Path) -> Result<Program> {
        match self {
            Which::Gauss => gauss(dir),
            Which::Numpy => numpy(dir),
        }
    }

    fn promise(self) -> &'static Promise {
        match self {
            Which::Gauss => &list::OPENMP_GAUSS,
            Which::Numpy => &list::OPENMP_NUMPY,
        }
    }
}

/// A program whose threads wait in one way.
struct Subject {
    which: Which,
    program: Program,
    wait: Wait,
}

impl Subject {
    fn name(&self, way: &str, copies: usize) -> String {
        self.name_waiting(self.wait, way, copies)
    }

    fn name_waiting(&self, wait: Wait, way: &str, copies: usize) -> String {
        let copies = if copies == 1 { "alone".into() } else { format!("{copies} copies") };
        let wait = match wait {
            Wait::Default => "",
            Wait::Active => ", active",
            Wait::Passive => ", passive",
        };
        format!("{}, {copies}, {way}{wait}", self.program.name)
    }
}

impl Openmp {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        self.amount.check()?;
        let dir = tempfile::tempdir().context("making a directory for the programs")?;
        let (subjects, missing) = self.subjects(lab, dir.path())?;
        // Plain Linux may keep two copies from each other for minutes.
        let limit = self.amount.time_limit(lab);
        let limit = move |under: &Under| matches!(under, Under::Plain).then_some(limit);
        let ways = plain_and_default(lab);
        let mut conditions = Vec::new();
        for subject in &subjects {
            for (way, under) in &ways {
                for copies in [1, 2] {
                    conditions.push(Condition::new(subject.name(way, copies), move |lab| {
                        subject.program.measure(lab, under, (copies, TIME), limit(under))
                    }));
                }
            }
        }
        let run = alternate(lab, "openmp", lab.runs(), &conditions)?;
        let about = "OpenMP programs, alone and two copies at once";
        let mut report = Report::new(lab, about, run, TIME);
        if let Some(error) = missing {
            report.notes.push(format!("Without numpy: {error:#}."));
            report.promise(&list::OPENMP_NUMPY, None);
        }
        for subject in &subjects {
            let alone = subject.name("plain Linux", 1);
            for (way, _) in &ways {
                let ratio = report.ratio(&subject.name(way, 2), &alone, TIME);
                if *way == "gangd" {
                    report.ratio(&subject.name(way, 2), &subject.name(way, 1), TIME);
                    if subject.wait == Wait::Default {
                        report.promise(subject.which.promise(), ratio);
                    } else if self.wait.contains(&Wait::Default) {
                        let by_default = subject.name_waiting(Wait::Default, way, 2);
                        report.ratio(&subject.name(way, 2), &by_default, TIME);
                    }
                }
            }
        }
        Ok(report)
    }

    /// Each program in each way to wait, with as much to do in all of them; and why there is no
    /// numpy, where it was not asked for by name.
    fn subjects(&self, lab: &Lab, dir: &Path) -> Result<(Vec<Subject>, Option<anyhow::Error>)> {
        let length = lab.length(Duration::from_secs(2));
        let all = || vec![Which::Gauss, Which::Numpy];
        let which = if self.programs.is_empty() { all() } else { self.programs.clone() };
        let wait = if self.wait.is_empty() { vec![Wait::Default] } else { self.wait.clone() };
        let (mut subjects, mut missing) = (Vec::new(), None);
        for which in which {
            let program = match which.prepare(dir) {
                Ok(program) => program,
                // The other program needs no more than a compiler, and is always measured.
                Err(error) if self.programs.is_empty() && which == Which::Numpy => {
                    missing = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let times = self.amount.give(program.waiting(Wait::Default), lab, length)?.times;
            let waiting =
                |&wait| Subject { which, program: program.waiting(wait).with_times(times), wait };
            subjects.extend(wait.iter().map(waiting));
        }
        Ok((subjects, missing))
    }
}
