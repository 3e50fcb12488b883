//! What all parts of the daemon share, and the work that touches several of them.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicU32},
    thread,
    time::{Duration, Instant},
};

use gang_conductor::{Job, Progress};
use gang_engine::{
    bound::ProcessHandle, page::SlotPage, pins::Pins, probe::Means, release, roster::Roster,
    store::Store,
};
use gang_linux::{Roots, cgroup::Group, process};
use gang_schedule::JobId;
use gang_timetable::{
    Attributes, Backend, Members,
    record::{Placement, Record},
};

use crate::{
    check::Checks,
    conduct::{
        client_priority::{ClientPriority, ThreadPriority},
        requests::Handle,
        state::{Address, State},
    },
    error::Error,
    groups::{cgroups::Cgroups, watch::Watch},
    history::{Ended, History, Query},
    life::{
        admission::Queue, cleanup::Cleanup, job_ids::JobIds, process_locks::ProcessLocks,
        prover::Prover, thread_limit::OverLimit,
    },
    measure::measuring::Measuring,
    settings::Settings,
};

/// Jobs that wake are let take part so many at a time, and this much apart: with each the plans are taken back. The
/// survey sees the others.
const WAKINGS_AT_ONCE: usize = 32;
const WAKINGS_APART: Duration = Duration::from_millis(5);

/// The daemon, as the threads that serve clients see it.
pub struct Daemon {
    pub roots: Roots,
    settings: Mutex<Arc<Settings>>,
    pub means: Means,
    pub backend: Backend,
    pub cgroups: Cgroups,
    pub measuring: Measuring,
    /// Who proves jobs of policy `auto`.
    pub prover: Prover,
    pub socket: PathBuf,
    pub store: Store,
    pub watch: Watch,
    pub conductor: Handle,
    pub guardian: Arc<AtomicU32>,
    pub started: Instant,
    /// Where to write for the main thread to end the daemon.
    pub stop: UnixStream,
    /// Set when the daemon ends: jobs stay on file until they are released.
    pub leaving: OnceLock<()>,
    /// Held while a job changes and what is on file of it follows. The queue is never asked for by who
    /// holds it.
    pub filing: Mutex<()>,
    /// How far clients are served before the gangs.
    pub client_priority: Arc<ClientPriority>,
    /// Held for each process that is brought into a job, or a thread of it.
    pub process_locks: ProcessLocks,
    /// Held while the policy of a job changes.
    pub policy_change: Mutex<()>,
    /// Jobs that wait for memory or disk.
    pub queue: Queue,
    /// Jobs that are over, and not cleared away yet.
    pub cleanup: Cleanup,
    /// Jobs that have ended.
    pub history: Option<History>,
    /// The numbers that jobs get.
    pub ids: JobIds,
    pub checks: Checks,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub pid: u32,
    /// Of the group of users who are administrators.
    pub is_of_admins: bool,
}

impl Peer {
    pub fn is_administrator(self) -> bool {
        self.is_of_admins || self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    pub fn may_act_for(self, owner_uid: u32) -> bool {
        self.is_administrator() || self.uid == owner_uid
    }

    fn permit(self, job: JobId, owner_uid: u32, operation: &str) -> Result<(), Error> {
        if self.may_act_for(owner_uid) {
            return Ok(());
        }
        Err(Error::not_permitted(operation, format!("job {job} belongs to user {owner_uid}")))
    }
}

/// What the daemon is made of, before it serves anybody.
pub struct Parts {
    pub roots: Roots,
    pub socket: PathBuf,
    pub settings: Settings,
    pub means: Means,
    pub backend: Backend,
    pub cgroups: Cgroups,
    pub store: Store,
    pub watch: Watch,
    pub conductor: Handle,
    pub client_priority: Arc<ClientPriority>,
    pub guardian: Arc<AtomicU32>,
    pub stop: UnixStream,
    pub history: Option<History>,
}

/// A job without a cgroup that is over, or has other processes than are on file.
struct Tree {
    job: JobId,
    is_over: bool,
    processes: Vec<Arc<ProcessHandle>>,
}

impl Tree {
    fn due(state: &State, job: &Job) -> Option<Tree> {
        let home = job.home.as_ref()?;
        let Placement::Tree { processes: on_file } = &home.placement else { return None };
        let is_over = state.is_over(job.id);
        let processes = state.registry.jobs.get(&job.id)?.roster.tree();
        let pids = processes.iter().map(|process| process.pid);
        let is_on_file = pids.eq(on_file.iter().map(|(pid, _)| *pid));
        let is_due = is_over || !is_on_file;
        is_due.then(|| Tree { job: job.id, is_over, processes: processes.to_vec() })
    }
}

impl Daemon {
    pub fn new(parts: Parts) -> Daemon {
        let Parts { roots, socket, settings, means, backend, cgroups, store, .. } = parts;
        let Parts { watch, conductor, client_priority, guardian, stop, history, .. } = parts;
        let last = history.as_ref().map_or(0, History::last_number);
        Daemon {
            ids: JobIds::of(&socket, last),
            roots,
            settings: Mutex::new(Arc::new(settings)),
            means,
            backend,
            cgroups,
            measuring: Measuring::default(),
            prover: Prover::default(),
            socket,
            store,
            watch,
            conductor,
            guardian,
            started: Instant::now(),
            stop,
            leaving: OnceLock::new(),
            filing: Mutex::default(),
            client_priority,
            process_locks: ProcessLocks::default(),
            policy_change: Mutex::default(),
            queue: Queue::default(),
            cleanup: Cleanup::default(),
            history,
            checks: Checks::default(),
        }
    }

    /// The settings as last read, as far as they are in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes new settings, as far as a running daemon can.
    pub fn reconfigure(&self, new: Settings) -> Result<(), Error> {
        let old = self.settings();
        let later = old.what_needs_a_restart(&new);
        if !later.is_empty() {
            tracing::warn!(keys = later.join(", "), "changed, and needs a restart to take effect");
        }
        let renewed = Arc::new(old.renewed(new.clone()));
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
        self.conductor.ask(move |state| state.reconfigure(&new))?;
        tracing::info!("the configuration was read again");
        Ok(())
    }

    /// Jobs that have ended, the latest first.
    pub fn ended(&self, query: Query) -> Result<Vec<Ended>, Error> {
        let Some(history) = &self.history else {
            return Err(Error::Failed {
                operation: "read the history of jobs".into(),
                reason: "this daemon keeps none, or could not open it (its log says so); set \
                         [history] path, or use the machine's"
                    .into(),
            });
        };
        history.read(query).map_err(|error| Error::Failed {
            operation: "read the history of jobs".into(),
            reason: error.to_string(),
        })
    }

    /// The job's owner, where the peer may act on the job.
    pub fn permit(&self, peer: Peer, job: JobId, operation: &str) -> Result<u32, Error> {
        let owner_uid =
            self.conductor.ask(move |state| state.job(job).map(|job| job.owner_uid))??;
        peer.permit(job, owner_uid, operation).map(|()| owner_uid)
    }

    /// Changes a job, and then what is on file of it: in the same order as others do.
    pub fn change_on_file(
        &self,
        change: impl FnOnce(&mut State) -> Result<Option<Record>, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.conductor.ask(change)??;
        self.put_on_file(record)
    }

    pub fn put_on_file(&self, record: Option<Record>) -> Result<(), Error> {
        let Some(record) = record else { return Ok(()) };
        self.store
            .put(&record)
            .map_err(|e| Error::Failed { operation: e.to_string(), reason: e.source.to_string() })
    }

    /// The processes of a job.
    pub fn processes(&self, job: JobId) -> Result<Vec<u32>, Error> {
        let address = self.address(job)?;
        Ok(address.map_or(Ok(Vec::new()), |at| self.cgroups.processes(&at))?)
    }

    /// Where the processes of a job are; absent until its first one came.
    pub fn address(&self, job: JobId) -> Result<Option<Address>, Error> {
        self.conductor.ask(move |state| state.address(job))?
    }

    /// Does to each process of a job what must befall nobody else.
    pub fn each_process(&self, job: JobId, act: impl FnMut(&ProcessHandle)) -> Result<(), Error> {
        let address = self.address(job)?;
        Ok(address.map_or(Ok(()), |at| self.cgroups.each_process(&at, act))?)
    }

    /// Suspends a job, or resumes it.
    pub fn suspend(&self, job: JobId, suspended: bool) -> Result<(), Error> {
        self.change_on_file(move |state| state.suspend(job, suspended))
    }

    /// Whether the processes of a job hear of its slots by signals.
    pub fn set_signals(&self, peer: Peer, job: JobId, signals: bool) -> Result<(), Error> {
        self.permit(peer, job, "set the signals of a job")?;
        self.change_on_file(move |state| state.set_signals(job, signals))
    }

    /// The slot page of a job, made where nobody has asked for it yet.
    pub fn slot_page(&self, peer: Peer, job: JobId) -> Result<PathBuf, Error> {
        self.permit(peer, job, "read the slot page")?;
        let path = self.store.page(job.0);
        let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there =
            self.conductor.ask(move |state| state.job(job).map(|job| job.has_page))??;
        if !is_there {
            let page = SlotPage::open(&path)?;
            self.conductor.ask(move |state| state.page(job, page))??;
        }
        Ok(path)
    }

    /// A program tells how far its job is. It does so again and again: the conductor is asked once.
    pub fn set_progress(&self, peer: Peer, id: JobId, progress: Progress) -> Result<(), Error> {
        self.conductor.ask(move |state| {
            peer.permit(id, state.job(id)?.owner_uid, "report the progress of a job")?;
            Ok(state.core.report_progress(id, progress)?)
        })?
    }

    /// Measures which gangs run together: the thread of this returns where it cannot, or is not to.
    pub fn measure(self: &Arc<Daemon>) {
        self.measuring.begin(self.settings().measure, |meter| {
            // Without a conductor there is nothing to measure.
            let _ = self.conductor.ask(move |state| state.begin_measuring(meter));
        });
        let hearing = Arc::clone(self);
        let spawned = thread::Builder::new().name("waking".into()).spawn(move || {
            hearing.hear_who_wakes();
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "jobs that wake are seen later");
        }
        self.measuring.look_when_asked();
    }

    /// Lets jobs that slept take part in the schedule as soon as they want to run: the thread of this returns where
    /// nothing is measured.
    fn hear_who_wakes(&self) {
        // They are not to wait for a gap of others.
        let mut priority = ThreadPriority::of(&self.client_priority);
        self.measuring.hear_who_wakes(|mut groups| {
            groups.truncate(WAKINGS_AT_ONCE);
            let _ = self.conductor.ask(move |state| state.woke(&groups));
            priority.renew();
            thread::sleep(WAKINGS_APART);
        });
    }

    /// A job has no process any more, or never got one.
    pub fn end(&self, job: JobId) {
        self.watch.remove_job(job);
        let record = {
            let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
            self.conductor.ask(move |state| state.end(job))
        };
        // Nobody files a job that the state has no more, nor has another one its number.
        if let Ok(Some((record, ended))) = record {
            self.clear_away(&record);
            if let Some(history) = &self.history {
                history.add(ended);
            }
            tracing::info!(job = record.id, name = record.name, "job ended");
        }
        self.queue.look_again();
    }

    /// Ends a job that had no process any more a while ago, and was not watched since, unless another one came.
    pub fn end_if_over(&self, job: JobId) {
        let address = self.address(job).ok().flatten();
        let is_watched = address.is_some_and(|at| self.watch.add_job(job, &at.placement).is_ok());
        if !is_watched || self.watch.is_over(job) {
            self.end(job);
        }
    }

    /// Ends a job that has no process yet: of it there is a slot page on file at most, and nobody watches it.
    pub fn end_unstarted(&self, job: JobId) {
        let filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.conductor.ask(move |state| {
            let is_unstarted = state.job(job).is_ok_and(|job| job.home.is_none());
            if is_unstarted {
                state.end(job);
            }
            is_unstarted
        });
        drop(filing);
        // Without a conductor there are no jobs either.
        if matches!(ended, Ok(true)) {
            // Nobody makes another one for a job that is over.
            let _ = std::fs::remove_file(self.store.page(job.0));
            self.queue.look_again();
        }
    }

    /// Does what is due for jobs now and then. Returns whether there were any, and whether there had been any
    /// since the daemon began. Asks once: each question wakes the conductor.
    pub fn tend(&self) -> (bool, bool) {
        let forget_after = self.settings().forget_after;
        let asked = self.conductor.ask(move |state| {
            let had_jobs = (!state.core.jobs.is_empty(), state.core.had_jobs);
            let (jobs, machine) = (&state.core.jobs, state.core.machine());
            (
                jobs.values().filter_map(|job| Tree::due(state, job)).collect(),
                jobs.keys().filter_map(|&job| state.singles_due(job)).collect(),
                jobs.values()
                    .filter_map(|job| OverLimit::of(job, machine))
                    .collect::<Vec<OverLimit>>(),
                state.unused_for(forget_after),
                had_jobs,
            )
        });
        // Without a conductor there are no jobs either.
        let Ok((trees, singles, thread_limit, unused, had_jobs)) = asked else {
            return (false, false);
        };
        self.tend_trees(trees);
        self.tend_singles(singles);
        if self.backend == Backend::Rt {
            thread_limit.iter().for_each(OverLimit::lower);
        }
        // Their processes go on without gangd (L20).
        for job in unused {
            tracing::info!(%job, ?forget_after, "a job that used no CPU is forgotten; its processes go on");
            self.end(job);
        }
        had_jobs
    }

    /// Ends jobs without a cgroup whose processes have all ended. Of the others, puts on file the
    /// processes that they have now: one whose parents have ended, nobody would find again.
    fn tend_trees(&self, trees: Vec<Tree>) {
        for Tree { job, is_over, processes } in trees {
            if is_over {
                self.end(job);
            } else if let Err(error) = self.put_tree_on_file(job, &processes) {
                tracing::warn!(%job, ?error, "a restart may not find all processes of a job");
            }
        }
    }

    fn put_tree_on_file(&self, job: JobId, tree: &[Arc<ProcessHandle>]) -> Result<(), Error> {
        let started = |process: &Arc<ProcessHandle>| {
            let stat = process::stat(&self.roots.proc, process.pid).ok()?;
            process.is_alive().then_some((process.pid, stat.start_ticks))
        };
        let now: Vec<(u32, u64)> = tree.iter().filter_map(started).collect();
        self.change_on_file(move |state| Ok(state.core.set_tree(job, now)?))
    }

    /// Asks the main thread to end the daemon.
    pub fn request_stop(&self) {
        let _ = (&self.stop).write_all(b"s");
    }

    /// Leaves no trace of a job but its processes, if it has any.
    pub fn clear_away(&self, record: &Record) {
        release::job(&self.roots, &self.store, record);
        release::dissolve(record);
        if let Err(error) = self.store.remove(record.id) {
            tracing::warn!(%error, source = %error.source, "a job file stays behind");
        }
    }

    /// Finds the jobs of an earlier daemon again.
    pub fn restore(&self) {
        let first = self.ids.next();
        // Without a conductor there are no jobs to number.
        let _ = self.conductor.ask(move |state| state.core.number_from(first));
        let (records, errors) = self.store.records();
        for error in errors {
            tracing::error!(%error, source = %error.source, "a job is lost");
        }
        for record in records {
            release::job(&self.roots, &self.store, &record);
            if let Err(reason) = self.restore_job(&record) {
                tracing::info!(job = record.id, ?reason, "a job of an earlier daemon is over");
                self.clear_away(&record);
            }
        }
        // What was decided of a job, and why, is not on file.
        self.end_trials("");
    }

    /// The members of a job that comes, with a file of which CPUs they are given.
    pub fn members(
        &self,
        job: JobId,
        placement: &Placement,
        normal: Attributes,
        affinity: &[u32],
    ) -> gang_linux::Result<(Roster, Members)> {
        let (roster, members) = self.cgroups.members(placement, normal, affinity)?;
        Ok((self.with_pins(job, roster)?, members))
    }

    /// Keeps on file which CPUs a job is given.
    pub fn with_pins(&self, job: JobId, mut roster: Roster) -> gang_linux::Result<Roster> {
        if self.backend.can_fill() {
            roster.pins = Pins::create(&self.store.pins(job.0))?;
        }
        Ok(roster)
    }

    fn restore_job(&self, record: &Record) -> Result<(), Error> {
        let (job, mut record) = (JobId(record.id), record.clone());
        self.can_go_on(&record.placement)?;
        if let Placement::Cgroup { group, .. } = &record.placement {
            let group = Group::at(group);
            if !group.is_populated()? {
                return Err(Error::NoSuchJob(job));
            }
            // The guardian may have been asked to dissolve what the processes were in besides.
            let confinement = record.placement.confinement();
            if confinement.is_some_and(|at| self.cgroups.limit(at, 0).is_err()) {
                record.placement.set_confinement(None);
            }
            for process in
                group.processes()?.into_iter().filter_map(|pid| ProcessHandle::open(pid).ok())
            {
                self.cgroups.move_in(&record.placement, &process)?;
            }
        }
        let normal = record.normal.into();
        let (roster, members) = self.members(job, &record.placement, normal, &record.affinity)?;
        let kept = record.clone();
        self.conductor.ask(move |state| state.restore(&kept, roster, members))??;
        if let Err(error) = self.confine(job, record.mem_bytes) {
            tracing::warn!(%job, ?error, "the memory of a job is not limited any more");
        }
        // Programs that mapped it go on with it.
        if self.store.page(record.id).exists() {
            let page = SlotPage::open(self.store.page(record.id))?;
            self.conductor.ask(move |state| state.page(job, page))??;
        }
        self.watch.add_job(job, &record.placement)?;
        tracing::info!(job = record.id, name = record.name, "found a job of an earlier daemon");
        Ok(())
    }
}
