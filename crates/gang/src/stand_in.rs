//! Standing between a shell and a program whose gang takes its turns by SIGSTOP and SIGCONT.
//!
//! Problem: a shell sees when its child stops, and takes the terminal back. With the backend
//! `signal` the program stops with every slice, and the shell must not see it.
//!
//! Approach: `gang run` stays as the shell's child, and the program is a child of its own, in the
//! same process group and at the same terminal. Stops by SIGSTOP are gangd's, and are not passed
//! on. If a person stops the program, its next slot would continue it. So `gang run` has the daemon
//! suspend the job, and stops itself by the same signal. When it is continued, it has the job
//! resumed.
//!
//! Terms: a signal *reached* the program if it went to the whole process group, as keys of a
//! terminal do.
//!
//! Rules:
//!
//! - A signal for this process alone is passed on. A signal that reached the program needs nothing
//!   more. `kill` does not say whether it means the group, so the program may get a signal twice.
//! - SIGCONT discards stop signals that wait. A program that is out of its slot when Ctrl-Z is
//!   typed would never know of it. A program that leaves SIGTSTP to the kernel is suspended, and
//!   need not know. A program that handles SIGTSTP gets it again in its next slot. So it does if it
//!   was being stopped, and had not seen the signal yet. A program that ignores it runs on.
//! - This process ends as the program has ended: with its code, or by its signal.
//! - Killed by SIGKILL, it takes the program with it (see `gang exec-gated`): as if it were the
//!   program.
//!
//! Limits: SIGSTOP for the program is undone at its next slot (SIGTSTP and `gang suspend` are not).
//! So is the stop of a job of a shell that runs inside the gang. A program that has no CPU from the
//! end of one slot to the next never sees that it was to stop: SIGCONT discards that together with
//! a SIGTSTP that it handles, and leaves no trace of either.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use gang_protocol::client::Client;
use gang_protocol::error::ClientError;
use nix::libc;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::signal::{self, SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, WaitOptions, WaitStatus, set_dumpable_behavior, waitpid};

use crate::execute::{assignments, texts};
use crate::exit::RUN_FAILED;
use crate::inherited;

/// Longest wait for a daemon to suspend or resume the job, at each of connecting and answering.
const DAEMON_WITHIN: Duration = Duration::from_secs(1);

/// Signals that a process causes by its own faults; blocked, they would end it all the same.
const OWN_FAULTS: [Signal; 6] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
];

/// Signals that terminals send, always to a whole process group.
const OF_TERMINALS: [Signal; 5] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP, Signal::SIGWINCH, Signal::SIGCONT];

/// A program that waits to be let go.
pub struct Gated {
    child: Pid,
    gate: OwnedFd,
    /// The child opens it by its path.
    reader: OwnedFd,
}

impl Gated {
    /// Starts a child that becomes the program in `file` when it is let go, and ends when it never
    /// is. It inherits all that this process did: signals blocked and ignored, files, process
    /// group.
    pub fn start(
        file: &Path,
        command: &[OsString],
        variables: Vec<(OsString, OsString)>,
    ) -> Result<Gated> {
        let (reader, gate) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        // A descriptor that the child inherits, the program would inherit as well.
        let path = format!("/proc/{}/fd/{}", std::process::id(), reader.as_raw_fd());
        let options = ["gang", "exec-gated", "--gate", &path, "--file"].map(OsStr::new);
        let options = options.into_iter().chain([file.as_os_str(), OsStr::new("--")]);
        let args: Vec<OsString> =
            options.map(OsStr::to_owned).chain(command.iter().cloned()).collect();
        let mut files = PosixSpawnFileActions::init()?;
        inherited::closed_streams().try_for_each(|stream| files.add_close(stream))?;
        // By its name where it has one: under valgrind the link itself leads to valgrind.
        let own = std::env::current_exe().ok().filter(|own| own.is_file());
        let own = own.unwrap_or_else(|| "/proc/self/exe".into());
        let child = posix_spawn(
            own.as_os_str(),
            &files,
            &PosixSpawnAttr::init()?,
            &texts(&args)?,
            &assignments(variables.into_iter())?,
        )
        .context("cannot start a second gang")?;
        Ok(Gated { child, gate, reader })
    }

    pub fn pid(&self) -> i64 {
        self.child.as_raw().into()
    }

    /// Lets the program go, and stands between it and the shell until it ends. The daemon at
    /// `socket` has it in `job`.
    pub fn let_go(self, socket: &Path, job: i64) -> Result<End> {
        let Gated { child, gate, reader } = self;
        // A caller that ignores SIGCHLD would never let us know how the program ended. After the
        // start of the child, which inherits the ignoring.
        signal_hook::flag::register(libc::SIGCHLD, Arc::default())
            .context("cannot listen for the end of a child")?;
        let heard: SigSet =
            Signal::iterator().filter(|signal| !OWN_FAULTS.contains(signal)).collect();
        let before =
            heard.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot block signals")?;
        let signals = SignalFd::with_flags(&heard, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .context("cannot listen for signals")?;
        rustix::io::write(&gate, b"g").context("cannot let the program go")?;
        drop(gate);
        leave_standard_streams();
        let mut stand_in = StandIn {
            child,
            job,
            socket: socket.to_owned(),
            signals,
            waiting: VecDeque::new(),
            is_stopped: false,
            stopped_by: None,
            owed: None,
            unseen: None,
            has_suspended: false,
            ended: None,
        };
        let status = stand_in.until_end()?;
        stand_in.continue_others();
        drop(reader);
        Ok(End { status, before })
    }

    /// Ends the program before it began.
    pub fn give_up(self) {
        drop(self.gate);
        let _ = waitpid(pid_of(self.child), WaitOptions::empty());
    }
}

/// The streams are the program's: its readers and writers must see when it closes them.
fn leave_standard_streams() {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

fn pid_of(child: Pid) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(child.as_raw())
}

struct StandIn {
    child: Pid,
    job: i64,
    socket: PathBuf,
    signals: SignalFd,
    /// Signals that came and were not dealt with.
    waiting: VecDeque<siginfo>,
    /// The program stood still when we last looked.
    is_stopped: bool,
    /// The signal it stopped by, where that was a person's.
    stopped_by: Option<Signal>,
    /// A stop signal that it handles itself, and loses when it is continued.
    owed: Option<Signal>,
    /// A stop signal that it handles itself, and had not seen when we last looked. It loses it if
    /// it is stopped before.
    unseen: Option<Signal>,
    /// The job is suspended until we are continued.
    has_suspended: bool,
    ended: Option<WaitStatus>,
}

impl StandIn {
    fn until_end(&mut self) -> Result<WaitStatus> {
        loop {
            // The state of the program before a signal came says what the signal met.
            while let Some(signal) = self.next_signal()? {
                self.take(&signal)?;
            }
            self.look()?;
            if let Some(status) = self.ended {
                return Ok(status);
            }
            if let Some(signal) = self.stopped_by.take().filter(|_| !self.has_suspended) {
                self.stop(signal)?;
            }
            if self.waiting.is_empty() {
                match poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno).context("cannot wait for signals"),
                }
            }
        }
    }

    fn next_signal(&mut self) -> Result<Option<siginfo>> {
        self.hear()?;
        Ok(self.waiting.pop_front())
    }

    /// Takes the signals that wait over from the kernel.
    fn hear(&mut self) -> Result<()> {
        while let Some(signal) = self.signals.read_signal().context("cannot read signals")? {
            self.waiting.push_back(signal);
        }
        Ok(())
    }

    /// Looks what became of the program. Says whether it was continued since the last look.
    fn look(&mut self) -> Result<bool> {
        let mut was_continued = false;
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        while self.ended.is_none() {
            let found =
                waitpid(pid_of(self.child), options).context("cannot wait for the program")?;
            let Some((_, status)) = found else { break };
            self.is_stopped = status.stopped();
            self.stopped_by = None;
            if let Some(number) = status.stopping_signal() {
                self.stopped_by =
                    Signal::try_from(number).ok().filter(|&signal| signal != Signal::SIGSTOP);
                let unseen = self.unseen.take();
                self.owed = unseen.filter(|&signal| is_pending(self.child, signal)).or(self.owed);
            } else if !status.continued() {
                self.ended = Some(status);
            } else {
                was_continued = true;
                // A signal that it had not seen may be lost, in a stop that we saw too late.
                let lost = self.owed.take();
                if let Some(signal) = self.unseen.take().or(lost) {
                    self.send(signal);
                }
            }
        }
        Ok(was_continued)
    }

    fn take(&mut self, info: &siginfo) -> Result<()> {
        let Ok(signal) = i32::try_from(info.ssi_signo).unwrap_or(0).try_into() else {
            return Ok(());
        };
        let of_terminal = info.ssi_code == libc::SI_KERNEL && OF_TERMINALS.contains(&signal);
        // A program signals itself together with its group.
        let of_program = i64::from(info.ssi_pid) == i64::from(self.child.as_raw());
        let reached = of_terminal || of_program;
        match signal {
            Signal::SIGCHLD => {}
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
                self.take_stop(signal, reached || info.ssi_code == libc::SI_KERNEL)?;
            }
            Signal::SIGCONT if self.has_suspended => self.go_on(),
            _ if !reached => self.send(signal),
            _ => {}
        }
        Ok(())
    }

    fn take_stop(&mut self, signal: Signal, reached: bool) -> Result<()> {
        let was_stopped = self.is_stopped;
        let was_continued = self.look()?;
        match disposition(self.child, signal) {
            Disposition::Default => self.stop(signal)?,
            Disposition::Ignored => {}
            // It has handled the signal, and stopped itself.
            Disposition::Handled if self.stopped_by.is_some() => {}
            Disposition::Handled if self.is_stopped => self.owed = Some(signal),
            // It may have been continued after the signal came, which discarded it.
            Disposition::Handled if was_stopped || was_continued || !reached => self.send(signal),
            Disposition::Handled => {
                self.unseen = is_pending(self.child, signal).then_some(signal);
            }
        }
        Ok(())
    }

    /// Stops with the program by the signal that stopped it, or was to, until continued.
    fn stop(&mut self, signal: Signal) -> Result<()> {
        if self.ask_daemon(Client::suspend).is_none() {
            self.send(signal);
        }
        self.has_suspended = true;
        self.look()?;
        (self.stopped_by, self.owed, self.unseen) = (None, None, None);
        if self.ended.is_some() {
            return Ok(());
        }
        // To be continued already means not to stop; raising the signal would discard that.
        self.hear()?;
        if !self.was_continued() {
            let alone = SigSet::from(signal);
            signal::raise(signal).context("cannot stop")?;
            alone.thread_unblock().context("cannot stop")?;
            alone.thread_block().context("cannot block a signal again")?;
            self.hear()?;
        }
        // The kernel stops nobody whom no shell would continue, nor do those who ignore it stop.
        if !self.was_continued() {
            self.go_on();
        }
        Ok(())
    }

    fn was_continued(&self) -> bool {
        self.waiting.iter().any(|signal| signal.ssi_signo == Signal::SIGCONT as u32)
    }

    fn go_on(&mut self) {
        self.has_suspended = false;
        if self.ask_daemon(Client::resume).is_none() {
            self.send(Signal::SIGCONT);
        }
    }

    /// Continues the processes that the program leaves behind, before this process ends. The kernel
    /// sends SIGHUP to a process group that no shell looks after any more and that has a stopped
    /// process.
    fn continue_others(&self) {
        self.ask_daemon(|client, job| client.kill(job, Signal::SIGCONT as i64));
    }

    /// Without a daemon nobody else stops and continues the program.
    fn ask_daemon(&self, what: fn(&mut Client, i64) -> Result<(), ClientError>) -> Option<()> {
        let mut client = Client::connect_within(&self.socket, DAEMON_WITHIN).ok()?;
        what(&mut client, self.job).ok()
    }

    /// One that has ended, or that has become another user's, gets no signal; nor would it alone.
    fn send(&self, signal: Signal) {
        if self.ended.is_none() {
            let _ = signal::kill(self.child, signal);
        }
    }
}

/// The effect of a signal on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    Default,
    Ignored,
    Handled,
}

fn disposition(process: Pid, signal: Signal) -> Disposition {
    disposition_in(&status_of(process), signal)
}

fn disposition_in(status: &str, signal: Signal) -> Disposition {
    if is_in(status, "SigIgn:", signal) {
        Disposition::Ignored
    } else if is_in(status, "SigCgt:", signal) {
        Disposition::Handled
    } else {
        Disposition::Default
    }
}

/// A signal for the whole process that none of its threads has taken.
fn is_pending(process: Pid, signal: Signal) -> bool {
    is_in(&status_of(process), "ShdPnd:", signal)
}

/// The text of `proc_pid_status(5)`; empty without such a process.
fn status_of(process: Pid) -> String {
    let status = std::fs::read(format!("/proc/{process}/status")).unwrap_or_default();
    // The name in it may hold any byte.
    String::from_utf8_lossy(&status).into_owned()
}

/// Whether a mask of signals of `proc_pid_status(5)` has one.
fn is_in(status: &str, mask: &str, signal: Signal) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).unwrap_or(0) >> (signal as u32 - 1) & 1 == 1
}

/// How a program ended.
pub struct End {
    status: WaitStatus,
    /// The signals that were blocked when this process began.
    before: SigSet,
}

impl End {
    /// Ends this process as the program has ended.
    pub fn follow(self) -> ! {
        if let Some(number) = self.status.terminating_signal() {
            self.die(number);
            // As shells name it, where it cannot be died by.
            std::process::exit(128 + number);
        }
        std::process::exit(self.status.exit_status().unwrap_or(RUN_FAILED.into()))
    }

    fn die(&self, number: i32) {
        // The program has dumped its core, if anybody wants one.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let Ok(signal) = Signal::try_from(number) else { return };
        let _ = signal::raise(signal);
        let _ = SigSet::from(signal).thread_unblock();
        // Ignored by our caller, or taken by the Rust runtime (SIGSEGV).
        let _ = signal_hook::low_level::emulate_default_handler(number);
        let _ = self.before.thread_set_mask();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disposition_is_read_from_the_masks() {
        let status = "Name:\tx\nSigIgn:\t0000000000080000\nSigCgt:\t0000000000100000\n";
        assert_eq!(disposition_in(status, Signal::SIGTSTP), Disposition::Ignored);
        assert_eq!(disposition_in(status, Signal::SIGTTIN), Disposition::Handled);
        assert_eq!(disposition_in(status, Signal::SIGTTOU), Disposition::Default);
        assert_eq!(disposition_in("", Signal::SIGTSTP), Disposition::Default);
    }
}
