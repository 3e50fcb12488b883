//! Parts of jobs that span hosts, and the entries by which they have slots.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use gang_conductor::{AgreedEntries, Eligibility, Part, Refused};
use gang_schedule::{
    Class, CpuSet, Entry, JobId, Plan, Readiness, Refusal, Unplaceable, clock as slices,
    matrix::{Rows, frame},
};
use gang_timetable::{Group, Standing};

use super::{Daemon, Died, USERS, World, check::SETTLED_NS};

/// So many spanning jobs can have a part here. The registry has more jobs than that.
const PARTS: u16 = 4;
const NAMED: u64 = PARTS as u64 + 2;

/// Numbers of spanning jobs were given so often.
const NONCES: [&str; 3] = ["first", "second", "third"];

fn numbers() -> impl Iterator<Item = JobId> {
    (0..NAMED).map(|at| JobId(JobId::FIRST_SPANNING.0 + at))
}

/// The entries of the list that is in force in a slice.
fn in_force(given: &[AgreedEntries], slice: u64) -> Option<&AgreedEntries> {
    given.iter().rev().find(|list| list.from_slice <= slice)
}

fn names(list: &AgreedEntries, job: JobId, nonce: &str) -> bool {
    let is_it = |(entry, of): &(Entry, String)| {
        let is_empty = entry.rows.is_empty() || entry.cpus.is_empty();
        entry.job == job && of == nonce && !is_empty
    };
    list.entries.iter().any(is_it)
}

/// Random entries: those of a row have different CPUs.
fn entries(random: &mut Rng, rows: u32, cpus: u32, daemon: &Daemon) -> Vec<(Entry, String)> {
    let mut taken = vec![CpuSet::new(); rows as usize];
    let mut entries = Vec::new();
    for job in numbers() {
        if random.u8(..) >= 160 {
            continue;
        }
        let (of_cpus, of_rows) = (random.u32(..), random.u32(..));
        let cpus: CpuSet = (0..cpus).filter(|cpu| (of_cpus >> cpu) & 1 == 1).collect();
        let is_free = |row: &u32| taken[*row as usize].is_disjoint(&cpus);
        let rows = (0..rows).filter(|row| of_rows % 3 == 0 || (of_rows >> row) & 1 == 1);
        let rows: Rows = rows.filter(is_free).collect();
        for row in rows.iter() {
            taken[row as usize] = taken[row as usize].union(&cpus);
        }
        let known = daemon.core.jobs().get(&job).and_then(|job| job.nonce.clone());
        let other = NONCES[random.usize(..NONCES.len())].to_owned();
        let nonce = known.filter(|_| random.u8(..) < 200).unwrap_or(other);
        entries.push((Entry { job, rows, cpus }, nonce));
    }
    entries
}

impl Daemon {
    /// Whether entries name a part from a slice on.
    fn is_named(&self, job: JobId, nonce: &str, slice: u64) -> bool {
        let later = self.given.iter().filter(|list| list.from_slice > slice);
        in_force(&self.given, slice).into_iter().chain(later).any(|it| names(it, job, nonce))
    }

    /// The slots that entries give to parts in a slice, as things are now.
    fn due(&self, slice: u64) -> BTreeMap<JobId, CpuSet> {
        let schedule = self.core.schedule();
        let online = schedule.topology().set();
        let Some(list) = in_force(&self.given, slice) else { return BTreeMap::new() };
        let row = frame::row_at(schedule.config(), list.frame, slice);
        let is_due = |(entry, nonce): &&(Entry, String)| {
            let nonce_here = self.core.jobs().get(&entry.job).and_then(|job| job.nonce.as_ref());
            let Some(spec) = schedule.spec(entry.job) else { return false };
            let allowed = &spec.allowed;
            entry.rows.contains(row)
                && !entry.cpus.is_empty()
                && nonce_here == Some(nonce)
                && schedule.readiness(entry.job) == Some(Readiness::Runnable)
                && entry.cpus.is_subset(&allowed.of(online))
                && allowed.bound().iter().all(|it| !it.cpus.is_disjoint(&entry.cpus))
        };
        let due = list.entries.iter().filter(is_due);
        due.map(|(entry, _)| (entry.job, entry.cpus.clone())).collect()
    }
}

impl World {
    /// The registry wants a part here. It may have a process at once.
    pub(super) fn enter_part(&mut self, a: u16, b: u16) -> Result<(), Died> {
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let job = JobId(JobId::FIRST_SPANNING.0 + u64::from(a % PARTS));
        let nonce = NONCES[usize::from(b) % NONCES.len()].to_owned();
        let owner_uid = USERS[usize::from(a / PARTS) % USERS.len()];
        let class = Class::ALL[usize::from(b / 3) % Class::ALL.len()];
        let (weight, cpus) = (u32::from(b % 400) + 1, u32::from(b % 5) + 1);
        let name = "part".to_owned();
        let part = Part { job, nonce: nonce.clone(), name, owner_uid, class, weight, cpus };
        daemon.core.begin_step(now);
        let before = daemon.core.jobs().get(&job).cloned();
        // Remains of an earlier part of that number are cleared away first. Its orders lead to its
        // own group, which looks like that of the next part here.
        let is_behind = daemon.followed().is_behind || !daemon.orders.is_empty();
        if daemon.remains.iter().any(|(_, record)| record.id == job.0)
            || before.is_none() && is_behind && daemon.had_parts.contains(&job)
        {
            return Ok(());
        }
        let is_full = daemon.core.admit(owner_uid).is_err();
        let is_planned = daemon.core.planned_gangs().contains(&job);
        let entered = daemon.core.enter_part(now, part);
        let after = daemon.core.jobs().get(&job);
        let is_right = match (&before, &entered) {
            (Some(before), Ok(())) => {
                let is_same = after.map(|it| (&it.spec, &it.name, it.owner_uid))
                    == Some((&before.spec, &before.name, before.owner_uid));
                before.nonce.as_ref() == Some(&nonce) && is_same
            }
            (Some(before), Err(Refused::Policy(Refusal::DuplicateJob { .. }))) => {
                before.nonce.as_ref() != Some(&nonce)
                    && after.map(|it| &it.nonce) == Some(&before.nonce)
            }
            (None, Err(Refused::NotPermitted { .. })) => is_planned && after.is_none(),
            (None, Ok(())) => after.is_some_and(|it| it.nonce.as_ref() == Some(&nonce)),
            (None, Err(Refused::LimitReached { .. })) => is_full && after.is_none(),
            _ => false,
        };
        if !is_right {
            let what = format!("a part is entered once: {job} of {nonce}: {entered:?}");
            self.machine.borrow_mut().violations.push(what);
        }
        if entered.is_ok() && before.is_none() {
            daemon.had_parts.insert(job);
            self.users.insert(daemon.core.account_of(owner_uid));
            // Its group is a new one.
            self.machine.borrow_mut().model.groups.remove(&Group::Job(job));
        }
        if entered.is_ok() && before.is_none() && b % 2 == 0 {
            self.machine.borrow_mut().spawn(owner_uid, 0, None);
            self.attach(job, b)?;
        }
        Ok(())
    }

    /// Hosts agree on other entries. Some begin soon, and some have begun.
    pub(super) fn give_entries(&mut self, a: u16, b: u16) {
        let now = self.now;
        let cpus = self.topology.cpus().len() as u32;
        let Some(daemon) = &mut self.daemon else { return };
        let mut random = Rng::with_seed(u64::from(a) << 16 | u64::from(b));
        daemon.core.begin_step(now);
        let open = daemon.core.first_open_slice(now);
        let mut from_slice = match random.u8(..4) {
            // As hosts that know how late a change may come.
            0 => open,
            _ => (open + random.u64(..12)).saturating_sub(8),
        };
        let mut given = Vec::new();
        for _ in 0..random.usize(1..=3) {
            let frame = random.u32(1..=16);
            let entries = entries(&mut random, frame, cpus, daemon);
            given.push(AgreedEntries { from_slice, frame, entries });
            from_slice += random.u64(1..40);
        }
        match random.u8(..16) {
            0 => given.extend(given.last().cloned()),
            1 => {
                // None of them has a part yet.
                let entry = |JobId(job)| {
                    let (job, rows) = (JobId(job + NAMED), [0].into_iter().collect());
                    (Entry { job, rows, cpus: [0].into_iter().collect() }, String::new())
                };
                let overlap = numbers().take(2).map(entry).collect();
                given.last_mut().into_iter().for_each(|it| it.entries.clone_from(&overlap));
            }
            _ => return self.agree_on(given, open),
        }
        self.refuse_entries(given);
    }

    /// Entries that hosts cannot have agreed on change nothing.
    fn refuse_entries(&mut self, wrong: Vec<AgreedEntries>) {
        let Some(daemon) = &mut self.daemon else { return };
        let before = daemon.core.schedule().entries().clone();
        let refused = daemon.core.follow_entries(wrong).is_err();
        if !refused || *daemon.core.schedule().entries() != before {
            let what = "entries that are no such are refused, and change nothing";
            self.machine.borrow_mut().violations.push(what.into());
        }
    }

    /// Hosts agree on that no job has a part here.
    pub(super) fn end_entries(&mut self) {
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return };
        daemon.core.begin_step(now);
        let open = daemon.core.first_open_slice(now);
        self.agree_on(Vec::new(), open);
    }

    fn agree_on(&mut self, given: Vec<AgreedEntries>, open: u64) {
        let Some(daemon) = &mut self.daemon else { return };
        let config = daemon.core.config();
        let mut wrong = Vec::new();
        if slices::slice_start(config, open) < self.now.utc_ns {
            wrong.push(format!("the first open slice is to come: {open}"));
        }
        let before = daemon.core.schedule().entries().clone();
        match daemon.core.follow_entries(given.clone()) {
            Ok(()) => daemon.given = given,
            Err(refused) => wrong.push(format!("entries are followed: {refused:?}, {given:?}")),
        }
        let is_changed = *daemon.core.schedule().entries() != before;
        let last = daemon.core.schedule().plans().last().map(|plan| plan.slice);
        if is_changed && !daemon.has_old_plans && last >= Some(open) {
            wrong.push(format!("from slice {open} on a change shows, and plans stand to {last:?}"));
        }
        self.machine.borrow_mut().violations.extend(wrong);
    }

    /// The parts of spanning jobs have the CPUs of their entries in each of their rows, and no
    /// other slot; nobody else has these CPUs then.
    pub(super) fn check_entries(&self, plans: &[Plan], resume_ns: u64) {
        let Some(daemon) = &self.daemon else { return };
        let schedule = daemon.core.schedule();
        let made = slices::slice_at(schedule.config(), resume_ns);
        let mut wrong = Vec::new();
        for plan in plans.iter().filter(|plan| plan.slice >= made) {
            let due = daemon.due(plan.slice);
            let oracle = schedule.spanning_slots(plan.slice).into_iter();
            let oracle: BTreeMap<JobId, CpuSet> = oracle.map(|it| (it.job, it.cpus)).collect();
            let is_part =
                |job: JobId| daemon.core.jobs().get(&job).is_some_and(|job| job.nonce.is_some());
            let (parts, local): (Vec<_>, Vec<_>) =
                plan.row.iter().partition(|slot| is_part(slot.job));
            let has = parts.into_iter().map(|slot| (slot.job, slot.cpus.clone()));
            let has: BTreeMap<JobId, CpuSet> = has.collect();
            if has != due || oracle != due {
                wrong.push(format!(
                    "a part has the CPUs of its entries: in slice {} parts have {has:?}, and are \
                     due {due:?}; the schedule says {oracle:?}",
                    plan.slice
                ));
            }
            let taken = |cpus: &CpuSet| due.values().any(|of| !of.is_disjoint(cpus));
            if let Some(slot) = local.into_iter().find(|slot| taken(&slot.cpus)) {
                let slice = plan.slice;
                wrong.push(format!("CPUs of a spanning slot are no other's: {slot:?} in {slice}"));
            }
        }
        self.machine.borrow_mut().violations.extend(wrong.into_iter().take(4));
    }

    /// A part that no entries name is left to Linux, once the timetables in force know it; one that
    /// they name waits for its slots.
    pub(super) fn check_parts(&mut self) {
        let Some(daemon) = &self.daemon else { return self.unnamed.clear() };
        let core = &daemon.core;
        let slice = slices::slice_at(core.config(), self.now.utc_ns);
        let is_steady = self.now.monotonic_ns > self.stepped_until_ns;
        let (mut wrong, mut unnamed) = (Vec::new(), BTreeSet::new());
        let lists = core.schedule().entries().lists();
        let gone = lists.flat_map(|it| &it.entries).find(|it| !core.jobs().contains_key(&it.job));
        if let Some(gone) = gone {
            wrong.push(format!("the schedule has entries of parts that are here alone: {gone:?}"));
        }
        for (id, job) in core.jobs() {
            let Some(nonce) = &job.nonce else { continue };
            let eligibility = core.eligibility(job);
            if daemon.is_named(*id, nonce, slice) {
                let has_none = job.unplaceable == Some(Unplaceable::NoEntries);
                if has_none && is_steady {
                    wrong.push(format!("a part that has entries waits for them: {id}"));
                }
                continue;
            }
            let keeps_out = match eligibility {
                Eligibility::Suspended
                | Eligibility::Starting
                | Eligibility::TooManyThreads
                | Eligibility::NotScheduled => continue,
                // One that was in its slot stays filling until the next plans.
                Eligibility::Asleep => {
                    let can_fill = self.backend.can_fill() && core.config().fill;
                    let is_left = job.standing == Standing::Released
                        || (job.standing == Standing::Filling && can_fill);
                    !is_left
                }
                Eligibility::Unplaceable => job.standing != Standing::Released,
                Eligibility::TooFewCpus | Eligibility::TakesTurns => true,
            };
            if !keeps_out {
                continue;
            }
            unnamed.insert(*id);
            let since_ns = *self.unnamed.entry(*id).or_insert(self.now.monotonic_ns);
            let since_ns = since_ns.max(self.held_up_until_ns).max(self.stepped_until_ns);
            if since_ns + SETTLED_NS < self.now.monotonic_ns {
                wrong.push(format!(
                    "a part without entries is left to Linux: {id} is {eligibility:?} and {:?}",
                    job.standing
                ));
            }
        }
        self.unnamed.retain(|id, _| unnamed.contains(id));
        self.machine.borrow_mut().violations.extend(wrong);
    }
}
