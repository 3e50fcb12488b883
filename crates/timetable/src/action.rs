use gang_schedule::{CpuSet, JobId};

use crate::{Attributes, Known, Word, follower::OfThread, is_raised};

/// One call into the kernel. It sets a state, and depends on no earlier call but on what the owner
/// of a thread has chosen: making it twice changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets the scheduling attributes of a thread, unless its owner has chosen others meanwhile.
    Attributes { tid: u32, attributes: Attributes, known: Known },
    /// Restricts a thread to some CPUs.
    Affinity { tid: u32, cpus: CpuSet },
    /// Sets a control of a cgroup.
    Control { group: Group, control: Control },
    /// Sends a signal to a process of a job.
    Signal { job: JobId, pid: u32, signal: Signal },
    /// Tells the programs of a job of its slot.
    Page { job: JobId, word: Word },
}

impl OfThread for Action {
    fn of_thread(&self) -> Option<(u32, bool)> {
        match self {
            Action::Attributes { tid, attributes, .. } => Some((*tid, is_raised(attributes))),
            _ => None,
        }
    }
}

/// A cgroup with controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// That of one job.
    Job(JobId),
    /// The one that all jobs are in.
    All,
}

/// The value that a control of a cgroup is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// All of its threads stand still.
    Frozen(bool),
    /// It runs only where a CPU would idle.
    Idle(bool),
    Weight(Weight),
}

/// The weight of a cgroup beside others. An idle one has none to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The weight of a group that nobody has changed.
    Usual,
    /// The highest that there is.
    Highest,
}

/// A signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// It stands still (SIGSTOP).
    Stop,
    /// It goes on (SIGCONT).
    Continue,
    /// To one that listens: its slot is about to end (L5).
    SlotEnds,
    /// To one that listens: its slot has begun.
    SlotBegins,
}
