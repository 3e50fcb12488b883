//! Runs storms by hand, on all CPUs.
//!
//!   storm SEED                  one seed again; a seed that fails prints its shortest script
//!   storm SEED FILE             the script in a file, on the machine of a seed
//!   storm FROM..TO [WHICH]      many seeds; ends with the shortest script of the first that fails
//!   storm FROM..TO first        the same, up to the first seed that fails; nothing is shrunk
//!   storm FROM.. MINUTES [WHICH]
//!                               as many seeds as there is time for
//!
//! WHICH is `cgroups` or `trees`: only seeds whose jobs have cgroups, or are trees of processes.
//! With STORM_TRACE=1 every plan and action is printed, and nothing is shrunk.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gang_storm::{
    has_cgroups, on_all_cpus, run,
    script::{Event, of_seed, read, shrink, write},
};

/// A range ends after that many seeds that fail.
const FAILURES_MAX: usize = 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        [seeds, "first"] if seeds.contains("..") => first(seeds),
        [seeds, ref rest @ ..] if seeds.contains("..") => range(seeds, rest),
        [seed] => number(seed).and_then(|seed| one(seed, &of_seed(seed))),
        [seed, file] => number(seed).and_then(|seed| {
            let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
            one(seed, &read(&text)?)
        }),
        _ => Err("usage: storm SEED [FILE] | storm FROM..TO [cgroups|trees|first] | \
                  storm FROM.. MINUTES [cgroups|trees]"
            .into()),
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
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn one(seed: u64, events: &[Event]) -> Result<(), String> {
    let outcome = run(seed, events);
    if outcome.violations.is_empty() {
        println!("seed {seed}: {} steps, no violation", outcome.steps);
        return Ok(());
    }
    if std::env::var_os("STORM_TRACE").is_some() {
        return Err(format!("seed {seed}: {}", outcome.violations.join("\n")));
    }
    let fails = |events: &[Event]| !run(seed, events).violations.is_empty();
    let shortest = shrink(events.to_vec(), fails);
    let violations = run(seed, &shortest).violations;
    Err(format!("seed {seed}: {}\n\n{}", violations.join("\n"), write(&shortest)))
}

/// The first seed that fails, which is the same however many CPUs there are.
fn first(seeds: &str) -> Result<(), String> {
    let (from, to) = seeds.split_once("..").unwrap_or((seeds, ""));
    let next = AtomicU64::new(number(from)?);
    let end = AtomicU64::new(number(to)?);
    let found = Mutex::new(BTreeMap::new());
    on_all_cpus(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                break;
            }
            if let Some(violation) = run(seed, &of_seed(seed)).violations.into_iter().next() {
                // Seeds before this one are still run.
                end.fetch_min(seed, Ordering::Relaxed);
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, violation);
            }
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    match found.first_key_value() {
        None => Ok(()),
        Some((seed, violation)) => Err(format!("seed {seed}: {violation}")),
    }
}

/// Many seeds, those of one kind where it is named.
fn range(seeds: &str, words: &[&str]) -> Result<(), String> {
    let (from, to) = seeds.split_once("..").unwrap_or((seeds, ""));
    let from = number(from)?;
    let (to, minutes, which) = match (to, words) {
        ("", [minutes, which @ ..]) => (u64::MAX, number(minutes)?, which),
        ("", []) => return Err(format!("{seeds} takes a number of minutes")),
        (to, which) => (number(to)?, u64::MAX / 60, which),
    };
    let is_wanted: fn(u64) -> bool = match which {
        [] => |_| true,
        ["cgroups"] => has_cgroups,
        ["trees"] => |seed| !has_cgroups(seed),
        other => return Err(format!("{:?} is neither cgroups nor trees", other.join(" "))),
    };
    let began = Instant::now();
    let time = Duration::from_secs(minutes * 60);
    let next = AtomicU64::new(from);
    let done = Mutex::new((0, 0, Vec::new()));
    let work = || {
        while began.elapsed() < time {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                break;
            }
            if !is_wanted(seed) {
                continue;
            }
            let outcome = run(seed, &of_seed(seed));
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            let (seeds, steps, failed) = &mut *done;
            (*seeds, *steps) = (*seeds + 1, *steps + outcome.steps);
            if let Some(violation) = outcome.violations.first() {
                println!("seed {seed}: {violation}");
                failed.push(seed);
            }
            if failed.len() >= FAILURES_MAX {
                break;
            }
        }
    };
    on_all_cpus(work);
    let (seeds, steps, failed) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{seeds} seeds, {steps} steps, {} failed, in {:.0?}", failed.len(), began.elapsed());
    failed.iter().min().map_or(Ok(()), |&seed| one(seed, &of_seed(seed)))
}
