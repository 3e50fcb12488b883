//! The options that experiments share. Some of them are taken by those alone that have a use for
//! them: the parser of the others refuses these.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use crate::workload::{seconds, thread_count};

/// The options that were given.
#[derive(Args, Debug, Clone, Default)]
pub struct Options {
    /// Rounds; each runs every condition once [default: 5, with --quick up to 3 in a minute, with
    /// --paper as published]
    #[arg(long)]
    pub runs: Option<usize>,
    /// A first answer in about a minute: fewer rounds, conditions and seconds
    #[arg(long)]
    pub quick: bool,
    /// Compare even where the rest of the machine takes so much that little is proven
    #[arg(long)]
    pub noisy: bool,
    /// Append samples to this file as they are taken, and do not take again what it has
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Write figures and raw samples as JSON; - for the standard output, without the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write raw samples as CSV, one line for each
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw the figures (.svg or .png, or one of each); needs python3-matplotlib
    #[arg(long, value_name = "FILE", value_parser = gang_picture::path)]
    pub picture: Vec<PathBuf>,
    /// The gang program to use
    #[arg(long, value_name = "PATH")]
    pub gang: Option<PathBuf>,
    /// The daemon to use
    #[arg(long, value_name = "PATH")]
    pub gangd: Option<PathBuf>,
    // The parser has the others where an experiment takes them.
    #[arg(skip)]
    pub seconds: Option<Duration>,
    #[arg(skip)]
    pub threads: Option<usize>,
    #[arg(skip)]
    pub plain: bool,
    #[arg(skip)]
    pub watch_plain: bool,
    #[arg(skip)]
    pub backend: Option<String>,
    #[arg(skip)]
    pub paper: bool,
}

/// Options that some experiments have no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Seconds,
    Threads,
    Plain,
    WatchPlain,
    Backend,
    Paper,
}

impl Takes {
    pub const ALL: [Takes; 6] = [
        Takes::Seconds,
        Takes::Threads,
        Takes::Plain,
        Takes::WatchPlain,
        Takes::Backend,
        Takes::Paper,
    ];

    fn name(self) -> &'static str {
        match self {
            Takes::Seconds => "seconds",
            Takes::Threads => "threads",
            Takes::Plain => "plain",
            Takes::WatchPlain => "watch-plain",
            Takes::Backend => "backend",
            Takes::Paper => "paper",
        }
    }

    /// As it is typed.
    pub fn flag(self) -> String {
        format!("--{}", self.name())
    }

    fn arg(self) -> Arg {
        let arg = Arg::new(self.name()).long(self.name());
        match self {
            Takes::Seconds => arg.value_name("SECONDS").value_parser(seconds).help(
                "Length of one measurement; longer where a copy would complete nothing in it \
                 [default: 2 to 10, by experiment; with --quick half of it]",
            ),
            Takes::Threads => arg
                .value_name("THREADS")
                .value_parser(thread_count)
                .help("Threads of each gang [default: one for each CPU]"),
            Takes::Plain => {
                arg.action(ArgAction::SetTrue).help("Only the conditions without gangd")
            }
            Takes::WatchPlain => arg.action(ArgAction::SetTrue).help(
                "Look in every round at how much programs under plain Linux are coscheduled, not \
                 apart from what is compared: as jobs of policy none, beside a daemon that does \
                 nothing else",
            ),
            Takes::Backend => {
                arg.value_name("BACKEND").help("Backend of the daemon [default: its own choice]")
            }
            Takes::Paper => arg
                .action(ArgAction::SetTrue)
                .conflicts_with("quick")
                .help("As many rounds and conditions as the paper had"),
        }
    }
}

/// Adds to a command the options that all take, and these.
pub fn augment(command: Command, takes: &[Takes]) -> Command {
    let mut command = Options::augment_args(command);
    for &option in takes {
        command = command.arg(option.arg());
    }
    // Without gangd there is nobody to watch or to have a backend.
    if takes.contains(&Takes::Plain) {
        for option in [Takes::WatchPlain, Takes::Backend] {
            if takes.contains(&option) {
                command = command.mut_arg(option.name(), |arg| arg.conflicts_with("plain"));
            }
        }
    }
    command
}

impl Options {
    /// The options that were typed, of those that a command has.
    pub fn of(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flag = |of: Takes| matches!(matches.try_get_one(of.name()), Ok(Some(true)));
        Ok(Self {
            seconds: value(matches, Takes::Seconds),
            threads: value(matches, Takes::Threads),
            backend: value(matches, Takes::Backend),
            plain: flag(Takes::Plain),
            watch_plain: flag(Takes::WatchPlain),
            paper: flag(Takes::Paper),
            ..Self::from_arg_matches(matches)?
        })
    }

    /// The options for an experiment that takes these, and those given that it has no use
    /// for. Without gangd an experiment about gangd says itself why it cannot be.
    pub fn of_those(&self, takes: &[Takes]) -> (Self, Vec<Takes>) {
        let mut options = self.clone();
        let mut unused = Vec::new();
        for option in Takes::ALL.into_iter().filter(|option| !takes.contains(option)) {
            let is_given = match option {
                Takes::Seconds => options.seconds.take().is_some(),
                Takes::Threads => options.threads.take().is_some(),
                Takes::Backend => options.backend.take().is_some(),
                Takes::WatchPlain => std::mem::take(&mut options.watch_plain),
                Takes::Paper => std::mem::take(&mut options.paper),
                Takes::Plain => false,
            };
            unused.extend(is_given.then_some(option));
        }
        (options, unused)
    }
}

/// None where the command has no such option, or it was not given.
fn value<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, of: Takes) -> Option<T> {
    matches.try_get_one(of.name()).ok().flatten().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_not_taken_is_refused() {
        let parse = |takes: &[Takes], line: &str| {
            let words = ["it"].into_iter().chain(line.split_whitespace());
            augment(Command::new("it"), takes).try_get_matches_from(words)
        };
        for option in Takes::ALL {
            let line = match option {
                Takes::Seconds | Takes::Threads => format!("{} 1", option.flag()),
                Takes::Backend => "--backend rt".into(),
                _ => option.flag(),
            };
            assert!(parse(&Takes::ALL, &line).is_ok(), "{line}");
            assert!(parse(&[], &line).is_err(), "{line}");
        }
        assert!(parse(&Takes::ALL, "--plain --backend rt").is_err());
        assert!(parse(&Takes::ALL, "--plain --watch-plain").is_err());
        let line = "--seconds 1 --threads 3 --backend rt --paper --runs 2";
        let options = Options::of(&parse(&Takes::ALL, line).unwrap()).unwrap();
        assert_eq!((options.seconds, options.threads), (Some(Duration::from_secs(1)), Some(3)));
        assert_eq!((options.paper, options.plain, options.runs), (true, false, Some(2)));
        let (options, unused) = options.of_those(&[Takes::Threads]);
        assert_eq!((options.threads, options.seconds, options.paper), (Some(3), None, false));
        assert_eq!(unused, [Takes::Seconds, Takes::Backend, Takes::Paper]);
    }
}
