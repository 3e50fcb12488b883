//! The program gang-doctor, which `gang doctor` executes.

use std::process::ExitCode;

use clap::Parser;
use gang_doctor::{
    cli::Cli,
    examine,
    interruption::{Interrupted, Interruption},
    report,
};
use gang_protocol::{exit, name::escaped};

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(&Interrupted(signal)) = error.downcast_ref() {
                // The caller sees the signal that ended it.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            // Names and reasons in it may come from elsewhere.
            eprintln!("gang doctor: {}", escaped(&format!("{error:#}")));
            ExitCode::from(exit::code(error.as_ref()))
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    if let Some(auto) = cli.auto() {
        return gang_doctor::auto::run(auto);
    }
    let diagnosis = examine(cli, &Interruption::listen()?)?;
    if cli.json {
        println!("{}", serde_json::to_string_pretty(&diagnosis)?);
    } else {
        print!("{}", report::text(&diagnosis)?);
    }
    match diagnosis.not_proved {
        Some(reason) => Err(anyhow::anyhow!("cannot prove what the program gains: {reason}")),
        None => Ok(()),
    }
}
