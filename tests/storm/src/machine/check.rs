//! Invariants of all threads, whatever happened before.

use gang_schedule::CpuSet;
use gang_timetable::{Attributes, Members, is_raised};

use super::{Choice, Machine};

impl Machine {
    /// Whether a thread has what its owner gave it, as far as anybody can tell.
    pub fn is_its_own(&self, tid: u32) -> bool {
        let (thread, now) = (&self.threads[&tid], self.model.attributes[&tid]);
        // Its parent's own attributes are lost with the nice value.
        let lost = [Attributes { nice: 0, ..thread.own }, Attributes::other(0)];
        now == thread.own
            || (thread.lost_nice && lost.contains(&now))
            || thread.normal.contains(&now)
            || thread.unread.contains(&now)
    }

    /// Checks that threads that no job has keep nothing of gangd; all threads where `everybody` is
    /// released.
    pub fn check_released(&mut self, everybody: bool) {
        let mut wrong = Vec::new();
        for (tid, thread) in &self.threads {
            if !everybody && self.record_of(*tid).is_some() {
                continue;
            }
            let (now, is_own) = (self.model.attributes[tid], self.is_its_own(*tid));
            if !is_own {
                wrong.push(format!(
                    "what is released is as its owner had it: thread {tid} has {now:?}, not {:?}",
                    thread.own
                ));
            }
            let cpus = &self.model.affinity[tid];
            if *cpus != thread.own_cpus && !thread.normal_cpus.contains(cpus) {
                wrong.push(format!(
                    "what is released is as its owner had it: thread {tid} of {:?} is on {cpus}, not {}",
                    self.ancestors(thread.pid), thread.own_cpus
                ));
            }
            if self.model.stopped.contains(&thread.pid) {
                wrong.push(format!("nobody stays stopped: process {}", thread.pid));
            }
        }
        wrong.into_iter().for_each(|what| self.violation(what));
    }

    /// Processes that left the groups of their jobs by themselves before a moment (monotonic) are
    /// as their owners have them.
    pub fn check_strays(&mut self, before_ns: u64, is_of_job: impl Fn(u32) -> bool) {
        let mut wrong = Vec::new();
        for (&tid, thread) in &self.threads {
            let process = &self.processes[&thread.pid];
            let is_old = process.left_ns.is_some_and(|at_ns| at_ns < before_ns);
            if !is_old || process.group.is_some() || is_of_job(tid) {
                continue;
            }
            let (now, cpus) = (self.model.attributes[&tid], &self.model.affinity[&tid]);
            let has_own_cpus = *cpus == thread.own_cpus || thread.normal_cpus.contains(cpus);
            if !self.is_its_own(tid) || !has_own_cpus {
                wrong.push(format!(
                    "who leaves is soon as its owner had it: thread {tid} has {now:?} on {cpus}, \
                     not {:?} on {}",
                    thread.own, thread.own_cpus
                ));
            }
        }
        wrong.into_iter().for_each(|what| self.violation(what));
    }

    /// Processes that became another user's before a moment (monotonic) are not raised in the name
    /// of their job's owner.
    pub fn check_foreign(&mut self, before_ns: u64) {
        let mut wrong = Vec::new();
        for (&tid, thread) in &self.threads {
            let process = &self.processes[&thread.pid];
            let is_old = process.became_ns.is_some_and(|at_ns| at_ns < before_ns);
            let now = &self.model.attributes[&tid];
            if !is_old || !is_raised(now) || self.is_its_own(tid) {
                continue;
            }
            let owner_uid = self.record_of(tid).map_or(0, |record| record.owner_uid);
            if self.is_foreign(tid, owner_uid) {
                wrong.push(format!(
                    "who becomes another's is soon left alone: thread {tid} of user {} has {now:?} \
                     in a job of user {owner_uid}",
                    process.uid
                ));
            }
        }
        wrong.into_iter().for_each(|what| self.violation(what));
    }

    /// No thread is raised whose job is not on file, whoever has raised it.
    pub fn check_raised(&mut self) {
        let is_stray = |tid: &&u32| {
            let now = &self.model.attributes[*tid];
            is_raised(now) && now.policy != self.threads[*tid].own.policy
        };
        let strays: Vec<u32> = self.threads.keys().filter(is_stray).copied().collect();
        for tid in strays {
            if self.record_of(tid).is_none() {
                self.violation(format!("a thread that is raised is of a job on file: {tid}"));
            }
        }
    }

    /// No thread is in a slot.
    pub fn check_lowered(&mut self) {
        let mut raised = self.model.attributes.iter().filter(|(tid, now)| {
            let own = self.threads.get(tid).map(|thread| thread.own.policy);
            is_raised(now) && own != Some(now.policy)
        });
        if let Some(tid) = raised.next().map(|(&tid, _)| tid) {
            self.violation(format!("the deadline lowers every gang: thread {tid} is raised"));
        }
    }

    /// The threads of a job run on the CPUs of its slot, or where they ran without it.
    pub fn check_cpus(
        &self,
        members: &Members,
        slot: Option<&CpuSet>,
        online: &CpuSet,
    ) -> Result<(), String> {
        for thread in members.threads().iter().filter(|it| !it.is_exempt() && !it.user_pinned) {
            let (of, cpus) = (&self.threads[&thread.tid], &self.model.affinity[&thread.tid]);
            if of.choice != Choice::Known {
                continue;
            }
            let is_own = *cpus == of.own_cpus || of.normal_cpus.contains(cpus);
            // Where other threads of the job chose CPUs of their own, the slot has these, too.
            let is_within = |slot: &CpuSet| {
                let own = of.normal_cpus.iter().chain([&of.own_cpus]);
                own.into_iter().any(|own| *cpus == slot.intersection(own))
            };
            let is_right = match slot {
                Some(slot) => cpus == slot || is_within(slot) || (is_own && slot == online),
                None => is_own,
            };
            if !is_right {
                let tid = thread.tid;
                return Err(format!("thread {tid} is on {cpus}, and its slot is {slot:?}"));
            }
        }
        Ok(())
    }

    /// Each thread that chose its CPUs has some of them in the slot of its gang.
    pub fn check_places(
        &self,
        living: &Members,
        members: &Members,
        slot: &CpuSet,
    ) -> Result<(), String> {
        for thread in living.threads().iter().filter(|it| !it.is_exempt()) {
            let (tid, of) = (thread.tid, &self.threads[&thread.tid]);
            let Some(own) = members.own_cpus(tid).filter(|_| of.choice == Choice::Known) else {
                continue;
            };
            if own.is_disjoint(slot) {
                return Err(format!("thread {tid} may use {own}, and the slot is {slot}"));
            }
            let has = &self.model.affinity[&tid];
            if has != own {
                return Err(format!("thread {tid} chose {own}, and has {has}"));
            }
        }
        Ok(())
    }

    /// Threads that are left alone run where they like.
    pub fn check_left_alone(&self, living: &Members) -> Result<(), String> {
        for thread in living.threads().iter().filter(|it| it.is_exempt() && !it.user_pinned) {
            let (tid, of) = (thread.tid, &self.threads[&thread.tid]);
            let has = &self.model.affinity[&tid];
            let is_own = *has == of.own_cpus || of.normal_cpus.contains(has);
            if of.choice == Choice::Known && !is_own {
                return Err(format!(
                    "thread {tid} is left alone on {}, and has {has}",
                    of.own_cpus
                ));
            }
        }
        Ok(())
    }
}
