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

/// The attributes of a thread of an oversubscribed gang in its slot: the nice value for the highest
/// weight. Its children have neither.
pub const OVERSUBSCRIBED: Attributes = Attributes { reset_on_fork: true, ..Attributes::other(-20) };

/// Whether a thread has what one of an oversubscribed gang has in its slot. Its owner may have
/// chosen any other nice value there; one of 0 or above says nothing.
pub fn is_of_oversubscribed_slot(now: &Attributes) -> bool {
    now.nice < 0 && Attributes { nice: OVERSUBSCRIBED.nice, ..*now } == OVERSUBSCRIBED
}

/// SCHED_FIFO in slot, SCHED_IDLE out of it (sched(7)). The nice value stays what it was: the
/// kernel keeps it under both policies, so that even a release without memory gives it back.
///
/// In a group that is idle as a whole, threads out of slot are SCHED_BATCH. Idle ones weigh so
/// little that the group's weight on a CPU falls to the kernel's least (MIN_SHARES). As the weight
/// rises again, the kernel reckons the group's virtual deadline with one weight and scales it by
/// another. The group then comes before a short task that waits beside it, and runs until the next
/// tick.
///
/// A gang that is weighed as a whole keeps its attributes everywhere, so that whatever it starts
/// has them, too.
pub(crate) fn at_standing(
    original: &Attributes,
    to: Standing,
    in_slot: InSlot,
    in_idle_group: bool,
) -> Attributes {
    match to {
        _ if in_slot == InSlot::Weighed => *original,
        Standing::Raised => match in_slot {
            InSlot::Exclusive => {
                Attributes { nice: original.nice, ..Attributes::fifo(priority::GANG) }
            }
            InSlot::Oversubscribed => OVERSUBSCRIBED,
            InSlot::Uncontended | InSlot::Weighed => *original,
        },
        Standing::Filling | Standing::Paused => {
            let policy = if in_idle_group { SchedPolicy::Batch } else { SchedPolicy::Idle };
            Attributes { policy, priority: 0, ..*original }
        }
        Standing::Released => *original,
    }
}

/// The attributes that a thread may have although its owner has chosen none since the last read.
///
/// A switch changes the policy alone: the kernel keeps the nice value of a thread, whatever its
/// policy is (sched_setscheduler(2)). So nice values are always their owners', except that of a
/// oversubscribed gang in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Those that it has without gangd.
    pub own: Attributes,
    /// Those that it had when it was first seen. One that a thread in its slot has started is an
    /// ordinary thread then, and has no nice value.
    pub first_seen: Attributes,
    /// Out of their slots, threads of the job are SCHED_BATCH.
    pub in_idle_group: bool,
    /// It may still have what it had out of its slot where its job lived before. Of those two
    /// places, one was in a group that is idle as a whole.
    pub has_moved: bool,
}

impl Known {
    /// Of a thread that was first seen as its owner has it.
    pub fn of(own: Attributes) -> Known {
        Known { own, first_seen: own, in_idle_group: false, has_moved: false }
    }

    /// Nobody but gangd has given the policy of a thread that has `now`, or the owner did so before
    /// it was last read.
    fn has_known_policy(&self, now: &Attributes) -> bool {
        let of = |attributes: &Attributes| (attributes.policy, attributes.reset_on_fork);
        let elsewhere = self.in_idle_group != self.has_moved;
        let lowered = [self.in_idle_group, elsewhere].map(|in_idle| lowered(&self.own, in_idle));
        // Of an oversubscribed gang in its slot, the owner may have changed the nice value.
        let known = [self.own, lowered[0], lowered[1], OVERSUBSCRIBED];
        is_raised(now) || known.iter().any(|known| of(known) == of(now)) || *now == self.first_seen
    }

    /// The attributes that a raised thread gets for a moment, so that it goes behind others of its
    /// priority when it is raised again (sched(7)). They are those out of its slot: if it cannot be
    /// raised again, nothing is strange. Absent where `now` is none of a raised thread.
    pub fn give_way(&self, now: &Attributes) -> Option<Attributes> {
        let lowered = lowered(&self.own, self.in_idle_group);
        is_raised(now).then_some(Attributes { nice: now.nice, ..lowered })
    }

    /// The attributes that a thread gets which has `now`; absent where its owner has chosen others
    /// that have not been read yet: it keeps those.
    pub fn switch(&self, now: &Attributes, to: &Attributes) -> Option<Attributes> {
        let is_new = *now == self.first_seen;
        let nice = if is_new { self.own.nice } else { nice_of_owner(now, self.own.nice) };
        if !self.has_known_policy(now) {
            let is_given = nice != now.nice && !now.policy.is_realtime();
            return is_given.then_some(Attributes { nice, ..*now });
        }
        let is_unread = *to == OVERSUBSCRIBED && nice != self.own.nice;
        let nice = if *to == OVERSUBSCRIBED { to.nice } else { nice };
        (!is_unread).then_some(Attributes { nice, ..*to })
    }

    /// The attributes that the owner wants of a thread that has `now`, where that is new.
    pub fn wish(&self, now: &Attributes) -> Option<Attributes> {
        let nice = nice_of_owner(now, self.own.nice);
        if *now == self.first_seen {
            None
        } else if now.policy.is_realtime() && !is_raised(now) {
            Some(*now)
        } else if !self.has_known_policy(now) {
            Some(Attributes { nice, ..*now })
        } else {
            (nice != self.own.nice).then_some(Attributes { nice, ..self.own })
        }
    }
}

/// The nice value that its owner wants of a thread that has `now`, and is to have `own` without
/// gangd. The nice value of an oversubscribed gang in its slot is nobody's wish. From there, Linux
/// lets anybody choose any other value, and then any policy but a real-time one (setpriority(2)).
/// Lower values than the owner's are thus no wish where the children lose them: nobody keeps what a
/// slot has let him take.
fn nice_of_owner(now: &Attributes, own: i32) -> i32 {
    if now.reset_on_fork && !now.policy.is_realtime() {
        now.nice.max(own)
    } else if now.nice == OVERSUBSCRIBED.nice {
        own
    } else {
        now.nice
    }
}

/// The attributes that a thread has out of its slot with [`Backend::Rt`](crate::Backend::Rt), where
/// it had `original` without gangd.
pub fn lowered(original: &Attributes, in_idle_group: bool) -> Attributes {
    at_standing(original, Standing::Filling, InSlot::Exclusive, in_idle_group)
}

/// Nobody that gangd has raised or lowered was real-time of its own: those are left alone.
fn without_realtime(normal: Attributes) -> Attributes {
    if normal.policy.is_realtime() { Attributes::other(normal.nice) } else { normal }
}

/// The attributes of a thread that lost its own, where another one had `of`. Attributes of `of`
/// beyond those of an ordinary thread were given to that thread alone: a real-time policy, a nice
/// value below 0, or that its children lose both.
pub fn as_default(of: Attributes) -> Attributes {
    let of = without_realtime(of);
    Attributes { nice: of.nice.max(0), reset_on_fork: false, ..of }
}

/// True for what gangd gives to a thread in its slot.
pub fn is_raised(attributes: &Attributes) -> bool {
    *attributes == Attributes { nice: attributes.nice, ..Attributes::fifo(priority::GANG) }
}

/// The attributes that a release gives to a thread that has `now`, and had `normal` or is to have
/// it [by default](as_default); absent where the thread has nothing of gangd's.
pub fn released(now: &Attributes, normal: &Attributes) -> Option<Attributes> {
    let normal = without_realtime(*normal);
    // A thread of an oversubscribed gang in its slot is an ordinary one whose children are so
    // without its nice value, which its owner may have changed.
    let of = |attributes: &Attributes| (attributes.policy, attributes.reset_on_fork);
    let oversubscribed = of(now) == of(&OVERSUBSCRIBED) && !normal.reset_on_fork;
    let filling =
        matches!(now.policy, SchedPolicy::Idle | SchedPolicy::Batch) && now.policy != normal.policy;
    let nice = nice_of_owner(now, normal.nice);
    let given = is_raised(now) || filling || oversubscribed;
    // Its owner chose another policy while it had the nice value of an oversubscribed gang.
    let kept = nice != now.nice && !now.policy.is_realtime();
    match given {
        true => Some(Attributes { nice, ..normal }),
        false => kept.then_some(Attributes { nice, ..*now }),
    }
}

/// The same of a thread that is no member, and that a member has started: SCHED_BATCH it has chosen
/// itself.
pub fn released_inheritor(now: &Attributes, normal: &Attributes) -> Option<Attributes> {
    let default = as_default(*normal);
    match now.policy {
        SchedPolicy::Batch => released(now, &Attributes { policy: now.policy, ..default }),
        _ => released(now, &default),
    }
}

/// The attributes that a thread had before gangd, from those with which it is first seen. A thread
/// that one of the job has started carries what gangd gave its parent; the job's own default is
/// what it would have had.
pub fn before_gangd(now: Attributes, default: Attributes, was_started_here: bool) -> Attributes {
    // The children of a thread in its slot are ordinary ones, and lose its nice value (sched(7),
    // "Reset scheduling policy for child processes").
    let reset = was_started_here && now == Attributes::other(0);
    let default = as_default(default);
    if now == OVERSUBSCRIBED || reset {
        default
    } else if is_raised(&now)
        || (was_started_here && matches!(now.policy, SchedPolicy::Idle | SchedPolicy::Batch))
    {
        let nice = if now.nice == -20 { default.nice } else { now.nice };
        Attributes { nice, ..default }
    } else {
        now
    }
}
