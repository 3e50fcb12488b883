//! Releases from what is on file alone, as the guardian does them.

use gang_schedule::{CpuSet, JobId};
use gang_timetable::{
    Attributes, SchedPolicy, as_default,
    record::{Placement, Record, Single},
    released, released_inheritor,
};

use super::{Machine, Thread};

impl Machine {
    /// Undoes what is done to one job, from what is on file of it alone: as the guardian does.
    pub fn release(&mut self, record: &Record) {
        let job = JobId(record.id);
        let normal: Attributes = record.normal.into();
        let everywhere: CpuSet = record.affinity.iter().copied().collect();
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            if !self.is_on_file(record, self.threads[&tid].pid, tid) {
                continue;
            }
            let single = match &record.placement {
                Placement::Threads { threads } => threads.iter().find(|it| it.tid == tid),
                Placement::Cgroup { .. } | Placement::Tree { .. } => None,
            };
            let normal = single.map_or(as_default(normal), |single| single.normal.into());
            let own = |tid| self.pins.get(&job).and_then(|pins| pins.own.get(&tid)).copied();
            let mut starters = std::iter::successors(Some(tid), |&at| {
                self.threads.contains_key(&at).then(|| self.starter(at))
            });
            let starter = own(tid).or_else(|| starters.find_map(own).map(as_default));
            // Another thread of that process may have started it, or that process has ended.
            let ordinary = starter.or(Some(normal)).map(as_default);
            let now = self.model.attributes.get(&tid).map(|now| now.nice);
            if let (None, Some(of)) = (own(tid), ordinary) {
                let thread = self.threads.get_mut(&tid);
                thread.into_iter().for_each(|it| {
                    it.may_have(of);
                    it.may_have(Attributes { nice: it.own.nice, ..of });
                    let all = it.normal.iter().map(|had| had.nice);
                    let all: Vec<i32> = all.chain(now.filter(|_| it.lost_nice)).collect();
                    all.into_iter().for_each(|nice| it.may_have(Attributes { nice, ..of }));
                });
            }
            let normal = starter.unwrap_or(normal);
            let cpus = self.model.affinity.get(&tid).cloned().unwrap_or_default();
            let has_pinned = self
                .pins
                .get(&job)
                .is_some_and(|pins| pins.given.contains(&cpus) && !pins.user_pinned.contains(&tid));
            if std::env::var_os("STORM_TRACE").is_some() {
                eprintln!(
                    "  release of job {job}: {tid} on {cpus}, pinned {has_pinned}, to {everywhere}, coming {:?}",
                    record.coming
                );
            }
            if has_pinned && cpus != everywhere {
                self.model.affinity.insert(tid, everywhere.clone());
            }
            let had = self.model.attributes.get(&tid).and_then(|now| released(now, &normal));
            let had = had.filter(|_| !record.keeps_attributes);
            self.model.attributes.extend(had.map(|had| (tid, had)));
            // From now on that is what it has.
            let now = self.model.attributes.get(&tid).copied().unwrap_or(normal);
            let thread = self.threads.get_mut(&tid).filter(|it| it.unread.contains(&now));
            thread.into_iter().for_each(|it| {
                it.own = now;
                // One that lost its nice value looks again as it did when it was first seen.
                if it.lost_nice && now == Attributes::other(0) {
                    let at_start = it.at_start.clone();
                    at_start.into_iter().for_each(|had| it.may_have(had));
                }
            });
            let pid = self.threads[&tid].pid;
            self.model.stopped.remove(&pid);
        }
        self.model.groups.remove(&gang_timetable::Group::Job(job));
        if let Placement::Cgroup { .. } = record.placement {
            let tids: Vec<u32> = self.threads.keys().copied().collect();
            let strays: Vec<u32> =
                tids.into_iter().filter(|&it| self.is_stray(record, it)).collect();
            let normal = Some(record.normal.into()).filter(|_| !record.keeps_attributes);
            for tid in strays {
                self.release_started(job, tid, normal, &everywhere, |_| false);
            }
        }
        if let Placement::Threads { threads } = &record.placement {
            self.release_inheritors(job, threads, &everywhere);
        }
    }

    /// The same, of the members that are on file.
    pub fn release_inheritors_of(&mut self, job: JobId) {
        let Some(record) = self.records.get(&job) else { return };
        let everywhere: CpuSet = record.affinity.iter().copied().collect();
        if let Placement::Threads { threads } = record.placement.clone() {
            self.release_inheritors(job, &threads, &everywhere);
        }
    }

    /// A thread that single members have started is no member: it gets back what it would have had.
    pub(super) fn release_inheritors(
        &mut self,
        job: JobId,
        singles: &[Single],
        everywhere: &CpuSet,
    ) {
        let pins = self.pins.get(&job).cloned().unwrap_or_default();
        let records = self.records.values().filter(|record| JobId(record.id) != job);
        let of_others = records.flat_map(|record| match &record.placement {
            Placement::Threads { threads } => threads.clone(),
            Placement::Cgroup { .. } | Placement::Tree { .. } => Vec::new(),
        });
        let all: Vec<Single> = singles.iter().copied().chain(of_others).collect();
        for single in singles {
            let own = pins.own.get(&single.tid).copied();
            let normal: Attributes = own.unwrap_or_else(|| single.normal.into());
            let is_younger = |(tid, of): &(&u32, &Thread)| {
                let is_member = singles.iter().any(|it| it.tid == **tid);
                let line = self.ancestors(of.pid);
                let is_of = |it: &Single, at: &(u32, u64)| (it.pid, it.process_started) == *at;
                let nearest = line.iter().find(|at| all.iter().any(|it| is_of(it, at)));
                // Those of another job have what that one gives them.
                !is_member
                    && self.record_of(**tid).is_none()
                    && of.started > single.since
                    && nearest.is_some_and(|at| is_of(single, at))
            };
            let tids = self.threads.iter().filter(is_younger).map(|(&tid, _)| tid);
            for tid in tids.collect::<Vec<u32>>() {
                let now = self.model.attributes[&tid];
                if let Some(had) = released_inheritor(&now, &normal) {
                    self.model.attributes.insert(tid, had);
                    // SCHED_IDLE looks as that of a filling thread does where its owner has chosen
                    // it, or where it may be the owner's since before there was this member.
                    let thread = self.threads.get_mut(&tid);
                    let thread = thread.filter(|it| {
                        let is_own = it.own == now || it.normal.contains(&now);
                        is_own && now.policy == SchedPolicy::Idle
                    });
                    thread.into_iter().for_each(|it| it.may_have(had));
                }
                let cpus = self.model.affinity[&tid].clone();
                if cpus != *everywhere && pins.has_given(&cpus) {
                    self.model.affinity.insert(tid, everywhere.clone());
                    // Where it chose exactly those of a slot, that choice is lost.
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        let is_own = thread.own_cpus == cpus || thread.normal_cpus.contains(&cpus);
                        thread.normal_cpus.extend(is_own.then(|| everywhere.clone()));
                    }
                }
            }
        }
    }

    /// Threads that one that left its job has started since it was last read get what they would
    /// have had.
    pub fn release_started(
        &mut self,
        job: JobId,
        stray: u32,
        normal: Option<Attributes>,
        everywhere: &CpuSet,
        is_of_job: impl Fn(u32) -> bool,
    ) {
        let pid = self.threads[&stray].pid;
        let pins = self.pins.get(&job).cloned().unwrap_or_default();
        let is_started = |(tid, of): &(&u32, &Thread)| {
            let is_below = self.ancestors(of.pid).iter().any(|&(above, _)| above == pid);
            let is_of_it = is_below && self.record_of(**tid).is_none_or(|it| it.id == job.0);
            is_of_it && self.processes[&of.pid].group.is_none() && !pins.has_filed(**tid)
        };
        let started: Vec<u32> =
            self.threads.iter().filter(is_started).map(|(&tid, _)| tid).collect();
        for tid in started.into_iter().filter(|&tid| !is_of_job(tid)) {
            let now = self.model.attributes[&tid];
            let had = normal.and_then(|normal| released(&now, &as_default(normal)));
            self.model.attributes.extend(had.map(|had| (tid, had)));
            if let (Some(had), Some(thread)) = (had, self.threads.get_mut(&tid)) {
                thread.may_have(had);
            }
            if pins.has_given(&self.model.affinity[&tid]) {
                self.model.affinity.insert(tid, everywhere.clone());
                let thread = self.threads.get_mut(&tid);
                thread.into_iter().for_each(|it| it.normal_cpus.push(everywhere.clone()));
            }
        }
    }

    /// The guardian releases all jobs on file.
    pub fn release_all(&mut self) {
        let records: Vec<Record> = self.records.values().cloned().collect();
        records.iter().for_each(|record| self.release(record));
        self.model.groups.remove(&gang_timetable::Group::All);
    }

    /// A job that is over leaves nothing but its processes.
    pub fn clear_away(&mut self, record: &Record) {
        // Processes below a tree may be another job's.
        if !matches!(record.placement, Placement::Tree { .. }) {
            self.release(record);
        }
        let job = JobId(record.id);
        self.in_group(job).into_iter().for_each(|pid| self.leave_group(pid));
        self.records.remove(&job);
        self.pins.remove(&job);
    }

    /// A process was on its way into a job, and is there. Its children of meanwhile are not: they
    /// get back what they would have had.
    pub fn let_strays_go(&mut self, job: JobId, first: u32, normal: Attributes, cpus: &CpuSet) {
        let pins = self.pins.get(&job).cloned().unwrap_or_default();
        let is_stray = |pid: u32| {
            let line = self.ancestors(pid);
            self.processes[&pid].group.is_none() && line.iter().any(|&(pid, _)| pid == first)
        };
        let strays: Vec<u32> = self.processes.keys().copied().filter(|&it| is_stray(it)).collect();
        let tids: Vec<u32> = strays.into_iter().flat_map(|pid| self.tids(pid)).collect();
        for tid in tids {
            let now = self.model.attributes[&tid];
            let had = released(&now, &normal);
            self.model.attributes.extend(had.map(|had| (tid, had)));
            // SCHED_IDLE or SCHED_BATCH that the first thread has of its own looks as what another
            // thread of its process has out of its slot, and that one may have started this one.
            let may_be_given = matches!(now.policy, SchedPolicy::Idle | SchedPolicy::Batch);
            let is_alike = may_be_given && now.policy == normal.policy;
            // The policy of the one that started it may have been another one then.
            let may_have = had.or(is_alike.then_some(now));
            if let (Some(may_have), Some(thread)) = (may_have, self.threads.get_mut(&tid)) {
                thread.may_have(may_have);
            }
            if pins.has_given(&self.model.affinity[&tid]) {
                self.model.affinity.insert(tid, cpus.clone());
                // Where it chose them, that choice is lost.
                self.threads.get_mut(&tid).into_iter().for_each(|it| {
                    it.own_cpus = cpus.clone();
                });
            }
        }
    }

    /// Whether a process that leaves a job is there yet.
    pub fn is_left(&self, job: JobId, pid: u32) -> bool {
        let record = self.records.get(&job);
        record.is_some_and(|record| self.is_on_file(record, pid, pid))
    }

    /// The same of a single thread.
    pub fn is_single_left(&self, job: JobId, tid: u32) -> bool {
        self.record_of(tid).is_some_and(|record| record.id == job.0)
    }
}
