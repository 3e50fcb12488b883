//! A blocking client: one connection, one request at a time.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use crate::error::ClientError;
use crate::frame::{FrameError, read_message};
use crate::limits::REPLY_MAX;
use crate::paths::Surroundings;
use crate::progress;
use crate::unanswered::Unanswered;
use crate::v1;

/// Longest wait for the daemon, at each of connecting, writing and reading.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// What a new job asks for.
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
    /// Processes that handle SIGUSR1 and SIGUSR2 are told of the slots by them.
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
            policy: v1::Policy::local,
            weight: crate::limits::WEIGHT_DEFAULT,
            mem_bytes: None,
            disk_bytes: None,
            wait: false,
            signals: false,
        }
    }
}

/// What a running job is to ask for from now on; `None` stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
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
    /// Local or none.
    pub policy: v1::Policy,
    /// Until it is looked at again; otherwise for a while, to compare.
    pub decided: bool,
    pub gain: Option<v1::Gain>,
    /// Why it was decided so, or why nothing is.
    pub because: String,
}

/// What an adopted job is made of.
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
    stream: BufReader<UnixStream>,
    socket: PathBuf,
    server_uid: u32,
    timeout: Duration,
    unanswered: Unanswered,
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

    /// As [`find_from`](Self::find_from), with another bound than [`TIMEOUT`] for each wait.
    pub fn find_within(
        surroundings: &Surroundings,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let candidates = surroundings.candidates();
        for socket in &candidates {
            match Self::connect_within(socket, timeout) {
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
    pub fn connect_within(socket: &Path, timeout: Duration) -> Result<Self, ClientError> {
        let stream = open(socket, timeout).map_err(|errno| match errno {
            Errno::NOENT | Errno::CONNREFUSED => {
                ClientError::NoDaemon { tried: vec![socket.to_owned()] }
            }
            Errno::ACCESS | Errno::PERM => {
                ClientError::ConnectNotPermitted { socket: socket.to_owned(), source: errno.into() }
            }
            Errno::AGAIN => ClientError::TimedOut {
                doing: "connecting".to_owned(),
                socket: socket.to_owned(),
                waited: timeout,
            },
            _ => ClientError::Connect { socket: socket.to_owned(), source: errno.into() },
        })?;
        let server = sockopt::socket_peercred(&stream).map_err(|errno| ClientError::Connect {
            socket: socket.to_owned(),
            source: errno.into(),
        })?;
        let own_uid = rustix::process::geteuid().as_raw();
        let server_uid = server.uid.as_raw();
        if !is_trusted(server_uid, own_uid) {
            return Err(ClientError::ForeignSocket {
                socket: socket.to_owned(),
                uid: server_uid,
                own_uid,
            });
        }
        Ok(Self {
            stream: BufReader::new(stream),
            socket: socket.to_owned(),
            server_uid,
            timeout,
            unanswered: Unanswered::default(),
        })
    }

    /// The socket this client is connected to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// User id of the daemon: 0 or the caller's.
    pub fn server_uid(&self) -> u32 {
        self.server_uid
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
        // Memory may be a long time coming.
        let patience = if job.wait { None } else { Some(self.timeout) };
        let stream = self.stream.get_ref();
        stream.set_read_timeout(patience).map_err(|e| self.broken(doing.clone(), e.into()))?;
        let reply = self.call::<_, v1::Register_Reply>("Register", args, doing);
        let _ = self.stream.get_ref().set_read_timeout(Some(self.timeout));
        reply.map(|reply| reply.job)
    }

    /// Takes a process with all its threads and future children into a job.
    pub fn add_process(&mut self, job: i64, pid: i64) -> Result<(), ClientError> {
        let doing = format!("adding process {pid} to job {job}");
        self.call("AddProcess", v1::AddProcess_Args { job, pid }, doing)
            .map(|v1::AddProcess_Reply {}| ())
    }

    /// Takes a single thread into a job; the rest of its process is none of it.
    pub fn add_thread(&mut self, job: i64, tid: i64) -> Result<(), ClientError> {
        let doing = format!("adding thread {tid} to job {job}");
        self.call("AddThread", v1::AddThread_Args { job, tid }, doing)
            .map(|v1::AddThread_Reply {}| ())
    }

    /// Takes a single thread out of its job; it is scheduled as before.
    pub fn remove_thread(&mut self, job: i64, tid: i64) -> Result<(), ClientError> {
        let doing = format!("taking thread {tid} out of job {job}");
        self.call("RemoveThread", v1::RemoveThread_Args { job, tid }, doing)
            .map(|v1::RemoveThread_Reply {}| ())
    }

    /// Makes a job of what already runs; returns its id and the number of processes found. It does not
    /// wait for memory or disk.
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
        self.call("Adopt", args, doing)
    }

    /// Takes a process out of its job.
    pub fn remove_process(&mut self, job: i64, pid: i64) -> Result<(), ClientError> {
        let doing = format!("removing process {pid} from job {job}");
        self.call("RemoveProcess", v1::RemoveProcess_Args { job, pid }, doing)
            .map(|v1::RemoveProcess_Reply {}| ())
    }

    /// Puts a job into another class.
    pub fn set_class(&mut self, job: i64, class: v1::Class) -> Result<(), ClientError> {
        let doing = format!("changing the class of job {job}");
        self.call("SetClass", v1::SetClass_Args { job, class }, doing)
            .map(|v1::SetClass_Reply {}| ())
    }

    /// Schedules a job by another policy from now on.
    pub fn set_policy(&mut self, job: i64, policy: v1::Policy) -> Result<(), ClientError> {
        let doing = format!("changing the policy of job {job}");
        self.call("SetPolicy", v1::SetPolicy_Args { job, policy }, doing)
            .map(|v1::SetPolicy_Reply {}| ())
    }

    /// Schedules a job of policy auto by `policy` from now on.
    pub fn decide(&mut self, job: i64, decision: Decision) -> Result<(), ClientError> {
        let Decision { policy, decided, gain, because } = decision;
        let doing = format!("deciding how job {job} is scheduled");
        let args = v1::Decide_Args { job, policy, decided, gain, because };
        self.call("Decide", args, doing).map(|v1::Decide_Reply {}| ())
    }

    /// Changes what a running job asks for.
    pub fn resize(&mut self, job: i64, to: &Change) -> Result<(), ClientError> {
        let Change { cpus, min_cpus, weight, mem_bytes, disk_bytes } = *to;
        let args = v1::Resize_Args { job, cpus, min_cpus, weight, mem_bytes, disk_bytes };
        self.call("Resize", args, format!("resizing job {job}")).map(|v1::Resize_Reply {}| ())
    }

    /// All jobs, by id.
    pub fn list_jobs(&mut self) -> Result<v1::ListJobs_Reply, ClientError> {
        self.call("ListJobs", v1::ListJobs_Args {}, "listing the jobs".to_owned())
    }

    /// One job, with its processes where the caller may see them.
    pub fn show_job(&mut self, job: i64) -> Result<v1::ShowJob_Reply, ClientError> {
        self.call("ShowJob", v1::ShowJob_Args { job }, format!("looking at job {job}"))
    }

    /// The daemon, its backends and the times of its switches.
    pub fn status(&mut self) -> Result<v1::GetStatus_Reply, ClientError> {
        self.call("GetStatus", v1::GetStatus_Args {}, "asking for its status".to_owned())
    }

    /// The slice under way and those planned after it; and those before it that ended after `since_ns`
    /// (UTC), as far back as the daemon keeps them.
    pub fn frame(&mut self, since_ns: Option<i64>) -> Result<v1::GetFrame_Reply, ClientError> {
        self.call("GetFrame", v1::GetFrame_Args { since_ns }, "asking for the frame".to_owned())
    }

    /// The single switches that were asked for after `since_ns` (UTC), as far back as the daemon keeps them.
    pub fn switches(&mut self, since_ns: i64) -> Result<v1::GetSwitches_Reply, ClientError> {
        let args = v1::GetSwitches_Args { since_ns };
        self.call("GetSwitches", args, "asking for the switches".to_owned())
    }

    /// Has processes of the job told of its slots by SIGUSR1 and SIGUSR2, or not.
    pub fn set_signals(&mut self, job: i64, signals: bool) -> Result<(), ClientError> {
        let args = v1::SetSignals_Args { job, signals };
        self.call("SetSignals", args, format!("setting the signals of job {job}"))
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
        self.call("GetHistory", args, "reading the history of jobs".to_owned())
    }

    /// The path of the job's slot page.
    pub fn slot_page(&mut self, job: i64) -> Result<String, ClientError> {
        let args = v1::GetSlotPage_Args { job };
        self.call("GetSlotPage", args, format!("asking for the slot page of job {job}"))
            .map(|v1::GetSlotPage_Reply { path }| path)
    }

    /// Says how far a job is, as its program counts.
    pub fn set_progress(&mut self, job: i64, done: f64, total: f64) -> Result<(), ClientError> {
        let args = progress_args(job, done, total)?;
        self.call("SetProgress", args, reporting(job)).map(|v1::SetProgress_Reply {}| ())
    }

    /// As [`set_progress`](Self::set_progress), and never waits: a refusal is told with a later report of the
    /// same job, and while the daemon is behind with its answers nothing is sent.
    pub fn report_progress(&mut self, job: i64, done: f64, total: f64) -> Result<(), ClientError> {
        let args = progress_args(job, done, total)?;
        let answers = self.unanswered.take(self.stream.get_ref());
        let answers = answers.map_err(|error| self.broken(reporting(job), error))?;
        let refused = answers.into_iter().rfind(|(of, _)| *of == job).map(|(_, answer)| {
            self.understood::<v1::SetProgress_Reply>(&answer, reporting(job)).map(drop)
        });
        refused.unwrap_or(Ok(()))?;
        if self.unanswered.is_full() {
            return Ok(());
        }
        let sent = request("SetProgress", &args)
            .and_then(|message| self.unanswered.send(self.stream.get_ref(), job, &message));
        sent.map_err(|error| self.broken(reporting(job), error))
    }

    /// Stops a job until it is resumed.
    pub fn suspend(&mut self, job: i64) -> Result<(), ClientError> {
        self.call("Suspend", v1::Suspend_Args { job }, format!("suspending job {job}"))
            .map(|v1::Suspend_Reply {}| ())
    }

    /// Lets a suspended job run again.
    pub fn resume(&mut self, job: i64) -> Result<(), ClientError> {
        self.call("Resume", v1::Resume_Args { job }, format!("resuming job {job}"))
            .map(|v1::Resume_Reply {}| ())
    }

    /// Sends a signal to every process of a job.
    pub fn kill(&mut self, job: i64, signal: i64) -> Result<(), ClientError> {
        let doing = format!("sending signal {signal} to job {job}");
        self.call("Kill", v1::Kill_Args { job, signal }, doing).map(|v1::Kill_Reply {}| ())
    }

    /// Runs the checker of the invariants.
    pub fn check(&mut self) -> Result<v1::Check_Reply, ClientError> {
        self.call("Check", v1::Check_Args {}, "checking the invariants".to_owned())
    }

    /// Ends the daemon after it has released all jobs.
    pub fn stop(&mut self) -> Result<(), ClientError> {
        self.call("Stop", v1::Stop_Args {}, "stopping the daemon".to_owned())
            .map(|v1::Stop_Reply {}| ())
    }

    fn call<A, R>(&mut self, method: &str, args: A, doing: String) -> Result<R, ClientError>
    where
        A: Serialize,
        R: DeserializeOwned,
    {
        let reply = match self.exchange(method, &args) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Err(ClientError::Closed { doing, socket: self.socket.clone() }),
            Err(error) => return Err(self.broken(doing, error)),
        };
        self.understood(&reply, doing)
    }

    /// What a reply says.
    fn understood<R>(&self, reply: &[u8], doing: String) -> Result<R, ClientError>
    where
        R: DeserializeOwned,
    {
        let malformed =
            |doing, source| ClientError::Malformed { doing, socket: self.socket.clone(), source };
        let head: Head = match serde_json::from_slice(reply) {
            Ok(head) => head,
            Err(source) => return Err(malformed(doing, source)),
        };
        if head.error.is_some() {
            return match serde_json::from_slice(reply) {
                Ok(reply) => Err(ClientError::from_reply(doing, &reply)),
                Err(source) => Err(malformed(doing, source)),
            };
        }
        let body: Result<Body<R>, _> = serde_json::from_slice(reply);
        let parameters = body.and_then(|body| match body.parameters {
            Some(parameters) => Ok(parameters),
            // A method without results may leave its parameters out.
            None => serde_json::from_value(serde_json::json!({})),
        });
        parameters.map_err(|source| malformed(doing, source))
    }

    fn exchange(
        &mut self,
        method: &str,
        args: &impl Serialize,
    ) -> Result<Option<Vec<u8>>, FrameError> {
        let message = request(method, args)?;
        self.unanswered.settle(&mut self.stream)?;
        match send_all(self.stream.get_ref(), &message) {
            Ok(()) => read_message(&mut self.stream, REPLY_MAX),
            // Who has too many clients says so and closes, without waiting for what is asked.
            Err(error) if is_closed(&error) => match read_message(&mut self.stream, REPLY_MAX) {
                Ok(Some(reply)) => Ok(Some(reply)),
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn broken(&self, doing: String, error: FrameError) -> ClientError {
        let socket = self.socket.clone();
        match error {
            FrameError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ClientError::TimedOut { doing, socket, waited: self.timeout }
            }
            FrameError::Io(error) if is_closed(&error) => ClientError::Closed { doing, socket },
            source => ClientError::Lost { doing, socket, source },
        }
    }
}

/// No program is to die by SIGPIPE because a daemon has gone: libgang is in programs that leave it as it is.
fn send_all(stream: &UnixStream, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        match net::send(stream, message, SendFlags::NOSIGNAL) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => message = &message[sent..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The other end is not there any more.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// A request as it is sent.
fn request(method: &str, args: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let parameters = serde_json::to_value(args).map_err(io::Error::from)?;
    let request = varlink::Request::create(format!("org.gangd.v1.{method}"), Some(parameters));
    let mut message = serde_json::to_vec(&request).map_err(io::Error::from)?;
    message.push(0);
    Ok(message)
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

/// What a reply is: looked at first, because what its parameters are depends on it.
#[derive(Deserialize)]
struct Head {
    error: Option<IgnoredAny>,
}

/// A reply that is no error. Read as what it is: by way of any JSON, a frame would cost several times
/// as much.
#[derive(Deserialize)]
#[serde(bound = "R: DeserializeOwned")]
struct Body<R> {
    parameters: Option<R>,
}

/// Whom to believe: the machine's administrator and oneself. Anybody can make a socket at a place
/// like /tmp, and would be told of every program that is run.
fn is_trusted(server_uid: u32, own_uid: u32) -> bool {
    server_uid == 0 || server_uid == own_uid
}

/// The timeouts are set before connecting, because connecting waits too where the daemon's queue
/// is full.
fn open(socket: &Path, timeout: Duration) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(socket)?;
    let stream =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&stream, Timeout::Recv, Some(timeout))?;
    sockopt::set_socket_timeout(&stream, Timeout::Send, Some(timeout))?;
    loop {
        match net::connect(&stream, &address) {
            Ok(()) => return Ok(UnixStream::from(stream)),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusts_root_and_oneself_only() {
        assert!(is_trusted(0, 1000));
        assert!(is_trusted(1000, 1000));
        assert!(is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000));
        assert!(!is_trusted(1000, 0));
    }
}
