//! The cost of a plan. A plan for the next slice is made in the slice before, so its cost has to be
//! far below the shortest slice in use, 1 ms.
//!
//! `cargo bench -p gang-schedule` measures; `-- --quick` gives the figures
//! within seconds.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gang_schedule::*;
use std::time::Duration;

/// 1,024 CPUs in 512 cores, 64 caches and 8 nodes.
fn large() -> Topology {
    let cpu = |id| {
        let core = id % 512;
        Cpu { id, core, cache: core / 8, node: core / 64 }
    };
    Topology::new((0..1024).map(cpu).collect()).expect("distinct CPUs")
}

fn schedule(topology: Topology, jobs: u64, spec: impl Fn(u64) -> Spec) -> Schedule {
    shared(Sharing::ByProgram, topology, jobs, spec)
}

fn shared(sharing: Sharing, topology: Topology, jobs: u64, spec: impl Fn(u64) -> Spec) -> Schedule {
    let config = Config { sharing, ..Config::default() };
    let mut schedule = Schedule::new(config, topology).expect("valid settings");
    schedule.apply(Event::load(200)).expect("a load");
    for job in 0..jobs {
        schedule.apply(Event::Arrived { job: JobId(job), spec: spec(job) }).expect("a valid job");
    }
    schedule
}

/// Widths from one CPU to a node, all weights and the sharing classes.
fn mixed(job: u64) -> Spec {
    let class = if job % 3 == 0 { Class::Interactive } else { Class::Batch };
    Spec { class, weight: 50 + (job * 37 % 400) as u32, ..Spec::new(1 << (job * 7 % 8)) }
}

/// The same, of 100 users.
fn of_users(job: u64) -> Spec {
    Spec { user: UserId((job % 100) as u32), ..mixed(job) }
}

fn slices(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan on 1024 CPUs");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut each = |name: &str, jobs: u64, mut schedule: Schedule| {
        let mut slice = 0;
        group.bench_function(BenchmarkId::new(name, jobs), |b| {
            b.iter(|| {
                slice += 1;
                schedule.plan(slice)
            });
        });
    };
    for jobs in [10, 100, 1_000, 10_000] {
        each("mixed widths, jobs", jobs, schedule(large(), jobs, mixed));
    }
    let by_user = shared(Sharing::ByUser([].into()), large(), 1_000, of_users);
    each("mixed widths, shared by 100 users, jobs", 1_000, by_user);
    // The most slots in a row, and nobody finds its CPUs free.
    each("one thread each, jobs", 1_000, schedule(large(), 1_000, |_| Spec::new(1)));
    each("one thread each, jobs", 10_000, schedule(large(), 10_000, |_| Spec::new(1)));
    let flat = schedule(Topology::flat(1024), 1_000, mixed);
    each("mixed widths, no shared cores, jobs", 1_000, flat);
}

criterion_group!(benches, slices);
criterion_main!(benches);
