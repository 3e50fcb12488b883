//! One call into the kernel, prepared in advance.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use gang_linux::sched::{self, Attributes};
use rustix::{
    fd::OwnedFd,
    process::{Signal, pidfd_send_signal},
    thread::{CpuSet, Pid, sched_setaffinity},
};

use crate::page::{SlotPage, Word};

/// One call into the kernel. Making it allocates nothing.
#[derive(Clone, Debug)]
pub enum Action {
    /// Sets the scheduling attributes of a thread.
    Attributes { tid: u32, attributes: Attributes },
    /// Restricts a thread to some CPUs.
    Affinity { tid: u32, cpus: CpuSet },
    /// Writes a control file of a cgroup.
    Write { file: Arc<ControlFile>, value: &'static str },
    /// Sends a signal to a process, by a descriptor that no other process can inherit.
    Signal { process: Arc<ProcessHandle>, signal: Signal },
    /// Tells a job's programs of its slot.
    Page { page: Arc<SlotPage>, word: Word },
}

/// A control file of a cgroup, open for writing.
#[derive(Debug)]
pub struct ControlFile {
    pub path: std::path::PathBuf,
    file: File,
}

impl ControlFile {
    pub fn open(path: impl Into<std::path::PathBuf>) -> gang_linux::Result<Arc<ControlFile>> {
        let path = path.into();
        let file = File::options()
            .write(true)
            .open(&path)
            .map_err(|e| gang_linux::Error::new("open", path.display(), e))?;
        Ok(Arc::new(ControlFile { path, file }))
    }

    pub fn write(&self, value: &str) -> io::Result<()> {
        self.file.write_at(value.as_bytes(), 0).map(drop)
    }
}

/// A process that keeps its identity: its number may be given to another, the descriptor may not.
#[derive(Debug)]
pub struct ProcessHandle {
    pub pid: u32,
    pidfd: OwnedFd,
}

impl ProcessHandle {
    pub fn open(pid: u32) -> gang_linux::Result<Arc<ProcessHandle>> {
        let error = |e: io::Error| gang_linux::Error::new("open process", pid, e);
        let number =
            Pid::from_raw(pid as i32).ok_or_else(|| error(io::ErrorKind::InvalidInput.into()))?;
        let pidfd = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty())
            .map_err(|e| error(e.into()))?;
        Ok(Arc::new(ProcessHandle { pid, pidfd }))
    }

    /// False as soon as the process has ended; its number may then be another's.
    pub fn is_alive(&self) -> bool {
        let mut fds = [rustix::event::PollFd::new(&self.pidfd, rustix::event::PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        // Who is interrupted by a signal of its own has seen nothing.
        !matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1..))
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        pidfd_send_signal(&self.pidfd, signal).map_err(Into::into)
    }
}

/// Who makes the calls: Linux, or a recorder in tests.
pub trait Kernel: Send + Sync {
    fn perform(&self, action: &Action) -> io::Result<()>;
}

/// The kernel that runs this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Kernel for Linux {
    fn perform(&self, action: &Action) -> io::Result<()> {
        match action {
            Action::Attributes { tid, attributes } => sched::set(*tid, attributes),
            Action::Affinity { tid, cpus } => {
                sched_setaffinity(Pid::from_raw(*tid as i32), cpus).map_err(Into::into)
            }
            Action::Write { file, value } => file.write(value),
            Action::Signal { process, signal } => process.signal(*signal),
            Action::Page { page, word } => page.write(word),
        }
    }
}
