//! Actions that can be carried out: each with the descriptor of what it is about.
//!
//! A number may be given to another process before a switcher comes to it, and a path may lead
//! elsewhere; a descriptor keeps what it was opened for. Threads have no such descriptor; they are
//! known by their numbers, and read again in every period.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf, sync::Arc};

use gang_schedule::JobId;
use gang_timetable::{Action, Control, Group, Weight, follower::OfThread};
use rustix::{
    fd::OwnedFd,
    process::{Signal, pidfd_send_signal},
    thread::Pid,
};

use crate::{page::SlotPage, thread};

/// An action, and what it takes to carry it out. Doing so allocates nothing.
#[derive(Clone, Debug)]
pub struct Bound {
    pub action: Action,
    handle: Handle,
}

#[derive(Clone, Debug)]
enum Handle {
    None,
    Control(Arc<ControlFile>),
    Process(Arc<ProcessHandle>),
    Page(Arc<SlotPage>),
}

/// Finds the descriptors that the numbers of actions stand for.
pub trait Handles {
    /// The file that sets a control of a group.
    fn control(&self, group: Group, control: Control) -> Option<Arc<ControlFile>>;
    fn process(&self, job: JobId, pid: u32) -> Option<Arc<ProcessHandle>>;
    fn page(&self, job: JobId) -> Option<Arc<SlotPage>>;
}

impl Bound {
    /// Absent where what the action is about is gone.
    pub fn new(action: Action, handles: &impl Handles) -> Option<Bound> {
        let handle = match action {
            Action::Attributes { .. } | Action::Affinity { .. } => Handle::None,
            Action::Control { group, control } => Handle::Control(handles.control(group, control)?),
            Action::Signal { job, pid, .. } => Handle::Process(handles.process(job, pid)?),
            Action::Page { job, .. } => Handle::Page(handles.page(job)?),
        };
        Some(Bound { action, handle })
    }

    /// For a kernel that records what it is asked to do.
    #[cfg(feature = "recording")]
    pub fn to_nothing(action: Action) -> Bound {
        Bound { action, handle: Handle::None }
    }
}

impl OfThread for Bound {
    fn of_thread(&self) -> Option<(u32, bool)> {
        self.action.of_thread()
    }
}

/// A control file of a cgroup, open for writing.
#[derive(Debug)]
pub struct ControlFile {
    pub path: PathBuf,
    file: File,
}

impl ControlFile {
    pub fn open(path: impl Into<PathBuf>) -> gang_linux::Result<Arc<ControlFile>> {
        let path = path.into();
        let file = File::options()
            .write(true)
            .open(&path)
            .map_err(|e| gang_linux::Error::new("open", path.display(), e))?;
        Ok(Arc::new(ControlFile { path, file }))
    }

    pub fn set(&self, control: Control) -> io::Result<()> {
        self.file.write_at(self.value(control).as_bytes(), 0).map(drop)
    }

    /// The range of cpu.weight (version 2) is 1 to 10,000, default 100; that of cpu.shares (version
    /// 1) is 2 to 262,144, default 1024. The name of the file says which of them it is.
    fn value(&self, control: Control) -> &'static str {
        match control {
            Control::Frozen(true) | Control::Idle(true) => "1",
            Control::Frozen(false) | Control::Idle(false) => "0",
            Control::Weight(weight) => match (weight, self.path.ends_with("cpu.shares")) {
                (Weight::Highest, true) => "262144",
                (Weight::Highest, false) => "10000",
                (Weight::Usual, true) => "1024",
                (Weight::Usual, false) => "100",
            },
        }
    }
}

/// The files that set the controls of a cgroup, where it has them.
#[derive(Clone, Debug, Default)]
pub struct ControlFiles {
    /// `cgroup.freeze` of version 2.
    pub freeze: Option<Arc<ControlFile>>,
    /// `cpu.idle`, and `cpu.weight` (version 2) or `cpu.shares` (version 1).
    pub idle: Option<Arc<ControlFile>>,
    pub weight: Option<Arc<ControlFile>>,
}

impl ControlFiles {
    pub fn of(&self, control: Control) -> Option<&Arc<ControlFile>> {
        match control {
            Control::Frozen(_) => self.freeze.as_ref(),
            Control::Idle(_) => self.idle.as_ref(),
            Control::Weight(_) => self.weight.as_ref(),
        }
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
        // A poll that a signal interrupts has seen nothing.
        !matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(1..))
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        pidfd_send_signal(&self.pidfd, signal).map_err(Into::into)
    }
}

/// The one that carries actions out: Linux, or a recorder in tests.
pub trait Kernel: Send + Sync {
    fn perform(&self, bound: &Bound) -> io::Result<()>;

    /// The thread of an action goes behind others of its priority, if it is raised.
    fn give_way(&self, bound: &Bound) -> io::Result<()>;

    /// The same as [`Kernel::perform`], if the thread of the action is raised.
    fn lower_if_raised(&self, bound: &Bound) -> io::Result<()>;
}

/// The kernel that runs this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Kernel for Linux {
    fn perform(&self, bound: &Bound) -> io::Result<()> {
        match (&bound.action, &bound.handle) {
            (Action::Attributes { tid, attributes, known }, _) => {
                thread::switch(*tid, attributes, known)
            }
            (Action::Affinity { tid, cpus }, _) => thread::set_affinity(*tid, cpus),
            (Action::Control { control, .. }, Handle::Control(file)) => file.set(*control),
            (Action::Signal { signal, .. }, Handle::Process(process)) => {
                process.signal(thread::signal(*signal))
            }
            (Action::Page { word, .. }, Handle::Page(page)) => page.write(word),
            // Nobody but tests binds it to nothing.
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn give_way(&self, bound: &Bound) -> io::Result<()> {
        match &bound.action {
            Action::Attributes { tid, known, .. } => thread::give_way(*tid, known),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn lower_if_raised(&self, bound: &Bound) -> io::Result<()> {
        match &bound.action {
            Action::Attributes { tid, attributes, known } => {
                thread::lower_if_raised(*tid, attributes, known)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}
