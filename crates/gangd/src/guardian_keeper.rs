//! The thread that keeps a guardian.
//!
//! Problem: daemon or guardian may be killed at any moment, and the guardian must learn of the
//! daemon's end while gangs spin on every CPU. The ordinary threads of a killed daemon do not even
//! get to end then, so that none of their files is closed.
//!
//! Approach: one thread above the gangs, with a table of open files of its own, holds the
//! guardian's socket. It ends at once when the daemon is killed, and the socket with it. It starts
//! another guardian when one ends, and passes the conductor's pulse on. When the guardian took the
//! conductor for stuck and released all jobs, this thread reports that to the conductor.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
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

use gang_engine::guardian;
use gang_linux::{cgroup::Group, clock, descriptors, sched};
use gang_timetable::priority;
use nix::sys::signal::{SigSet, Signal};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// The state that conductor and guardian share.
#[derive(Debug, Default)]
pub struct Pulse {
    /// Grows as long as the conductor lives.
    beats: AtomicU64,
    /// The guardian has released all jobs, and the conductor has not heard of it yet.
    released: AtomicBool,
    /// The conductor has heard of it, and the jobs are not back in the groups of gangs yet.
    astray: AtomicBool,
}

impl Pulse {
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Whether the guardian has released all jobs since the conductor asked last.
    pub fn take_released(&self) -> bool {
        let released = self.released.swap(false, Ordering::Relaxed);
        self.astray.fetch_or(released, Ordering::Relaxed);
        released
    }

    /// Whether jobs are to be taken back since the last call: not before the conductor goes on.
    pub fn take_astray(&self) -> bool {
        self.astray.swap(false, Ordering::Relaxed)
    }
}

/// How often the pulse is passed on. Each time wakes this thread and the guardian.
const ROUND: Duration = guardian::SILENCE.checked_div(8).unwrap();

/// The wait before a guardian is started again that could not be.
const RETRY: Duration = Duration::from_secs(1);

/// The thread that keeps a guardian.
pub struct GuardianKeeper {
    pid: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl GuardianKeeper {
    /// Starts the first guardian and returns when it runs.
    ///
    /// Guardians live in the cgroup `apart`, where one is given.
    pub fn start(
        socket: PathBuf,
        pulse: Arc<Pulse>,
        realtime: bool,
        apart: Option<Group>,
    ) -> io::Result<GuardianKeeper> {
        let (pid, stop) = (Arc::<AtomicU32>::default(), Arc::<AtomicBool>::default());
        let (first, started) = channel();
        let keeper =
            Keeper { socket, pulse, pid: Arc::clone(&pid), stop: Arc::clone(&stop), apart };
        let thread =
            std::thread::Builder::new().name("guardian-keeper".into()).spawn(move || {
                // The pipes that handlers of signals write to are not in this thread's table: of a
                // signal that the kernel had it handle, the daemon would not hear.
                let heard = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
                let unshared = heard.thread_block().map_err(io::Error::from);
                let unshared =
                    unshared.and_then(|()| descriptors::unshare_table().map_err(io::Error::other));
                if let Err(error) = unshared {
                    let _ = first.send(Err(error));
                    return;
                }
                // Without the right to it the guardian learns of the end some milliseconds later.
                if realtime && sched::become_fifo(priority::GUARDIAN).is_err() {
                    tracing::warn!(
                        "the guardian_keeper runs at ordinary priority: SCHED_FIFO was refused"
                    );
                }
                keeper.run(&first);
            })?;
        started.recv().unwrap_or(Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(GuardianKeeper { pid, stop, thread })
    }

    /// Process number of the guardian, 0 where there is none.
    pub fn pid(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.pid)
    }

    /// Ends the guardian. For when nothing is left for it to release.
    pub fn dismiss(self) {
        self.stop.store(true, Ordering::Release);
        let _ = self.thread.join();
    }
}

struct Keeper {
    socket: PathBuf,
    pulse: Arc<Pulse>,
    pid: Arc<AtomicU32>,
    stop: Arc<AtomicBool>,
    apart: Option<Group>,
}

impl Keeper {
    fn run(&self, first: &Sender<io::Result<()>>) {
        self.keep(first);
        // A guardian that is killed cannot remove its own group.
        if let Some(group) = &self.apart {
            let _ = group.remove();
        }
    }

    fn keep(&self, first: &Sender<io::Result<()>>) {
        while !self.stop.load(Ordering::Acquire) {
            match spawn(&self.socket, self.apart.as_ref()) {
                Ok((mut child, guardian, pidfd)) => {
                    self.pid.store(child.id(), Ordering::Relaxed);
                    let _ = first.send(Ok(()));
                    self.watch(&guardian, &pidfd);
                    self.pid.store(0, Ordering::Relaxed);
                    // By itself it would wait for the daemon to drop the lock of its socket, to
                    // clear up after it.
                    let _ = child.kill();
                    drop(guardian);
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
    fn watch(&self, guardian: &UnixStream, pidfd: &OwnedFd) {
        let mut passed_on = None;
        while !self.stop.load(Ordering::Acquire) {
            let mut fds = [PollFd::new(pidfd, PollFlags::IN), PollFd::new(guardian, PollFlags::IN)];
            match poll(&mut fds, Some(&clock::timespec(ROUND))) {
                Ok(_) | Err(rustix::io::Errno::INTR) if fds[0].revents().is_empty() => {}
                _ => {
                    tracing::warn!("the guardian was killed; another one takes its place");
                    return;
                }
            }
            if rustix::io::read(guardian, &mut [0; 64]).is_ok_and(|length| length > 0) {
                self.pulse.released.store(true, Ordering::Relaxed);
            }
            let beats = self.pulse.beats();
            if passed_on.replace(beats) != Some(beats) {
                // Never waits: a guardian that does not read hears the next one.
                let _ = rustix::io::write(guardian, b".");
            }
        }
    }
}

/// Starts a guardian; returns it, the socket to it, and a descriptor that is readable when it ends.
fn spawn(socket: &Path, apart: Option<&Group>) -> io::Result<(Child, UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg("--guardian")
        .arg("--socket")
        .arg(socket)
        .args(
            apart
                .iter()
                .flat_map(|group| [OsStr::new("--guardian-group"), group.path().as_os_str()]),
        )
        // Ctrl-C at the daemon's terminal is not for the guardian.
        .process_group(0)
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    ours.set_nonblocking(true)?;
    let number = Pid::from_raw(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?;
    let pidfd = pidfd_open(number, PidfdFlags::empty())?;
    Ok((child, ours, pidfd))
}
