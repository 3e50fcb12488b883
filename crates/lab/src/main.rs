//! `gang lab`: the measurements of gangd as commands that anyone can repeat.

mod all;
mod cli;
mod demo;
mod harness;
mod promises;
mod published;
mod registry;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            harness::progress::say("");
            eprintln!("gang lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
