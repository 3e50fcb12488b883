//! Hosts join the cluster and leave it.

use std::collections::BTreeSet;

use gang_schedule::{JobId, MAX_CPUS, matrix::HostId};

use super::{Draft, Drafting, Refused};
use crate::{
    keys::{Key, is_name},
    record::{Entries, HOSTS_MAX, Host, Wanted, encode},
    store::{BYTES_MAX, OPS_MAX},
};

impl Drafting<'_> {
    pub(super) fn join(
        mut self,
        cpus: u32,
        numbers: &str,
        machine: &str,
        boot: &str,
    ) -> Result<Draft, Refused> {
        let name = self.from.host;
        if !is_name(name) {
            return Err(Refused::Name(name.to_owned()));
        }
        let hosts = self.from.view.hosts();
        if let Some(known) = hosts.get(name) {
            if known.machine != machine {
                let machine = known.machine.clone();
                return Err(Refused::OtherMachine { name: name.to_owned(), machine });
            }
            if (known.cpus, known.numbers.as_str(), known.boot.as_str()) == (cpus, numbers, boot) {
                return Ok(self.nothing());
            }
            // Columns are what entries name: they stay the same CPUs while the kernel runs.
            let has_others = known.numbers != numbers && known.boot == boot;
            if known.cpus != cpus || has_others {
                self.check_unused(known.number)?;
            }
        }
        if !(1..=MAX_CPUS).contains(&cpus) {
            let wrong = gang_schedule::matrix::Refused::Cpus { cpus, max: MAX_CPUS };
            return Err(Refused::Matrix(wrong));
        }
        let taken = hosts.values().map(|host| host.number);
        let taken: BTreeSet<u32> = taken.chain(self.from.view.numbers_of_unreadable()).collect();
        let is_free = |number: &u32| !taken.contains(number) && self.check_unused(*number).is_ok();
        // Entries name it by its number, which stays though the rest of its record was lost.
        let known = self.from.view.number_of(name);
        if let Some(fault) = self.from.view.fault_of_host(name).filter(|_| known.is_none()) {
            let key = self.from.view.keys().of(&Key::Host(name.to_owned()));
            return Err(Refused::Faulty { key, fault: fault.clone() });
        }
        let number = known.or_else(|| (0..HOSTS_MAX).find(is_free));
        let number = number.ok_or(Refused::TooManyHosts(HOSTS_MAX))?;
        let [numbers, machine, boot] = [numbers, machine, boot].map(str::to_owned);
        let is_new = hosts.get(name).is_none_or(|known| known.cpus != cpus);
        if hosts.get(name).is_some_and(|known| known.boot != boot) && !self.mark_booted(number) {
            return Ok(self.finish_entries_beside());
        }
        let host = Host { number, cpus, numbers, machine, boot };
        self.put(&Key::Host(name.to_owned()), encode(&host));
        Ok(if is_new { self.done() } else { self.finish_entries_beside() })
    }

    /// A boot has ended the processes of jobs on this host, however short it was. The jobs are
    /// marked, and the host that adjusts does what their owners chose: this one may not know the
    /// slice yet. Returns whether all are marked; as many are as one change can have.
    fn mark_booted(&mut self, number: u32) -> bool {
        let (view, me) = (self.from.view, HostId(number));
        let columns_max = view.columns_max();
        let mut bytes = 0;
        for (id, entries) in view.all_entries() {
            let is_known = entries.lost().contains(&me) || entries.booted().contains(&me);
            let names =
                || entries.decode(columns_max).is_ok_and(|(it, _)| it.cpus.contains_key(&me));
            if is_known || entries.wanted == Wanted::Kill || !names() {
                continue;
            }
            let mut entries = entries.clone();
            entries.boot(&entries.booted().into_iter().chain([me]).collect());
            let value = encode(&entries);
            bytes += value.len();
            let is_full = self.ops.len() + 2 >= OPS_MAX || bytes > BYTES_MAX / 2;
            if is_full && !self.ops.is_empty() {
                return false;
            }
            self.put(&Key::Entries(id), value);
        }
        true
    }

    /// No job has entries of a host, not even one that was released.
    fn check_unused(&self, number: u32) -> Result<(), Refused> {
        self.check_unused_but(number, |_| false)
    }

    /// The same without some jobs.
    fn check_unused_but(
        &self,
        number: u32,
        is_out: impl Fn(&Entries) -> bool,
    ) -> Result<(), Refused> {
        let columns_max = self.from.view.columns_max();
        let names = |entries: &Entries| {
            let decoded = entries.decode(columns_max);
            let is_of = decoded.is_ok_and(|(span, _)| span.cpus.contains_key(&HostId(number)));
            is_of && !is_out(entries)
        };
        let jobs = self.from.view.all_entries().filter(|(_, entries)| names(entries)).count();
        if jobs == 0 {
            return Ok(());
        }
        Err(Refused::Matrix(gang_schedule::matrix::Refused::HostInUse {
            host: HostId(number),
            jobs,
        }))
    }

    pub(super) fn leave(mut self, with: &BTreeSet<String>) -> Result<Draft, Refused> {
        let name = self.from.host;
        let Some(host) = self.from.view.hosts().get(name) else { return Ok(self.nothing()) };
        let me = HostId(host.number);
        let view = self.from.view;
        let columns_max = view.columns_max();
        let has_no_part =
            |it: &Entries| it.decode(columns_max).is_ok_and(|(it, _)| !it.cpus.contains_key(&me));
        // A job that is killed waits for a host that is lost, until that is back or has left. Its
        // registrar may be one that has no part of it.
        let ends_with_it = |it: &Entries| {
            let is_killed = it.wanted == Wanted::Kill && it.rows.is_empty();
            is_killed && (it.lost().contains(&me) || has_no_part(it))
        };
        self.check_unused_but(host.number, ends_with_it)?;
        let waits_for_others = |it: &Entries| {
            let others = it.lost().into_iter().filter(|&other| other != me);
            let stays = |other| view.name_of(other).is_some_and(|name| !with.contains(name));
            others.into_iter().any(stays)
        };
        let has_entries = |job: JobId| match view.entries(job) {
            Some(it) => !ends_with_it(it) || waits_for_others(it),
            None => view.fault(&view.keys().of(&Key::Entries(job))).is_some(),
        };
        let (jobs, over): (Vec<JobId>, Vec<JobId>) =
            view.records(name).map(|(job, _)| job).partition(|&job| has_entries(job));
        if !jobs.is_empty() {
            return Err(Refused::HasJobs(jobs.len()));
        }
        // Jobs that ended without their host: it had no time to remove their records.
        for &job in over.iter().take(OPS_MAX / 4) {
            self.delete(&Key::Job { host: name.to_owned(), job });
            if view.entries(job).is_some() {
                self.delete(&Key::Entries(job));
            }
        }
        if over.len() > OPS_MAX / 4 {
            return Ok(self.done());
        }
        self.delete(&Key::Host(name.to_owned()));
        if self.from.view.adjuster() == Some(name) {
            self.delete(&Key::Adjuster);
        }
        Ok(self.done())
    }
}
