//! The cost of a switch: two jobs of 2 to 1,000 threads each alternate, and the daemon's own record
//! of its switches says how long its switchers worked to lower the one and raise the other, and how
//! far apart the first and the last thread were (X8).
//!
//! With threads that sleep nothing competes with the switch for the CPUs, but for the one that
//! keeps its job from being idle, which would have no slots. With threads that all compute the
//! kernel's queues of them change as well, and each CPU has to be interrupted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use gang_protocol::{client::Client, v1};
use hdrhistogram::Histogram;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::DaemonOptions;
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::report::Report;
use crate::harness::samples::{Figures, Sample};
use crate::harness::wait::TIME_LIMIT;
use crate::promises::list;
use crate::workload::window::{now_ns, sleep_until_ns};

const PER_THREAD: &str = "us_per_thread_p50";
const SKEW: &str = "skew_us_p50";
/// The promise is about so many threads.
const PROMISED: usize = 64;
/// Fewer switches than these say nothing about their distribution.
const FEWEST_SWITCHES: u64 = 20;

#[derive(Args, Debug, Clone)]
pub struct Switch {
    /// Threads of each of the two jobs [default: 2,16,64,256,1000, with --quick 2,64,1000]
    #[arg(long, value_delimiter = ',')]
    pub sizes: Vec<usize>,
}

/// Jobs of more threads alternate in slices of this length.
const LONG_SLICES_FROM: usize = 256;
const LONG_SLICE: Duration = Duration::from_millis(200);

/// For what is asked in between takes CPU time from the switches.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// The work of a job's threads.
#[derive(Clone, Copy)]
enum Doing {
    Sleep,
    Compute,
}

impl Switch {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux has no switches of gangs")?;
        let sizes = match (self.sizes.is_empty(), lab.options.quick) {
            (false, _) => self.sizes.clone(),
            (true, true) => vec![2, 64, 1000],
            (true, false) => vec![2, 16, 64, 256, 1000],
        };
        ensure!(sizes.iter().all(|n| (2..=10_000).contains(n)), "sizes are from 2 to 10000");
        let conditions: Vec<_> = sizes
            .iter()
            .flat_map(|&threads| [(threads, Doing::Sleep), (threads, Doing::Compute)])
            .map(|(threads, doing)| {
                Condition::new(name(threads, doing), move |lab| measure(lab, threads, doing))
            })
            .collect();
        let run = alternate(lab, "switch", lab.runs(), &conditions)?;
        let about = "a switch between two jobs of as many threads";
        let mut report = Report::new(lab, about, run, PER_THREAD);
        let promises = [
            (Doing::Sleep, &list::SWITCH_COST_ASLEEP, &list::SWITCH_SKEW_ASLEEP),
            (Doing::Compute, &list::SWITCH_COST_COMPUTING, &list::SWITCH_SKEW_COMPUTING),
        ];
        for (doing, cost, skew) in promises {
            if sizes.contains(&PROMISED) {
                let condition = name(PROMISED, doing);
                report.promise(cost, report.mean(&condition, PER_THREAD));
                report.promise(skew, report.mean(&condition, SKEW));
            }
        }
        Ok(report)
    }
}

fn name(threads: usize, doing: Doing) -> String {
    match doing {
        Doing::Sleep => format!("{threads} asleep"),
        Doing::Compute => format!("{threads} computing"),
    }
}

fn measure(lab: &Lab, threads: usize, doing: Doing) -> Result<Sample> {
    // An edge of shorter slices has no time for so many.
    let slice = (threads > LONG_SLICES_FROM).then_some(LONG_SLICE);
    let daemon = lab.daemon(&lab.settings(DaemonOptions { slice, ..DaemonOptions::default() }))?;
    let length = lab.length(Duration::from_secs(3));
    // Jobs last longer than the measurement, and are killed when it is over.
    let span = Span::soon(length + 2 * TIME_LIMIT);
    // The first thread of the process, which sleeps, belongs to the number, and one computes in any
    // case.
    let busy = match doing {
        Doing::Sleep => 1,
        Doing::Compute => threads - 1,
    };
    let sleep = threads - 1 - busy;
    let job = Launch::gang(lab.cpus, &format!("sleepers --threads {sleep} --busy {busy}"));
    let arguments = [job.arguments.as_slice(), &span.arguments()].concat();
    let mut jobs = Vec::new();
    for _ in 0..2 {
        jobs.push(lab.start_workload(Some(&daemon), job.gang, &arguments)?);
    }
    let seen = || -> Result<Figures> {
        let mut client = Client::connect(daemon.socket())?;
        sleep_until_ns(span.start_ns);
        let since_ns = gang_linux::clock::utc_ns() as i64;
        sleep_until_ns(span.start_ns + length.as_nanos() as u64);
        // Where a thousand others want the CPUs, gangs have few slots in little time.
        let end = Instant::now() + TIME_LIMIT;
        loop {
            let seen = figures(&client.switches(since_ns)?.switches);
            if seen.is_ok() || Instant::now() >= end {
                return seen;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }();
    let sample = daemon.look_at(now_ns());
    Ok(sample.with_all(seen?))
}

/// Of switches in parts of several switchers each, as many as there are. At a gap the one job is
/// lowered at its beginning and the other raised at its end, else both happen at once.
fn figures(parts: &[v1::Switch]) -> Result<Figures> {
    let mut switches: BTreeMap<i64, Vec<&v1::Switch>> = BTreeMap::new();
    for part in parts {
        switches.entry(part.asked_ns).or_default().push(part);
    }
    let [mut per_thread, mut skew, mut late] =
        [Histogram::<u64>::new(3)?, Histogram::new(3)?, Histogram::new(3)?];
    for parts in switches.values() {
        let sum = |of: fn(&v1::Switch) -> i64| parts.iter().map(|part| of(part)).sum::<i64>();
        let calls = sum(|part| part.lowers + part.raises);
        if calls == 0 {
            continue;
        }
        // All switchers work at once, each for its own CPUs: what they take together is the cost.
        let took_ns = sum(|part| part.raised_ns - part.began_ns);
        per_thread.record(u64::try_from(took_ns / calls).unwrap_or(0))?;
        let late_ns = parts.iter().map(|part| part.began_ns - part.asked_ns).max();
        late.record(late_ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0))?;
        let raising = || parts.iter().filter(|part| part.raises > 0);
        let first_ns = raising().map(|part| part.lowered_ns).min();
        let last_ns = raising().map(|part| part.raised_ns).max();
        if let Some((first_ns, last_ns)) = first_ns.zip(last_ns) {
            skew.record(u64::try_from(last_ns - first_ns).unwrap_or(0))?;
        }
    }
    let count = skew.len();
    ensure!(count >= FEWEST_SWITCHES, "the two jobs hardly alternated: {count} switches");
    let us = |of: &Histogram<u64>, quantile| of.value_at_quantile(quantile) as f64 / 1e3;
    Ok(Figures::from([
        (PER_THREAD, us(&per_thread, 0.5)),
        ("us_per_thread_p99", us(&per_thread, 0.99)),
        (SKEW, us(&skew, 0.5)),
        ("skew_us_p99", us(&skew, 0.99)),
        ("late_us_p50", us(&late, 0.5)),
        ("late_us_p99", us(&late, 0.99)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(switcher: i64, asked_ns: i64, raises: i64, raised_ns: i64) -> v1::Switch {
        v1::Switch {
            switcher,
            number: 0,
            asked_ns,
            began_ns: asked_ns + 1_000,
            lowered_ns: asked_ns + 11_000,
            raised_ns: asked_ns + raised_ns,
            lowers: 10,
            raises,
            clock_bound_ns: None,
        }
    }

    #[test]
    fn parts_of_a_switch_add_up() {
        let switch = |at: i64| [part(0, at, 10, 21_000), part(1, at, 10, 41_000)];
        let mut parts: Vec<_> = (0..30).flat_map(|at| switch(at * 10_000_000)).collect();
        // Into the gap nobody is raised: 10 µs for 10 calls.
        parts.push(part(0, 5_000_000, 0, 11_000));
        let figures = figures(&parts).unwrap();
        // 20 µs and 40 µs for 20 calls each.
        assert!((figures[PER_THREAD] - 1.5).abs() < 0.01, "{figures:?}");
        assert!((figures[SKEW] - 30.0).abs() < 0.1, "{figures:?}");
        assert!((figures["late_us_p99"] - 1.0).abs() < 0.01, "{figures:?}");
    }

    #[test]
    fn a_few_switches_are_no_distribution() {
        let error = figures(&[part(0, 0, 10, 21_000)]).unwrap_err().to_string();
        assert!(error.contains("1 switches"), "{error}");
    }
}
