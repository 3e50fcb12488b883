//! `gang trace`: what was planned and what ran, for some seconds, as a file that Perfetto and
//! Chrome open.
//!
//! Problem: figures say that a gang was kept from its slot; a picture says by whom, and at which
//! edge.
//!
//! Approach: the kernel's own records of its context switches are put beside the slots that the
//! daemon planned, on one clock ([`collect`]); whose job a process is, the daemon knows and the
//! kernel's records of forks ([`members`]). All of it becomes events of the trace event format
//! ([`events`]); a picture shows the same ([`picture`]).

mod collect;
mod events;
mod members;
mod picture;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use gang_protocol::{exit, name::escaped, paths::Surroundings};

/// Record slots and context switches as a trace for Perfetto or Chrome
///
/// Slots are shown for each CPU as they were planned, and each switch in its phases. Below them are
/// the threads that really ran: those of the gang in its slot, gangs that fill, and others, which
/// in a slot are noise. Open the file at ui.perfetto.dev or in chrome://tracing. Recording the
/// context switches takes root.
#[derive(Debug, Parser)]
#[command(name = "gang trace", version, max_term_width = 100)]
struct Cli {
    /// Socket of the daemon to talk to, and the only one that is tried [env: GANG_SOCKET]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// For how long to record, in seconds
    #[arg(short, long, default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Where to write the trace
    #[arg(short, long, default_value = "gang-trace.json", value_name = "FILE")]
    out: PathBuf,
    /// Draw it, too (.svg or .png, may be given twice); needs python3-matplotlib
    #[arg(long, value_name = "FILE", value_parser = gang_picture::path)]
    picture: Vec<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let accepted = "a number of seconds from 0.01 to 60";
    let seconds: f64 = text.parse().map_err(|_| accepted.to_owned())?;
    if (0.01..=60.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(accepted.into())
    }
}

fn main() -> ExitCode {
    sigpipe::reset();
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Names and reasons in it may come from elsewhere.
            eprintln!("gang trace: {}", escaped(&format!("{error:#}")));
            ExitCode::from(exit::code(error.as_ref()))
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let recorded = collect::record(&Surroundings::with_socket(cli.socket.as_deref()), cli.seconds)?;
    let trace = events::of(&recorded);
    let text = serde_json::to_vec(&trace)?;
    std::fs::write(&cli.out, text)
        .with_context(|| format!("cannot write {}", cli.out.display()))?;
    if !cli.picture.is_empty() {
        let paths: Vec<&Path> = cli.picture.iter().map(PathBuf::as_path).collect();
        picture::draw(&recorded, &paths)?;
    }
    println!(
        "{}: {} slots, {} switches and {} stays on CPUs in {:.2} s",
        cli.out.display(),
        trace.slots(),
        trace.switches(),
        trace.stays(),
        cli.seconds.as_secs_f64()
    );
    if recorded.switches_lost > 0 {
        eprintln!(
            "gang trace: {} switches came faster than gangd was asked for them, and are missing",
            recorded.switches_lost
        );
    }
    Ok(())
}
