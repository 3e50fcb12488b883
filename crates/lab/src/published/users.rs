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
use crate::harness::real_programs::{Program, mpi4py, numpy, open_mpi, pytorch, scikit_learn};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::verdict::Better;
use crate::workload::seconds;

const TIME: &str = "s_for_each_job";
const JOBS: usize = 4;
/// How long jobs are waited for, unless something else is asked for. A third of it with `--quick`.
const TIME_LIMIT: Duration = Duration::from_secs(30);
const NO_SOURCE: &str = "packages come without them, --mpi4py names its source; ranks of Open MPI that exchange values \
                         stand for them";

#[derive(Args, Debug, Clone, Default)]
pub struct Users {
    /// How often each job solves its problem [default: as often as takes --seconds alone]
    #[arg(long)]
    pub times: Option<u64>,
    /// Jobs that have not ended by then are killed, and count as if they had, in favour of who ran
    /// them [default: 30s, with --quick 10s]
    #[arg(long, value_parser = seconds)]
    pub time_limit: Option<Duration>,
    /// Unpacked source of mpi4py of the version that is installed, whose own tests are run too
    /// (pip download --no-deps --no-binary :all: mpi4py==VERSION)
    #[arg(long, value_name = "DIR")]
    pub mpi4py: Option<PathBuf>,
}

impl Users {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        ensure!(self.times != Some(0), "each job solves its problem at least once");
        if let Some(source) = &self.mpi4py {
            let is_there = source.join("test/mpiunittest.py").is_file();
            ensure!(is_there, "{} is no source of mpi4py: it has no tests", source.display());
        }
        let usual = if lab.options.quick { TIME_LIMIT / 3 } else { TIME_LIMIT };
        run(lab, self, self.time_limit.unwrap_or(usual))
    }
}

fn run(lab: &Lab, users: &Users, time_limit: Duration) -> Result<Report> {
    let dir = tempfile::tempdir().context("making a directory for the programs")?;
    let length = lab.length(Duration::from_secs(1));
    let with_work = |program: Program| match users.times {
        Some(times) => Ok(program.with_times(times)),
        None => program.sized(lab, length),
    };
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
            tests.map(|tests| tests.with_times(users.times.unwrap_or(1))),
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
            measure(lab, program, &Under::Plain, 1, time_limit)
        }));
        for (way, under) in &ways {
            conditions.push(Condition::new(name(program, way), move |lab| {
                measure(lab, program, under, JOBS, time_limit)
            }));
        }
    }
    let run = alternate(lab, "users", lab.runs(), &conditions)?;
    let about = format!("{JOBS} jobs of numerical libraries and of MPI at once, default settings");
    let mut report = Report::new(lab, about, run, TIME);
    report.notes.extend(notes);
    for program in &programs {
        report.ratio(&name(program, "plain Linux"), &name(program, "alone"), TIME);
        report.ratio(&name(program, "gangd"), &name(program, "alone"), TIME);
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

fn measure(
    lab: &Lab,
    program: &Program,
    under: &Under,
    jobs: usize,
    time_limit: Duration,
) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let mut running = program.start(lab, daemon.as_ref(), jobs)?.within(time_limit);
    let seen = running.look(lab.by(daemon.as_ref()));
    let time_s = running.finish_in_time()?;
    let ended = f64::from(u8::from(time_s.is_some()));
    let time_s = time_s.unwrap_or(time_limit.as_secs_f64());
    Ok(seen.with([(TIME, time_s / jobs as f64), ("ended", ended)]))
}
