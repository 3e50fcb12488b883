//! The program that is watched: found, or started, and made a job for the time.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use gang_protocol::{client::Client, error::ClientError, v1};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to become a job.
const JOB_WITHIN: Duration = Duration::from_secs(15);

/// How long a program may take to end when it is told to.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Which program is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meant {
    /// A process with its descendants.
    Process(i64),
    Job(i64),
    Command(Vec<OsString>),
}

/// A program that is a job. What was not a job before is none after.
pub struct Program {
    pub client: Client,
    pub job: i64,
    /// What it is scheduled by when nobody looks.
    pub policy: v1::Policy,
    pub cgroup: PathBuf,
    /// CPUs that it may use at once.
    pub cpus: usize,
    is_ours: bool,
    child: Option<Child>,
}

impl Program {
    /// Makes the program a job that Linux alone schedules, unless it is a job already. What a program
    /// that is started writes goes to standard error where `quiet`.
    pub fn find(meant: &Meant, quiet: bool) -> Result<Program> {
        let name = format!("doctor-{}", std::process::id());
        let options = ["--policy", "none", "--min", "1", "--name", &name];
        let mut child = None;
        match meant {
            Meant::Job(job) => return Program::of_job(Client::find()?, *job, false, None),
            Meant::Process(pid) => {
                if let Some(job) = job_of(*pid)? {
                    return Program::of_job(Client::find()?, job, false, None);
                }
                let output = Command::new(gang()?)
                    .arg("adopt")
                    .args(options)
                    .arg(pid.to_string())
                    .output()
                    .context("cannot execute gang")?;
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.trim().trim_start_matches("gang: ");
                ensure!(output.status.success(), "{said}");
            }
            Meant::Command(command) => {
                let mut gang = Command::new(gang()?);
                gang.arg("run").args(options).arg("--").args(command);
                if quiet {
                    gang.stdout(std::io::stderr());
                }
                child = Some(gang.stdin(Stdio::null()).spawn().context("cannot execute gang")?);
            }
        }
        let end = Instant::now() + JOB_WITHIN;
        loop {
            if let Some(status) =
                child.as_mut().map(|child| child.try_wait()).transpose()?.flatten()
            {
                bail!("the program ended with {status} before it could be watched");
            }
            if let Some(job) =
                Client::find().ok().and_then(|mut client| by_name(&mut client, &name))
            {
                return Program::of_job(Client::find()?, job, true, child);
            }
            ensure!(Instant::now() < end, "the program did not become a job within {JOB_WITHIN:?}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn of_job(
        mut client: Client,
        job: i64,
        is_ours: bool,
        child: Option<Child>,
    ) -> Result<Program> {
        let details = client.show_job(job)?.details;
        let cgroup = details.cgroup.map(PathBuf::from).with_context(|| {
            format!(
                "job {job} has no cgroup of its own (version 2), by which its threads are known"
            )
        })?;
        let cpus = usize::try_from(details.cpus).unwrap_or(1);
        Ok(Program { client, job, policy: details.policy, cgroup, cpus, is_ours, child })
    }

    /// Has it scheduled by another policy.
    pub fn set_policy(&mut self, policy: v1::Policy) -> Result<()> {
        self.client.set_policy(self.job, policy)?;
        if let Some(cgroup) = self.client.show_job(self.job)?.details.cgroup {
            self.cgroup = cgroup.into();
        }
        Ok(())
    }
}

fn by_name(client: &mut Client, name: &str) -> Option<i64> {
    let jobs = client.list_jobs().ok()?.jobs;
    let started = |job: &&v1::Job| job.name == name && job.processes > 0;
    jobs.iter().find(started).map(|job| job.id)
}

/// The job that a process is in, where there is a daemon.
fn job_of(pid: i64) -> Result<Option<i64>> {
    let mut client = match Client::find() {
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
        if !self.is_ours {
            return;
        }
        match self.child.take() {
            Some(child) => end(child),
            None => {
                let processes = self.client.show_job(self.job).ok().and_then(|it| it.processes);
                for process in processes.into_iter().flatten() {
                    // One that has ended is out of the job as well.
                    let _: Result<(), ClientError> =
                        self.client.remove_process(self.job, process.pid);
                }
            }
        }
    }
}

/// Ends a program: asks it first.
fn end(mut child: Child) {
    let pid = Pid::from_child(&child);
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let end = Instant::now() + ENDS_WITHIN;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
        std::thread::sleep(LOOK_EVERY);
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
