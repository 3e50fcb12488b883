//! What is to be done about what was decided.

use gang_schedule::{Config, CpuSet, Gap, JobId, Plan};
use gang_timetable::{InSlot, Timetable};

/// What is done once plans were made, in this order.
///
/// 1. `pins` are on file before a switcher may hear of them: a release must tell CPUs that were
///    given from CPUs that a program chose.
/// 2. `timetables` go to the switchers. Whatever a page or a figure says of them later holds then.
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
    /// How many slots each job with a page has had.
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

/// What changes of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A job has its first process.
    Watch(JobId),
    /// It has another policy, and may live elsewhere.
    Follow(JobId),
    /// It sleeps; the first of its threads that wants to run is to be reported.
    AwaitWaking(JobId),
    /// It is over.
    Forget(JobId),
}

/// What an administrator or a developer may want to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Slot mode of a gang changed.
    InSlot(JobId, InSlot),
    /// More threads than are switched: no slots until it has fewer.
    TooManyThreads(JobId),
    /// Gangs that had the machine for themselves are disturbed.
    Disturbed,
    /// Gaps come more or less often.
    Gaps(Gap),
    /// Other terms for the classes from now on.
    WorkingHours(bool),
}
