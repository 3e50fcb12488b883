//! What a switch costs: two jobs of 2 to 1,000 threads each alternate, and the daemon's own record
//! of its switches says how long it took to lower the one and raise the other, and how far apart
//! the first and the last thread were (X8).
//!
//! All threads but one sleep, so that nothing competes with the switch for the CPUs; the one keeps
//! its job from being idle, which would have no slots.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::daemon::{Daemon, Settings};
use crate::harness::{Condition, Figures, alternate};
use crate::lab::{Lab, Launch, Span};
use crate::report::{Must, Report};
use crate::workload::window::sleep_until_ns;

const PER_THREAD: &str = "us_per_thread";
const SKEW: &str = "skew_us_p50";
/// Fewer switches than these say nothing about their distribution.
const FEWEST_SWITCHES: f64 = 20.0;

#[derive(Args, Debug, Clone)]
pub struct Switch {
    /// Threads of each of the two jobs [default: 2,16,64,256,1000, with --quick 2,64,1000]
    #[arg(long, value_delimiter = ',')]
    pub sizes: Vec<usize>,
}

impl Switch {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        ensure!(!lab.options.plain, "plain Linux has no switches of gangs");
        let sizes = match (self.sizes.is_empty(), lab.options.quick) {
            (false, _) => self.sizes.clone(),
            (true, true) => vec![2, 64, 1000],
            (true, false) => vec![2, 16, 64, 256, 1000],
        };
        ensure!(sizes.iter().all(|n| (2..=10_000).contains(n)), "sizes are from 2 to 10000");
        let conditions: Vec<_> = sizes
            .iter()
            .map(|threads| Condition::new(name(*threads), || measure(lab, *threads)))
            .collect();
        let run = alternate(lab, "switch", lab.runs(), &conditions)?;
        let about = "a switch between two jobs of as many threads";
        let mut report = Report::new(lab, about, run, PER_THREAD);
        for &threads in &sizes {
            if threads == 64 {
                let cost = report.mean(&name(threads), PER_THREAD);
                let what = "cost of a switch, per thread switched, of 64";
                report.promise(what, Must::AtMost(2.0), "µs", cost);
                let skew = report.mean(&name(threads), SKEW);
                let what = "skew of a switch of 64 threads, median";
                report.promise(what, Must::AtMost(200.0), "µs", skew);
            }
        }
        Ok(report)
    }
}

fn name(threads: usize) -> String {
    format!("{threads} threads")
}

fn measure(lab: &Lab, threads: usize) -> Result<Figures> {
    let daemon = lab.daemon(&lab.settings(Settings::default()))?;
    let span = Span::soon(lab.length(Duration::from_secs(3)));
    // The first thread of the process and the busy one belong to the number.
    let job = Launch::gang(lab.cpus, &format!("sleepers --threads {} --busy 1", threads - 2));
    let arguments = [job.arguments.as_slice(), &span.arguments()].concat();
    let mut jobs = Vec::new();
    for _ in 0..2 {
        jobs.push(lab.start_workload(Some(&daemon), job.gang, &arguments)?);
    }
    sleep_until_ns(span.end_ns() - 100_000_000);
    let figures = figures(&daemon, threads);
    for job in jobs {
        job.finish(span.deadline)?;
    }
    figures
}

fn figures(daemon: &Daemon, threads: usize) -> Result<Figures> {
    let status = daemon.status()?;
    let read = |path: &str| number(&status, path);
    ensure!(
        read("/switches/count")? >= FEWEST_SWITCHES,
        "the two jobs hardly alternated: {} switches",
        read("/switches/count")?
    );
    let cost_us = read("/switches/lower/p50_us")? + read("/switches/raise/p50_us")?;
    Ok(Figures::from([
        // As many threads are lowered as are raised.
        (PER_THREAD, cost_us / (2 * threads) as f64),
        (SKEW, read("/switches/skew/p50_us")?),
        ("skew_us_p99", read("/switches/skew/p99_us")?),
        ("late_us_p50", read("/switches/late/p50_us")?),
        ("late_us_p99", read("/switches/late/p99_us")?),
    ]))
}

/// A number of the daemon's status, by its path.
pub fn number(status: &Value, path: &str) -> Result<f64> {
    let value = status.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("the status of gangd has no number at {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_of_a_status() {
        let status = json!({ "switches": { "count": 7, "skew": { "p50_us": 1.5 } } });
        assert_eq!(number(&status, "/switches/count").unwrap(), 7.0);
        assert_eq!(number(&status, "/switches/skew/p50_us").unwrap(), 1.5);
        let error = number(&status, "/switches/late/p50_us").unwrap_err().to_string();
        assert!(error.contains("/switches/late/p50_us"), "{error}");
    }
}
