//! The command line of the lab.

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::all;
use crate::demo;
use crate::harness::lab::{Lab, Options};
use crate::harness::report::Report;
use crate::promises::{
    arrival, auto, barrier, barriers, calls, clients, coscheduled, doctor, document, fill, idle,
    lateness, openmp, release, share, spec, switch, views, watching,
};
use crate::published::{
    batch, deadlines, holes, noise, overhead, priority, slices, solvers, speedup, stream, sweep,
    users,
};
use crate::workload::Workload;

/// Measurements of gang scheduling that anyone can repeat
///
/// Each runs its conditions in turn, several rounds, and prints means with 95 % intervals and the
/// ratios between conditions, taken round by round. Daemons are started for it on sockets of their
/// own; one that is already running is left alone, but should have no jobs meanwhile.
#[derive(Parser, Debug)]
#[command(name = "gang lab", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Copies of BARRIER: alone, under plain Linux, under gangd at several slices (E10)
    Barrier(With<barrier::Barrier>),
    /// The barrier of libgang beside those of libgomp and pthread
    Barriers(With<barriers::Barriers>),
    /// How long calls of libgang take beside 100 jobs
    Calls(Only),
    /// Programs with serial phases: batch, plain Linux, gangs without and with filling
    Fill(With<fill::Fill>),
    /// What gang scheduling costs two tight loops (E11)
    Overhead(Only),
    /// Shares of CPU beside hogs, and by weight
    Share(Only),
    /// How late a short ordinary task is beside two gangs
    Lateness(Only),
    /// Two OpenMP programs with default settings, alone and two copies at once
    Openmp(With<openmp::Openmp>),
    /// Cost and skew of a switch for 2 to 1,000 threads (X8)
    Switch(With<switch::Switch>),
    /// CPU of the daemon with 100 idle jobs, and two that run
    Idle(With<idle::Idle>),
    /// What it costs to look on: gang top and gang web with 20 jobs, and the switches meanwhile
    Views(Only),
    /// What is measured of gangs: how much of their slots they run as a whole, and what that costs
    Coscheduled(Only),
    /// Time until all threads are released after kill -9 of the daemon
    Release(Only),
    /// What an interactive gang waits for its first slot beside four batch gangs
    Arrival(With<arrival::Arrival>),
    /// 50 clients at once, 1,000 jobs at a time; and the times of calls
    Clients(With<clients::Clients>),
    /// Gaussian elimination beside competitors, by the number of threads (L35)
    Gauss(With<solvers::Gauss>),
    /// Matrix multiply beside competitors, by the number of threads (L36)
    Matmul(With<solvers::Matmul>),
    /// Speedup of a compute-bound program on a busy machine (L34)
    Speedup(With<speedup::Speedup>),
    /// Where the benefit ends as the work between barriers grows (E13)
    Interval(With<sweep::Sweep>),
    /// Where the benefit ends as threads grow uneven (E14)
    Variance(With<sweep::Sweep>),
    /// Back to back against time-slicing (E15)
    Batch(Only),
    /// Priorities as an alternative to gangs, in five bars (E16)
    Priority(Only),
    /// Four programs that cluster streams of bursts (E17, E18)
    Stream(With<stream::Stream>),
    /// Missed deadlines, by the number of domains (X5)
    Deadlines(Only),
    /// Programs that leave CPUs idle: batch, plain Linux, gangs without and with filling (X6, X7)
    Holes(With<holes::Holes>),
    /// When slots begin and end, against when they should (X8)
    Noise(Only),
    /// What gangs cost by the length of slices, for each backend and three programs
    Slices(With<slices::Slices>),
    /// Four jobs of numerical libraries at once, as their users report it
    Users(With<users::Users>),
    /// How often gang doctor is right, over programs of every kind
    ///
    /// Three rounds of up to 29 programs take about an hour, and some of them more; a first answer (--quick), of 5 of
    /// them, a minute.
    Doctor(With<doctor::Doctor>),
    /// What it costs programs that gang doctor watches them
    Watching(Only),
    /// What policy auto costs a program that runs for five minutes
    ///
    /// A round takes ten of them.
    Auto(Only),
    /// Every experiment, and one page with all figures
    All(With<all::All>),
    /// Everything that SPECIFICATION.md promises, in one table
    Spec(With<spec::Spec>),
    /// Two real OpenMP programs, in under a minute, with a picture of which gang ran where
    Demo(demo::Demo),
    /// A program that experiments run
    #[command(subcommand, hide = true)]
    Workload(Workload),
}

/// An experiment without options of its own.
#[derive(Args, Debug)]
struct Only {
    #[command(flatten)]
    options: Options,
}

/// An experiment with options of its own.
#[derive(Args, Debug)]
struct With<E: Args> {
    #[command(flatten)]
    experiment: E,
    #[command(flatten)]
    options: Options,
}

impl Cli {
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Barrier(it) => it.report(|it, lab| it.run(lab)),
            Command::Barriers(it) => it.report(|it, lab| it.run(lab)),
            Command::Calls(it) => report(&it.options, calls::run),
            Command::Fill(it) => it.report(|it, lab| it.run(lab)),
            Command::Overhead(it) => report(&it.options, overhead::run),
            Command::Share(it) => report(&it.options, share::run),
            Command::Lateness(it) => report(&it.options, lateness::run),
            Command::Openmp(it) => it.report(|it, lab| it.run(lab)),
            Command::Switch(it) => it.report(|it, lab| it.run(lab)),
            Command::Coscheduled(it) => report(&it.options, coscheduled::run),
            Command::Idle(it) => it.report(|it, lab| it.run(lab)),
            Command::Views(it) => report(&it.options, views::run),
            Command::Release(it) => report(&it.options, release::run),
            Command::Arrival(it) => it.report(|it, lab| it.run(lab)),
            Command::Clients(it) => it.report(|it, lab| it.run(lab)),
            Command::Gauss(it) => it.report(|it, lab| it.run(lab)),
            Command::Matmul(it) => it.report(|it, lab| it.run(lab)),
            Command::Speedup(it) => it.report(|it, lab| it.run(lab)),
            Command::Interval(it) => it.report(|it, lab| it.run(lab, sweep::Over::Interval)),
            Command::Variance(it) => it.report(|it, lab| it.run(lab, sweep::Over::Variance)),
            Command::Batch(it) => report(&it.options, batch::run),
            Command::Priority(it) => report(&it.options, priority::run),
            Command::Stream(it) => it.report(|it, lab| it.run(lab)),
            Command::Deadlines(it) => report(&it.options, deadlines::run),
            Command::Holes(it) => it.report(|it, lab| it.run(lab)),
            Command::Noise(it) => report(&it.options, noise::run),
            Command::Slices(it) => it.report(|it, lab| it.run(lab)),
            Command::Users(it) => it.report(|it, lab| it.run(lab)),
            Command::Doctor(it) => it.report(|it, lab| it.run(lab)),
            Command::Watching(it) => report(&it.options, watching::run),
            Command::Auto(it) => report(&it.options, auto::run),
            Command::All(it) => it.experiment.run(&Lab::new(&it.options)?),
            Command::Spec(it) if it.experiment.markdown => {
                print!("{}", document::markdown());
                Ok(())
            }
            Command::Spec(it) => it.experiment.run(&Lab::new(&it.options)?),
            Command::Demo(it) => it.run(),
            Command::Workload(it) => it.run(),
        }
    }
}

fn report(options: &Options, experiment: impl FnOnce(&Lab) -> Result<Report>) -> Result<()> {
    let lab = Lab::new(options)?;
    experiment(&lab)?.deliver(&lab)
}

impl<E: Args + std::fmt::Debug> With<E> {
    fn report(&self, run: impl FnOnce(&E, &Lab) -> Result<Report>) -> Result<()> {
        let mut lab = Lab::new(&self.options)?;
        lab.parameters = format!("{:?}", self.experiment);
        run(&self.experiment, &lab)?.deliver(&lab)
    }
}

#[cfg(test)]
pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn workloads_are_hidden_from_help() {
        let help = Cli::command().render_help().to_string();
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
            let words = ["gang-lab"].into_iter().chain(line.split(' '));
            assert!(Cli::try_parse_from(words).is_err(), "{line} was accepted");
        }
    }
}
