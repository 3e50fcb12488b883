//! A program that clusters a stream of points, of the structure of streamcluster (E17, E18): for
//! each packet, candidates for a new centre are tried one after the other. All threads compute for
//! their part of the points what the candidate would gain, meet at a barrier every 81 µs, and the
//! last one decides.
//!
//! Packets come in bursts, at a mean rate that does not depend on them. The first thread waits for
//! the next packet, the others for the first thread, and all of them block when that takes longer.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::rendezvous::{Rendezvous, Wait};
use super::window::{now_ns, sleep_until_ns, thread_cpu_ns};
use super::{When, on_threads, seconds, thread_count};

const DIMENSIONS: usize = 16;
type Point = [f32; DIMENSIONS];

#[derive(Args, Debug, Clone)]
pub struct Stream {
    #[arg(long, default_value = "2", value_parser = thread_count)]
    pub threads: usize,
    /// Packets that come during the measurement
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub packets: u64,
    /// Packets that come at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub burst: u64,
    /// Candidates that are tried for a packet, each with a barrier
    #[arg(long, default_value_t = 10)]
    pub candidates: u64,
    /// Points of a packet for each thread
    #[arg(long, default_value_t = 2_000)]
    pub points: usize,
    /// spin, spin-block, or spin-block:TIME
    #[arg(long, default_value = "spin-block")]
    pub wait: Wait,
    /// CPUs that the threads run on [default: all]
    #[arg(long, value_delimiter = ',')]
    pub pin: Vec<usize>,
    /// Give up this long after the measurement
    #[arg(long, default_value = "60s", value_parser = seconds)]
    pub time_limit: Duration,
    #[command(flatten)]
    pub when: When,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamOutcome {
    pub workload: String,
    pub threads: usize,
    pub started_at_ns: u64,
    /// From the beginning of the window until the last packet was done.
    pub elapsed_ns: u64,
    pub packets: u64,
    /// False where it gave up.
    pub finished: bool,
    /// From the arrival of a packet until it was done.
    pub latency_ms_mean: f64,
    pub latency_ms_sd: f64,
    pub latency_ms_p99: f64,
    pub cpu_ns: u64,
}

impl Stream {
    pub fn run(&self) -> Result<StreamOutcome> {
        self.keep_to_cpus()?;
        let window = self.when.window()?;
        let end_ns = window.end_ns + self.time_limit.as_nanos() as u64;
        let stream = Clustering::new(self.threads, self.points);
        let given_up = AtomicBool::new(false);
        let interval_ns = window.length_ns() / self.packets;
        // A burst comes when its last packet would have come alone, so that the last one ends the
        // window, whatever its length.
        let arrival_ns = |packet: u64| {
            let come = ((packet / self.burst + 1) * self.burst).min(self.packets);
            window.start_ns + come * interval_ns
        };
        let mut done = on_threads(self.threads, |number| {
            let mut part = Part::new(number, self.points);
            let mut done_ns = Vec::new();
            for packet in 0..self.packets {
                if number == 0 {
                    sleep_until_ns(arrival_ns(packet));
                    given_up.store(now_ns() > end_ns, Ordering::Relaxed);
                }
                stream.barrier.meet(self.wait, || {});
                if given_up.load(Ordering::Relaxed) {
                    break;
                }
                part.begin();
                for candidate in 0..self.candidates {
                    stream.attempt(number, &mut part, candidate, self.wait);
                }
                if number == 0 {
                    done_ns.push(now_ns());
                }
            }
            (done_ns, thread_cpu_ns())
        })?;
        let cpu_ns = done.iter().map(|(_, cpu_ns)| cpu_ns).sum();
        let done_ns = std::mem::take(&mut done[0].0);
        let mut latency = Histogram::<u64>::new(3).context("making a histogram")?;
        for (packet, done_ns) in done_ns.iter().enumerate() {
            latency.record(done_ns.saturating_sub(arrival_ns(packet as u64)))?;
        }
        let last_ns = done_ns.last().copied().unwrap_or(window.start_ns);
        let finished = !given_up.into_inner();
        let until_ns = if finished { last_ns } else { now_ns() };
        Ok(StreamOutcome {
            workload: "stream".into(),
            threads: self.threads,
            started_at_ns: window.start_ns,
            elapsed_ns: until_ns - window.start_ns,
            packets: done_ns.len() as u64,
            finished,
            latency_ms_mean: latency.mean() / 1e6,
            latency_ms_sd: latency.stdev() / 1e6,
            latency_ms_p99: latency.value_at_quantile(0.99) as f64 / 1e6,
            cpu_ns,
        })
    }

    /// Before any thread is there, so that all have it.
    fn keep_to_cpus(&self) -> Result<()> {
        if self.pin.is_empty() {
            return Ok(());
        }
        let mut cpus = CpuSet::new();
        for &cpu in &self.pin {
            anyhow::ensure!(cpu < CpuSet::MAX_CPU, "CPU {cpu} is beyond the last there can be");
            cpus.set(cpu);
        }
        sched_setaffinity(None, &cpus).with_context(|| format!("keeping to CPUs {:?}", self.pin))
    }
}

/// The state that the threads share.
struct Clustering {
    barrier: Rendezvous,
    /// The gain of each thread's points, as the bits of a float.
    gains: Vec<AtomicU32>,
    cost_to_open: f32,
    opened: AtomicBool,
}

impl Clustering {
    fn new(threads: usize, points: usize) -> Self {
        Self {
            barrier: Rendezvous::new(threads),
            gains: (0..threads).map(|_| AtomicU32::new(0)).collect(),
            cost_to_open: (threads * points) as f32,
            opened: AtomicBool::new(false),
        }
    }

    /// Tries one candidate for a centre; it is opened where the points together gain by it.
    fn attempt(&self, number: usize, part: &mut Part, candidate: u64, wait: Wait) {
        let gain = part.gain(&point(candidate.wrapping_mul(7919)));
        self.gains[number].store(gain.to_bits(), Ordering::Relaxed);
        self.barrier.meet(wait, || {
            let gains = self.gains.iter().map(|gain| f32::from_bits(gain.load(Ordering::Relaxed)));
            self.opened.store(gains.sum::<f32>() > self.cost_to_open, Ordering::Relaxed);
        });
        if self.opened.load(Ordering::Relaxed) {
            part.take();
        }
    }
}

/// The points of one thread.
struct Part {
    points: Vec<Point>,
    /// Distance of each point to its centre, and to the candidate.
    costs: Vec<f32>,
    tried: Vec<f32>,
}

impl Part {
    fn new(number: usize, points: usize) -> Self {
        let points: Vec<Point> = (0..points).map(|n| point((number * points + n) as u64)).collect();
        let costs = vec![f32::MAX; points.len()];
        Self { tried: costs.clone(), costs, points }
    }

    /// A new packet has no centres.
    fn begin(&mut self) {
        self.costs.fill(DIMENSIONS as f32);
    }

    fn gain(&mut self, centre: &Point) -> f32 {
        let mut gain = 0.0;
        for ((point, cost), tried) in self.points.iter().zip(&self.costs).zip(&mut self.tried) {
            let distance: f32 = point.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum();
            *tried = distance;
            gain += (cost - distance).max(0.0);
        }
        gain
    }

    /// The candidate becomes a centre of those that are nearer to it.
    fn take(&mut self) {
        for (cost, tried) in self.costs.iter_mut().zip(&self.tried) {
            *cost = cost.min(*tried);
        }
    }
}

/// A point with coordinates between 0 and 1.
fn point(number: u64) -> Point {
    let mut random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::array::from_fn(|_| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 40) as f32 / (1u32 << 24) as f32
    })
}

/// How many points a thread needs for a candidate to take this long, by the best of several
/// attempts.
pub fn points_for(length: Duration) -> usize {
    const SAMPLE: usize = 2_000;
    let mut part = Part::new(0, SAMPLE);
    let mut best = Duration::MAX;
    for candidate in 0..100 {
        part.begin();
        let before = Instant::now();
        std::hint::black_box(part.gain(&point(candidate)));
        best = best.min(before.elapsed());
    }
    (length.as_secs_f64() / best.as_secs_f64() * SAMPLE as f64).max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_centre_is_taken_by_those_who_gain() {
        let mut part = Part::new(0, 50);
        part.begin();
        let centre = part.points[7];
        let gain = part.gain(&centre);
        assert!(gain > 0.0);
        part.take();
        assert_eq!(part.costs[7], 0.0);
        assert_eq!(part.gain(&centre), 0.0, "nobody gains twice");
    }

    #[test]
    fn points_are_somewhere_in_the_cube() {
        for number in 0..100 {
            assert!(point(number).iter().all(|x| (0.0..1.0).contains(x)));
        }
        assert_ne!(point(1), point(2));
        assert!(points_for(Duration::from_micros(80)) > 0);
    }
}
