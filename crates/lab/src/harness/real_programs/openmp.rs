//! A program of OpenMP that needs no more than a compiler, and how threads of OpenMP wait.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use super::Program;
use crate::harness::compiled::compile;
use crate::harness::lab::words;

const GAUSS: &str = include_str!("../../../../../demo/gauss.c");

/// How threads of OpenMP wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wait {
    /// As the runtime has it, which for libgomp is to spin for a while
    Default,
    /// OMP_WAIT_POLICY=active: they spin
    Active,
    /// OMP_WAIT_POLICY=passive: they block
    Passive,
}

/// The Gaussian elimination, compiled into `dir`.
pub fn gauss(dir: &Path) -> Result<Program> {
    let program = compile(dir, "gauss", GAUSS, &["-lm"])?;
    let command = vec![program.display().to_string(), "500".into()];
    Ok(Program::new("gauss (libgomp)", command))
}

impl Program {
    /// The same program, whose threads wait so, whatever the lab's own environment says.
    pub fn waiting(&self, how: Wait) -> Program {
        let mut command = words("env -u OMP_WAIT_POLICY");
        match how {
            Wait::Default => {}
            Wait::Active => command.push("OMP_WAIT_POLICY=active".into()),
            Wait::Passive => command.push("OMP_WAIT_POLICY=passive".into()),
        }
        command.extend(self.command.iter().cloned());
        Program { command, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::real_programs::tests::runs_or_says_why_not;

    #[test]
    fn gauss_solves_its_system_needs_gcc() {
        runs_or_says_why_not(gauss);
    }
}
