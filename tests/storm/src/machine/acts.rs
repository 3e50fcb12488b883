//! Actions on threads and groups, each held against the invariants first.

use gang_schedule::JobId;
use gang_timetable::{
    Action, Attributes, OVERSUBSCRIBED, Signal, is_raised,
    record::{Placement, Record},
};

use super::{Choice, Machine, Process};

impl Machine {
    /// A raised thread that a number chooses.
    pub fn nth_raised(&self, number: u16) -> Option<u32> {
        let raised = self.model.attributes.iter().filter(|(_, now)| is_raised(now));
        let raised: Vec<u32> = raised.map(|(tid, _)| *tid).collect();
        (!raised.is_empty()).then(|| raised[usize::from(number) % raised.len()])
    }

    pub fn is_raised(&self, tid: u32) -> bool {
        self.model.attributes.get(&tid).is_some_and(is_raised)
    }

    /// The first call by which a raised thread gives way; what it gets by the second.
    pub fn lower_for_a_moment(&mut self, action: &Action) -> Option<(u32, Attributes)> {
        let Action::Attributes { tid, known, .. } = action else { return None };
        let now = *self.model.attributes.get(tid)?;
        self.model.attributes.insert(*tid, known.give_way(&now)?);
        Some((*tid, now))
    }

    /// The second call, whatever happened since the first.
    pub fn raise_again(&mut self, tid: u32, raised: Attributes) {
        if self.threads.contains_key(&tid) {
            self.model.attributes.insert(tid, raised);
        }
    }

    /// Performs an action, and says what is wrong with it.
    pub fn perform(&mut self, action: &Action) {
        if std::env::var_os("STORM_TRACE").is_some() {
            eprintln!("  does {action:?}");
        }
        match action {
            Action::Attributes { tid, attributes, known } => {
                let Some(thread) = self.threads.get(tid) else { return };
                let now = &self.model.attributes[tid];
                // A kernel that groups real-time threads refuses that.
                if is_raised(attributes) && known.switch(now, attributes).is_some() {
                    let may_be_there = |of: &Record| match &of.placement {
                        Placement::Cgroup { cpu_group, other, .. } => {
                            cpu_group.is_some() || other.is_some()
                        }
                        Placement::Tree { .. } | Placement::Threads { .. } => false,
                    };
                    if self.record_of(*tid).is_some_and(may_be_there) {
                        self.violation(format!(
                            "nobody is real-time in a group of its own: thread {tid}"
                        ));
                        return;
                    }
                }
                if thread.own != *attributes && known.switch(now, attributes).is_some() {
                    let Process { uid, is_unseen, .. } = self.processes[&thread.pid];
                    // It may get back what it had, as far as anybody can tell.
                    let then = known.switch(now, attributes);
                    let is_raised = then.is_some_and(|it| {
                        it != *now && it != thread.own && !thread.normal.contains(&it)
                    });
                    match self.record_of(*tid).map(|record| (record.id, record.owner_uid)) {
                        None => self.violation(format!(
                            "on file before it is done: thread {tid} gets {attributes:?}, and no \
                             job on file has it"
                        )),
                        Some((job, owner))
                            if owner != 0 && owner != uid && is_raised && !is_unseen =>
                        {
                            self.violation(format!(
                                "nobody raises another's thread: {tid} of user {uid} by job {job} \
                                 of user {owner}"
                            ));
                        }
                        Some(_) => {}
                    }
                }
            }
            Action::Affinity { tid, cpus } => {
                let Some(thread) = self.threads.get_mut(tid) else { return };
                if thread.choice != Choice::Known {
                    // As if nobody had chosen.
                    thread.choice = Choice::Lost;
                    thread.own_cpus = thread.normal_cpus.last().cloned().unwrap_or_default();
                }
                if thread.own_cpus != *cpus && !thread.normal_cpus.contains(cpus) {
                    let (pid, tid) = (thread.pid, *tid);
                    let records = self.records.values();
                    let records = records.filter(|record| self.is_on_file(record, pid, tid));
                    let mut pins = records.filter_map(|it| self.pins.get(&JobId(it.id)));
                    let is_on_file = pins
                        .any(|pins| pins.given.contains(cpus) && !pins.user_pinned.contains(&tid));
                    if !is_on_file {
                        self.violation(format!(
                            "pins are on file before they are set: thread {tid} gets {cpus}"
                        ));
                    }
                }
            }
            Action::Signal { job, pid, signal: Signal::Stop } => {
                let Some(process) = self.processes.get(pid) else { return };
                let Process { uid, is_unseen, .. } = *process;
                let record = self.records.get(job);
                let record = record.filter(|record| self.is_on_file(record, *pid, *pid));
                // An administrator's order is no deed of the job's owner.
                let is_admins =
                    record.is_some_and(|of| of.stops_foreign) || self.stopped_whole.contains(job);
                let owner = record.map(|of| if is_admins { 0 } else { of.owner_uid });
                let is_others = |owner: u32| owner != 0 && owner != uid && !is_unseen;
                if let Some(owner) = owner.filter(|&owner| is_others(owner)) {
                    self.violation(format!(
                        "nobody stops another's process: {pid} of user {uid} by job {job} of user \
                         {owner}"
                    ));
                }
                if owner.is_none() {
                    self.violation(format!(
                        "on file before it is done: process {pid} of {:?} is stopped, and no job on \
                         file has it: {:?}",
                        self.ancestors(*pid),
                        self.records.values().map(|it| &it.placement).collect::<Vec<_>>()
                    ));
                }
            }
            Action::Control { .. } | Action::Signal { .. } | Action::Page { .. } => {}
        }
        if let Action::Attributes { tid, attributes, known } = action {
            // A switcher that was late gives back what was its own before that was changed, or
            // lowers it by that.
            let wanted = self.wanted_on_file(*tid);
            if wanted != Some(known.own) {
                let is_raised = attributes.policy.is_realtime() || attributes.nice == -20;
                let was_oversubscribed = self.model.attributes[tid] == OVERSUBSCRIBED;
                let thread = self.threads.get_mut(tid).into_iter();
                thread.for_each(|it| {
                    let own = it.own;
                    (!is_raised).then(|| it.may_have(Attributes { nice: own.nice, ..*attributes }));
                    // A choice after the last read is covered up by that, but for the nice value,
                    // which shows under any policy.
                    let covered = wanted
                        .into_iter()
                        .flat_map(|had| [had, Attributes { nice: own.nice, ..had }]);
                    covered.for_each(|had| it.may_have(had));
                    let all = it.normal.iter().copied().chain([own]);
                    let all = all.map(|it| Attributes { nice: known.own.nice, ..it });
                    let all: Vec<Attributes> = all.filter(|_| was_oversubscribed).collect();
                    all.into_iter().for_each(|had| it.may_have(had));
                });
            }
            let is_left = known.switch(&self.model.attributes[tid], attributes).is_none();
            // By a timetable that knows what its owner wants.
            let thread = self.threads.get_mut(tid);
            let thread = thread.filter(|it| !is_left && it.own == known.own);
            thread.into_iter().for_each(|it| it.is_unswitched = false);
        }
        let _ = self.model.perform(action);
    }
}
