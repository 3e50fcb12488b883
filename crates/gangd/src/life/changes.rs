//! Jobs that come, and what is changed of them while they run.
//!
//! Problem: what a client asks for has several parts, in the schedule, in the kernel and on file, and any
//! of them may be refused.
//!
//! Approach: what may be refused is asked first, so that a refusal leaves everything as it was. The kernel's
//! part is on file before it is done, and off file after it is undone.

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use gang_conductor::{
    Candidate, Job,
    admission::{Resources, Stock},
};
use gang_engine::{
    bound::{Bound, Kernel, Linux, ProcessHandle},
    release, thread,
};
use gang_linux::{cgroup::Group, memory, process};
use gang_protocol::v1;
use gang_schedule::{Class, JobId, Spec};
use gang_timetable::{before_gangd, record::Placement};

use crate::{
    conduct::state::{Leaver, State},
    daemon::{Daemon, Peer},
    error::Error,
    life::{admission::stock_of_machine, prover::Prover},
};

/// The longest that a process is waited for that leaves its job: slices may be long.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// For how long none of its threads may come that has what its parent had in the job.
const STAYS_FOR: Duration = Duration::from_millis(25);

/// The longest that who registers a job waits for those that are over; less than a client waits for an answer.
const CLEARED_WITHIN: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is to change of a job that runs; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub class: Option<Class>,
    pub policy: Option<v1::Policy>,
    pub cpus: Option<u32>,
    pub min_cpus: Option<u32>,
    pub weight: Option<u32>,
    /// 0 asks for nothing.
    pub mem_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
}

/// What a change that fails goes back to.
#[derive(Clone, Debug)]
struct Before {
    spec: Spec,
    policy: v1::Policy,
    resources: Resources,
}

impl Change {
    /// Refuses it where the class may not be raised, or the job could not be what it would become.
    /// What the job is now is returned.
    fn permitted(&self, state: &State, id: JobId, may_raise: bool) -> Result<Before, Error> {
        let job = state.job(id)?;
        let now = job.spec.class;
        if let Some(class) = self.class.filter(|&class| class > now && !may_raise) {
            let reason = format!("it is in {now} now; only administrators may raise it");
            return Err(Error::not_permitted(format!("put job {id} into {class}"), reason));
        }
        let stays = self.policy == Some(v1::Policy::auto) && job.auto.is_some();
        let policy = self.policy.clone().filter(|_| !stays);
        state.core.changed(id, |spec, _| {
            self.put_terms(spec);
            spec.policy = policy.map_or(spec.policy, Into::into);
        })?;
        let policy = if job.auto.is_some() { v1::Policy::auto } else { job.spec.policy.into() };
        Ok(Before { spec: job.spec.clone(), policy, resources: job.resources })
    }

    fn has_resources(&self) -> bool {
        self.mem_bytes.is_some() || self.disk_bytes.is_some()
    }

    /// Everything but the policy, which takes more than a change of the schedule.
    fn put_terms(&self, spec: &mut Spec) {
        spec.class = self.class.unwrap_or(spec.class);
        spec.cpus = self.cpus.unwrap_or(spec.cpus);
        // A job that asks for fewer CPUs than it needed so far needs fewer.
        spec.min_cpus = self.min_cpus.unwrap_or(spec.min_cpus.min(spec.cpus));
        spec.weight = self.weight.unwrap_or(spec.weight);
    }

    fn resources(&self, now: Resources) -> Resources {
        Resources {
            mem_bytes: self.mem_bytes.unwrap_or(now.mem_bytes),
            disk_bytes: self.disk_bytes.unwrap_or(now.disk_bytes),
        }
    }

    /// The change that undoes this one, but for the policy: of what it does not touch, another
    /// client may have made something else meanwhile.
    fn back(&self, Before { spec, resources, .. }: &Before) -> Change {
        Change {
            class: self.class.map(|_| spec.class),
            policy: None,
            cpus: self.cpus.map(|_| spec.cpus),
            min_cpus: self.cpus.or(self.min_cpus).map(|_| spec.min_cpus),
            weight: self.weight.map(|_| spec.weight),
            mem_bytes: self.mem_bytes.map(|_| resources.mem_bytes),
            disk_bytes: self.disk_bytes.map(|_| resources.disk_bytes),
        }
    }
}

impl Daemon {
    /// Asks for a new job without processes. Where it needs memory or disk that is not there, it is
    /// refused, or waits for it as long as the client is there. `held` is what its processes have already.
    pub fn register(
        &self,
        wanted: &Candidate,
        held: Resources,
        waiting: Option<BorrowedFd<'_>>,
    ) -> Result<JobId, Error> {
        if !self.cleanup.has_room_within(CLEARED_WITHIN) {
            return Err(Error::Failed {
                operation: "register a job".into(),
                reason: "too many jobs that have ended are not cleared away yet; try again".into(),
            });
        }
        let enter = || {
            let wanted = wanted.clone();
            let job = self.conductor.ask(move |state| state.register(wanted))??;
            self.ids.take(job);
            Ok(job)
        };
        if wanted.resources.is_none() {
            return enter();
        }
        stock_of_machine(&self.roots.proc, &self.settings().scratch_dir)?
            .can_ever(wanted.resources)?;
        let needs = wanted.resources.less(held);
        self.queue.pass(needs, waiting, |ahead| {
            self.stock_after(None, ahead)?.admit(needs)?;
            enter()
        })
    }

    /// What the machine has of memory and disk, with what was promised to jobs.
    pub fn stock(&self) -> Result<Stock, Error> {
        self.stock_after(None, &[])
    }

    /// The same, but for one of the jobs, and with what those are going to get who wait.
    fn stock_after(&self, but: Option<JobId>, ahead: &[Resources]) -> Result<Stock, Error> {
        let mut stock = stock_of_machine(&self.roots.proc, &self.settings().scratch_dir)?;
        let promises = self.conductor.ask(move |state| {
            let others = state.core.jobs.values().filter(|job| Some(job.id) != but);
            let promised = others.filter(|job| !job.resources.is_none());
            let lives = |job: &Job| job.home.as_ref().map(|home| home.placement.clone());
            promised.map(|job| (job.resources, lives(job))).collect::<Vec<_>>()
        })?;
        for (resources, placement) in promises {
            let mem_bytes = placement.map_or(0, |at| self.cgroups.memory_used(&at));
            stock.promise(resources, Resources { mem_bytes, disk_bytes: 0 });
        }
        ahead.iter().for_each(|&other| stock.promise(other, Resources::default()));
        Ok(stock)
    }

    /// What a process has with its descendants.
    pub fn held_by_tree(&self, pid: u32) -> Resources {
        let pids = process::descendants(&self.roots.proc, pid).unwrap_or_default();
        let mem_bytes = memory::of_processes(&self.roots.proc, &pids);
        Resources { mem_bytes, disk_bytes: 0 }
    }

    /// What the processes of a cgroup have.
    pub fn held_by_group(&self, path: &str) -> Resources {
        let group = self.means.groups.as_ref().map(|root| root.join(path.trim_start_matches('/')));
        let pids = group.and_then(|group| Group::at(group).processes().ok()).unwrap_or_default();
        let mem_bytes = memory::of_processes(&self.roots.proc, &pids);
        Resources { mem_bytes, disk_bytes: 0 }
    }

    /// Changes a job while it runs: all that is asked, or nothing of it.
    ///
    /// The order of the steps: resources, which others wait for; then policy and the rest. A policy
    /// of none comes before the rest and one of gang after it, because the schedule may refuse in
    /// between what a gang asks for.
    pub fn set_job(self: &Arc<Self>, peer: Peer, job: JobId, change: Change) -> Result<(), Error> {
        self.permit(peer, job, "change a job")?;
        let moving = || self.policy_change.lock().unwrap_or_else(PoisonError::into_inner);
        let _moving = change.policy.is_some().then(moving);
        let (may_raise, asked) = (peer.is_administrator(), change.clone());
        let before = self.conductor.ask(move |state| asked.permitted(state, job, may_raise))??;
        let back = change.back(&before);
        self.set_resources(job, &change)?;
        let outcome = match &change.policy {
            None => self.set_terms(job, &change, may_raise),
            Some(v1::Policy::none) => self.set_policy(job, &v1::Policy::none).and_then(|()| {
                let outcome = self.set_terms(job, &change, may_raise);
                if outcome.is_err() {
                    self.put_back(job, self.set_policy(job, &before.policy));
                }
                outcome
            }),
            Some(policy) => self.set_terms(job, &change, may_raise).and_then(|()| {
                let outcome = self.set_policy(job, policy);
                if outcome.is_err() {
                    self.put_back(job, self.set_terms(job, &back, true));
                }
                outcome
            }),
        };
        if outcome.is_err() && back.has_resources() {
            let granted = change.resources(before.resources).mem_bytes;
            self.put_back(job, self.grant(job, &back, granted));
        }
        if change.policy == Some(v1::Policy::auto) && outcome.is_ok() {
            Prover::ensure(self);
        }
        outcome
    }

    /// A step was undone, or could not be.
    fn put_back(&self, job: JobId, undone: Result<(), Error>) {
        if let Err(error) = undone {
            tracing::warn!(%job, ?error, "a change that failed is not undone whole");
        }
    }

    /// Changes everything but policy and resources.
    fn set_terms(&self, job: JobId, change: &Change, may_raise: bool) -> Result<(), Error> {
        let change = change.clone();
        self.change_on_file(move |state| {
            change.permitted(state, job, may_raise)?;
            Ok(state.core.change(job, |spec, _| change.put_terms(spec))?)
        })
    }

    /// A running job asks for other memory or disk. It does not wait for it.
    fn set_resources(&self, job: JobId, change: &Change) -> Result<(), Error> {
        if !change.has_resources() {
            return Ok(());
        }
        self.queue.pass(Resources::default(), None, |ahead| {
            let before =
                self.conductor.ask(move |state| state.job(job).map(|job| job.resources))??;
            let after = change.resources(before);
            let more = after.where_more_than(before);
            if !more.is_none() {
                // What the job uses already is not free, and counts for it.
                let held = Resources { mem_bytes: self.memory_used(job)?, disk_bytes: 0 };
                let stock = self.stock_after(Some(job), ahead)?;
                stock.can_ever(more)?;
                stock.admit(more.less(held))?;
            }
            self.grant(job, change, before.mem_bytes)
        })?;
        self.queue.look_again();
        Ok(())
    }

    /// Promises a job other memory or disk; `mem_before` is the memory that the kernel keeps it to
    /// now.
    fn grant(&self, job: JobId, change: &Change, mem_before: u64) -> Result<(), Error> {
        let mem_after = change.mem_bytes.unwrap_or(mem_before);
        if mem_after != mem_before {
            self.confine(job, mem_after)?;
        }
        let to = change.clone();
        let changed = self.change_on_file(move |state| {
            Ok(state.core.change(job, |_, resources| *resources = to.resources(*resources))?)
        });
        if changed.is_err() && mem_after != mem_before {
            self.confine(job, mem_before)?;
        }
        changed
    }

    fn placement(&self, job: JobId) -> Result<Option<Placement>, Error> {
        self.conductor.ask(move |state| {
            let home = state.job(job)?.home.as_ref();
            Ok(home.map(|home| home.placement.clone()))
        })?
    }

    /// Memory that the processes of a job use.
    pub fn memory_used(&self, job: JobId) -> Result<u64, Error> {
        Ok(self.placement(job)?.map_or(0, |at| self.cgroups.memory_used(&at)))
    }

    /// Lets the kernel keep a job to so much memory, or to none (0 bytes), where it can. Refused where
    /// the job has more than that already, and the kernel cannot make it have less.
    pub fn confine(&self, job: JobId, mem_bytes: u64) -> Result<(), Error> {
        let Some(placement) = self.placement(job)? else { return Ok(()) };
        if let Some(at) = placement.confinement() {
            self.cgroups.limit(at, mem_bytes)?;
            let kept = Some(at.clone());
            return self
                .change_on_file(move |state| Ok(state.core.confine(job, kept, mem_bytes > 0)?));
        }
        if mem_bytes == 0 {
            return Ok(());
        }
        let Some(&first) = self.processes(job)?.first() else { return Ok(()) };
        let at = self.cgroups.confinement(job, &placement, first, mem_bytes)?;
        let Some(at) = at else { return Ok(()) };
        let kept = Some(at.clone());
        self.change_on_file(move |state| Ok(state.core.confine(job, kept, false)?))?;
        let limited =
            self.cgroups.limit(&at, mem_bytes).and_then(|()| self.cgroups.gather(&placement, &at));
        match limited {
            Ok(()) => {
                self.change_on_file(move |state| Ok(state.core.confine(job, Some(at), true)?))
            }
            Err(error) => {
                let source = &error.source;
                tracing::warn!(%job, %error, %source, "the memory of a job is not limited");
                release::unconfine(&at);
                self.change_on_file(move |state| Ok(state.core.confine(job, None, false)?))
            }
        }
    }

    /// Takes a process out of a job: when this returns, it is scheduled as it was before.
    ///
    /// It is let go while it is still in the job's groups, so that what it starts in between is either
    /// of the job or without a trace of it.
    pub fn remove_process(&self, peer: Peer, job: JobId, pid: u32) -> Result<(), Error> {
        self.permit(peer, job, "remove a process")?;
        let process = ProcessHandle::open(pid).map_err(|_| Error::NoSuchProcess(pid))?;
        // It is brought into no job until it has left this one.
        let _lock = self.process_locks.of(pid);
        if !self.processes(job)?.contains(&pid) {
            return Err(Error::NoSuchProcess(pid));
        }
        let placement = self.placement(job)?;
        if let Some(Placement::Cgroup { adopted: true, group, .. }) = &placement {
            let reason = format!(
                "job {job} is the cgroup {}, which others keep; move the process to another one",
                group.display()
            );
            return Err(Error::not_permitted(format!("take process {pid} out of its job"), reason));
        }
        let leaving = process.clone();
        let leaver = {
            let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
            let leaver = self.conductor.ask(move |state| state.detach(job, leaving))??;
            self.put_on_file(leaver.record.clone())?;
            leaver
        };
        self.release_leaver(&process, &leaver);
        let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = placement
            .map_or(Ok(()), |at| self.cgroups.move_out(&at, leaver.joined.as_ref(), &process));
        let is_out = moved.is_ok();
        match self.conductor.ask(move |state| state.has_left(job, pid, is_out))? {
            Ok(record) => self.put_on_file(record)?,
            // It was the last one.
            Err(_) if is_out => {}
            Err(error) => return Err(error),
        }
        Ok(moved?)
    }

    /// Waits until nobody follows a timetable that has who leaves, and gives to the threads what they had.
    pub fn wait_for_leaver(&self, process: &ProcessHandle, leaver: &Leaver) {
        let end = Instant::now() + LEAVES_WITHIN;
        while process.is_alive()
            && Instant::now() < end
            && !self.conductor.is_in_force(leaver.gone_from)
        {
            std::thread::sleep(LOOK_EVERY);
        }
        // One switcher has done it, and another may have been late with what it did before. The
        // numbers of a process that has ended may be another's.
        if process.is_alive() {
            perform(&leaver.actions);
        }
    }

    /// Waits until nobody follows a timetable that has a process, and gives its threads what they had;
    /// those that the job did not know yet are given what they would have had.
    pub fn release_leaver(&self, process: &ProcessHandle, leaver: &Leaver) {
        let end = Instant::now() + LEAVES_WITHIN;
        self.wait_for_leaver(process, leaver);
        let is_as_before = |tid: u32| {
            let Ok(now) = thread::attributes(tid) else { return true };
            let before = before_gangd(now, leaver.normal, true);
            now == before || thread::set_attributes(tid, &before).is_err()
        };
        let mut since: Option<Instant> = None;
        while process.is_alive() && Instant::now() < end {
            let threads = process::threads(&self.roots.proc, process.pid);
            // All of them are looked at, also after one that is not yet as it was.
            let behind = threads.map(|threads| {
                let strangers =
                    threads.into_iter().filter(|tid| leaver.known.binary_search(tid).is_err());
                strangers.filter(|&tid| !is_as_before(tid)).count()
            });
            if !matches!(behind, Ok(0)) {
                since = None;
            } else if since.get_or_insert_with(Instant::now).elapsed() >= STAYS_FOR {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Does once more what switchers were told to do. A thread or process that has ended misses nothing.
pub fn perform(actions: &[Bound]) {
    for action in actions {
        let _ = Linux.perform(action);
    }
}
