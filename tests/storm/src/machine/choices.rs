//! Choices of owners for their threads, and the part of them that is on file.

use std::collections::BTreeMap;

use gang_schedule::{CpuSet, JobId};
use gang_timetable::{
    Attributes, Backend, Members, OVERSUBSCRIBED, SchedPolicy,
    record::{Placement, Record},
};

use super::{Choice, Machine, Pins};

impl Machine {
    /// The owner of a thread gives it other attributes.
    pub fn choose(&mut self, tid: u32, now: Attributes) {
        let before = self.model.attributes.insert(tid, now);
        let is_on_file = self.record_of(tid).is_some();
        let wanted = self.wanted_on_file(tid);
        let Some(thread) = self.threads.get_mut(&tid).filter(|_| before != Some(now)) else {
            return;
        };
        if std::env::var_os("STORM_TRACE").is_some() {
            eprintln!("  choose {tid}: {now:?} instead of {before:?}, on file {is_on_file}");
        }
        let is_nice = before.is_some_and(|before| before.nice != now.nice);
        let had = thread.own;
        // In the slot of an oversubscribed gang, anybody may choose a nice value that he could not
        // choose elsewhere. One below his own is no wish, and his own is what was known of it last.
        // Out of slot, it is one unless the gang was ever oversubscribed: he may have kept it.
        let mut had_before = Vec::new();
        if before.is_some_and(|it| it.reset_on_fork && !it.policy.is_realtime()) {
            had_before = thread.normal.iter().chain(&thread.unread).copied().chain([had]).collect();
            had_before.extend(thread.lost_nice.then_some(Attributes { nice: 0, ..had }));
            if had_before.iter().all(|it| now.nice < it.nice) {
                if before.is_some_and(|it| it.policy != SchedPolicy::Other) {
                    let all = had_before.into_iter().map(|it| Attributes { nice: now.nice, ..it });
                    all.for_each(|it| thread.may_have(it));
                }
                return;
            }
        }
        thread.is_unread = true;
        if is_nice {
            // One that lost the policy of its parent still has not got it back, perhaps.
            thread.normal.extend(thread.lost_nice.then_some(Attributes::other(now.nice)));
            // As one that a real-time parent has started, which lost its nice value; or as what
            // such a one has started.
            let may_be_new = !thread.was_read || thread.was_reset || thread.lost_nice;
            thread.lost_nice = may_be_new && now.nice == 0;
            thread.own.nice = now.nice;
            let before_that = thread.normal.clone();
            let all = thread.unread.iter_mut().chain(&mut thread.normal);
            all.for_each(|it| it.nice = now.nice);
            // Out of slot, one below that on file may be one that a slot has permitted: nobody can
            // tell, unless it is read before the gang is oversubscribed, or is released.
            let known = wanted.into_iter().chain(is_on_file.then_some(had));
            let higher = known.filter(|it| now.nice < it.nice);
            higher.for_each(|it| thread.may_have(it));
            if thread.lost_nice {
                let at_start = thread.at_start.clone();
                let before_that = before_that.into_iter().chain([had]).chain(at_start);
                before_that.for_each(|had| thread.may_have(had));
            }
            // In its slot, one of an oversubscribed gang is SCHED_OTHER: nobody can tell that its
            // owner did not choose that, too.
            if before.is_some_and(|it| it.reset_on_fork && !it.policy.is_realtime()) {
                thread.is_unswitched = true;
                thread.may_have(Attributes { reset_on_fork: false, ..now });
            }
        } else {
            // That of an oversubscribed gang in its slot is not its owner's.
            let nice =
                if now.nice == -20 && !now.policy.is_realtime() { had.nice } else { now.nice };
            thread.own = Attributes { nice, ..now };
            // The nice value may be that of any thread that may have started it.
            for nice in thread.normal.iter().map(|it| it.nice).collect::<Vec<i32>>() {
                thread.may_have(Attributes { nice, ..now });
            }
            thread.is_unswitched = !now.policy.is_realtime();
            // It may look as one that a real-time parent has started, or as one of an
            // oversubscribed gang does in its slot. Nobody can tell that it was chosen, nor what
            // its owner had chosen since the last read: sched_getattr(2) shows what a thread has,
            // and nothing of before.
            let read = thread.unread.first().copied().unwrap_or(had);
            if now == Attributes::other(0) && (thread.was_reset || !thread.was_read) {
                let at_start = thread.at_start.clone();
                at_start.into_iter().chain([read]).for_each(|had| thread.may_have(had));
            }
            // One that was real-time of its own becomes an ordinary one.
            let ordinary = |had: Attributes| match had.policy.is_realtime() {
                true => Attributes::other(nice),
                false => Attributes { nice, ..had },
            };
            if now == OVERSUBSCRIBED {
                thread.may_have(ordinary(read));
            }
            thread.unread.extend(is_on_file.then_some(ordinary(had)));
        }
        had_before.into_iter().for_each(|it| thread.may_have(it));
    }

    /// Whether a thread is of a job with a cgroup, or on its way there.
    pub fn has_group(&self, tid: u32) -> bool {
        let is_group = |of: &Record| matches!(of.placement, Placement::Cgroup { .. });
        self.record_of(tid).is_some_and(is_group)
    }

    /// Whether it is of a gang that a group of its own weighs.
    pub fn is_apart(&self, tid: u32) -> bool {
        let is_apart = |of: &Record| {
            matches!(of.placement, Placement::Cgroup { cpu_group_is_shared: false, .. })
        };
        self.record_of(tid).is_some_and(is_apart)
    }

    /// Whether a thread has CPUs that gangd gave to threads of a job.
    pub fn has_given_cpus(&self, job: JobId, tid: u32) -> bool {
        let (pins, cpus) = (self.pins.get(&job), self.model.affinity.get(&tid));
        pins.zip(cpus).is_some_and(|(pins, cpus)| pins.has_given(cpus))
    }

    /// The attributes that the owner of a thread wants, by what is on file.
    pub(super) fn wanted_on_file(&self, tid: u32) -> Option<Attributes> {
        let record = self.record_of(tid)?;
        let own = self.pins.get(&JobId(record.id)).and_then(|pins| pins.own.get(&tid));
        Some(own.copied().unwrap_or(record.normal.into()))
    }

    /// The first thread of the process that started a thread.
    pub(super) fn starter(&self, tid: u32) -> u32 {
        let pid = self.threads[&tid].pid;
        if pid == tid { self.processes[&pid].parent } else { pid }
    }

    /// On file: threads are going to come that have these attributes of their own.
    pub fn expect_own(&mut self, job: JobId, own: BTreeMap<u32, Attributes>) {
        if self.backend.is_some_and(Backend::can_fill) {
            self.pins.entry(job).or_default().own.extend(own);
        }
    }

    /// The daemon looks at which CPUs threads have.
    pub(super) fn see_cpus(&mut self, tids: &[u32], members: &mut Members, pins: &Pins) -> bool {
        let mut have_moved = false;
        for &tid in tids {
            let Some(cpus) = self.model.affinity.get(&tid).cloned() else { continue };
            let were_given = pins.given.contains(&cpus);
            have_moved |= members.see_cpus(tid, cpus.clone(), were_given, &self.online);
            let everywhere = members.everywhere.clone();
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            if thread.choice == Choice::Unseen {
                // On file from the next read on; until then a release may take it for a slot's.
                thread.normal_cpus.push(everywhere);
            }
            // Where it was every CPU online, it shows once there are others.
            let is_known = matches!(thread.choice, Choice::Known | Choice::Lost)
                || members.own_cpus(tid) == Some(&cpus);
            thread.choice = if is_known { Choice::Known } else { Choice::Alike };
        }
        have_moved
    }

    /// Whether a member has other CPUs than it is known to have.
    pub fn has_moved(&self, members: &Members, tid: u32) -> bool {
        let is_switched = self.backend.is_some_and(Backend::can_fill);
        let cpus = self.model.affinity.get(&tid).filter(|_| is_switched);
        cpus.is_some_and(|cpus| !members.is_usual(tid, cpus))
    }

    /// An owner chooses the CPUs of a thread, wherever it is.
    pub fn bind(&mut self, tid: u32, cpus: CpuSet) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        thread.choice = Choice::Unseen;
        let before = std::mem::replace(&mut thread.own_cpus, cpus.clone());
        // CPUs that its daemon knew of are given back where that daemon does not look any more.
        thread.normal_cpus.push(before);
        self.model.affinity.insert(tid, cpus);
    }

    /// The CPUs that the threads of a process have are taken for their own when it comes, whatever
    /// the daemon of a job before knew of them.
    pub fn know_choices(&mut self, pid: u32) {
        self.processes.get_mut(&pid).into_iter().for_each(|it| it.left_ns = None);
        for (tid, thread) in self.threads.iter_mut().filter(|(_, of)| of.pid == pid) {
            if self.model.affinity.get(tid) == Some(&thread.own_cpus) {
                thread.choice = Choice::Known;
            }
        }
    }

    /// On file: threads that chose their CPUs are going to come.
    pub fn expect_user_pinned(&mut self, job: JobId, tids: impl Iterator<Item = u32>) {
        if self.backend.is_some_and(Backend::can_fill) {
            self.pins.entry(job).or_default().user_pinned.extend(tids);
        }
    }

    /// A job begins anew: no CPUs are given yet.
    pub fn begin_pins(&mut self, job: JobId) {
        let own = std::mem::take(&mut self.pins.entry(job).or_default().own);
        self.pins.insert(job, Pins { own, ..Pins::default() });
    }

    /// On file: threads of a job are going to be restricted to these CPUs.
    pub fn give(&mut self, job: JobId, cpus: &CpuSet) {
        let given = &mut self.pins.entry(job).or_default().given;
        if !given.contains(cpus) {
            given.push(cpus.clone());
        }
    }
}
