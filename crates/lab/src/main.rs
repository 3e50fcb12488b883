//! `gang lab`: the measurements of gangd as commands that anyone can repeat.

mod child;
mod cli;
mod compiled;
mod confusion;
mod daemon;
mod demo;
mod duration;
mod experiment;
mod gangs;
mod harness;
mod html;
mod journal;
mod lab;
mod machine;
mod noise;
mod onlookers;
mod openmp;
mod origin;
mod patience;
mod picture;
mod proc;
mod programs;
mod promise;
mod report;
mod stats;
mod table;
mod verdict;
mod workload;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            harness::say("");
            eprintln!("gang lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
