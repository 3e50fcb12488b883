//! Programs of Open MPI with the communication patterns of six of the NAS Parallel Benchmarks.
//! Ranks verify every word that they receive, and each message has a number.
//!
//! A program goes on until it is told that it is enough. It shares a page with the lab: how far it
//! is, and what each rank has sent and received.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::harness::child::Running;
use crate::harness::compiled::compile_by;
use crate::harness::daemon::Daemon;
use crate::harness::wait::wait_until;
use crate::workload::ranks::PAGE_C;

const PATTERNS_C: &str = include_str!("wires/patterns.c");
const COMPILER: (&str, &str) = ("mpicc.openmpi", "the packages openmpi-bin and libopenmpi-dev");

/// The page of a program: its bytes, the number that tells it to end, and the figures of ranks.
const PAGE: u64 = 4096;
const STOP: u64 = 62;
const OF_RANK: u64 = 64;
const FIGURES: u64 = 8;
/// Programs that are told to end do so after their step. Under plain Linux one can take seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// How ranks send their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// As `gang run --net` has it.
    Gang,
    /// Open MPI's own shared memory.
    Shared,
    /// Open MPI's own TCP, over loopback.
    Tcp,
}

impl Medium {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Medium::Gang => &[],
            Medium::Shared => &["--mca", "pml", "ob1", "--mca", "btl", "vader,self"],
            Medium::Tcp => &[
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "tcp,self",
                "--mca",
                "btl_tcp_if_include",
                "lo",
            ],
        }
    }
}

pub fn compile(dir: &Path) -> Result<PathBuf> {
    compile_by(COMPILER, dir, "patterns", &format!("{PAGE_C}\n{PATTERNS_C}"), &["-lm"])
}

/// The command of an MPI program: a gang where there is a daemon. It is not bound: ranks of all
/// programs would have the same CPUs.
pub fn command(
    daemon: Option<&Daemon>,
    medium: Medium,
    ranks: usize,
    program: &[String],
) -> Command {
    let mut command = match daemon {
        Some(daemon) => {
            let more: &[&str] = if medium == Medium::Gang { &["--net"] } else { &[] };
            let mut command = daemon.gang_run_with(more, ranks, None);
            command.arg("mpirun.openmpi");
            command
        }
        None => Command::new("mpirun.openmpi"),
    };
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    command.args(medium.arguments()).args(["-n", &ranks.to_string()]).args(program);
    command
}

/// Messages as ranks count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub sent: i64,
    pub received: i64,
    /// Numbers that did not come when they were due.
    missing: i64,
    pub doubled: i64,
    /// Words that are not as they were sent, and sums that are wrong.
    pub wrong: i64,
}

impl Counts {
    fn of_rank(numbers: [i64; 5]) -> Counts {
        let [sent, received, missing, doubled, wrong] = numbers;
        Counts { sent, received, missing, doubled, wrong }
    }

    /// Of several ranks or programs.
    pub fn of_all(all: impl Iterator<Item = Counts>) -> Counts {
        all.fold(Counts::default(), |sum, of| Counts {
            sent: sum.sent + of.sent,
            received: sum.received + of.received,
            missing: sum.missing + of.missing,
            doubled: sum.doubled + of.doubled,
            wrong: sum.wrong + of.wrong,
        })
    }

    /// Messages that were sent and never came, of programs that have ended.
    pub fn lost(&self) -> i64 {
        self.missing.max(self.sent - self.received)
    }
}

/// A program that runs. It is killed with this.
pub struct Program {
    running: Option<Running>,
    page: File,
    ranks: usize,
}

impl Program {
    /// Starts a pattern; `name` tells its page from others in `dir`.
    pub fn start(
        daemon: Option<&Daemon>,
        medium: Medium,
        ranks: usize,
        (program, pattern): (&Path, &str),
        (dir, name): (&Path, &str),
    ) -> Result<Program> {
        let path = dir.join(name);
        let page = File::options().create(true).read(true).write(true).truncate(true).open(&path);
        let page = page.context("making a program's page")?;
        page.set_len(PAGE).context("making a program's page")?;
        let words = [program.display().to_string(), path.display().to_string(), pattern.into()];
        let running = Running::start(&mut command(daemon, medium, ranks, &words))?;
        Ok(Program { running: Some(running), page, ranks })
    }

    /// Waits for its first step.
    pub fn until_it_steps(&mut self) -> Result<()> {
        wait_until("a program of MPI makes its first step", || {
            let has_ended = self.running.as_mut().is_some_and(|it| it.ends_by(Instant::now()));
            if self.steps()? > 0 {
                return Ok(true);
            }
            if let Some(running) = self.running.take_if(|_| has_ended) {
                running.finish(Instant::now())?;
            }
            ensure!(self.running.is_some(), "a program of MPI ended before its first step");
            Ok(false)
        })
    }

    fn number(&self, at: u64) -> Result<i64> {
        let mut bytes = [0; 8];
        self.page.read_exact_at(&mut bytes, 8 * at).context("reading a program's page")?;
        Ok(i64::from_ne_bytes(bytes))
    }

    pub fn steps(&self) -> Result<i64> {
        self.number(0)
    }

    pub fn tell_to_end(&self) -> Result<()> {
        let told = self.page.write_all_at(&1_i64.to_ne_bytes(), 8 * STOP);
        told.context("writing to a program's page")
    }

    /// Waits for its end; returns what its ranks have counted.
    pub fn finish(mut self) -> Result<Counts> {
        if let Some(running) = self.running.take() {
            running.finish(Instant::now() + LIMIT)?;
        }
        let of_rank = |rank: usize| -> Result<Counts> {
            let mut numbers = [0; 5];
            for (number, at) in numbers.iter_mut().zip(0..) {
                *number = self.number(OF_RANK + FIGURES * rank as u64 + at)?;
            }
            Ok(Counts::of_rank(numbers))
        };
        let all: Vec<Counts> = (0..self.ranks).map(of_rank).collect::<Result<_>>()?;
        Ok(Counts::of_all(all.into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_never_came_is_lost() {
        let ranks = [[10, 8, 0, 0, 0], [9, 10, 1, 2, 3]];
        let all = Counts::of_all(ranks.into_iter().map(Counts::of_rank));
        assert_eq!((all.sent, all.received, all.doubled, all.wrong), (19, 18, 2, 3));
        assert_eq!(all.lost(), 1);
        let gap = Counts::of_rank([10, 10, 2, 2, 0]);
        assert_eq!(gap.lost(), 2, "two came twice in the place of two others");
    }

    #[test]
    fn patterns_lose_nothing_needs_open_mpi() {
        let dir = tempfile::tempdir().unwrap();
        let program = match compile(dir.path()) {
            Ok(program) => program,
            Err(error) => return gang_harness::skipped(format!("{error:#}")),
        };
        for pattern in ["lu", "cg", "mg", "sp", "is", "ft"] {
            let place = (dir.path(), pattern);
            let mut running =
                Program::start(None, Medium::Shared, 3, (&program, pattern), place).unwrap();
            running.tell_to_end().unwrap();
            running.until_it_steps().unwrap();
            let counts = running.finish().unwrap();
            assert!(counts.sent > 0, "{pattern}");
            let expected = Counts { sent: counts.sent, received: counts.sent, ..Counts::default() };
            assert_eq!(counts, expected, "{pattern}");
        }
    }
}
