//! The cost of reading attributes and CPUs of threads back: their owners may choose others at any
//! moment, so that the daemon looks before it changes them, and between.
//!
//! The kernel counts the calls that the daemon makes while two gangs alternate; each is taken to
//! cost what the shortest takes here.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use gang_linux::sched;
use rustix::process::getpriority_process;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::report::Report;
use crate::harness::samples::{Figures, Sample};
use crate::harness::syscalls::{Count, cost};
use crate::harness::wait::TIME_LIMIT;
use crate::promises::list;
use crate::workload::window::{now_ns, sleep_until_ns};

const CPUS: &str = "cpus_percent";
const CALLS: &str = "calls_per_s";
const LENGTH: Duration = Duration::from_secs(5);
/// The promise is about gangs of so many threads.
const PROMISED: [usize; 2] = [2, 64];

#[derive(Args, Debug, Clone)]
pub struct Reading {
    /// Threads of each of the two gangs [default: 2,64]
    #[arg(long, value_delimiter = ',')]
    pub sizes: Vec<usize>,
}

impl Reading {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux reads nothing back")?;
        let sizes = if self.sizes.is_empty() { PROMISED.to_vec() } else { self.sizes.clone() };
        ensure!(sizes.iter().all(|n| (1..=10_000).contains(n)), "sizes are from 1 to 10000");
        let condition =
            |&threads: &usize| Condition::new(name(threads), move |lab| measure(lab, threads));
        let conditions: Vec<_> = sizes.iter().map(condition).collect();
        let run = alternate(lab, "reading", lab.runs(), &conditions)?;
        let about = "reading attributes and CPUs of threads back, two gangs";
        let mut report = Report::new(lab, about, run, CPUS);
        if PROMISED.iter().all(|size| sizes.contains(size)) {
            for (threads, promise) in
                PROMISED.into_iter().zip([&list::READING_2, &list::READING_64])
            {
                report.promise(promise, report.mean(&name(threads), CPUS));
            }
        }
        Ok(report)
    }
}

fn name(threads: usize) -> String {
    format!("2 gangs of {threads} threads")
}

fn measure(lab: &Lab, threads: usize) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::default()))?;
    // Jobs last longer than the measurement, and are killed when it is over.
    let span = Span::soon(lab.length(LENGTH) + 2 * TIME_LIMIT);
    let gang = Launch::gang(lab.cpus, &format!("hog --threads {threads}"));
    let arguments = [gang.arguments.as_slice(), &span.arguments()].concat();
    let costs = [
        ("sched_getattr", cost(|| sched::get_without_nice(0))),
        ("sched_getaffinity", cost(|| sched::affinity(0))),
        ("getpriority", cost(|| getpriority_process(None))),
    ];
    let mut gangs = Vec::new();
    for _ in 0..2 {
        gangs.push(lab.start_workload(Some(&daemon), gang.gang, &arguments)?);
    }
    daemon.wait_for_jobs(2)?;
    sleep_until_ns(span.start_ns);
    let mut counts = Vec::new();
    for (call, cost) in costs {
        counts.push((Count::of(call, daemon.pid())?, cost));
    }
    let (mut before, began) = (Vec::new(), Instant::now());
    for (count, _) in &mut counts {
        before.push(count.read()?);
    }
    std::thread::sleep(lab.length(LENGTH));
    let (mut calls, mut spent_ns) = (0, 0.0);
    for ((count, cost), before) in counts.iter_mut().zip(before) {
        let of_window = count.read()? - before;
        calls += of_window;
        spent_ns += of_window as f64 * cost.as_nanos() as f64;
    }
    let window_s = began.elapsed().as_secs_f64();
    let seen = daemon.look_at(now_ns());
    let of_cpus = spent_ns / 1e9 / window_s / lab.cpus as f64;
    Ok(seen.with_all(Figures::from([
        (CPUS, of_cpus * 100.0),
        (CALLS, calls as f64 / window_s),
        ("getattr_ns", costs[0].1.as_nanos() as f64),
        ("getaffinity_ns", costs[1].1.as_nanos() as f64),
    ])))
}
