//! Copies of a program that run until they are done: one after the other, or all at once.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::harness::lab::{Gang, Lab, Span, Under};
use crate::harness::samples::Sample;
use crate::workload::phases::PhasesOutcome;
use crate::workload::window::sleep_until_ns;

pub const TIME: &str = "time_to_finish_s";
const CPUS_USED: &str = "cpus_used";
/// A copy that has not finished by then stops. Under plain Linux that happens, and it counts as if
/// it had; elsewhere there is nothing to compare then. A third of it with `--quick`.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The time that copies take which run one after the other.
pub fn batch(lab: &Lab, copies: &[Vec<String>]) -> Result<Sample> {
    let (mut time_s, mut cpu_s) = (0.0, 0.0);
    for arguments in copies {
        let deadline = Instant::now() + 2 * LIMIT;
        let copy = lab.start_workload(None, None, arguments)?;
        let outcome: PhasesOutcome = copy.outcome(deadline)?;
        time_s += outcome.elapsed_ns as f64 / 1e9;
        cpu_s += outcome.cpu_ns as f64 / 1e9;
        ensure!(outcome.finished, "a copy that runs alone did not finish in its time");
    }
    Ok(Sample::default().with([(TIME, time_s), (CPUS_USED, cpu_s / time_s)]))
}

/// The time that copies take which run at once, until the last of them is done.
pub fn together(lab: &Lab, under: &Under, copies: &[Vec<String>]) -> Result<Sample> {
    let daemon = lab.daemon_of(under)?;
    let span = Span::soon(2 * LIMIT);
    let gang = Gang { cpus: lab.threads().min(lab.cpus), weight: None };
    let mut running = Vec::new();
    for arguments in copies {
        let start = ["--start-at".into(), span.start_ns.to_string()];
        let arguments = [arguments.as_slice(), &start].concat();
        running.push(lab.start_workload(daemon.as_ref(), Some(gang), &arguments)?);
    }
    sleep_until_ns(span.start_ns);
    let seen = lab.by(daemon.as_ref()).look_until_done(&mut running, span.deadline);
    let mut finished_at_ns = 0;
    let mut unfinished = 0;
    for copy in running {
        let outcome: PhasesOutcome = copy.outcome(span.deadline)?;
        finished_at_ns = finished_at_ns.max(outcome.finished_at_ns);
        unfinished += usize::from(!outcome.finished);
    }
    let is_compared = unfinished == 0 || matches!(under, Under::Plain);
    ensure!(is_compared, "{unfinished} of {} gangs did not finish in their time", copies.len());
    let time_s = finished_at_ns.saturating_sub(span.start_ns) as f64 / 1e9;
    Ok(seen.with([(TIME, time_s), ("unfinished_copies", unfinished as f64)]))
}
