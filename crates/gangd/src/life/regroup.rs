//! Jobs that come back to the groups of gangs.
//!
//! Problem: while the daemon is stuck, its jobs give way to nobody. The guardian takes them out of
//! the group that is idle as a whole, or has that group weigh what others do. A daemon that goes on
//! has to undo that, process by process, which takes the kernel milliseconds each.
//!
//! Approach: a thread of its own moves the processes, once the conductor goes on; gangs have their
//! slots meanwhile. It repeats this until it finds no process outside, because one that is not back
//! yet may start others.

use gang_engine::bound::ProcessHandle;
use gang_schedule::JobId;

use crate::{
    conduct::client_priority::ThreadPriority, daemon::Daemon, error::Error,
    groups::cgroups::Address,
};

/// Rounds over the processes of a job.
const ROUNDS_MAX: usize = 100;

impl Daemon {
    /// Has all gangs give way again to the rest of the machine, out of their slots.
    pub fn return_jobs_to_shared(&self) {
        // While gangs spin on all CPUs, an ordinary thread would move one process in each gap.
        let mut priority = ThreadPriority::of(&self.client_priority, None);
        if let Err(error) = self.jobs.cgroups.cpu.give_way() {
            let source = &error.source;
            tracing::warn!(%error, %source, "gangs do not give way to the rest of the machine");
        }
        let jobs =
            self.conductor.ask(|state| state.core.jobs().keys().copied().collect::<Vec<_>>());
        // Without a conductor there are no jobs either.
        for job in jobs.unwrap_or_default() {
            match self.return_job_to_shared(job, &mut priority) {
                Ok(0) | Err(Error::NoSuchJob(_)) => {}
                Ok(moved) => {
                    tracing::info!(%job, moved, "processes are back in the group of gangs")
                }
                Err(error) => tracing::warn!(%job, ?error, "a job may not give way to others"),
            }
        }
    }

    /// Returns how many processes were away.
    fn return_job_to_shared(
        &self,
        job: JobId,
        priority: &mut ThreadPriority,
    ) -> Result<usize, Error> {
        // Where it lives stays as it is meanwhile.
        let _changing = self.jobs.locks.home(job);
        let Some(address) = self.address(job)? else { return Ok(0) };
        let mut moved = 0;
        for _ in 0..ROUNDS_MAX {
            let before = moved;
            let mut failed = None;
            self.jobs.cgroups.each_process(&address, |process| {
                match self.return_process_to_shared(&address, process) {
                    Ok(was_away) => moved += usize::from(was_away),
                    Err(error) if error.is_gone() => {}
                    Err(error) => failed = Some(error),
                }
                priority.renew();
            })?;
            match failed {
                Some(error) => return Err(error.into()),
                None if moved == before => break,
                None => {}
            }
        }
        Ok(moved)
    }

    /// A thread that takes a process out of a job meanwhile holds the same lock: no process is
    /// moved that has left.
    fn return_process_to_shared(
        &self,
        address: &Address,
        process: &ProcessHandle,
    ) -> gang_linux::Result<bool> {
        let _filing = self.jobs.files.lock();
        self.jobs.cgroups.return_to_shared(&address.placement, process)
    }
}
