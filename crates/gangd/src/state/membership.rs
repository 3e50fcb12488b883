//! Where a job lives, and who is in it: processes come, move elsewhere and leave.
//!
//! Where that changes what is on file of the job, its record is returned. Processes are moved by the thread of
//! the client, before or after.

use std::sync::Arc;

use gang_engine::{
    bound::ProcessHandle,
    listeners::Listeners,
    members::Members,
    singles::Single,
    store::{Confinement, JoinedProcess, Placement, Record},
};
use gang_linux::clock;
use gang_schedule::{JobId, Policy};
use gang_timetable::{Attributes, Signal};

use super::State;
use crate::{
    denied::Denied,
    job::{Home, Leaver},
    singles::{SINGLES_MAX, SingleLeaver},
};

impl State {
    /// The first process of a job came.
    pub fn join(
        &mut self,
        id: JobId,
        placement: Placement,
        members: Members,
        normal: Attributes,
        affinity: Vec<u32>,
    ) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        if let Some(home) = &job.home {
            let of_threads = |at: &Placement| matches!(at, Placement::Threads { .. });
            if of_threads(&home.placement) != of_threads(&placement) {
                return Err(Denied::mixed(id, of_threads(&home.placement)));
            }
            return Ok(None);
        }
        let listeners = Listeners::default();
        let joined = Vec::new();
        let coming = None;
        job.home = Some(Home { placement, members, normal, affinity, listeners, joined, coming });
        job.activity.last_used_ns = clock::monotonic_ns();
        self.wake(id, true)?;
        let job = self.jobs.get(&id).ok_or(Denied::NoSuchJob(id))?;
        self.gauge.watch(job);
        Ok(job.record())
    }

    /// The first process of a job, with its start time, is on its way to where the job lives, and takes part
    /// in the schedule meanwhile.
    pub fn is_coming(&mut self, id: JobId, process: (u32, u64), tids: Vec<u32>) {
        if let Some(home) = self.jobs.get_mut(&id).and_then(|job| job.home.as_mut()) {
            home.members.expect(tids);
            home.coming = Some(process);
        }
    }

    /// The first process of a job is where the job lives.
    pub fn has_come(&mut self, id: JobId) -> Option<Record> {
        let job = self.jobs.get_mut(&id)?;
        if let Some(home) = &mut job.home {
            home.members.expect(Vec::new());
            home.coming = None;
        }
        job.record()
    }

    /// The memory of a job is limited there, or is going to be.
    pub fn confine(
        &mut self,
        id: JobId,
        to: Option<Confinement>,
        is_enforced: bool,
    ) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        job.mem_is_enforced = is_enforced;
        if let Some(home) = &mut job.home {
            home.placement.set_confinement(to);
        }
        Ok(job.record())
    }

    /// The processes of a job are going to be there.
    pub fn expect_at(&mut self, id: JobId, placement: Placement) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        if let Some(home) = &mut job.home {
            home.placement = placement;
        }
        Ok(job.record())
    }

    /// A job lives elsewhere, and is scheduled by another policy.
    pub fn rehome(
        &mut self,
        id: JobId,
        policy: Policy,
        placement: Placement,
        members: Members,
    ) -> Result<Option<Record>, Denied> {
        self.expect_at(id, placement)?;
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        // A tree has its members in its processes, wherever they are.
        if let Some(home) = &mut job.home {
            if matches!(home.placement, Placement::Cgroup { .. }) {
                // The CPUs go with the threads.
                let before = std::mem::replace(&mut home.members, members);
                home.members.set_pinned(before.pinned.clone());
                home.members.pins = before.pins;
            }
        }
        let record = self.change(id, |spec, _| spec.policy = policy)?;
        if let Some(job) = self.jobs.get(&id) {
            self.gauge.follow(job);
        }
        self.schedule.renew();
        Ok(record)
    }

    /// A process is going to come from elsewhere than the first one; `members` are there now.
    pub fn expect(
        &mut self,
        id: JobId,
        joined: JoinedProcess,
        members: &[u32],
    ) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        if let Some(home) = &mut job.home {
            home.joined.retain(|other| members.contains(&other.pid));
            home.joined.push(joined);
        }
        Ok(job.record())
    }

    /// Threads have come that had something else before than the job's first one.
    pub fn remember_attributes(
        &mut self,
        id: JobId,
        before: &[(u32, Attributes)],
    ) -> Result<(), Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        if let Some(home) = &mut job.home {
            home.members.remember_attributes(before);
        }
        // The timetables in force may have them as the first one was.
        self.schedule.renew();
        Ok(())
    }

    /// A process leaves its job. It stays on file until it [has left](State::has_left).
    pub fn let_go(&mut self, id: JobId, process: Arc<ProcessHandle>) -> Result<Leaver, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        let gone = Denied::NoSuchProcess(process.pid);
        let home = job.home.as_mut().ok_or(gone)?;
        let _ = home.members.refresh(&self.roots.proc);
        let mut actions = Vec::new();
        let known = home.members.let_go(&self.roots.proc, id, &process, &mut actions);
        let normal = home.normal;
        let joined = home.joined.iter().find(|it| it.pid == process.pid).cloned();
        let mut last = Vec::new();
        // It hears the last of the job.
        home.listeners.signal_one(id, process.pid, Signal::SlotBegins, &mut last);
        let actions = self.order(actions);
        let _ = self.order(last);
        if let Some(home) = self.jobs.get_mut(&id).and_then(|job| job.home.as_mut()) {
            home.listeners.forget(process.pid);
        }
        // The timetables in force still have its threads.
        self.schedule.renew();
        let gone_from = self.generation + 1;
        Ok(Leaver { known, actions, normal, joined, gone_from })
    }

    /// What is to be on file of a job before a single thread comes into it; absent where it is the first one.
    pub fn with_single(&self, id: JobId, single: Single) -> Result<Option<Record>, Denied> {
        let job = self.job(id)?;
        let operation = || format!("add thread {} to job {id}", single.tid);
        if job.suspended || job.signals {
            let reason = match job.suspended {
                true => "it is suspended, and a single thread cannot stand still: resume it first",
                false => "it asks for signals, which go to whole processes: switch them off first",
            };
            return Err(Denied::not_permitted(operation(), reason));
        }
        let Some(mut record) = job.record() else { return Ok(None) };
        let Placement::Threads { threads } = &mut record.placement else {
            return Err(Denied::mixed(id, false));
        };
        if threads.len() >= SINGLES_MAX {
            let limit = "single threads of a job";
            return Err(Denied::LimitReached { limit, maximum: SINGLES_MAX });
        }
        threads.push(single);
        Ok(Some(record))
    }

    /// A further single thread comes; it is on file.
    pub fn add_single(&mut self, id: JobId, single: Single) -> Result<(), Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        if let Some(home) = &mut job.home {
            if let Placement::Threads { threads } = &mut home.placement {
                threads.push(single);
            }
            home.members.add_single(single);
        }
        // The timetables in force do not have it.
        self.schedule.renew();
        Ok(())
    }

    /// A single thread leaves its job. It stays on file until they are [settled](State::settle_singles).
    pub fn let_single_go(&mut self, id: JobId, tid: u32) -> Result<SingleLeaver, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        let gone = || Denied::NoSuchThread(tid);
        let home = job.home.as_mut().ok_or_else(gone)?;
        let _ = home.members.refresh(&self.roots.proc);
        let singles = home.members.singles();
        let pid = singles.iter().find(|single| single.tid == tid).ok_or_else(gone)?.pid;
        let of_process = singles.iter().filter(|single| single.pid == pid).copied().collect();
        let process = ProcessHandle::open(pid).map_err(|_| gone())?;
        let mut actions = Vec::new();
        home.members.let_single_go(tid, &mut actions);
        let (normal, affinity) = (home.normal, home.affinity.iter().copied().collect());
        let actions = self.order(actions);
        // The timetables in force still have it.
        self.schedule.renew();
        let gone_from = self.generation + 1;
        let leaver = Leaver { known: vec![tid], actions, normal, joined: None, gone_from };
        Ok(SingleLeaver { process, leaver, of_process, affinity })
    }

    /// What is on file of a job of single threads are those that it has.
    pub fn settle_singles(&mut self, id: JobId) -> Option<Record> {
        let job = self.jobs.get_mut(&id)?;
        if let Some(home) = &mut job.home {
            if let Placement::Threads { threads } = &mut home.placement {
                threads.clear();
                let singles = home.members.singles().iter();
                threads.extend(singles.filter(|single| single.is_there(&self.roots.proc)));
            }
        }
        job.record()
    }

    /// A process that was let go is in the job's groups no more, or could not be moved out of them.
    pub fn has_left(
        &mut self,
        id: JobId,
        pid: u32,
        is_out: bool,
    ) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        if let Some(home) = &mut job.home {
            home.members.has_left(pid);
            home.joined.retain(|joined| joined.pid != pid || !is_out);
            if let (Placement::Tree { processes }, true) = (&mut home.placement, is_out) {
                processes.retain(|(other, _)| *other != pid);
            }
        }
        Ok(job.record())
    }
}
