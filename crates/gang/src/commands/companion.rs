//! `gang lab` and `gang doctor`: programs of their own, as git has its subcommands.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cli::PassedOn;
use crate::programs;

/// Becomes the program of that name.
pub fn become_program(name: &str, args: &PassedOn) -> Result<()> {
    let program = programs::companion(name)?;
    let error = Command::new(&program).args(&args.args).exec();
    Err(error).with_context(|| format!("cannot execute {}", program.display()))
}
