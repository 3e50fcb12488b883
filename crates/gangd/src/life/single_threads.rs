//! Single threads that come into a job, and leave it.
//!
//! Problem: a program may have one thread that works with those of others while the rest of it does
//! not. But all that stops, freezes or weighs acts on processes or on groups of them. In version 2
//! of cgroups a thread is where its process is.
//!
//! Approach: a job has either processes or single threads. Single threads stay in the groups of
//! their process, and out of their slots they are SCHED_IDLE there. Where a thread by itself cannot
//! be switched, it is refused, with what to do instead. Every step that is to be undone is on file
//! before it is done.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use gang_conductor::Home;
use gang_engine::{
    bound::ProcessHandle,
    pins::Pins,
    roster::Roster,
    singles::{self, Others},
    thread,
};
use gang_linux::process;
use gang_protocol::v1;
use gang_schedule::{CpuSet, JobId};
use gang_timetable::{
    Backend,
    record::{Placement, Record, Single},
};

use super::{founding::Founding, peer::Peer};
use crate::{
    conduct::{leaving::Leaver, registry::Descriptors, state::State},
    daemon::Daemon,
    error::Error,
};

/// The job that has a thread already, or all threads of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The thread by itself.
    OfThread(JobId),
    OfProcess(JobId),
}

/// A single thread that leaves its job.
pub struct SingleLeaver {
    pub process: Arc<ProcessHandle>,
    pub leaver: Leaver,
    /// Itself.
    pub single: Single,
    /// The members of its job, itself among them.
    pub members: Vec<Single>,
    pub others: Others,
    /// The CPUs that the first thread of the job might run on.
    pub affinity: CpuSet,
}

/// The job that has a thread of a process, and which one.
pub fn of_process(state: &State, pid: u32) -> Option<(JobId, u32)> {
    let proc_root = &state.roots.proc;
    state.core.jobs().keys().find_map(|&job| {
        let mut singles = state.singles(job).iter();
        let single = singles.find(|it| it.pid == pid && !singles::has_ended(it, proc_root))?;
        Some((job, single.tid))
    })
}

/// A single thread leaves its job.
fn leave(state: &mut State, job: JobId, tid: u32) -> Result<SingleLeaver, Error> {
    let gone = || Error::NoSuchThread(tid);
    let members = state.singles(job).to_vec();
    let home = state.job(job)?.home.as_ref().ok_or_else(gone)?;
    let affinity = home.affinity.iter().copied().collect();
    let single = *members.iter().find(|single| single.tid == tid).ok_or_else(gone)?;
    let process = ProcessHandle::open(single.pid).map_err(|_| gone())?;
    let leaver = state.detach_single(job, tid)?;
    let others = state.others_of(job);
    Ok(SingleLeaver { process, leaver, single, members, others, affinity })
}

/// The processes of single threads, in the terms of the interface; those of which the commands are
/// known.
pub fn processes(
    proc_root: &Path,
    singles: &[Single],
    mut commands: BTreeMap<u32, String>,
) -> Vec<v1::Process> {
    let mut of: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for single in singles.iter().filter(|single| singles::is_there(single, proc_root)) {
        of.entry(single.pid).or_default().push(single.tid.into());
    }
    let process = |(pid, tids): (u32, Vec<i64>)| {
        let command = commands.remove(&pid)?;
        Some(v1::Process { pid: pid.into(), threads: tids.len() as i64, command, tids: Some(tids) })
    };
    of.into_iter().filter_map(process).collect()
}

impl Daemon {
    /// Takes a single thread into a job, as its first one or as a further one.
    pub fn add_thread(&self, peer: Peer, job: JobId, tid: u32) -> Result<(), Error> {
        let owner_uid = self.permit(peer, job, "add a thread")?;
        let operation = || format!("add thread {tid} to job {job}");
        let (process, single) = self.claim_thread(peer, owner_uid, tid)?;
        let _lock = self.jobs.locks.process(process.pid);
        match self.owner_of(single)? {
            Some(Owner::OfThread(owner) | Owner::OfProcess(owner)) if owner == job => return Ok(()),
            Some(Owner::OfThread(owner)) => {
                let reason = format!("it is in job {owner}; a thread is in one job at a time");
                return Err(Error::not_permitted(operation(), reason));
            }
            Some(Owner::OfProcess(owner)) => {
                let pid = process.pid;
                let reason = format!(
                    "its process {pid} is in job {owner} with all its threads; take it out first"
                );
                return Err(Error::not_permitted(operation(), reason));
            }
            None => {}
        }
        self.can_switch(&single)
            .map_err(|reason| Error::Failed { operation: operation(), reason })?;
        // No process comes as the first one meanwhile.
        let _empty = self.jobs.locks.empty_job(job);
        let filing = self.jobs.files.lock();
        let record = self.conductor.ask(move |state| state.core.with_thread(job, single))??;
        match record {
            Some(record) => self.attach_further_thread(job, single, record),
            None => {
                drop(filing);
                self.attach_first_thread(job, single)
            }
        }
    }

    /// A thread, and its process, that the peer may put into a job of that owner.
    fn claim_thread(
        &self,
        peer: Peer,
        owner_uid: u32,
        tid: u32,
    ) -> Result<(Arc<ProcessHandle>, Single), Error> {
        let gone = || Error::NoSuchThread(tid);
        let proc_root = &self.roots.proc;
        let pid = process::of_thread(proc_root, tid).map_err(|_| gone())?;
        let operation = || format!("take thread {tid} of process {pid} into a job");
        let process =
            self.claim_as(peer, owner_uid, pid, operation).map_err(|error| match error {
                Error::NoSuchProcess(_) => gone(),
                error => error,
            })?;
        // A thread may have become another user by itself.
        self.permit_owner(peer, owner_uid, tid, operation).map_err(|error| match error {
            Error::NoSuchProcess(_) => gone(),
            error => error,
        })?;
        let single = singles::read(proc_root, pid, tid).map_err(|_| gone())?;
        if process.is_alive() { Ok((process, single)) } else { Err(gone()) }
    }

    /// The job that has a thread, if any.
    fn owner_of(&self, single: Single) -> Result<Option<Owner>, Error> {
        if let Some(job) = self.job_of(single.pid)? {
            return Ok(Some(Owner::OfProcess(job)));
        }
        let of_state = move |state: &mut State| {
            state.registry.jobs.iter().find_map(|(&id, Descriptors { roster, .. })| {
                if roster.tree().iter().any(|process| process.pid == single.pid) {
                    return Some(Owner::OfProcess(id));
                }
                let is_same = |it: &Single| (it.tid, it.started) == (single.tid, single.started);
                roster.singles().iter().any(is_same).then_some(Owner::OfThread(id))
            })
        };
        Ok(self.conductor.ask(of_state)?)
    }

    /// Whether this daemon can switch a thread by itself; or why not, and what to do.
    fn can_switch(&self, single: &Single) -> Result<(), String> {
        let backend = self.backend;
        if backend != Backend::Rt {
            return Err(format!(
                "the backend {} acts on whole processes; add process {}, or use the backend rt \
                 (gang status says what it needs)",
                backend.name(),
                single.pid
            ));
        }
        if !self.settings().schedule.fill {
            return Err(format!(
                "with --no-fill members stand still out of their slots, and only whole processes can; \
                 add process {}, or let gangs fill (fill = true)",
                single.pid
            ));
        }
        let barred =
            self.jobs.cgroups.barred_from_realtime(single.tid).map_err(|e| e.to_string())?;
        if let Some(group) = barred {
            return Err(format!(
                "its group {} may have no real-time threads (cpu.rt_runtime_us is 0), and a single \
                 thread stays in the group of its process; add process {}, or give that group some",
                group.display(),
                single.pid
            ));
        }
        Ok(())
    }

    /// Ends jobs whose last single thread has ended; puts on file the threads that are left in the
    /// others.
    pub fn tend_singles(&self, due: Vec<(JobId, bool)>) {
        for (job, is_over) in due {
            if is_over {
                self.end(job);
            } else if let Err(error) = self.change_on_file(move |state| Ok(state.keep_singles(job)))
            {
                tracing::warn!(%job, ?error, "threads that have ended stay on file");
            }
        }
    }

    /// Whether this daemon can switch the single threads that an earlier one left, if there are
    /// any.
    pub fn can_go_on(&self, placement: &Placement) -> Result<(), Error> {
        let Placement::Threads { threads } = placement else { return Ok(()) };
        let mut can = threads.iter().map(|single| self.can_switch(single));
        can.try_for_each(|can| can).map_err(|reason| Error::Failed {
            operation: "take single threads over".into(),
            reason,
        })
    }

    /// A further one, on file before anybody raises it. The caller holds the lock of the files.
    fn attach_further_thread(
        &self,
        job: JobId,
        single: Single,
        record: Record,
    ) -> Result<(), Error> {
        let gone = |_| Error::NoSuchThread(single.tid);
        let cpus = thread::cpus_allowed(&self.roots.proc, single.tid).map_err(gone)?;
        self.jobs.files.put(Some(record))?;
        self.conductor.ask(move |state| state.add_single(job, single, cpus))?
    }

    /// The first one of a job, and the schedule learns of it.
    fn attach_first_thread(&self, job: JobId, single: Single) -> Result<(), Error> {
        let everywhere = thread::cpus_allowed(&self.roots.proc, single.tid)
            .map_err(|_| Error::NoSuchThread(single.tid))?;
        let placement = Placement::Threads { threads: vec![single] };
        let normal = single.normal.into();
        let roster = Roster::of_threads(vec![single]);
        let affinity = everywhere.iter().collect();
        let members = roster.members(normal, everywhere);
        let home = Home::new(placement, members, normal, affinity);
        let at = home.clone();
        let record =
            self.conductor.ask(move |state| state.job(job).map(|job| job.record_at(&at)))??;
        let founding = Founding::new(self, record, None);
        founding.file()?;
        let roster = self.with_pins(job, roster)?;
        self.change_on_file(move |state| state.join(job, home, roster))?;
        founding.complete();
        Ok(())
    }

    /// Takes a single thread out of a job: when this returns, it is scheduled as it was before.
    pub fn remove_thread(&self, peer: Peer, job: JobId, tid: u32) -> Result<(), Error> {
        self.permit(peer, job, "remove a thread")?;
        // The process is brought into no job until its thread has left this one.
        let pid = process::of_thread(&self.roots.proc, tid);
        let _lock = self.jobs.locks.process(pid.map_err(|_| Error::NoSuchThread(tid))?);
        let gone = self.conductor.ask(move |state| leave(state, job, tid))??;
        let SingleLeaver { process, leaver, single, members, others, affinity } = gone;
        self.wait_for_leaver(&process, &leaver);
        let pins = Pins::read(&self.jobs.files.store.pins(job.0)).ok().flatten();
        let inheritors = singles::inheritors(&self.roots.proc, &members, &others).into_iter();
        for (inheritor, member) in inheritors.filter(|(_, of)| of.pid == single.pid) {
            singles::release_inheritor(inheritor, &member, &affinity, pins.as_ref());
        }
        self.conductor.ask(move |state| state.core.thread_has_left(job, tid))?;
        let of_job = move |state: &mut State| state.job(job).map(|_| state.is_over(job));
        match self.conductor.ask(of_job)? {
            Ok(true) => {
                self.end(job);
                Ok(())
            }
            Ok(false) => {
                self.change_on_file(move |state| Ok(state.keep_singles(job)))?;
                Ok(self.conductor.ask(move |state| state.forget_single(job, tid))?)
            }
            // The job has ended meanwhile.
            Err(_) => Ok(()),
        }
    }
}
