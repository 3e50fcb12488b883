//! Storms of many seeds, and the scripts of those that once failed.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use gang_conductor::life::{Moment, State};
use gang_storm::{
    Outcome, on_all_cpus, run,
    script::{DEATHS, USERS, of_seed, read, shrink, write},
    world::Cells,
};

/// Seeds of `make test`. One in five is of jobs that are trees of processes, as a daemon without
/// privilege has them.
const SEEDS: u64 = 10_600;

#[test]
fn no_seed_breaks_an_invariant() {
    let (next, all) = (AtomicU64::new(1), Mutex::new((Cells::new(), 0)));
    on_all_cpus(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > SEEDS {
                break;
            }
            let Outcome { cells: of_seed, steps, .. } = sound(seed);
            let mut all = all.lock().unwrap();
            all.1 += steps;
            for (cell, count) in of_seed {
                *all.0.entry(cell).or_default() += count;
            }
        }
    });
    let (cells, steps) = all.into_inner().unwrap();
    println!("{steps} steps; how often each moment came in each state:");
    for ((state, moment), count) in &cells {
        println!("  {state:?} {moment:?}: {count}");
    }
    let all = State::ALL.into_iter().flat_map(|state| Moment::ALL.map(|moment| (state, moment)));
    let missing: Vec<(State, Moment)> = all.filter(|cell| !cells.contains_key(cell)).collect();
    let named: BTreeSet<(State, Moment)> =
        NEVER.iter().flat_map(|(cells, _)| cells.iter().copied()).collect();
    let unexplained: Vec<_> = missing.iter().filter(|cell| !named.contains(cell)).collect();
    assert!(unexplained.is_empty(), "moments that never came: {unexplained:?}");
    let came: Vec<_> = named.iter().filter(|cell| cells.contains_key(cell)).collect();
    assert!(came.is_empty(), "moments that come after all: {came:?}");
}

/// Runs a seed, in which nothing may be broken.
fn sound(seed: u64) -> Outcome {
    let events = of_seed(seed);
    let outcome = run(seed, &events);
    if !outcome.violations.is_empty() {
        let fails = |events: &[_]| !run(seed, events).violations.is_empty();
        let shortest = write(&shrink(events, fails));
        panic!("seed {seed}: {}\n\n{shortest}", outcome.violations.join("\n"));
    }
    assert!(outcome.deaths >= DEATHS, "seed {seed}: {} deaths", outcome.deaths);
    assert!(outcome.users >= USERS, "seed {seed}: {} users", outcome.users);
    outcome
}

/// Cells that no storm reaches, with the reason. The tests of the conductor ask for each of them.
const NEVER: [(&[(State, Moment)], &str); 7] = [
    (
        &[
            (State::Arriving, Moment::Attach),
            (State::Present, Moment::Attach),
            (State::Stopped, Moment::Attach),
            (State::Present, Moment::Arrive),
        ],
        "only one process is the first of a job, and it arrives once",
    ),
    (
        &[
            (State::Registered, Moment::Arrive),
            (State::Registered, Moment::Left),
            (State::Registered, Moment::Moved),
        ],
        "what was begun with a process ends with the job, if that process is its last",
    ),
    (
        &[
            (State::Registered, Moment::Follow),
            (State::Registered, Moment::Detach),
            (State::Registered, Moment::AddThread),
            (State::Registered, Moment::Move),
        ],
        "a client is refused, or is the first to come, before the conductor is asked",
    ),
    (
        &[
            (State::Registered, Moment::Register),
            (State::Arriving, Moment::Register),
            (State::Present, Moment::Register),
            (State::Stopped, Moment::Register),
            (State::Registered, Moment::Restore),
            (State::Arriving, Moment::Restore),
            (State::Present, Moment::Restore),
            (State::Stopped, Moment::Restore),
        ],
        "a number is given once, and files are read before there are jobs",
    ),
    (
        &[
            (State::Absent, Moment::Attach),
            (State::Absent, Moment::Arrive),
            (State::Absent, Moment::Join),
            (State::Absent, Moment::Follow),
            (State::Absent, Moment::Detach),
            (State::Absent, Moment::Left),
            (State::Absent, Moment::AddThread),
            (State::Absent, Moment::DetachThread),
            (State::Absent, Moment::Wake),
            (State::Absent, Moment::Sleep),
            (State::Absent, Moment::Suspend),
            (State::Absent, Moment::Resume),
            (State::Absent, Moment::SetSignals),
            (State::Absent, Moment::Change),
            (State::Absent, Moment::Move),
            (State::Absent, Moment::Moved),
            (State::Absent, Moment::Confine),
            (State::Absent, Moment::OpenPage),
            (State::Absent, Moment::End),
        ],
        "what a storm asks is of jobs that are there",
    ),
    (&[(State::Registered, Moment::Sleep)], "a job without processes is not awake"),
    (&[(State::Arriving, Moment::AddThread)], "a job of single threads has none on its way"),
];

#[test]
fn scripts_of_bugs_that_were_mended_pass() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../issues");
    let mut count = 0;
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let Some((_, seed)) = name.rsplit_once('-').filter(|_| path.extension().is_some()) else {
            continue;
        };
        let events = read(&fs::read_to_string(&path).unwrap()).unwrap();
        let outcome = run(seed.parse().unwrap(), &events);
        assert_eq!(outcome.violations, Vec::<String>::new(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 5, "{count} scripts in {}", directory.display());
}
