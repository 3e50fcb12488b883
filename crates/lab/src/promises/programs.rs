//! Two copies at once of nine kinds of real programs, under plain Linux and as gangs, with the
//! default settings of their runtimes; and one alone.
//!
//! "Alone" is one copy under plain Linux, as a person has it who does not know of gangd. Each kind
//! is to do as much work as gangs as under plain Linux. Those whose threads spin for each other are
//! to do as much as one that has the machine for itself.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::plain_and_default;
use crate::harness::lab::{Lab, Under};
use crate::harness::real_programs::{
    Amount, Program, gromacs, java, lightgbm, mpich, numpy, onnxruntime, pytorch, qemu, r,
};
use crate::harness::report::Report;
use crate::harness::stats::Estimate;
use crate::harness::verdict::Better;
use crate::promises::list;

const TIME: &str = "s_for_each_copy";
const COPIES: usize = 2;
const ROUNDS: usize = 3;
/// How long one copy runs alone, but for its start, unless something else is asked for.
const ALONE: Duration = Duration::from_secs(4);

#[derive(Args, Debug, Clone, Default)]
pub struct Programs {
    /// Kinds of programs [default: all that are installed]
    #[arg(long, value_delimiter = ',')]
    pub kinds: Vec<Kind>,
    #[command(flatten)]
    pub amount: Amount,
}

/// A kind of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Training of boosted trees, with libgomp
    Lightgbm,
    /// Inference by a pool of threads
    Onnxruntime,
    /// Ranks that exchange values
    Mpich,
    /// Molecular dynamics of water
    Gromacs,
    /// Threads of Java that allocate, with the parallel collector
    Jvm,
    /// A guest with a virtual CPU for each CPU
    Qemu,
    /// Training of layers, with OpenMP
    Pytorch,
    /// Inverses of matrices by OpenBLAS, with OpenMP
    Numpy,
    /// Processes of the package parallel
    R,
}

impl Kind {
    fn prepare(self, dir: &Path, cpus: usize) -> Result<Program> {
        match self {
            Kind::Lightgbm => lightgbm(dir),
            Kind::Onnxruntime => onnxruntime(dir),
            Kind::Mpich => mpich(dir, cpus),
            Kind::Gromacs => gromacs(dir),
            Kind::Jvm => java(dir),
            Kind::Qemu => qemu(dir, cpus),
            Kind::Pytorch => pytorch(dir),
            Kind::Numpy => numpy(dir),
            Kind::R => r(dir),
        }
    }

    /// Whether its threads or processes spin for each other, as it comes. The JVM's threads block
    /// but for moments at the end of a collection, and R's processes do not meet while they work.
    fn spins(self) -> bool {
        !matches!(self, Kind::Jvm | Kind::R)
    }

    /// Its name on the command line.
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A program of a kind, with as much to do as was chosen.
struct Subject {
    kind: Kind,
    program: Program,
}

impl Programs {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        self.amount.check()?;
        let dir = tempfile::tempdir().context("making a directory for the programs")?;
        let (subjects, missing) = self.subjects(lab, dir.path())?;
        // Plain Linux may keep copies from each other for minutes. One alone is compared with, and
        // so has to end; and a limit in favour of gangs would hide what is promised.
        let limit = self.amount.time_limit(lab);
        let limit = move |under: &Under| matches!(under, Under::Plain).then_some(limit);
        let ways = plain_and_default(lab);
        let mut conditions = Vec::new();
        for Subject { program, .. } in &subjects {
            conditions.push(Condition::new(alone(program), move |lab| {
                program.measure(lab, &Under::Plain, (1, TIME), None)
            }));
            for (way, under) in &ways {
                conditions.push(Condition::new(at_once(program, way), move |lab| {
                    program.measure(lab, under, (COPIES, TIME), limit(under))
                }));
            }
        }
        let run = alternate(lab, "programs", lab.options.runs.unwrap_or(ROUNDS), &conditions)?;
        let about = format!("{COPIES} copies of real programs at once, default settings");
        let mut report = Report::new(lab, about, run, TIME);
        report.notes.extend(missing);
        if !lab.options.plain {
            compare(&mut report, &subjects);
        }
        Ok(report)
    }

    /// The programs that are installed, each with as much to do; and why others are left out.
    fn subjects(&self, lab: &Lab, dir: &Path) -> Result<(Vec<Subject>, Vec<String>)> {
        let kinds = if self.kinds.is_empty() { Kind::value_variants() } else { &self.kinds };
        let length = lab.length(ALONE);
        let (mut subjects, mut missing) = (Vec::new(), Vec::new());
        for &kind in kinds {
            let program = kind.prepare(dir, lab.cpus);
            let program = program.and_then(|program| self.amount.give(program, lab, length));
            match program {
                Ok(program) => subjects.push(Subject { kind, program }),
                Err(error) => missing.push(format!("{}: {error:#}.", kind.word())),
            }
        }
        ensure!(!subjects.is_empty(), "nothing to run: {}", missing.join(" "));
        Ok((subjects, missing))
    }
}

/// Work in the same time is the inverse of time for the same work.
fn compare(report: &mut Report, subjects: &[Subject]) {
    let (mut over_linux, mut over_alone) = (Worst::default(), Worst::default());
    for Subject { kind, program } in subjects {
        let gangs = at_once(program, "gangd");
        let plain = at_once(program, "plain Linux");
        over_linux.add(program, report.judge(&plain, &gangs, TIME, Better::Less));
        let ratio = report.ratio(&alone(program), &gangs, TIME);
        if kind.spins() {
            over_alone.add(program, ratio);
        }
    }
    for (promise, worst) in
        [(&list::PROGRAMS_OVER_LINUX, over_linux), (&list::PROGRAMS_OVER_ALONE, over_alone)]
    {
        if worst.kinds > 0 {
            report.promise_of(promise, &worst.detail(), worst.ratio);
        }
    }
}

/// The least of the ratios of several kinds.
#[derive(Default)]
struct Worst {
    kinds: usize,
    name: &'static str,
    ratio: Option<Estimate>,
}

impl Worst {
    fn add(&mut self, program: &Program, ratio: Option<Estimate>) {
        self.kinds += 1;
        let Some(ratio) = ratio else { return };
        if self.ratio.is_none_or(|least| ratio.value < least.value) {
            (self.name, self.ratio) = (program.name, Some(ratio));
        }
    }

    fn detail(&self) -> String {
        match self.name {
            "" => format!("of {} measured", self.kinds),
            name => format!("{name}, of {} measured", self.kinds),
        }
    }
}

fn alone(program: &Program) -> String {
    format!("{}, alone", program.name)
}

fn at_once(program: &Program, way: &str) -> String {
    format!("{}, {COPIES} at once, {way}", program.name)
}
