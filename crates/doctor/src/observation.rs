//! The observation of a program while it was watched: no kernel, no clock, no program.
//!
//! Terms. A *look* is a tick of a CPU's clock with what was found there. A moment is *clear* when
//! no thread of the program waits for a CPU, and *apart* when one does. Some of its threads may
//! then run without the partners that they wait for.

use std::collections::BTreeMap;

use gang_bpf::{Coscheduling, Sum};
use serde::Serialize;

use crate::{competitors::Competitor, memory::Bandwidth, sites::libc_number};

/// The use of a CPU at a look.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// Nothing, or something for others.
    Else,
    /// A thread of the program works.
    Work { tid: u32 },
    /// A thread of the program is on the CPU and waits for others, there.
    Wait { tid: u32, site: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub doing: Doing,
    /// Threads of the program that run, and that wait for a CPU.
    pub running: u32,
    pub waiting: u32,
    pub coscheduling: Coscheduling,
    /// Threads that want this CPU, whosever they are.
    pub here: u32,
}

/// The time up to a moment, since the one before: a sum for each kind of moments that there were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub at_ns: u64,
    pub sums: Vec<(Coscheduling, Sum)>,
}

/// The kernel's sums of a thread, over the time that was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Use {
    /// On a CPU, and waiting for one.
    pub run_ns: u64,
    pub wait_ns: u64,
}

/// The reason why a thread slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Each other: a futex.
    Partner,
    /// A device, or memory that the kernel has to fetch.
    Device,
    /// Nothing but time.
    Time,
    /// A message of another program, or of the network.
    Elsewhere,
}

impl Cause {
    /// By the system call that a thread sleeps in, if any, and whether no signal could end that.
    pub fn of(call: Option<u32>, uninterruptible: bool) -> Cause {
        match call {
            _ if uninterruptible => Cause::Device,
            None => Cause::Device,
            Some(libc_number::FUTEX | libc_number::FUTEX_WAITV) => Cause::Partner,
            Some(call) if libc_number::SLEEPS.contains(&call) => Cause::Time,
            Some(_) => Cause::Elsewhere,
        }
    }
}

/// Sleeps of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sleeps {
    pub count: u64,
    pub ns: u64,
    /// Of those at whose beginning and end no thread of the program waited for a CPU.
    pub clear_count: u64,
    pub clear_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// How long was watched.
    pub length_ns: u64,
    /// CPUs of the machine, and those that the program may use.
    pub machine: usize,
    pub allowed: usize,
    pub looks: Vec<Look>,
    pub spans: Vec<Span>,
    /// Ticks of which nobody knows what was there: they were not read in time.
    pub lost: u64,
    /// Also of those that have ended.
    pub threads: BTreeMap<u32, Use>,
    /// The most of those that compute which there were at once; absent where nobody counted.
    pub threads_at_once: Option<usize>,
    /// By the thread that slept.
    pub sleeps: BTreeMap<(u32, Cause), Sleeps>,
    /// The processes that competed; empty where nobody asked.
    pub competitors: Vec<Competitor>,
    /// The bytes that it fetched from memory; absent where nobody asked.
    pub memory: Option<Bandwidth>,
}

/// A thread that ran less than this share of what the busiest did is none of those that compute.
const BUSY: f64 = 0.05;

impl std::ops::AddAssign for Sleeps {
    fn add_assign(&mut self, other: Sleeps) {
        self.count += other.count;
        self.ns += other.ns;
        self.clear_count += other.clear_count;
        self.clear_ns += other.clear_ns;
    }
}

impl Observation {
    /// Those of its threads that compute.
    pub fn busy(&self) -> Vec<u32> {
        let most = self.threads.values().map(|used| used.run_ns).max().unwrap_or(0);
        let least = (most as f64 * BUSY).max(1.0);
        let busy = self.threads.iter().filter(|(_, used)| used.run_ns as f64 >= least);
        busy.map(|(&tid, _)| tid).collect()
    }

    /// The same without one of `parts` parts of the time, for estimates of how sure a figure is.
    pub fn without(&self, part: usize, parts: usize) -> Observation {
        let first = self.looks.first().map_or(0, |look| look.at_ns);
        let last = self.looks.last().map_or(0, |look| look.at_ns) + 1;
        let length = (last - first).max(1) as f64;
        let part_of = |at_ns: u64| {
            let part = at_ns.saturating_sub(first) as f64 / length * parts as f64;
            (part as usize).min(parts - 1)
        };
        let looks = self.looks.iter().filter(|look| part_of(look.at_ns) != part).cloned();
        let spans = self.spans.iter().filter(|span| part_of(span.at_ns) != part).cloned();
        Observation { looks: looks.collect(), spans: spans.collect(), ..self.clone() }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const MS: u64 = 1_000_000;

    pub fn look(at_ms: u64, doing: Doing, running: u32, waiting: u32) -> Look {
        let coscheduling =
            if waiting > 0 { Coscheduling::Apart } else { Coscheduling::Met(running) };
        Look { at_ns: at_ms * MS, doing, running, waiting, coscheduling, here: 1 }
    }

    /// The same as its looks have it, each of which stands for as much time.
    pub fn as_looked_at(seen: Observation) -> Observation {
        let span = |look: &Look| {
            let ran_ns = if look.doing == Doing::Else { 0 } else { seen.machine as u64 };
            Span { at_ns: look.at_ns, sums: vec![(look.coscheduling, Sum { ns: 1, ran_ns })] }
        };
        Observation { spans: seen.looks.iter().map(span).collect(), ..seen }
    }

    /// Two that compute, and one that hardly runs.
    pub fn two_threads(looks: Vec<Look>) -> Observation {
        let used = Use { run_ns: 900 * MS, wait_ns: 0 };
        let idle = Use { run_ns: MS, wait_ns: 0 };
        as_looked_at(Observation {
            length_ns: 1000 * MS,
            machine: 2,
            allowed: 2,
            looks,
            threads: BTreeMap::from([(1, used), (2, used), (3, idle)]),
            ..Observation::default()
        })
    }

    #[test]
    fn why_threads_sleep() {
        let read = 0;
        assert_eq!(Cause::of(Some(read), true), Cause::Device, "a disk");
        assert_eq!(Cause::of(None, false), Cause::Device, "memory that is to be fetched");
        assert_eq!(Cause::of(Some(read), false), Cause::Elsewhere, "a pipe");
        assert_eq!(Cause::of(Some(libc_number::FUTEX), false), Cause::Partner);
        assert_eq!(Cause::of(Some(libc_number::SLEEPS[1]), false), Cause::Time);
    }
}
