//! A blocking client: one connection, one request at a time.

mod connection;
mod unanswered;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::ClientError;
use crate::limits::FIRST_SPANNING;
use crate::paths::Surroundings;
use crate::progress;
use crate::timeout;
use crate::{auto1, v1};
use connection::{Connection, Numbers};

/// Longest wait for the daemon, at each of connecting, writing and reading, unless `$GANG_TIMEOUT`
/// is set.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The part of a job that spans hosts is waited for this long, and looked for this often.
const PART_WITHIN: Duration = Duration::from_secs(10);
const PART_LOOK: Duration = Duration::from_millis(20);

/// The specification of a new job.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// 1 to [`NAME_MAX`](crate::limits::NAME_MAX) bytes without control characters.
    pub name: String,
    /// CPUs it wants at once, from 1.
    pub cpus: i64,
    /// CPUs below which it does not run, 1 to `cpus`.
    pub min_cpus: i64,
    pub class: v1::Class,
    pub policy: v1::Policy,
    /// [`WEIGHT_MIN`](crate::limits::WEIGHT_MIN) to [`WEIGHT_MAX`](crate::limits::WEIGHT_MAX).
    pub weight: i64,
    /// Memory and disk that it needs, in bytes; `None` where it does not say.
    pub mem_bytes: Option<i64>,
    pub disk_bytes: Option<i64>,
    /// Wait until there is enough of both.
    pub wait: bool,
    /// Processes that handle SIGUSR1 and SIGUSR2 get them around slots.
    pub signals: bool,
}

impl Registration {
    /// A batch job of the default weight that needs all of its CPUs, and says nothing of the rest.
    pub fn new(name: impl Into<String>, cpus: i64) -> Registration {
        Registration {
            name: name.into(),
            cpus,
            min_cpus: cpus,
            class: v1::Class::batch,
            policy: v1::Policy::gang,
            weight: crate::limits::WEIGHT_DEFAULT,
            mem_bytes: None,
            disk_bytes: None,
            wait: false,
            signals: false,
        }
    }
}

/// Changes of a running job; a field that is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    pub class: Option<v1::Class>,
    pub policy: Option<v1::Policy>,
    pub cpus: Option<i64>,
    pub min_cpus: Option<i64>,
    pub weight: Option<i64>,
    /// 0: nothing.
    pub mem_bytes: Option<i64>,
    pub disk_bytes: Option<i64>,
}

/// How a job of policy auto is scheduled from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Gang or none; auto counts as gang, as such a job begins.
    pub policy: v1::Policy,
    /// Until it is looked at again; otherwise for a while, to compare.
    pub decided: bool,
    pub gain: Option<v1::Gain>,
    /// Why it was decided so, or why nothing is.
    pub because: String,
}

/// The processes that become a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// A process with its descendants.
    Process(i64),
    /// All processes of a cgroup; the path counts from the root of the hierarchy.
    Cgroup(String),
}

/// A connection to a daemon that runs as root or as the caller.
///
/// After an error other than a refusal (`NoSuchJob`, `NotPermitted` and the like) the connection
/// is of no further use: a late reply would be taken for that of the next request. The socket
/// closes when the process executes another program.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Connects to the first daemon that listens, at the places and in the order of
    /// [`Surroundings::candidates`].
    pub fn find() -> Result<Self, ClientError> {
        Self::find_from(&Surroundings::of_this_process())
    }

    /// As [`find`](Self::find), for given surroundings.
    pub fn find_from(surroundings: &Surroundings) -> Result<Self, ClientError> {
        Self::find_within(surroundings, TIMEOUT)
    }

    /// As [`find_from`](Self::find_from), also where the daemon is outside of this process's PID
    /// namespace: numbers of processes in answers are the daemon's then, and the daemon refuses
    /// those in requests.
    pub fn find_beyond(surroundings: &Surroundings) -> Result<Self, ClientError> {
        Self::first_of(surroundings, TIMEOUT, Numbers::OfDaemon)
    }

    /// As [`find_from`](Self::find_from), with another bound than [`TIMEOUT`] for each wait.
    pub fn find_within(
        surroundings: &Surroundings,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        Self::first_of(surroundings, timeout, Numbers::Shared)
    }

    fn first_of(
        surroundings: &Surroundings,
        timeout: Duration,
        numbers: Numbers,
    ) -> Result<Self, ClientError> {
        let candidates = surroundings.candidates();
        for socket in &candidates {
            match Self::open(socket, timeout, numbers) {
                Err(ClientError::NoDaemon { .. }) => {}
                other => return other,
            }
        }
        Err(ClientError::NoDaemon { tried: candidates })
    }

    /// Connects to the daemon at `socket` and checks whose it is.
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        Self::connect_within(socket, TIMEOUT)
    }

    /// As [`connect`](Self::connect), with another bound than [`TIMEOUT`] for each wait.
    /// That of `$GANG_TIMEOUT` comes before either.
    pub fn connect_within(socket: &Path, timeout: Duration) -> Result<Self, ClientError> {
        Self::open(socket, timeout, Numbers::Shared)
    }

    fn open(socket: &Path, timeout: Duration, numbers: Numbers) -> Result<Self, ClientError> {
        let connection = Connection::open(socket, timeout::or_usual(timeout), numbers)?;
        Ok(Client { connection })
    }

    /// Has something done when the daemon has been silent for a while: as a request waits for its
    /// answer, once for each, before the bound ends the wait. It gets the socket and the time that
    /// is left.
    pub fn notice_silence(&mut self, notice: fn(&Path, Duration)) {
        self.connection.notice_silence(notice);
    }

    /// The socket this client is connected to.
    pub fn socket(&self) -> &Path {
        self.connection.socket()
    }

    /// User id of the daemon: 0 or the caller's.
    pub fn server_uid(&self) -> u32 {
        self.connection.server_uid()
    }

    /// Registers a job that spans hosts. It ends when this client goes away before the job has a
    /// process on any host.
    pub fn register_spanning(
        &mut self,
        job: v1::RegisterSpanning_Args,
    ) -> Result<v1::RegisterSpanning_Reply, ClientError> {
        let doing = format!("registering the job {:?} on several hosts", job.name);
        self.connection.call("RegisterSpanning", job, doing)
    }

    /// The names of this host and of its cluster; none where it is in none.
    pub fn host(&mut self) -> Result<Option<(String, String)>, ClientError> {
        let doing = "asking for the name of this host".to_owned();
        let reply: v1::GetHost_Reply =
            self.connection.call("GetHost", v1::GetHost_Args {}, doing)?;
        Ok(reply.host.zip(reply.cluster))
    }

    /// A job on this host. The part of one that spans hosts comes to each of them a moment after it
    /// was registered, and is waited for.
    pub fn job_here(&mut self, job: i64) -> Result<v1::Job, ClientError> {
        let until = Instant::now() + PART_WITHIN;
        loop {
            match self.show_job(job) {
                Err(ClientError::NoSuchJob { .. })
                    if job >= FIRST_SPANNING && Instant::now() < until =>
                {
                    std::thread::sleep(PART_LOOK);
                }
                outcome => return outcome.map(|reply| reply.details),
            }
        }
    }

    /// The cluster that the daemon is in; none where it is in none, as is a daemon of a version
    /// that knows no clusters.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn cluster(&mut self) -> Result<Option<v1::Cluster>, ClientError> {
        let doing = "asking for the cluster".to_owned();
        let reply: Result<v1::GetCluster_Reply, _> =
            self.connection.call("GetCluster", v1::GetCluster_Args {}, doing);
        match reply {
            Err(ClientError::Unsupported { .. }) => Ok(None),
            reply => reply.map(|reply| reply.cluster),
        }
    }

    /// Makes a job without processes and returns its id. The job ends if this client goes before
    /// it has added a process.
    pub fn register(&mut self, job: &Registration) -> Result<i64, ClientError> {
        let job = job.clone();
        let doing = format!("registering the job {:?}", job.name);
        let args = v1::Register_Args {
            name: job.name,
            cpus: job.cpus,
            min_cpus: job.min_cpus,
            class: job.class,
            policy: job.policy,
            weight: job.weight,
            mem_bytes: job.mem_bytes,
            disk_bytes: job.disk_bytes,
            wait: Some(job.wait),
            signals: Some(job.signals),
        };
        let reply: Result<v1::Register_Reply, _> = match job.wait {
            // Memory may be a long time coming.
            true => self.connection.call_patiently("Register", args, doing),
            false => self.connection.call("Register", args, doing),
        };
        reply.map(|reply| reply.job)
    }

    /// Takes a process with all its threads and future children into a job.
    pub fn add_process(&mut self, job: i64, pid: i64) -> Result<(), ClientError> {
        let doing = format!("adding process {pid} to job {job}");
        self.connection
            .call("AddProcess", v1::AddProcess_Args { job, pid }, doing)
            .map(|v1::AddProcess_Reply {}| ())
    }

    /// The same for this process, whatever number the daemon has of it. The connection is to be
    /// this process's own, not its parent's.
    pub fn add_caller(&mut self, job: i64) -> Result<(), ClientError> {
        let doing = format!("adding this process to job {job}");
        self.connection
            .call("AddCaller", v1::AddCaller_Args { job }, doing)
            .map(|v1::AddCaller_Reply {}| ())
    }

    /// The job that this process is in.
    pub fn get_caller(&mut self) -> Result<Option<i64>, ClientError> {
        let doing = "asking for the job of this process".to_owned();
        let reply = self.connection.call("GetCaller", v1::GetCaller_Args {}, doing)?;
        let v1::GetCaller_Reply { job } = reply;
        Ok(job)
    }

    /// The job of Slurm that the job of a process is of, such as 12 or 12_3; root may say so.
    pub fn set_slurm_job(&mut self, pid: i64, slurm_job: String) -> Result<i64, ClientError> {
        let doing = format!("naming the job of Slurm that process {pid} is of");
        let args = v1::SetSlurmJob_Args { pid, slurm_job };
        self.connection.call("SetSlurmJob", args, doing).map(|v1::SetSlurmJob_Reply { job }| job)
    }

    /// Takes a single thread into a job; the rest of its process is none of it.
    pub fn add_thread(&mut self, job: i64, tid: i64) -> Result<(), ClientError> {
        let doing = format!("adding thread {tid} to job {job}");
        self.connection
            .call("AddThread", v1::AddThread_Args { job, tid }, doing)
            .map(|v1::AddThread_Reply {}| ())
    }

    /// Takes a single thread out of its job; it is scheduled as before.
    pub fn remove_thread(&mut self, job: i64, tid: i64) -> Result<(), ClientError> {
        let doing = format!("taking thread {tid} out of job {job}");
        self.connection
            .call("RemoveThread", v1::RemoveThread_Args { job, tid }, doing)
            .map(|v1::RemoveThread_Reply {}| ())
    }

    /// Makes a job of what already runs; returns its id and the number of processes found. It does
    /// not wait for memory or disk.
    pub fn adopt(
        &mut self,
        job: &Registration,
        adopted: &Adopted,
    ) -> Result<v1::Adopt_Reply, ClientError> {
        let Registration { name, cpus, min_cpus, class, policy, weight, .. } = job.clone();
        let Registration { mem_bytes, disk_bytes, signals, .. } = *job;
        let (doing, pid, cgroup) = match adopted {
            Adopted::Process(pid) => (format!("adopting process {pid}"), Some(*pid), None),
            Adopted::Cgroup(path) => (format!("adopting cgroup {path}"), None, Some(path.clone())),
        };
        let args = v1::Adopt_Args {
            name,
            cpus,
            min_cpus,
            class,
            policy,
            weight,
            pid,
            cgroup,
            mem_bytes,
            disk_bytes,
            signals: Some(signals),
        };
        self.connection.call("Adopt", args, doing)
    }

    /// Takes a process out of its job.
    pub fn remove_process(&mut self, job: i64, pid: i64) -> Result<(), ClientError> {
        let doing = format!("removing process {pid} from job {job}");
        self.connection
            .call("RemoveProcess", v1::RemoveProcess_Args { job, pid }, doing)
            .map(|v1::RemoveProcess_Reply {}| ())
    }

    /// Puts a job into another class.
    pub fn set_class(&mut self, job: i64, class: v1::Class) -> Result<(), ClientError> {
        let doing = format!("changing the class of job {job}");
        self.set_job(job, Change { class: Some(class), ..Change::default() }, doing)
    }

    /// Schedules a job by another policy from now on.
    pub fn set_policy(&mut self, job: i64, policy: v1::Policy) -> Result<(), ClientError> {
        let doing = format!("changing the policy of job {job}");
        self.set_job(job, Change { policy: Some(policy), ..Change::default() }, doing)
    }

    /// Schedules a job of policy auto by `policy` from now on.
    pub fn decide(&mut self, job: i64, decision: Decision) -> Result<(), ClientError> {
        let Decision { policy, decided, gain, because } = decision;
        let doing = format!("deciding how job {job} is scheduled");
        let (policy, gain) = (policy.into(), gain.map(Into::into));
        let args = auto1::Decide_Args { job, policy, decided, gain, because };
        self.connection.call("org.gangd.auto1.Decide", args, doing).map(|auto1::Decide_Reply {}| ())
    }

    /// Changes a running job: all that is said, or nothing where any of it is refused.
    pub fn set(&mut self, job: i64, change: &Change) -> Result<(), ClientError> {
        self.set_job(job, change.clone(), format!("changing job {job}"))
    }

    fn set_job(&mut self, job: i64, change: Change, doing: String) -> Result<(), ClientError> {
        let Change { class, policy, cpus, min_cpus, weight, mem_bytes, disk_bytes } = change;
        let args =
            v1::SetJob_Args { job, class, policy, cpus, min_cpus, weight, mem_bytes, disk_bytes };
        self.connection.call("SetJob", args, doing).map(|v1::SetJob_Reply {}| ())
    }

    /// All jobs, by id.
    pub fn list_jobs(&mut self) -> Result<v1::ListJobs_Reply, ClientError> {
        self.connection.call("ListJobs", v1::ListJobs_Args {}, "listing the jobs".to_owned())
    }

    /// One job, with its processes where the caller may see them.
    pub fn show_job(&mut self, job: i64) -> Result<v1::ShowJob_Reply, ClientError> {
        self.connection.call("ShowJob", v1::ShowJob_Args { job }, format!("looking at job {job}"))
    }

    /// The daemon, its backends and the times of its switches.
    pub fn status(&mut self) -> Result<v1::GetStatus_Reply, ClientError> {
        self.connection.call("GetStatus", v1::GetStatus_Args {}, "asking for its status".to_owned())
    }

    /// The slice under way and those planned after it; and those before it that ended after
    /// `since_ns` (UTC), as far back as the daemon keeps them.
    pub fn frame(&mut self, since_ns: Option<i64>) -> Result<v1::GetFrame_Reply, ClientError> {
        self.connection.call(
            "GetFrame",
            v1::GetFrame_Args { since_ns },
            "asking for the frame".to_owned(),
        )
    }

    /// The single switches that were asked for after `since_ns` (UTC), as far back as the daemon
    /// keeps them.
    pub fn switches(&mut self, since_ns: i64) -> Result<v1::GetSwitches_Reply, ClientError> {
        let args = v1::GetSwitches_Args { since_ns };
        self.connection.call("GetSwitches", args, "asking for the switches".to_owned())
    }

    /// Has SIGUSR1 and SIGUSR2 sent to processes of the job around its slots, or not.
    pub fn set_signals(&mut self, job: i64, signals: bool) -> Result<(), ClientError> {
        let args = v1::SetSignals_Args { job, signals };
        self.connection
            .call("SetSignals", args, format!("setting the signals of job {job}"))
            .map(|v1::SetSignals_Reply {}| ())
    }

    /// Jobs that have ended, the latest first.
    pub fn history(
        &mut self,
        limit: i64,
        owner_uid: Option<i64>,
        since_ns: Option<i64>,
    ) -> Result<v1::GetHistory_Reply, ClientError> {
        let args = v1::GetHistory_Args { limit: Some(limit), owner_uid, since_ns };
        self.connection.call("GetHistory", args, "reading the history of jobs".to_owned())
    }

    /// The path of the job's slot page.
    pub fn slot_page(&mut self, job: i64) -> Result<String, ClientError> {
        let args = v1::GetSlotPage_Args { job };
        self.connection
            .call("GetSlotPage", args, format!("asking for the slot page of job {job}"))
            .map(|v1::GetSlotPage_Reply { path }| path)
    }

    /// The key of the ports of a job that this process is in, 32 hexadecimal digits.
    pub fn net_key(&mut self, job: i64) -> Result<String, ClientError> {
        let args = v1::GetNetKey_Args { job };
        self.connection
            .call("GetNetKey", args, format!("asking for the key of the ports of job {job}"))
            .map(|v1::GetNetKey_Reply { key }| key)
    }

    /// Has a port of this process flushed, of which `page` is a descriptor.
    pub fn add_port(&mut self, job: i64, page: i64) -> Result<(), ClientError> {
        let args = v1::AddPort_Args { job, page };
        self.connection
            .call("AddPort", args, format!("adding a port to job {job}"))
            .map(|v1::AddPort_Reply {}| ())
    }

    /// How the program of a job stands, by two flushes; with what is in its channels on request.
    pub fn snapshot(&mut self, job: i64, contents: bool) -> Result<v1::Snapshot, ClientError> {
        let args = v1::GetSnapshot_Args { job, contents };
        self.connection
            .call("GetSnapshot", args, format!("flushing the ports of job {job}"))
            .map(|v1::GetSnapshot_Reply { snapshot }| snapshot)
    }

    /// Says how far a job is, as its program counts.
    pub fn set_progress(&mut self, job: i64, done: f64, total: f64) -> Result<(), ClientError> {
        let args = progress_args(job, done, total)?;
        self.connection.call("SetProgress", args, reporting(job)).map(|v1::SetProgress_Reply {}| ())
    }

    /// As [`set_progress`](Self::set_progress), and never waits. A later report of the same job
    /// returns a refusal. Nothing is sent while the daemon is behind with its answers.
    pub fn report_progress(&mut self, job: i64, done: f64, total: f64) -> Result<(), ClientError> {
        let args = progress_args(job, done, total)?;
        let reported = self.connection.send("SetProgress", args, job, reporting(job));
        reported.map(|_: Option<v1::SetProgress_Reply>| ())
    }

    /// Stops a job until it is resumed.
    pub fn suspend(&mut self, job: i64) -> Result<(), ClientError> {
        self.connection
            .call("Suspend", v1::Suspend_Args { job }, format!("suspending job {job}"))
            .map(|v1::Suspend_Reply {}| ())
    }

    /// Lets a suspended job run again.
    pub fn resume(&mut self, job: i64) -> Result<(), ClientError> {
        self.connection
            .call("Resume", v1::Resume_Args { job }, format!("resuming job {job}"))
            .map(|v1::Resume_Reply {}| ())
    }

    /// Sends a signal to every process of a job.
    pub fn kill(&mut self, job: i64, signal: i64) -> Result<(), ClientError> {
        let doing = format!("sending signal {signal} to job {job}");
        self.connection
            .call("Kill", v1::Kill_Args { job, signal }, doing)
            .map(|v1::Kill_Reply {}| ())
    }

    /// Runs the checker of the invariants.
    pub fn check(&mut self) -> Result<v1::Check_Reply, ClientError> {
        self.connection.call("Check", v1::Check_Args {}, "checking the invariants".to_owned())
    }

    /// Ends the daemon after it has released all jobs.
    pub fn shutdown(&mut self) -> Result<(), ClientError> {
        self.connection
            .call("Shutdown", v1::Shutdown_Args {}, "shutting the daemon down".to_owned())
            .map(|v1::Shutdown_Reply {}| ())
    }
}

/// A number that JSON does not have would come as none.
fn progress_args(job: i64, done: f64, total: f64) -> Result<v1::SetProgress_Args, ClientError> {
    if done.is_finite() && total.is_finite() {
        return Ok(v1::SetProgress_Args { job, done, total });
    }
    Err(ClientError::InvalidValue {
        doing: reporting(job),
        parameter: "done".to_owned(),
        value: format!("{done} of {total}"),
        accepted: progress::ACCEPTED.to_owned(),
    })
}

fn reporting(job: i64) -> String {
    format!("reporting the progress of job {job}")
}
