/// Whether `running` can be relied on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Validity {
    #[default]
    Scheduled = 0,
    /// The job has no slots: it sleeps or is suspended, Linux alone schedules it, or it has too
    /// many threads.
    NotScheduled = 1,
    /// The job has ended, or the daemon has.
    Gone = 2,
}

/// The word of a job's slot page: what it says of the slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    pub running: bool,
    /// Threads of the job for which the slot has CPUs, as planned: those that sleep count.
    pub on_cpus: u32,
    /// UTC, nanoseconds: the slot lasts until then at least; 0 out of slot.
    pub until_ns: u64,
    pub slice_ns: u64,
    /// CPUs of the slot.
    pub cpus: u32,
    pub validity: Validity,
}
