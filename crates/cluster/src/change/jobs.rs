//! Jobs are registered, changed and removed.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{
    CpuSet, JobId,
    matrix::{HostId, Matrix, Span},
};

use super::{By, Draft, Drafting, Granted, Refused};
use crate::{
    keys::Key,
    record::{Entries, Host, Job, State, Users, Wanted, class, encode},
    store::Txn,
};

/// The beginning of the name of a user who has no login, by his number.
const NAMELESS: char = '#';

/// The columns of a host among which a job has its CPUs, where its processes are bound there.
fn columns_allowed(job: &Job, name: &str, host: &Host) -> Option<(HostId, CpuSet)> {
    let cpus = job.allowed.get(name)?.parse().ok()?;
    Some((HostId(host.number), host.columns(&cpus)))
}

impl Drafting<'_> {
    pub(super) fn register(mut self, job: &Job) -> Result<Draft, Refused> {
        job.validate().map_err(Refused::Job)?;
        match self.from.view.hosts().get(self.from.host) {
            Some(host) if host.machine == self.from.machine => {}
            Some(host) => {
                let (name, machine) = (self.from.host.to_owned(), host.machine.clone());
                return Err(Refused::OtherMachine { name, machine });
            }
            None => return Err(Refused::NoHost(self.from.host.to_owned())),
        }
        if let Some((id, nonce)) = self.registered(job)? {
            let from_slice = self.state.from_slice;
            let granted = Granted::Registered { job: id, nonce, from_slice };
            return Ok(Draft { txn: Txn::default(), granted });
        }
        let (mut cpus, mut allowed) = (BTreeMap::new(), BTreeMap::new());
        for (name, &count) in &job.cpus {
            let host = self.from.view.hosts().get(name);
            let host = host.ok_or_else(|| Refused::NoHost(name.clone()))?;
            let alive = self.from.alive.get(name).ok_or_else(|| Refused::Away(name.clone()))?;
            if let Some(why) = &alive.unwilling {
                return Err(Refused::Unwilling { host: name.clone(), why: why.clone() });
            }
            cpus.insert(HostId(host.number), count);
            allowed.extend(columns_allowed(job, name, host));
        }
        let job = &Job { allowed: self.known_cpus(job), ..job.clone() };
        let id = JobId(self.state.next_job);
        let class = class(&job.class).map_err(Refused::Job)?;
        let user = self.settings.users.account_of(&job.owner);
        let span = Span { user, class, weight: job.weight, cpus, allowed };
        let mut matrix = self.loaded();
        let change = matrix.place(id, span.clone()).map_err(Refused::Matrix)?;
        let change = self.fitting(change, Some((id, Some(&span))));
        self.place(&change, Some(id));
        let placement = change.placed.get(&id).ok_or_else(|| self.full())?;
        let from_slice = self.from_slice;
        let mut entries =
            Entries { wanted_from: from_slice, ..Entries::new(&span, placement, self.from.host) };
        let awaited = job.ranks.iter().filter(|(_, ranks)| **ranks > 0);
        let number = |name: &String| Some(HostId(self.from.view.hosts().get(name)?.number));
        entries.await_hosts(&awaited.filter_map(|(name, _)| number(name)).collect());
        self.put(&Key::Job { host: self.from.host.to_owned(), job: id }, encode(job));
        self.put(&Key::Entries(id), encode(&entries));
        let state = State { next_job: id.0 + 1, ..self.state.clone() };
        let granted = Granted::Registered { job: id, nonce: job.nonce.clone(), from_slice };
        Ok(self.finish(granted, state))
    }

    /// The job that is to be registered, where it is there already, and its nonce: an answer did
    /// not come, or another host has registered the launcher's program.
    fn registered(&self, job: &Job) -> Result<Option<(JobId, String)>, Refused> {
        let mut own = self.from.view.records(self.from.host);
        if let Some((id, _)) = own.find(|(_, it)| it.nonce == job.nonce) {
            return Ok(Some((id, job.nonce.clone())));
        }
        let Some(name) = &job.launched_as else { return Ok(None) };
        let is_owner = |other: &Job| match self.settings.users {
            Users::Name if job.owner.name.starts_with(NAMELESS) => false,
            Users::Name => other.owner.name == job.owner.name,
            Users::Uid => other.owner.uid == job.owner.uid,
        };
        let is_it = |(id, _, other): &(JobId, &str, &Job)| {
            let is_over = self.from.view.entries(*id).is_none_or(|it| it.wanted == Wanted::Kill);
            other.launched_as.as_ref() == Some(name) && is_owner(other) && !is_over
        };
        match self.from.view.jobs().find(is_it) {
            Some((id, _, other)) if (&other.cpus, &other.ranks) == (&job.cpus, &job.ranks) => {
                Ok(Some((id, other.nonce.clone())))
            }
            Some((id, ..)) => Err(Refused::Launched { job: id, name: name.clone() }),
            None => Ok(None),
        }
    }

    /// The CPUs to which a job is bound, as far as its hosts have them.
    fn known_cpus(&self, job: &Job) -> BTreeMap<String, String> {
        let known = |(name, list): (&String, &String)| {
            let host = self.from.view.hosts().get(name)?;
            let there: CpuSet = host.numbers.split(',').filter_map(|it| it.parse().ok()).collect();
            let bound: CpuSet = list.parse().ok()?;
            let bound: CpuSet = bound.iter().filter(|&cpu| there.contains(cpu)).collect();
            Some((name.clone(), bound.to_string()))
        };
        job.allowed.iter().filter_map(known).collect()
    }

    /// The processes of this host are there. With those of the last host, the slots begin.
    pub(super) fn arrive(mut self, id: JobId) -> Draft {
        let me = self.from.view.hosts().get(self.from.host).map(|host| HostId(host.number));
        let Some((mut entries, me)) = self.from.view.entries(id).cloned().zip(me) else {
            return self.nothing();
        };
        let mut awaited = entries.awaited();
        if !awaited.remove(&me) {
            return self.nothing();
        }
        entries.await_hosts(&awaited);
        self.put(&Key::Entries(id), encode(&entries));
        self.done()
    }

    /// The entries of a job that a user may change.
    fn permitted(&self, id: JobId, by: &By) -> Result<Entries, Refused> {
        let view = self.from.view;
        let (Some((registrar, job)), Some(entries)) = (view.job(id), view.entries(id)) else {
            return Err(self.no_job(id));
        };
        let is_owner = match self.settings.users {
            Users::Name => by.name == job.owner.name,
            Users::Uid => by.uid == job.owner.uid,
        };
        if by.uid != 0 && !is_owner {
            return Err(Refused::NotOwner { job: id, owner: job.owner.name.clone() });
        }
        // A user of the same name may be somebody else where the job's owner has no part; and a
        // number that has no login is another one's on each host.
        let is_registrar = registrar == self.from.host;
        let is_nameless =
            self.settings.users == Users::Name && job.owner.name.starts_with(NAMELESS);
        let is_here = is_registrar || (job.cpus.contains_key(self.from.host) && !is_nameless);
        if by.uid != 0 && !is_here {
            return Err(Refused::NotHere(id));
        }
        Ok(entries.clone())
    }

    /// The reason why there is no such job: one whose records cannot be read is there all the same.
    fn no_job(&self, id: JobId) -> Refused {
        let view = self.from.view;
        let registrar = view.entries(id).map(|entries| entries.from.clone());
        let record = registrar.map(|host| Key::Job { host, job: id });
        let keys = record.into_iter().chain([Key::Entries(id)]);
        let fault = keys.map(|key| view.keys().of(&key)).find_map(|key| {
            let fault = view.fault(&key)?.clone();
            Some(Refused::Faulty { key, fault })
        });
        fault.unwrap_or(Refused::NoJob(id))
    }

    /// No row is free for a job, and none of others is taken.
    fn full(&self) -> Refused {
        Refused::Matrix(gang_schedule::matrix::Refused::Full { max: self.matrix.frame() })
    }

    pub(super) fn want(mut self, id: JobId, wanted: Wanted, by: &By) -> Result<Draft, Refused> {
        let entries = self.permitted(id, by)?;
        // A job that is resumed waits for nobody any more.
        let is_awaiting = wanted == Wanted::Run && !entries.awaited.is_empty();
        if entries.wanted == wanted && !is_awaiting {
            return Ok(self.nothing());
        }
        if entries.wanted == Wanted::Kill {
            return Err(Refused::Killed(id));
        }
        let mut matrix = self.loaded();
        self.turn_to(&mut matrix, id, entries, wanted)?;
        Ok(self.done())
    }

    /// A job is in another wanted state from now on.
    pub(super) fn turn_to(
        &mut self,
        matrix: &mut Matrix,
        id: JobId,
        mut entries: Entries,
        wanted: Wanted,
    ) -> Result<(), Refused> {
        let was_released = entries.rows.is_empty();
        (entries.wanted, entries.wanted_from) = (wanted, self.from_slice);
        if wanted == Wanted::Run {
            entries.await_hosts(&BTreeSet::new());
        }
        // A job that is killed may wait long for a host that is away, and needs no rows for that.
        if matches!(wanted, Wanted::Release | Wanted::Kill) {
            if matrix.placement(id).is_some() {
                let change = matrix.remove(id).map_err(Refused::Matrix)?;
                self.place(&self.fitting(change, Some((id, None))), Some(id));
            }
            entries.rows = String::new();
        } else if wanted == Wanted::Run && was_released {
            let span = self.span_again(id, &entries)?;
            let hosts: BTreeSet<HostId> = span.cpus.keys().copied().collect();
            let change = matrix.place(id, span.clone()).map_err(Refused::Matrix)?;
            let change = self.fitting(change, Some((id, Some(&span))));
            self.place(&change, Some(id));
            let placement = change.placed.get(&id).ok_or_else(|| self.full())?;
            let before = entries;
            entries = Entries::new(&span, placement, &before.from);
            (entries.wanted, entries.wanted_from) = (wanted, self.from_slice);
            entries.lose(&before.lost().intersection(&hosts).copied().collect());
            entries.boot(&before.booted().intersection(&hosts).copied().collect());
        }
        self.put(&Key::Entries(id), encode(&entries));
        Ok(())
    }

    /// A job that was released, as it is placed again: by its record, since its hosts may have got
    /// other numbers and columns meanwhile.
    fn span_again(&self, id: JobId, entries: &Entries) -> Result<Span, Refused> {
        let view = self.from.view;
        let (_, job) = view.job(id).ok_or(Refused::NoJob(id))?;
        let (mut cpus, mut allowed) = (BTreeMap::new(), BTreeMap::new());
        for (name, &count) in &job.cpus {
            let host = view.hosts().get(name).ok_or_else(|| Refused::NoHost(name.clone()))?;
            cpus.insert(HostId(host.number), count);
            allowed.extend(columns_allowed(job, name, host));
        }
        let class = class(&entries.class).map_err(Refused::Job)?;
        let user = self.settings.users.account_of(&job.owner);
        Ok(Span { user, class, weight: entries.weight, cpus, allowed })
    }

    pub(super) fn set(
        mut self,
        id: JobId,
        class_name: Option<&str>,
        weight: Option<u32>,
        by: &By,
    ) -> Result<Draft, Refused> {
        let mut entries = self.permitted(id, by)?;
        let (_, job) = self.from.view.job(id).ok_or(Refused::NoJob(id))?;
        let class_name = class_name.unwrap_or(&entries.class).to_owned();
        let weight = weight.unwrap_or(entries.weight);
        Job { class: class_name.clone(), weight, ..job.clone() }
            .validate()
            .map_err(Refused::Job)?;
        if (&class_name, weight) == (&entries.class, entries.weight) {
            return Ok(self.nothing());
        }
        // The rows follow with the next adjustment (L16).
        (entries.class, entries.weight) = (class_name, weight);
        self.put(&Key::Entries(id), encode(&entries));
        Ok(self.done())
    }

    /// The record of a job that was registered here is written as it is.
    pub(super) fn ask(mut self, id: JobId) -> Draft {
        let host = self.from.host.to_owned();
        let Some(record) = self.from.view.record(&host, id) else { return self.nothing() };
        self.put(&Key::Job { host, job: id }, encode(record));
        self.finish_beside()
    }

    /// The record of a job that was registered here is deleted, and its entries with it.
    pub(super) fn remove(mut self, id: JobId) -> Result<Draft, Refused> {
        let view = self.from.view;
        let host = self.from.host.to_owned();
        // A record of this host goes, whichever host the entries name.
        let has_record = view.record(&host, id).is_some();
        if let Some((registrar, _)) =
            view.job(id).filter(|(registrar, _)| *registrar != host && !has_record)
        {
            return Err(Refused::OfOtherHost { job: id, host: registrar.to_owned() });
        }
        let entries = view.entries(id).filter(|entries| entries.from == host);
        if !has_record && entries.is_none() {
            return Ok(self.nothing());
        }
        let has_unreadable = view.fault(&view.keys().of(&Key::Entries(id))).is_some();
        if entries.is_some() || (view.entries(id).is_none() && has_unreadable) {
            self.clear(id)?;
        }
        if has_record {
            self.delete(&Key::Job { host, job: id });
        }
        Ok(self.done())
    }

    /// A job has no entries any more; others move to what it leaves.
    pub(super) fn clear(&mut self, id: JobId) -> Result<(), Refused> {
        if self.matrix.placement(id).is_some() {
            let change = self.loaded().remove(id).map_err(Refused::Matrix)?;
            self.place(&self.fitting(change, Some((id, None))), Some(id));
        }
        self.delete(&Key::Entries(id));
        Ok(())
    }
}
