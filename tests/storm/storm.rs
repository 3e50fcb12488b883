//! Storms of many seeds, and the scripts of those that once failed.

use std::{fs, path::Path};

use gang_storm::{
    run,
    script::{of_seed, read, shrink, write},
    world::Cells,
};

/// Seeds of `make test`. One in five is of jobs that are trees of processes, as a daemon without
/// privilege has them.
const SEEDS: u64 = 10_600;

#[test]
fn no_seed_breaks_an_invariant() {
    let (mut cells, mut steps) = (Cells::new(), 0);
    for seed in 1..=SEEDS {
        let events = of_seed(seed);
        let outcome = run(seed, &events);
        steps += outcome.steps;
        for (cell, count) in outcome.cells {
            *cells.entry(cell).or_default() += count;
        }
        if !outcome.violations.is_empty() {
            let fails = |events: &[_]| !run(seed, events).violations.is_empty();
            let shortest = write(&shrink(events, fails));
            panic!("seed {seed}: {}\n\n{shortest}", outcome.violations.join("\n"));
        }
    }
    println!("{steps} steps; how often each moment came in each state:");
    for ((state, moment), count) in &cells {
        println!("  {state:?} {moment:?}: {count}");
    }
    let never: Vec<String> = gang_conductor::life::State::ALL
        .into_iter()
        .flat_map(|state| gang_conductor::life::Moment::ALL.map(|moment| (state, moment)))
        .filter(|cell| !cells.contains_key(cell))
        .map(|(state, moment)| format!("{state:?} {moment:?}"))
        .collect();
    println!("never: {}", never.join(", "));
    assert!(never.len() <= NEVER, "moments that never came: {}", never.join(", "));
}

/// Cells that no storm reaches: only one process is the first of a job, and a job without
/// processes neither sleeps nor moves.
const NEVER: usize = 9;

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
