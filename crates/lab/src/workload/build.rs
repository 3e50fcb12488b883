//! Compilers, so many at once, one after the other: short-lived processes of a build.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::steps::apart;
use super::{Outcome, When, thread_count};

#[derive(Args, Debug, Clone)]
pub struct Build {
    /// Compilers at once
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// The file in C that each of them compiles
    #[arg(long)]
    pub source: PathBuf,
    #[command(flatten)]
    pub when: When,
}

impl Build {
    pub fn run(&self) -> Result<Outcome> {
        self.compile()?;
        let start = |_| {
            || {
                // It did before.
                if let Err(error) = self.compile() {
                    eprintln!("gang-lab: {error:#}");
                    std::process::exit(1);
                }
            }
        };
        apart("build", self.threads, self.when.window()?, start)
    }

    fn compile(&self) -> Result<()> {
        let mut command = Command::new("gcc");
        command.args(["-O2", "-c", "-o", "/dev/null"]).arg(&self.source);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
        let status = status.context("running gcc, of the package gcc")?;
        ensure!(status.success(), "gcc ended with {status} on {}", self.source.display());
        Ok(())
    }
}
