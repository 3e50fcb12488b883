//! One client's connection, and its requests that change jobs. Requests for new jobs are in
//! [`super::registration`], those that change nothing in [`super::reading`].

use std::{
    collections::BTreeSet,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gang_cluster::record::Wanted as WantedState;
use gang_conductor::Progress;
use gang_linux::{clock, error::unless_gone};
use gang_protocol::{limits, progress, v1};
use gang_schedule::{Class, JobId};
use rustix::process::Signal;

use super::parameters::{bytes, job_id, number, process_number, thread_number};
use crate::{
    cluster::Held,
    daemon::Daemon,
    error::Error,
    life::{auto::Decision, peer::Peer, resize::Change},
    slurm::SlurmJob,
};

/// A connection. Jobs that it registered and that got no process end with it.
pub struct Session {
    pub daemon: Arc<Daemon>,
    pub(super) peer: Peer,
    starting: Arc<Mutex<BTreeSet<JobId>>>,
    /// Jobs that span hosts, which it registered: each ends with it where no host has a process.
    pub(super) held: Mutex<Vec<Held>>,
    /// The client's end, of which only hanging up is looked at.
    pub(super) stream: UnixStream,
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

impl Session {
    pub fn new(daemon: Arc<Daemon>, peer: Peer, stream: UnixStream) -> (Session, Starting) {
        let jobs: Arc<Mutex<BTreeSet<JobId>>> = Arc::default();
        let starting = Starting { daemon: daemon.clone(), jobs: jobs.clone() };
        let held = Mutex::default();
        (Session { daemon, peer, starting: jobs, held, stream }, starting)
    }

    pub(super) fn started(&self) -> MutexGuard<'_, BTreeSet<JobId>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client, as far as a job is in question that it may have registered just now.
    pub(super) fn peer_on(&self, job: JobId) -> Peer {
        if self.started().contains(&job) { self.peer.on_own_job() } else { self.peer }
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

    pub fn set_job(&self, asked: v1::SetJob_Args) -> Result<(), Error> {
        let v1::SetJob_Args { job, class, policy, cpus, min_cpus, weight, mem_bytes, disk_bytes } =
            asked;
        let optional = |parameter, value: Option<i64>, most| {
            value.map(|value| number(parameter, value, most)).transpose()
        };
        let change = Change {
            class: class.map(Class::from),
            policy,
            cpus: optional("cpus", cpus, limits::CPUS_MAX)?,
            min_cpus: optional("min_cpus", min_cpus, limits::CPUS_MAX)?,
            weight: optional("weight", weight, limits::WEIGHT_MAX)?,
            mem_bytes: bytes("mem_bytes", mem_bytes)?,
            disk_bytes: bytes("disk_bytes", disk_bytes)?,
        };
        let job = job_id(job)?;
        if self.daemon.spans_hosts(job) {
            if !change.is_of_class_or_weight() {
                let reason = "it spans hosts: class and weight alone change while it runs";
                return Err(Error::not_permitted(format!("change job {job}"), reason));
            }
            return self.daemon.set_spanning(self.peer, job, change.class, change.weight);
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

    pub fn net_key(&self, job: i64) -> Result<String, Error> {
        self.daemon.net_key(self.peer, job_id(job)?)
    }

    pub fn add_port(&self, job: i64, page: i64) -> Result<(), Error> {
        self.daemon.add_port(self.peer, job_id(job)?, page)
    }

    pub fn snapshot(&self, job: i64, contents: bool) -> Result<v1::Snapshot, Error> {
        let job = job_id(job)?;
        self.daemon.snapshot(self.peer_on(job), job, contents)
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

    pub fn shutdown(&self) -> Result<(), Error> {
        if !self.peer.is_administrator() {
            return Err(Error::not_permitted("shut the daemon down", "only administrators may"));
        }
        self.daemon.instance.request_stop();
        Ok(())
    }
}
