//! The programs that experiments run: small, bounded in time, and each prints one line of JSON.
//!
//! A workload begins to work when it starts, counts what it completes inside a [`Window`] that all
//! copies share, and ends by itself.

pub mod arrivals;
pub mod attack;
pub mod barrier;
pub mod build;
pub mod cache;
pub mod clients;
pub mod deadlines;
pub mod edges;
pub mod gauss;
pub mod hog;
pub mod matmul;
pub mod npb;
pub mod own;
pub mod patterns;
pub mod phases;
pub mod ranks;
pub mod release;
pub mod rendezvous;
pub mod scan;
pub mod sleepers;
pub mod steps;
pub mod stream;
pub mod tick;
pub mod window;
pub mod wires;
pub mod work;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use crate::harness::duration;
use window::Window;

#[derive(Subcommand, Debug)]
pub enum Workload {
    /// Threads work, meet at a barrier, and count iterations (E10)
    Barrier(barrier::Barrier),
    /// Parallel phases with barriers inside alternate with serial ones; a fixed amount of work
    Phases(phases::Phases),
    /// Threads that compute without pause
    #[command(alias = "loop")]
    Hog(hog::Hog),
    /// A short ordinary task that wakes at fixed points in time and records how late it was
    Tick(tick::Tick),
    /// Threads that sleep, and some that compute beside them
    #[command(alias = "threads")]
    Sleepers(sleepers::Sleepers),
    /// Kills a daemon and watches until no thread of its jobs is raised
    Release(release::Release),
    /// Gangs that arrive while others have all CPUs
    Arrivals(arrivals::Arrivals),
    /// Clients that register and end jobs
    Clients(clients::Clients),
    /// Gaussian elimination, a barrier after each pivot; counts floating-point operations (L35)
    Gauss(gauss::Gauss),
    /// Matrix multiply; counts floating-point operations (L36)
    Matmul(matmul::Matmul),
    /// Threads that go over memory without pause
    Scan(scan::Scan),
    /// Threads that work for as long as they have CPUs, and may meet
    Own(own::Own),
    /// Threads that count steps and must not fall behind each other (X5)
    Deadlines(deadlines::Deadlines),
    /// Clusters a stream of packets that come in bursts (E17)
    Stream(stream::Stream),
    /// Attacks a daemon as a local user can
    Attack(attack::Attacker),
    /// Threads that note when they ran, relative to slices (X8)
    Edges(edges::Edges),
    /// Compilers, so many at once, one after the other
    Build(build::Build),
}

impl Workload {
    /// Runs to the end and prints the outcome.
    pub fn run(&self) -> Result<()> {
        let line = match self {
            Workload::Barrier(it) => serde_json::to_string(&it.run()?),
            Workload::Phases(it) => serde_json::to_string(&it.run()?),
            Workload::Hog(it) => serde_json::to_string(&it.run()?),
            Workload::Tick(it) => serde_json::to_string(&it.run()?),
            Workload::Sleepers(it) => serde_json::to_string(&it.run()?),
            Workload::Release(it) => serde_json::to_string(&it.run()?),
            Workload::Arrivals(it) => serde_json::to_string(&it.run()?),
            Workload::Clients(it) => serde_json::to_string(&it.run()?),
            Workload::Gauss(it) => serde_json::to_string(&it.run()?),
            Workload::Matmul(it) => serde_json::to_string(&it.run()?),
            Workload::Scan(it) => serde_json::to_string(&it.run()?),
            Workload::Own(it) => serde_json::to_string(&it.run()?),
            Workload::Deadlines(it) => serde_json::to_string(&it.run()?),
            Workload::Stream(it) => serde_json::to_string(&it.run()?),
            Workload::Attack(it) => serde_json::to_string(&it.run()?),
            Workload::Edges(it) => serde_json::to_string(&it.run()?),
            Workload::Build(it) => serde_json::to_string(&it.run()?),
        };
        println!("{}", line.context("writing the outcome as JSON")?);
        Ok(())
    }
}

/// When a workload counts.
#[derive(Args, Debug, Clone)]
pub struct When {
    /// Length of the measurement
    #[arg(long, default_value = "1s", value_parser = seconds)]
    pub seconds: Duration,
    /// Start of the measurement, in nanoseconds since 1970; work before it is warm-up
    #[arg(long, value_name = "NS")]
    pub start_at: Option<u64>,
}

/// Without `--start-at`, copies warm up for this long.
const WARM_UP: Duration = Duration::from_millis(100);
/// No measurement lasts longer, so that a forgotten workload ends.
pub const LONGEST: Duration = Duration::from_secs(3600);

impl When {
    /// The window asked for; one that starts more than an hour from now is refused.
    pub fn window(&self) -> Result<Window> {
        let now_ns = window::now_ns();
        let start_ns = self.start_at.unwrap_or(now_ns + WARM_UP.as_nanos() as u64);
        anyhow::ensure!(
            start_ns < now_ns + LONGEST.as_nanos() as u64 && self.seconds <= LONGEST,
            "the measurement lies more than an hour ahead"
        );
        Ok(Window::new(start_ns, self.seconds))
    }
}

/// A length of time whose bare numbers are seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(_) => duration::parse(&format!("{text}s")),
        Err(_) => duration::parse(text),
    }
}

/// The number of threads of a workload.
pub fn thread_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=10_000) => Ok(threads),
        _ => Err(format!("{text:?} is not between 1 and 10000")),
    }
}

/// The work of a workload inside its window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub workload: String,
    pub threads: usize,
    /// The window, in nanoseconds since the Unix epoch.
    pub started_at_ns: u64,
    pub elapsed_ns: u64,
    /// When the last thread was ready; later than `started_at_ns` means that warm-up was too short.
    pub ready_at_ns: u64,
    /// When the first iteration inside the window was done, where that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_at_ns: Option<u64>,
    /// CPU time of all threads inside the window.
    pub cpu_ns: u64,
    /// Iterations completed inside the window by all threads together; barriers count once.
    pub iterations: u64,
    pub per_thread: Vec<ThreadOutcome>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ThreadOutcome {
    pub iterations: u64,
    pub cpu_ns: u64,
}

impl Outcome {
    /// Iterations in each second of the window.
    pub fn rate(&self) -> f64 {
        self.iterations as f64 / (self.elapsed_ns as f64 / 1e9)
    }

    /// Iterations in each second of CPU time that every thread had: the speed that the program
    /// would have on CPUs of its own if it spent its time there as it did here (L35). 0 without CPU
    /// time.
    pub fn rate_by_cpu(&self) -> f64 {
        if self.cpu_ns == 0 {
            return 0.0;
        }
        self.iterations as f64 / (self.cpu_ns as f64 / self.threads as f64 / 1e9)
    }
}

/// Runs `body` on `threads` threads, each with its number, and returns what they returned.
///
/// Stacks are small, so that a thousand threads cost no memory worth speaking of.
pub fn on_threads<T: Send>(threads: usize, body: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    const STACK_BYTES: usize = 64 << 10;
    std::thread::scope(|scope| {
        let body = &body;
        let mut handles = Vec::with_capacity(threads);
        for number in 0..threads {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            // A workload with fewer threads than asked for measures something else, and others
            // would wait for the missing ones at a barrier: the process ends instead.
            match builder.spawn_scoped(scope, move || body(number)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    eprintln!("gang-lab: starting thread {number} of {threads}: {error}");
                    std::process::exit(1);
                }
            }
        }
        handles
            .into_iter()
            .map(|handle| handle.join().map_err(|_| anyhow::anyhow!("a thread panicked")))
            .collect()
    })
}
