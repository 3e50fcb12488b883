//! Ways of packing the matrix, compared by simulation. The best one is in the product
//! (`matrix::fit`); the others are here alone.
//!
//! `cargo run --release -p gang-schedule --example packing` prints the figures.
//!
//! Streams of jobs are like those of the archives of parallel workloads: most widths are powers of
//! two, run times are heavy-tailed (log-uniform over three decades), arrivals are Poisson. A job is
//! spread evenly over hosts that the launcher chose: of twice as many neighbours, the half whose
//! jobs have the fewest columns. It progresses by the share of rows that it has. All ways get the
//! same streams.

use fastrand::Rng;
use gang_schedule::matrix::fit::{Choice, Fit, most_room};
use gang_schedule::matrix::{HostId, Load, Matrix, Span};
use gang_schedule::{Config, CpuSet, JobId};
use std::collections::BTreeMap;

const LEAST_FRAME: u32 = 128;
const STEPS: u64 = 1_000;
const SEEDS: u64 = 4;

/// The lowest columns that leave as many rows as the job is due; where too few do, the lowest.
fn first_fit(choice: Choice) -> CpuSet {
    let mut left = choice.left.clone();
    let mut columns = CpuSet::new();
    for enough in [true, false] {
        for (column, taken) in choice.taken.iter().enumerate() {
            let is_wanted = columns.len() < choice.width as usize;
            let does = !enough || left.len_without(taken) >= choice.due;
            if is_wanted && does && columns.insert(column as u32) {
                left = Choice { left: &left, ..choice }.left_with([column]);
            }
        }
    }
    columns
}

/// Column after column, that which leaves the fewest rows, but as many as the job is due. Where no
/// column leaves as many, that which leaves the most. The first of equals.
fn best_fit(choice: Choice) -> CpuSet {
    let mut left = choice.left.clone();
    let mut columns = CpuSet::new();
    for _ in 0..choice.width {
        let free = (0..choice.taken.len() as u32).filter(|&column| !columns.contains(column));
        let rank = |&column: &u32| {
            let rows = left.len_without(&choice.taken[column as usize]);
            if rows >= choice.due { (0, rows) } else { (1, u32::MAX - rows) }
        };
        let Some(column) = free.min_by_key(rank) else { break };
        columns.insert(column);
        left = Choice { left: &left, ..choice }.left_with([column as usize]);
    }
    columns
}

/// The aligned block of a power of two that leaves the fewest rows, but as many as the job is due;
/// else that which leaves the most.
fn buddy(choice: Choice) -> CpuSet {
    let (all, width) = (choice.taken.len(), choice.width as usize);
    let size = width.next_power_of_two();
    let starts = (0..all).step_by(size).filter(|start| start + width <= all);
    let rank = |&start: &usize| {
        let rows = choice.left_with(start..start + width).len();
        if rows >= choice.due { (0, rows) } else { (1, u32::MAX - rows) }
    };
    let start = starts.min_by_key(rank).unwrap_or(0);
    (start..start + width).map(|column| column as u32).collect()
}

/// A job of a stream: when it comes, what it asks for, and how many steps it needs alone.
struct Coming {
    step: u64,
    span: Span,
    run: f64,
}

/// The columns of each host: a fifth of them has 48, as a site has that bought twice.
fn cpus_of(host: u32) -> u32 {
    if host % 5 == 4 { 48 } else { 64 }
}

fn stream(seed: u64, hosts: u32, jobs_a_step: f64) -> Vec<Coming> {
    let mut rng = Rng::with_seed(seed);
    let mut jobs = Vec::new();
    let mut clock = 0.0;
    loop {
        clock += -(1.0 - rng.f64()).ln() / jobs_a_step;
        if clock >= STEPS as f64 {
            return jobs;
        }
        let wide = 1 + rng.u32(0..=(hosts / 4).ilog2());
        let on = if rng.u32(0..10) < 8 { 1 << wide } else { 2 + rng.u32(0..hosts / 4) };
        let cpus = if rng.u32(0..10) < 8 { 1 << rng.u32(1..=5) } else { 1 + rng.u32(0..48) };
        let first = rng.u32(0..hosts);
        let span = Span::new((0..on).map(|at| (HostId((first + at) % hosts), cpus)));
        jobs.push(Coming { step: clock as u64, span, run: 10f64.powf(rng.f64() * 3.0) });
    }
}

#[derive(Default)]
struct Sums {
    steps: f64,
    stretch: f64,
    longest: f64,
    anew: f64,
    share: f64,
    jobs: f64,
    done: f64,
    slowdown: f64,
    moves: f64,
    changes: f64,
}

/// The hosts of a job, as the launcher chooses them.
fn launch(span: &Span, matrix: &Matrix, hosts: u32) -> Span {
    let mut of_host = vec![0; hosts as usize];
    for (_, span, _) in matrix.jobs() {
        for (host, cpus) in &span.cpus {
            of_host[host.0 as usize] += cpus;
        }
    }
    let wanted = span.cpus.len() as u32;
    let first = span.cpus.keys().next().map_or(0, |host| host.0);
    let cpus = span.cpus.values().next().copied().unwrap_or(1);
    let mut order: Vec<u32> = (0..hosts).map(|at| (first + at) % hosts).collect();
    order.truncate(2 * wanted as usize);
    order.sort_by_key(|host| of_host[*host as usize]);
    Span::new(order.into_iter().take(wanted as usize).map(|host| (HostId(host), cpus)))
}

fn simulate(fit: Fit, seed: u64, hosts: u32, jobs_a_step: f64, sums: &mut Sums) {
    let mut matrix = Matrix::new(Config::default(), LEAST_FRAME).expect("settings").packed_by(fit);
    let mut rng = Rng::with_seed(seed);
    for host in 0..hosts {
        matrix.add_host(HostId(host), cpus_of(host)).expect("a host");
        let threads = if rng.bool() { rng.u32(0..32) } else { 0 };
        matrix.set_load(HostId(host), Load::of(threads)).expect("a load");
    }
    let mut coming = stream(seed, hosts, jobs_a_step).into_iter().peekable();
    let mut running: BTreeMap<JobId, (u64, f64, f64)> = BTreeMap::new();
    let mut id = 0;
    for step in 0..STEPS {
        while let Some(next) = coming.next_if(|it| it.step <= step) {
            id += 1;
            let span = launch(&next.span, &matrix, hosts);
            let Ok(change) = matrix.place(JobId(id), span) else { continue };
            sums.moves += change.placed.len() as f64 - 1.0;
            sums.changes += 1.0;
            running.insert(JobId(id), (step, next.run, next.run));
        }
        sums.moves += matrix.adjust().placed.len() as f64;
        let frame = f64::from(matrix.frame());
        sums.steps += 1.0;
        sums.stretch += frame / f64::from(LEAST_FRAME);
        sums.longest = sums.longest.max(frame / f64::from(LEAST_FRAME));
        if step % 20 == 0 {
            let mut anew = matrix.clone();
            anew.rebuild();
            sums.anew += 20.0 * f64::from(anew.frame()) / f64::from(LEAST_FRAME);
        }
        let mut gone = Vec::new();
        for (&job, (since, run, left)) in &mut running {
            let rows = matrix.placement(job).expect("it runs").rows.len();
            let (has, due) = (f64::from(rows) / frame, matrix.share_due(job).expect("it runs"));
            sums.share += has / due;
            sums.jobs += 1.0;
            *left -= has;
            if *left <= 0.0 {
                gone.push(job);
                sums.done += 1.0;
                sums.slowdown += (step - *since + 1) as f64 / run.max(10.0);
            }
        }
        for job in gone {
            running.remove(&job);
            let change = matrix.remove(job).expect("it runs");
            sums.moves += change.placed.len() as f64;
            sums.changes += 1.0;
        }
    }
}

fn main() {
    let ways: [(&str, Fit); 4] = [
        ("first fit", first_fit),
        ("best fit", best_fit),
        ("most room", most_room),
        ("buddy", buddy),
    ];
    println!("frame: rows of a frame / {LEAST_FRAME}; share: rows held / rows due, mean of jobs");
    println!(
        "moved: placements changed by others' comings and goings and by loads, for each change"
    );
    for (hosts, jobs_a_step) in [(16, 0.05), (64, 0.05), (64, 0.08)] {
        println!("\n{hosts} hosts, {jobs_a_step} jobs a step, {SEEDS} streams of {STEPS} steps");
        println!("way         jobs  frame  longest   anew  share  slowdown  moved  done");
        for (name, fit) in ways {
            let mut sums = Sums::default();
            (0..SEEDS).for_each(|seed| simulate(fit, seed, hosts, jobs_a_step, &mut sums));
            let Sums { steps, stretch, longest, anew, share, jobs, done, slowdown, moves, changes } =
                sums;
            println!(
                "{name:10} {:5.1} {:6.3} {longest:8.3} {:6.3} {:6.3} {:9.2} {:6.2} {done:5}",
                jobs / steps,
                stretch / steps,
                anew / steps,
                share / jobs,
                slowdown / done,
                moves / changes,
            );
        }
    }
}
