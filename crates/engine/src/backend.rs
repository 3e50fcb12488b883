//! Which calls into the kernel take a job from one standing to another.
//!
//! Problem: kernels and users differ in what they permit. With SCHED_FIFO a gang can be lifted above
//! everything; without it, the others can be weighed down, frozen or stopped.
//!
//! Approach: a backend only names the calls, as data, so that the same tests run on all of them with
//! a kernel that records, and so that a switch has nothing left to decide. Calls set a state and
//! depend on no earlier one; making them twice changes nothing.

use gang_linux::sched::Attributes;
use rustix::process::Signal;

use crate::{Guarantee, InSlot, Standing, action::Action, members::Members, priority};

/// The ways to give a gang its slot, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// In slot SCHED_FIFO, out of slot SCHED_IDLE, or SCHED_BATCH in a group that is idle as a whole.
    Rt,
    /// In slot the highest `cpu.weight`, out of slot `cpu.idle`.
    Weight,
    /// Out of slot frozen by the cgroup's freezer.
    Freeze,
    /// Out of slot stopped by SIGSTOP; needs no privilege.
    Signal,
}

impl Backend {
    pub const ALL: [Backend; 4] = [Backend::Rt, Backend::Weight, Backend::Freeze, Backend::Signal];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Rt => "rt",
            Backend::Weight => "weight",
            Backend::Freeze => "freeze",
            Backend::Signal => "signal",
        }
    }

    pub fn from_name(name: &str) -> Option<Backend> {
        Backend::ALL.into_iter().find(|backend| backend.name() == name)
    }

    pub fn guarantee(self) -> Guarantee {
        match self {
            Backend::Rt => Guarantee::Exclusive,
            Backend::Weight => Guarantee::Preferred,
            Backend::Freeze | Backend::Signal => Guarantee::Paused,
        }
    }

    /// True where jobs out of slot can run in the holes of those in slot. The others pause them.
    pub fn can_fill(self) -> bool {
        matches!(self, Backend::Rt | Backend::Weight)
    }

    /// Appends the calls that take a job from one standing to another; `in_slot` is what it has where it is raised.
    pub fn actions(
        self,
        job: &Members,
        from: Standing,
        to: Standing,
        in_slot: InSlot,
        out: &mut Vec<Action>,
    ) {
        let (from, to) = (self.possible(from), self.possible(to));
        if from == Standing::Paused && to != Standing::Paused {
            pause(job, false, out);
        }
        match self {
            Backend::Rt => {
                out.extend(job.threads().iter().filter(|t| !t.is_exempt()).map(|thread| {
                    let in_idle_group = job.controls.in_idle_group;
                    let attributes = attributes(&thread.original, to, in_slot, in_idle_group);
                    Action::Attributes { tid: thread.tid, attributes }
                }))
            }
            Backend::Weight => weigh(job, to, out),
            Backend::Freeze | Backend::Signal => {}
        }
        if to == Standing::Paused {
            pause(job, true, out);
        }
    }

    /// The nearest standing that this backend can give.
    fn possible(self, standing: Standing) -> Standing {
        match standing {
            Standing::Filling if !self.can_fill() => Standing::Paused,
            standing => standing,
        }
    }
}

/// SCHED_FIFO in slot, SCHED_IDLE out of it (sched(7)). The nice value stays what it was: the kernel
/// keeps it under both policies, so that even a release without memory gives it back.
///
/// In a group that is idle as a whole, threads out of slot are SCHED_BATCH. Idle ones weigh so little
/// that the group's weight on a CPU falls to the kernel's least (MIN_SHARES), where its virtual deadline
/// is reckoned with another weight than it is scaled by as the weight rises again: the group then comes
/// before a short task that waits beside it, and runs until the next tick.
fn attributes(
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
            InSlot::Wide => Attributes::other(-20),
            InSlot::Alone => *original,
        },
        Standing::Filling | Standing::Paused if in_idle_group => Attributes::batch(original.nice),
        Standing::Filling | Standing::Paused => Attributes::idle(original.nice),
        Standing::Released => *original,
    }
}

/// What a thread has out of its slot with [`Backend::Rt`], which had `original` without gangd.
pub fn lowered(original: &Attributes, in_idle_group: bool) -> Attributes {
    attributes(original, Standing::Filling, InSlot::Exclusive, in_idle_group)
}

/// The range of cpu.weight (version 2) is 1 to 10,000, default 100; of cpu.shares (version 1), 2 to
/// 262,144, default 1024. Which of them the file is, its name tells.
///
/// Who is paused has its usual weight: a thread freezes by itself when it runs, and a group that is idle
/// may not run for minutes beside others.
fn weigh(job: &Members, to: Standing, out: &mut Vec<Action>) {
    let gives_way = match to {
        Standing::Filling => true,
        Standing::Paused => job.controls.freeze.is_none(),
        Standing::Raised | Standing::Released => false,
    };
    let idle = if gives_way { "1" } else { "0" };
    out.extend(job.controls.cpu_idle.iter().map(|file| write(file, idle)));
    // An idle group has no weight to set: the kernel refuses.
    if idle == "0" {
        out.extend(job.controls.cpu_weight.iter().map(|file| {
            let shares = file.path.ends_with("cpu.shares");
            write(
                file,
                match (to, shares) {
                    (Standing::Raised, true) => "262144",
                    (Standing::Raised, false) => "10000",
                    (_, true) => "1024",
                    (_, false) => "100",
                },
            )
        }));
    }
}

/// Stops a job where it stands, or lets it go on: by the freezer where it has a cgroup.
pub fn pause(job: &Members, paused: bool, out: &mut Vec<Action>) {
    if let Some(file) = &job.controls.freeze {
        out.push(write(file, if paused { "1" } else { "0" }));
    }
    let signal = if paused { Signal::STOP } else { Signal::CONT };
    out.extend(
        job.tree().iter().map(|process| Action::Signal { process: process.clone(), signal }),
    );
}

fn write(file: &std::sync::Arc<crate::action::ControlFile>, value: &'static str) -> Action {
    Action::Write { file: file.clone(), value }
}
