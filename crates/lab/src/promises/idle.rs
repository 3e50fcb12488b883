//! The CPU time that the daemon itself uses while jobs of 16 threads idle and two gangs run.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use gang_linux::clock;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::lab::{Lab, Launch, Span};
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::wait::TIME_LIMIT;
use crate::promises::list;
use crate::workload::window::now_ns;

const SUM: &str = "cpu_percent";
/// The promise is about so many.
const JOBS: usize = 100;
const SLICE: Duration = Duration::from_millis(20);
/// Time in which the daemon notices that jobs are idle.
const SETTLE: Duration = Duration::from_secs(3);

#[derive(Args, Debug, Clone)]
pub struct Idle {
    /// Jobs that idle; the promise is about 100
    #[arg(long, default_value_t = JOBS)]
    pub jobs: usize,
}

impl Idle {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux has no daemon")?;
        ensure!((1..=1000).contains(&self.jobs), "between 1 and 1000 jobs idle");
        let jobs = self.jobs;
        let name = format!("{jobs} idle jobs, 2 gangs");
        let conditions = [Condition::new(name.clone(), |lab| measure(lab, jobs))];
        let run = alternate(lab, "idle", lab.runs(), &conditions)?;
        let about = format!(
            "CPU of the daemon: {jobs} idle jobs of 16 threads, two gangs, slices of 20 ms"
        );
        let mut report = Report::new(lab, about, run, SUM);
        if jobs == JOBS {
            let cpu = report.mean(&name, SUM);
            report.promise(&list::IDLE, cpu);
        }
        Ok(report)
    }
}

fn measure(lab: &Lab, jobs: usize) -> Result<Sample> {
    let daemon = lab.daemon(&lab.settings(DaemonOptions::slice(SLICE)))?;
    let length = lab.length(Duration::from_secs(5));
    // Jobs last longer than the measurement, and are killed when it is over.
    let span = Span::soon(length + 2 * TIME_LIMIT);
    let idle = Launch::gang(lab.cpus, "sleepers --threads 16");
    let gang =
        Launch::gang(lab.threads().min(lab.cpus), &format!("hog --threads {}", lab.threads()));
    let mut running = Vec::new();
    for number in 0..jobs + 2 {
        let copy = if number < jobs { &idle } else { &gang };
        let arguments = [copy.arguments.as_slice(), &span.arguments()].concat();
        running.push(lab.start_workload(Some(&daemon), copy.gang, &arguments)?);
    }
    daemon.wait_for_jobs(jobs + 2)?;
    std::thread::sleep(SETTLE);
    let (daemon_ns, guardian_ns) = cpu_ns(&daemon)?;
    let before = Instant::now();
    std::thread::sleep(length);
    let (daemon_end_ns, guardian_end_ns) = cpu_ns(&daemon)?;
    let elapsed_ns = before.elapsed().as_nanos() as f64;
    let seen = daemon.look_at(now_ns());
    let percent = |ns: u64| ns as f64 / elapsed_ns * 100.0;
    let daemon_percent = percent(daemon_end_ns.saturating_sub(daemon_ns));
    let guardian_percent = percent(guardian_end_ns.saturating_sub(guardian_ns));
    Ok(seen.with([
        (SUM, daemon_percent + guardian_percent),
        ("daemon_percent", daemon_percent),
        ("guardian_percent", guardian_percent),
    ]))
}

/// CPU time of the daemon and of its guardian, where it has one.
fn cpu_ns(daemon: &Daemon) -> Result<(u64, u64)> {
    let guardian = daemon.status()?.pointer("/guardian_pid").and_then(|pid| pid.as_i64());
    let guardian_ns = match guardian {
        Some(pid) => clock::cpu_ns_of(pid as u32)?,
        None => 0,
    };
    Ok((clock::cpu_ns_of(daemon.pid() as u32)?, guardian_ns))
}
