//! The life of a job: what may happen to it in which state.
//!
//! Problem: requests of clients, findings of surveys and deeds of a job's own programs come in any
//! order, and a daemon may end between any two of them.
//!
//! Approach: one [table](cell) of states and moments, in which every case stands. A transition is a
//! function of [`Conductor`] without side effects; where it changes what must be on file, it
//! returns the record. Its effects on the kernel are actions, which may be done twice
//! ([`crate::Effects`]).
//!
//! Properties: a moment that the table refuses changes nothing. The record that a transition
//! returns is all that is needed to release the job as it is after the transition.

mod singles;
mod table;

use std::{collections::BTreeSet, path::Path};

use gang_schedule::{Allowed, Event, JobId, Policy, Spec, UserId};
use gang_timetable::{
    Action, Attributes, Controls, Members, Seen, Signal, Standing,
    record::{Confinement, JoinedProcess, Placement, Record},
};

use crate::{
    Auto, Conductor, Eligibility, Home, Job, Measure, Now, Refused, Suspension,
    admission::Resources,
};

pub(crate) use table::STANDS_STILL;
pub use table::{Cell, Moment, State, cell, permit};

/// The record that is to be on file now, of a job that has processes.
pub type Filed = Result<Option<Record>, Refused>;

/// The most single threads of one job: each is looked at by itself before every stretch that is
/// planned.
pub const SINGLES_MAX: usize = 256;

/// Groups from which the processes of a job may come, that of the first one included: all are on
/// file, and the file is written anew for each process that comes.
pub const ORIGINS_MAX: usize = 64;

/// Processes or threads that leave their job.
#[derive(Clone, Debug)]
pub struct Leaver {
    /// Its threads, of those that the job knew, in order of number.
    pub known: Vec<u32>,
    /// Gives back to them what they had.
    pub actions: Vec<Action>,
    /// The attributes that its other threads have by default; absent where nothing was done to
    /// those of any.
    pub normal: Option<Attributes>,
    /// Where it came from, if not from where the first one of the job did.
    pub joined: Option<JoinedProcess>,
    /// Timetables of this generation do not have it any more.
    pub gone_from: u64,
    /// The record that is on file meanwhile.
    pub record: Option<Record>,
}

impl Conductor {
    /// The first process of a job, with its start time, is on its way to where the job lives. The
    /// job takes part in the schedule meanwhile.
    pub fn attach(&mut self, now: Now, id: JobId, home: Home, process: (u32, u64)) -> Filed {
        let job = self.job(id)?;
        permit(job, Moment::Attach)?;
        self.move_in(now, id, home)?;
        let job = self.job_mut(id)?;
        if let Some(home) = &mut job.home {
            home.coming = Some(process);
        }
        Ok(job.record())
    }

    /// The first process of a job is where the job lives.
    pub fn arrive(&mut self, id: JobId) -> Filed {
        let job = self.job_mut(id)?;
        if permit(job, Moment::Arrive)? {
            job.home.as_mut().into_iter().for_each(|home| home.coming = None);
        }
        let record = job.record();
        // Processes that it has started on its way are members from now on.
        self.members_came(id, &[])?;
        Ok(record)
    }

    /// Members that are there join a job that has none. A job that has members stays as it is.
    pub fn join(&mut self, now: Now, id: JobId, home: Home) -> Filed {
        self.move_in(now, id, home)
    }

    fn move_in(&mut self, now: Now, id: JobId, home: Home) -> Filed {
        let job = self.job_mut(id)?;
        if let Some(own) = &job.home {
            if own.is_of_threads() != home.is_of_threads() {
                return Err(Refused::mixed(id, own.is_of_threads()));
            }
            return Ok(None);
        }
        if home.is_of_threads() {
            job.permit_threads(&format!("add single threads to job {id}"))?;
        }
        job.home = Some(home);
        job.activity.last_used_ns = now.monotonic_ns;
        self.wake(id)?;
        self.measure(Measure::Watch(id));
        Ok(self.job(id)?.record())
    }

    /// A job that an earlier daemon left. One that is refused is not there.
    pub fn restore(&mut self, now: Now, record: &Record, members: Members) -> Result<(), Refused> {
        let job = JobId(record.id);
        let unreadable = |field: &'static str| Refused::Unreadable { job, field };
        let spec = Spec {
            // Its owner's, as it enters.
            user: UserId::default(),
            class: record.class.parse().map_err(|_| unreadable("class"))?,
            policy: record.policy.parse().map_err(|_| unreadable("policy"))?,
            weight: record.weight,
            cpus: record.cpus,
            min_cpus: record.min_cpus,
            allowed: Allowed::anywhere(),
            quota: None,
            overhead: 0,
            spanning: record.nonce.is_some(),
        };
        if let Some(there) = self.jobs.get(&job) {
            permit(there, Moment::Restore)?;
        }
        self.enter(now, job, record.name.clone(), record.owner_uid, spec)?;
        let entered = self.job_mut(job)?;
        entered.registered_at_ns = record.registered_at_ns;
        entered.nonce.clone_from(&record.nonce);
        entered.slurm_job.clone_from(&record.slurm_job);
        let restored =
            self.give_entries().and_then(|()| self.restore_members(now, record, members));
        if restored.is_err() {
            self.end(job);
        }
        restored
    }

    fn restore_members(
        &mut self,
        now: Now,
        record: &Record,
        members: Members,
    ) -> Result<(), Refused> {
        let job = JobId(record.id);
        let home = Home {
            joined: record.joined.clone(),
            ..Home::new(
                record.placement.clone(),
                members,
                record.normal.into(),
                record.affinity.clone(),
            )
        };
        self.join(now, job, home)?;
        let suspension = Suspension::on_file(record);
        match suspension {
            Suspension::None => {}
            _ if record.suspended_by_group => drop(self.suspend_with_group(now, job, suspension)?),
            _ => drop(self.suspend(now, job, suspension)?),
        }
        self.set_signals(job, record.signals)?;
        self.restore_short_lived(job);
        let restored = self.job_mut(job)?;
        let Record { mem_bytes, disk_bytes, .. } = *record;
        restored.resources = Resources { mem_bytes, disk_bytes };
        restored.auto = record.auto.then(Auto::default);
        Ok(())
    }

    /// A process is going to come from elsewhere than the first one; `members` are there now.
    pub fn expect(&mut self, id: JobId, joined: JoinedProcess, members: &BTreeSet<u32>) -> Filed {
        let job = self.job_mut(id)?;
        if permit(job, Moment::Follow)? {
            if let Some(home) = &mut job.home {
                home.joined.retain(|other| members.contains(&other.pid));
                let origins: BTreeSet<_> = home.joined.iter().map(origins_of).collect();
                let known = origins.len() + 1;
                if known >= ORIGINS_MAX && !origins.contains(&origins_of(&joined)) {
                    let limit = "groups that the processes of a job come from";
                    return Err(Refused::LimitReached { limit, maximum: ORIGINS_MAX });
                }
                home.joined.push(joined);
            }
        }
        Ok(job.record())
    }

    /// Members of a job came that the timetables in force do not have, or have otherwise; this is
    /// what those had before of which it is not what the job's first thread had.
    pub fn members_came(&mut self, id: JobId, before: &[Seen]) -> Result<(), Refused> {
        let job = self.job_mut(id)?;
        if let Some(home) = &mut job.home {
            before.iter().for_each(|seen| home.members.remember(seen));
        }
        self.saw_members_of(id);
        self.has_new_members.insert(id);
        self.schedule.renew();
        Ok(())
    }

    /// A read found members of a job that are not brought yet where it stands.
    pub fn found_members(&mut self, id: JobId) {
        self.has_new_members.insert(id);
    }

    /// A process comes into a job without a cgroup; it started then.
    pub fn follow_in_tree(&mut self, id: JobId, process: (u32, u64)) -> Filed {
        let job = self.job_mut(id)?;
        if permit(job, Moment::Follow)? {
            if let Some(Placement::Tree { processes }) =
                job.home.as_mut().map(|home| &mut home.placement)
            {
                processes.push(process);
            }
        }
        let record = job.record();
        self.members_came(id, &[])?;
        Ok(record)
    }

    /// The processes that a job without a cgroup has now.
    pub fn set_tree(&mut self, id: JobId, processes: Vec<(u32, u64)>) -> Filed {
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(None) };
        if let Some(home) = job.home.as_mut().filter(|_| !processes.is_empty()) {
            let mut all = processes;
            if let Placement::Tree { processes } = &home.placement {
                let leaving = processes.iter().filter(|(pid, _)| home.leaving.contains(pid));
                all.extend(leaving);
            }
            home.placement = Placement::Tree { processes: all };
        }
        Ok(job.record())
    }

    /// A process, which started then and of which these are threads, leaves its job. The process
    /// stays on file until it [has left](Conductor::has_left).
    pub fn detach(
        &mut self,
        id: JobId,
        process: (u32, u64),
        tids: &[u32],
    ) -> Result<Leaver, Refused> {
        let (pid, _) = process;
        let job = self.job_mut(id)?;
        let gone = Refused::NoSuchProcess(pid);
        permit(job, Moment::Detach).map_err(|_| gone.clone())?;
        let home = job.home.as_mut().ok_or(gone)?;
        let mut actions = Vec::new();
        let normal = home.members.default_of(pid);
        let known = home.members.let_go(tids, &mut actions);
        if let Placement::Tree { processes } = &mut home.placement {
            // The process is found by itself, also once its parents have ended.
            processes.retain(|other| *other != process);
            processes.push(process);
            // The next slot would have continued it.
            actions.push(Action::Signal { job: id, pid, signal: Signal::Continue });
        }
        let joined = home.joined.iter().find(|it| it.pid == pid).cloned();
        home.leaving.push(pid);
        // The process gets the job's last signal.
        let listens = home.listeners.contains(&pid);
        home.listeners.retain(|&listener| listener != pid);
        self.order(actions.iter().cloned());
        let last = Action::Signal { job: id, pid, signal: Signal::SlotBegins };
        self.order(listens.then_some(last));
        // The timetables in force still have its threads.
        self.schedule.renew();
        let record = self.job(id)?.record();
        Ok(Leaver { known, actions, normal, joined, gone_from: self.generation + 1, record })
    }

    /// A process that was detached is out of the job's groups, or could not be moved out of them.
    pub fn has_left(&mut self, id: JobId, pid: u32, is_out: bool) -> Filed {
        let job = self.job_mut(id)?;
        let mut can_freeze = false;
        if permit(job, Moment::Left)? {
            if let Some(home) = &mut job.home {
                home.leaving.retain(|&leaver| leaver != pid);
                home.joined.retain(|joined| joined.pid != pid || !is_out);
                if let (Placement::Tree { processes }, true) = (&mut home.placement, is_out) {
                    processes.retain(|(other, _)| *other != pid);
                }
                can_freeze = home.leaving.is_empty() && home.members.all_left();
            }
        }
        let record = job.record();
        if can_freeze {
            self.has_new_members.insert(id);
            self.schedule.renew();
        }
        self.find_in_trees();
        Ok(record)
    }

    /// Processes are of no job any more: a job without a cgroup that has a parent of theirs has
    /// them from now on. One that stands still is read for that.
    fn find_in_trees(&mut self) {
        for (&id, job) in self.jobs.iter().filter(|(_, job)| job.standing == Standing::Paused) {
            let Some(home) = &job.home else { continue };
            if let Placement::Tree { .. } = home.placement {
                self.stopped.insert(id);
                self.schedule.renew();
            }
        }
    }

    /// Lets a job take part in the schedule.
    pub fn wake(&mut self, id: JobId) -> Result<(), Refused> {
        self.set_awake(id, Moment::Wake)
    }

    /// Has a job take no part until it wakes.
    pub fn sleep(&mut self, id: JobId) -> Result<(), Refused> {
        self.set_awake(id, Moment::Sleep)
    }

    fn set_awake(&mut self, id: JobId, moment: Moment) -> Result<(), Refused> {
        let awake = moment == Moment::Wake;
        let job = self.job_mut(id)?;
        if !permit(job, moment)? {
            return Ok(());
        }
        job.activity.awake = awake;
        let is_gang = job.spec.policy == Policy::Gang;
        self.schedule.apply(match awake {
            true => Event::Woke { job: id },
            false => Event::Slept { job: id },
        })?;
        if !awake && is_gang {
            self.measure(Measure::AwaitWaking(id));
        }
        Ok(())
    }

    /// The kernel saw threads of these jobs that want to run.
    pub fn woke(&mut self, now: Now, jobs: &[JobId]) {
        // One that stands still out of its slots is let go on as it falls asleep: that was it.
        if !self.config().fill {
            return;
        }
        let machine = self.machine();
        for &id in jobs {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if job.eligibility(machine) != Eligibility::Asleep {
                continue;
            }
            job.activity.is_wanted(now.monotonic_ns, job.in_slot_ns);
            let _ = self.wake(id);
        }
    }

    /// Somebody else has released all jobs, while actions may have been under way.
    pub fn were_released(&mut self) {
        self.state_anew();
    }

    /// States anew how each job stands, also those that are suspended and would run on.
    pub(crate) fn state_anew(&mut self) {
        self.has_new_members.extend(self.jobs.keys());
        self.published.forget();
        self.schedule.renew();
    }

    /// Whether the policy of a job is `auto`, and what came of it.
    pub fn set_auto(&mut self, id: JobId, auto: Option<Auto>) -> Filed {
        let job = self.job_mut(id)?;
        permit(job, Moment::Change)?;
        job.auto = auto;
        Ok(job.record())
    }

    /// The job of Slurm that a job is of.
    pub fn set_slurm_job(&mut self, id: JobId, slurm_job: String) -> Filed {
        let job = self.job_mut(id)?;
        permit(job, Moment::Change)?;
        job.slurm_job = Some(slurm_job);
        Ok(job.record())
    }

    /// Whether the processes of a job hear of its slots by signals.
    pub fn set_signals(&mut self, id: JobId, signals: bool) -> Filed {
        let job = self.job_mut(id)?;
        permit(job, Moment::SetSignals)?;
        job.permit_on_processes(
            signals,
            "announce slots by signals",
            "signals go to whole processes",
        )?;
        job.signals = signals;
        let mut last = Vec::new();
        if let Some(home) = job.home.as_mut().filter(|_| !signals) {
            last = std::mem::take(&mut home.listeners);
        }
        self.order(last.into_iter().map(|pid| Action::Signal {
            job: id,
            pid,
            signal: Signal::SlotBegins,
        }));
        self.schedule.renew();
        Ok(self.job(id)?.record())
    }

    /// The memory of a job is limited there, or is going to be.
    pub fn confine(&mut self, id: JobId, to: Option<Confinement>, is_enforced: bool) -> Filed {
        let job = self.job_mut(id)?;
        permit(job, Moment::Confine)?;
        job.mem_is_enforced = is_enforced;
        if let Some(home) = &mut job.home {
            home.placement.set_confinement(to);
        }
        Ok(job.record())
    }

    /// The processes of a job are going to be there.
    pub fn expect_at(&mut self, id: JobId, placement: Placement) -> Filed {
        let job = self.job_mut(id)?;
        if permit(job, Moment::Move)? {
            if let Some(home) = &mut job.home {
                home.live_at(placement);
            }
        }
        Ok(job.record())
    }

    /// A job lives elsewhere, where it has these controls, and is scheduled by another policy. Its
    /// members are the same.
    pub fn moved(
        &mut self,
        id: JobId,
        policy: Policy,
        placement: Placement,
        controls: Controls,
    ) -> Filed {
        let is_there = permit(self.job_mut(id)?, Moment::Moved)?;
        // Where the CPUs do not do for it any more, nothing has changed.
        self.change(id, |spec, _| spec.policy = policy)?;
        let job = self.job_mut(id)?;
        if is_there {
            (job.regroup, job.regroup_failed_ns, job.way_by_limits) = (None, None, None);
            if let Some(home) = &mut job.home {
                home.live_at(placement);
                // A tree has its members in its processes, wherever they are.
                if matches!(home.placement, Placement::Cgroup { .. }) {
                    home.members.begin_move(controls);
                }
            }
        }
        let record = job.record();
        self.measure(Measure::Follow(id));
        // Threads that its members have started meanwhile have what these had, and are read now.
        self.members_came(id, &[])?;
        Ok(record)
    }

    /// The programs of a job read of its slots on a page from now on.
    pub fn open_page(&mut self, id: JobId) -> Result<(), Refused> {
        let (slice_ns, machine) = (self.config().slice_ns, self.machine());
        let job = self.job_mut(id)?;
        permit(job, Moment::OpenPage)?;
        job.has_page = true;
        self.slots_on_pages.remove(&id);
        let job = self.job_mut(id)?;
        let word = job.word(slice_ns, machine);
        self.order([Action::Page { job: id, word }]);
        self.schedule.renew();
        Ok(())
    }

    /// A job is over.
    pub fn end(&mut self, id: JobId) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.confined.remove(&id);
        self.slots_on_pages.remove(&id);
        self.find_in_trees();
        self.measure(Measure::Forget(id));
        let known = self.schedule.apply(Event::Departed { job: id });
        debug_assert!(known.is_ok(), "jobs here and in the schedule are the same");
        if job.nonce.is_some() {
            let given = self.give_entries();
            debug_assert!(given.is_ok(), "entries were checked as they came");
        }
        Some(job)
    }
}

/// The groups that a process comes from.
fn origins_of(joined: &JoinedProcess) -> [Option<&Path>; 3] {
    let JoinedProcess { pid: _, origin, cpu_origin, memory_origin } = joined;
    [Some(origin), cpu_origin.as_deref(), memory_origin.as_deref()]
}
