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

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::plain_and_default;
use crate::harness::lab::{Lab, Under};
use crate::harness::real_programs::{Program, Wait, gauss, numpy};
use crate::harness::report::{Promise, Report};
use crate::harness::samples::Sample;
use crate::promises::list;
use crate::workload::seconds;

const TIME: &str = "s_for_each_copy";

/// How long copies under plain Linux are waited for, unless something else is asked for. A third of
/// it with `--quick`.
const TIME_LIMIT: Duration = Duration::from_secs(30);

#[derive(Args, Debug, Clone, Default)]
pub struct Openmp {
    /// Programs [default: all that are installed]
    #[arg(long, value_delimiter = ',')]
    pub programs: Vec<Which>,
    /// How their threads wait for each other [default: default]
    #[arg(long, value_delimiter = ',')]
    pub wait: Vec<Wait>,
    /// How often each solves its problem [default: as often as takes --seconds alone]
    #[arg(long)]
    pub times: Option<u64>,
    /// Copies under plain Linux that have not ended by then count as if they had, in favour of
    /// plain Linux, and as not ended [default: 30s, with --quick 10s]
    #[arg(long, value_parser = seconds)]
    pub time_limit: Option<Duration>,
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
        ensure!(self.times != Some(0), "each program solves its problem at least once");
        let dir = tempfile::tempdir().context("making a directory for the programs")?;
        let (subjects, missing) = self.subjects(lab, dir.path())?;
        let usual = if lab.options.quick { TIME_LIMIT / 3 } else { TIME_LIMIT };
        let time_limit = self.time_limit.unwrap_or(usual);
        let ways = plain_and_default(lab);
        let mut conditions = Vec::new();
        for subject in &subjects {
            for (way, under) in &ways {
                for copies in [1, 2] {
                    conditions.push(Condition::new(subject.name(way, copies), move |lab| {
                        measure(lab, &subject.program, under, copies, time_limit)
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
            let times = match self.times {
                Some(times) => times,
                None => program.waiting(Wait::Default).sized(lab, length)?.times,
            };
            let waiting =
                |&wait| Subject { which, program: program.waiting(wait).with_times(times), wait };
            subjects.extend(wait.iter().map(waiting));
        }
        Ok((subjects, missing))
    }
}

fn measure(
    lab: &Lab,
    program: &Program,
    under: &Under,
    copies: usize,
    time_limit: Duration,
) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let mut running = program.start(lab, daemon.as_ref(), copies)?;
    // Plain Linux may keep two copies from each other for minutes.
    if matches!(under, Under::Plain) {
        running = running.within(time_limit);
    }
    let seen = running.look(lab.by(daemon.as_ref()));
    let time_s = match under {
        Under::Plain => running.finish_in_time()?,
        _ => Some(running.finish()?),
    };
    let ended = f64::from(u8::from(time_s.is_some()));
    let time_s = time_s.unwrap_or(time_limit.as_secs_f64());
    Ok(seen.with([(TIME, time_s / copies as f64), ("ended", ended)]))
}
