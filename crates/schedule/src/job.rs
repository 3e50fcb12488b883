//! Jobs: what the policy knows of a gang.

use crate::{Allowed, Refusal};
use std::fmt;
use std::str::FromStr;

/// The name of a job, given by the daemon and never used again.
///
/// Smaller ids win ties, so ids given in order of arrival make ties first
/// come, first served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

impl JobId {
    /// The number of the first job that spans hosts. Those of one host have smaller ones.
    pub const FIRST_SPANNING: JobId = JobId(1_000_000_000);
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The account that the time of a job is charged to. By users' numbers, they come from the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UserId(pub u32);

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The class of a job (L21–L24). The greater class has priority:
/// `Express > Interactive > Batch > Standby`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// Soaks up CPUs that nobody else wants (L24).
    Standby,
    /// No rapid response, good throughput (L23).
    #[default]
    Batch,
    /// Shares with batch, at a greater weight (L22).
    Interactive,
    /// Before everybody, unless the class has a weight; only administrators put
    /// a job there (L21).
    Express,
}

impl Class {
    /// All classes, in order of priority.
    pub const ALL: [Class; 4] = [Class::Express, Class::Interactive, Class::Batch, Class::Standby];

    pub const fn name(self) -> &'static str {
        match self {
            Class::Express => "express",
            Class::Interactive => "interactive",
            Class::Batch => "batch",
            Class::Standby => "standby",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a job is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Policy {
    /// All its threads at once, placed at each slice by the conditions of this machine (L14).
    #[default]
    Gang,
    /// Accounted for, never in a row: scheduled by plain Linux.
    None,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 2] = [Policy::Gang, Policy::None];

    pub const fn name(self) -> &'static str {
        match self {
            Policy::Gang => "gang",
            Policy::None => "none",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The CPU time that the processes of a cgroup have together at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quota {
    /// The number of the group. The jobs of a group share what it has.
    pub group: u64,
    /// Thousandths of a CPU, at least 1.
    pub cpu_permille: u32,
    /// The kernel gives the group so much at a time, for each of these periods.
    pub period_us: u32,
}

/// A word that names no class or policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a {what}; there are {known}")]
pub struct UnknownName {
    word: String,
    what: &'static str,
    known: &'static str,
}

impl FromStr for Class {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Class, UnknownName> {
        let known = "express, interactive, batch and standby";
        let unknown = || UnknownName { word: word.to_owned(), what: "class", known };
        Class::ALL.into_iter().find(|c| c.name() == word).ok_or_else(unknown)
    }
}

impl FromStr for Policy {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Policy, UnknownName> {
        let unknown =
            || UnknownName { word: word.to_owned(), what: "policy", known: "gang and none" };
        Policy::ALL.into_iter().find(|p| p.name() == word).ok_or_else(unknown)
    }
}

/// The request of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    pub user: UserId,
    pub class: Class,
    pub policy: Policy,
    /// Time in slot relative to other gangs of the class, 1 to 10,000: those of its user, or all
    /// ([`Sharing`](crate::Sharing)).
    pub weight: u32,
    /// CPUs wanted: the number of threads that should run at once.
    pub cpus: u32,
    /// The least number of CPUs the job can run on (`cpu_min`, L26). It gets
    /// fewer than `cpus` only where the machine has no more that its threads may use.
    pub min_cpus: u32,
    /// The CPUs that its threads may use.
    pub allowed: Allowed,
    /// The quota of CPU time that binds it.
    pub quota: Option<Quota>,
    /// The part of a slice of others that switching it takes, in percent.
    pub overhead: u32,
    /// It is the part of a job of several hosts: it has slots by entries alone
    /// ([`Entries`](crate::Entries)), and no turns without them.
    pub spanning: bool,
}

impl Spec {
    /// The weight of a job that asks for none.
    pub const DEFAULT_WEIGHT: u32 = 100;
    /// The greatest weight.
    pub const MAX_WEIGHT: u32 = 10_000;
    /// A job with more threads than this gets no slots until it has fewer. The lists would take
    /// longer to read than a slice, and a fork bomb must not delay its neighbours.
    pub const MAX_THREADS: usize = 4096;

    /// A batch job of default weight that needs all of `cpus`.
    pub fn new(cpus: u32) -> Spec {
        Spec {
            user: UserId::default(),
            class: Class::Batch,
            policy: Policy::Gang,
            weight: Spec::DEFAULT_WEIGHT,
            cpus,
            min_cpus: cpus,
            allowed: Allowed::anywhere(),
            quota: None,
            overhead: 0,
            spanning: false,
        }
    }

    /// Refuses a job that a machine of `machine` CPUs can never run.
    pub fn validate(&self, machine: u32) -> Result<(), Refusal> {
        let Spec { policy, weight, cpus, min_cpus, .. } = *self;
        if cpus == 0 || min_cpus == 0 {
            return Err(Refusal::ZeroCpus { cpus, min_cpus });
        }
        if cpus < min_cpus {
            return Err(Refusal::CpusBelowMin { cpus, min_cpus });
        }
        if !(1..=Spec::MAX_WEIGHT).contains(&weight) {
            return Err(Refusal::Weight { weight, max: Spec::MAX_WEIGHT });
        }
        if policy == Policy::Gang && min_cpus > machine {
            return Err(Refusal::TooWide { min_cpus, machine });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for class in Class::ALL {
            assert_eq!(class.to_string().parse(), Ok(class));
        }
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "Batch".parse::<Class>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"Batch\" is not a class; there are express, interactive, batch and standby"
        );
    }

    #[test]
    fn classes_are_ordered_by_priority() {
        assert!(Class::ALL.is_sorted_by(|a, b| a > b));
    }
}
