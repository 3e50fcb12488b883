//! Two users of the same weight, of whom the one has many gangs and the other one: each is to have
//! half of the CPU time.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::harness::alternate::{Condition, alternate};
use crate::harness::child::Running;
use crate::harness::daemon::{Daemon, DaemonOptions};
use crate::harness::lab::{Lab, Span, words};
use crate::harness::programs::Programs;
use crate::harness::report::Report;
use crate::harness::samples::Sample;
use crate::harness::users::{ForEverybody, ORDINARY, as_user, needs_root};
use crate::promises::list;
use crate::workload::Outcome;

const SHARE: &str = "share_of_one_percent";
/// The promise is about so many.
const JOBS: usize = 100;
/// A thousand slices, so that one more or less is little.
const LENGTH: Duration = Duration::from_secs(20);
/// Time that a gang has to start.
const LEAD_OF_ONE: Duration = Duration::from_millis(60);
/// Starts of which all but the last may come too late, each with twice the time of the one before.
const STARTS: u32 = 4;

#[derive(Args, Debug, Clone)]
pub struct Accounts {
    /// Gangs of the one user; the promise is about 100
    #[arg(long, default_value_t = JOBS)]
    pub jobs: usize,
}

impl Accounts {
    pub fn run(&self, lab: &Lab) -> Result<Report> {
        lab.needs_gangd("plain Linux knows no users")?;
        needs_root("it runs programs as two other users")?;
        ensure!((1..=1000).contains(&self.jobs), "between 1 and 1000 gangs of one user");
        let for_everybody = ForEverybody::find(&lab.programs)?;
        let name = format!("{} gangs of one user, one of another", self.jobs);
        let measure = |lab: &Lab| measure(lab, &for_everybody.programs, self.jobs);
        let run = alternate(lab, "accounts", lab.runs(), &[Condition::new(name.clone(), measure)])?;
        let about = "the share of a user with one gang beside a user with many";
        let mut report = Report::new(lab, about, run, SHARE);
        if self.jobs == JOBS {
            let share = report.mean(&name, SHARE);
            report.promise(&list::SHARE_OF_USER, share);
        }
        Ok(report)
    }
}

fn measure(lab: &Lab, programs: &Programs, jobs: usize) -> Result<Sample> {
    let daemon = Daemon::start(programs, &lab.settings(DaemonOptions::default()))?;
    daemon.let_everybody_in()?;
    let lead = Duration::from_secs(2) + LEAD_OF_ONE * jobs as u32;
    for times in (0..STARTS).map(|start| 1 << start) {
        let span = Span::after(lead * times, lab.length(LENGTH));
        let [many, one] = ORDINARY;
        let mut gangs = vec![gang(lab, programs, &daemon, one, &span)?];
        for _ in 0..jobs {
            gangs.push(gang(lab, programs, &daemon, many, &span)?);
        }
        let seen = daemon.look(&span);
        let mut outcomes: Vec<Outcome> = Vec::new();
        for gang in gangs {
            outcomes.push(gang.outcome(span.deadline)?);
        }
        if outcomes.iter().any(|outcome| outcome.ready_at_ns > outcome.started_at_ns) {
            continue;
        }
        let all: u64 = outcomes.iter().map(|outcome| outcome.cpu_ns).sum();
        let share = outcomes[0].cpu_ns as f64 / all.max(1) as f64 * 100.0;
        return Ok(seen.with([(SHARE, share)]));
    }
    bail!("{} gangs could not start before their measurement, {STARTS} times", jobs + 1)
}

/// A gang of a user that computes on all CPUs.
fn gang(lab: &Lab, programs: &Programs, daemon: &Daemon, uid: u32, span: &Span) -> Result<Running> {
    let mut command = daemon.gang_run(lab.threads().min(lab.cpus), None);
    let hog = format!("hog --threads {}", lab.threads());
    command.arg(&programs.lab).arg("workload").args(words(&hog)).args(span.arguments());
    Running::start(as_user(&mut command, uid))
}
