//! Parts of jobs that span hosts.
//!
//! Problem: hosts agree on the rows of a spanning job, and each of them has jobs of its own beside
//! it. Numbers of spanning jobs may be given again where what hosts agree on was restored from a
//! copy.
//!
//! Approach: a host has a [`Part`] of each spanning job that has CPUs there. It is a job like any
//! other, but has its slots by entries alone. A part is known by its number and by its *nonce*,
//! which is never given again. The schedule gets the entries whose part is here.
//!
//! Properties: entries give no slot to a job of another nonce; a part that no entries name is left
//! to Linux; a part counts against the limit on all jobs, and not against those of its user, who is
//! held to them where he registered the job.

use std::collections::BTreeMap;

use gang_schedule::{
    Class, Entries, Entry, EntryList, Event, JobId, Policy, Readiness, Refusal, Spec, UserId,
    clock as slices,
};

use crate::{Conductor, Now, Refused};

/// The part of a spanning job that a host has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub job: JobId,
    pub nonce: String,
    pub name: String,
    /// As this host knows the owner.
    pub owner_uid: u32,
    pub class: Class,
    pub weight: u32,
    /// CPUs of this host.
    pub cpus: u32,
}

/// All entries of this host from a slice on, as hosts have agreed on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreedEntries {
    pub from_slice: u64,
    /// The rows of a frame.
    pub frame: u32,
    /// Each with the nonce of its job.
    pub entries: Vec<(Entry, String)>,
}

impl Conductor {
    /// This host has a part of a spanning job. One that it has already stays as it is. Until
    /// timetables have no earlier part of that number, a new one is refused.
    pub fn enter_part(&mut self, now: Now, part: Part) -> Result<(), Refused> {
        let Part { job, nonce, name, owner_uid, class, weight, cpus } = part;
        match self.jobs.get(&job) {
            Some(known) if known.nonce.as_ref() == Some(&nonce) => return Ok(()),
            Some(_) => return Err(Refusal::DuplicateJob { job }.into()),
            None if job < JobId::FIRST_SPANNING => return Err(Refused::NoSuchJob(job)),
            None if self.planned_gangs().contains(&job) => {
                let operation = format!("enter the part of job {job}");
                let reason = "timetables still have an earlier part of that number";
                return Err(Refused::not_permitted(operation, reason));
            }
            None => {}
        }
        let maximum = self.settings.limits.jobs;
        if self.jobs.len() >= maximum {
            return Err(Refused::LimitReached { limit: "jobs", maximum });
        }
        // Its owner's, as it enters. What it has of its CPUs while some are offline, entries say.
        let (min_cpus, spanning) = (1, true);
        let spec =
            Spec { class, policy: Policy::Gang, weight, min_cpus, spanning, ..Spec::new(cpus) };
        self.enter(now, job, name, owner_uid, spec)?;
        self.forget_earlier_part(job);
        self.job_mut(job)?.nonce = Some(nonce);
        self.give_entries()
    }

    /// A number of spanning jobs comes back: what is known of it is of a part that is over.
    fn forget_earlier_part(&mut self, job: JobId) {
        for jobs in [
            &mut self.restated,
            &mut self.unknown,
            &mut self.over_thread_limit,
            &mut self.has_new_members,
            &mut self.stopped,
        ] {
            jobs.remove(&job);
        }
        self.just_released.remove(&job);
        self.left_alone.retain(|(_, of, _)| *of != job);
        self.published.forget_ended(job);
    }

    /// Hosts have agreed on these entries, in the order in which they come into force.
    pub fn follow_entries(&mut self, agreed: Vec<AgreedEntries>) -> Result<(), Refused> {
        self.agreed = agreed;
        self.give_entries()
    }

    /// Hands the schedule the entries whose part is here.
    pub(crate) fn give_entries(&mut self) -> Result<(), Refused> {
        let jobs = &self.jobs;
        let is_here = |(entry, nonce): &&(Entry, String)| {
            let job = jobs.get(&entry.job);
            job.is_some_and(|job| job.nonce.as_ref() == Some(nonce))
                && !(entry.rows.is_empty() || entry.cpus.is_empty())
        };
        let list = |of: &AgreedEntries| EntryList {
            from_slice: of.from_slice,
            frame: of.frame,
            entries: of.entries.iter().filter(is_here).map(|(entry, _)| entry.clone()).collect(),
        };
        let entries = Entries::new(self.agreed.iter().map(list))?;
        self.schedule.apply(Event::Entries(entries))?;
        self.note_places();
        Ok(())
    }

    /// The first slice from which a change that came now would show as a whole.
    pub fn first_open_slice(&self, now: Now) -> u64 {
        let config = self.config();
        let from_ns = self.boundary(now.utc_ns + self.lead_ns);
        // Plans may stand for longer: the lead was a longer one, or they are about to be replaced.
        // Those that the clock came back from are replaced at once.
        let stands_ns = Some(self.schedule.stands_until_ns()).filter(|_| !self.was_set_back);
        let from_ns = from_ns.max(stands_ns.unwrap_or(0));
        let under_way = slices::slice_at(config, from_ns);
        under_way + u64::from(slices::slice_start(config, under_way) < from_ns)
    }

    /// Runnable threads beside spanning jobs, and how many of them are of which users: local gangs
    /// count with the CPUs that they ask for.
    pub fn load_beside_spanning(&self) -> (u32, BTreeMap<UserId, u32>) {
        let (mut threads, mut of_users) =
            (self.schedule.load(), self.schedule.load_of_users().clone());
        let runs = |id: JobId| self.schedule.readiness(id) == Some(Readiness::Runnable);
        let local = self.jobs.values().filter(|job| job.nonce.is_none() && runs(job.id));
        for job in local {
            threads = threads.saturating_add(job.spec.cpus);
            *of_users.entry(job.spec.user).or_default() += job.spec.cpus;
        }
        (threads, of_users)
    }
}
