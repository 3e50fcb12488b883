//! The registry, as far as a host has read it.
//!
//! A [`View`] is read whole once, and then follows the registry revision by revision. It holds the
//! matrix that the records make. Two hosts that have read the same revision hold the same matrix,
//! whichever way they came there.
//!
//! Records that cannot be used are kept apart, each with its reason ([`View::faults`]). Entries
//! that contradict others are left out in the order of jobs, so that all hosts leave out the same.
//! Entries without the record of a job have no place: any host can write them.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::matrix::{HostId, Matrix, Placement, Span};
use gang_schedule::{JobId, MAX_CPUS};
use serde::de::DeserializeOwned;

use crate::keys::{Key, Keys};
use crate::record::{self, ClusterSettings, Entries, Fault, Host, Job, State, decode};
use crate::store::{Bound, Count, Event, Revision, Snapshot};

/// The registry at one revision.
#[derive(Debug, Clone)]
pub struct View {
    keys: Keys,
    revision: Revision,
    settings: Option<ClusterSettings>,
    state: Option<(State, Revision)>,
    /// The revision that brought the last change of the matrix.
    changed_at: Revision,
    hosts: BTreeMap<String, Host>,
    /// By number, and the host that wrote the record.
    jobs: BTreeMap<(JobId, String), Job>,
    /// The last changes of these records, also of those that cannot be read.
    written: BTreeMap<(JobId, String), Written>,
    entries: BTreeMap<JobId, Entries>,
    /// The host, and the revision that made it so.
    adjuster: Option<(String, Revision)>,
    /// The last revision that changed what entries follow from, beside the state of the matrix.
    beside: Revision,
    /// Values that cannot be read.
    unreadable: BTreeMap<String, Fault>,
    /// The numbers of hosts whose records cannot be read, as far as these say them.
    numbers: BTreeMap<String, u32>,
    /// Values that contradict others, as of the last time that the matrix was built.
    contradictions: BTreeMap<String, Fault>,
    /// Entries that are not in the matrix because they contradict others. While there are any, each
    /// revision rebuilds the whole matrix.
    contradict: BTreeSet<JobId>,
    matrix: Option<Matrix>,
    bound: Bound,
    /// The bytes of each key and its value, and of all of them.
    sizes: BTreeMap<Key, usize>,
    count: Count,
}

/// The last change of a job's record.
#[derive(Debug, Clone, Copy)]
struct Written {
    at: Revision,
    /// It was written as it was before: its registrar asks who has a part of the job.
    is_again: bool,
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
            changed_at: 0,
            hosts: BTreeMap::new(),
            jobs: BTreeMap::new(),
            written: BTreeMap::new(),
            entries: BTreeMap::new(),
            adjuster: None,
            beside: 0,
            unreadable: BTreeMap::new(),
            numbers: BTreeMap::new(),
            contradictions: BTreeMap::new(),
            contradict: BTreeSet::new(),
            matrix: None,
            bound: Bound::default(),
            sizes: BTreeMap::new(),
            count: Count::default(),
        }
    }

    /// The same, of which so much is kept.
    pub fn bounded(keys: Keys, bound: Bound) -> View {
        View { bound, ..View::new(keys) }
    }

    /// Everything is as in this snapshot.
    pub fn read(&mut self, snapshot: &Snapshot) {
        *self = View::bounded(self.keys.clone(), self.bound);
        for item in &snapshot.items {
            self.take(&item.key, Some(&item.value), item.modified);
        }
        self.revision = snapshot.revision;
        // Nobody sees which records were deleted before.
        (self.beside, self.changed_at) = (snapshot.revision.max(1), 0);
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
            if !self.contradict.is_empty() {
                // The order in which entries came must not matter.
                self.build();
            }
        }
        changed
    }

    /// Keeps the new value of a key, or why it cannot be read.
    fn take(&mut self, key: &str, value: Option<&str>, modified: Revision) -> Option<Key> {
        let of = self.keys.parse(key)?;
        let size = value.map(|value| key.len() + value.len());
        let before = match size {
            Some(size) => self.sizes.insert(of.clone(), size),
            None => self.sizes.remove(&of),
        };
        before.into_iter().for_each(|size| self.count.remove(size));
        size.into_iter().for_each(|size| self.count.add(size));
        let mut fault = None;
        let mut or_fault = |it: Fault| fault = Some(it);
        let is_other = match &of {
            Key::Settings => {
                let settings = read(value, &mut or_fault, |_: &ClusterSettings| Ok(()));
                std::mem::replace(&mut self.settings, settings) != self.settings
            }
            Key::State => {
                let state = read(value, &mut or_fault, State::validate);
                let change = |it: &State| it.change;
                if self.state.as_ref().map(|(it, _)| change(it)) != state.as_ref().map(change) {
                    self.changed_at = modified;
                }
                self.state = state.map(|state| (state, modified));
                false
            }
            Key::Adjuster => {
                self.adjuster = value.map(|host| (host.to_owned(), modified));
                false
            }
            Key::Host(name) => {
                let host = read(value, &mut or_fault, |_: &Host| Ok(()));
                let number = value.filter(|_| host.is_none()).and_then(number_in);
                set(&mut self.numbers, name.clone(), number);
                let columns = |host: Option<&Host>| host.map(|it| (it.number, it.cpus));
                let is_other = columns(self.hosts.get(name)) != columns(host.as_ref());
                set(&mut self.hosts, name.clone(), host);
                is_other
            }
            Key::Job { host, job } => {
                let read = read(value, &mut or_fault, Job::validate);
                let of = (*job, host.clone());
                let is_other = self.jobs.get(&of) != read.as_ref();
                let is_again = !is_other && read.is_some();
                let written = value.map(|_| Written { at: modified, is_again });
                set(&mut self.written, of.clone(), written);
                set(&mut self.jobs, of, read);
                is_other
            }
            Key::Entries(job) => {
                let read = read(value, &mut or_fault, |_: &Entries| Ok(()));
                let of_steps = |it: Option<&Entries>| it.map(Entries::without_booted);
                let is_other = of_steps(self.entries.get(job)) != of_steps(read.as_ref());
                set(&mut self.entries, *job, read);
                is_other
            }
        };
        if is_other {
            self.beside = self.beside.max(modified);
        }
        set(&mut self.unreadable, key.to_owned(), fault);
        Some(of)
    }

    /// The matrix of all records.
    fn build(&mut self) {
        self.contradict.clear();
        self.contradictions.clear();
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
        let mut placed = BTreeMap::new();
        let mut wrong = Vec::new();
        for &job in jobs {
            self.contradictions.remove(&self.keys.of(&Key::Entries(job)));
            self.contradict.remove(&job);
            let of = self.entries.get(&job).map(|entries| self.place(job, entries));
            placed.insert(
                job,
                of.transpose()
                    .unwrap_or_else(|fault| {
                        wrong.push((job, fault));
                        None
                    })
                    .flatten(),
            );
        }
        let Some(matrix) = &mut self.matrix else { return };
        let refused = matrix.apply(placed).into_iter();
        let refused = refused.map(|(job, why)| (job, Fault::Contradicts(why.to_string())));
        for (job, fault) in refused.chain(wrong).collect::<Vec<_>>() {
            self.contradict.insert(job);
            self.contradictions.insert(self.keys.of(&Key::Entries(job)), fault);
        }
    }

    /// The place of a job by its entries, which must be of the hosts, the CPUs and the owner that
    /// its record names. None of one that was released.
    fn place(&self, job: JobId, entries: &Entries) -> Result<Option<(Span, Placement)>, Fault> {
        let (span, placement) = entries.decode(self.columns_max())?;
        let Some((_, record)) = self.job(job).filter(|_| !placement.rows.is_empty()) else {
            return Ok(None);
        };
        let wants =
            |(name, &cpus): (&String, &u32)| Some((HostId(self.hosts.get(name)?.number), cpus));
        let wanted: Option<BTreeMap<HostId, u32>> = record.cpus.iter().map(wants).collect();
        let is_as_wanted = wanted.is_some_and(|wanted| wanted == span.cpus);
        let users = self.settings().map(|settings| settings.users).unwrap_or_default();
        let account = users.account_of(&record.owner);
        if !is_as_wanted || account != span.user {
            let why = "its entries are of other hosts, CPUs or users than its record";
            return Err(Fault::Contradicts(why.to_owned()));
        }
        Ok(Some((span, placement)))
    }

    /// The most columns that a host has.
    pub fn columns_max(&self) -> u32 {
        self.hosts.values().map(|host| host.cpus).max().unwrap_or(0).min(MAX_CPUS)
    }

    fn contradicts(&mut self, key: &Key, why: String) {
        self.contradictions.insert(self.keys.of(key), Fault::Contradicts(why));
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The most that is kept.
    pub fn bound(&self) -> Bound {
        self.bound
    }

    /// Whether the registry has no more than that.
    pub fn is_within_bound(&self) -> bool {
        self.count.is_within(self.bound)
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    pub fn settings(&self) -> Option<&ClusterSettings> {
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

    /// A job as it was registered, and where: at the host that its entries name. Entries alone make
    /// no job, since any host can write them; a record alone makes none, since it has no place.
    pub fn job(&self, job: JobId) -> Option<(&str, &Job)> {
        let from = &self.entries.get(&job)?.from;
        let ((_, host), record) = self.jobs.get_key_value(&(job, from.clone()))?;
        Some((host, record))
    }

    /// All jobs as they were registered.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, &str, &Job)> {
        let of = |(&job, entries): (&JobId, &Entries)| {
            let ((_, host), record) = self.jobs.get_key_value(&(job, entries.from.clone()))?;
            Some((job, host.as_str(), record))
        };
        self.entries.iter().filter_map(of)
    }

    /// The records of jobs that a host has written.
    pub fn records<'a>(&'a self, host: &'a str) -> impl Iterator<Item = (JobId, &'a Job)> {
        let of_host = self.jobs.iter().filter(move |((_, of), _)| of == host);
        of_host.map(|((job, _), record)| (*job, record))
    }

    /// The record of a job that a host has written.
    pub fn record(&self, host: &str, job: JobId) -> Option<&Job> {
        self.jobs.get(&(job, host.to_owned()))
    }

    /// Entries that are not in the matrix because they contradict others.
    pub fn contradicting(&self) -> &BTreeSet<JobId> {
        &self.contradict
    }

    pub fn entries(&self, job: JobId) -> Option<&Entries> {
        self.entries.get(&job)
    }

    /// All entries, as they are written.
    pub fn all_entries(&self) -> impl Iterator<Item = (JobId, &Entries)> {
        self.entries.iter().map(|(&job, it)| (job, it))
    }

    /// The revision that has written the record of a job at a host last.
    pub fn written(&self, host: &str, job: JobId) -> Option<Revision> {
        let written = self.written.get(&(job, host.to_owned()));
        written.map(|it| it.at)
    }

    /// The last revision in which the registrar of a job asked who has a part of it, of the jobs
    /// that have CPUs of this host.
    pub fn asked(&self, host: &str) -> Revision {
        let is_asked = |(of, it): &(&(JobId, String), &Written)| {
            it.is_again && self.jobs.get(*of).is_some_and(|job| job.cpus.contains_key(host))
        };
        self.written.iter().filter(is_asked).map(|(_, it)| it.at).max().unwrap_or(0)
    }

    /// Whether the last change of the matrix is known to say from when all holds that was read.
    /// Where somebody has cut a record or mended one, hosts follow that once a change names the
    /// slice.
    pub fn is_settled(&self) -> bool {
        self.state.is_none() || self.beside <= self.changed_at
    }

    /// The host that adjusts, if any.
    pub fn adjuster(&self) -> Option<&str> {
        self.adjuster.as_ref().map(|(host, _)| host.as_str())
    }

    /// The revision that made a host the one that adjusts.
    pub fn adjuster_since(&self) -> Option<Revision> {
        self.adjuster.as_ref().map(|(_, modified)| *modified)
    }

    /// Keys whose values are not used, and why.
    pub fn faults(&self) -> impl Iterator<Item = (&str, &Fault)> {
        let all = self.unreadable.iter().chain(&self.contradictions);
        all.map(|(key, fault)| (key.as_str(), fault))
    }

    /// Why the value of a key is not used.
    pub fn fault(&self, key: &str) -> Option<&Fault> {
        self.unreadable.get(key).or_else(|| self.contradictions.get(key))
    }

    /// Why the values on which all others depend are not used, if so: settings or state.
    pub fn fault_of_all(&self) -> Option<(String, &Fault)> {
        let keys = [Key::Settings, Key::State].map(|key| self.keys.of(&key));
        keys.into_iter().find_map(|key| {
            let fault = self.fault(&key)?;
            Some((key, fault))
        })
    }

    /// The number of a host, also where all that can be read of its record is the number.
    pub fn number_of(&self, host: &str) -> Option<u32> {
        let known = self.hosts.get(host).map(|host| host.number);
        known.or_else(|| self.numbers.get(host).copied())
    }

    /// The numbers of hosts whose records cannot be read.
    pub fn numbers_of_unreadable(&self) -> impl Iterator<Item = u32> {
        self.numbers.values().copied()
    }

    /// Why the record of a host is not used, if so.
    pub fn fault_of_host(&self, host: &str) -> Option<&Fault> {
        self.fault(&self.keys.of(&Key::Host(host.to_owned())))
    }

    /// A value of a newer version, if there is one: this host must not change what it cannot read.
    pub fn newer(&self) -> Option<(&str, &Fault)> {
        let mut all = self.unreadable.iter();
        let newer = all.find(|(_, fault)| matches!(fault, Fault::Newer { .. }));
        newer.map(|(key, fault)| (key.as_str(), fault))
    }

    /// The matrix; None where the cluster has no settings that can be used.
    pub fn matrix(&self) -> Option<&Matrix> {
        self.matrix.as_ref()
    }
}

fn read<T: DeserializeOwned>(
    value: Option<&str>,
    or_fault: &mut impl FnMut(Fault),
    validate: impl Fn(&T) -> Result<(), Fault>,
) -> Option<T> {
    let read = decode::<T>(value?).and_then(|it| validate(&it).map(|()| it));
    read.map_err(or_fault).ok()
}

/// The number in the record of a host that cannot be read otherwise.
fn number_in(text: &str) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let number = u32::try_from(value.get("number")?.as_u64()?).ok()?;
    (number < record::HOSTS_MAX).then_some(number)
}

fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => _ = map.insert(key, value),
        None => _ = map.remove(&key),
    }
}
