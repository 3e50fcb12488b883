//! Requests of clients for jobs that span hosts.

use std::{collections::BTreeMap, fs};

use gang_cluster::{
    change::{By, Granted, Refused, Wish},
    held,
    record::{Job, OnHostLost, Owner, Payer, Wanted},
};
use gang_conductor::{Part, admission::LAPSES_AFTER_NS};
use gang_linux::clock;
use gang_schedule::{Class, CpuSet, JobId, clock as slices};
use nix::unistd::{Uid, User};

use super::{Cluster, Held, State};
use crate::{
    conduct::state::now,
    daemon::Daemon,
    error::Error,
    life::peer::{Peer, Sees},
};

/// A job to be on several hosts.
#[derive(Clone, Debug)]
pub struct SpanningJob {
    pub name: String,
    pub class: Class,
    pub weight: u32,
    /// CPUs, by host.
    pub cpus: BTreeMap<String, u32>,
    /// CPUs among which it has these, on hosts where its processes are bound.
    pub allowed: BTreeMap<String, CpuSet>,
    /// Processes that come before the first slot, by host.
    pub ranks: BTreeMap<String, u32>,
    /// The launcher's name of the program.
    pub launched_as: Option<String>,
    pub on_host_lost: OnHostLost,
    /// A user of this host.
    pub owner_uid: u32,
}

/// A refusal in the terms of the interface. A job that the client does not see is none to it.
fn refused(operation: &str, refused: Refused, sees: Sees) -> Error {
    let reason = refused.to_string();
    match refused {
        Refused::NoJob(job) => Error::NoSuchJob(job),
        Refused::NotOwner { job, .. } | Refused::NotHere(job) if sees != Sees::All => {
            Error::NoSuchJob(job)
        }
        Refused::NotOwner { .. } | Refused::NotHere(_) => Error::not_permitted(operation, reason),
        _ => Error::Failed { operation: operation.to_owned(), reason },
    }
}

impl Daemon {
    /// The cluster that this host is in.
    fn cluster_for(&self, operation: &str) -> Result<&Cluster, Error> {
        self.cluster.get().ok_or_else(|| Error::Failed {
            operation: operation.to_owned(),
            reason: "this host is in no cluster: gangd.toml has no [cluster]".to_owned(),
        })
    }

    /// Whether orders to a job go to the cluster: it spans hosts.
    pub fn spans_hosts(&self, job: JobId) -> bool {
        job >= JobId::FIRST_SPANNING && self.cluster.get().is_some()
    }

    /// Registers a job of several hosts for a client. It is held as long as what is returned
    /// beside its number, or while a process of it is somewhere. Where none comes in time and it
    /// awaits no ranks, it lapses. Its slots begin at that moment (UTC).
    pub fn register_spanning(
        &self,
        peer: Peer,
        job: SpanningJob,
    ) -> Result<(JobId, u64, Held), Error> {
        const OPERATION: &str = "register a job of several hosts";
        peer.permit_user(OPERATION)?;
        let owner_uid = job.owner_uid;
        let account = self.account_of(owner_uid);
        let cluster = self.cluster_for(OPERATION)?;
        let here = job.cpus.get(&cluster.host).copied();
        // A launcher's program may be registered already, and have its part.
        let comes = here.filter(|_| job.launched_as.is_none()).unwrap_or(0);
        self.conductor.ask(move |state| {
            state.core.admit(owner_uid)?;
            state.core.permit_cpus(account, comes, None)
        })??;
        let nonce = fs::read_to_string(self.roots.proc.join("sys/kernel/random/uuid"));
        let nonce = nonce.map_err(|error| Error::Failed {
            operation: OPERATION.to_owned(),
            reason: format!("there is no random number: {error}"),
        })?;
        let nonce = nonce.trim().to_owned();
        {
            let mut state = cluster.shared.state();
            let awaits_ranks = job.ranks.values().any(|&ranks| ranks > 0);
            let (is_administrator, now_ns) = (peer.is_administrator(), now().monotonic_ns);
            let held = &mut state.held;
            let added = held.add(nonce.clone(), account, awaits_ranks, is_administrator, now_ns);
            added.map_err(|held::TooMany| Error::LimitReached {
                limit: "jobs of several hosts that a user has not started yet",
                maximum: held::JOBS_MAX,
            })?;
        }
        let held = Held { shared: cluster.shared.clone(), nonce: nonce.clone() };
        let (name, class, weight) = (job.name.clone(), job.class, job.weight);
        let allowed = job.allowed.iter().map(|(host, cpus)| (host.clone(), cpus.to_string()));
        let record = Job {
            name: job.name,
            owner: Owner {
                uid: owner_uid,
                name: name_of(owner_uid),
                by_root: owner_uid != peer.uid,
                payer: (account.0 != owner_uid)
                    .then(|| Payer { uid: account.0, name: name_of(account.0) }),
            },
            class: class.to_string(),
            weight,
            cpus: job.cpus,
            allowed: allowed.collect(),
            ranks: job.ranks,
            launched_as: job.launched_as,
            on_host_lost: job.on_host_lost,
            registered_at_ns: clock::utc_ns(),
            nonce,
        };
        let own_nonce = record.nonce.clone();
        let granted = cluster.link.wish(Wish::Register(record));
        let granted = granted.map_err(|why| refused(OPERATION, why, Sees::All))?;
        let Granted::Registered { job, nonce, from_slice } = granted else {
            return Err(refused(OPERATION, Refused::Unanswered, Sees::All));
        };
        cluster.shared.state().held.is_registered(&own_nonce, job, now().monotonic_ns);
        let held = if nonce == own_nonce { held } else { held.of(nonce.clone()) };
        if let Some(cpus) = here {
            // The client is to find it at once.
            let part = Part { job, nonce, name, owner_uid, class, weight, cpus };
            self.conductor.ask(move |state| state.core.enter_part(now(), part))??;
        }
        let from_ns = slices::slice_start(&self.settings().schedule, from_slice);
        Ok((job, from_ns, held))
    }

    /// A process was added to a job, of which the job may have waited.
    pub fn note_rank(&self, job: JobId, pid: u32) {
        let Some(cluster) = self.cluster.get().filter(|_| job >= JobId::FIRST_SPANNING) else {
            return;
        };
        let is_last = {
            let mut state = cluster.shared.state();
            let awaited = |state: &State| {
                let mut wanted = state.wanted.iter().flat_map(|wanted| wanted.iter());
                wanted.find(|of| of.part.job == job).map(|of| of.ranks)
            };
            // Of a part that is complete, or awaits nobody, no process counts any more.
            let has_come = |state: &State| awaited(state).is_some_and(|it| state.has_come(job, it));
            if has_come(&state) {
                return;
            }
            state.ranks.add(job, pid);
            has_come(&state)
        };
        if is_last {
            cluster.link.see();
        }
    }

    /// Wants another state of a job on all of its hosts. Returns false where the cluster has no
    /// such job any more, and a part of it is left here: that one takes orders here.
    pub fn want_spanning(
        &self,
        peer: Peer,
        job: JobId,
        wanted: Wanted,
        operation: &str,
    ) -> Result<bool, Error> {
        let by = self.by(peer, operation)?;
        let cluster = self.cluster_for(operation)?;
        let sees = self.seen_by(peer)?;
        match cluster.link.wish(Wish::Want { job, wanted, by }) {
            Ok(_) => Ok(true),
            Err(Refused::NoJob(_)) if self.has_part(job)? => Ok(false),
            Err(why) => Err(refused(operation, why, sees)),
        }
    }

    /// Whether this host has a part of a job.
    fn has_part(&self, job: JobId) -> Result<bool, Error> {
        Ok(self
            .conductor
            .ask(move |state| state.core.jobs().get(&job).is_some_and(|job| job.nonce.is_some()))?)
    }

    /// A process could not be added to a job. Of one that lapsed, the reason says so to its owner.
    pub fn lapsed(&self, peer: Peer, job: JobId, error: Error) -> Error {
        let account = (!peer.is_administrator()).then(|| self.account_of(peer.uid));
        let has_lapsed = || self.cluster.get().is_some_and(|it| it.has_lapsed(job, account));
        match error {
            Error::NoSuchJob(_) if has_lapsed() => Error::Failed {
                operation: format!("add a process to job {job}"),
                reason: format!(
                    "no process of it came within {} s of its registration, so that it is over: \
                     register it again",
                    LAPSES_AFTER_NS / 1_000_000_000
                ),
            },
            error => error,
        }
    }

    /// Wants another class or weight of a job on all of its hosts.
    pub fn set_spanning(
        &self,
        peer: Peer,
        job: JobId,
        class: Option<Class>,
        weight: Option<u32>,
    ) -> Result<(), Error> {
        const OPERATION: &str = "change a job";
        let by = self.by(peer, OPERATION)?;
        if let Some(weight) = weight {
            self.permit_weight(peer, weight, OPERATION)?;
        }
        if class == Some(Class::Express) && !peer.is_administrator() {
            let reason = "only administrators put a job into express";
            return Err(Error::not_permitted(OPERATION, reason));
        }
        let class = class.map(|class| class.to_string());
        let cluster = self.cluster_for(OPERATION)?;
        let sees = self.seen_by(peer)?;
        let granted = cluster.link.wish(Wish::Set { job, class, weight, by });
        granted.map(drop).map_err(|why| refused(OPERATION, why, sees))
    }

    /// The client, as hosts of the cluster know it. Administrators act as root.
    fn by(&self, peer: Peer, operation: &str) -> Result<By, Error> {
        peer.permit_user(operation)?;
        let uid = if peer.is_administrator() { 0 } else { peer.uid };
        Ok(By { uid, name: name_of(peer.uid) })
    }
}

/// The name by which hosts know a user. One that has none here gets one that no login can have.
pub fn name_of(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("#{uid}"), |user| user.name)
}
