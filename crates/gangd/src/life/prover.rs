//! The program that proves jobs of policy `auto`.
//!
//! Problem: a proof takes eyes in the kernel and the instructions of a program. The daemon is
//! small, has its memory locked, and must not die of what a proof reads.
//!
//! Approach: `gang-doctor --auto` is a client like any other, in a process of its own. The daemon
//! starts it for the first job of policy `auto` and ends it after the last. The program prints one
//! line: that it can measure here, or why not. It ends at the end of its standard input, also where
//! the daemon was killed.
//!
//! Properties: while the program is not there, jobs are scheduled by the last decision, and say why
//! nothing is measured.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gang_linux::clock;
use rustix::event::{PollFd, PollFlags, poll};

use crate::daemon::Daemon;

/// The line of a program that can measure; any other line is the reason why not.
const READY: &str = "ready";

/// How long that may take: the kernel checks what it is to load.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The longest that a client waits to hear whether jobs are proved. Twice this, and the wait for
/// the clean-up of jobs, are less than a client waits for an answer.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// The time between looks at the program, and at whether there is a job for it.
const ROUND: Duration = Duration::from_millis(250);

/// The wait before one is started again that ended by itself.
const RETRY: Duration = Duration::from_secs(10);

/// How long the program may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How it stands with the proving of jobs.
#[derive(Default)]
pub struct Prover {
    state: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Phase {
    #[default]
    NotNeeded,
    Starting,
    Ready,
    Cannot(String),
}

impl Prover {
    /// Sees to it that jobs are proved. Returns when it is known whether they can be, or when that
    /// takes long.
    pub fn ensure(daemon: &Arc<Daemon>) {
        let prover = &daemon.prover;
        {
            let mut phase = prover.phase();
            if *phase == Phase::NotNeeded {
                let kept = daemon.clone();
                let thread = std::thread::Builder::new().name("prover".into());
                match thread.spawn(move || keep(&kept)) {
                    Ok(_) => *phase = Phase::Starting,
                    // The next client tries again.
                    Err(error) => tracing::warn!(%error, "no thread for who proves jobs"),
                }
            }
        }
        let end = Instant::now() + KNOWN_WITHIN;
        let mut phase = prover.phase();
        while *phase == Phase::Starting && Instant::now() < end {
            let waited = prover.changed.wait_timeout(phase, ROUND);
            phase = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Why no job is proved; `None` where they are, or nobody asked.
    pub fn obstacle(&self) -> Option<String> {
        match &*self.phase() {
            Phase::Cannot(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        *self.phase() = phase;
        self.changed.notify_all();
    }
}

/// Keeps one as long as there is a job for it.
fn keep(daemon: &Arc<Daemon>) {
    let prover = &daemon.prover;
    let mut next = Instant::now();
    let mut running: Option<Running> = None;
    // A job that is registered has some time to come.
    let mut needed_until = Instant::now() + READY_WITHIN;
    loop {
        if needed_until < Instant::now() {
            let mut phase = prover.phase();
            // A client that asks from now on starts the next one; earlier clients have their jobs
            // by now, or ask again.
            if !daemon.has_auto() {
                *phase = Phase::NotNeeded;
                return;
            }
        }
        if daemon.has_auto() {
            needed_until = Instant::now() + ROUND;
        }
        let ended = running.as_mut().and_then(Running::has_ended);
        if let Some(how) = ended {
            running = None;
            tracing::warn!(how, "gang-doctor, which proves jobs, has ended; they stay as decided");
            fail(daemon, format!("gang-doctor ended: {how}"));
            next = Instant::now() + RETRY;
        }
        if running.is_none() && Instant::now() >= next {
            match Running::start(daemon) {
                Ok(started) => {
                    running = Some(started);
                    prover.set(Phase::Ready);
                }
                Err(reason) => {
                    tracing::info!(reason, "jobs of policy auto are not proved, and are gangs");
                    fail(daemon, reason);
                    next = Instant::now() + RETRY;
                }
            }
        }
        std::thread::sleep(ROUND);
    }
}

fn fail(daemon: &Daemon, reason: String) {
    daemon.end_trials(&format!("it cannot be measured: {reason}"));
    daemon.prover.set(Phase::Cannot(reason));
}

/// A program that runs, and ends when this is dropped.
struct Running {
    child: Child,
}

impl Running {
    fn start(daemon: &Daemon) -> Result<Running, String> {
        let program = program().ok_or(
            "cannot find the program gang-doctor beside gangd or in ../libexec/gangd; install it",
        )?;
        let mut child = Command::new(&program)
            .arg("--auto")
            .arg("--cost")
            .arg(daemon.settings().proof_cost.to_string())
            .env("GANG_SOCKET", &daemon.instance.socket)
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot execute {}: {error}", program.display()))?;
        let said = child.stdout.take().map(OwnedFd::from);
        let running = Running { child };
        match said.and_then(first_line).as_deref() {
            Some(READY) => Ok(running),
            Some("") => Err(format!("{} ended without a reason", program.display())),
            Some(reason) => Err(reason.to_owned()),
            None => Err(format!("{} did not say whether it can measure", program.display())),
        }
    }

    fn has_ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let end = Instant::now() + ENDS_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line, or what there is of it at the end; `None` where none comes in time.
fn first_line(said: OwnedFd) -> Option<String> {
    let mut fds = [PollFd::new(&said, PollFlags::IN)];
    match poll(&mut fds, Some(&clock::timespec(READY_WITHIN))) {
        Ok(0) | Err(_) => return None,
        Ok(_) => {}
    }
    let mut line = String::new();
    BufReader::new(File::from(said)).read_line(&mut line).ok()?;
    Some(line.trim().chars().filter(|it| !it.is_control()).take(300).collect())
}

/// The program: beside this one (a build directory), or where it is installed.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    [directory.join("gang-doctor"), directory.join("../libexec/gangd/gang-doctor")]
        .into_iter()
        .find(|file| file.is_file())
}
