//! Jobs that come, and what is changed of them while they run.
//!
//! Problem: what a client asks for has several parts, in the schedule, in the kernel and on file, and any
//! of them may be refused.
//!
//! Approach: what may be refused is asked first, so that a refusal leaves everything as it was. The kernel's
//! part is on file before it is done, and off file after it is undone.

use std::{
    os::fd::BorrowedFd,
    sync::PoisonError,
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
use gang_schedule::{Class, JobId, Spec};
use gang_timetable::{before_gangd, record::Placement};

use crate::{
    admission::stock_of_machine,
    daemon::{Daemon, Peer},
    denied::Denied,
    state::Leaver,
};

/// The longest that a process is waited for that leaves its job: slices may be long.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// For how long none of its threads may come that has what its parent had in the job.
const STAYS_FOR: Duration = Duration::from_millis(25);

/// The longest that who registers a job waits for those that are over; less than a client waits for an answer.
const CLEARED_WITHIN: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Daemon {
    /// Asks for a new job without processes. Where it needs memory or disk that is not there, it is
    /// refused, or waits for it as long as the client is there. `held` is what its processes have already.
    pub fn register(
        &self,
        wanted: &Candidate,
        held: Resources,
        waiting: Option<BorrowedFd<'_>>,
    ) -> Result<JobId, Denied> {
        if !self.endings.has_room_within(CLEARED_WITHIN) {
            return Err(Denied::Failed {
                operation: "register a job".into(),
                reason: "too many jobs that have ended are not cleared away yet; try again".into(),
            });
        }
        let enter = || {
            let wanted = wanted.clone();
            let job = self.conductor.ask(move |state| state.register(wanted))??;
            self.numbers.take(job);
            Ok(job)
        };
        if wanted.resources.is_none() {
            return enter();
        }
        stock_of_machine(&self.roots.proc, &self.settings().disk)?.can_ever(wanted.resources)?;
        let needs = wanted.resources.less(held);
        self.queue.pass(needs, waiting, |ahead| {
            self.stock_after(None, ahead)?.admit(needs)?;
            enter()
        })
    }

    /// What the machine has of memory and disk, with what was promised to jobs.
    pub fn stock(&self) -> Result<Stock, Denied> {
        self.stock_after(None, &[])
    }

    /// The same, but for one of the jobs, and with what those are going to get who wait.
    fn stock_after(&self, but: Option<JobId>, ahead: &[Resources]) -> Result<Stock, Denied> {
        let mut stock = stock_of_machine(&self.roots.proc, &self.settings().disk)?;
        let promises = self.conductor.ask(move |state| {
            let others = state.core.jobs.values().filter(|job| Some(job.id) != but);
            let promised = others.filter(|job| !job.resources.is_none());
            let lives = |job: &Job| job.home.as_ref().map(|home| home.placement.clone());
            promised.map(|job| (job.resources, lives(job))).collect::<Vec<_>>()
        })?;
        for (resources, placement) in promises {
            let mem_bytes = placement.map_or(0, |at| self.lodging.memory_used(&at));
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

    /// Puts a job into another class: its owner may only lower it (L25).
    pub fn set_class(&self, peer: Peer, job: JobId, class: Class) -> Result<(), Denied> {
        self.permit(peer, job, "change the class of a job")?;
        let may_raise = peer.is_administrator();
        self.change_on_file(move |state| {
            let now = state.job(job)?.spec.class;
            if class > now && !may_raise {
                let reason = format!("it is in {now} now; only administrators may raise it");
                return Err(Denied::not_permitted(format!("put job {job} into {class}"), reason));
            }
            Ok(state.core.change(job, |spec, _| spec.class = class)?)
        })
    }

    /// A running job asks for something else. It does not wait for it.
    pub fn resize(
        &self,
        peer: Peer,
        job: JobId,
        change: impl Fn(&mut Spec, &mut Resources) + Send + Clone + 'static,
    ) -> Result<(), Denied> {
        self.permit(peer, job, "resize a job")?;
        self.queue.pass(Resources::default(), None, |ahead| {
            let probe = change.clone();
            let (before, after) = self.conductor.ask(move |state| {
                let job = state.job(job)?;
                let (mut spec, mut resources) = (job.spec.clone(), job.resources);
                probe(&mut spec, &mut resources);
                Ok::<_, Denied>((job.resources, resources))
            })??;
            let more = after.where_more_than(before);
            if !more.is_none() {
                // What the job uses already is not free, and counts for it.
                let held = Resources { mem_bytes: self.memory_used(job)?, disk_bytes: 0 };
                let stock = self.stock_after(Some(job), ahead)?;
                stock.can_ever(more)?;
                stock.admit(more.less(held))?;
            }
            if after.mem_bytes != before.mem_bytes {
                self.confine(job, after.mem_bytes)?;
            }
            let change = change.clone();
            let changed = self.change_on_file(move |state| Ok(state.core.change(job, change)?));
            if changed.is_err() && after.mem_bytes != before.mem_bytes {
                self.confine(job, before.mem_bytes)?;
            }
            changed
        })?;
        self.queue.look_again();
        Ok(())
    }

    fn placement(&self, job: JobId) -> Result<Option<Placement>, Denied> {
        self.conductor.ask(move |state| {
            let home = state.job(job)?.home.as_ref();
            Ok(home.map(|home| home.placement.clone()))
        })?
    }

    /// Memory that the processes of a job use.
    pub fn memory_used(&self, job: JobId) -> Result<u64, Denied> {
        Ok(self.placement(job)?.map_or(0, |at| self.lodging.memory_used(&at)))
    }

    /// Lets the kernel keep a job to so much memory, or to none (0 bytes), where it can. Refused where
    /// the job has more than that already, and the kernel cannot make it have less.
    pub fn confine(&self, job: JobId, mem_bytes: u64) -> Result<(), Denied> {
        let Some(placement) = self.placement(job)? else { return Ok(()) };
        if let Some(at) = placement.confinement() {
            self.lodging.limit(at, mem_bytes)?;
            let kept = Some(at.clone());
            return self
                .change_on_file(move |state| Ok(state.core.confine(job, kept, mem_bytes > 0)?));
        }
        if mem_bytes == 0 {
            return Ok(());
        }
        let Some(&first) = self.processes(job)?.first() else { return Ok(()) };
        let at = self.lodging.confinement(job, &placement, first, mem_bytes)?;
        let Some(at) = at else { return Ok(()) };
        let kept = Some(at.clone());
        self.change_on_file(move |state| Ok(state.core.confine(job, kept, false)?))?;
        let limited =
            self.lodging.limit(&at, mem_bytes).and_then(|()| self.lodging.gather(&placement, &at));
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
    pub fn remove_process(&self, peer: Peer, job: JobId, pid: u32) -> Result<(), Denied> {
        self.permit(peer, job, "remove a process")?;
        let process = ProcessHandle::open(pid).map_err(|_| Denied::NoSuchProcess(pid))?;
        if !self.processes(job)?.contains(&pid) {
            return Err(Denied::NoSuchProcess(pid));
        }
        let placement = self.placement(job)?;
        if let Some(Placement::Cgroup { adopted: true, group, .. }) = &placement {
            let reason = format!(
                "job {job} is the cgroup {}, which others keep; move the process to another one",
                group.display()
            );
            return Err(Denied::not_permitted(
                format!("take process {pid} out of its job"),
                reason,
            ));
        }
        let leaving = process.clone();
        let leaver = {
            let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
            let leaver = self.conductor.ask(move |state| state.detach(job, leaving))??;
            self.put_on_file(leaver.record.clone())?;
            leaver
        };
        self.see_off(&process, &leaver);
        let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = placement
            .map_or(Ok(()), |at| self.lodging.move_out(&at, leaver.joined.as_ref(), &process));
        let is_out = moved.is_ok();
        match self.conductor.ask(move |state| state.has_left(job, pid, is_out))? {
            Ok(record) => self.put_on_file(record)?,
            // It was the last one.
            Err(_) if is_out => {}
            Err(denied) => return Err(denied),
        }
        Ok(moved?)
    }

    /// Waits until nobody follows a timetable that has who leaves, and gives to the threads what they had.
    pub fn wait_until_gone(&self, process: &ProcessHandle, leaver: &Leaver) {
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
    pub fn see_off(&self, process: &ProcessHandle, leaver: &Leaver) {
        let end = Instant::now() + LEAVES_WITHIN;
        self.wait_until_gone(process, leaver);
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
