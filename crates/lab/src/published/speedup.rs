//! L34: the speedup of a compute-bound program on a busy machine, by the number of its threads,
//! with five other runnable threads for every three CPUs.
//!
//! As in the paper it is a speedup by CPU time: how much faster the program is on the CPU time that
//! it was given, not how much of the machine it was given.

use anyhow::Result;
use clap::Args;

use super::solvers::{MFLOPS, Matmul, Solver, measure};
use crate::harness::alternate::{Condition, alternate};
use crate::harness::lab::{Lab, Under};
use crate::harness::picture::{Line, Picture};
use crate::harness::report::Report;
use crate::harness::table::figure;

const WAYS: [&str; 2] = ["plain Linux", "gangd"];

#[derive(Args, Debug, Clone)]
pub struct Speedup {
    #[command(flatten)]
    pub matmul: Matmul,
}

impl Speedup {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        run(lab, Solver::Matmul(self.matmul.size))
    }
}

fn run(lab: &Lab, solver: Solver) -> Result<Report> {
    let unders = [Under::Plain, lab.gangd()];
    let ways = if lab.options.plain { 1 } else { 2 };
    let mut counts = lab.thread_counts();
    // One thread is what the others are compared with.
    if counts.first() != Some(&1) {
        counts.insert(0, 1);
    }
    let others = lab.cpus * 5 / 3;
    let mut conditions = Vec::new();
    for &threads in &counts {
        for (way, under) in WAYS.iter().zip(&unders).take(ways) {
            conditions.push(Condition::new(name(threads, way), move |lab| {
                measure(lab, solver, threads, under, others)
            }));
        }
    }
    let run = alternate(lab, "speedup", lab.runs(), &conditions)?;
    let about =
        format!("speedup of a compute-bound program beside {others} runnable threads (L34)");
    let mut report = Report::new(lab, about, run, MFLOPS);
    report.notes.extend(lab.thread_counts_left_out());
    let most = counts.last().copied().unwrap_or(1);
    let mut lines = Vec::new();
    for way in &WAYS[..ways] {
        let mut points = Vec::new();
        for &threads in &counts {
            let Some(ratio) = report.ratio(&name(threads, way), &name(1, way), MFLOPS) else {
                continue;
            };
            let [low, high] = ratio.interval.unwrap_or([ratio.value; 2]);
            points.push([threads as f64, ratio.value, low, high]);
            if threads == most && threads > 1 {
                report.verdict.push(format!(
                    "{most} threads are {} times as fast as one under {way}, an efficiency of {} % \
                     (LLNL: 95.6 % with 11 threads on 12 CPUs).",
                    figure(ratio.value),
                    figure(ratio.value / most as f64 * 100.0)
                ));
            }
        }
        lines.push(Line::new(*way, points));
    }
    let ideal = counts.iter().map(|&threads| [threads as f64; 4]).collect();
    lines.push(Line::new("ideal", ideal));
    report.picture = Some(Picture::lines("threads", "speedup by CPU time", lines));
    Ok(report)
}

fn name(threads: usize, way: &str) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{threads} thread{plural}, {way}")
}
