//! A gangd of the lab's own for each setting that is compared, on a socket in a temporary
//! directory. It ends when the guard is dropped, and by itself when the lab is killed.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::child::Running;
use crate::harness::duration;
use crate::harness::host::Host;
use crate::harness::origin;
use crate::harness::programs::Programs;
use crate::harness::wait::{TIME_LIMIT, wait_until};

/// After these a daemon or command hangs. A machine that is slow or busy keeps within them.
const START_LIMIT: Duration = TIME_LIMIT;
const STOP_LIMIT: Duration = Duration::from_secs(30);
const ASK_LIMIT: Duration = TIME_LIMIT;

/// The slices of a daemon without `--slice`.
pub const DEFAULT_SLICE: Duration = Duration::from_millis(20);

/// How a daemon is started. Where nothing is set, the daemon has its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonOptions {
    pub slice: Option<Duration>,
    /// As the daemon takes it; unless set, it follows the slice and the machine.
    pub gap: Option<&'static str>,
    /// No other gang may use what the one in its slot leaves idle.
    pub no_fill: bool,
    /// It raises gangs even where nobody else wants a CPU.
    pub no_uncontended_passthrough: bool,
    /// It does not measure how far gangs are coscheduled.
    pub no_measure: bool,
    /// Its jobs are of policy none: measured as gangs are, and scheduled by Linux.
    pub only_watch: bool,
    pub backend: Option<String>,
    /// It keeps a history and a status file, as a machine's own daemon does.
    pub keeps: bool,
    /// Its jobs leave the groups in which they were called.
    pub leaves_groups: bool,
    /// The share of its time that measuring may cost a job of policy auto.
    pub proof_cost: Option<f64>,
    /// The host of a cluster that it is the daemon of.
    pub host: Option<Host>,
}

impl DaemonOptions {
    pub fn slice(slice: Duration) -> Self {
        Self { slice: Some(slice), ..Self::default() }
    }

    fn arguments(&self, socket: &Path, config: &Path) -> Vec<String> {
        let mut arguments = vec!["--socket".into(), socket.display().to_string()];
        arguments.extend(["--config".into(), config.display().to_string()]);
        arguments.push("--exit-when-idle".into());
        if let Some(slice) = self.slice {
            arguments.extend(["--slice".into(), duration::show(slice)]);
        }
        if let Some(gap) = self.gap {
            arguments.extend(["--gap".into(), gap.into()]);
        }
        if self.no_fill {
            arguments.push("--no-fill".into());
        }
        if self.no_uncontended_passthrough {
            arguments.push("--no-uncontended-passthrough".into());
        }
        if self.no_measure {
            arguments.push("--no-measure".into());
        }
        if let Some(backend) = &self.backend {
            arguments.extend(["--backend".into(), backend.clone()]);
        }
        arguments
    }
}

/// In memory where there is such a directory, as that of the machine's daemon is: what is on file
/// of jobs is not to wait for a disk.
pub fn runtime_dir() -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("gang-lab-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())
}

pub struct Daemon {
    child: Child,
    gang: PathBuf,
    only_watch: bool,
    /// Its backend, slice and gap, as it says.
    schedules_by: Option<String>,
    socket: PathBuf,
    dir: TempDir,
    /// A client that stays, so that the daemon is not idle before its first job has come.
    connection: Option<UnixStream>,
}

/// On a busy machine a daemon can find itself idle, and end, before the lab gets to connect.
const ATTEMPTS: usize = 3;

impl Daemon {
    /// Starts a daemon and waits until it listens, and no part of it starts any more.
    pub fn start(programs: &Programs, settings: &DaemonOptions) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let mut daemon = Self::spawn(programs, settings)?;
            if daemon.connect()? {
                let end = Instant::now() + START_LIMIT;
                let mut status = daemon.status()?;
                while status["measuring"] == "starting" && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(20));
                    status = daemon.status()?;
                }
                daemon.schedules_by = origin::of_daemon(&status);
                return Ok(daemon);
            }
        }
        bail!("gangd ended without a job, {ATTEMPTS} times, before the lab could connect")
    }

    fn spawn(programs: &Programs, settings: &DaemonOptions) -> Result<Self> {
        let gangd = programs.gangd()?;
        let gang = programs.gang()?.to_path_buf();
        let dir = runtime_dir().context("making a directory for the socket of a daemon")?;
        let socket = dir.path().join("socket");
        // A configuration of its own: the defaults that are measured are those of the program, not
        // of the machine's own daemon.
        let config = dir.path().join("gangd.toml");
        let mut text = String::new();
        if let Some(cost) = settings.proof_cost {
            text += &format!("proof_cost = {cost}\n");
        }
        if settings.keeps {
            let history = dir.path().join("history.db");
            text += &format!("status_file = true\n[history]\npath = {history:?}\n");
        }
        if settings.leaves_groups {
            text += "[cgroups]\nleave = \"always\"\n";
        }
        let mut command = match &settings.host {
            Some(host) => {
                text += &host.configuration();
                host.daemon(gangd, dir.path())?
            }
            None => Command::new(gangd),
        };
        fs::write(&config, text).context("writing a daemon's configuration")?;
        let log = File::create(dir.path().join("log")).context("making a daemon's log")?;
        let child = command
            .args(settings.arguments(&socket, &config))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("making a daemon's log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", gangd.display()))?;
        let (only_watch, schedules_by, connection) = (settings.only_watch, None, None);
        Ok(Self { child, gang, only_watch, schedules_by, socket, dir, connection })
    }

    /// Connects as soon as the daemon listens; false where it has ended of itself before.
    fn connect(&mut self) -> Result<bool> {
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Ok(connection) = UnixStream::connect(&self.socket) {
                self.connection = Some(connection);
                return Ok(true);
            }
            match self.child.try_wait().context("waiting for gangd")? {
                Some(status) if status.success() => return Ok(false),
                Some(status) => bail!("gangd ended with {status}: {}", self.log()),
                None => {}
            }
            if Instant::now() > end {
                bail!("gangd did not listen within {START_LIMIT:?}: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.trim().to_owned()
    }

    /// Its backend, slice and gap, where it schedules its jobs.
    pub fn schedules_by(&self) -> Option<String> {
        self.schedules_by.clone().filter(|_| !self.only_watch)
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Lets every user reach the socket, as that of a machine's own daemon.
    pub fn let_everybody_in(&self) -> Result<()> {
        let (dir, mode) = (self.dir.path(), Permissions::from_mode(0o711));
        fs::set_permissions(dir, mode)
            .with_context(|| format!("opening {} to everybody", dir.display()))
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How many jobs `gang ls --json` lists.
    pub fn list(&self) -> Result<usize> {
        let value: Value = ask(&mut self.gang(&["ls", "--json"]))?;
        Ok(value.get("jobs").and_then(Value::as_array).map_or(0, Vec::len))
    }

    /// How many of the jobs that ended it reports, the latest first.
    pub fn history(&self, most: usize) -> Result<usize> {
        let value: Value = ask(&mut self.gang(&["history", "--json", "-n", &most.to_string()]))?;
        Ok(value.get("jobs").and_then(Value::as_array).map_or(0, Vec::len))
    }

    /// The command that makes a program a gang of this daemon: `gang run … --`.
    pub fn gang_run(&self, cpus: usize, weight: Option<u32>) -> Command {
        self.gang_run_with(&[], cpus, weight)
    }

    /// The same, with more options.
    pub fn gang_run_with(&self, more: &[&str], cpus: usize, weight: Option<u32>) -> Command {
        let mut command = self.gang(&["run", "-n", &cpus.to_string()]);
        command.args(more);
        if self.only_watch {
            command.args(["--policy", "none"]);
        }
        if let Some(weight) = weight {
            command.args(["--weight", &weight.to_string()]);
        }
        command.arg("--");
        command
    }

    /// The output of `gang status --json`.
    pub fn status(&self) -> Result<Value> {
        let mut command = self.gang(&["status", "--json"]);
        let value: Value = ask(&mut command)?;
        // Some versions wrap the answer by its name.
        Ok(value.get("status").cloned().unwrap_or(value))
    }

    /// Waits until so many programs have become jobs.
    pub fn wait_for_jobs(&self, count: usize) -> Result<()> {
        wait_until(&format!("{count} jobs"), || {
            let jobs = self.status()?.pointer("/jobs").and_then(Value::as_u64);
            Ok(jobs == Some(count as u64))
        })
    }

    /// The command of a program that speaks to this daemon itself.
    pub fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("GANG_SOCKET", &self.socket);
        command
    }

    /// The jobs, as `gang ls --json` says.
    pub fn jobs(&self) -> Result<Vec<Value>> {
        let value: Value = ask(&mut self.gang(&["ls", "--json"]))?;
        let jobs = value.get("jobs").and_then(Value::as_array);
        jobs.cloned().context("gang ls --json names no jobs")
    }

    fn gang(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.gang);
        command.args(arguments).env("GANG_SOCKET", &self.socket);
        command
    }
}

/// A number of the daemon's status or of a job, by its path.
pub fn number(status: &Value, path: &str) -> Result<f64> {
    let value = status.pointer(path).and_then(Value::as_f64);
    value.with_context(|| format!("gangd reported no number at {path}"))
}

/// Asks by a command whose whole output is one JSON value.
fn ask(command: &mut Command) -> Result<Value> {
    let what = format!("{command:?}");
    let out = Running::start(command)?.finish(Instant::now() + ASK_LIMIT)?;
    serde_json::from_str(&out).with_context(|| format!("{what} wrote {out:?}"))
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.connection = None;
        if let Some(pid) = Pid::from_raw(self.pid()) {
            if matches!(self.child.try_wait(), Ok(None)) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let end = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_flags() {
        let socket = Path::new("/s");
        let join = |settings: DaemonOptions| settings.arguments(socket, Path::new("/c")).join(" ");
        assert_eq!(join(DaemonOptions::default()), "--socket /s --config /c --exit-when-idle");
        let all = DaemonOptions {
            slice: Some(Duration::from_millis(1)),
            gap: Some("none"),
            no_fill: true,
            no_uncontended_passthrough: true,
            no_measure: true,
            only_watch: true,
            backend: Some("weight".into()),
            keeps: true,
            leaves_groups: true,
            proof_cost: Some(0.5),
            host: None,
        };
        let flags = "--socket /s --config /c --exit-when-idle --slice 1ms --gap none --no-fill --no-uncontended-passthrough --no-measure --backend weight";
        assert_eq!(join(all), flags);
    }

    #[test]
    fn the_default_is_that_of_the_daemon() {
        // gangd's own tests hold this file against its defaults.
        let example = include_str!("../../../../etc/gangd.toml");
        let line = format!("# slice = {:?}", duration::show(DEFAULT_SLICE));
        assert!(example.lines().any(|it| it == line), "{line}");
    }

    #[test]
    fn numbers_by_their_path() {
        let status = serde_json::json!({ "switches": { "skew": { "p50_ns": 1500 } } });
        assert_eq!(number(&status, "/switches/skew/p50_ns").unwrap(), 1500.0);
        let error = number(&status, "/switches/late/p50_ns").unwrap_err().to_string();
        assert!(error.contains("/switches/late/p50_ns"), "{error}");
    }
}
