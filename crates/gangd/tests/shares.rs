//! The shares of gangs on a full machine: by the slices that were planned for them, and by the
//! kernel's count of their CPU time. No length of time is judged: one's share is held against what
//! another had meanwhile.
//!
//! A CPU that a host takes away, or a quota, is nobody's share. So CPU time is judged nightly.

mod place;

use std::{fs, io::Write, path::Path};

use gang_linux::{clock, process};
use gang_protocol::{client::Registration, v1};
use place::{Place, Program, SPIN, has_backend, machine, registration, wait_for, wait_until};

/// A program with a thread for each CPU, all of which spin.
fn gang() -> Program {
    let spins = format!("bash -c '{SPIN}'");
    Program::shell(&format!("read go; for i in $(seq {}); do {spins} & done; wait", machine()))
}

/// Registers it, as wide as the machine, and lets it begin.
fn job(place: &Place, gang: &mut Program, weight: i64) -> i64 {
    let mut client = place.client();
    let job = client.register(&Registration { weight, ..registration("gang", machine()) }).unwrap();
    client.add_process(job, gang.pid_i64()).unwrap();
    gang.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    job
}

/// CPU time of jobs, in nanoseconds.
fn cpu_time<const N: usize>(place: &Place, jobs: [i64; N]) -> [f64; N] {
    jobs.map(|job| place.job(job).unwrap().cpu_time_ns as f64)
}

/// The slices that began after a moment and have ended, once enough of them count.
fn ended_since(
    place: &Place,
    since_ns: u64,
    counts: impl Fn(&v1::Row) -> bool,
    wanted: usize,
) -> Vec<v1::Row> {
    wait_for("slices", || {
        let now_ns = clock::utc_ns() as i64;
        let mut rows = place.client().frame(Some(since_ns as i64)).unwrap().rows;
        rows.retain(|row| row.start_ns > since_ns as i64 && row.end_ns <= now_ns);
        (rows.iter().filter(|row| counts(row)).count() >= wanted).then_some(rows)
    })
}

fn has_slot(row: &v1::Row, job: i64) -> bool {
    row.slots.iter().any(|slot| slot.job == job)
}

fn of_job(rows: &[v1::Row], job: i64) -> usize {
    rows.iter().filter(|row| has_slot(row, job)).count()
}

/// So many slices show the shares.
const SLICES: usize = 100;

#[test]
fn needs_root_gangs_have_no_more_slices_than_the_cap() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt", "--gang-share-max", "0.3"]);
    let mut gangs = [gang(), gang()];
    let jobs = gangs.each_mut().map(|gang| job(&place, gang, 100));
    wait_until("both have slots", || jobs.iter().all(|&job| place.job(job).unwrap().slots > 3));
    let rows = ended_since(&place, clock::utc_ns(), |_| true, SLICES);
    let had = rows.iter().filter(|row| !row.slots.is_empty()).count();
    assert!(had * 10 < rows.len() * 4, "{had} of {} slices at a cap of 0.3", rows.len());
    assert!(jobs.iter().all(|&job| of_job(&rows, job) > 0), "{rows:?}");
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
fn needs_root_gangs_have_slices_by_their_weights() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let (mut heavy, mut light) = (gang(), gang());
    let jobs = [job(&place, &mut heavy, 400), job(&place, &mut light, 100)];
    wait_until("both have slots", || jobs.iter().all(|&job| place.job(job).unwrap().slots > 3));
    let of_either = |row: &v1::Row| jobs.iter().any(|&job| has_slot(row, job));
    let rows = ended_since(&place, clock::utc_ns(), of_either, SLICES);
    let [heavy, light] = jobs.map(|job| of_job(&rows, job));
    let share = heavy as f64 / (heavy + light) as f64;
    assert!(
        (0.7..0.9).contains(&share),
        "{heavy} and {light} slices, at four fifths of the weight"
    );
    assert!(!rows.iter().any(|row| jobs.iter().all(|&job| has_slot(row, job))), "by turns");
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
fn needs_root_gang_takes_turns_with_ordinary_load() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let mut load = gang();
    load.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut gang = gang();
    let jobs = [job(&place, &mut gang, 100)];
    wait_until("they are seen", || place.status().unregistered_threads >= machine());
    let before = [cpu_time(&place, jobs)[0], time_below(&load)];
    let since_ns = clock::utc_ns();
    ended_since(&place, since_ns, |row| has_slot(row, jobs[0]), SLICES / 5);
    let of_others = |row: &v1::Row| row.rest_turn && row.slots.is_empty();
    ended_since(&place, since_ns, of_others, SLICES / 5);
    // A tenth of a second for each, however long that takes.
    let had = || [cpu_time(&place, jobs)[0] - before[0], time_below(&load) - before[1]];
    wait_until("both have run", || had().iter().all(|&ns| ns > 1e8));
}

/// The time that all CPUs of the machine together have spent, idle or not, in nanoseconds.
fn machine_time() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    // Guests are counted among users already.
    let ticks = text.lines().next().unwrap().split_whitespace().skip(1).take(8);
    ticks.map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() * 1e9 / 100.0
}

#[test]
#[ignore = "nightly: needs all of its CPUs all the time"]
fn needs_root_all_gangs_together_stay_below_the_cap() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt", "--gang-share-max", "0.3"]);
    let (mut one, mut other) = (gang(), gang());
    // A load that uses what gangs leave: gangs fill what nobody wants, whatever the cap.
    let mut load = gang();
    load.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let jobs = [job(&place, &mut one, 100), job(&place, &mut other, 100)];
    wait_until("both have slots", || jobs.iter().all(|&job| place.job(job).unwrap().slots > 3));
    let (before, began) = (cpu_time(&place, jobs), machine_time());
    let had = || {
        let now = cpu_time(&place, jobs);
        (0..2).map(|at| now[at] - before[at]).sum::<f64>()
    };
    wait_until("two seconds", || machine_time() - began > 2e9 * machine() as f64);
    let share = had() / (machine_time() - began);
    assert!((0.02..0.4).contains(&share), "{share} of the machine at a cap of 0.3");
}

#[test]
#[ignore = "nightly: needs all of its CPUs all the time"]
fn needs_root_filler_takes_nothing_from_a_slot() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let (mut heavy, mut light) = (gang(), gang());
    let jobs = [job(&place, &mut heavy, 400), job(&place, &mut light, 100)];
    wait_until("both have slots", || jobs.iter().all(|&job| place.job(job).unwrap().slots > 3));
    let before = cpu_time(&place, jobs);
    let had = || {
        let now = cpu_time(&place, jobs);
        [now[0] - before[0], now[1] - before[1]]
    };
    wait_until("a second for each CPU", || had().iter().sum::<f64>() > 1e9 * machine() as f64);
    // Each spins all the time, and would have as much as the other if it ran in the other's slots.
    let [heavy, light] = had();
    let share = heavy / (heavy + light);
    assert!(share > 0.7, "{share} of what both had, at four fifths of the weight");
}

/// CPU time of all processes below one, in nanoseconds.
fn time_below(program: &Program) -> f64 {
    let root = Path::new("/proc");
    let all = process::descendants(root, program.pid()).unwrap().into_iter();
    let ticks = all.filter_map(|pid| Some(process::stat(root, pid).ok()?.cpu_ticks));
    ticks.sum::<u64>() as f64 * 1e7
}

#[test]
#[ignore = "nightly: needs all of its CPUs all the time"]
fn needs_root_gang_shares_with_ordinary_load() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let mut load = gang();
    load.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let mut gang = gang();
    let jobs = [job(&place, &mut gang, 100)];
    let threads = || place.status().unregistered_threads;
    wait_until("they are seen", || threads() >= machine());
    let before = [cpu_time(&place, jobs)[0], time_below(&load)];
    let had = || [cpu_time(&place, jobs)[0] - before[0], time_below(&load) - before[1]];
    wait_until("a second for each CPU", || had().iter().sum::<f64>() > 1e9 * machine() as f64);
    // As many threads as the gang has: half (L18). The load would have nearly all if no other
    // thread were planned for, and next to nothing if it were a filler all the time.
    let [of_gang, of_load] = had();
    let share = of_gang / (of_gang + of_load);
    assert!((0.25..0.75).contains(&share), "{share} beside as many threads that are no job");
}
