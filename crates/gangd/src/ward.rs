//! Keeping a guardian.
//!
//! Problem: either of the two may be killed at any moment, and the guardian must learn of the
//! daemon's end while gangs spin on every CPU. The ordinary threads of a killed daemon do not even
//! get to end then, so that nothing they hold open is closed.
//!
//! Approach: one thread above the gangs, with a table of open files of its own, holds the guardian's
//! pipe. It ends at once when the daemon is killed, and the pipe with it. It starts another guardian
//! in the place of one that ends, and passes the conductor's pulse on.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use gang_engine::{guardian, priority};
use gang_linux::{clock, descriptors, sched};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// Grows as long as the conductor lives.
pub type Pulse = Arc<AtomicU64>;

/// How often the pulse is passed on. Each time wakes this thread and the guardian.
const ROUND: Duration = guardian::SILENCE.checked_div(8).unwrap();

/// The wait before a guardian is started again that could not be.
const RETRY: Duration = Duration::from_secs(1);

/// The thread that keeps a guardian.
pub struct Ward {
    pid: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Ward {
    /// Starts the first guardian and returns when it runs.
    pub fn start(socket: PathBuf, pulse: Pulse, realtime: bool) -> io::Result<Ward> {
        let (pid, stop) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (first, started) = channel();
        let keeper = Keeper { socket, pulse, pid: Arc::clone(&pid), stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name("ward".into()).spawn(move || {
            if let Err(error) = descriptors::become_alone() {
                let _ = first.send(Err(io::Error::other(error)));
                return;
            }
            // Without the right to it the guardian learns of the end some milliseconds later.
            if realtime && sched::become_fifo(priority::GUARDIAN).is_err() {
                tracing::warn!("the ward runs at ordinary priority: SCHED_FIFO was refused");
            }
            keeper.run(&first);
        })?;
        started.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Ward { pid, stop, thread })
    }

    /// Process number of the guardian, 0 where there is none.
    pub fn pid(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.pid)
    }

    /// Lets the guardian go: it finds nothing to release, and ends.
    pub fn dismiss(self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}

struct Keeper {
    socket: PathBuf,
    pulse: Pulse,
    pid: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
}

impl Keeper {
    fn run(&self, first: &Sender<io::Result<()>>) {
        while !self.stop.load(Ordering::Acquire) {
            match spawn(&self.socket) {
                Ok((mut child, pipe, pidfd)) => {
                    self.pid.store(child.id(), Ordering::Relaxed);
                    let _ = first.send(Ok(()));
                    self.watch(&pipe, &pidfd);
                    self.pid.store(0, Ordering::Relaxed);
                    drop(pipe);
                    let _ = child.wait();
                }
                Err(error) => {
                    tracing::error!(%error, "cannot start the guardian");
                    if first.send(Err(error)).is_ok() {
                        return;
                    }
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    /// Passes the pulse on until the guardian ends, or is to end.
    fn watch(&self, pipe: &OwnedFd, pidfd: &OwnedFd) {
        let mut passed_on = None;
        while !self.stop.load(Ordering::Acquire) {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&clock::timespec(ROUND))) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                _ => {
                    tracing::warn!("the guardian was killed; another one takes its place");
                    return;
                }
            }
            let pulse = self.pulse.load(Ordering::Relaxed);
            if passed_on.replace(pulse) != Some(pulse) {
                // Never waits: a guardian that does not read hears the next one.
                let _ = rustix::io::write(pipe, b".");
            }
        }
    }
}

/// Starts a guardian; returns it, the pipe to it, and a descriptor that is readable when it ends.
fn spawn(socket: &Path) -> io::Result<(Child, OwnedFd, OwnedFd)> {
    let mut child = Command::new("/proc/self/exe")
        .arg("--guardian")
        .arg("--socket")
        .arg(socket)
        // Ctrl-C at the daemon's terminal is not for the guardian.
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let pipe = OwnedFd::from(child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?);
    rustix::io::ioctl_fionbio(&pipe, true)?;
    let number = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?;
    let pidfd = pidfd_open(number, PidfdFlags::empty())?;
    Ok((child, pipe, pidfd))
}
