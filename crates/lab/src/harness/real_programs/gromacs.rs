//! Molecular dynamics with GROMACS, of a box of water that is made of its own files.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use super::copies::LIMIT;
use super::{Done, Program, needs};
use crate::harness::child::Running;

const WATER: &str = include_str!("../../../../../demo/water.sh");

/// The box of water, made in `dir`; an error names the package where it is missing.
pub fn gromacs(dir: &Path) -> Result<Program> {
    needs("gmx", "--version", "the package gromacs")?;
    let script = dir.join("water.sh");
    fs::write(&script, WATER).with_context(|| format!("writing {}", script.display()))?;
    let [script, dir] = [script.as_path(), dir].map(|path| path.display().to_string());
    let prepare = ["sh", &script, "prepare", &dir];
    Running::start(Command::new(prepare[0]).args(&prepare[1..]))?
        .finish(Instant::now() + LIMIT)
        .context("making a box of water for GROMACS")?;
    let command = ["sh", &script, "run", &dir, "10"].map(String::from).to_vec();
    Ok(Program { done: Done::Ended, ..Program::new("GROMACS", command) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::real_programs::tests::runs_or_says_why_not;

    #[test]
    fn gromacs_moves_its_water_needs_gromacs() {
        runs_or_says_why_not(gromacs);
    }
}
