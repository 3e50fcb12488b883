//! The record of a job on file: all that is needed to release the job, or to take it over.
//!
//! Times are nanoseconds since the Unix epoch, or clock ticks since boot where a process or a
//! thread is told from another one of the same number.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Attributes, SchedPolicy};

/// How to find the processes of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Its own cgroup of version 2, and the cpu group of version 1 that its processes were put
    /// into. The origins are where they came from.
    Cgroup {
        group: PathBuf,
        origin: PathBuf,
        cpu_group: Option<PathBuf>,
        cpu_origin: Option<PathBuf>,
        /// Other jobs are in the cpu group too; it outlives this one.
        cpu_group_is_shared: bool,
        /// The group was there before the job, and stays.
        adopted: bool,
        /// Where its memory is limited.
        #[serde(default)]
        memory: Option<Confinement>,
        /// A group that is made for it, and that some of its processes may be in: they move from
        /// one of its groups to the other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other: Option<PathBuf>,
    },
    /// Processes, each with the time it started (clock ticks since boot).
    Tree { processes: Vec<(u32, u64)> },
    /// Single threads, wherever their processes are.
    Threads { threads: Vec<Single> },
}

impl Placement {
    /// Where the memory of the job is limited.
    pub fn confinement(&self) -> Option<&Confinement> {
        match self {
            Placement::Cgroup { memory, .. } => memory.as_ref(),
            Placement::Tree { .. } | Placement::Threads { .. } => None,
        }
    }

    /// The same while processes move: some of them may be in another group.
    #[must_use]
    pub fn with_other(mut self, group: Option<PathBuf>) -> Placement {
        if let Placement::Cgroup { other, .. } = &mut self {
            *other = group;
        }
        self
    }

    pub fn set_confinement(&mut self, to: Option<Confinement>) {
        if let Placement::Cgroup { memory, .. } = self {
            *memory = to;
        }
    }
}

/// A group whose memory the kernel limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub group: PathBuf,
    /// Of version 1: where the processes came from. Of version 2 it is the job's own group.
    pub origin: Option<PathBuf>,
    /// Of version 2: the limit of where they came from, in bytes, which they are to keep.
    #[serde(default)]
    pub inherited: Option<u64>,
}

/// A process that came into a job from other groups than the first one of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedProcess {
    pub pid: u32,
    pub origin: PathBuf,
    pub cpu_origin: Option<PathBuf>,
    pub memory_origin: Option<PathBuf>,
}

/// The attributes that a released thread gets; the policy by its number in sched(7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Normal {
    pub policy: u32,
    pub nice: i32,
    pub priority: u32,
    #[serde(default)]
    pub reset_on_fork: bool,
}

impl From<Attributes> for Normal {
    fn from(attributes: Attributes) -> Self {
        let Attributes { policy, nice, priority, reset_on_fork } = attributes;
        Normal { policy: policy.number(), nice, priority, reset_on_fork }
    }
}

impl From<Normal> for Attributes {
    fn from(normal: Normal) -> Self {
        let Normal { policy, nice, priority, reset_on_fork } = normal;
        let policy = SchedPolicy::from_number(policy).unwrap_or(SchedPolicy::Other);
        Attributes { policy, nice, priority, reset_on_fork }
    }
}

/// A job on file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: u64,
    pub name: String,
    pub owner_uid: u32,
    pub class: String,
    pub policy: String,
    pub weight: u32,
    pub cpus: u32,
    pub min_cpus: u32,
    pub registered_at_ns: u64,
    pub suspended: bool,
    /// It is, because the group in which it was called stands still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended_by_group: bool,
    /// An administrator suspended it, with its members of other users.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops_foreign: bool,
    pub placement: Placement,
    pub normal: Normal,
    /// Nothing was done to the attributes of its threads.
    #[serde(default)]
    pub keeps_attributes: bool,
    /// CPUs its first process might run on.
    pub affinity: Vec<u32>,
    /// Its processes hear of its slots by signals.
    #[serde(default)]
    pub signals: bool,
    /// It is proved which policy it is to have; the one above is that which it has.
    #[serde(default)]
    pub auto: bool,
    /// The resources that the job was promised; 0 for nothing.
    #[serde(default)]
    pub mem_bytes: u64,
    #[serde(default)]
    pub disk_bytes: u64,
    #[serde(default)]
    pub joined: Vec<JoinedProcess>,
    /// The first process, with its start time, while it is on its way into the job's groups.
    #[serde(default)]
    pub coming: Option<(u32, u64)>,
    /// Of a part of a job that spans hosts: it tells the job from later ones of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
    /// The job of Slurm that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job: Option<String>,
}

/// A thread that is a member of a job by itself. Moments are clock ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Single {
    pub tid: u32,
    pub started: u64,
    pub pid: u32,
    pub process_started: u64,
    /// When it became a member.
    pub since: u64,
    /// As it was then.
    pub normal: Normal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_back_the_policy_that_it_had() {
        for policy in SchedPolicy::ALL {
            let had = Attributes { policy, ..Attributes::other(3) };
            assert_eq!(Attributes::from(Normal::from(had)), had);
        }
        assert_eq!(Normal::from(Attributes::idle(0)).policy, 5, "as in sched(7)");
    }
}
