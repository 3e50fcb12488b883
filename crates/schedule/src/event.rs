//! The events of the policy, and its refusals.

use std::collections::BTreeMap;

use crate::{
    Allowed, ClassSlices, ClassWeights, CpuSet, Entries, JobId, Quota, Sharing, Spec, Topology,
    UserId,
};

/// Something that happened, in the order in which it is to take effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A job registered. It is awake and not suspended.
    Arrived { job: JobId, spec: Spec },
    /// A job is gone; its id is not used again.
    Departed { job: JobId },
    /// A running job asks for something else (L26).
    Changed { job: JobId, spec: Spec },
    /// The threads of a job may use other CPUs from now on. It is what somebody did to them, so
    /// that it is never refused.
    Confined { job: JobId, to: Allowed },
    /// A job has another quota of CPU time from now on, or none. It is what somebody did to its
    /// group, so that it is never refused.
    Limited { job: JobId, to: Option<Quota> },
    /// Switching a job takes another part of a slice from now on, in percent.
    Overhead { job: JobId, percent: u32 },
    /// An idle job uses CPU again (L19).
    Woke { job: JobId },
    /// A job went idle; idle jobs have no slots (L19).
    Slept { job: JobId },
    /// A person suspended a job (L33).
    Suspended { job: JobId },
    /// A person resumed a job (L33).
    Resumed { job: JobId },
    /// The runnable threads outside all jobs (L18), and how many of them are of which users, as far
    /// as anybody knows.
    Load { threads: u32, of_users: BTreeMap<UserId, u32> },
    /// CPUs went off- or online.
    Topology(Topology),
    /// Classes weigh and ask for something else from now on: working hours begin
    /// or end (L22, L23).
    Classes { weights: ClassWeights, slices: ClassSlices },
    /// Users have other shares from now on.
    Sharing(Sharing),
    /// Users have other caps from now on, in ‰.
    Caps(BTreeMap<UserId, u32>),
    /// Spanning jobs have these entries on this host, instead of those before (L14).
    Entries(Entries),
}

impl Event {
    /// Runnable threads outside all jobs, of nobody knows whom.
    pub fn load(threads: u32) -> Event {
        Event::Load { threads, of_users: BTreeMap::new() }
    }

    /// The job that takes no turns from now on.
    pub(crate) fn leaver(&self) -> Option<JobId> {
        match self {
            Event::Departed { job } | Event::Slept { job } | Event::Suspended { job } => Some(*job),
            _ => None,
        }
    }
}

/// Why an event or a configuration was not accepted. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("there is no job {job}")]
    UnknownJob { job: JobId },
    #[error("job {job} is registered already")]
    DuplicateJob { job: JobId },
    #[error("there are {max} jobs already, which is the most that are kept")]
    TooManyJobs { max: usize },
    #[error("the job needs at least {min_cpus} CPUs, the machine has {machine} online")]
    TooWide { min_cpus: u32, machine: u32 },
    #[error("a job needs at least one CPU; it asks for {cpus} and at least {min_cpus}")]
    ZeroCpus { cpus: u32, min_cpus: u32 },
    #[error("the job asks for {cpus} CPUs but needs at least {min_cpus}")]
    CpusBelowMin { cpus: u32, min_cpus: u32 },
    #[error("a weight is 1 to {max}, not {weight}")]
    Weight { weight: u32, max: u32 },
    #[error("{key} is {least} to {most}, not {value}")]
    Config { key: &'static str, value: u64, least: u64, most: u64 },
    #[error("of {threads} threads outside all jobs, {known} cannot be of known users")]
    Load { threads: u32, known: u64 },
    #[error("entries from slice {from} on stand after those from slice {before} on")]
    EntryOrder { before: u64, from: u64 },
    #[error("job {job} has two entries")]
    EntryTwice { job: JobId },
    #[error("an entry has CPUs, and rows below {frame}; that of job {job} has not")]
    EntryRows { job: JobId, frame: u32 },
    #[error("in row {row} CPUs {cpus} are job {other}'s, and job {job}'s too")]
    EntriesOverlap { job: JobId, other: JobId, row: u32, cpus: CpuSet },
    #[error("a machine has at least one CPU online")]
    NoCpus,
    #[error("CPU {cpu} is named twice in the topology")]
    DuplicateCpu { cpu: u32 },
    #[error("CPU {cpu} is beyond the limit of {max} CPUs")]
    CpuOutOfRange { cpu: u32, max: u32 },
}
