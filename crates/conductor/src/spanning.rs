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
//! to Linux; a number has one part at a time; a part counts against the limits of its user as any
//! job of his does.

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

impl AgreedEntries {
    /// The entries of some jobs, as far as they give slots.
    fn list(&self, is_wanted: impl Fn(JobId, &String) -> bool) -> EntryList {
        let is_wanted = |(entry, nonce): &&(Entry, String)| {
            is_wanted(entry.job, nonce) && !(entry.rows.is_empty() || entry.cpus.is_empty())
        };
        EntryList {
            from_slice: self.from_slice,
            frame: self.frame,
            entries: self
                .entries
                .iter()
                .filter(is_wanted)
                .map(|(entry, _)| entry.clone())
                .collect(),
        }
    }
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
        self.admit(owner_uid)?;
        self.permit_cpus(self.account_of(owner_uid), cpus, None)?;
        // Its owner's, as it enters. Entries say which of its CPUs it has while some are offline.
        let (min_cpus, spanning) = (1, true);
        let spec =
            Spec { class, policy: Policy::Gang, weight, min_cpus, spanning, ..Spec::new(cpus) };
        self.enter(now, job, name, owner_uid, spec)?;
        self.forget_earlier_part(job);
        self.job_mut(job)?.nonce = Some(nonce);
        self.give_entries().inspect_err(|_| drop(self.end(job)))
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
        // Those whose part is not here yet are held to the same rules: parts come one by one.
        Entries::new(agreed.iter().map(|of| of.list(|_, _| true)))?;
        let before = std::mem::replace(&mut self.agreed, agreed);
        self.give_entries().inspect_err(|_| self.agreed = before)
    }

    /// Entries begin by the clock. Those before them name nobody from then on.
    pub(crate) fn follow_entries_that_began(&mut self) {
        if self.entries_over != self.count_entries_over() {
            let given = self.give_entries();
            debug_assert!(given.is_ok(), "entries were checked as they came");
        }
    }

    /// How many of the lists are over in each slice that plans may be made for from now on.
    fn count_entries_over(&self) -> usize {
        let config = self.config();
        let now_ns = self.step_began.utc_ns;
        // After a step of the clock, plans begin with a period. After a hang they begin where the
        // last ones stood.
        let first_ns = now_ns - now_ns % config.gap.period_ns;
        let first = slices::slice_at(config, first_ns.min(self.schedule.stands_until_ns()));
        let begun = self.agreed.iter().take_while(|list| list.from_slice <= first);
        begun.count().saturating_sub(1)
    }

    /// Hands the schedule the entries whose part is here, and which are not over.
    pub(crate) fn give_entries(&mut self) -> Result<(), Refused> {
        let jobs = &self.jobs;
        let is_here = |job: JobId, nonce: &String| {
            jobs.get(&job).is_some_and(|job| job.nonce.as_ref() == Some(nonce))
        };
        let over = self.count_entries_over();
        let lists = self.agreed.iter().skip(over).map(|of| of.list(is_here));
        self.schedule.apply(Event::Entries(Entries::new(lists)?))?;
        self.entries_over = over;
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
