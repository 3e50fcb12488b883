//! `gang lab`: the program gang-lab, as git has its subcommands.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cli::Lab;
use crate::programs;

pub fn lab(args: &Lab) -> Result<()> {
    let program = programs::gang_lab()?;
    let error = Command::new(&program).args(&args.args).exec();
    Err(error).with_context(|| format!("cannot execute {}", program.display()))
}
