//! Jobs that come.
//!
//! A job that needs memory or disk is held against what the machine has left
//! ([`super::admission`]); then it gets its number.

use std::{os::fd::BorrowedFd, time::Duration};

use gang_conductor::{
    Candidate, Job,
    admission::{Resources, Stock},
};
use gang_linux::{memory, process};
use gang_schedule::JobId;

use super::{admission::stock_of_machine, peer::Peer};
use crate::{daemon::Daemon, error::Error};

/// The longest that a client waits for the clean-up of ended jobs before its own is registered;
/// less than it waits for an answer.
const CLEARED_WITHIN: Duration = Duration::from_secs(5);

impl Daemon {
    /// Registers a new job without processes. Where memory or disk that the job needs is not there,
    /// it is refused, or waits as long as the client is there. `held` is what its processes have
    /// already.
    pub fn register(
        &self,
        wanted: &Candidate,
        held: Resources,
        waiting: Option<BorrowedFd<'_>>,
    ) -> Result<JobId, Error> {
        if !self.admission.cleanup.has_room_within(CLEARED_WITHIN) {
            return Err(Error::Failed {
                operation: "register a job".into(),
                reason: "too many jobs that have ended are not cleared away yet; try again".into(),
            });
        }
        let enter = || {
            let wanted = wanted.clone();
            let job = self.conductor.ask(move |state| state.register(wanted))??;
            self.admission.ids.take(job);
            Ok(job)
        };
        if wanted.resources.is_none() {
            return enter();
        }
        stock_of_machine(&self.roots.proc, &self.settings().scratch_dir)?
            .can_ever(wanted.resources)?;
        let needs = wanted.resources.less(held);
        self.admission.queue.pass(needs, waiting, |ahead| {
            self.stock_after(None, ahead)?.admit(needs)?;
            enter()
        })
    }

    /// The memory and disk of the machine, with the promises to jobs.
    pub fn stock(&self) -> Result<Stock, Error> {
        self.stock_after(None, &[])
    }

    /// The same without one of the jobs, and with what jobs that wait are going to get.
    pub fn stock_after(&self, but: Option<JobId>, ahead: &[Resources]) -> Result<Stock, Error> {
        let mut stock = stock_of_machine(&self.roots.proc, &self.settings().scratch_dir)?;
        let promises = self.conductor.ask(move |state| {
            let others = state.core.jobs.values().filter(|job| Some(job.id) != but);
            let promised = others.filter(|job| !job.resources.is_none());
            let lives = |job: &Job| job.home.as_ref().map(|home| home.placement.clone());
            promised.map(|job| (job.resources, lives(job))).collect::<Vec<_>>()
        })?;
        for (resources, placement) in promises {
            let mem_bytes = placement.map_or(0, |at| self.cgroups.memory_used(&at));
            stock.promise(resources, Resources { mem_bytes, disk_bytes: 0 });
        }
        ahead.iter().for_each(|&other| stock.promise(other, Resources::default()));
        Ok(stock)
    }

    /// The memory of a process and its descendants, as far as they are the peer's.
    pub fn held_by_tree(&self, peer: Peer, pid: u32) -> Result<Resources, Error> {
        self.claim(peer, peer.uid, pid)?;
        let mut pids = process::descendants(&self.roots.proc, pid).unwrap_or_default();
        pids.retain(|&pid| self.permit_owner(peer, peer.uid, pid, String::new).is_ok());
        let mem_bytes = memory::of_processes(&self.roots.proc, &pids);
        Ok(Resources { mem_bytes, disk_bytes: 0 })
    }

    /// The memory of the processes of a cgroup, which are the peer's.
    pub fn held_by_group(&self, peer: Peer, path: &str) -> Result<Resources, Error> {
        let pids = self.claim_group(peer, peer.uid, path)?.processes;
        let mem_bytes = memory::of_processes(&self.roots.proc, &pids);
        Ok(Resources { mem_bytes, disk_bytes: 0 })
    }
}
