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

#[cfg(test)]
#[path = "../tests/native/mod.rs"]
mod native;

pub use figures::{Culprit, GangSums, OnCpu, RunnableThread, SchedClass, Wait};
pub use meter::Meter;
pub use profiler::Profiler;
pub use ticks::{CODE_BYTES, Coscheduling, Sleep, Sum, Tick, Who};

/// A part of the time in which a gang has its slot (CLOCK_MONOTONIC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotTime {
    pub start_ns: u64,
    pub end_ns: u64,
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
