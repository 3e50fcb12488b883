//! The effects of decisions.

use gang_schedule::{Config, CpuSet, Gap, JobId, Plan};
use gang_timetable::{InSlot, Timetable};

/// The effects of plans, carried out in this order.
///
/// 1. `pins` are on file before a switcher gets them: a release must distinguish CPUs that were
///    given from CPUs that a program chose.
/// 2. `timetables` go to the switchers. So all that a page or a figure says of them later holds.
/// 3. `slots` go to the pages, which count those that have begun.
/// 4. `planned` goes to the kernel's programs, which take it for the slots of the time to come.
/// 5. `notes` go to the log.
#[derive(Debug, Default)]
pub struct Effects {
    /// CPUs that threads of a job are going to be restricted to.
    pub pins: Vec<(JobId, CpuSet)>,
    /// One for each switcher.
    pub timetables: Vec<Timetable>,
    /// When these begin (UTC).
    pub from_ns: u64,
    /// How many slots jobs have had, where their pages do not say so yet.
    pub slots: Vec<(JobId, u64)>,
    pub planned: Planned,
    pub notes: Vec<Note>,
}

/// The plans of a stretch of time (UTC), with the gaps in force.
#[derive(Debug, Default)]
pub struct Planned {
    pub config: Config,
    pub from_ns: u64,
    pub until_ns: u64,
    pub plans: Vec<Plan>,
}

/// A change of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A job has its first process.
    Watch(JobId),
    /// The job has another policy, and may live elsewhere.
    Follow(JobId),
    /// The job sleeps; the first of its threads that wants to run is to be reported.
    AwaitWaking(JobId),
    /// The job is over.
    Forget(JobId),
}

/// A message for an administrator or a developer.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Slot mode of a gang changed.
    InSlot(JobId, InSlot),
    /// More threads than are switched: no slots until it has fewer.
    TooManyThreads(JobId),
    /// More threads than an edge has time for: no slots until it has fewer.
    Crowded(JobId),
    /// Gangs that had the machine for themselves are disturbed.
    Disturbed,
    /// Gaps come more or less often.
    Gaps(Gap),
    /// Other terms for the classes from now on.
    WorkingHours(bool),
}
