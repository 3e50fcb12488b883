//! One client's connection: its requests, in the terms of the interface.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::{
        fd::AsFd,
        unix::{fs::MetadataExt, net::UnixStream},
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use gang_cluster::record::{self, OnHostLost, Wanted as WantedState};
use gang_conductor::{Candidate, Progress, admission::Resources};
use gang_linux::{clock, error::unless_gone, process};
use gang_protocol::{limits, name::check_name, progress, v1};
use gang_schedule::{Allowed, Class, CpuSet, JobId, Spec, UserId};
use rustix::process::Signal;

use crate::{
    check,
    cluster::{Held, SpanningJob},
    conduct::state::now,
    daemon::Daemon,
    error::Error,
    history::Query,
    life::{
        auto::Decision,
        peer::{Peer, Sees},
        prover::Prover,
        resize::Change,
        single_threads,
    },
    serve::description::{self, Described},
    slurm::SlurmJob,
};

/// A connection. Jobs that it registered and that got no process end with it.
pub struct Session {
    pub daemon: Arc<Daemon>,
    peer: Peer,
    starting: Arc<Mutex<BTreeSet<JobId>>>,
    /// Jobs that span hosts, which it registered: each ends with it where no host has a process.
    held: Mutex<Vec<Held>>,
    /// The client's end, of which only hanging up is looked at.
    stream: UnixStream,
}

/// Ends the jobs that were registered and never started.
pub struct Starting {
    daemon: Arc<Daemon>,
    jobs: Arc<Mutex<BTreeSet<JobId>>>,
}

impl Drop for Starting {
    fn drop(&mut self) {
        let jobs = std::mem::take(&mut *self.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        // Another connection may have added a process.
        for job in jobs {
            self.daemon.end_unstarted(job);
        }
    }
}

/// The same connection, as the program has it that measures jobs of policy auto.
pub struct AutoSession {
    pub daemon: Arc<Daemon>,
    pub peer: Peer,
}

impl AutoSession {
    pub fn decide(&self, job: i64, decision: Decision) -> Result<(), Error> {
        self.daemon.decide(self.peer, job_id(job)?, decision)
    }
}

/// A new job, as the client wrote it.
pub struct Wanted {
    pub name: String,
    pub cpus: i64,
    pub min_cpus: i64,
    pub class: v1::Class,
    pub policy: v1::Policy,
    pub weight: i64,
    pub mem_bytes: Option<i64>,
    pub disk_bytes: Option<i64>,
    pub wait: bool,
    pub signals: bool,
}

/// A new job of several hosts, as the client wrote it.
pub struct SpanningWanted {
    pub name: String,
    pub cpus: Vec<v1::HostCpus>,
    pub class: v1::Class,
    pub weight: i64,
    pub on_host_lost: v1::OnHostLost,
    pub owner_uid: Option<i64>,
    pub launched_as: Option<String>,
}

/// A change of a running job, as the client wrote it.
pub struct Changed {
    pub class: Option<v1::Class>,
    pub policy: Option<v1::Policy>,
    pub cpus: Option<i64>,
    pub min_cpus: Option<i64>,
    pub weight: Option<i64>,
    pub mem_bytes: Option<i64>,
    pub disk_bytes: Option<i64>,
}

impl Session {
    pub fn new(daemon: Arc<Daemon>, peer: Peer, stream: UnixStream) -> (Session, Starting) {
        let jobs: Arc<Mutex<BTreeSet<JobId>>> = Arc::default();
        let starting = Starting { daemon: daemon.clone(), jobs: jobs.clone() };
        let held = Mutex::default();
        (Session { daemon, peer, starting: jobs, held, stream }, starting)
    }

    fn started(&self) -> std::sync::MutexGuard<'_, BTreeSet<JobId>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client, as far as a job is in question that it may have registered just now.
    fn peer_on(&self, job: JobId) -> Peer {
        if self.started().contains(&job) { self.peer.on_own_job() } else { self.peer }
    }

    fn spec(&self, wanted: &Wanted) -> Result<Spec, Error> {
        check_name(&wanted.name)
            .map_err(|e| Error::invalid("name", &wanted.name, e.to_string()))?;
        let class = Class::from(wanted.class.clone());
        if class == Class::Express && !self.peer.is_administrator() {
            let reason = "only administrators put a job into express; interactive, batch and standby are open";
            return Err(Error::not_permitted("register a job of class express", reason));
        }
        let weight = number("weight", wanted.weight, limits::WEIGHT_MAX)?;
        self.daemon.permit_weight(self.peer, weight, "register a job")?;
        Ok(Spec {
            // Its owner's, as it registers.
            user: UserId::default(),
            class,
            policy: wanted.policy.clone().into(),
            weight,
            cpus: number("cpus", wanted.cpus, limits::CPUS_MAX)?,
            min_cpus: number("min_cpus", wanted.min_cpus, limits::CPUS_MAX)?,
            allowed: Allowed::anywhere(),
            quota: None,
            overhead: 0,
            spanning: false,
        })
    }

    pub fn register(&self, wanted: Wanted) -> Result<JobId, Error> {
        self.register_with(wanted, Resources::default())
    }

    /// A new job of a user who has some of what it needs already.
    fn register_with(&self, wanted: Wanted, held: Resources) -> Result<JobId, Error> {
        let spec = self.spec(&wanted)?;
        let resources = Resources {
            mem_bytes: bytes("mem_bytes", wanted.mem_bytes)?.unwrap_or(0),
            disk_bytes: bytes("disk_bytes", wanted.disk_bytes)?.unwrap_or(0),
        };
        let candidate = Candidate {
            name: wanted.name,
            owner_uid: self.peer.uid,
            spec,
            resources,
            signals: wanted.signals,
            auto: wanted.policy == v1::Policy::auto,
        };
        if candidate.auto {
            // The client is to know at once whether jobs can be proved.
            Prover::ensure(&self.daemon);
        }
        let waiting = wanted.wait.then(|| self.stream.as_fd());
        let job = self.daemon.register(&candidate, held, waiting)?;
        self.started().insert(job);
        if candidate.auto {
            // The job may have waited long for what it needs.
            Prover::ensure(&self.daemon);
        }
        Ok(job)
    }

    pub fn register_spanning(&self, wanted: SpanningWanted) -> Result<(JobId, u64), Error> {
        let SpanningWanted { name, cpus, class, weight, on_host_lost, owner_uid, launched_as } =
            wanted;
        let terms = Wanted {
            name: name.clone(),
            cpus: 1,
            min_cpus: 1,
            class,
            policy: v1::Policy::gang,
            weight,
            mem_bytes: None,
            disk_bytes: None,
            wait: false,
            signals: false,
        };
        let spec = self.spec(&terms)?;
        let (mut by_host, mut awaited) = (BTreeMap::new(), BTreeMap::new());
        let mut bound: BTreeMap<String, CpuSet> = BTreeMap::new();
        for v1::HostCpus { host, cpus, ranks, allowed } in cpus {
            for cpu in allowed.into_iter().flatten() {
                let number = u32::try_from(cpu).ok().filter(|&cpu| cpu < record::NUMBER_MAX);
                let cpu = number.ok_or_else(|| {
                    let most = record::NUMBER_MAX - 1;
                    Error::invalid("allowed", cpu, format!("CPUs from 0 to {most}"))
                })?;
                bound.entry(host.clone()).or_default().insert(cpu);
            }
            let count = number("cpus", cpus, limits::CPUS_MAX)?;
            if let Some(ranks) = ranks {
                awaited.insert(host.clone(), number("ranks", ranks, limits::RANKS_MAX)?);
            }
            if by_host.insert(host.clone(), count).is_some() {
                return Err(Error::invalid("cpus", host, "each host once"));
            }
        }
        if by_host.is_empty() {
            return Err(Error::invalid("cpus", "", "at least one host"));
        }
        let on_host_lost = match on_host_lost {
            v1::OnHostLost::mark => OnHostLost::Mark,
            v1::OnHostLost::suspend => OnHostLost::Suspend,
            v1::OnHostLost::release => OnHostLost::Release,
        };
        let (class, weight) = (spec.class, spec.weight);
        let of_user = |uid: i64| {
            u32::try_from(uid).map_err(|_| Error::invalid("owner_uid", uid, "the id of a user"))
        };
        let owner_uid = owner_uid.map_or(Ok(self.peer.uid), of_user)?;
        if owner_uid != self.peer.uid && !self.peer.is_administrator() {
            let reason = "only administrators do so for another user";
            return Err(Error::not_permitted("register a job of several hosts", reason));
        }
        if let Some(name) = &launched_as {
            check_name(name)
                .map_err(|error| Error::invalid("launched_as", name, error.to_string()))?;
        }
        let (cpus, allowed, ranks) = (by_host, bound, awaited);
        let job = SpanningJob {
            name,
            class,
            weight,
            cpus,
            allowed,
            ranks,
            launched_as,
            on_host_lost,
            owner_uid,
        };
        let (job, from_ns, held) = self.daemon.register_spanning(self.peer, job)?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(held);
        Ok((job, from_ns))
    }

    /// The names of this host and of its cluster.
    pub fn own_host(&self) -> Option<(String, String)> {
        let cluster = self.daemon.cluster.get()?;
        Some((cluster.host.clone(), cluster.name.clone()))
    }

    pub fn cluster(&self) -> Result<Option<v1::Cluster>, Error> {
        Ok(description::cluster(&self.daemon, self.sees()?))
    }

    pub fn adopt(
        &self,
        wanted: Wanted,
        pid: Option<i64>,
        cgroup: Option<String>,
    ) -> Result<(JobId, usize), Error> {
        if pid.is_some() {
            self.peer.permit_numbers("adopt processes")?;
        }
        let held = match (pid, &cgroup) {
            (Some(pid), None) => self.daemon.held_by_tree(self.peer, process_number(pid)?)?,
            (None, Some(cgroup)) => self.daemon.held_by_group(self.peer, cgroup)?,
            _ => return Err(Error::invalid("pid", "", "exactly one of pid and cgroup")),
        };
        let job = self.register_with(wanted, held)?;
        let adopted = match (pid, cgroup) {
            (Some(pid), _) => {
                process_number(pid).and_then(|pid| self.daemon.adopt_tree(self.peer, job, pid))
            }
            (_, Some(cgroup)) => self.daemon.adopt_group(self.peer, job, &cgroup),
            (None, None) => Ok(0),
        };
        self.started().remove(&job);
        self.daemon.measuring.looks.look_around();
        match adopted {
            Ok(processes) => Ok((job, processes)),
            Err(error) => {
                self.daemon.end(job);
                Err(error)
            }
        }
    }

    pub fn remove_process(&self, job: i64, pid: i64) -> Result<(), Error> {
        self.peer.permit_numbers("remove a process")?;
        let job = job_id(job)?;
        self.daemon.remove_process(self.peer_on(job), job, process_number(pid)?)
    }

    pub fn remove_thread(&self, job: i64, tid: i64) -> Result<(), Error> {
        self.peer.permit_numbers("remove a thread")?;
        let job = job_id(job)?;
        self.daemon.remove_thread(self.peer_on(job), job, thread_number(tid)?)
    }

    pub fn set_job(&self, job: i64, to: Changed) -> Result<(), Error> {
        let optional = |parameter, value: Option<i64>, most| {
            value.map(|value| number(parameter, value, most)).transpose()
        };
        let change = Change {
            class: to.class.map(Class::from),
            policy: to.policy,
            cpus: optional("cpus", to.cpus, limits::CPUS_MAX)?,
            min_cpus: optional("min_cpus", to.min_cpus, limits::CPUS_MAX)?,
            weight: optional("weight", to.weight, limits::WEIGHT_MAX)?,
            mem_bytes: bytes("mem_bytes", to.mem_bytes)?,
            disk_bytes: bytes("disk_bytes", to.disk_bytes)?,
        };
        let job = job_id(job)?;
        if self.daemon.spans_hosts(job) {
            let Change { class, policy, cpus, min_cpus, weight, mem_bytes, disk_bytes } = change;
            let (sizes, resources) = (cpus.or(min_cpus), mem_bytes.or(disk_bytes));
            if policy.is_some() || sizes.is_some() || resources.is_some() {
                let reason = "it spans hosts: class and weight alone change while it runs";
                return Err(Error::not_permitted(format!("change job {job}"), reason));
            }
            return self.daemon.set_spanning(self.peer, job, class, weight);
        }
        self.daemon.set_job(self.peer_on(job), job, change)
    }

    pub fn add_process(&self, job: i64, pid: i64) -> Result<(), Error> {
        let job = job_id(job)?;
        let pid = process_number(pid)?;
        self.peer.permit_children("add a process")?;
        let added = self.daemon.add_process(self.peer_on(job), job, pid);
        added.map_err(|error| self.daemon.lapsed(self.peer, job, error))?;
        self.daemon.note_rank(job, pid);
        // A client that adds itself waits for the answer. Other threads of it count once they are
        // switched.
        if Some(pid) != self.peer.pid {
            self.daemon.measuring.looks.look_around();
        }
        self.started().remove(&job);
        Ok(())
    }

    /// Of a client that the daemon's PID namespace does not have, nobody knows which process it is.
    pub fn add_caller(&self, job: i64) -> Result<(), Error> {
        let job = job_id(job)?;
        let pid = self.peer.seen("add a process", &self.daemon.roots)?;
        let added = self.daemon.add_process(self.peer_on(job), job, pid);
        added.map_err(|error| self.daemon.lapsed(self.peer, job, error))?;
        self.daemon.note_rank(job, pid);
        self.started().remove(&job);
        Ok(())
    }

    pub fn job_of_caller(&self) -> Result<Option<JobId>, Error> {
        self.daemon.job_of_peer(self.peer)
    }

    /// Stretches limits of Slurm in the end, so being an administrator of gangd is not enough.
    pub fn set_slurm_job(&self, pid: i64, slurm_job: &str) -> Result<JobId, Error> {
        const OPERATION: &str = "name a job of Slurm";
        if !self.peer.is_root_or_daemon() {
            let reason = "only root does, and the user whom gangd runs as";
            return Err(Error::not_permitted(OPERATION, reason));
        }
        self.peer.permit_numbers(OPERATION)?;
        let pid = process_number(pid)?;
        let name = SlurmJob::parse(slurm_job).ok_or_else(|| {
            Error::invalid("slurm_job", slurm_job, "the number of a job, such as 12 or 12_3")
        })?;
        let job = self.daemon.job_of(pid)?.ok_or(Error::NoSuchProcess(pid))?;
        self.daemon.change_on_file(move |state| state.set_slurm_job(job, name.to_string()))?;
        Ok(job)
    }

    pub fn add_thread(&self, job: i64, tid: i64) -> Result<(), Error> {
        let job = job_id(job)?;
        self.peer.permit_numbers("add a thread")?;
        self.daemon.add_thread(self.peer, job, thread_number(tid)?)?;
        self.started().remove(&job);
        Ok(())
    }

    fn sees(&self) -> Result<Sees, Error> {
        self.daemon.seen_by(self.peer)
    }

    pub fn list(&self) -> Result<Vec<v1::Job>, Error> {
        let (jobs, _) = description::all_jobs(&self.daemon)?;
        let sees = self.sees()?;
        let is_seen = |job: &Described| sees.job(job.id(), job.owner_uid());
        let complete = |job: Described| job.complete(&self.daemon).map(|(job, _)| job);
        jobs.into_iter().filter(is_seen).map(complete).collect()
    }

    pub fn show(&self, job: i64) -> Result<(v1::Job, Option<Vec<v1::Process>>), Error> {
        let id = job_id(job)?;
        let described = self.daemon.conductor.ask(move |state| {
            let shares = state.core.schedule.shares();
            state.job(id).map(|job| Described::of(state, job, &shares, now()))
        })??;
        let (sees, peer) = (self.sees()?, self.peer_on(id));
        if !sees.job(id, described.owner_uid()) && !self.started().contains(&id) {
            return Err(Error::NoSuchJob(id));
        }
        let (mut lost_to, per_cpu) =
            (described.lost_to(&self.daemon), described.per_cpu(&self.daemon));
        for culprit in lost_to.iter_mut().flatten() {
            show_culprit(&self.daemon.roots.proc, self.peer, sees, culprit);
        }
        let singles = described.singles().to_vec();
        let (mut details, pids) = described.complete(&self.daemon)?;
        if !self.daemon.may_act_on(peer, id, details.owner_uid as u32)? {
            return Ok((details, None));
        }
        if let Some(measured) = &mut details.measured {
            (measured.lost_to, measured.per_cpu) = (lost_to, per_cpu);
        }
        let proc_root = &self.daemon.roots.proc;
        let owner_uid = details.owner_uid as u32;
        let power = self.daemon.power(peer, owner_uid);
        let foreign: BTreeMap<u32, u32> =
            pids.iter().filter_map(|&pid| Some((pid, power.foreign_owner(pid)?))).collect();
        let of_owner = pids.iter().filter(|pid| !foreign.contains_key(pid)).copied();
        let of_singles = singles.iter().map(|single| single.pid);
        let asked: Vec<u32> = of_owner.chain(of_singles).collect();
        let account = self.daemon.account_of(owner_uid);
        let mut commands = self.daemon.command_lines.read(account, proc_root, &asked);
        let processes = pids.into_iter().filter_map(|pid| {
            let command = match foreign.get(&pid) {
                None => commands.remove(&pid)?,
                Some(uid) => format!("[of user {uid}: not scheduled, nor signalled]"),
            };
            let threads = process::threads(proc_root, pid).ok()?.len() as i64;
            Some(v1::Process { pid: pid.into(), threads, command, tids: None })
        });
        let mut processes: Vec<v1::Process> = processes.collect();
        processes.extend(single_threads::processes(proc_root, &singles, commands));
        Ok((details, Some(processes)))
    }

    pub fn kill(&self, job: i64, signal: i64) -> Result<(), Error> {
        let id = job_id(job)?;
        if self.daemon.spans_hosts(id) {
            let ends = [Signal::TERM, Signal::KILL].map(|it| i64::from(it.as_raw()));
            if !ends.contains(&signal) {
                let accepted = "15 (TERM) or 9 (KILL) for a job that spans hosts";
                return Err(Error::invalid("signal", signal, accepted));
            }
            let wanted = WantedState::Kill;
            if self.daemon.want_spanning(self.peer, id, wanted, "kill a job")? {
                return Ok(());
            }
        }
        let peer = self.peer_on(id);
        let owner_uid = self.daemon.permit(peer, id, "send a signal")?;
        let power = self.daemon.power(peer, owner_uid);
        self.daemon.conductor.ask(move |state| {
            let reason =
                "a signal acts on a whole process: remove the threads, or signal their process";
            let job = state.job(id)?;
            Ok::<(), Error>(job.permit_on_processes(true, "send a signal to", reason)?)
        })??;
        let accepted = || Error::invalid("signal", signal, "1 to 64");
        let number =
            i32::try_from(signal).ok().filter(|n| (1..=64).contains(n)).ok_or_else(accepted)?;
        let signal = Signal::from_named_raw(number).ok_or_else(accepted)?;
        // All of them are sent it, also after one that refuses it: a program of another user, say.
        let mut refused = None;
        self.daemon.each_process(id, |process| {
            let to = || format!("process {}", process.pid);
            let permitted = power.over(process, || format!("send a signal to {}", to()));
            let sent = permitted.and_then(|()| {
                let sent = process.signal(signal);
                let sent = sent.map_err(|e| gang_linux::Error::new("send a signal to", to(), e));
                // One that ends meanwhile does not need the signal any more.
                Ok(unless_gone(sent)?)
            });
            refused = refused.take().or(sent.err());
        })?;
        refused.map_or(Ok(()), Err)
    }

    pub fn suspend(&self, job: i64, suspended: bool) -> Result<(), Error> {
        let id = job_id(job)?;
        let operation = if suspended { "suspend a job" } else { "resume a job" };
        if self.daemon.spans_hosts(id) {
            let wanted = if suspended { WantedState::Suspend } else { WantedState::Run };
            if self.daemon.want_spanning(self.peer, id, wanted, operation)? {
                return Ok(());
            }
        }
        let peer = self.peer_on(id);
        let owner_uid = self.daemon.permit(peer, id, operation)?;
        let power = self.daemon.power(peer, owner_uid);
        if suspended {
            let mut refused = None;
            self.daemon.each_process(id, |process| {
                let permitted = power.over(process, || format!("suspend job {id}"));
                refused = refused.take().or(permitted.err());
            })?;
            refused.map_or(Ok(()), Err)?;
        }
        self.daemon.suspend(id, suspended, power.is_over_all())
    }

    pub fn slot_page(&self, job: i64) -> Result<String, Error> {
        let job = job_id(job)?;
        let path = self.daemon.slot_page(self.peer_on(job), job)?;
        Ok(path.display().to_string())
    }

    pub fn set_signals(&self, job: i64, signals: bool) -> Result<(), Error> {
        let job = job_id(job)?;
        self.daemon.set_signals(self.peer_on(job), job, signals)
    }

    pub fn set_progress(&self, job: i64, done: f64, total: f64) -> Result<(), Error> {
        let id = job_id(job)?;
        if !progress::is_accepted(done, total) {
            let value = format!("{done} of {total}");
            return Err(Error::invalid("done", value, progress::ACCEPTED));
        }
        let progress = Progress { done, total, at_ns: clock::utc_ns() };
        self.daemon.set_progress(self.peer_on(id), id, progress)
    }

    pub fn status(&self) -> Result<v1::Status, Error> {
        description::status(&self.daemon, self.sees()?)
    }

    pub fn frame(&self, since_ns: Option<i64>) -> Result<Vec<v1::Row>, Error> {
        // Of a moment before 1970 nothing is known.
        let since_ns = since_ns.map(|ns| u64::try_from(ns).unwrap_or(0));
        let sees = self.sees()?;
        let (plans, seen) = self.daemon.conductor.ask(move |state| {
            let seen = state.core.jobs.values().filter(|job| sees.job(job.id, job.owner_uid));
            let seen: BTreeSet<i64> = seen.map(|job| job.id.0 as i64).collect();
            (description::frame(state, clock::utc_ns(), since_ns), seen)
        })?;
        let mut rows = description::rows(&plans);
        // A client that sees all sees the slots of jobs that are over, too.
        if sees != Sees::All {
            rows.iter_mut().for_each(|row| row.slots.retain(|slot| seen.contains(&slot.job)));
        }
        Ok(rows)
    }

    pub fn switches(&self, since_ns: i64) -> (Vec<v1::Switcher>, Vec<v1::Switch>) {
        // Of a moment before 1970 nothing is known.
        description::switches(&self.daemon, u64::try_from(since_ns).unwrap_or(0))
    }

    pub fn history(
        &self,
        limit: Option<i64>,
        owner_uid: Option<i64>,
        since_ns: Option<i64>,
    ) -> Result<Vec<v1::EndedJob>, Error> {
        let limit = number("limit", limit.unwrap_or(1000), 10_000)?;
        let uid = |uid| {
            u32::try_from(uid).map_err(|_| Error::invalid("owner_uid", uid, "the id of a user"))
        };
        let mut owner_uid = owner_uid.map(uid).transpose()?;
        match self.sees()? {
            Sees::All => {}
            Sees::Of(own) if owner_uid.is_none_or(|asked| asked == own) => owner_uid = Some(own),
            Sees::Of(_) | Sees::Own(_) => return Ok(Vec::new()),
        }
        let since_ns = since_ns.unwrap_or(0).max(0) as u64;
        let operation = || "read the history of jobs".to_owned();
        let history = self.daemon.history.as_ref().ok_or_else(|| Error::Failed {
            operation: operation(),
            reason: "this daemon keeps none, or could not open it (its log says so); set \
                     [history] path, or use the machine's"
                .into(),
        })?;
        let ended = history.read(Query { limit, owner_uid, since_ns });
        let ended = ended
            .map_err(|error| Error::Failed { operation: operation(), reason: error.to_string() })?;
        Ok(ended.into_iter().map(description::ended).collect())
    }

    /// The checker speaks of all jobs.
    pub fn check(&self) -> Result<(usize, Vec<v1::Violation>), Error> {
        if self.sees()? != Sees::All {
            let reason =
                "its findings are of all jobs, and only administrators see these (private = true)";
            return Err(Error::not_permitted("check the daemon", reason));
        }
        check::all(&self.daemon)
    }

    pub fn shutdown(&self) -> Result<(), Error> {
        if !self.peer.is_administrator() {
            return Err(Error::not_permitted("shut the daemon down", "only administrators may"));
        }
        self.daemon.instance.request_stop();
        Ok(())
    }
}

/// Leaves of a process for which a job waited no name and no number that the client could not see
/// himself: hidepid= may keep those of others from him (proc(5)). A number is the kernel's, and
/// left out where client or daemon knows processes by others.
fn show_culprit(proc_root: &Path, peer: Peer, sees: Sees, culprit: &mut v1::Culprit) {
    let is_daemons = process::is_in_first_pid_namespace(proc_root);
    let is_of = |uid: u32| {
        let process = std::fs::metadata(proc_root.join(culprit.pid.to_string()));
        is_daemons && process.is_ok_and(|process| process.uid() == uid)
    };
    let is_seen = culprit.pid == 0
        || culprit.sched_policy == "kernel"
        || match sees {
            Sees::All => true,
            Sees::Of(uid) => is_of(uid),
            Sees::Own(_) => false,
        };
    if !is_seen {
        culprit.name = "another user's".to_owned();
    }
    if !is_seen || !is_daemons || !peer.shares_numbers() {
        culprit.pid = 0;
    }
}

fn number(parameter: &'static str, value: i64, most: i64) -> Result<u32, Error> {
    let fits = (1..=most).contains(&value).then_some(value as u32);
    fits.ok_or_else(|| Error::invalid(parameter, value, format!("1 to {most}")))
}

fn bytes(parameter: &'static str, value: Option<i64>) -> Result<Option<u64>, Error> {
    let of =
        |value| u64::try_from(value).map_err(|_| Error::invalid(parameter, value, "0 or more"));
    value.map(of).transpose()
}

fn job_id(job: i64) -> Result<JobId, Error> {
    u64::try_from(job).map(JobId).map_err(|_| Error::invalid("job", job, "the number of a job"))
}

fn process_number(pid: i64) -> Result<u32, Error> {
    pid_number(pid).ok_or_else(|| Error::invalid("pid", pid, "the number of a process"))
}

fn thread_number(tid: i64) -> Result<u32, Error> {
    pid_number(tid).ok_or_else(|| Error::invalid("tid", tid, "the number of a thread"))
}

/// As the kernel numbers processes and threads.
fn pid_number(number: i64) -> Option<u32> {
    u32::try_from(number).ok().filter(|&number| number > 0 && i32::try_from(number).is_ok())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use gang_linux::Roots;
    use gang_protocol::peer::Credentials;

    use super::*;

    #[test]
    fn culprit_has_a_number_for_clients_that_share_numbers() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { proc: root.path().into(), sys: root.path().join("sys") };
        let uid = rustix::process::geteuid().as_raw();
        std::fs::create_dir_all(roots.proc.join("7")).unwrap();
        let shown = |numbers: &str, sees| {
            std::fs::write(roots.proc.join("7/status"), format!("NSpid:\t{numbers}\n")).unwrap();
            let credentials = Credentials { pid: NonZeroU32::new(7), uid };
            let peer = Peer::of(&credentials, Ok(None), None, &roots);
            let sched_policy = "fifo".to_owned();
            let mut culprit = v1::Culprit { name: "lu".into(), pid: 7, sched_policy, ns: 1 };
            show_culprit(&roots.proc, peer, sees, &mut culprit);
            (culprit.name, culprit.pid)
        };
        let (lu, hidden) = ("lu".to_owned(), "another user's".to_owned());
        assert_eq!(shown("7", Sees::All), (lu.clone(), 7));
        assert_eq!(shown("7", Sees::Of(uid)), (lu.clone(), 7));
        assert_eq!(shown("7", Sees::Of(uid + 1)), (hidden.clone(), 0));
        assert_eq!(shown("7", Sees::Own(None)), (hidden.clone(), 0));
        assert_eq!(shown("7\t1", Sees::All), (lu.clone(), 0), "of an inner PID namespace");
        // The daemon itself is in one: its process 7 is another one.
        std::fs::create_dir_all(roots.proc.join("self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[7]", roots.proc.join("self/ns/pid")).unwrap();
        assert_eq!(shown("7", Sees::All), (lu, 0));
        assert_eq!(shown("7", Sees::Of(uid)), (hidden, 0));
    }
}
