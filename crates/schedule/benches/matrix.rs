//! The cost of the matrix of spanning jobs: computed anew, and one change of it.
//!
//! `cargo bench -p gang-schedule --bench matrix` measures; `-- --quick` gives the figures within a
//! minute.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use gang_schedule::matrix::{HostId, Load, Matrix, Span};
use gang_schedule::{Config, JobId};
use std::time::Duration;

/// Two jobs a host, of 2 to 64 hosts and 1 to 64 CPUs on each, beside some load: each CPU is wanted
/// by twelve jobs.
fn span(hosts: u32, job: u64) -> Span {
    let (on, cpus) = (2 << (job % 6), 1 << (job * 5 % 7));
    let first = (job * 7919 % u64::from(hosts)) as u32;
    Span::new((0..on).map(|at| (HostId((first + at) % hosts), cpus)))
}

fn matrix(hosts: u32) -> Matrix {
    let mut matrix = Matrix::new(Config::default(), 128).expect("valid settings");
    for host in 0..hosts {
        matrix.add_host(HostId(host), 64).expect("a new host");
        matrix.set_load(HostId(host), Load::of(host % 40)).expect("a load");
    }
    for job in 0..2 * u64::from(hosts) {
        matrix.place(JobId(job), span(hosts, job)).expect("a valid job");
    }
    matrix.rebuild();
    matrix
}

fn changes(c: &mut Criterion) {
    let mut group = c.benchmark_group("matrix of hosts with 64 CPUs");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group.sample_size(10);
    for hosts in [100, 1_000, 10_000] {
        let matrix = matrix(hosts);
        let mut each = |name: &str, change: &dyn Fn(&mut Matrix)| {
            group.bench_function(BenchmarkId::new(name, hosts), |b| {
                b.iter_batched_ref(|| matrix.clone(), change, BatchSize::PerIteration);
            });
        };
        each("anew", &|matrix| _ = matrix.rebuild());
        let job = JobId(u64::from(hosts));
        each("place a job of 64 hosts", &|matrix| {
            _ = matrix.place(JobId(u64::MAX), span(hosts, 5)).expect("a valid job")
        });
        let all = Span::new((0..hosts.min(1_000)).map(|host| (HostId(host), 8)));
        each("place a job of up to 1,000 hosts", &|matrix| {
            _ = matrix.place(JobId(u64::MAX), all.clone()).expect("a valid job")
        });
        each("remove a job", &|matrix| _ = matrix.remove(job).expect("it is there"));
        each("adjust", &|matrix| _ = matrix.adjust());
    }
}

criterion_group!(benches, changes);
criterion_main!(benches);
