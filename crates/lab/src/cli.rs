//! The command line of the lab: a command for each experiment of the registry, and four more.

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use crate::all::All;
use crate::demo::Demo;
use crate::harness::lab::Lab;
use crate::harness::options::{self, Options, Takes};
use crate::promises::document;
use crate::promises::spec::Spec;
use crate::registry::{EXPERIMENTS, Experiment};
use crate::workload::Workload;

const ABOUT: &str = "Measurements of gang scheduling that anyone can repeat";
const DETAILS: &str = "Each runs its conditions in turn, several rounds, and prints means with 95 % \
                       intervals and the ratios between conditions, taken round by round. Daemons \
                       are started for it on sockets of their own; one that is already running is \
                       left alone, but should have no jobs meanwhile.";

// Commands that are no experiments. A doc comment would become the help of the whole program.
#[derive(Subcommand, Debug)]
enum Other {
    /// Two real OpenMP programs, in under a minute, with a picture of which gang ran where
    Demo(Demo),
    /// A program that experiments run
    #[command(subcommand, hide = true)]
    Workload(Workload),
}

/// The whole command line.
pub fn command() -> Command {
    let several =
        |command: Command, about: &'static str| options::augment(command, &Takes::ALL).about(about);
    let all = several(
        All::augment_args(Command::new("all")),
        "Every experiment, and one page with all figures",
    );
    let spec = several(
        Spec::augment_args(Command::new("spec")),
        "Everything that SPECIFICATION.md promises, in one table",
    );
    let command = Command::new("gang lab")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(format!("{ABOUT}\n\n{DETAILS}"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(EXPERIMENTS.iter().map(Experiment::command))
        .subcommands([all, spec]);
    Other::augment_subcommands(command)
}

/// Reads what was typed; ends the program where that makes no sense.
pub fn run() -> Result<()> {
    match command().try_get_matches() {
        Ok(matches) => run_as(&matches),
        Err(error) => {
            let no_use = no_use(&error);
            if let Some(option) = no_use {
                eprintln!("gang lab: this experiment has no use for {option}\n");
            }
            error.exit()
        }
    }
}

/// The option that others take, where it was refused.
fn no_use(error: &clap::Error) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(typed))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    Takes::ALL.map(Takes::flag).into_iter().find(|flag| flag == typed)
}

fn run_as(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("all", matches)) => {
            All::from_arg_matches(matches)?.run(&Lab::new(&Options::of(matches)?)?)
        }
        Some(("spec", matches)) => {
            let spec = Spec::from_arg_matches(matches)?;
            if spec.markdown {
                print!("{}", document::markdown());
                return Ok(());
            }
            spec.run(&Lab::new(&Options::of(matches)?)?)
        }
        Some((name, of_it)) => match Experiment::named(name) {
            Some(experiment) => {
                let lab = Lab::new(&Options::of(of_it)?)?.for_experiment(experiment.takes);
                experiment.run(&lab, of_it)?.deliver(&lab)
            }
            None => match Other::from_arg_matches(matches)? {
                Other::Demo(demo) => demo.run(),
                Other::Workload(workload) => workload.run(),
            },
        },
        None => command().print_help().map_err(Into::into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<ArgMatches, clap::Error> {
        command().try_get_matches_from(["gang-lab"].into_iter().chain(line.split(' ')))
    }

    #[test]
    fn definition_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn workloads_are_hidden_from_help() {
        let help = command().render_help().to_string();
        assert!(help.starts_with(ABOUT), "{help}");
        assert!(help.contains("barrier") && !help.contains("workload"), "{help}");
    }

    #[test]
    fn bad_values_are_refused() {
        for line in [
            "workload barrier --threads 0",
            "workload barrier --wait never",
            "workload hog --seconds soon",
            "workload tick --every 10",
            "barrier --slices 20",
            "share --threads 20000",
        ] {
            assert!(parse(line).is_err(), "{line} was accepted");
        }
    }

    #[test]
    fn an_option_without_use_is_refused_and_named() {
        for (line, option) in [
            ("fill --seconds 1", "--seconds"),
            ("switch --plain", "--plain"),
            ("openmp --threads 2", "--threads"),
            ("doctor --paper", "--paper"),
        ] {
            assert_eq!(no_use(&parse(line).unwrap_err()).as_deref(), Some(option), "{line}");
        }
        assert_eq!(no_use(&parse("fill --nonsense").unwrap_err()), None);
    }

    #[test]
    fn each_command_of_a_promise_is_one() {
        for promise in crate::promises::list::GROUPS.iter().flat_map(|group| group.promises) {
            let Some(line) = promise.command.strip_prefix("gang lab ") else { continue };
            assert!(parse(line).is_ok(), "{}: {:?}", promise.id, parse(line).err());
        }
    }
}
