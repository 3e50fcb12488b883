//! Runs storms by hand.
//!
//!   storm SEED           one seed again; a seed that fails prints its shortest script
//!   storm FROM..TO       many seeds, one after the other
//!   storm FROM..TO cgroups
//!                        those of them whose jobs have cgroups
//!   storm SEED FILE      the script in a file, on the machine of a seed
//!
//! With STORM_TRACE=1 every plan and action is printed, and nothing is shrunk.

use std::{process::ExitCode, time::Instant};

use gang_storm::{
    has_cgroups, run,
    script::{of_seed, read, shrink, write},
};

/// A range ends with that many seeds that fail.
const FAILURES_MAX: usize = 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        [seeds] if seeds.contains("..") => range(seeds, |_| true),
        [seeds, "cgroups"] if seeds.contains("..") => range(seeds, has_cgroups),
        [seed] => number(seed).and_then(|seed| one(seed, of_seed(seed))),
        [seed, file] => number(seed).and_then(|seed| {
            let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
            one(seed, read(&text)?)
        }),
        _ => Err("usage: storm SEED | storm FROM..TO | storm SEED FILE".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a seed, which is a number"))
}

fn one(seed: u64, events: Vec<gang_storm::script::Event>) -> Result<(), String> {
    let outcome = run(seed, &events);
    if outcome.violations.is_empty() {
        println!("seed {seed}: {} steps, no violation", outcome.steps);
        return Ok(());
    }
    if std::env::var_os("STORM_TRACE").is_some() {
        return Err(format!("seed {seed}: {}", outcome.violations.join("\n")));
    }
    let fails = |events: &[gang_storm::script::Event]| !run(seed, events).violations.is_empty();
    let shortest = shrink(events, fails);
    let violations = run(seed, &shortest).violations;
    Err(format!("seed {seed}: {}\n\n{}", violations.join("\n"), write(&shortest)))
}

fn range(seeds: &str, is_wanted: impl Fn(u64) -> bool) -> Result<(), String> {
    let (from, to) = seeds.split_once("..").unwrap_or((seeds, ""));
    let (from, to) = (number(from)?, number(to)?);
    let (began, mut seeds, mut steps) = (Instant::now(), 0, 0);
    let mut failed = Vec::new();
    for seed in (from..to).filter(|&seed| is_wanted(seed)) {
        let outcome = run(seed, &of_seed(seed));
        seeds += 1;
        steps += outcome.steps;
        if let Some(violation) = outcome.violations.first() {
            println!("seed {seed}: {violation}");
            failed.push(seed);
            if failed.len() == FAILURES_MAX {
                break;
            }
        }
    }
    println!("{seeds} seeds, {steps} steps, {} failed, in {:.0?}", failed.len(), began.elapsed());
    failed.first().map_or(Ok(()), |&seed| one(seed, of_seed(seed)))
}
