//! A kernel that only remembers what actions do to it.
//!
//! Tests build it with the feature `model`; no program does. Where Linux refuses a call, or does
//! something else than its words say, the model does too.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{CpuSet, JobId};

use crate::{
    Action, Attributes, Backend, Control, Controls, Group, InSlot, Members, OVERSUBSCRIBED, Signal,
    Standing, Thread, Weight, Word, is_raised, lowered,
};

/// The controls of a cgroup that were set; the others are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controlled {
    pub frozen: Option<bool>,
    pub idle: Option<bool>,
    pub weight: Option<Weight>,
}

/// The state that actions have left behind. Things that were never touched are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub attributes: BTreeMap<u32, Attributes>,
    pub affinity: BTreeMap<u32, CpuSet>,
    pub groups: BTreeMap<Group, Controlled>,
    /// Processes that were stopped and not continued.
    pub stopped: BTreeSet<u32>,
    pub pages: BTreeMap<JobId, Word>,
    /// The last of the other signals that a process got.
    pub signalled: BTreeMap<u32, Signal>,
}

/// Why the model, as Linux, does not do what it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A thread cannot be restricted to no CPU at all.
    NoCpu,
    /// An idle group has no weight to set.
    Idle,
}

impl Model {
    /// The attributes that the threads of a job have before anything happens.
    pub fn begin(&mut self, threads: &[Thread]) {
        self.attributes.extend(threads.iter().map(|thread| (thread.tid, thread.original)));
    }

    pub fn perform(&mut self, action: &Action) -> Result<(), Refused> {
        match *action {
            Action::Attributes { tid, attributes, known } => {
                let now = self.attributes.get(&tid).copied().unwrap_or(known.own);
                if let Some(then) = known.switch(&now, &attributes) {
                    self.attributes.insert(tid, then);
                }
            }
            Action::Affinity { ref cpus, .. } if cpus.is_empty() => return Err(Refused::NoCpu),
            Action::Affinity { tid, ref cpus } => {
                self.affinity.insert(tid, cpus.clone());
            }
            Action::Control { group, control } => {
                self.groups.entry(group).or_default().set(control)?
            }
            Action::Signal { pid, signal: Signal::Stop, .. } => {
                self.stopped.insert(pid);
            }
            Action::Signal { pid, signal: Signal::Continue, .. } => {
                self.stopped.remove(&pid);
            }
            Action::Signal { pid, signal, .. } => {
                self.signalled.insert(pid, signal);
            }
            Action::Page { job, word } => {
                self.pages.insert(job, word);
            }
        }
        Ok(())
    }

    pub fn group(&self, group: Group) -> Controlled {
        self.groups.get(&group).copied().unwrap_or_default()
    }

    /// Says in what a job does not stand as it should; `in_slot` is what it has where it is raised.
    pub fn check(
        &self,
        backend: Backend,
        (id, job): (JobId, &Members),
        standing: Standing,
        in_slot: InSlot,
    ) -> Result<(), String> {
        for thread in job.threads() {
            let now = self.attributes.get(&thread.tid).unwrap_or(&thread.original);
            if !stands(backend, thread, now, standing, in_slot, job.controls.in_idle_group) {
                return Err(format!(
                    "{backend:?}: not {standing:?} ({in_slot:?}): {now:?} of {thread:?}"
                ));
            }
        }
        let group = self.group(Group::Job(id));
        let is_weighed = match backend {
            Backend::Weight => true,
            Backend::Rt => in_slot == InSlot::Weighed,
            Backend::Freeze | Backend::Signal => false,
        };
        if is_weighed && !group.weighs(job, standing) {
            return Err(format!("{group:?}: {standing:?}"));
        }
        let is_paused = match standing {
            Standing::Paused => true,
            Standing::Filling => !backend.can_fill(),
            Standing::Raised | Standing::Released => false,
        };
        let is_frozen = is_paused && !job.has_foreign_that_run();
        if job.controls.freezer && (group.frozen == Some(true)) != is_frozen {
            return Err(format!("{group:?}, to be frozen: {is_frozen}"));
        }
        match job.processes.iter().find(|pid| self.stopped.contains(pid) != is_paused) {
            None => Ok(()),
            Some(pid) => Err(format!("to be paused: {is_paused}, and {pid} is not")),
        }
    }
}

impl Controlled {
    /// A group that is idle has no weight to set, and one that becomes idle or ceases to be has
    /// forgotten its own (`sched_group_set_idle` of the kernel).
    fn set(&mut self, control: Control) -> Result<(), Refused> {
        match control {
            Control::Frozen(is_frozen) => self.frozen = Some(is_frozen),
            Control::Idle(is_idle) => {
                if self.idle != Some(is_idle) {
                    self.weight = None;
                }
                self.idle = Some(is_idle);
            }
            Control::Weight(_) if self.idle == Some(true) => return Err(Refused::Idle),
            Control::Weight(weight) => self.weight = Some(weight),
        }
        Ok(())
    }

    fn weighs(&self, job: &Members, standing: Standing) -> bool {
        let Controls { idle, weight, weighs_as_others, .. } = job.controls;
        let standing = if weighs_as_others { Standing::Released } else { standing };
        if !(idle && weight) {
            return true;
        }
        match standing {
            Standing::Raised => self.idle == Some(false) && self.weight == Some(Weight::Highest),
            Standing::Filling => self.idle == Some(true),
            Standing::Paused => (self.idle == Some(true)) != job.controls.freezer,
            Standing::Released => {
                self.idle != Some(true) && self.weight.is_none_or(|weight| weight == Weight::Usual)
            }
        }
    }
}

/// Whether one thread is as its job's standing asks.
fn stands(
    backend: Backend,
    thread: &Thread,
    now: &Attributes,
    standing: Standing,
    in_slot: InSlot,
    in_idle_group: bool,
) -> bool {
    let (untouched, own) = (*now == thread.original, thread.original.nice);
    if thread.is_exempt() || backend != Backend::Rt {
        return untouched;
    }
    match standing {
        _ if in_slot == InSlot::Weighed => untouched,
        Standing::Raised => match in_slot {
            // Its owner may choose a nice value below his own until the next switch.
            InSlot::Oversubscribed => {
                Attributes { nice: OVERSUBSCRIBED.nice, ..*now } == OVERSUBSCRIBED
                    && now.nice <= own
            }
            // Its nice value counts for nothing, and may still be that of an oversubscribed gang.
            InSlot::Exclusive => is_raised(now),
            InSlot::Uncontended | InSlot::Weighed => untouched,
        },
        Standing::Filling | Standing::Paused => *now == lowered(&thread.original, in_idle_group),
        Standing::Released => untouched,
    }
}
