//! Threads that work in steps: those that meet at a barrier after each, as BARRIER (E10) and the
//! solvers of L35 and L36 do, and those that go on by themselves.
//!
//! The last thread of each step looks at the clock before it lets the others go, so that all
//! threads agree in which step the window began and ended.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use anyhow::Result;

use super::rendezvous::{Rendezvous, Wait};
use super::window::{CpuMeter, Phase, Window, now_ns};
use super::{Outcome, ThreadOutcome, on_threads};

/// Runs until the window is over. `start` makes the work of one thread, which is called with the
/// number of each step; `units` says how much a step counts.
pub fn in_steps<Step: FnMut(u64)>(
    workload: &str,
    threads: usize,
    wait: Wait,
    window: Window,
    start: impl Fn(usize) -> Step + Sync,
    units: impl Fn(u64) -> u64 + Sync,
) -> Result<Outcome> {
    let barrier = Rendezvous::new(threads);
    let phase = AtomicU8::new(Phase::Before as u8);
    let iterations = AtomicU64::new(0);
    let ready_at_ns = AtomicU64::new(0);
    let first_at_ns = AtomicU64::new(0);
    let look = |step: u64| {
        let now_ns = now_ns();
        if ready_at_ns.load(Ordering::Relaxed) == 0 {
            ready_at_ns.store(now_ns, Ordering::Relaxed);
        }
        let now = window.phase(now_ns);
        if now == Phase::Inside {
            if first_at_ns.load(Ordering::Relaxed) == 0 {
                first_at_ns.store(now_ns, Ordering::Relaxed);
            }
            iterations.fetch_add(units(step), Ordering::Relaxed);
        }
        phase.store(now as u8, Ordering::Relaxed);
    };
    let cpu = on_threads(threads, |number| {
        let mut work = start(number);
        let mut meter = CpuMeter::default();
        for step in 0.. {
            work(step);
            barrier.meet(wait, || look(step));
            let now = match phase.load(Ordering::Relaxed) {
                x if x == Phase::Before as u8 => continue,
                x if x == Phase::Inside as u8 => Phase::Inside,
                _ => Phase::After,
            };
            meter.look(now);
            if now == Phase::After {
                break;
            }
        }
        meter.spent_ns()
    })?;
    let iterations = iterations.into_inner();
    Ok(Outcome {
        workload: workload.into(),
        threads,
        started_at_ns: window.start_ns,
        elapsed_ns: window.length_ns(),
        ready_at_ns: ready_at_ns.into_inner(),
        first_at_ns: Some(first_at_ns.into_inner()).filter(|at_ns| *at_ns > 0),
        cpu_ns: cpu.iter().sum(),
        iterations,
        per_thread: cpu.into_iter().map(|cpu_ns| ThreadOutcome { iterations, cpu_ns }).collect(),
    })
}

/// Runs threads that do not wait for each other, until the window is over, and counts what each
/// completes inside it. `start` makes the work of one thread.
pub fn apart<Step: FnMut()>(
    workload: &str,
    threads: usize,
    window: Window,
    start: impl Fn(usize) -> Step + Sync,
) -> Result<Outcome> {
    let threads = on_threads(threads, |number| {
        let mut work = start(number);
        let mut meter = CpuMeter::default();
        let mut iterations = 0;
        let ready_at_ns = now_ns();
        loop {
            work();
            let phase = window.phase(now_ns());
            meter.look(phase);
            match phase {
                Phase::Before => {}
                Phase::Inside => iterations += 1,
                Phase::After => {
                    let cpu_ns = meter.spent_ns();
                    return (ready_at_ns, ThreadOutcome { iterations, cpu_ns });
                }
            }
        }
    })?;
    let ready_at_ns = threads.iter().map(|(ready_at_ns, _)| *ready_at_ns).max();
    let per_thread: Vec<_> = threads.into_iter().map(|(_, outcome)| outcome).collect();
    Ok(Outcome {
        workload: workload.into(),
        threads: per_thread.len(),
        started_at_ns: window.start_ns,
        elapsed_ns: window.length_ns(),
        ready_at_ns: ready_at_ns.unwrap_or(0),
        first_at_ns: None,
        cpu_ns: per_thread.iter().map(|thread| thread.cpu_ns).sum(),
        iterations: per_thread.iter().map(|thread| thread.iterations).sum(),
        per_thread,
    })
}
