//! The program that proves jobs of policy `auto`.
//!
//! Problem: a proof takes eyes in the kernel and the instructions of a program. The daemon is
//! small, has its memory locked, and must not die of what a proof reads.
//!
//! Approach: `gang-doctor --auto` is a client like any other, in a process of its own. The daemon
//! starts it for the first job of policy `auto` and ends it after the last. The program prints one
//! line: that it can measure here, or why not. Then it says at which job it is, once a second. It
//! ends at the end of its standard input, also where the daemon was killed. It gives up the rights
//! that it does not need, and becomes the user `gang-doctor` where the machine has that user.
//!
//! Properties: while the program is not there, jobs are scheduled by the last decision, and say why
//! nothing is measured. A program that falls silent is ended, and nothing waits for its end. A job
//! at which that happened twice is not measured any more, so that the others are.

use std::{
    collections::BTreeMap,
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gang_linux::clock;
use gang_schedule::JobId;
use nix::unistd::User;
use rustix::event::{PollFd, PollFlags, poll};

use crate::{conduct::at_work, daemon::Daemon};

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

/// How long the program may take to end, and again once it is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// A program that has printed nothing for so long hangs. It waits for the daemon for less.
const SILENT: Duration = Duration::from_secs(30);

/// A job at which so many programs ended is not measured any more.
const ENDS_MAX: u32 = 2;

/// The user that the program becomes.
const USER: &str = "gang-doctor";

/// The longest line of the program that is kept.
const LINE_MAX: usize = 4096;

/// The most lines of it that are read in one round.
const LINES_A_ROUND: usize = 64;

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
            at_work::leave();
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
    let mut ends = Ends::default();
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
            let at = running.take().and_then(|it| it.at);
            let how = ends.count(at, &how);
            tracing::warn!(how, "gang-doctor, which proves jobs, has ended; they stay as decided");
            fail(daemon, format!("gang-doctor ended: {how}"));
            next = Instant::now() + RETRY;
        }
        if running.is_none() && Instant::now() >= next {
            if let Some(jobs) = daemon.auto_jobs() {
                ends.forget_all_but(&jobs);
            }
            match Running::start(daemon, &ends.passed_over()) {
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

/// How many programs ended at a job.
#[derive(Default)]
struct Ends(BTreeMap<JobId, u32>);

impl Ends {
    /// One more ended, at this job; how it ended, with the job.
    fn count(&mut self, at: Option<JobId>, how: &str) -> String {
        let Some(job) = at else { return how.to_owned() };
        let count = self.0.entry(job).or_default();
        *count += 1;
        match *count {
            ENDS_MAX.. => format!("{how}, again at job {job}, which is not measured any more"),
            _ => format!("{how}, at job {job}"),
        }
    }

    fn passed_over(&self) -> Vec<JobId> {
        let often = self.0.iter().filter(|(_, count)| **count >= ENDS_MAX);
        often.map(|(job, _)| *job).collect()
    }

    fn forget_all_but(&mut self, jobs: &[JobId]) {
        self.0.retain(|job, _| jobs.contains(job));
    }
}

/// A program that runs, and ends when this is dropped.
struct Running {
    child: Child,
    output: Lines<ChildStdout>,
    /// The job that it is at.
    at: Option<JobId>,
    heard: Instant,
}

impl Running {
    fn start(daemon: &Daemon, without: &[JobId]) -> Result<Running, String> {
        let program = program().ok_or(
            "cannot find the program gang-doctor beside gangd or in ../libexec/gangd; install it",
        )?;
        let mut command = Command::new(&program);
        command.arg("--auto").arg("--cost").arg(daemon.settings().proof_cost.to_string());
        if !without.is_empty() {
            let jobs: Vec<String> = without.iter().map(ToString::to_string).collect();
            command.arg("--without").arg(jobs.join(","));
        }
        // The machine's database of users may be on another machine.
        if let Ok(Some(user)) = User::from_name(USER) {
            command.arg("--user").args([user.uid.to_string(), user.gid.to_string()]);
        }
        let mut child = command
            .env("GANG_SOCKET", &daemon.instance.socket)
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot execute {}: {error}", program.display()))?;
        let stdout = child.stdout.take().expect("its standard output is a pipe");
        let output = Lines { from: stdout, line: Vec::new(), has_ended: false };
        let mut running = Running { child, output, at: None, heard: Instant::now() };
        match running.output.line_within(READY_WITHIN).as_deref() {
            Some(READY) => Ok(running),
            Some(reason) => Err(reason.to_owned()),
            None if running.output.has_ended => {
                Err(format!("{} ended without a reason", program.display()))
            }
            None => Err(format!("{} did not say whether it can measure", program.display())),
        }
    }

    /// How it has ended, or was ended.
    fn has_ended(&mut self) -> Option<String> {
        let ended = match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        };
        // A program that prints without end would keep this thread.
        for _ in 0..LINES_A_ROUND {
            let Some(line) = self.output.line_within(Duration::ZERO) else { break };
            self.at = job_of(&line);
            self.heard = Instant::now();
        }
        if ended.is_some() {
            return ended;
        }
        (self.heard.elapsed() > SILENT).then(|| {
            // It would not hear that its standard input has ended.
            let _ = self.child.kill();
            format!("it was silent for {} s", SILENT.as_secs())
        })
    }

    fn has_ended_within(&mut self, length: Duration) -> bool {
        let end = Instant::now() + length;
        loop {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if self.has_ended_within(ENDS_WITHIN) {
            return;
        }
        let _ = self.child.kill();
        // The kernel may keep it for as long as somebody else's file system likes.
        if !self.has_ended_within(ENDS_WITHIN) {
            tracing::warn!(pid = self.child.id(), "gang-doctor was killed, and does not end");
        }
    }
}

/// The job of a line `job 7`; none for `idle`.
fn job_of(line: &str) -> Option<JobId> {
    line.strip_prefix("job ")?.parse().ok().map(JobId)
}

/// The lines that a program prints.
struct Lines<From> {
    from: From,
    /// The beginning of the next one.
    line: Vec<u8>,
    has_ended: bool,
}

impl<From: Read + std::os::fd::AsFd> Lines<From> {
    /// The next line, or what there is of it at the end; `None` where none comes in time. A line
    /// that is only begun is not waited for beyond that.
    fn line_within(&mut self, length: Duration) -> Option<String> {
        let end = Instant::now() + length;
        loop {
            if let Some(at) = self.line.iter().position(|&byte| byte == b'\n') {
                let rest = self.line.split_off(at + 1);
                return Some(text(&std::mem::replace(&mut self.line, rest)));
            }
            if self.line.len() >= LINE_MAX {
                self.line.clear();
            }
            let left = end.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.from, PollFlags::IN)];
            let is_there =
                poll(&mut fds, Some(&clock::timespec(left))).is_ok_and(|count| count > 0);
            if self.has_ended || !is_there {
                return None;
            }
            let mut bytes = [0; 512];
            let read = self.from.read(&mut bytes).unwrap_or(0);
            self.line.extend_from_slice(&bytes[..read]);
            if read == 0 {
                self.has_ended = true;
                let last = text(&std::mem::take(&mut self.line));
                return (!last.is_empty()).then_some(last);
            }
        }
    }
}

fn text(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    line.trim().chars().filter(|it| !it.is_control()).take(300).collect()
}

/// The program: beside this one (a build directory), or where it is installed.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let directory = own.parent().unwrap_or(Path::new("/"));
    [directory.join("gang-doctor"), directory.join("../libexec/gangd/gang-doctor")]
        .into_iter()
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{PipeReader, Write, pipe},
        iter::from_fn,
    };

    use super::*;

    fn lines(output: &mut Lines<PipeReader>) -> Vec<String> {
        from_fn(|| output.line_within(Duration::ZERO)).collect()
    }

    #[test]
    fn lines_are_heard_as_they_come() {
        let (from, mut to) = pipe().unwrap();
        let mut output = Lines { from, line: Vec::new(), has_ended: false };
        assert_eq!(lines(&mut output), [""; 0]);
        to.write_all(b"ready\njob 7\nid").unwrap();
        assert_eq!(lines(&mut output), ["ready", "job 7"]);
        to.write_all(b"le\nnot \x1bwhole").unwrap();
        assert_eq!((lines(&mut output), output.has_ended), (vec!["idle".to_owned()], false));
        drop(to);
        assert_eq!((lines(&mut output), output.has_ended), (vec!["not whole".to_owned()], true));
        assert_eq!(["job 7", "idle", "job x"].map(job_of), [Some(JobId(7)), None, None]);
    }

    #[test]
    fn line_without_end_is_not_kept() {
        let (from, mut to) = pipe().unwrap();
        let mut output = Lines { from, line: Vec::new(), has_ended: false };
        for _ in 0..100 {
            to.write_all(&[b'x'; 1000]).unwrap();
            assert_eq!(lines(&mut output), [""; 0]);
            assert!(output.line.len() <= LINE_MAX + 512);
        }
    }

    #[test]
    fn job_at_which_two_ended_is_passed_over() {
        let mut ends = Ends::default();
        assert_eq!(ends.count(Some(JobId(7)), "it was killed"), "it was killed, at job 7");
        assert_eq!(ends.count(None, "it was killed"), "it was killed");
        ends.count(Some(JobId(8)), "it was killed");
        assert_eq!(ends.passed_over(), []);
        assert!(ends.count(Some(JobId(7)), "it was killed").contains("again at job 7, which is"));
        assert_eq!(ends.passed_over(), [JobId(7)]);
        ends.forget_all_but(&[JobId(8)]);
        assert_eq!((ends.passed_over(), ends.0.len()), (vec![], 1));
    }
}
