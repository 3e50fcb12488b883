//! Requests that change nothing: each client sees what it may.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt,
    path::Path,
};

use gang_linux::{clock, namespaces, process};
use gang_protocol::v1;

use super::{
    description::{self, Described},
    parameters::{job_id, number},
    session::Session,
};
use crate::{
    check,
    conduct::state::now,
    error::Error,
    history::Query,
    life::{
        peer::{Peer, Sees},
        single_threads,
    },
};

impl Session {
    fn sees(&self) -> Result<Sees, Error> {
        self.daemon.seen_by(self.peer)
    }

    pub fn list(&self) -> Result<Vec<v1::Job>, Error> {
        let (jobs, _) = description::all_jobs(&self.daemon)?;
        let sees = self.sees()?;
        let is_seen = |job: &Described| sees.job(job.id(), job.owner_uid());
        let complete = |job: Described| job.complete(&self.daemon).map(|(job, _)| job);
        jobs.into_iter().filter(is_seen).map(complete).collect()
    }

    pub fn show(&self, job: i64) -> Result<(v1::Job, Option<Vec<v1::Process>>), Error> {
        let id = job_id(job)?;
        let described = self.daemon.conductor.ask(move |state| {
            let shares = state.core.schedule().shares();
            state.job(id).map(|job| Described::of(state, job, &shares, now()))
        })??;
        let (sees, peer) = (self.sees()?, self.peer_on(id));
        if !sees.job(id, described.owner_uid()) && !self.started().contains(&id) {
            return Err(Error::NoSuchJob(id));
        }
        let (mut lost_to, per_cpu) =
            (described.lost_to(&self.daemon), described.per_cpu(&self.daemon));
        for culprit in lost_to.iter_mut().flatten() {
            show_culprit(&self.daemon.roots.proc, self.peer, sees, culprit);
        }
        let singles = described.singles().to_vec();
        let (mut details, pids) = described.complete(&self.daemon)?;
        if !self.daemon.may_act_on(peer, id, details.owner_uid as u32)? {
            return Ok((details, None));
        }
        if let Some(measured) = &mut details.measured {
            (measured.lost_to, measured.per_cpu) = (lost_to, per_cpu);
        }
        let proc_root = &self.daemon.roots.proc;
        let owner_uid = details.owner_uid as u32;
        let power = self.daemon.power(peer, owner_uid);
        let foreign: BTreeMap<u32, u32> =
            pids.iter().filter_map(|&pid| Some((pid, power.foreign_owner(pid)?))).collect();
        let of_owner = pids.iter().filter(|pid| !foreign.contains_key(pid)).copied();
        let of_singles = singles.iter().map(|single| single.pid);
        let asked: Vec<u32> = of_owner.chain(of_singles).collect();
        let account = self.daemon.account_of(owner_uid);
        let mut commands = self.daemon.command_lines.read(account, proc_root, &asked);
        let processes = pids.into_iter().filter_map(|pid| {
            let command = match foreign.get(&pid) {
                None => commands.remove(&pid)?,
                Some(uid) => format!("[of user {uid}: not scheduled, nor signalled]"),
            };
            let threads = process::threads(proc_root, pid).ok()?.len() as i64;
            Some(v1::Process { pid: pid.into(), threads, command, tids: None })
        });
        let mut processes: Vec<v1::Process> = processes.collect();
        processes.extend(single_threads::processes(proc_root, &singles, commands));
        Ok((details, Some(processes)))
    }

    /// The names of this host and of its cluster.
    pub fn own_host(&self) -> Option<(String, String)> {
        let cluster = self.daemon.cluster.get()?;
        Some((cluster.host.clone(), cluster.name.clone()))
    }

    pub fn cluster(&self) -> Result<Option<v1::Cluster>, Error> {
        Ok(description::cluster(&self.daemon, self.sees()?))
    }

    pub fn status(&self) -> Result<v1::Status, Error> {
        description::status(&self.daemon, self.sees()?)
    }

    pub fn frame(&self, since_ns: Option<i64>) -> Result<Vec<v1::Row>, Error> {
        // Of a moment before 1970 nothing is known.
        let since_ns = since_ns.map(|ns| u64::try_from(ns).unwrap_or(0));
        let sees = self.sees()?;
        let (plans, seen) = self.daemon.conductor.ask(move |state| {
            let seen = state.core.jobs().values().filter(|job| sees.job(job.id, job.owner_uid));
            let seen: BTreeSet<i64> = seen.map(|job| job.id.0 as i64).collect();
            (description::frame(state, clock::utc_ns(), since_ns), seen)
        })?;
        let mut rows = description::rows(&plans);
        // A client that sees all sees the slots of jobs that are over, too.
        if sees != Sees::All {
            rows.iter_mut().for_each(|row| row.slots.retain(|slot| seen.contains(&slot.job)));
        }
        Ok(rows)
    }

    pub fn switches(&self, since_ns: i64) -> (Vec<v1::Switcher>, Vec<v1::Switch>) {
        // Of a moment before 1970 nothing is known.
        description::switches(&self.daemon, u64::try_from(since_ns).unwrap_or(0))
    }

    pub fn history(
        &self,
        limit: Option<i64>,
        owner_uid: Option<i64>,
        since_ns: Option<i64>,
    ) -> Result<Vec<v1::EndedJob>, Error> {
        let limit = number("limit", limit.unwrap_or(1000), 10_000)?;
        let uid = |uid| {
            u32::try_from(uid).map_err(|_| Error::invalid("owner_uid", uid, "the id of a user"))
        };
        let mut owner_uid = owner_uid.map(uid).transpose()?;
        match self.sees()? {
            Sees::All => {}
            Sees::Of(own) if owner_uid.is_none_or(|asked| asked == own) => owner_uid = Some(own),
            Sees::Of(_) | Sees::Own(_) => return Ok(Vec::new()),
        }
        let since_ns = since_ns.unwrap_or(0).max(0) as u64;
        let operation = || "read the history of jobs".to_owned();
        let history = self.daemon.ended.history().ok_or_else(|| Error::Failed {
            operation: operation(),
            reason: "this daemon keeps none, or could not open it (its log says so); set \
                     [history] path, or use the machine's"
                .into(),
        })?;
        let ended = history.read(Query { limit, owner_uid, since_ns });
        let ended = ended
            .map_err(|error| Error::Failed { operation: operation(), reason: error.to_string() })?;
        Ok(ended.into_iter().map(description::ended).collect())
    }

    /// The checker speaks of all jobs.
    pub fn check(&self) -> Result<(usize, Vec<v1::Violation>), Error> {
        if self.sees()? != Sees::All {
            let reason =
                "its findings are of all jobs, and only administrators see these (private = true)";
            return Err(Error::not_permitted("check the daemon", reason));
        }
        check::all(&self.daemon)
    }
}

/// Leaves of a process for which a job waited no name and no number that the client could not see
/// himself: hidepid= may keep those of others from him (proc(5)). A number is the kernel's, and
/// left out where client or daemon knows processes by others.
fn show_culprit(proc_root: &Path, peer: Peer, sees: Sees, culprit: &mut v1::Culprit) {
    let is_daemons = namespaces::is_in_first_pid_namespace(proc_root);
    let is_of = |uid: u32| {
        let process = std::fs::metadata(proc_root.join(culprit.pid.to_string()));
        is_daemons && process.is_ok_and(|process| process.uid() == uid)
    };
    let is_seen = culprit.pid == 0
        || culprit.sched_policy == "kernel"
        || match sees {
            Sees::All => true,
            Sees::Of(uid) => is_of(uid),
            Sees::Own(_) => false,
        };
    if !is_seen {
        culprit.name = "another user's".to_owned();
    }
    if !is_seen || !is_daemons || !peer.shares_numbers() {
        culprit.pid = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use gang_linux::Roots;
    use gang_protocol::peer::Credentials;

    use super::*;

    #[test]
    fn culprits_number_is_for_clients_that_share_numbers() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { proc: root.path().into(), sys: root.path().join("sys") };
        let uid = rustix::process::geteuid().as_raw();
        std::fs::create_dir_all(roots.proc.join("7")).unwrap();
        let shown = |numbers: &str, sees| {
            std::fs::write(roots.proc.join("7/status"), format!("NSpid:\t{numbers}\n")).unwrap();
            let credentials = Credentials { pid: NonZeroU32::new(7), uid };
            let peer = Peer::of(&credentials, Ok(None), None, &roots);
            let sched_policy = "fifo".to_owned();
            let mut culprit = v1::Culprit { name: "lu".into(), pid: 7, sched_policy, ns: 1 };
            show_culprit(&roots.proc, peer, sees, &mut culprit);
            (culprit.name, culprit.pid)
        };
        let (lu, hidden) = ("lu".to_owned(), "another user's".to_owned());
        assert_eq!(shown("7", Sees::All), (lu.clone(), 7));
        assert_eq!(shown("7", Sees::Of(uid)), (lu.clone(), 7));
        assert_eq!(shown("7", Sees::Of(uid + 1)), (hidden.clone(), 0));
        assert_eq!(shown("7", Sees::Own(None)), (hidden.clone(), 0));
        assert_eq!(shown("7\t1", Sees::All), (lu.clone(), 0), "of an inner PID namespace");
        // The daemon itself is in one: its process 7 is another one.
        std::fs::create_dir_all(roots.proc.join("self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[7]", roots.proc.join("self/ns/pid")).unwrap();
        assert_eq!(shown("7", Sees::All), (lu, 0));
        assert_eq!(shown("7", Sees::Of(uid)), (hidden, 0));
    }
}
