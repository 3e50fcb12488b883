//! What all parts of the daemon share, and the work that touches several of them.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use gang_engine::{
    action::ProcessHandle,
    backend::Backend,
    members,
    page::SlotPage,
    probe::Means,
    release,
    store::{Record, Store, Whereabouts},
};
use gang_linux::{
    Roots,
    cgroup::Group,
    process,
    sched::{self, Attributes},
};
use gang_schedule::JobId;

use crate::{
    admission::Queue,
    conductor::{Handle, Unavailable},
    denied::Denied,
    job::Home,
    lodging::Lodging,
    settings::Settings,
    state::State,
    watch::Watch,
};

/// The daemon, as the threads that serve clients see it.
pub struct Daemon {
    pub roots: Roots,
    pub settings: Settings,
    pub means: Means,
    pub backend: Backend,
    pub lodging: Lodging,
    pub store: Store,
    pub watch: Watch,
    pub conductor: Handle,
    pub guardian: Arc<AtomicU32>,
    pub started: Instant,
    /// Where to write for the main thread to end the daemon.
    pub stop: UnixStream,
    /// Set when the daemon ends: jobs stay on file until they are released.
    pub leaving: OnceLock<()>,
    /// Held while a job changes and what is on file of it follows.
    pub filing: Mutex<()>,
    /// Jobs that wait for memory or disk.
    pub queue: Queue,
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
}

impl From<Unavailable> for Denied {
    fn from(_: Unavailable) -> Self {
        Denied::Failed {
            operation: "ask the scheduler".into(),
            reason: "it has ended, or has too many requests; try again".into(),
        }
    }
}

impl Daemon {
    /// The job's owner, where the peer may act on the job.
    pub fn permit(&self, peer: Peer, job: JobId, operation: &str) -> Result<u32, Denied> {
        let owner_uid =
            self.conductor.ask(move |state| state.job(job).map(|job| job.owner_uid))??;
        if peer.may_act_for(owner_uid) {
            Ok(owner_uid)
        } else {
            Err(Denied::not_permitted(operation, format!("job {job} belongs to user {owner_uid}")))
        }
    }

    /// Takes a process into a job, as its first one or as a further one.
    pub fn add_process(&self, peer: Peer, job: JobId, pid: u32) -> Result<(), Denied> {
        let owner_uid = self.permit(peer, job, "add a process")?;
        let process = self.claim(peer, owner_uid, pid)?;
        if let Some(other) = self.lodging.job_of(pid) {
            return match other == job {
                true => Ok(()),
                false => Err(Denied::not_permitted(
                    format!("add process {pid} to job {job}"),
                    format!("it is in job {other}; a process is in one job at a time"),
                )),
            };
        }
        let home = self.conductor.ask(move |state| {
            let job = state.job(job)?;
            let home = job.home.as_ref();
            let home = home.map(|home| (home.whereabouts.clone(), home.normal));
            Ok::<_, Denied>((job.spec.policy, home))
        })??;
        let (policy, home) = home;
        match home {
            Some((Whereabouts::Tree { .. }, _)) => self.grow_tree(job, process),
            Some((whereabouts, normal)) => self.follow_in(job, &whereabouts, normal, &process),
            None => {
                let whereabouts = self.lodging.found(job, policy, &process)?;
                self.settle_in(job, whereabouts, &process)
            }
        }
    }

    /// A further process moves in. What it had, and where it was, is noted where the first one had
    /// something else.
    fn follow_in(
        &self,
        job: JobId,
        whereabouts: &Whereabouts,
        normal: Attributes,
        process: &ProcessHandle,
    ) -> Result<(), Denied> {
        if let Some(newcomer) = self.lodging.newcomer(whereabouts, process.pid)? {
            let members = self.processes(job)?;
            self.change_on_file(move |state| state.expect(job, newcomer, &members))?;
        }
        let tids = process::threads(&self.roots.proc, process.pid).unwrap_or_default();
        let had = |tid| Some((tid, members::original(sched::get(tid).ok()?, normal, false)));
        let mut before: Vec<_> = tids.into_iter().filter_map(had).collect();
        before.retain(|(_, attributes)| *attributes != normal);
        self.lodging.move_in(whereabouts, process)?;
        if !before.is_empty() {
            self.conductor.ask(move |state| state.know(job, &before))??;
        }
        Ok(())
    }

    fn grow_tree(&self, job: JobId, process: Arc<ProcessHandle>) -> Result<(), Denied> {
        let started = process::stat(&self.roots.proc, process.pid)?.start_ticks;
        self.change_on_file(move |state| {
            let job = state.jobs.get_mut(&job).ok_or(Denied::NoSuchJob(job))?;
            if let Some(home) = &mut job.home {
                if let Whereabouts::Tree { processes } = &mut home.whereabouts {
                    processes.push((process.pid, started));
                }
                home.members.add_process(process);
            }
            Ok(job.record())
        })
    }

    /// The first process of a job moves in, and the schedule learns of it.
    fn settle_in(
        &self,
        job: JobId,
        mut whereabouts: Whereabouts,
        process: &ProcessHandle,
    ) -> Result<(), Denied> {
        let gone = |e: std::io::Error| Denied::Failed {
            operation: format!("read the scheduling attributes of process {}", process.pid),
            reason: e.to_string(),
        };
        let mut normal = sched::get(process.pid).map_err(gone)?;
        // Nobody's own choice: an earlier daemon left it so.
        if members::is_raised(&normal) {
            normal = Attributes::other(normal.nice);
        }
        let affinity = sched::affinity(process.pid).map_err(gone)?;
        let owner = self.conductor.ask(move |state| {
            state.job(job).map(|job| {
                let (name, spec) = (job.name.clone(), job.spec.clone());
                let asked = (job.signals, job.resources);
                (name, job.owner_uid, spec, job.registered_at_ns, asked)
            })
        })??;
        let (name, owner_uid, spec, registered_at_ns, (signals, resources)) = owner;
        let at = self.lodging.confinement(job, &whereabouts, process.pid, resources.mem_bytes)?;
        whereabouts.set_confinement(at.clone());
        // On file before anything is done to the process: whoever has to undo it must find it.
        let mut record = Record {
            id: job.0,
            name,
            owner_uid,
            class: spec.class.to_string(),
            policy: spec.policy.to_string(),
            weight: spec.weight,
            cpus: spec.cpus,
            min_cpus: spec.min_cpus,
            registered_at_ns,
            suspended: false,
            whereabouts: whereabouts.clone(),
            normal: normal.into(),
            affinity: affinity.clone(),
            signals,
            mem_bytes: resources.mem_bytes,
            disk_bytes: resources.disk_bytes,
            newcomers: Vec::new(),
        };
        self.put_on_file(Some(record.clone()))?;
        let is_confined = match at.map(|at| (self.lodging.limit(&at, resources.mem_bytes), at)) {
            None => false,
            Some((Ok(()), _)) => true,
            Some((Err(error), at)) => {
                let source = &error.source;
                tracing::warn!(%job, %error, %source, "the memory of a job is not limited");
                release::unconfine(&at);
                whereabouts.set_confinement(None);
                record.whereabouts = whereabouts.clone();
                self.put_on_file(Some(record.clone()))?;
                false
            }
        };
        let moved = self
            .lodging
            .move_in(&whereabouts, process)
            .and_then(|()| self.lodging.members(&whereabouts, normal, &affinity))
            .map_err(Denied::from);
        let joined = moved.and_then(|members| {
            let placed = whereabouts.clone();
            self.conductor.ask(move |state| state.join(job, placed, members, normal, affinity))?
        });
        match joined {
            Ok(_) => {
                self.watch.add_job(job, &whereabouts)?;
                if is_confined {
                    let at = whereabouts.confinement().cloned();
                    self.change_on_file(move |state| {
                        state.confine(job, at, resources.mem_bytes > 0)
                    })?;
                }
                // It may have ended before anybody watched.
                if self.watch.is_over(job) {
                    self.end(job);
                }
                Ok(())
            }
            Err(denied) => {
                self.clear_away(&record);
                Err(denied)
            }
        }
    }

    /// Changes a job, and then what is on file of it: in the same order as others do.
    pub fn change_on_file(
        &self,
        change: impl FnOnce(&mut State) -> Result<Option<Record>, Denied> + Send + 'static,
    ) -> Result<(), Denied> {
        let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.conductor.ask(change)??;
        self.put_on_file(record)
    }

    pub fn put_on_file(&self, record: Option<Record>) -> Result<(), Denied> {
        let Some(record) = record else { return Ok(()) };
        self.store
            .put(&record)
            .map_err(|e| Denied::Failed { operation: e.to_string(), reason: e.source.to_string() })
    }

    /// A handle on a process that the peer may put into a job of that owner. The handle is taken
    /// first: what is checked then is the process that the handle names.
    fn claim(&self, peer: Peer, owner_uid: u32, pid: u32) -> Result<Arc<ProcessHandle>, Denied> {
        let process = ProcessHandle::open(pid).map_err(|_| Denied::NoSuchProcess(pid))?;
        let (real, effective) =
            process::owner(&self.roots.proc, pid).map_err(|_| Denied::NoSuchProcess(pid))?;
        let operation = || format!("take process {pid} into a job");
        if !peer.is_administrator() && (real != peer.uid || effective != peer.uid) {
            let reason = format!("it belongs to user {effective}, not to user {}", peer.uid);
            return Err(Denied::not_permitted(operation(), reason));
        }
        // Root gives nobody power over another's processes either.
        if real != owner_uid && owner_uid != 0 {
            let reason = format!("it belongs to user {real}, the job to user {owner_uid}");
            return Err(Denied::not_permitted(operation(), reason));
        }
        let of_daemon = [std::process::id(), self.guardian.load(Ordering::Relaxed), 1, 2];
        let is_kernel = process::stat(&self.roots.proc, pid).is_ok_and(|stat| stat.parent == 2);
        if of_daemon.contains(&pid) || is_kernel {
            let reason = "it belongs to the system, which runs the gangs";
            return Err(Denied::not_permitted(operation(), reason));
        }
        Ok(process)
    }

    /// Makes a job of a process and its descendants; returns how many there were.
    pub fn adopt_tree(&self, peer: Peer, job: JobId, pid: u32) -> Result<usize, Denied> {
        let owner_uid = self.permit(peer, job, "adopt processes")?;
        let mut adopted = Vec::new();
        // Children may be started while their parents are moved; those of moved ones follow.
        for _ in 0..100 {
            let all = process::descendants(&self.roots.proc, pid)?;
            let new: Vec<u32> = all.into_iter().filter(|pid| !adopted.contains(pid)).collect();
            if new.is_empty() {
                break;
            }
            for &member in &new {
                match self.claim(peer, owner_uid, member) {
                    Ok(_) => self.add_process(peer, job, member)?,
                    // A descendant may end meanwhile; the process that was named may not.
                    Err(Denied::NoSuchProcess(_)) if member != pid => {}
                    Err(denied) => return Err(denied),
                }
            }
            adopted.extend(new);
        }
        Ok(adopted.len())
    }

    /// Makes a job of all processes of a cgroup; returns how many there were.
    pub fn adopt_group(&self, peer: Peer, job: JobId, path: &str) -> Result<usize, Denied> {
        let owner_uid = self.permit(peer, job, "adopt a cgroup")?;
        let no_such = || Denied::NoSuchCgroup(path.to_owned());
        let root = self.means.groups.as_ref().ok_or_else(|| Denied::Failed {
            operation: "adopt a cgroup".into(),
            reason: "this daemon cannot use cgroups; gang status says why".into(),
        })?;
        let relative = path.trim_start_matches('/');
        if relative.is_empty() || relative.split('/').any(|part| part == ".." || part == ".") {
            return Err(Denied::invalid("cgroup", path, "a path below the root of the hierarchy"));
        }
        let group = Group::at(root.join(relative));
        if !group.exists() {
            return Err(no_such());
        }
        let below =
            group.children()?.into_iter().filter(|child| child.is_populated().unwrap_or(false));
        if let Some(child) = below.into_iter().next() {
            let accepted = format!(
                "a cgroup without populated ones below it, such as {}",
                child.path().display()
            );
            return Err(Denied::invalid("cgroup", path, accepted));
        }
        let processes = group.processes()?;
        let mut first = None;
        for &pid in &processes {
            match self.claim(peer, owner_uid, pid) {
                Ok(process) => first = first.or(Some(process)),
                Err(Denied::NoSuchProcess(_)) => {}
                Err(denied) => return Err(denied),
            }
            if let Some(other) = self.lodging.job_of(pid) {
                let reason = format!("process {pid} in it is in job {other}");
                return Err(Denied::not_permitted(format!("adopt cgroup {path}"), reason));
            }
        }
        let first = first.ok_or_else(no_such)?;
        let policy =
            self.conductor.ask(move |state| state.job(job).map(|job| job.spec.policy))??;
        let whereabouts = self.lodging.found_in(job, policy, &group, first.pid)?;
        self.settle_in(job, whereabouts.clone(), &first)?;
        for &pid in processes.iter().filter(|&&pid| pid != first.pid) {
            if let Ok(process) = ProcessHandle::open(pid) {
                self.lodging.move_in(&whereabouts, &process)?;
            }
        }
        Ok(processes.len())
    }

    /// The processes of a job.
    pub fn processes(&self, job: JobId) -> Result<Vec<u32>, Denied> {
        let address = self
            .conductor
            .ask(move |state| state.job(job).map(|job| job.home.as_ref().map(Home::address)))??;
        Ok(address.map_or_else(Vec::new, |at| self.lodging.processes(&at)))
    }

    /// Suspends a job, or resumes it.
    pub fn suspend(&self, job: JobId, suspended: bool) -> Result<(), Denied> {
        self.change_on_file(move |state| state.suspend(job, suspended))
    }

    /// Whether the processes of a job hear of its slots by signals.
    pub fn set_signals(&self, peer: Peer, job: JobId, signals: bool) -> Result<(), Denied> {
        self.permit(peer, job, "set the signals of a job")?;
        self.change_on_file(move |state| state.set_signals(job, signals))
    }

    /// The slot page of a job, made where nobody has asked for it yet.
    pub fn slot_page(&self, peer: Peer, job: JobId) -> Result<PathBuf, Denied> {
        self.permit(peer, job, "read the slot page")?;
        let path = self.store.page(job.0);
        let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there =
            self.conductor.ask(move |state| state.job(job).map(|job| job.page.is_some()))??;
        if !is_there {
            let page = SlotPage::open(&path)?;
            self.conductor.ask(move |state| state.page(job, page))??;
        }
        Ok(path)
    }

    /// A job has no process any more, or never got one.
    pub fn end(&self, job: JobId) {
        self.watch.remove_job(job);
        let _filing = self.filing.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.conductor.ask(move |state| state.end(job));
        if let Ok(Some(record)) = record {
            self.clear_away(&record);
            tracing::info!(job = record.id, name = record.name, "job ended");
        }
        self.queue.look_again();
    }

    /// Ends the jobs that have used no CPU for long; their processes go on without gangd (L20).
    pub fn let_unused_leave(&self) {
        let leave_after = self.settings.leave_after;
        let unused = self.conductor.ask(move |state| state.unused_for(leave_after));
        for job in unused.into_iter().flatten() {
            tracing::info!(%job, ?leave_after, "a job that used no CPU leaves; its processes go on");
            self.end(job);
        }
    }

    /// Ends jobs without a cgroup whose processes have all ended. Of the others, puts on file the
    /// processes that they have now: one whose parents have ended, nobody would find again.
    pub fn tend_trees(&self) {
        let trees = self.conductor.ask(|state| {
            let trees = state.jobs.values().filter_map(|job| {
                let home = job.home.as_ref()?;
                let Whereabouts::Tree { processes: on_file } = &home.whereabouts else {
                    return None;
                };
                let is_over = home.members.is_over();
                let tree = home.members.tree();
                let is_on_file = tree.len() == on_file.len()
                    && tree
                        .iter()
                        .all(|process| on_file.iter().any(|(pid, _)| *pid == process.pid));
                (is_over || !is_on_file).then(|| (job.id, is_over, tree.to_vec()))
            });
            trees.collect::<Vec<_>>()
        });
        for (job, is_over, tree) in trees.into_iter().flatten() {
            if is_over {
                self.end(job);
            } else if let Err(denied) = self.put_tree_on_file(job, &tree) {
                tracing::warn!(%job, ?denied, "a restart may not find all processes of a job");
            }
        }
    }

    fn put_tree_on_file(&self, job: JobId, tree: &[Arc<ProcessHandle>]) -> Result<(), Denied> {
        let started = |process: &Arc<ProcessHandle>| {
            let stat = process::stat(&self.roots.proc, process.pid).ok()?;
            process.is_alive().then_some((process.pid, stat.start_ticks))
        };
        let now: Vec<(u32, u64)> = tree.iter().filter_map(started).collect();
        self.change_on_file(move |state| {
            let Some(job) = state.jobs.get_mut(&job) else { return Ok(None) };
            if let Some(home) = job.home.as_mut().filter(|_| !now.is_empty()) {
                home.whereabouts = Whereabouts::Tree { processes: now };
            }
            Ok(job.record())
        })
    }

    pub fn has_jobs(&self) -> bool {
        self.conductor.ask(|state| !state.jobs.is_empty()).unwrap_or(false)
    }

    /// Asks the main thread to end the daemon.
    pub fn request_stop(&self) {
        let _ = (&self.stop).write_all(b"s");
    }

    /// Leaves no trace of a job but its processes, if it has any.
    pub fn clear_away(&self, record: &Record) {
        release::job(&self.roots, record);
        release::dissolve(record);
        if let Err(error) = self.store.remove(record.id) {
            tracing::warn!(%error, source = %error.source, "a job file stays behind");
        }
    }

    /// Finds the jobs of an earlier daemon again.
    pub fn restore(&self) {
        let (records, errors) = self.store.records();
        for error in errors {
            tracing::error!(%error, source = %error.source, "a job is lost");
        }
        for record in records {
            release::job(&self.roots, &record);
            if let Err(reason) = self.restore_job(&record) {
                tracing::info!(job = record.id, ?reason, "a job of an earlier daemon is over");
                self.clear_away(&record);
            }
        }
    }

    fn restore_job(&self, record: &Record) -> Result<(), Denied> {
        let (job, mut record) = (JobId(record.id), record.clone());
        if let Whereabouts::Cgroup { group, .. } = &record.whereabouts {
            let group = Group::at(group);
            if !group.is_populated()? {
                return Err(Denied::NoSuchJob(job));
            }
            // The guardian may have been asked to dissolve what the processes were in besides.
            let confinement = record.whereabouts.confinement();
            if confinement.is_some_and(|at| self.lodging.limit(at, 0).is_err()) {
                record.whereabouts.set_confinement(None);
            }
            for process in
                group.processes()?.into_iter().filter_map(|pid| ProcessHandle::open(pid).ok())
            {
                self.lodging.move_in(&record.whereabouts, &process)?;
            }
        }
        let normal = record.normal.into();
        let members = self.lodging.members(&record.whereabouts, normal, &record.affinity)?;
        let kept = record.clone();
        self.conductor.ask(move |state| state.restore(&kept, members))??;
        if let Err(denied) = self.confine(job, record.mem_bytes) {
            tracing::warn!(%job, ?denied, "the memory of a job is not limited any more");
        }
        // Programs that mapped it go on with it.
        if self.store.page(record.id).exists() {
            let page = SlotPage::open(self.store.page(record.id))?;
            self.conductor.ask(move |state| state.page(job, page))??;
        }
        self.watch.add_job(job, &record.whereabouts)?;
        tracing::info!(job = record.id, name = record.name, "found a job of an earlier daemon");
        Ok(())
    }
}
