//! The program that is watched: found, or started, and made a job for the time.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use gang_protocol::{
    client::Client, error::ClientError, job_ref::resolve, name::escaped, paths::Surroundings, v1,
};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to become a job, and to be none again: more than a slow or busy
/// machine needs.
const JOB_WITHIN: Duration = Duration::from_secs(120);

/// How long a program may take to end after its signal.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Which program is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant {
    /// A process with its descendants.
    Process(i64),
    /// A job, by its id or its name.
    Job(String),
    Command(Vec<OsString>),
}

/// A program that is a job. A program that was no job before is none after, and a job is scheduled
/// as before.
pub struct Program {
    /// A client of the daemon that has the job.
    pub client: Client,
    pub job: i64,
    /// The policy that it has when nobody looks, and the one that it has now, as far as is known.
    policy: v1::Policy,
    is_at: Option<v1::Policy>,
    pub cgroup: PathBuf,
    /// CPUs that it may use at once.
    pub cpus: usize,
    origin: Origin,
}

/// How a program came to be a job.
enum Origin {
    /// It was one before.
    Job,
    Adopted,
    Started(Child),
}

impl Program {
    /// Makes the program a job that plain Linux schedules, unless it is a job already. Where
    /// `quiet`, the output of a program that is started goes to standard error. The daemon is the
    /// one at `socket` where one is named.
    pub fn find(meant: &Meant, socket: Option<&Path>, quiet: bool) -> Result<Program> {
        let daemon = &Surroundings::with_socket(socket);
        let gang = || {
            let mut gang = Command::new(gang()?);
            gang.args(socket.iter().flat_map(|path| ["--socket".as_ref(), path.as_os_str()]));
            anyhow::Ok(gang)
        };
        let name = format!("doctor-{}", std::process::id());
        let options = ["--policy", "none", "--min", "1", "--name", &name];
        let mut origin = match meant {
            Meant::Job(job) => {
                let mut client = Client::find_from(daemon)?;
                let id = resolve(&mut client, job)?;
                return Program::of_job(client, id, Origin::Job).map_err(
                    |error| match is_no_such_job(&error) {
                        true => error.context("gang doctor --pid PID watches a process"),
                        false => error,
                    },
                );
            }
            Meant::Process(pid) => {
                if let Some(job) = job_of(*pid, daemon)? {
                    return Program::of_job(Client::find_from(daemon)?, job, Origin::Job);
                }
                let output = gang()?
                    .arg("adopt")
                    .args(options)
                    .arg(pid.to_string())
                    .output()
                    .context("cannot execute gang")?;
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.trim().trim_start_matches("gang: ");
                ensure!(output.status.success(), "{said}");
                Origin::Adopted
            }
            Meant::Command(command) => {
                let mut gang = gang()?;
                gang.arg("run").args(options).arg("--").args(command);
                if quiet {
                    gang.stdout(std::io::stderr());
                }
                let child = gang.stdin(Stdio::null()).spawn().context("cannot execute gang")?;
                Origin::Started(child)
            }
        };
        match wait_for_job(&name, daemon, &mut origin) {
            Ok((client, job)) => Program::of_job(client, job, origin),
            Err(error) => {
                if let Origin::Started(child) = origin {
                    end(child, None);
                }
                Err(error)
            }
        }
    }

    fn of_job(client: Client, job: i64, origin: Origin) -> Result<Program> {
        // From here on, a failure leaves the program as it was.
        let mut program = Program {
            client,
            job,
            policy: v1::Policy::none,
            is_at: Some(v1::Policy::none),
            cgroup: PathBuf::new(),
            cpus: 1,
            origin,
        };
        let details = program.client.show_job(job)?.details;
        (program.policy, program.is_at) = (details.policy.clone(), Some(details.policy));
        program.cpus = usize::try_from(details.cpus).unwrap_or(1);
        program.cgroup = details.cgroup.map(PathBuf::from).with_context(|| {
            format!(
                "job {job} has no cgroup of its own (version 2), by which its threads are known"
            )
        })?;
        // Of its own proofs nothing would be left, nor of what was decided.
        ensure!(
            program.policy != v1::Policy::auto,
            "job {job} is of policy auto: gangd itself measures its gain; see gang show {job}"
        );
        Ok(program)
    }

    /// Has it scheduled by another policy.
    pub fn set_policy(&mut self, policy: v1::Policy) -> Result<()> {
        if self.is_at.as_ref() == Some(&policy) {
            return Ok(());
        }
        // It may be so even where the answer is lost.
        self.is_at = None;
        self.client.set_policy(self.job, policy.clone())?;
        self.is_at = Some(policy);
        if let Some(cgroup) = self.client.show_job(self.job)?.details.cgroup {
            self.cgroup = cgroup.into();
        }
        Ok(())
    }

    /// Has it scheduled as before, if it is still there.
    pub fn restore(&mut self) -> Result<()> {
        let restored = self.set_policy(self.policy.clone());
        restored.or_else(|error| if is_no_such_job(&error) { Ok(()) } else { Err(error) })
    }

    /// Whether it has ended, so that its job is not there any more.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.client.show_job(self.job), Err(ClientError::NoSuchJob { .. }))
    }

    /// Other jobs that are gangs and want to run, and the length of a slice.
    pub fn other_gangs(&mut self) -> Result<(usize, Duration)> {
        let jobs = self.client.list_jobs()?.jobs;
        let gangs = jobs.iter().filter(|it| it.id != self.job && is_awake(it) && is_gang(it));
        let slice_ns = self.client.status()?.status.slice_ns;
        Ok((gangs.count(), Duration::from_nanos(slice_ns.max(0) as u64)))
    }
}

/// Has processes that want to run.
pub fn is_awake(job: &v1::Job) -> bool {
    use v1::JobState::{not_scheduled, running, waiting};
    matches!(job.state, running | waiting | not_scheduled)
}

pub fn is_gang(job: &v1::Job) -> bool {
    match job.policy {
        v1::Policy::gang => true,
        v1::Policy::none => false,
        v1::Policy::auto => job.decided() != Some(&v1::Policy::none),
    }
}

/// The job of that name, with a client.
fn wait_for_job(name: &str, daemon: &Surroundings, origin: &mut Origin) -> Result<(Client, i64)> {
    let end = Instant::now() + JOB_WITHIN;
    loop {
        if let Origin::Started(child) = origin {
            if let Some(status) = child.try_wait()? {
                bail!("the program ended with {status} before it could be watched");
            }
        }
        match by_name(name, daemon) {
            Ok((client, Some(job))) if job.processes > 0 => return Ok((client, job.id)),
            // It was a job when `gang adopt` ended.
            Ok((_, None)) if matches!(origin, Origin::Adopted) => {
                bail!("the program ended before it could be watched")
            }
            _ if Instant::now() < end => std::thread::sleep(LOOK_EVERY),
            _ => bail!("the program did not become a job within {JOB_WITHIN:?}"),
        }
    }
}

fn by_name(name: &str, daemon: &Surroundings) -> Result<(Client, Option<v1::Job>), ClientError> {
    let mut client = Client::find_from(daemon)?;
    let jobs = client.list_jobs()?.jobs;
    Ok((client, jobs.into_iter().find(|job| job.name == name)))
}

/// The job that a process is in, where there is a daemon.
fn job_of(pid: i64, daemon: &Surroundings) -> Result<Option<i64>> {
    let mut client = match Client::find_from(daemon) {
        Ok(client) => client,
        Err(error) if error.is_no_daemon() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    for job in client.list_jobs()?.jobs {
        // One that ends meanwhile is not it.
        let Ok(reply) = client.show_job(job.id) else { continue };
        if reply.processes.iter().flatten().any(|process| process.pid == pid) {
            return Ok(Some(job.id));
        }
    }
    Ok(None)
}

impl Drop for Program {
    fn drop(&mut self) {
        let left = match std::mem::replace(&mut self.origin, Origin::Job) {
            Origin::Job => self.restore(),
            Origin::Adopted => self.leave(),
            Origin::Started(child) => {
                end(child, Some((&mut self.client, self.job)));
                Ok(())
            }
        };
        if let Err(error) = left {
            let error = format!("{error:#}");
            eprintln!("gang doctor: job {} is not as it was: {}", self.job, escaped(&error));
        }
    }
}

impl Program {
    /// Takes all processes out of the job, those that come meanwhile, too.
    fn leave(&mut self) -> Result<()> {
        let end = Instant::now() + JOB_WITHIN;
        loop {
            let processes = processes(&mut self.client, self.job)?;
            if processes.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < end, "it has {} processes still", processes.len());
            for pid in processes {
                // One that has ended is out of the job as well.
                let _: Result<(), ClientError> = self.client.remove_process(self.job, pid);
            }
        }
    }
}

fn is_no_such_job(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::NoSuchJob { .. }))
}

/// The processes of a job; none where there is no such job any more.
fn processes(client: &mut Client, job: i64) -> Result<Vec<i64>, ClientError> {
    match client.show_job(job) {
        Ok(reply) => Ok(reply.processes.into_iter().flatten().map(|it| it.pid).collect()),
        Err(ClientError::NoSuchJob { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Ends a program with all the processes of its job, where it is one: asks them first.
fn end(mut child: Child, mut job: Option<(&mut Client, i64)>) {
    let pid = Pid::from_child(&child);
    for (signal, grace) in [(Signal::TERM, ENDS_WITHIN), (Signal::KILL, Duration::ZERO)] {
        if let Some((client, job)) = &mut job {
            // It may be gone.
            let _: Result<(), ClientError> = client.kill(*job, i64::from(signal.as_raw()));
        } else if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process(pid, signal);
        }
        let end = Instant::now() + grace;
        let mut is_over = || {
            let is_empty = |(client, job): &mut (&mut Client, i64)| {
                processes(client, *job).is_ok_and(|processes| processes.is_empty())
            };
            !matches!(child.try_wait(), Ok(None)) && job.as_mut().is_none_or(is_empty)
        };
        while !is_over() && Instant::now() < end {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The program gang: beside this one, in ../../bin (as installed), else in `$PATH`.
fn gang() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program's own path")?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    [beside.join("gang"), beside.join("../../bin/gang")]
        .into_iter()
        .chain(std::env::split_paths(&path).map(|directory| directory.join("gang")))
        .find(|file| file.is_file())
        .context("cannot find the program gang beside gang-doctor, in ../../bin or in PATH")
}
