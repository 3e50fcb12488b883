//! All that gangd reads from the Linux kernel and asks of it.
//!
//! Nothing here decides anything. Every reader of kernel files takes the root of its tree as an
//! argument (see [`Roots`]), so that tests run on a directory; every call into the kernel names in
//! its error what was being done, and to what.
//!
//! Sources: `cgroups(7)`, Documentation/admin-guide/cgroup-v2.rst, `sched(7)`,
//! `sched_setattr(2)`, `proc(5)`, `bpf(2)`.

pub mod error;

pub mod bpf_stats;
pub mod census;
pub mod cgroup;
pub mod child;
pub mod clock;
pub mod clock_quality;
pub mod command;
pub mod descriptors;
pub mod inherited;
pub mod limits;
pub mod memory;
pub mod mounts;
pub mod namespaces;
pub mod own_files;
pub mod process;
pub mod sched;
pub mod switches;
pub mod topology;

pub use error::{Error, Result};

use std::path::PathBuf;

/// Where the kernel's file systems are: `/proc` and `/sys` on a machine, a directory in a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Roots { proc: "/proc".into(), sys: "/sys".into() }
    }
}
