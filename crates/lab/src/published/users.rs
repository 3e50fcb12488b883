//! The reports of users of today's software: several jobs of a numerical library or of MPI at once,
//! each with a thread or rank for every CPU, are many times slower than one after the other. Four
//! jobs at once, under plain Linux and as gangs, with the default settings of their runtimes.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::plain_and_default;
use crate::harness::lab::{Lab, Under};
use crate::harness::real_programs::{
    Amount, Program, SOLVED, mpi4py, numpy, open_mpi, pytorch, scikit_learn,
};
use crate::harness::report::Report;
use crate::harness::verdict::Better;

const TIME: &str = "s_for_each_job";
const JOBS: usize = 4;
const NO_SOURCE: &str = "packages come without them, --mpi4py names its source; ranks of Open MPI that exchange values \
                         stand for them";

#[derive(Args, Debug, Clone, Default)]
pub struct Users {
    #[command(flatten)]
    pub amount: Amount,
    /// Unpacked source of mpi4py of the version that is installed, whose own tests are run too
    /// (pip download --no-deps --no-binary :all: mpi4py==VERSION)
    #[arg(long, value_name = "DIR")]
    pub mpi4py: Option<PathBuf>,
}

impl Users {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        self.amount.check()?;
        if let Some(source) = &self.mpi4py {
            let is_there = source.join("test/mpiunittest.py").is_file();
            ensure!(is_there, "{} is no source of mpi4py: it has no tests", source.display());
        }
        run(lab, self)
    }
}

fn run(lab: &Lab, users: &Users) -> Result<Report> {
    let limit = Some(users.amount.time_limit(lab));
    let dir = tempfile::tempdir().context("making a directory for the programs")?;
    let length = lab.length(Duration::from_secs(1));
    let with_work = |program: Program| users.amount.give(program, lab, length);
    let tests = match &users.mpi4py {
        Some(source) => mpi4py(dir.path(), lab.cpus, source),
        None => Err(anyhow!(NO_SOURCE)),
    };
    let mut programs = Vec::new();
    let mut notes = Vec::new();
    for (name, program) in [
        ("numpy (OpenBLAS)", numpy(dir.path()).and_then(with_work)),
        ("PyTorch (pytorch 3021)", pytorch(dir.path()).and_then(with_work)),
        ("scikit-learn", scikit_learn(dir.path()).and_then(with_work)),
        ("Open MPI", open_mpi(dir.path(), lab.cpus).and_then(with_work)),
        // All of them once is what their users run.
        (
            "mpi4py's own tests (open-mpi/ompi 10426)",
            tests.map(|tests| tests.with_times(users.amount.times().unwrap_or(1))),
        ),
    ] {
        match program {
            Ok(program) => programs.push(program),
            Err(error) => notes.push(format!("{name}: {error:#}.")),
        }
    }
    ensure!(!programs.is_empty(), "nothing to run: {}", notes.join(" "));
    let ways = plain_and_default(lab);
    let mut conditions = Vec::new();
    for program in &programs {
        conditions.push(Condition::new(name(program, "alone"), move |lab| {
            program.measure(lab, &Under::Plain, (1, TIME), limit)
        }));
        for (way, under) in &ways {
            conditions.push(Condition::new(name(program, way), move |lab| {
                program.measure(lab, under, (JOBS, TIME), limit)
            }));
        }
    }
    let run = alternate(lab, "users", lab.runs(), &conditions)?;
    let about = format!("{JOBS} jobs of numerical libraries and of MPI at once, default settings");
    let mut report = Report::new(lab, about, run, TIME);
    report.notes.extend(notes);
    for program in &programs {
        for figure in [TIME, SOLVED] {
            report.ratio(&name(program, "plain Linux"), &name(program, "alone"), figure);
            report.ratio(&name(program, "gangd"), &name(program, "alone"), figure);
        }
        report.judge(&name(program, "gangd"), &name(program, "plain Linux"), TIME, Better::Less);
    }
    Ok(report)
}

fn name(program: &Program, way: &str) -> String {
    match way {
        "alone" => format!("{}, alone", program.name),
        way => format!("{}, {JOBS} at once, {way}", program.name),
    }
}
