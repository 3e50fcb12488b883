//! `gang exec-gated`: the child of a `gang run` that stays, until it is the program.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::cli::ExecGated;
use crate::executable;
use crate::execute::execute;
use crate::exit::{Explained, RUN_FAILED};

pub fn exec_gated(args: &ExecGated) -> Result<()> {
    // A kill of the parent, which was started as the program, means the program. Children of the
    // program do not inherit this, so that a program that daemonises lives on.
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot ask to end together with the gang that started this one")?;
    // Without a word the other gang has failed, or has died; it says why, if anybody does.
    let said = File::open(&args.gate).and_then(|mut gate| gate.read_exact(&mut [0]));
    if said.is_err() {
        return Err(Explained(RUN_FAILED).into());
    }
    let error = execute(&args.file, &args.command, std::env::vars_os());
    Err(executable::refused(&args.command[0], &args.file, error).into())
}
