//! Real programs, as their users have them: of OpenMP and of MPI, scripts that compute with a
//! library, a simulation of molecules, a virtual machine. All run with the default settings of
//! their runtime. Those that are not installed say what to install.

mod amount;
mod copies;
mod gromacs;
mod mpi;
mod openmp;
mod qemu;
mod scripts;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::harness::child::Running;
use crate::harness::daemon::Daemon;
use crate::harness::duration;
use crate::harness::lab::{Gang, Lab};
use crate::workload::window::now_ns;
pub use amount::{Amount, SOLVED};
pub use copies::Copies;
use copies::LIMIT;
pub use gromacs::gromacs;
pub use mpi::{mpi4py, mpich, open_mpi};
pub use openmp::{Wait, gauss};
pub use qemu::qemu;
pub use scripts::{java, lightgbm, numpy, onnxruntime, pytorch, r, scikit_learn};

/// A program that takes the size of its problem and how many times to solve it.
#[derive(Clone)]
pub struct Program {
    pub name: &'static str,
    command: Vec<String>,
    /// How often it solves its problem.
    pub times: u64,
    done: Done,
}

/// When a program is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    /// When it reports so: its last line is JSON with `finished_at_ns`.
    Reported,
    /// When it has ended. It can say nothing of the kind.
    Ended,
}

impl Program {
    /// One that says when it is done, of a command that takes how many times after its last word.
    fn new(name: &'static str, command: Vec<String>) -> Program {
        Program { name, command, times: 1, done: Done::Reported }
    }

    /// The same program with so much to do.
    pub fn with_times(self, times: u64) -> Program {
        Program { times, ..self }
    }

    /// Gives the program as much to do as takes about `length` alone on this machine.
    pub fn sized(mut self, lab: &Lab, length: Duration) -> Result<Self> {
        // The difference between two runs leaves out their start; of several, the best was the
        // least disturbed. Of few that take long the start is a small part.
        const FEW: u64 = 2;
        const MORE: u64 = 22;
        const LONG_S: f64 = 2.0;
        let mut program = self.clone();
        let mut alone_s = |times| -> Result<f64> {
            program.times = times;
            let mut best_s = f64::INFINITY;
            for _ in 0..3 {
                best_s = best_s.min(program.start(lab, None, 1)?.finish()?);
            }
            Ok(best_s)
        };
        let what = format!("{} in {}", self.name, duration::show(length));
        self.times = lab.amount(&what, || {
            let few_s = alone_s(FEW)?;
            let once_s = match few_s > LONG_S {
                true => few_s / FEW as f64,
                false => (alone_s(MORE)? - few_s) / (MORE - FEW) as f64,
            };
            Ok(((length.as_secs_f64() / once_s.max(1e-4)) as u64).clamp(FEW, 10_000))
        })?;
        Ok(self)
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = self.command.clone();
        arguments.push(self.times.to_string());
        arguments
    }

    /// Starts copies at once: as gangs of the daemon where there is one.
    pub fn start(&self, lab: &Lab, daemon: Option<&Daemon>, copies: usize) -> Result<Copies> {
        let gang = Gang { cpus: lab.cpus, weight: None };
        let started_at_ns = now_ns();
        let deadline = Instant::now() + LIMIT;
        let mut running = Vec::new();
        for _ in 0..copies {
            running.push(lab.start(daemon, Some(gang), &self.arguments())?);
        }
        Ok(Copies { running, started_at_ns, deadline, done: self.done })
    }
}

/// Makes sure that a program can be run, by an option with which it ends at once; an error says
/// what to install.
fn needs(program: &str, option: &str, packages: &str) -> Result<()> {
    Running::start(Command::new(program).arg(option))
        .and_then(|running| running.finish(Instant::now() + LIMIT))
        .with_context(|| format!("install {packages}"))?;
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use std::path::Path;

    use super::*;

    /// Runs a program with a small problem, or says why it cannot be had here.
    pub fn runs_or_says_why_not(find: impl Fn(&Path) -> Result<Program>) {
        let dir = tempfile::tempdir().unwrap();
        let mut program = match find(dir.path()) {
            Ok(program) => program.with_times(2),
            Err(error) => return gang_harness::skipped(format!("{error:#}")),
        };
        *program.command.last_mut().unwrap() = "40".into();
        let lab = Lab::new(&crate::harness::options::Options::default()).unwrap();
        assert!(program.start(&lab, None, 1).unwrap().finish().unwrap() > 0.0);
    }
}
