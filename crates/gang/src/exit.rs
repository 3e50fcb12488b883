//! How the program ends: exit codes, and errors on standard error.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use gang_protocol::exit;
pub use gang_protocol::exit::{FAILED, NO_DAEMON};
use gang_protocol::name::escaped;

use crate::cli::Command;

/// The command line makes no sense.
pub const USAGE: u8 = 2;
/// `gang run` itself failed, and the program was not started. As env, nice and timeout have it.
pub const RUN_FAILED: u8 = 125;
/// `gang run` found the program, which cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// `gang run` did not find the program.
pub const NOT_FOUND: u8 = 127;

/// The command line can be parsed and still makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// An end with a code of its own, which the command has explained already.
#[derive(Debug, thiserror::Error)]
#[error("ended with code {0}")]
pub struct Explained(pub u8);

/// The program to run cannot be.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CannotExecute {
    pub code: u8,
    pub message: String,
}

/// The code for what came of a command, with its error said on standard error.
pub fn finish(command: &Command, outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if error.downcast_ref::<Explained>().is_none() {
        // Names and reasons in it may come from elsewhere.
        eprintln!("gang: {}", escaped(&format!("{error:#}")));
    }
    ExitCode::from(code(command, &error))
}

/// As [`finish`], for a line that could not be parsed; help and version are asked for that way too.
pub fn misused(error: &clap::Error, line: impl Iterator<Item = OsString>) -> ExitCode {
    match instead(error) {
        Some(text) => eprintln!("gang: {text}"),
        // Nothing can be written where the other end is closed.
        None => drop(error.print()),
    }
    match (error.use_stderr(), subcommand(line)) {
        (false, _) => ExitCode::SUCCESS,
        (true, Some(name)) if name == "run" => ExitCode::from(RUN_FAILED),
        (true, _) => ExitCode::from(USAGE),
    }
}

/// The first word of a line that is neither an option of gang nor its value.
fn subcommand(mut line: impl Iterator<Item = OsString>) -> Option<OsString> {
    loop {
        let word = line.next()?;
        match word.to_str() {
            Some("--socket") => drop(line.next()),
            Some(option) if option.starts_with('-') => {}
            _ => return Some(word),
        }
    }
}

/// The command to type instead of one that there is not, where the word may mean several things.
fn instead(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (_, instead) = INSTEAD.iter().find(|(other, _)| other == word)?;
    Some(format!("there is no command {word}; {instead}"))
}

/// Words that are not commands, and the commands for what they may mean.
const INSTEAD: [(&str, &str); 5] = [
    ("stop", "gang shutdown ends the daemon, gang suspend JOB stops a job, gang kill JOB ends it"),
    (
        "release",
        "gang recover undoes what a daemon that died left; gang resume JOB lets a job run again",
    ),
    ("class", "gang set JOB --class CLASS puts a job into another class"),
    ("policy", "gang set JOB --policy POLICY schedules a job by another policy"),
    (
        "resize",
        "gang set JOB --cpus N changes the size of a job; --min, --weight, --mem and --disk, too",
    ),
];

fn code(command: &Command, error: &anyhow::Error) -> u8 {
    if let Some(cannot) = error.downcast_ref::<CannotExecute>() {
        return cannot.code;
    }
    if let Some(Explained(code)) = error.downcast_ref::<Explained>() {
        return *code;
    }
    if command.executes() {
        return RUN_FAILED;
    }
    if error.downcast_ref::<Usage>().is_some() {
        return USAGE;
    }
    exit::code(error.as_ref())
}
