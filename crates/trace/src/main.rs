//! `gang trace`: what was planned and what ran, for some seconds, as a file that Perfetto and
//! Chrome open.
//!
//! Problem: figures say that a gang was kept from its slot; a picture says by whom, and at which
//! edge.
//!
//! Approach: the kernel's own records of its context switches are put beside the slots that the
//! daemon planned, on one clock ([`collect`]); whose job a process is, the daemon knows and the
//! kernel's records of forks ([`members`]). All of it becomes events of the trace event format
//! ([`events`]); a picture shows the same ([`picture`]). A record says whose it is and how good its
//! clock was ([`origin`]), so that records of several hosts can be put on one clock ([`merge`]).

mod collect;
mod events;
mod members;
mod merge;
mod origin;
mod picture;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};
use gang_protocol::{exit, name::escaped, paths::Surroundings};

/// Record slots and context switches as a trace for Perfetto or Chrome
///
/// Slots are shown for each CPU as they were planned, and each switch in its phases. Below them are
/// the threads that really ran: those of the gang in its slot, gangs that fill, and others, which
/// in a slot are noise. Open the file at ui.perfetto.dev or in chrome://tracing. Recording the
/// context switches takes root. Records of several hosts are put on one clock by gang trace merge.
#[derive(Debug, Parser)]
#[command(
    name = "gang trace",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    record: Record,
}

#[derive(Debug, Subcommand)]
enum Command {
    Merge(Merge),
}

#[derive(Debug, Args)]
struct Record {
    /// Socket of the daemon to talk to, and the only one that is tried [env: GANG_SOCKET]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// For how long to record, in seconds
    #[arg(short, long, default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Where to write the trace; - is standard output
    #[arg(short, long, default_value = "gang-trace.json", value_name = "FILE")]
    out: PathBuf,
    /// Draw it, too (.svg or .png, may be given twice); needs python3-matplotlib
    #[arg(long, value_name = "FILE", value_parser = gang_picture::path)]
    picture: Vec<PathBuf>,
}

/// Put the traces of several hosts on one clock, as one trace
///
/// Each trace says how far the clock of its host was from UTC, and within which bound; hosts of one
/// kernel have one clock. In the merged trace each host has its groups of tracks, and a counter for
/// each two hosts shows how far their clocks may still differ. Needs no daemon.
#[derive(Debug, Args)]
struct Merge {
    /// Files that gang trace has written, one or more of each host
    #[arg(required = true, num_args = 2..=256, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Where to write the merged trace; - is standard output
    #[arg(short, long, default_value = "merged-trace.json", value_name = "FILE")]
    out: PathBuf,
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
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Command::Merge(args)) => merge_files(args),
        None => record(&cli.record),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Names and reasons in it may come from elsewhere.
            eprintln!("gang trace: {}", escaped(&format!("{error:#}")));
            ExitCode::from(exit::code(error.as_ref()))
        }
    }
}

fn record(args: &Record) -> Result<()> {
    let recorded =
        collect::record(&Surroundings::with_socket(args.socket.as_deref()), args.seconds)?;
    let trace = events::of(&recorded);
    write(&args.out, &serde_json::to_vec(&trace)?)?;
    if !args.picture.is_empty() {
        let paths: Vec<&Path> = args.picture.iter().map(PathBuf::as_path).collect();
        picture::draw(&recorded, &paths)?;
    }
    let summary = format!(
        "{} slots, {} switches and {} stays on CPUs in {:.2} s",
        trace.slots(),
        trace.switches(),
        trace.stays(),
        args.seconds.as_secs_f64()
    );
    say(&args.out, &summary);
    if recorded.switches_lost > 0 {
        eprintln!(
            "gang trace: {} switches came faster than gangd was asked for them, and are missing",
            recorded.switches_lost
        );
    }
    Ok(())
}

fn merge_files(args: &Merge) -> Result<()> {
    let same = |path: &PathBuf| {
        let absolute = path.canonicalize().ok();
        absolute.is_some() && absolute == args.out.canonicalize().ok()
    };
    let is_kept = is_standard_output(&args.out) || !args.files.iter().any(same);
    ensure!(is_kept, "{} is to be merged: --out takes another file", args.out.display());
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("cannot read {name}"))?;
        Ok(merge::File { name, bytes })
    };
    let files = args.files.iter().map(read).collect::<Result<Vec<merge::File>>>()?;
    let merged = merge::merge(&files)?;
    write(&args.out, &merged.bytes)?;
    let hosts = if merged.hosts == 1 { "host" } else { "hosts" };
    say(&args.out, &format!("{} events of {} {hosts}", merged.events, merged.hosts));
    match &merged.widest {
        None => eprintln!("gang trace: all of it is by one clock"),
        Some(([a, b], bound_ns)) => {
            let (a, b, bound) = (escaped(a), escaped(b), Duration::from_nanos(*bound_ns));
            eprintln!("gang trace: hosts may differ by {bound:.0?} ({a} and {b})");
        }
    }
    if let Some([a, b]) = &merged.apart {
        let (a, b) = (escaped(a), escaped(b));
        eprintln!("gang trace: the records of {a} and {b} have no moment in common");
    }
    Ok(())
}

fn is_standard_output(out: &Path) -> bool {
    out == Path::new("-")
}

fn write(out: &Path, bytes: &[u8]) -> Result<()> {
    if is_standard_output(out) {
        return io::stdout().write_all(bytes).context("cannot write to standard output");
    }
    fs::write(out, bytes).with_context(|| format!("cannot write {}", out.display()))
}

/// A summary, where the trace is not.
fn say(out: &Path, summary: &str) {
    match is_standard_output(out) {
        true => eprintln!("gang trace: {summary}"),
        false => println!("{}: {summary}", out.display()),
    }
}
