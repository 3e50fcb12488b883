//! Processes that leave a job.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gang_engine::{
    bound::{Bound, Kernel, Linux, ProcessHandle},
    thread,
};
use gang_linux::process;
use gang_schedule::JobId;
use gang_timetable::{before_gangd, record::Placement};

use super::{peer::Peer, waiting::wait_for};
use crate::{conduct::leaving::Leaver, daemon::Daemon, error::Error};

/// A process has left when for so long no new thread of it had what its parent had in the job.
const STAYS_FOR: Duration = Duration::from_millis(25);

impl Daemon {
    /// Takes a process out of a job: when this returns, it is scheduled as it was before.
    ///
    /// The process is released while it is still in the job's groups. So a process that it starts
    /// in between is either of the job or without a trace of it.
    pub fn remove_process(&self, peer: Peer, job: JobId, pid: u32) -> Result<(), Error> {
        self.permit(peer, job, "remove a process")?;
        let process = ProcessHandle::open(pid).map_err(|error| Error::of_process(pid, error))?;
        // The process is brought into no job until it has left this one.
        let _lock = self.jobs.locks.process(pid);
        if !self.processes(job)?.contains(&pid) {
            return Err(Error::NoSuchProcess(pid));
        }
        let placement = self.placement(job)?;
        if let Some(Placement::Cgroup { adopted: true, group, .. }) = &placement {
            let reason = format!(
                "job {job} is the cgroup {}, which others keep; move the process to another one",
                group.display()
            );
            return Err(Error::not_permitted(format!("take process {pid} out of its job"), reason));
        }
        self.take_out(job, &process)
    }

    /// Has a process leave a job and its groups. A disk that fails keeps no process in its job.
    pub fn take_out(&self, job: JobId, process: &Arc<ProcessHandle>) -> Result<(), Error> {
        let (pid, leaving) = (process.pid, process.clone());
        let placement = self.placement(job)?;
        let started = process::stat(&self.roots.proc, pid)?.start_ticks;
        let leaver = {
            let _filing = self.jobs.files.lock();
            let leaver = self.conductor.ask(move |state| state.detach(job, leaving, started))??;
            self.jobs.files.put_if_possible(leaver.record.clone());
            leaver
        };
        self.release_leaver(process, &leaver);
        let _filing = self.jobs.files.lock();
        let moved = placement
            .map_or(Ok(()), |at| self.jobs.cgroups.move_out(&at, leaver.joined.as_ref(), process));
        let is_out = moved.is_ok();
        match self.conductor.ask(move |state| state.has_left(job, pid, is_out))? {
            Ok(record) => self.jobs.files.put(record)?,
            // The process was the last one.
            Err(_) if is_out => {}
            Err(error) => return Err(error),
        }
        Ok(moved?)
    }

    /// Waits until no switcher follows a timetable that has the leaver, and gives its threads back
    /// what they had.
    pub fn wait_for_leaver(&self, process: &ProcessHandle, leaver: &Leaver) {
        wait_for(|| {
            let has_ended = !process.is_alive();
            (has_ended || self.conductor.is_in_force(leaver.gone_from)).then_some(())
        });
        // One switcher has done so already, but another may have been late with an earlier action.
        // The numbers of a process that has ended may be another's.
        if process.is_alive() {
            perform(&leaver.actions);
        }
    }

    /// Waits as [`Daemon::wait_for_leaver`] does. Threads that the job did not know yet get what
    /// they would have had.
    pub fn release_leaver(&self, process: &ProcessHandle, leaver: &Leaver) {
        self.wait_for_leaver(process, leaver);
        let is_as_before = |tid: u32| {
            let Ok(now) = thread::attributes(tid) else { return true };
            let Some(normal) = leaver.normal else { return true };
            let before = before_gangd(now, normal, true);
            now == before || thread::set_attributes(tid, &before).is_err()
        };
        let mut since: Option<Instant> = None;
        wait_for(|| {
            if !process.is_alive() {
                return Some(());
            }
            let threads = process::threads(&self.roots.proc, process.pid);
            // All of them are looked at, also after one that is not yet as before.
            let not_yet = threads.map(|threads| {
                let unknown =
                    threads.into_iter().filter(|tid| leaver.known.binary_search(tid).is_err());
                unknown.filter(|&tid| !is_as_before(tid)).count()
            });
            if !matches!(not_yet, Ok(0)) {
                since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed() >= STAYS_FOR {
                return Some(());
            }
            None
        });
    }
}

/// Makes calls of switchers once more. A thread or process that has ended misses nothing.
pub fn perform(actions: &[Bound]) {
    for action in actions {
        let _ = Linux.perform(action);
    }
}
