//! Copies of a program with serial phases, in which a strict gang leaves CPUs idle (X6, X7): one
//! after the other, under plain Linux, as gangs that fill no holes, and as gangs that do.
//!
//! On two CPUs the copies' work alone cannot be done in less than half the time of batch. What
//! allows for it is that a CPU left idle at a serial phase has to be woken for the next parallel
//! one, which costs tens of microseconds and more in a virtual machine; filled, it never sleeps.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use crate::daemon::Settings;
use crate::harness::{Condition, Figures, alternate};
use crate::lab::{Gang, Lab, Span, Under, words};
use crate::report::{Must, Report};
use crate::workload::phases::PhasesOutcome;
use crate::workload::window::sleep_until_ns;

pub const TIME: &str = "time_to_finish_s";
const CPUS_USED: &str = "cpus_used";
/// A copy that has not finished by then stops. Under plain Linux that happens, and it counts as if it had; elsewhere
/// there is nothing to compare then. A third of it with `--quick`.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Args, Debug, Clone)]
pub struct Fill {
    /// Copies that run
    #[arg(long, default_value_t = 4)]
    pub copies: usize,
    /// Pairs of a parallel and a serial phase [default: 8000, with --quick 2000]
    #[arg(long)]
    pub rounds: Option<u64>,
}

impl Default for Fill {
    fn default() -> Self {
        Self { copies: 4, rounds: None }
    }
}

impl Fill {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        ensure!((1..=100).contains(&self.copies), "between 1 and 100 copies run");
        let gangd =
            |no_fill| Under::Gangd(lab.settings(Settings { no_fill, ..Settings::default() }));
        let copies = &vec![self.arguments(lab); self.copies];
        let mut conditions = vec![
            Condition::new("batch", || batch(lab, copies)),
            Condition::new("plain Linux", || together(lab, &Under::Plain, copies)),
        ];
        if !lab.options.plain {
            let measure = move || together(lab, &gangd(true), copies);
            conditions.push(Condition::new("gang without filling", measure));
            let measure = move || together(lab, &gangd(false), copies);
            conditions.push(Condition::new("gang", measure));
        }
        let about = format!(
            "{} copies of a program of {} threads with serial phases",
            self.copies,
            lab.threads()
        );
        let run = alternate(lab, "fill", lab.runs(), &conditions)?;
        let mut report = Report::new(lab, about, run, TIME);
        report.ratio("gang without filling", "batch", TIME);
        report.ratio("plain Linux", "batch", TIME);
        if !lab.options.plain {
            for over in ["plain Linux", "batch"] {
                let ratio = report.ratio("gang", over, TIME);
                let what = format!("fill, {} copies, time over {over}", self.copies);
                report.promise(what, Must::AtMost(0.5), "", ratio);
            }
        }
        Ok(report)
    }

    fn arguments(&self, lab: &Lab) -> Vec<String> {
        let rounds = self.rounds.unwrap_or(if lab.options.quick { 2_000 } else { 8_000 });
        let limit = if lab.options.quick { LIMIT / 3 } else { LIMIT };
        let (threads, limit_s) = (lab.threads(), limit.as_secs());
        words(&format!("phases --threads {threads} --rounds {rounds} --limit {limit_s}s"))
    }
}

/// The time that copies take which run one after the other.
pub fn batch(lab: &Lab, copies: &[Vec<String>]) -> Result<Figures> {
    let (mut time_s, mut cpu_s) = (0.0, 0.0);
    for arguments in copies {
        let deadline = Instant::now() + 2 * LIMIT;
        let copy = lab.start_workload(None, None, arguments)?;
        let outcome: PhasesOutcome = copy.outcome(deadline)?;
        time_s += outcome.elapsed_ns as f64 / 1e9;
        cpu_s += outcome.cpu_ns as f64 / 1e9;
        ensure!(outcome.finished, "a copy that runs alone did not finish in its time");
    }
    Ok(Figures::from([(TIME, time_s), (CPUS_USED, cpu_s / time_s)]))
}

/// The time that copies take which run at once, until the last of them is done.
pub fn together(lab: &Lab, under: &Under, copies: &[Vec<String>]) -> Result<Figures> {
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
    lab.look_at_gangs_until_done(daemon.as_ref(), &mut running, span.deadline);
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
    Ok(Figures::from([(TIME, time_s), ("unfinished_copies", unfinished as f64)]))
}
