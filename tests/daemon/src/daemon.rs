//! gangd in a place.

use std::{
    fs::{self, File},
    ops::Deref,
    os::unix::fs::FileExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gang_harness::{TEST_TIMEOUT, wait_until};
use gang_protocol::client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::{Place, keeper};

/// How a daemon is started.
#[derive(Default)]
pub struct Options<'a> {
    /// A program that becomes the daemon, with its arguments: `env TZ=UTC`, say.
    pub launcher: &'a [&'a str],
    /// The text of gangd.toml.
    pub configuration: &'a str,
    /// Further arguments of gangd.
    pub flags: &'a [&'a str],
}

/// A place with a running daemon. When it is dropped, daemon and guardian end, and their jobs are
/// released; where the test failed, the daemon's log is printed.
pub struct Daemon {
    place: Place,
    launcher: Vec<String>,
    flags: Vec<String>,
    log: File,
    /// The process. None after its end.
    child: Option<Child>,
    was_started: bool,
}

impl Deref for Daemon {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Daemon {
    /// A daemon that answers.
    pub fn start_in(place: Place, options: &Options) -> Daemon {
        fs::write(place.path("gangd.toml"), options.configuration).unwrap();
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let mut daemon = Daemon {
            place,
            launcher: owned(options.launcher),
            flags: owned(options.flags),
            log: tempfile::tempfile().unwrap(),
            child: None,
            was_started: false,
        };
        daemon.start();
        daemon
    }

    /// gangd for the socket of this place.
    fn gangd(&self, launcher: &[String]) -> Command {
        let program = self.programs.join("gangd").into_os_string();
        let mut words = launcher.iter().map(Into::into).chain([program]);
        let mut gangd = Command::new(words.next().expect("the daemon at least"));
        gangd.args(words).arg("--socket").arg(self.socket());
        gangd
    }

    /// Starts the daemon (again) and waits until it answers. A daemon that is ending holds the
    /// socket until it is gone.
    pub fn start(&mut self) {
        if let Some(mut before) = self.child.take() {
            wait_until("the daemon before has ended", || before.try_wait().unwrap().is_some());
            keeper::forget(before.id().into());
        }
        let is_first = !self.was_started;
        self.was_started = true;
        self.child = Some(self.spawn());
        wait_until("the daemon answers", || {
            if let Some(ended) = self.child.as_mut().unwrap().try_wait().unwrap() {
                // The guardian of the one before has the place while it clears up. A new daemon
                // waits for half a second, and a busy machine takes longer.
                assert!(!is_first && ended.code() == Some(1), "the daemon ended: {ended}");
                keeper::forget(self.pid().into());
                self.child = Some(self.spawn());
            }
            Client::connect_within(&self.socket(), TEST_TIMEOUT).is_ok()
        });
    }

    fn spawn(&self) -> Child {
        let mut gangd = self.gangd(&self.launcher);
        gangd.arg("--config").arg(self.path("gangd.toml")).args(&self.flags);
        gangd.stdin(Stdio::null()).stderr(self.log.try_clone().unwrap());
        let child = gangd.spawn().unwrap();
        keeper::keep(child.id().into());
        child
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends a signal to the daemon alone.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// Kills the daemon as nothing can refuse, and takes note of it.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        keeper::forget(child.id().into());
    }

    /// Has the daemon end, as a service manager does: kills it where it does not.
    pub fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let pid = Pid::from_child(&child);
        if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process(pid, Signal::TERM);
            // A test that failed may have left it stopped.
            let _ = kill_process(pid, Signal::CONT);
        }
        let end = Instant::now() + TEST_TIMEOUT;
        while Instant::now() < end && !matches!(child.try_wait(), Ok(Some(_))) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        keeper::forget(child.id().into());
    }

    /// `gangd --release` with further arguments; returns what was printed.
    pub fn release(&self, further: &[&str]) -> String {
        let output = self.gangd(&[]).arg("--release").args(further).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The daemon's messages so far.
    fn log(&self) -> String {
        let mut bytes = vec![0; self.log.metadata().map_or(0, |file| file.len() as usize)];
        let length = self.log.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
        let bound = ["timeout".to_owned(), TEST_TIMEOUT.as_secs().to_string()];
        let _ = self.gangd(&bound).arg("--release").output();
        if thread::panicking() {
            eprintln!("log of the daemon at {}:\n{}", self.socket().display(), self.log());
        }
    }
}
