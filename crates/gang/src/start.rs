//! Starting a daemon in the background.
//!
//! `gang run` becomes the program it runs, which must not find a child that it never started. So
//! the daemon is started by a second gang (`gang start-daemon`) that ends when the daemon is
//! ready; the daemon is then the child of init. That second gang has left the session of the
//! terminal, whose Ctrl-C is not meant for the daemon.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gang_protocol::timeout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::programs;

/// Longest wait for a daemon that starts, unless `$GANG_TIMEOUT` is set.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// A daemon writes this into its ready pipe when it, or another one at its socket, listens. Any
/// other text is the reason why it cannot.
const READY: &str = "ready";

/// Longest message that is read from a ready pipe, in bytes.
const REASON_MAX: u64 = 4096;

/// Starts a daemon of this user at `socket` and returns when it listens.
pub fn start(socket: &Path, backend: Option<&str>) -> Result<()> {
    // The daemon's working directory is another.
    let socket = std::path::absolute(socket)
        .with_context(|| format!("cannot make {} absolute", socket.display()))?;
    let mut child = Command::new("/proc/self/exe")
        .arg("start-daemon")
        .arg("--socket")
        .arg(&socket)
        .args(backend.iter().flat_map(|backend| ["--backend", backend]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a second gang")?;
    let mut said = String::new();
    let mut stdout = child.stdout.take().context("a pipe was asked for")?;
    stdout.read_to_string(&mut said).context("cannot read what the second gang says")?;
    match child.wait() {
        Ok(_) => {}
        // The parent ignores SIGCHLD, so the kernel has taken the child away.
        Err(error) if error.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => {}
        Err(error) => return Err(error).context("cannot wait for the second gang"),
    }
    match said.trim() {
        READY => Ok(()),
        "" => bail!("starting it ended without a reason"),
        reason => bail!("{reason}"),
    }
}

/// The second gang: starts gangd, waits until it is ready, and says so or why not on standard
/// output.
pub fn start_daemon(socket: &Path, backend: Option<&str>) -> String {
    match try_start_daemon(socket, backend) {
        Ok(()) => READY.to_owned(),
        Err(error) => format!("{error:#}"),
    }
}

fn try_start_daemon(socket: &Path, backend: Option<&str>) -> Result<()> {
    match rustix::process::setsid() {
        // PERM: a leader of its group already, when called by hand.
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno).context("cannot leave the session"),
    }
    let mut gangd = programs::gangd_at(socket)?;
    let program = Path::new(gangd.get_program()).to_owned();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
    // gangd inherits this one. This process has one thread, so no other child can.
    fcntl_setfd(&writer, FdFlags::empty()).context("cannot pass on a pipe")?;
    let mut daemon = gangd
        .arg("--exit-when-idle")
        .args(backend.iter().flat_map(|backend| ["--backend", backend]))
        .arg("--ready-fd")
        .arg(writer.as_raw_fd().to_string())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    drop(writer);
    let within = timeout::or_usual(READY_WITHIN);
    match wait_for_line(reader, Instant::now() + within)? {
        Some(line) if line == READY => Ok(()),
        Some(reason) if !reason.is_empty() => bail!("{reason}"),
        Some(_) => {
            let status = daemon.wait().context("cannot wait for gangd")?;
            bail!("{} ended ({status}) before it was ready, without a reason", program.display())
        }
        None => {
            end(daemon);
            bail!("{} was not ready within {} s", program.display(), within.as_secs_f64())
        }
    }
}

/// The first line that arrives, what there is of it at the end of the stream, or `None` at the
/// deadline.
fn wait_for_line(reader: OwnedFd, deadline: Instant) -> Result<Option<String>> {
    let mut text = Vec::new();
    let mut file = std::fs::File::from(reader).take(REASON_MAX);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).context("a deadline that cannot be")?;
        let ready = match poll(&mut [PollFd::new(file.get_ref(), PollFlags::IN)], Some(&timeout)) {
            Err(Errno::INTR) => continue,
            other => other.context("cannot wait for gangd")?,
        };
        if ready == 0 {
            return Ok(None);
        }
        let mut chunk = [0; 512];
        let length = match file.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other.context("cannot read what gangd says")?,
        };
        text.extend_from_slice(&chunk[..length]);
        let line = text.iter().position(|&byte| byte == b'\n');
        if line.is_some() || length == 0 {
            let line = &text[..line.unwrap_or(text.len())];
            return Ok(Some(String::from_utf8_lossy(line).trim().to_owned()));
        }
    }
}

/// A daemon that comes late would hold a socket that nobody waits for. Nothing runs under it yet.
fn end(mut daemon: Child) {
    if let Err(error) = daemon.kill().and_then(|()| daemon.wait().map(|_| ())) {
        eprintln!("gang: cannot end a daemon that does not get ready: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn line(said: &[u8], closed: bool) -> Option<String> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut writer = std::fs::File::from(writer);
        writer.write_all(said).unwrap();
        let writer = (!closed).then_some(writer);
        let line = wait_for_line(reader, Instant::now() + Duration::from_millis(50)).unwrap();
        drop(writer);
        line
    }

    #[test]
    fn a_line_ends_the_wait_even_while_the_pipe_is_open() {
        assert_eq!(line(b"ready\n", false).as_deref(), Some("ready"));
        assert_eq!(line(b"no privilege\nmore", false).as_deref(), Some("no privilege"));
    }

    #[test]
    fn the_end_of_the_pipe_ends_the_wait() {
        assert_eq!(line(b"", true).as_deref(), Some(""));
        assert_eq!(line(b"cut", true).as_deref(), Some("cut"));
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        assert_eq!(line(b"", false), None);
        assert_eq!(line(b"rea", false), None);
    }
}
