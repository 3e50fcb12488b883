//! Spanning jobs, hosts, and what a change of the matrix says.

use crate::matrix::Rows;
use crate::{Class, CpuSet, JobId, Spec, UserId};
use std::collections::BTreeMap;

/// The number of a host, given by the registry. Hosts stand in the matrix in the order of their
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl std::fmt::Display for HostId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The load of a host beside spanning jobs: its runnable threads, those of its own gangs and those
/// of no gang, and how many of them are of which users, as far as that is known. A thread weighs
/// like a batch job of default weight on one CPU (L18).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Load {
    pub threads: u32,
    pub of_users: BTreeMap<UserId, u32>,
}

impl Load {
    /// Runnable threads, of nobody knows whom.
    pub fn of(threads: u32) -> Load {
        Load { threads, of_users: BTreeMap::new() }
    }
}

/// The request of a spanning job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Span {
    pub user: UserId,
    pub class: Class,
    /// Time in slot relative to other jobs, 1 to 10,000; as in [`Spec`].
    pub weight: u32,
    /// CPUs on each host, at least one; at least two hosts (L14).
    pub cpus: BTreeMap<HostId, u32>,
    /// The columns among which it has its CPUs, on hosts where its processes are bound to some.
    pub allowed: BTreeMap<HostId, CpuSet>,
}

impl Span {
    /// A batch job of default weight.
    pub fn new(cpus: impl IntoIterator<Item = (HostId, u32)>) -> Span {
        Span {
            user: UserId::default(),
            class: Class::Batch,
            weight: Spec::DEFAULT_WEIGHT,
            cpus: cpus.into_iter().collect(),
            allowed: BTreeMap::new(),
        }
    }
}

/// The entries of a spanning job: in each of its rows it has these CPUs on each of its hosts. It
/// depends on no other job and not on the length of the frame, so that the registry keeps it as the
/// job's own data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Numbers of CPUs are columns of the host, from 0. Neighbours are near each other, as in
    /// [`Topology::cpus`](crate::Topology::cpus).
    pub cpus: BTreeMap<HostId, CpuSet>,
    pub rows: Rows,
}

/// The effect of one change: all that the registry has to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The rows of a frame from now on.
    pub frame: u32,
    /// The jobs whose placements are new, by id. All others stay as they are.
    pub placed: BTreeMap<JobId, Placement>,
}

/// Why a change of the matrix was not accepted. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    #[error("there is no job {job} in the matrix")]
    UnknownJob { job: JobId },
    #[error("job {job} is in the matrix already")]
    DuplicateJob { job: JobId },
    #[error("the matrix has {max} jobs already, which is the most that are kept")]
    TooManyJobs { max: usize },
    #[error("there is no host {host} in the matrix")]
    UnknownHost { host: HostId },
    #[error("host {host} is in the matrix already")]
    DuplicateHost { host: HostId },
    #[error("host {host} has entries of {jobs} jobs")]
    HostInUse { host: HostId, jobs: usize },
    #[error("a host has 1 to {max} CPUs, not {cpus}")]
    Cpus { cpus: u32, max: u32 },
    #[error("the job asks for {cpus} CPUs on host {host}, which has {there}")]
    TooWide { host: HostId, cpus: u32, there: u32 },
    #[error("the job asks for {cpus} CPUs on host {host}, and is bound to {allowed} of them")]
    Bound { host: HostId, cpus: u32, allowed: u32 },
    #[error("a spanning job has CPUs on two hosts at least; this one has {hosts}")]
    OneHost { hosts: usize },
    #[error("a weight is 1 to {max}, not {weight}")]
    Weight { weight: u32, max: u32 },
    #[error("of {threads} threads on host {host}, {known} cannot be of known users")]
    Load { host: HostId, threads: u32, known: u64 },
    #[error("the rows of a frame are 1 to {max}, not {rows}")]
    Rows { rows: u32, max: u32 },
    #[error("the frame would be longer than {max} rows")]
    Full { max: u32 },
    #[error("job {job} is placed on other hosts or with other CPUs than it asks for")]
    OtherCpus { job: JobId },
    #[error("job {job} is placed where job {other} is: on host {host}, in rows {rows}")]
    Taken { job: JobId, other: JobId, host: HostId, rows: Rows },
    #[error(transparent)]
    Config(#[from] crate::Refusal),
}
