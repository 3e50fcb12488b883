//! Kills a daemon and watches until every thread of the programs given is as it would be without
//! one.
//!
//! The watcher has to run while gangs hold all CPUs, so it is to be started above them (`chrt -f`);
//! an ordinary one would act only in the gaps, when no gang is raised anyway.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::seconds;
use super::window::{now_ns, sleep_until_ns};
use crate::harness::proc;

/// Time between two looks.
const STEP: Duration = Duration::from_micros(200);

#[derive(Args, Debug, Clone)]
pub struct Release {
    /// The process that is killed
    #[arg(long)]
    pub kill: i32,
    /// Processes whose threads are watched
    #[arg(long, value_delimiter = ',', required = true)]
    pub watch: Vec<i32>,
    /// When to kill, in nanoseconds since 1970
    #[arg(long, value_name = "NS")]
    pub at: u64,
    /// Give up after this long
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub limit: Duration,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReleaseOutcome {
    pub workload: String,
    /// Threads that the daemon held, in one way or another, when it was killed.
    pub raised_before: usize,
    /// Time from the kill to the first look that found no thread held.
    pub released_after_ns: u64,
    /// False where the limit came first.
    pub released: bool,
}

impl Release {
    pub fn run(&self) -> Result<ReleaseOutcome> {
        let pid = Pid::from_raw(self.kill).context("a pid is above 0")?;
        // No daemon has the one that started this.
        let free = Pid::as_raw(rustix::process::getppid());
        let count = || proc::held_threads(Path::new("/proc"), &self.watch, free);
        sleep_until_ns(self.at.min(now_ns() + 60_000_000_000));
        let raised_before = count();
        kill_process(pid, Signal::KILL).with_context(|| format!("killing process {pid:?}"))?;
        let killed_at_ns = now_ns();
        let limit_ns = killed_at_ns + self.limit.as_nanos() as u64;
        loop {
            let held = count();
            let now_ns = now_ns();
            if held == 0 || now_ns >= limit_ns {
                return Ok(ReleaseOutcome {
                    workload: "release".into(),
                    raised_before,
                    released_after_ns: now_ns - killed_at_ns,
                    released: held == 0,
                });
            }
            std::thread::sleep(STEP);
        }
    }
}
