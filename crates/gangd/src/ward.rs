//! Keeping a guardian.
//!
//! The daemon starts it, listens for its end, and starts another one at once: either of the two may
//! be killed at any moment.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::conductor::Heartbeat;

/// The guardian of this daemon.
pub struct Ward {
    socket: PathBuf,
    heartbeat: Heartbeat,
    pid: Arc<AtomicU32>,
    child: Option<(Child, OwnedFd)>,
}

impl Ward {
    /// Starts the first guardian.
    pub fn start(socket: PathBuf, heartbeat: Heartbeat) -> io::Result<Ward> {
        let mut ward = Ward { socket, heartbeat, pid: Arc::default(), child: None };
        ward.replace()?;
        Ok(ward)
    }

    /// Process number of the guardian, 0 where there is none.
    pub fn pid(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.pid)
    }

    /// Becomes readable when the guardian ends.
    pub fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.child.as_ref().map(|(_, pidfd)| pidfd.as_fd())
    }

    /// Starts a guardian in the place of one that ended.
    pub fn replace(&mut self) -> io::Result<()> {
        if let Some((mut child, _)) = self.child.take() {
            let _ = child.wait();
        }
        self.pid.store(0, Ordering::Relaxed);
        let mut child = Command::new("/proc/self/exe")
            .arg("--guardian")
            .arg("--socket")
            .arg(&self.socket)
            // Ctrl-C at the daemon's terminal is not for the guardian.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let pipe = child.stdin.take().map(OwnedFd::from);
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        self.heartbeat.replace(pipe);
        let pid = child.id();
        let number = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidData)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty())?;
        self.pid.store(pid, Ordering::Relaxed);
        self.child = Some((child, pidfd));
        Ok(())
    }

    /// Lets the guardian go: it finds nothing to release, and ends.
    pub fn dismiss(mut self) {
        self.heartbeat.replace(None);
        if let Some((mut child, _)) = self.child.take() {
            let _ = child.wait();
        }
    }
}
