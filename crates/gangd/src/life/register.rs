//! Jobs that come.
//!
//! A job that needs memory or disk is held against what the machine has left
//! ([`super::admission`]); then it gets its number.

use std::{os::fd::BorrowedFd, time::Duration};

use gang_conductor::{
    Candidate,
    admission::{Claim, Resources, Stock},
};
use gang_linux::{clock, memory, process};
use gang_schedule::{JobId, UserId};
use gang_timetable::record::Placement;

use super::{
    admission::{Ahead, stock_of_machine},
    peer::Peer,
};
use crate::{conduct::state::now, daemon::Daemon, error::Error};

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
        let user = self.account_of(wanted.owner_uid);
        if !self.jobs.admission.cleanup.has_room_within(user, CLEARED_WITHIN) {
            return Err(Error::Failed {
                operation: "register a job".into(),
                reason:
                    "too many of the user's jobs that have ended are not cleared away yet; try \
                         again"
                        .into(),
            });
        }
        let enter = || {
            let wanted = wanted.clone();
            let job = self.conductor.ask(move |state| state.register(wanted))??;
            self.jobs.admission.ids.take(job);
            Ok(job)
        };
        if wanted.resources.is_none() {
            return enter();
        }
        self.machine()?.can_ever(wanted.resources)?;
        let needs = wanted.resources.less(held);
        let accounts = &self.settings().accounts;
        self.jobs.admission.queue.pass(accounts, Claim { user, unused: needs }, waiting, |ahead| {
            self.stock_for(user, None, ahead)?.admit(needs)?;
            enter()
        })
    }

    /// On whose account a user's jobs are.
    pub fn account_of(&self, uid: u32) -> UserId {
        self.settings().accounts.of(uid)
    }

    /// The memory and disk of the machine, with the promises to jobs.
    pub fn stock(&self) -> Result<Stock, Error> {
        let mut stock = self.machine()?;
        self.promises()?.iter().for_each(|(_, claim)| stock.promise(claim.unused));
        Ok(stock)
    }

    /// The same as a user is held against it; without the promise to one of the jobs, and with what
    /// jobs that wait are going to get.
    pub fn stock_for(
        &self,
        user: UserId,
        but: Option<JobId>,
        ahead: Ahead<'_>,
    ) -> Result<Stock, Error> {
        let mut stock = self.machine()?;
        let (promises, now_ns) = (self.promises()?, clock::monotonic_ns());
        let of_jobs = promises.iter().map(|(_, claim)| *claim);
        let all: Vec<Claim> = of_jobs.chain(ahead.waiting.iter().copied()).collect();
        ahead.overclaims.note(&self.settings().accounts, now_ns, &stock, &all);
        let of_others = promises.iter().filter(|(job, _)| Some(*job) != but);
        let of_others = of_others.map(|(_, claim)| *claim);
        let claims: Vec<Claim> = of_others.chain(ahead.claims().iter().copied()).collect();
        stock.promise(ahead.overclaims.kept_from(user, now_ns, &stock, &claims));
        Ok(stock)
    }

    fn machine(&self) -> Result<Stock, Error> {
        stock_of_machine(&self.roots.proc, &self.settings().scratch_dir)
    }

    /// The promises to jobs, as far as they are not used yet.
    fn promises(&self) -> Result<Vec<(JobId, Claim)>, Error> {
        let promises = self.conductor.ask(move |state| {
            let promises = state.core.promises(now());
            promises.map(|(job, claim, at)| (job, claim, at.cloned())).collect::<Vec<_>>()
        })?;
        let unused = |(job, claim, at): (JobId, Claim, Option<Placement>)| {
            let mem_bytes = at.map_or(0, |at| self.jobs.cgroups.memory_used(&at));
            let unused = claim.unused.less(Resources { mem_bytes, disk_bytes: 0 });
            (job, Claim { unused, ..claim })
        };
        Ok(promises.into_iter().map(unused).collect())
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
