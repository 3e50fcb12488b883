use crate::{InSlot, Standing, priority};

/// The scheduling policies of Linux (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedPolicy {
    Other,
    Fifo,
    RoundRobin,
    Batch,
    Idle,
    Deadline,
    Ext,
}

impl SchedPolicy {
    pub const ALL: [SchedPolicy; 7] = [
        SchedPolicy::Other,
        SchedPolicy::Fifo,
        SchedPolicy::RoundRobin,
        SchedPolicy::Batch,
        SchedPolicy::Idle,
        SchedPolicy::Deadline,
        SchedPolicy::Ext,
    ];

    /// As Linux numbers them. 4 was never built.
    pub fn number(self) -> u32 {
        match self {
            SchedPolicy::Other => 0,
            SchedPolicy::Fifo => 1,
            SchedPolicy::RoundRobin => 2,
            SchedPolicy::Batch => 3,
            SchedPolicy::Idle => 5,
            SchedPolicy::Deadline => 6,
            SchedPolicy::Ext => 7,
        }
    }

    pub fn from_number(number: u32) -> Option<SchedPolicy> {
        SchedPolicy::ALL.into_iter().find(|policy| policy.number() == number)
    }

    /// Above every ordinary thread.
    pub fn is_realtime(self) -> bool {
        matches!(self, SchedPolicy::Fifo | SchedPolicy::RoundRobin | SchedPolicy::Deadline)
    }
}

/// How one thread is scheduled by Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub policy: SchedPolicy,
    /// −20 to 19; what counts under `Other` and `Batch`, kept by the kernel under the others.
    pub nice: i32,
    /// 1 to 99 under `Fifo` and `RoundRobin`, 0 otherwise.
    pub priority: u32,
    /// Children start as ordinary threads.
    pub reset_on_fork: bool,
}

impl Attributes {
    pub const fn other(nice: i32) -> Self {
        Attributes { policy: SchedPolicy::Other, nice, priority: 0, reset_on_fork: false }
    }

    pub const fn batch(nice: i32) -> Self {
        Attributes { policy: SchedPolicy::Batch, nice, priority: 0, reset_on_fork: false }
    }

    pub const fn idle(nice: i32) -> Self {
        Attributes { policy: SchedPolicy::Idle, nice, priority: 0, reset_on_fork: false }
    }

    pub const fn fifo(priority: u32) -> Self {
        Attributes { policy: SchedPolicy::Fifo, nice: 0, priority, reset_on_fork: true }
    }
}

/// The highest nice value that a thread of a wide gang has in its slot, for the highest weight.
const WIDE: Attributes = Attributes::other(-20);

/// SCHED_FIFO in slot, SCHED_IDLE out of it (sched(7)). The nice value stays what it was: the
/// kernel keeps it under both policies, so that even a release without memory gives it back.
///
/// In a group that is idle as a whole, threads out of slot are SCHED_BATCH. Idle ones weigh so
/// little that the group's weight on a CPU falls to the kernel's least (MIN_SHARES). As the weight
/// rises again, the kernel reckons the group's virtual deadline with one weight and scales it by
/// another. The group then comes before a short task that waits beside it, and runs until the next
/// tick.
pub(crate) fn at_standing(
    original: &Attributes,
    to: Standing,
    in_slot: InSlot,
    in_idle_group: bool,
) -> Attributes {
    match to {
        Standing::Raised => match in_slot {
            InSlot::Exclusive => {
                Attributes { nice: original.nice, ..Attributes::fifo(priority::GANG) }
            }
            InSlot::Wide => WIDE,
            InSlot::Uncontended => *original,
        },
        Standing::Filling | Standing::Paused if in_idle_group => Attributes::batch(original.nice),
        Standing::Filling | Standing::Paused => Attributes::idle(original.nice),
        Standing::Released => *original,
    }
}

/// The attributes that a thread has out of its slot with [`Backend::Rt`](crate::Backend::Rt), where
/// it had `original` without gangd.
pub fn lowered(original: &Attributes, in_idle_group: bool) -> Attributes {
    at_standing(original, Standing::Filling, InSlot::Exclusive, in_idle_group)
}

/// True for what gangd gives to a thread in its slot.
pub fn is_raised(attributes: &Attributes) -> bool {
    *attributes == Attributes { nice: attributes.nice, ..Attributes::fifo(priority::GANG) }
}

/// The attributes that a release gives to a thread that has `now`, in a job whose first thread had
/// `normal`; absent where the thread has nothing of gangd's.
pub fn released(now: &Attributes, normal: &Attributes) -> Option<Attributes> {
    // A wide gang in its slot is an ordinary thread of the highest weight.
    let wide = *now == WIDE && normal.nice != -20;
    let filling =
        matches!(now.policy, SchedPolicy::Idle | SchedPolicy::Batch) && now.policy != normal.policy;
    let nice = if now.nice == -20 { normal.nice } else { now.nice };
    (is_raised(now) || filling || wide).then_some(Attributes { nice, ..*normal })
}

/// The attributes that a thread had before gangd, from those with which it is first seen. A thread
/// that one of the job has started carries what gangd gave its parent; the job's own default is
/// what it would have had.
pub fn before_gangd(now: Attributes, default: Attributes, was_started_here: bool) -> Attributes {
    // The children of a thread in its slot are ordinary ones, and lose its nice value (sched(7),
    // "Reset scheduling policy for child processes").
    let reset = was_started_here && now == Attributes::other(0);
    if now == WIDE || reset {
        default
    } else if is_raised(&now)
        || now.policy == SchedPolicy::Idle
        || (was_started_here && now.policy == SchedPolicy::Batch)
    {
        let nice = if now.nice == -20 { default.nice } else { now.nice };
        Attributes { nice, ..default }
    } else {
        now
    }
}
