//! The registry, as far as a host has read it.
//!
//! A [`View`] is read whole once, and then follows the registry revision by revision. It holds the
//! matrix that the records make. Two hosts that have read the same revision hold the same matrix,
//! whichever way they came there.
//!
//! Records that cannot be used are kept apart, each with its reason ([`View::faults`]). Entries
//! that contradict others are left out in the order of jobs, so that all hosts leave out the same.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::JobId;
use gang_schedule::matrix::{HostId, Matrix};

use crate::keys::{Key, Keys};
use crate::record::{self, Entries, Fault, Host, Job, Settings, State, decode};
use crate::store::{Event, Revision, Snapshot};

/// The registry at one revision.
#[derive(Debug, Clone)]
pub struct View {
    keys: Keys,
    revision: Revision,
    settings: Option<Settings>,
    state: Option<(State, Revision)>,
    hosts: BTreeMap<String, Host>,
    jobs: BTreeMap<JobId, (String, Job)>,
    entries: BTreeMap<JobId, Entries>,
    adjuster: Option<String>,
    faults: BTreeMap<String, Fault>,
    /// Entries that the matrix has no room for: all of it is made anew with each change.
    contradict: BTreeSet<JobId>,
    matrix: Option<Matrix>,
}

/// The effect of a revision on what a host knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Jobs whose entries or records changed.
    pub jobs: BTreeSet<JobId>,
    /// The matrix as a whole may be another one: hosts or settings changed.
    pub all: bool,
}

impl View {
    /// A registry in which nothing was read yet.
    pub fn new(keys: Keys) -> View {
        View {
            keys,
            revision: 0,
            settings: None,
            state: None,
            hosts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            entries: BTreeMap::new(),
            adjuster: None,
            faults: BTreeMap::new(),
            contradict: BTreeSet::new(),
            matrix: None,
        }
    }

    /// Everything is as in this snapshot.
    pub fn read(&mut self, snapshot: &Snapshot) {
        *self = View::new(self.keys.clone());
        for item in &snapshot.items {
            self.take(&item.key, Some(&item.value), item.modified);
        }
        self.revision = snapshot.revision;
        self.build();
    }

    /// A revision changed these keys.
    pub fn follow(&mut self, revision: Revision, events: &[Event]) -> Changed {
        let mut changed = Changed::default();
        for event in events {
            match self.take(&event.key, event.value.as_deref(), revision) {
                Some(Key::Settings | Key::Host(_)) => changed.all = true,
                Some(Key::Job { job, .. } | Key::Entries(job)) => _ = changed.jobs.insert(job),
                Some(Key::State | Key::Adjuster) | None => {}
            }
        }
        self.revision = revision;
        if changed.all || !self.contradict.is_empty() {
            self.build();
        } else {
            self.update(&changed.jobs);
        }
        changed
    }

    /// Keeps the new value of a key, or why it cannot be used.
    fn take(&mut self, key: &str, value: Option<&str>, modified: Revision) -> Option<Key> {
        let of = self.keys.parse(key)?;
        self.faults.remove(key);
        let mut fault = None;
        let mut or_fault = |it: Fault| fault = Some(it);
        match &of {
            Key::Settings => self.settings = read(value, &mut or_fault),
            Key::State => {
                self.state = read(value, &mut or_fault).map(|state| (state, modified));
            }
            Key::Adjuster => self.adjuster = value.map(str::to_owned),
            Key::Host(name) => set(&mut self.hosts, name.clone(), read(value, &mut or_fault)),
            Key::Job { host, job } => {
                let of_other = self.jobs.get(job).is_some_and(|(other, _)| other != host);
                let read: Option<Job> = read(value, &mut or_fault);
                let wrong = read.as_ref().and_then(|it| it.validate().err());
                match (of_other, read) {
                    (true, None) => {}
                    (true, Some(_)) => {
                        let why = format!("job {job} is of another host");
                        or_fault(Fault::Contradicts(why));
                    }
                    (false, read) => {
                        let read = read.filter(|_| wrong.is_none());
                        set(&mut self.jobs, *job, read.map(|it| (host.clone(), it)));
                    }
                }
                wrong.into_iter().for_each(or_fault);
            }
            Key::Entries(job) => set(&mut self.entries, *job, read(value, &mut or_fault)),
        }
        fault.map(|fault| self.faults.insert(key.to_owned(), fault));
        Some(of)
    }

    /// The matrix of all records.
    fn build(&mut self) {
        self.contradict.clear();
        self.matrix = None;
        let Some(settings) = &self.settings else { return };
        let mut matrix = match Matrix::new(settings.config(), settings.rows) {
            Ok(matrix) => matrix,
            Err(why) => return self.contradicts(&Key::Settings, why.to_string()),
        };
        let mut wrong = Vec::new();
        for (name, host) in &self.hosts {
            let added = match host.number < record::HOSTS_MAX {
                true => {
                    matrix.add_host(HostId(host.number), host.cpus).map_err(|it| it.to_string())
                }
                false => Err(format!("a host's number is below {}", record::HOSTS_MAX)),
            };
            wrong.extend(added.err().map(|why| (Key::Host(name.clone()), why)));
        }
        self.matrix = Some(matrix);
        wrong.into_iter().for_each(|(key, why)| self.contradicts(&key, why));
        self.update(&self.entries.keys().copied().collect());
    }

    /// The entries of these jobs are in the matrix as their records say.
    fn update(&mut self, jobs: &BTreeSet<JobId>) {
        let mut wrong = Vec::new();
        let mut placed = BTreeMap::new();
        for &job in jobs {
            let of = match self.entries.get(&job).map(Entries::decode) {
                None => None,
                Some(Ok((_, placement))) if placement.rows.is_empty() => None,
                Some(Ok(of)) => Some(of),
                Some(Err(fault)) => {
                    wrong.push((job, fault));
                    None
                }
            };
            placed.insert(job, of);
        }
        for (job, fault) in wrong {
            self.faults.insert(self.keys.of(&Key::Entries(job)), fault);
        }
        let Some(matrix) = &mut self.matrix else { return };
        let refused = matrix.apply(placed);
        for (job, why) in refused {
            self.contradict.insert(job);
            self.contradicts(&Key::Entries(job), why.to_string());
        }
    }

    fn contradicts(&mut self, key: &Key, why: String) {
        self.faults.insert(self.keys.of(key), Fault::Contradicts(why));
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    /// The state of the matrix, and the revision that wrote it.
    pub fn state(&self) -> Option<(&State, Revision)> {
        self.state.as_ref().map(|(state, modified)| (state, *modified))
    }

    /// The hosts of the cluster, by name; also those that are away.
    pub fn hosts(&self) -> &BTreeMap<String, Host> {
        &self.hosts
    }

    /// The name of a host in the matrix.
    pub fn name_of(&self, host: HostId) -> Option<&str> {
        let mut hosts = self.hosts.iter();
        hosts.find(|(_, it)| it.number == host.0).map(|(name, _)| name.as_str())
    }

    /// A job as it was registered, and where. Entries alone make no job: any host can write them.
    pub fn job(&self, job: JobId) -> Option<(&str, &Job)> {
        self.jobs.get(&job).map(|(host, job)| (host.as_str(), job))
    }

    /// All jobs as they were registered.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &str, &Job)> {
        self.jobs.iter().map(|(&id, (host, job))| (id, host.as_str(), job))
    }

    pub fn entries(&self, job: JobId) -> Option<&Entries> {
        self.entries.get(&job)
    }

    /// All entries, as they are written.
    pub fn all_entries(&self) -> impl Iterator<Item = (JobId, &Entries)> {
        self.entries.iter().map(|(&job, it)| (job, it))
    }

    /// The host that adjusts, if any.
    pub fn adjuster(&self) -> Option<&str> {
        self.adjuster.as_deref()
    }

    /// Keys whose values are not used, and why.
    pub fn faults(&self) -> &BTreeMap<String, Fault> {
        &self.faults
    }

    /// The matrix; None where the cluster has no settings that can be used.
    pub fn matrix(&self) -> Option<&Matrix> {
        self.matrix.as_ref()
    }
}

fn read<T: serde::de::DeserializeOwned>(
    value: Option<&str>,
    fault: &mut impl FnMut(Fault),
) -> Option<T> {
    decode(value?).map_err(fault).ok()
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => _ = map.insert(key, value),
        None => _ = map.remove(&key),
    }
}
