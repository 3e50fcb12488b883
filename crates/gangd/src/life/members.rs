//! The members of a job, and where they are.

use gang_engine::{bound::ProcessHandle, pins::Pins, roster::Roster};
use gang_schedule::JobId;
use gang_timetable::{Attributes, Members, record::Placement};

use crate::{daemon::Daemon, error::Error, groups::cgroups::Address};

impl Daemon {
    /// Where the processes of a job are; absent until its first one came.
    pub fn address(&self, job: JobId) -> Result<Option<Address>, Error> {
        self.conductor.ask(move |state| state.address(job))?
    }

    /// The groups, processes or threads that a job is; absent until its first member came.
    pub fn placement(&self, job: JobId) -> Result<Option<Placement>, Error> {
        self.conductor.ask(move |state| {
            let home = state.job(job)?.home.as_ref();
            Ok(home.map(|home| home.placement.clone()))
        })?
    }

    /// The processes of a job.
    pub fn processes(&self, job: JobId) -> Result<Vec<u32>, Error> {
        let address = self.address(job)?;
        Ok(address.map_or(Ok(Vec::new()), |at| self.jobs.cgroups.processes(&at))?)
    }

    /// Does to each process of a job what must befall no other process.
    pub fn each_process(&self, job: JobId, act: impl FnMut(&ProcessHandle)) -> Result<(), Error> {
        let address = self.address(job)?;
        Ok(address.map_or(Ok(()), |at| self.jobs.cgroups.each_process(&at, act))?)
    }

    /// The job that a process is in already.
    pub fn job_of(&self, pid: u32) -> Result<Option<JobId>, Error> {
        // The group of a job that has just come has its name before the conductor knows that the
        // job lives there.
        if let Some(job) = self.jobs.cgroups.job_of(pid) {
            return Ok(Some(job));
        }
        let group = self.jobs.cgroups.group_of(pid);
        Ok(self.conductor.ask(move |state| {
            let lives_in = group.and_then(|group| state.lives_in(&group));
            lives_in.or_else(|| state.tree_of(pid))
        })?)
    }

    /// The members of a job that comes, with a file of which CPUs they are given.
    pub fn members(
        &self,
        job: JobId,
        placement: &Placement,
        normal: Attributes,
        affinity: &[u32],
    ) -> gang_linux::Result<(Roster, Members)> {
        let (roster, members) = self.jobs.cgroups.members(placement, normal, affinity)?;
        Ok((self.with_pins(job, roster)?, members))
    }

    /// Keeps on file which CPUs a job is given.
    pub fn with_pins(&self, job: JobId, mut roster: Roster) -> gang_linux::Result<Roster> {
        if self.backend.can_fill() {
            roster.pins = Pins::create(&self.jobs.files.store.pins(job.0))?;
        }
        Ok(roster)
    }
}
