//! All experiments, each with what a person types and reads: its name, what it is about, and the
//! options that it has a use for. The command line, `gang lab all` and `gang lab spec` go by it.

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::harness::lab::Lab;
use crate::harness::options::Takes::{self, Backend, Paper, Plain, Seconds, Threads, WatchPlain};
use crate::harness::report::Report;
use crate::promises::{
    accounts, arrival, auto, barrier, barriers, build, calls, clients, coscheduled, doctor, fill,
    frames, hostile, hosts, idle, kill, lateness, net, netpreempt, openmp, programs, reading,
    release, share, switch, views, watching, whole,
};
use crate::published::{
    batch, deadlines, holes, hydro, noise, overhead, priority, skew, slices, slow_network, solvers,
    speedup, stream, sweep, users,
};

pub struct Experiment {
    pub name: &'static str,
    /// In a line.
    about: &'static str,
    /// More of its help.
    details: &'static str,
    /// Options that it shares with others, of those that some have no use for.
    pub takes: &'static [Takes],
    /// How `gang lab spec` runs it, where SPECIFICATION.md promises something of it.
    spec: Option<&'static [&'static str]>,
    /// Adds the options of its own to a command.
    own: fn(Command) -> Command,
    run: fn(&Lab, &ArgMatches) -> Result<Report>,
}

/// An experiment without options of its own.
macro_rules! plain {
    ($run:path) => {
        Experiment { own: |command| command, run: |lab, _| $run(lab), ..EMPTY }
    };
}

/// One with options, which are a type with a function `run`; what comes after the type is handed to
/// that function.
macro_rules! with {
    ($own:ty $(, $more:expr)?) => {
        Experiment {
            own: <$own>::augment_args,
            run: |lab, matches| {
                let own = <$own>::from_arg_matches(matches)?;
                let lab = lab.asked_for(format!("{own:?}"));
                own.run(&lab $(, $more)?)
            },
            ..EMPTY
        }
    };
}

const EMPTY: Experiment = Experiment {
    name: "",
    about: "",
    details: "",
    takes: &[],
    spec: None,
    own: |command| command,
    run: |_, _| anyhow::bail!("there is no experiment without a name"),
};

/// The options of most experiments that compare gangs with plain Linux.
const ALL_OF_THEM: &[Takes] = &[Seconds, Threads, Plain, WatchPlain, Backend, Paper];
/// The same of those whose programs have a thread for each CPU.
const ON_ALL_CPUS: &[Takes] = &[Seconds, Plain, WatchPlain, Backend, Paper];
/// The options of experiments about gangd alone.
const OF_GANGD: &[Takes] = &[Seconds, Threads, Backend, Paper];

/// Those of the papers first, in their order.
pub const EXPERIMENTS: [Experiment; 45] = [
    Experiment {
        name: "gauss",
        about: "Gaussian elimination beside competitors, by the number of threads (L35)",
        takes: ALL_OF_THEM,
        spec: Some(&[]),
        ..with!(solvers::Gauss)
    },
    Experiment {
        name: "matmul",
        about: "Matrix multiply beside competitors, by the number of threads (L36)",
        takes: ALL_OF_THEM,
        ..with!(solvers::Matmul)
    },
    Experiment {
        name: "hydro",
        about: "A code of hydrodynamics on 1, 2 and 4 hosts, alone and beside another (L37)",
        details: "The hosts are on this machine and share its CPUs; numbers of hosts for which it \
                  has too few CPUs are left out. It needs root, etcd (package etcd-server) and \
                  mpich. A round takes about two minutes.",
        takes: &[Seconds, Backend],
        ..with!(hydro::Hydro)
    },
    Experiment {
        name: "speedup",
        about: "Speedup of a compute-bound program on a busy machine (L34)",
        takes: ALL_OF_THEM,
        ..with!(speedup::Speedup)
    },
    Experiment {
        name: "interval",
        about: "Where the benefit ends as the work between barriers grows (E13)",
        takes: ALL_OF_THEM,
        ..with!(sweep::Sweep, sweep::Over::Interval)
    },
    Experiment {
        name: "variance",
        about: "Where the benefit ends as threads grow uneven (E14)",
        takes: ALL_OF_THEM,
        ..with!(sweep::Sweep, sweep::Over::Variance)
    },
    Experiment {
        name: "batch",
        about: "Back to back against time-slicing (E15)",
        takes: ALL_OF_THEM,
        ..plain!(batch::run)
    },
    Experiment {
        name: "priority",
        about: "Priorities as an alternative to gangs, in five bars (E16)",
        takes: ALL_OF_THEM,
        ..plain!(priority::run)
    },
    Experiment {
        name: "overhead",
        about: "What gang scheduling costs two tight loops (E11)",
        takes: ALL_OF_THEM,
        spec: Some(&[]),
        ..plain!(overhead::run)
    },
    Experiment {
        name: "stream",
        about: "Four programs that cluster streams of bursts (E17, E18)",
        takes: ALL_OF_THEM,
        spec: Some(&["--bursts", "1,64"]),
        ..with!(stream::Stream)
    },
    Experiment {
        name: "deadlines",
        about: "Missed deadlines, by the number of domains (X5)",
        takes: ALL_OF_THEM,
        spec: Some(&[]),
        ..plain!(deadlines::run)
    },
    Experiment {
        name: "holes",
        about: "Programs that leave CPUs idle: batch, plain Linux, gangs without and with filling \
                (X6, X7)",
        takes: ALL_OF_THEM,
        spec: Some(&[]),
        ..with!(holes::Holes)
    },
    Experiment {
        name: "noise",
        about: "When slots begin and end, against when they should (X8)",
        takes: OF_GANGD,
        ..plain!(noise::run)
    },
    Experiment {
        name: "slow-network",
        about: "Where gangs lose: 8 jobs that wait for a slow network (Strazdins and Uhlmann)",
        details: "Two hosts are on this machine, each with one CPU, and a network between the jobs' \
                  ranks that is as slow as the paper's. It needs root, etcd (package etcd-server), \
                  mpich, and tc (package iproute2). A round takes about two minutes.",
        takes: &[Seconds, Backend],
        ..with!(slow_network::SlowNetwork)
    },
    Experiment {
        name: "slices",
        about: "What gangs cost by the length of slices, for each backend and three programs",
        takes: &[Seconds, Threads, Plain, Backend, Paper],
        ..with!(slices::Slices)
    },
    Experiment {
        name: "skew",
        about: "Gangs on two hosts whose clocks differ: where the benefit ends",
        details: "Both hosts are on this machine, each with one CPU; the daemon of one is made to \
                  read the clock wrongly. It needs root, etcd (package etcd-server) and mpich. A \
                  round takes about two minutes.",
        takes: &[Seconds, Backend],
        ..with!(skew::Skew)
    },
    Experiment {
        name: "users",
        about: "Four jobs of numerical libraries at once, as their users report it",
        takes: ON_ALL_CPUS,
        ..with!(users::Users)
    },
    Experiment {
        name: "doctor",
        about: "How often gang doctor is right, over programs of every kind",
        details: "Three rounds of up to 29 programs take about an hour, and some of them more; a \
                  first answer (--quick), of 5 of them, a minute.",
        takes: &[Seconds, Threads, WatchPlain, Backend],
        spec: Some(&[]),
        ..with!(doctor::Doctor)
    },
    Experiment {
        name: "watching",
        about: "What it costs programs that gang doctor watches them",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..plain!(watching::run)
    },
    Experiment {
        name: "auto",
        about: "What policy auto costs a program that runs for five minutes",
        details: "A round takes ten of them.",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..plain!(auto::run)
    },
    Experiment {
        name: "barrier",
        about: "Copies of BARRIER: alone, under plain Linux, under gangd at several slices (E10)",
        takes: ALL_OF_THEM,
        spec: Some(&["--slices", "20ms,1ms"]),
        ..with!(barrier::Barrier)
    },
    Experiment {
        name: "fill",
        about: "Programs with serial phases: batch, plain Linux, gangs without and with filling",
        takes: &[Threads, Plain, WatchPlain, Backend, Paper],
        spec: Some(&[]),
        ..with!(fill::Fill)
    },
    Experiment {
        name: "share",
        about: "Shares of CPU beside hogs, and by weight",
        takes: ALL_OF_THEM,
        spec: Some(&[]),
        ..plain!(share::run)
    },
    Experiment {
        name: "accounts",
        about: "The share of a user with one gang beside a user with a hundred",
        details: "It needs root, to run programs as two other users.",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..with!(accounts::Accounts)
    },
    Experiment {
        name: "lateness",
        about: "How late a short ordinary task is beside two gangs",
        takes: ALL_OF_THEM,
        spec: Some(&[]),
        ..plain!(lateness::run)
    },
    Experiment {
        name: "frames",
        about: "How late the frames of a real-time compositor are beside two gangs",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..plain!(frames::run)
    },
    Experiment {
        name: "build",
        about: "What a build as a gang gets done, and an ordinary one, beside a gang",
        details: "It needs gcc.",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..plain!(build::run)
    },
    Experiment {
        name: "openmp",
        about: "Two OpenMP programs with default settings, alone and two copies at once",
        takes: ON_ALL_CPUS,
        spec: Some(&[]),
        ..with!(openmp::Openmp)
    },
    Experiment {
        name: "programs",
        about: "Two copies at once of nine kinds of real programs, and one alone",
        details: "Three rounds of all kinds take about half an hour, and a first answer (--quick) \
                  some minutes. A kind whose package is missing is left out, and the report names \
                  the package.",
        takes: &[Seconds, Plain, WatchPlain, Backend],
        spec: Some(&[]),
        ..with!(programs::Programs)
    },
    Experiment {
        name: "coscheduled",
        about: "How much of their slots gangs are coscheduled, and what it costs to measure that",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..plain!(coscheduled::run)
    },
    Experiment {
        name: "whole",
        about: "How much of the time a complete gang has the CPUs, and who has the rest",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..plain!(whole::run)
    },
    Experiment {
        name: "switch",
        about: "Cost and skew of a switch for 2 to 1,000 threads (X8)",
        takes: &[Seconds, Backend, Paper],
        spec: Some(&["--sizes", "2,64,1000"]),
        ..with!(switch::Switch)
    },
    Experiment {
        name: "reading",
        about: "What it costs to read attributes and CPUs of threads back",
        details: "It needs root, for the kernel to count calls.",
        takes: &[Seconds, Backend, Paper],
        spec: Some(&[]),
        ..with!(reading::Reading)
    },
    Experiment {
        name: "idle",
        about: "CPU of the daemon with 100 idle jobs, and two that run",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..with!(idle::Idle)
    },
    Experiment {
        name: "views",
        about: "What it costs to look on: gang top and gang web with 20 jobs, and the switches \
                meanwhile",
        takes: OF_GANGD,
        spec: Some(&[]),
        ..plain!(views::run)
    },
    Experiment {
        name: "release",
        about: "Time until all threads are released after kill -9 of the daemon",
        takes: &[Threads, Backend, Paper],
        spec: Some(&[]),
        ..plain!(release::run)
    },
    Experiment {
        name: "kill",
        about: "Time until no thread of two gangs runs after a kill of their caller's group",
        details: "It needs root, and cgroups of version 2.",
        takes: &[Threads, Backend, Paper],
        spec: Some(&[]),
        ..plain!(kill::run)
    },
    Experiment {
        name: "arrival",
        about: "What an interactive gang waits for its first slot beside four batch gangs",
        takes: &[Threads, Backend, Paper],
        spec: Some(&[]),
        ..with!(arrival::Arrival)
    },
    Experiment {
        name: "clients",
        about: "50 clients at once, 1,000 jobs at a time; and the times of calls",
        takes: &[Seconds, Backend],
        spec: Some(&[]),
        ..with!(clients::Clients)
    },
    Experiment {
        name: "hostile",
        about: "What two victims lose to the attacks of a third user",
        details: "Three rounds of all attacks take nearly two hours, of one attack seven minutes. \
                  It needs root, to run programs as three other users.",
        takes: &[Seconds, Backend],
        spec: Some(&[]),
        ..with!(hostile::Hostile)
    },
    Experiment {
        name: "hosts",
        about: "Jobs that span two hosts: switches, shares, first slots, and etcd away",
        details: "Both hosts are on this machine, each with one CPU, in mount namespaces. It needs \
                  root and etcd (package etcd-server), and takes about five minutes. It comes \
                  before what else runs on these CPUs.",
        takes: &[Seconds, Backend],
        spec: Some(&[]),
        ..with!(hosts::Hosts)
    },
    Experiment {
        name: "net",
        about: "Messages within a host by each medium, beside libfabric and UCX",
        details: "It needs gcc and the headers of libfabric (package libfabric-dev). A medium that \
                  cannot be had is left out, and the report says why.",
        takes: &[Seconds],
        spec: Some(&[]),
        ..plain!(net::run)
    },
    Experiment {
        name: "netpreempt",
        about: "What gangs pay for messages whose context changes hands with the CPUs (S8 to S10)",
        details: "It needs root, and Open MPI (packages openmpi-bin and libopenmpi-dev). A round \
                  takes about ten minutes.",
        takes: &[Seconds, Backend],
        spec: Some(&["--slices", "20ms,100ms"]),
        ..with!(netpreempt::NetPreempt)
    },
    Experiment {
        name: "barriers",
        about: "The barrier of libgang beside those of libgomp and pthread",
        takes: ALL_OF_THEM,
        spec: Some(&[]),
        ..with!(barriers::Barriers)
    },
    Experiment {
        name: "calls",
        about: "How long calls of libgang take beside 100 jobs",
        takes: &[Backend, Paper],
        spec: Some(&[]),
        ..plain!(calls::run)
    },
];

impl Experiment {
    pub fn named(name: &str) -> Option<&'static Experiment> {
        EXPERIMENTS.iter().find(|experiment| experiment.name == name)
    }

    /// Those of which SPECIFICATION.md promises something.
    pub fn promised() -> impl Iterator<Item = &'static Experiment> {
        EXPERIMENTS.iter().filter(|experiment| experiment.spec.is_some())
    }

    /// As a person types it.
    pub fn command(&self) -> Command {
        let about = self.about;
        let command =
            crate::harness::options::augment((self.own)(Command::new(self.name)), self.takes)
                .about(about);
        match self.details {
            "" => command,
            details => command.long_about(format!("{about}\n\n{details}")),
        }
    }

    /// Runs it with what was typed.
    pub fn run(&self, lab: &Lab, matches: &ArgMatches) -> Result<Report> {
        (self.run)(lab, matches)
    }

    /// Runs it with its defaults.
    pub fn run_default(&self, lab: &Lab) -> Result<Report> {
        self.run_with(lab, &[])
    }

    /// Runs it as SPECIFICATION.md is about it.
    pub fn run_for_spec(&self, lab: &Lab) -> Result<Report> {
        self.run_with(lab, self.spec.unwrap_or_default())
    }

    fn run_with(&self, lab: &Lab, words: &[&str]) -> Result<Report> {
        let words = std::iter::once(&self.name).chain(words);
        let matches = self.command().try_get_matches_from(words)?;
        self.run(&lab.for_experiment(self.takes), &matches)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
    }

    #[test]
    fn what_spec_runs_is_understood() {
        for experiment in Experiment::promised() {
            let words = std::iter::once(&experiment.name).chain(experiment.spec.unwrap());
            let matches = experiment.command().try_get_matches_from(words);
            assert!(matches.is_ok(), "{}: {:?}", experiment.name, matches.err());
        }
    }

    #[test]
    fn each_command_is_sound() {
        for experiment in &EXPERIMENTS {
            experiment.command().debug_assert();
        }
    }
}
