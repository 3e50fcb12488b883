use std::process::ExitCode;

use clap::Parser;
use gang_cli::{cli, commands, exit};

fn main() -> ExitCode {
    // Rust ignores SIGPIPE, and a program executed by `gang run` would inherit that.
    sigpipe::reset();
    match cli::Cli::try_parse() {
        Ok(typed) => exit::finish(&typed.command, commands::run(&typed)),
        Err(error) => exit::misused(&error, std::env::args_os().skip(1)),
    }
}
