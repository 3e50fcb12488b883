//! Which actions take a job from one standing to another.
//!
//! Problem: kernels and users differ in what they permit. With SCHED_FIFO a gang can be raised
//! above everything; without it, the others can be weighed down, frozen or stopped.
//!
//! Approach: a backend only names the actions. So the same tests run on all of them with a model of
//! the kernel, and a switch has nothing left to decide.

use gang_schedule::JobId;

use crate::{
    Action, Control, Group, Guarantee, InSlot, Members, Signal, Standing, Weight,
    attributes::at_standing,
};

/// The ways to give a gang its slot, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// In slot SCHED_FIFO, out of slot SCHED_IDLE, or SCHED_BATCH in a group that is idle as a
    /// whole. A gang that is weighed as a whole ([`InSlot::Weighed`]) has what `Weight` gives.
    Rt,
    /// In slot the highest weight of a cgroup, out of slot an idle one.
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

    /// Appends the actions that take a job from one standing to another; `in_slot` is what it has
    /// where it is raised.
    pub fn actions(
        self,
        job: JobId,
        members: &Members,
        from: Standing,
        to: Standing,
        in_slot: InSlot,
        out: &mut Vec<Action>,
    ) {
        let (from, to) = (self.possible(from), self.possible(to));
        if from == Standing::Paused && to != Standing::Paused {
            pause(job, members, false, out);
        }
        match self {
            Backend::Rt => {
                let in_idle_group = members.controls.in_idle_group;
                let threads = members.threads().iter().filter(|thread| !thread.is_exempt());
                out.extend(threads.map(|thread| Action::Attributes {
                    tid: thread.tid,
                    attributes: at_standing(&thread.original, to, in_slot, in_idle_group),
                    known: members.known(thread),
                }));
                if in_slot == InSlot::Weighed {
                    weigh(job, members, to, out);
                }
            }
            Backend::Weight => weigh(job, members, to, out),
            Backend::Freeze | Backend::Signal => {}
        }
        if to == Standing::Paused {
            pause(job, members, true, out);
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

/// A paused job has its usual weight. A thread freezes by itself when it runs, and an idle group
/// may not run for minutes beside others.
fn weigh(job: JobId, members: &Members, to: Standing, out: &mut Vec<Action>) {
    let controls = members.controls;
    let to = if controls.weighs_as_others { Standing::Released } else { to };
    let is_idle = match to {
        Standing::Filling => true,
        Standing::Paused => !controls.freezer,
        Standing::Raised | Standing::Released => false,
    };
    let mut set = |control| out.push(Action::Control { group: Group::Job(job), control });
    if controls.idle {
        set(Control::Idle(is_idle));
    }
    // An idle group has no weight to set: the kernel refuses.
    if controls.weight && !is_idle {
        set(Control::Weight(match to {
            Standing::Raised => Weight::Highest,
            _ => Weight::Usual,
        }));
    }
}

/// Stops a job where it stands, or lets it go on: by the freezer where it has one. Members of other
/// users go on, and a group that has some is not frozen.
pub fn pause(job: JobId, members: &Members, is_paused: bool, out: &mut Vec<Action>) {
    if members.controls.freezer {
        let control = Control::Frozen(is_paused && !members.has_foreign_that_run());
        out.push(Action::Control { group: Group::Job(job), control });
    }
    let signal = if is_paused { Signal::Stop } else { Signal::Continue };
    out.extend(members.processes.iter().map(|&pid| Action::Signal { job, pid, signal }));
}
