//! Processes and single threads that leave their jobs.
//!
//! A process that leaves is on file of its job until it has nothing of gangd's any more: the record
//! names it, and the roster knows it, but the next timetables do not have it.

use std::sync::Arc;

use gang_engine::{
    bound::{Bound, ProcessHandle},
    singles,
};
use gang_linux::process;
use gang_schedule::JobId;
use gang_timetable::{
    Attributes,
    record::{JoinedProcess, Placement, Record, Single},
};

use super::{registry::bind, state::State};
use crate::error::Error;

/// A process, or a single thread, that leaves its job.
#[derive(Clone, Debug)]
pub struct Leaver {
    /// Its threads, of those that the job knew, in order of number.
    pub known: Vec<u32>,
    /// Gives back to them what they had.
    pub actions: Vec<Bound>,
    /// The attributes that its other threads have by default; absent where nothing was done to
    /// those of any.
    pub normal: Option<Attributes>,
    /// Where it came from, if not from where the first one of the job did.
    pub joined: Option<JoinedProcess>,
    /// Timetables of this generation do not have it any more.
    pub gone_from: u64,
    /// The record that is on file meanwhile.
    pub record: Option<Record>,
}

impl State {
    /// A process leaves its job. The process stays on file until it [has left](State::has_left).
    pub fn detach(
        &mut self,
        id: JobId,
        process: Arc<ProcessHandle>,
        started: u64,
    ) -> Result<Leaver, Error> {
        self.read(id);
        // Where the threads cannot be read, the thread that waits for the process gives back what
        // they had.
        let tids = process::threads(&self.roots.proc, process.pid).unwrap_or_default();
        let leaver = self.core.detach(id, (process.pid, started), &tids)?;
        let reading = self.core.reading(id);
        if let (Some(reading), Some(of)) = (reading, self.registry.jobs.get_mut(&id)) {
            of.roster.leaves(reading.members, process.clone());
        }
        let leaver = self.bound(leaver);
        self.carry_out();
        if let Some(of) = self.registry.jobs.get_mut(&id) {
            of.listeners.forget(process.pid);
        }
        Ok(leaver)
    }

    /// A single thread leaves its job. The thread stays on file until [the others are
    /// filed](State::keep_singles).
    pub fn detach_single(&mut self, id: JobId, tid: u32) -> Result<Leaver, Error> {
        self.read(id);
        let leaver = self.core.detach_thread(id, tid)?;
        if let Some(of) = self.registry.jobs.get_mut(&id) {
            of.roster.remove_single(tid);
        }
        Ok(self.bound(leaver))
    }

    fn bound(&self, leaver: gang_conductor::life::Leaver) -> Leaver {
        let gang_conductor::life::Leaver { known, actions, normal, joined, gone_from, record } =
            leaver;
        let actions = bind(&self.registry, actions);
        Leaver { known, actions, normal, joined, gone_from, record }
    }

    /// A process that was detached is out of the job's groups, or could not be moved out of them.
    pub fn has_left(&mut self, id: JobId, pid: u32, is_out: bool) -> Result<Option<Record>, Error> {
        let record = self.core.has_left(id, pid, is_out)?;
        self.left_roster(id, pid);
        Ok(record)
    }

    /// A single thread that was detached is not on file any more.
    pub fn forget_single(&mut self, id: JobId, tid: u32) {
        self.left_roster(id, tid);
    }

    fn left_roster(&mut self, id: JobId, number: u32) {
        let home = self.core.jobs().get(&id).and_then(|job| job.home.as_ref());
        if let (Some(home), Some(of)) = (home, self.registry.jobs.get_mut(&id)) {
            of.roster.has_left(number, &home.members);
        }
    }

    /// Makes the record of a job of single threads name those that the job has.
    pub fn keep_singles(&mut self, id: JobId) -> Option<Record> {
        let all = self.singles(id).iter();
        let there = all.filter(|single| !singles::has_ended(single, &self.roots.proc)).copied();
        let there: Vec<Single> = there.collect();
        self.core.set_threads(id, &there)
    }

    /// Jobs without a cgroup, and of single threads, some of which may have ended.
    pub fn is_over(&self, id: JobId) -> bool {
        let home = self.core.job(id).ok().and_then(|job| job.home.as_ref());
        let is_left = home.is_none_or(|home| home.leaving.is_empty());
        let of = self.registry.jobs.get(&id).filter(|_| is_left);
        of.is_some_and(|of| of.roster.is_over(&self.roots.proc))
    }

    /// Of a job of single threads, where one of them has ended: whether all have.
    pub fn singles_due(&self, id: JobId) -> Option<(JobId, bool)> {
        let home = self.core.job(id).ok()?.home.as_ref()?;
        let Placement::Threads { threads } = &home.placement else { return None };
        let is_there = |single: &&Single| !singles::has_ended(single, &self.roots.proc);
        let left = self.singles(id).iter().filter(is_there).count();
        let leaving = home.leaving.len();
        (left + leaving < threads.len()).then_some((id, left + leaving == 0))
    }
}
