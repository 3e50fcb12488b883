//! L35 and L36: a Gaussian elimination and a matrix multiply beside as many single-threaded
//! competitors as there are CPUs, gang scheduled and not, by the number of threads.
//!
//! MFLOPS are of CPU time, as in the paper: floating-point operations over the CPU time that each
//! thread had. So they say nothing of shares, and fall where threads spend their time waiting for
//! others that do not run. The same program alone on the machine is what there is to reach.
//!
//! The elimination is as large as the paper's, which follows from its 70 CPU-seconds at 28.2
//! MFLOPS. A small one meets so often that what it does follows from how far apart the host of a
//! virtual machine has put the CPUs.

use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::{Lab, Launch, Together, Under};
use crate::harness::picture::{Line, Picture};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::stats::Estimate;
use crate::harness::table::figure;
use crate::harness::verdict::Better;
use crate::promises::list;
use crate::workload::matmul::SIZE;

pub const MFLOPS: &str = "mflops_of_cpu_time";
/// Runs of the paper for each number of threads.
const PUBLISHED: usize = 20;
const LENGTH: Duration = Duration::from_secs(2);
const ALONE: &str = "alone";
const PLAIN: &str = "plain Linux";
const GANG: &str = "gangd";

/// 2/3 of its cube are 70 s of 28.2 MFLOPS.
const EQUATIONS: u64 = 1_430;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// Of so many equations.
    Gauss(u64),
    /// Of so many rows and columns.
    Matmul(u64),
}

#[derive(Args, Debug, Clone)]
pub struct Gauss {
    /// Equations of a system; a barrier comes after each pivot
    #[arg(long, default_value_t = EQUATIONS, value_parser = clap::value_parser!(u64).range(2..=8192))]
    pub size: u64,
}

#[derive(Args, Debug, Clone)]
pub struct Matmul {
    /// Rows and columns of a matrix; a barrier comes after each product
    #[arg(long, default_value_t = SIZE, value_parser = clap::value_parser!(u64).range(1..=8192))]
    pub size: u64,
}

impl Matmul {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        run(lab, Solver::Matmul(self.size))
    }
}

impl Gauss {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        run(lab, Solver::Gauss(self.size))
    }
}

impl Solver {
    pub fn name(self) -> &'static str {
        match self {
            Solver::Gauss(_) => "gauss",
            Solver::Matmul(_) => "matmul",
        }
    }

    fn about(self) -> String {
        match self {
            Solver::Gauss(size) => {
                format!(
                    "Gaussian elimination of {size} equations, a barrier after each pivot (L35)"
                )
            }
            Solver::Matmul(_) => "matrix multiply, a barrier after each product (L36)".into(),
        }
    }

    /// As a workload of the lab.
    fn arguments(self, threads: usize) -> String {
        match self {
            Solver::Gauss(size) => format!("gauss --size {size} --threads {threads}"),
            Solver::Matmul(size) => format!("matmul --size {size} --threads {threads}"),
        }
    }
}

pub fn run(lab: &Lab, solver: Solver) -> Result<Report> {
    let gangd = &lab.gangd();
    let counts = lab.thread_counts();
    let mut conditions = Vec::new();
    for &threads in &counts {
        let condition = |way, under, hogs| {
            Condition::new(name(threads, way), move |lab| {
                measure(lab, solver, threads, under, hogs)
            })
        };
        conditions.push(condition(ALONE, &Under::Plain, 0));
        conditions.push(condition(PLAIN, &Under::Plain, lab.cpus));
        if !lab.options.plain {
            conditions.push(condition(GANG, gangd, lab.cpus));
        }
    }
    let run = alternate(lab, solver.name(), lab.rounds(PUBLISHED), &conditions)?;
    let about = format!("{}, beside {} competitors of one thread", solver.about(), lab.cpus);
    let mut report = Report::new(lab, about, run, MFLOPS);
    report.notes.extend(lab.thread_counts_left_out());
    let ways = [ALONE, PLAIN, GANG];
    let lines = ways.map(|way| {
        let names: Vec<String> = counts.iter().map(|&threads| name(threads, way)).collect();
        let at = counts.iter().zip(&names).map(|(&threads, name)| (threads as f64, name.as_str()));
        Line::of(&report, way, MFLOPS, at)
    });
    report.picture = Some(Picture::lines("threads", "MFLOPS of CPU time", lines.to_vec()));
    if !lab.options.plain {
        compare(&mut report, solver, &counts);
    }
    Ok(report)
}

fn compare(report: &mut Report, solver: Solver, counts: &[usize]) {
    let mut least: Option<Estimate> = None;
    for &threads in counts {
        report.judge(&name(threads, GANG), &name(threads, PLAIN), MFLOPS, Better::More);
        let of_alone = report.ratio(&name(threads, GANG), &name(threads, ALONE), MFLOPS);
        least = match (least, of_alone) {
            (Some(least), Some(ratio)) if ratio.value >= least.value => Some(least),
            (least, ratio) => ratio.or(least),
        };
    }
    let worst =
        |of: &dyn Fn(usize) -> Option<f64>| counts.iter().filter_map(|&n| of(n)).reduce(f64::max);
    let of = |way| worst(&|threads| report.sd_percent(&name(threads, way), MFLOPS));
    let (gang, plain, alone) = (of(GANG), of(PLAIN), of(ALONE));
    let by_round = worst(&|threads| {
        report.sd_percent_by_round(&name(threads, GANG), &name(threads, ALONE), MFLOPS)
    });
    if let (Some(gang), Some(plain), Some(alone), Some(by_round), true) =
        (gang, plain, alone, by_round, report.compared)
    {
        let [gang, plain, alone, by_round] = [gang, plain, alone, by_round].map(figure);
        report.verdict.push(format!(
            "At worst the standard deviation is {gang} % of the mean as a gang, {plain} % under plain Linux, and \
             {alone} % of the machine alone; as a gang over the machine alone, round by round, {by_round} %."
        ));
    }
    if matches!(solver, Solver::Gauss(_)) {
        let samples = report.rounds;
        let sd = gang.map(|value| Estimate { value, interval: None, samples });
        report.promise(&list::GAUSS_SD, sd);
        report.promise(&list::GAUSS_MEAN, least);
    }
}

fn name(threads: usize, way: &str) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{threads} thread{plural}, {way}")
}

/// One solver beside hogs that are not registered.
pub fn measure(
    lab: &Lab,
    solver: Solver,
    threads: usize,
    under: &Under,
    hogs: usize,
) -> Result<Sample> {
    let mut copies = vec![Launch::gang(threads.min(lab.cpus), &solver.arguments(threads))];
    copies.extend(vec![Launch::unregistered("hog --threads 1"); hogs]);
    let daemon = lab.daemon_of(under)?;
    let Together { outcomes, sample } =
        lab.run_together(lab.by(daemon.as_ref()), &copies, lab.length(LENGTH))?;
    let solved = &outcomes[0];
    Ok(sample.with([
        (MFLOPS, solved.rate_by_cpu() / 1e6),
        ("mflops_of_elapsed_time", solved.rate() / 1e6),
        ("cpus_used", solved.cpu_ns as f64 / solved.elapsed_ns as f64),
    ]))
}
