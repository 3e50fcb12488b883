//! Two real OpenMP programs: a Gaussian elimination of our own, and numpy on OpenBLAS from the
//! distribution's packages. Both run with the default settings of their OpenMP runtime, and say
//! when they were done.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::child::Running;
use crate::daemon::Daemon;
use crate::lab::{Gang, Lab};
use crate::picture::python_with;
use crate::workload::window::now_ns;

const GAUSS: &str = include_str!("../../../demo/gauss.c");
const INVERSE: &str = include_str!("../../../demo/inverse.py");

/// A copy that has not ended by then is killed, and the measurement fails.
pub const LIMIT: Duration = Duration::from_secs(120);

pub struct Program {
    pub name: &'static str,
    command: Vec<String>,
}

/// How much a program has to do; the full amount takes a second or two alone on two CPUs.
#[derive(Clone, Copy)]
pub enum Amount {
    Full,
    Half,
}

#[derive(Deserialize)]
struct Finished {
    finished_at_ns: u64,
}

/// The Gaussian elimination, compiled into `dir`.
pub fn gauss(dir: &Path, amount: Amount) -> Result<Program> {
    let source = dir.join("gauss.c");
    let program = dir.join("gauss");
    fs::write(&source, GAUSS).with_context(|| format!("writing {}", source.display()))?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-fopenmp", "-o"]).arg(&program).arg(&source).arg("-lm");
    Running::start(&mut compiler)
        .context("the Gaussian elimination needs a compiler: install the package gcc")?
        .finish(Instant::now() + LIMIT)?;
    let times = match amount {
        Amount::Full => 80,
        Amount::Half => 40,
    };
    let command = vec![program.display().to_string(), "500".into(), times.to_string()];
    Ok(Program { name: "gauss (libgomp)", command })
}

/// numpy on the OpenMP build of OpenBLAS; an error names the packages where they are missing.
pub fn numpy(dir: &Path, amount: Amount) -> Result<Program> {
    let python = python_with("numpy").context("install the package python3-numpy")?;
    let blas = openblas().context("install the package libopenblas0-openmp")?;
    let script = dir.join("inverse.py");
    fs::write(&script, INVERSE).with_context(|| format!("writing {}", script.display()))?;
    let times = match amount {
        Amount::Full => "450",
        Amount::Half => "225",
    };
    // Several builds of OpenBLAS can be installed; the path chooses the one with OpenMP.
    let path = format!("LD_LIBRARY_PATH={}", blas.display());
    let script = script.display().to_string();
    let command = ["env", &path, python, &script, "300", times].map(String::from).to_vec();
    Ok(Program { name: "numpy (OpenBLAS)", command })
}

/// The directory of the OpenMP build of OpenBLAS, as Debian and Ubuntu lay it out.
fn openblas() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?;
    dirs.flatten()
        .map(|dir| dir.path().join("openblas-openmp"))
        .find(|dir| dir.join("libblas.so.3").exists())
}

/// Copies of a program that run at once.
pub struct Copies {
    running: Vec<Running>,
    pub started_at_ns: u64,
    deadline: Instant,
}

impl Program {
    /// Starts copies at once: as gangs of the daemon where there is one.
    pub fn start(&self, lab: &Lab, daemon: Option<&Daemon>, copies: usize) -> Result<Copies> {
        let gang = Gang { cpus: lab.cpus, weight: None };
        let started_at_ns = now_ns();
        let deadline = Instant::now() + LIMIT;
        let mut running = Vec::new();
        for _ in 0..copies {
            running.push(lab.start(daemon, Some(gang), &self.command)?);
        }
        Ok(Copies { running, started_at_ns, deadline })
    }
}

impl Copies {
    pub fn pids(&self) -> Vec<i32> {
        self.running.iter().map(Running::pid).collect()
    }

    /// The time until the last copy was done, in seconds.
    pub fn finish(self) -> Result<f64> {
        let mut finished_at_ns = self.started_at_ns;
        for copy in self.running {
            let finished: Finished = copy.outcome(self.deadline)?;
            finished_at_ns = finished_at_ns.max(finished.finished_at_ns);
        }
        Ok((finished_at_ns - self.started_at_ns) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one of the programs with a small problem.
    fn small(program: &Program) {
        let mut command = Command::new(&program.command[0]);
        command.args(&program.command[1..program.command.len() - 2]).args(["40", "2"]);
        let finished: Finished =
            Running::start(&mut command).unwrap().outcome(Instant::now() + LIMIT).unwrap();
        assert!(finished.finished_at_ns > 0);
    }

    #[test]
    fn gauss_solves_its_system_needs_gcc() {
        let dir = tempfile::tempdir().unwrap();
        match gauss(dir.path(), Amount::Half) {
            Ok(program) => small(&program),
            Err(error) => eprintln!("skipped: {error:#}"),
        }
    }

    #[test]
    fn numpy_inverts_its_matrix_needs_openblas() {
        let dir = tempfile::tempdir().unwrap();
        match numpy(dir.path(), Amount::Half) {
            Ok(program) => small(&program),
            Err(error) => eprintln!("skipped: {error:#}"),
        }
    }
}
