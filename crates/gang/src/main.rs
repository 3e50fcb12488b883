use std::process::ExitCode;

use clap::Parser;
use gang_cli::{cli, commands, exit, inherited};

fn main() -> ExitCode {
    let typed = cli::Cli::try_parse();
    // Rust ignores SIGPIPE. A program executed by `gang run` is to inherit what the caller had.
    let executes = typed.as_ref().is_ok_and(|typed| typed.command.executes());
    if !(executes && inherited::ignored_sigpipe()) {
        sigpipe::reset();
    }
    match typed {
        Ok(typed) => exit::finish(&typed.command, commands::run(&typed)),
        Err(error) => exit::misused(&error, std::env::args_os().skip(1)),
    }
}
