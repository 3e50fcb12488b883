//! The time of gangs and programs on CPUs, summed up in the kernel.
//!
//! Problem: only the kernel's scheduler sees whether the threads of a gang run at once, and who
//! keeps them from it. A record of each switch would cost more than a slice gains.
//!
//! Approach: programs on the scheduler's tracepoints (`cosched.bpf.c`, which says how) keep sums
//! for each gang; a [`Meter`] loads them, says which groups are gangs and when their slots are, and
//! reads. The kernel needs BTF and no kprobes; who runs it needs CAP_BPF and CAP_PERFMON.
//!
//! A [`Profiler`] sums up what the threads of a single program do, and looks at them at the ticks
//! of a clock (`profile.bpf.c`).
//!
//! Properties: what was not measured has a reason ([`NotMeasured`]), and no figure. When the meter
//! is dropped, the programs are gone from the kernel, also where its process was killed.

mod figures;
#[cfg(any(has_program, test))]
#[cfg_attr(not(has_program), allow(dead_code, reason = "tests use a part of it"))]
mod layout;
#[cfg(has_program)]
mod meter;
#[cfg(not(has_program))]
#[path = "no_meter.rs"]
mod meter;
#[cfg(has_program)]
mod object;
#[cfg(has_program)]
mod profiler;
#[cfg(not(has_program))]
#[path = "no_profiler.rs"]
mod profiler;
#[cfg(any(has_program, test))]
#[cfg_attr(not(has_program), allow(dead_code, reason = "tests use a part of it"))]
mod shared;
mod ticks;
mod whole;

#[cfg(test)]
#[path = "../tests/native/mod.rs"]
mod native;

pub use figures::{Culprit, GangSums, OnCpu, RunnableThread, SchedClass, Wait};
pub use meter::Meter;
pub use profiler::Profiler;
pub use ticks::{CODE_BYTES, Coscheduling, Sleep, Sum, Tick, Who};
pub use whole::Whole;

/// A turn of a gang: a part of the time in which it has its slot, and the gap that interrupts the
/// slot (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTime {
    pub start_ns: u64,
    /// The end of the slot. It is `start_ns` where the turn is a gap from its start.
    pub end_ns: u64,
    /// The end of the gap; that of the slot where there is none.
    pub until_ns: u64,
    /// The number of its CPUs; 0 where they are not those of the row that goes with it.
    pub cpus: u32,
}

impl SlotTime {
    /// A slot that no gap interrupts, of a row that is not known.
    pub fn new(start_ns: u64, end_ns: u64) -> SlotTime {
        SlotTime { start_ns, end_ns, until_ns: end_ns, cpus: 0 }
    }
}

/// The turn of a gang on some CPUs (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    pub start_ns: u64,
    pub end_ns: u64,
    /// The number of the gang's cgroup.
    pub gang: u64,
}

/// CPUs that have the same turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    pub cpus: Vec<u32>,
    /// In order, without overlap.
    pub turns: Vec<Turn>,
}

/// The most slots that are kept of a gang; later ones are written when earlier ones have passed.
pub const SLOTS_MAX: usize = 320;

/// Why nothing is measured.
#[derive(Debug, thiserror::Error)]
pub enum NotMeasured {
    #[error("this program was built without clang or libelf")]
    NotBuilt,
    #[error("it takes root, or CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// The cause is part of the text: what comes from libbpf has the operation and the object in
    /// it.
    #[error("the kernel refuses to {operation}: {cause}")]
    Refused { operation: &'static str, cause: String },
    #[error("the kernel has no such gang")]
    NotWatched,
}
