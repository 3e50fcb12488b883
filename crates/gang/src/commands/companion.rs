//! `gang doctor`, `gang trace` and `gang lab`: programs of their own, as git has its subcommands.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cli::PassedOn;
use crate::programs;

/// Becomes the program of that name, which talks to the daemon at `socket` where one was named.
pub fn become_program(name: &str, args: &PassedOn, socket: Option<&Path>) -> Result<()> {
    let program = programs::companion(name)?;
    let mut command = Command::new(&program);
    command.args(&args.args);
    if let Some(socket) = socket {
        command.env("GANG_SOCKET", socket);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot execute {}", program.display()))
}
