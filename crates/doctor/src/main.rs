//! The program gang-doctor, which `gang doctor` executes.

use std::process::ExitCode;

use clap::Parser;
use gang_doctor::{cli::Cli, examine, report};

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gang doctor: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    if cli.auto {
        return gang_doctor::auto::run(cli.cost);
    }
    let diagnosis = examine(cli)?;
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&diagnosis)?);
    } else {
        print!("{}", report::text(&diagnosis)?);
    }
    Ok(())
}
