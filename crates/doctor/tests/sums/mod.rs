//! The sums of a program while it is watched, against those that the kernel itself keeps of its
//! threads.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use gang_bpf::{Coscheduling, Sum};
use gang_daemon::Program;
use gang_doctor::{
    observation::Observation,
    sampler::{Sampler, Ticks},
};
use gang_harness::{skipped, wait_for, wait_until};
use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies},
};

use crate::watching::{cannot_watch, sole_watcher};

/// A group of a test, which is gone with it.
struct Watched(Group);

impl Watched {
    /// None where there is no unified hierarchy; says why.
    fn new(name: &str) -> Option<Watched> {
        let Some(root) = Hierarchies::detect(&Roots::default()).unwrap().v2 else {
            skipped("no cgroup2");
            return None;
        };
        let group = Group::at(root).child(format!("gang-doctor-{name}-{}", std::process::id()));
        group.create().unwrap();
        Some(Watched(group))
    }

    /// The observation of two seconds; none where nothing can be watched here.
    fn seen(&self) -> Option<Observation> {
        self.seen_in(Duration::from_secs(2))
    }

    /// The observation of as much time as it takes to see enough.
    fn seen_until(&self, is_enough: impl Fn(&Observation) -> bool) -> Option<Observation> {
        let mut length = Duration::from_millis(500);
        wait_for("enough is seen of its threads", || {
            let seen = self.seen_in(length);
            length *= 4;
            seen.as_ref().is_none_or(&is_enough).then_some(seen)
        })
    }

    fn seen_in(&self, length: Duration) -> Option<Observation> {
        let sampler = Sampler::begin(&Roots::default(), self.0.path(), cpus(), Ticks::Few);
        let mut sampler = match sampler {
            Err(error) if cannot_watch(&format!("{error:#}")) => {
                skipped(format!("{error:#}"));
                return None;
            }
            sampler => sampler.unwrap(),
        };
        sampler.until(Instant::now() + length).unwrap();
        Some(sampler.end().unwrap())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A killed process is gone a moment later. A test that panics already is not to do so
        // again.
        if !std::thread::panicking() {
            wait_until("the group of the test is empty and removed", || self.0.remove().is_ok());
        }
    }
}

/// Works for a moment and sleeps for two milliseconds, for ten minutes at most.
fn napper() -> Program {
    let nap = "exec 9<> <(:); while [ $SECONDS -lt 600 ]; do \
               for ((i = 0; i < 300; i++)); do :; done; read -rt 0.002 -u 9; done";
    Program::start(Command::new("bash").args(["-c", nap]))
}

fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

fn sum_of(seen: &Observation, is: impl Fn(Coscheduling) -> bool) -> Sum {
    let sums =
        seen.spans.iter().flat_map(|span| &span.sums).filter(|(coscheduling, _)| is(*coscheduling));
    sums.fold(Sum::default(), |all, (_, sum)| Sum {
        ns: all.ns + sum.ns,
        ran_ns: all.ran_ns + sum.ran_ns,
    })
}

/// Time was summed up, and threads ran in it.
fn is_there(seen: &Observation) {
    let all = sum_of(seen, |_| true);
    assert!(all.ns > 0 && all.ran_ns > 0, "{all:?}");
    assert!(seen.threads.values().any(|used| used.run_ns > 0), "{:?}", seen.threads);
}

/// All time is summed up once, and threads ran in it as long as the kernel says.
fn is_true(seen: &Observation) {
    let all = sum_of(seen, |_| true);
    let part = all.ns as f64 / seen.length_ns as f64;
    assert!((0.9..1.01).contains(&part), "{part} of the time was summed up");
    let ran_ns: u64 = seen.threads.values().map(|used| used.run_ns).sum();
    let ratio = all.ran_ns as f64 / ran_ns as f64;
    // The kernel's own account leaves out interrupts and what a host takes, and is as old as the
    // last tick.
    assert!((0.9..1.15).contains(&ratio), "{all:?}, and the kernel has {ran_ns}");
}

#[test]
fn needs_root_and_bpf_wanting_threads_are_summed() {
    let Some(_sole) = sole_watcher() else { return };
    let Some(group) = Watched::new("wants") else { return };
    let spinners: Vec<Program> = (0..=cpus()).map(|_| Program::spinner()).collect();
    spinners.iter().for_each(|it| group.0.add(it.0.id()).unwrap());
    // There is one more of them than CPUs, so that one waits: seen as soon as all of them have
    // begun.
    let waits = |seen: &Observation| sum_of(seen, |it| it == Coscheduling::Apart).ns > 0;
    let Some(seen) = group.seen_until(waits) else { return };
    is_there(&seen);
    assert_eq!(seen.threads.len(), spinners.len(), "{:?}", seen.threads);
    assert!(!seen.looks.is_empty(), "clocks tick");
}

#[test]
fn needs_root_and_bpf_threads_that_nap_are_summed() {
    let Some(_sole) = sole_watcher() else { return };
    let Some(group) = Watched::new("naps") else { return };
    let naps: Vec<Program> = (0..=cpus()).map(|_| napper()).collect();
    naps.iter().for_each(|it| group.0.add(it.0.id()).unwrap());
    let slept = |seen: &Observation| seen.sleeps.values().map(|sleeps| sleeps.count).sum::<u64>();
    let Some(seen) = group.seen_until(|seen| slept(seen) > 100) else { return };
    is_there(&seen);
}

#[test]
#[ignore = "nightly: needs a machine whose CPUs are its own"]
fn needs_root_and_bpf_run_and_wait_sums_match_kernel() {
    let Some(_sole) = sole_watcher() else { return };
    let Some(group) = Watched::new("spins") else { return };
    let spinners: Vec<Program> = (0..=cpus()).map(|_| Program::spinner()).collect();
    spinners.iter().for_each(|it| group.0.add(it.0.id()).unwrap());
    let Some(seen) = group.seen() else { return };
    is_true(&seen);
    // There is one more of them than CPUs.
    let share = |sum: Sum| sum.ns as f64 / sum_of(&seen, |_| true).ns as f64;
    let apart = share(sum_of(&seen, |coscheduling| coscheduling == Coscheduling::Apart));
    assert!(apart > 0.9, "one waits for a CPU: {apart}");
}

#[test]
#[ignore = "nightly: needs a machine whose CPUs are its own"]
fn needs_root_and_bpf_sleep_sums_match_kernel() {
    let Some(_sole) = sole_watcher() else { return };
    let Some(group) = Watched::new("sleeps") else { return };
    let naps: Vec<Program> = (0..=cpus()).map(|_| napper()).collect();
    naps.iter().for_each(|it| group.0.add(it.0.id()).unwrap());
    let Some(seen) = group.seen() else { return };
    is_true(&seen);
    let slept: u64 = seen.sleeps.values().map(|sleeps| sleeps.count).sum();
    assert!(slept > 100, "{slept}");
}

/// A tick on one CPU soon after that on another one would find there, each time, who waits for the
/// thread that was kept from its work.
#[test]
#[ignore = "nightly: needs a machine whose CPUs are its own"]
fn needs_root_and_bpf_cpus_tick_in_turn() {
    let Some(_sole) = sole_watcher() else { return };
    let Some(group) = Watched::new("ticks") else { return };
    let program = Program::spinner();
    group.0.add(program.pid()).unwrap();
    let Some(seen) = group.seen() else { return };
    let mut at_ns: Vec<u64> = seen.looks.iter().map(|look| look.at_ns).collect();
    at_ns.sort_unstable();
    let mut apart_ns: Vec<u64> = at_ns.windows(2).map(|two| two[1] - two[0]).collect();
    apart_ns.sort_unstable();
    let mean_ns = apart_ns.iter().sum::<u64>() / apart_ns.len() as u64;
    // Some come late, because a CPU is taken from this machine, or the kernel lets nobody interrupt
    // it.
    let close_ns = apart_ns[apart_ns.len() / 4];
    assert!(close_ns > mean_ns / 4, "a quarter are {close_ns} ns apart or less, of {mean_ns}");
}
