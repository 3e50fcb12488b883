//! The cluster as one host has read it, for people.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::matrix::{HostId, Rows};
use gang_schedule::{CpuSet, JobId};

use super::{Link, Member, Now};
use crate::change::Refused;
use crate::record::{Alive, ClusterSettings, Entries, Fault, Host, Job, State};
use crate::store::Revision;

/// People see hosts as they were so long ago at most.
const NEW_NS: u64 = 500_000_000;

/// The cluster as one host has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Whether the registry can be reached.
    pub is_up: bool,
    pub revision: Revision,
    /// Absent where the registry has no such cluster, or was not read yet.
    pub settings: Option<ClusterSettings>,
    pub state: Option<State>,
    /// The host that adjusts, if any.
    pub adjuster: Option<String>,
    /// Why this host follows no rows, or is not in the cluster, if so.
    pub unwilling: Option<String>,
    /// This host is in the cluster.
    pub is_in: bool,
    /// By name.
    pub hosts: BTreeMap<String, HostSeen>,
    /// By number.
    pub jobs: BTreeMap<JobId, JobSeen>,
    /// Keys whose values are not used, and why.
    pub faults: Vec<(String, Fault)>,
}

/// A host of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSeen {
    pub record: Host,
    /// Absent while it is away.
    pub alive: Option<Alive>,
}

/// A job of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSeen {
    /// The host at which it was registered, which has its record.
    pub registrar: String,
    pub record: Job,
    pub entries: Entries,
    /// Empty where it has no entries, or these cannot be.
    pub rows: Rows,
    /// Columns, by the name of the host.
    pub cpus: BTreeMap<String, CpuSet>,
    /// The names of the hosts that it lost.
    pub lost: Vec<String>,
    /// The names of the hosts of which processes are awaited.
    pub awaited: Vec<String>,
}

impl Member {
    /// Somebody looks at the cluster: the hosts that are alive are to be read anew, unless they
    /// were a moment ago. Many who look ask no more of the registry than one does.
    pub fn look(&mut self, now: Now) {
        let is_new = self.alive_ns.is_some_and(|at_ns| now.monotonic_ns < at_ns + NEW_NS);
        self.is_looked_at |= self.link == Link::Up && !is_new;
    }

    /// The look that [`Member::look`] asked for was taken, or cannot be.
    pub fn has_looked(&self) -> bool {
        !self.is_looked_at || self.link != Link::Up
    }

    pub fn overview(&self) -> Overview {
        let view = &self.view;
        let names: BTreeMap<HostId, &String> =
            view.hosts().iter().map(|(name, host)| (HostId(host.number), name)).collect();
        let host = |(name, record): (&String, &Host)| {
            let alive = self.alive.get(name).cloned();
            (name.clone(), HostSeen { record: record.clone(), alive })
        };
        let job = |(job, registrar, record): (JobId, &str, &Job)| {
            let entries = view.entries(job)?.clone();
            let placement = view.matrix().and_then(|matrix| matrix.placement(job));
            let on = |(host, cpus): (&HostId, &CpuSet)| {
                Some((names.get(host)?.to_string(), cpus.clone()))
            };
            let cpus = placement.into_iter().flat_map(|of| &of.cpus).filter_map(on).collect();
            let named = |hosts: BTreeSet<HostId>| {
                let names = hosts.iter().filter_map(|host| names.get(host));
                names.map(|name| name.to_string()).collect()
            };
            let (lost, awaited) = (named(entries.lost()), named(entries.awaited()));
            let rows = placement.map_or_else(Rows::new, |of| of.rows.clone());
            let (registrar, record) = (registrar.to_owned(), record.clone());
            Some((job, JobSeen { registrar, record, entries, rows, cpus, lost, awaited }))
        };
        Overview {
            is_up: self.is_up(),
            revision: view.revision(),
            settings: view.settings().cloned(),
            state: view.state().map(|(state, _)| state.clone()),
            adjuster: view.adjuster().map(str::to_owned),
            unwilling: self.unwilling.clone().or_else(|| {
                // The last wish that was refused may be an old one.
                let why = self.last_refused.as_ref().filter(|_| self.host().is_none());
                why.map(Refused::to_string)
            }),
            is_in: self.host().is_some(),
            hosts: view.hosts().iter().map(host).collect(),
            jobs: view.jobs().filter_map(job).collect(),
            faults: view.faults().map(|(key, why)| (key.to_owned(), why.clone())).collect(),
        }
    }
}
