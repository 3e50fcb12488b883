//! Those who look on: `gang top` in a terminal that nobody sees, `gang web` with one reader. Both
//! end when they are dropped, and with the lab.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use gang_linux::child::ends_with_its_parent;
use gang_linux::clock;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The end of a picture of `gang top`: the cursor stays hidden.
const PICTURE: &[u8] = b"\x1b[?25l";
const FRAME: &[u8] = b"event: frame";

/// A program that is watched, and what it wrote of what is counted.
struct Watched {
    child: Child,
    count: Arc<AtomicU64>,
}

impl Watched {
    fn cpu_ns(&self) -> Result<u64> {
        Ok(clock::cpu_ns_of(self.child.id())?)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `gang top` at a terminal of 80 by 24.
pub struct Top {
    program: Watched,
    end: Arc<Mutex<Vec<u8>>>,
}

impl Top {
    /// `gang` is the command that knows the daemon.
    pub fn start(gang: Command, pictures_per_s: f64) -> Result<Top> {
        let (master, slave) = terminal().context("making a terminal for gang top")?;
        let stdio = || slave.try_clone().map(Stdio::from).context("making a terminal for gang top");
        // A terminal belongs to a session.
        let mut top = Command::new("setsid");
        top.arg("--ctty").arg(gang.get_program()).args(["top", "--rate"]);
        top.arg(pictures_per_s.to_string()).env("TERM", "xterm");
        top.envs(gang.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = ends_with_its_parent(&mut top)
            .stdin(stdio()?)
            .stdout(stdio()?)
            .stderr(stdio()?)
            .spawn()
            .context("starting gang top (by setsid)")?;
        let (count, end) = (Arc::<AtomicU64>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (counted, last) = (Arc::clone(&count), Arc::clone(&end));
        thread::spawn(move || {
            count_in(master, PICTURE, &counted, |chunk| {
                chunk.clone_into(&mut last.lock().unwrap_or_else(PoisonError::into_inner));
            });
        });
        Ok(Top { program: Watched { child, count }, end })
    }

    pub fn pictures(&self) -> u64 {
        self.program.count.load(Ordering::Relaxed)
    }

    pub fn cpu_ns(&self) -> Result<u64> {
        self.program.cpu_ns()
    }

    /// The last that it wrote.
    pub fn said(&self) -> String {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&end).escape_debug().to_string()
    }
}

fn terminal() -> Result<(File, File)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
    let name = ptsname(&master, Vec::new())?;
    let slave = File::options().read(true).write(true).open(name.to_str()?)?;
    Ok((File::from(master), slave))
}

/// `gang web` with one reader of its stream.
pub struct Web {
    program: Watched,
    stream: TcpStream,
}

impl Web {
    /// `gang` is the command that knows the daemon.
    pub fn start(mut gang: Command) -> Result<Web> {
        gang.args(["web", "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
        gang.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = ends_with_its_parent(&mut gang).spawn().context("starting gang web")?;
        let output = child.stdout.take();
        let count = Arc::<AtomicU64>::default();
        let program = Watched { child, count: Arc::clone(&count) };
        let mut line = String::new();
        BufReader::new(output.context("gang web has no output")?).read_line(&mut line)?;
        let (address, token) = address(&line).with_context(|| format!("gang web said {line:?}"))?;
        let mut stream = TcpStream::connect(address)
            .with_context(|| format!("connecting to gang web at {address}"))?;
        let request = format!(
            "GET /api/live HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).context("asking gang web")?;
        let reader = stream.try_clone().context("reading from gang web")?;
        thread::spawn(move || count_in(reader, FRAME, &count, |_| {}));
        Ok(Web { program, stream })
    }

    pub fn frames(&self) -> u64 {
        self.program.count.load(Ordering::Relaxed)
    }

    pub fn cpu_ns(&self) -> Result<u64> {
        self.program.cpu_ns()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        // The reader ends, too.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Host with port, and the token, of what `gang web` prints.
fn address(line: &str) -> Option<(&str, &str)> {
    line.trim().strip_prefix("http://")?.split_once("/#token=")
}

/// Counts how often something is read, until the stream ends.
fn count_in(mut from: impl Read, what: &[u8], count: &AtomicU64, mut seen: impl FnMut(&[u8])) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 65536];
    while let Ok(length @ 1..) = from.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..length]);
        let found = bytes.windows(what.len()).filter(|window| *window == what).count();
        count.fetch_add(found as u64, Ordering::Relaxed);
        seen(&chunk[..length]);
        // The rest may begin the next one, and is too short to be counted again.
        bytes.drain(..bytes.len().saturating_sub(what.len() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_between_two_reads_counts_once() {
        struct Drops<'a>(&'a [u8]);
        impl Read for Drops<'_> {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                let length = self.0.len().min(3);
                to[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }
        let count = AtomicU64::new(0);
        count_in(Drops(b"xxabcdxabcdabcab"), b"abcd", &count, |_| {});
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_address_has_host_and_token() {
        let line = "http://127.0.0.1:7878/#token=abc\n";
        assert_eq!(address(line), Some(("127.0.0.1:7878", "abc")));
        assert_eq!(address("gang web: no\n"), None);
    }
}
