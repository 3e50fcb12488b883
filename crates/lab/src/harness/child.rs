//! Programs that experiments start: bounded in time, quiet while they run, gone afterwards, also
//! where the lab itself is killed.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gang_linux::child::ends_with_its_parent;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use crate::workload::window::now_ns;

/// A running program. Dropping it kills it.
pub struct Running {
    what: String,
    child: Child,
    output: Receiver<Output>,
    /// Its output, where it was waited for before.
    written: Option<Output>,
}

/// The output of a program, once the program has closed it.
type Output = std::io::Result<Written>;

struct Written {
    out: String,
    errors: String,
    /// When it closed both streams.
    closed_at_ns: u64,
}

impl Running {
    pub fn start(command: &mut Command) -> Result<Self> {
        let what = format!("{:?}", command);
        let mut child = ends_with_its_parent(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {what}"))?;
        let (sender, output) = channel();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        // Both streams are read by threads that block, so that the lab itself uses no CPU while
        // it measures.
        let errors = std::thread::spawn(move || read_all(stderr));
        std::thread::spawn(move || {
            let out = read_all(stdout);
            let errors = errors.join().unwrap_or_else(|_| Ok(String::new()));
            let closed_at_ns = now_ns();
            let written = |out| Ok(Written { out, errors: errors?, closed_at_ns });
            let _ = sender.send(out.and_then(written));
        });
        Ok(Self { what, child, output, written: None })
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Asks it to end (SIGTERM), so that it can remove what it would leave behind where it is
    /// killed.
    pub fn ask_to_end(&self) {
        // One that has ended, and was not waited for, has its number yet.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Waits for the end until then; false where it runs on.
    pub fn ends_by(&mut self, at: Instant) -> bool {
        if self.written.is_none() {
            let left = at.saturating_duration_since(Instant::now());
            self.written = match self.output.recv_timeout(left) {
                Ok(output) => Some(output),
                Err(RecvTimeoutError::Timeout) => None,
                // Its reader has ended without a word: waiting for it again would be no waiting.
                Err(RecvTimeoutError::Disconnected) => {
                    Some(Err(std::io::Error::other("nobody reads what it writes")))
                }
            };
        }
        self.written.is_some()
    }

    /// Waits for the end, at most until `deadline`, and returns what it wrote to its output.
    pub fn finish(self, deadline: Instant) -> Result<String> {
        Ok(self.written(deadline)?.out)
    }

    /// Like [`Running::finish`], and returns when it ended, in nanoseconds of the wall clock.
    pub fn ended_at_ns(self, deadline: Instant) -> Result<u64> {
        Ok(self.written(deadline)?.closed_at_ns)
    }

    fn written(mut self, deadline: Instant) -> Result<Written> {
        self.ends_by(deadline);
        let Some(output) = self.written.take() else {
            bail!("{} did not end in its time and was killed", self.what)
        };
        let written = output.with_context(|| format!("reading from {}", self.what))?;
        // The output is closed, so the end is near; a program that closes it and stays is killed.
        let end = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().context("waiting for a program")? {
                break status;
            }
            if Instant::now() > end {
                bail!("{} closed its output but did not end and was killed", self.what);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        if !status.success() {
            bail!("{} ended with {status}: {}", self.what, written.errors.trim());
        }
        Ok(written)
    }

    /// Like [`Running::finish`], for programs that write one line of JSON.
    pub fn outcome<T: DeserializeOwned>(self, deadline: Instant) -> Result<T> {
        let what = self.what.clone();
        let out = self.finish(deadline)?;
        let line = out.lines().last().unwrap_or("");
        serde_json::from_str(line).with_context(|| format!("{what} wrote {line:?}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(stream: Option<impl Read>) -> std::io::Result<String> {
    // The longest is a list of a thousand jobs; what writes without end is not kept in memory.
    const LIMIT_BYTES: u64 = 16 << 20;
    let mut text = Vec::new();
    if let Some(stream) = stream {
        let mut stream = stream.take(LIMIT_BYTES);
        stream.read_to_end(&mut text)?;
        std::io::copy(&mut stream.into_inner(), &mut std::io::sink())?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        Running::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn output_and_failure() {
        assert_eq!(shell("echo a; echo b >&2").finish(soon()).unwrap(), "a\n");
        let before_ns = now_ns();
        assert!(shell("echo a").ended_at_ns(soon()).unwrap() >= before_ns);
        let error = shell("echo no such thing >&2; exit 3").finish(soon()).unwrap_err().to_string();
        assert!(error.contains("no such thing") && error.contains('3'), "{error}");
        assert_eq!(shell("echo x; echo 7").outcome::<u32>(soon()).unwrap(), 7);
        assert!(shell("echo x").outcome::<u32>(soon()).is_err());
    }

    #[test]
    fn one_that_was_waited_for_has_its_output_yet() {
        let mut running = shell("read line < /dev/null; echo a");
        assert!(running.ends_by(soon()) && running.ends_by(Instant::now()));
        assert_eq!(running.finish(Instant::now()).unwrap(), "a\n");
        let mut running = shell("exec sleep 600");
        assert!(!running.ends_by(Instant::now() + Duration::from_millis(1)));
    }

    #[test]
    fn child_whose_reader_has_ended_is_not_awaited() {
        let mut running = shell("exec sleep 600");
        running.output = channel().1;
        assert!(running.ends_by(soon()));
        assert!(running.finish(soon()).unwrap_err().to_string().starts_with("reading from "));
    }

    #[test]
    fn one_that_does_not_end_is_killed() {
        let running = Running::start(Command::new("sleep").arg("600")).unwrap();
        let pid = running.pid();
        let error = running.finish(Instant::now()).unwrap_err().to_string();
        assert!(error.contains("was killed"), "{error}");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
