use std::fmt;

/// How the threads of a job stand. At every moment each of them has exactly one standing; after the
/// daemon is gone, all are [`Standing::Released`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// In its slot: raised above whatever could run in its place.
    Raised,
    /// Out of its slot: runs only where a CPU would idle.
    Filling,
    /// Stands still.
    Paused,
    /// Scheduled as if gangd did not exist.
    Released,
}

/// The way in which a gang has its slot with [`Backend::Rt`](crate::Backend::Rt).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InSlot {
    /// Its threads are SCHED_FIFO.
    #[default]
    Exclusive,
    /// It has more runnable threads than CPUs. SCHED_FIFO would let its first threads keep the
    /// others from ever running, so they stay ordinary ones, of the highest weight.
    Oversubscribed,
    /// Nobody else wants a CPU: its threads are as they were without gangd, since there is nobody
    /// to come before.
    Uncontended,
    /// Its threads live too short to be switched one by one. They are as they were without gangd,
    /// in its slots and out of them, and a group of its own weighs them, where it has one.
    Weighed,
}

impl InSlot {
    pub const ALL: [InSlot; 4] =
        [InSlot::Exclusive, InSlot::Oversubscribed, InSlot::Uncontended, InSlot::Weighed];

    /// Its threads come before all others there.
    pub fn raises_threads(self) -> bool {
        matches!(self, InSlot::Exclusive | InSlot::Oversubscribed)
    }
}

/// How a backend keeps the promise of a slot, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guarantee {
    /// Nothing ordinary runs in a gang's place.
    Exclusive,
    /// The gang gets nearly all of its CPUs.
    Preferred,
    /// The other gangs stand still; the rest of the machine does not.
    Paused,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guarantee::Exclusive => "exclusive",
            Guarantee::Preferred => "preferred",
            Guarantee::Paused => "paused",
        })
    }
}

/// SCHED_FIFO priorities. Each can interrupt those before it. A gang that spins on every CPU must
/// not keep the daemon from switching; nor may the daemon keep the guardian from releasing.
pub mod priority {
    pub const GANG: u32 = 1;
    /// Threads that serve clients, as far as that is allowed.
    pub const CLIENT: u32 = 2;
    /// Where there is no reservation for it.
    pub const CONDUCTOR: u32 = 3;
    pub const SWITCHER: u32 = 4;
    pub const GUARDIAN: u32 = 5;
}
