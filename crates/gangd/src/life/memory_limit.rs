//! The memory that a job uses, and its limit, with the record on file.

use gang_engine::release;
use gang_schedule::JobId;

use crate::{daemon::Daemon, error::Error};

impl Daemon {
    /// Memory that the processes of a job use.
    pub fn memory_used(&self, job: JobId) -> Result<u64, Error> {
        Ok(self.placement(job)?.map_or(0, |at| self.jobs.cgroups.memory_used(&at)))
    }

    /// Has the kernel keep a job to so much memory, where it can; 0 bytes lift the limit. Refused
    /// where the job has more already, and the kernel cannot take it back.
    pub fn confine(&self, job: JobId, mem_bytes: u64) -> Result<(), Error> {
        let Some(placement) = self.placement(job)? else { return Ok(()) };
        if let Some(at) = placement.confinement() {
            self.jobs.cgroups.limit(at, mem_bytes)?;
            let kept = Some(at.clone());
            return self
                .change_on_file(move |state| Ok(state.core.confine(job, kept, mem_bytes > 0)?));
        }
        if mem_bytes == 0 {
            return Ok(());
        }
        let Some(&first) = self.processes(job)?.first() else { return Ok(()) };
        let at = self.jobs.cgroups.confinement(job, &placement, first, mem_bytes)?;
        let Some(at) = at else { return Ok(()) };
        let kept = Some(at.clone());
        self.change_on_file(move |state| Ok(state.core.confine(job, kept, false)?))?;
        let limited = self
            .jobs
            .cgroups
            .limit(&at, mem_bytes)
            .and_then(|()| self.jobs.cgroups.gather(&placement, &at));
        match limited {
            Ok(()) => {
                self.change_on_file(move |state| Ok(state.core.confine(job, Some(at), true)?))
            }
            Err(error) => {
                let source = &error.source;
                tracing::warn!(%job, %error, %source, "the memory of a job is not limited");
                release::unconfine(&at);
                self.change_on_file(move |state| Ok(state.core.confine(job, None, false)?))
            }
        }
    }
}
