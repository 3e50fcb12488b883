//! The work that real programs get, and what it took copies of them.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use super::Program;
use super::copies::{latest_s, solved_per_s};
use crate::harness::lab::{Lab, Under};
use crate::harness::samples::Sample;
use crate::workload::seconds;

/// How long copies are waited for, unless something else is asked for. A third of it with
/// `--quick`.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How often all copies solved their problem a second, of programs that say it.
pub const SOLVED: &str = "solved_per_s";

/// How much programs do, and how long they are waited for.
#[derive(Args, Debug, Clone, Default)]
pub struct Amount {
    /// How often each solves its problem [default: as often as takes --seconds alone]
    #[arg(long)]
    times: Option<u64>,
    /// Copies that have not ended by then are killed, and count as if they had, in favour of how
    /// they ran: under plain Linux, and in `users` as gangs too [default: 30s, with --quick 10s]
    #[arg(long, value_parser = seconds)]
    time_limit: Option<Duration>,
}

impl Amount {
    pub fn check(&self) -> Result<()> {
        ensure!(self.times != Some(0), "each program solves its problem at least once");
        Ok(())
    }

    /// How often each solves its problem, where somebody has said so.
    pub fn times(&self) -> Option<u64> {
        self.times
    }

    pub fn time_limit(&self, lab: &Lab) -> Duration {
        let usual = if lab.options.quick { TIME_LIMIT / 3 } else { TIME_LIMIT };
        self.time_limit.unwrap_or(usual)
    }

    /// The program with as much to do as was asked for, or as takes about `length` alone.
    pub fn give(&self, program: Program, lab: &Lab, length: Duration) -> Result<Program> {
        match self.times {
            Some(times) => Ok(program.with_times(times)),
            None => program.sized(lab, length),
        }
    }
}

impl Program {
    /// Measures copies at once: the seconds for each, by the name `time`, and whether all ended.
    /// Where there is a limit, those that have not ended by then count as if they had, but in what
    /// all solved a second.
    pub fn measure(
        &self,
        lab: &Lab,
        under: &Under,
        (copies, time): (usize, &'static str),
        limit: Option<Duration>,
    ) -> Result<Sample> {
        let daemon = lab.daemon_of(under)?;
        let mut running = self.start(lab, daemon.as_ref(), copies)?;
        if let Some(limit) = limit {
            running = running.within(limit);
        }
        let seen = running.look(lab.by(daemon.as_ref()));
        let ends = running.finish_each()?;
        let (time_s, ended) = match (latest_s(&ends), limit) {
            (Some(time_s), _) => (time_s, 1.0),
            (None, Some(limit)) => (limit.as_secs_f64(), 0.0),
            (None, None) => bail!("a copy did not end in its time and was killed"),
        };
        let solved = solved_per_s(&ends).map(|per_s| (SOLVED, per_s));
        let seen = seen.with([(time, time_s / copies as f64), ("ended", ended)]);
        Ok(seen.with_all(solved.into_iter().collect()))
    }
}
