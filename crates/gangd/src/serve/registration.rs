//! Requests for new jobs.

use std::{collections::BTreeMap, os::fd::AsFd, sync::PoisonError};

use gang_cluster::record::{self, OnHostLost};
use gang_conductor::{Candidate, admission::Resources};
use gang_protocol::{limits, name::check_name, v1};
use gang_schedule::{Allowed, Class, CpuSet, JobId, Spec, UserId};

use super::{
    parameters::{bytes, number, process_number},
    session::Session,
};
use crate::{cluster::SpanningJob, error::Error, life::prover::Prover};

impl Session {
    /// The class and weight of a new job of this name, where the client may have them.
    fn terms(&self, name: &str, class: v1::Class, weight: i64) -> Result<(Class, u32), Error> {
        check_name(name).map_err(|e| Error::invalid("name", name, e.to_string()))?;
        let class = Class::from(class);
        if class == Class::Express && !self.peer.is_administrator() {
            let reason = "only administrators put a job into express; interactive, batch and standby are open";
            return Err(Error::not_permitted("register a job of class express", reason));
        }
        let weight = number("weight", weight, limits::WEIGHT_MAX)?;
        self.daemon.permit_weight(self.peer, weight, "register a job")?;
        Ok((class, weight))
    }

    fn spec(&self, wanted: &v1::Register_Args) -> Result<Spec, Error> {
        let (class, weight) = self.terms(&wanted.name, wanted.class.clone(), wanted.weight)?;
        Ok(Spec {
            // Its owner's, as it registers.
            user: UserId::default(),
            class,
            policy: wanted.policy.clone().into(),
            weight,
            cpus: number("cpus", wanted.cpus, limits::CPUS_MAX)?,
            min_cpus: number("min_cpus", wanted.min_cpus, limits::CPUS_MAX)?,
            allowed: Allowed::anywhere(),
            quota: None,
            overhead: 0,
            spanning: false,
        })
    }

    pub fn register(&self, wanted: v1::Register_Args) -> Result<JobId, Error> {
        self.register_with(wanted, Resources::default())
    }

    /// A new job of a user who has some of what it needs already.
    fn register_with(&self, wanted: v1::Register_Args, held: Resources) -> Result<JobId, Error> {
        let spec = self.spec(&wanted)?;
        let resources = Resources {
            mem_bytes: bytes("mem_bytes", wanted.mem_bytes)?.unwrap_or(0),
            disk_bytes: bytes("disk_bytes", wanted.disk_bytes)?.unwrap_or(0),
        };
        let candidate = Candidate {
            name: wanted.name,
            owner_uid: self.peer.uid,
            spec,
            resources,
            signals: wanted.signals.unwrap_or(false),
            auto: wanted.policy == v1::Policy::auto,
        };
        if candidate.auto {
            // The client is to know at once whether jobs can be proved.
            Prover::ensure(&self.daemon);
        }
        let waiting = wanted.wait.unwrap_or(false).then(|| self.stream.as_fd());
        let job = self.daemon.register(&candidate, held, waiting)?;
        self.started().insert(job);
        if candidate.auto {
            // The job may have waited long for what it needs.
            Prover::ensure(&self.daemon);
        }
        Ok(job)
    }

    pub fn register_spanning(
        &self,
        wanted: v1::RegisterSpanning_Args,
    ) -> Result<(JobId, u64), Error> {
        let v1::RegisterSpanning_Args {
            name,
            cpus,
            class,
            weight,
            on_host_lost,
            owner_uid,
            launched_as,
        } = wanted;
        let (class, weight) = self.terms(&name, class, weight)?;
        let (mut by_host, mut awaited) = (BTreeMap::new(), BTreeMap::new());
        let mut bound: BTreeMap<String, CpuSet> = BTreeMap::new();
        for v1::HostCpus { host, cpus, ranks, allowed } in cpus {
            for cpu in allowed.into_iter().flatten() {
                let number = u32::try_from(cpu).ok().filter(|&cpu| cpu < record::NUMBER_MAX);
                let cpu = number.ok_or_else(|| {
                    let most = record::NUMBER_MAX - 1;
                    Error::invalid("allowed", cpu, format!("CPUs from 0 to {most}"))
                })?;
                bound.entry(host.clone()).or_default().insert(cpu);
            }
            let count = number("cpus", cpus, limits::CPUS_MAX)?;
            if let Some(ranks) = ranks {
                awaited.insert(host.clone(), number("ranks", ranks, limits::RANKS_MAX)?);
            }
            if by_host.insert(host.clone(), count).is_some() {
                return Err(Error::invalid("cpus", host, "each host once"));
            }
        }
        if by_host.is_empty() {
            return Err(Error::invalid("cpus", "", "at least one host"));
        }
        let on_host_lost = match on_host_lost {
            v1::OnHostLost::mark => OnHostLost::Mark,
            v1::OnHostLost::suspend => OnHostLost::Suspend,
            v1::OnHostLost::release => OnHostLost::Release,
        };
        let of_user = |uid: i64| {
            u32::try_from(uid).map_err(|_| Error::invalid("owner_uid", uid, "the id of a user"))
        };
        let owner_uid = owner_uid.map_or(Ok(self.peer.uid), of_user)?;
        if owner_uid != self.peer.uid && !self.peer.is_administrator() {
            let reason = "only administrators do so for another user";
            return Err(Error::not_permitted("register a job of several hosts", reason));
        }
        if let Some(name) = &launched_as {
            check_name(name)
                .map_err(|error| Error::invalid("launched_as", name, error.to_string()))?;
        }
        let (cpus, allowed, ranks) = (by_host, bound, awaited);
        let job = SpanningJob {
            name,
            class,
            weight,
            cpus,
            allowed,
            ranks,
            launched_as,
            on_host_lost,
            owner_uid,
        };
        let (job, from_ns, held) = self.daemon.register_spanning(self.peer, job)?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(held);
        Ok((job, from_ns))
    }

    /// Makes a job of what already runs. It does not wait for memory or disk.
    pub fn adopt(&self, wanted: v1::Adopt_Args) -> Result<(JobId, usize), Error> {
        let v1::Adopt_Args { name, cpus, min_cpus, class, policy, weight, .. } = wanted;
        let v1::Adopt_Args { pid, cgroup, mem_bytes, disk_bytes, signals, .. } = wanted;
        let wait = None;
        let wanted = v1::Register_Args {
            name,
            cpus,
            min_cpus,
            class,
            policy,
            weight,
            mem_bytes,
            disk_bytes,
            wait,
            signals,
        };
        if pid.is_some() {
            self.peer.permit_numbers("adopt processes")?;
        }
        let held = match (pid, &cgroup) {
            (Some(pid), None) => self.daemon.held_by_tree(self.peer, process_number(pid)?)?,
            (None, Some(cgroup)) => self.daemon.held_by_group(self.peer, cgroup)?,
            _ => return Err(Error::invalid("pid", "", "exactly one of pid and cgroup")),
        };
        let job = self.register_with(wanted, held)?;
        let adopted = match (pid, cgroup) {
            (Some(pid), _) => {
                process_number(pid).and_then(|pid| self.daemon.adopt_tree(self.peer, job, pid))
            }
            (_, Some(cgroup)) => self.daemon.adopt_group(self.peer, job, &cgroup),
            (None, None) => Ok(0),
        };
        self.started().remove(&job);
        self.daemon.measuring.looks.look_around();
        match adopted {
            Ok(processes) => Ok((job, processes)),
            Err(error) => {
                self.daemon.end(job);
                Err(error)
            }
        }
    }
}
