//! Job control: Ctrl-Z and Ctrl-C at a terminal reach the program as if gang were not there.

mod fake;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fake::{Fake, Place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A terminal with an interactive shell in it.
struct Terminal {
    master: std::fs::File,
    seen: String,
}

impl Terminal {
    fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.seen.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap();
            let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
            assert!(
                poll(&mut fds, Some(&timeout)).unwrap() > 0,
                "{text:?} does not come after:\n{}",
                self.seen
            );
            let mut chunk = [0; 4096];
            let length = self.master.read(&mut chunk).unwrap();
            self.seen.push_str(&String::from_utf8_lossy(&chunk[..length]));
        }
        let end = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..end);
    }

    fn send(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }
}

#[test]
fn needs_bash_ctrl_z_stops_and_fg_continues_and_ctrl_c_ends_the_program() {
    if !std::path::Path::new("/bin/bash").exists() {
        eprintln!("skipped: no /bin/bash for a shell with job control");
        return;
    }
    let place = Place::of(&Fake::new());
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave =
        std::fs::OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let stdio = || Stdio::from(slave.try_clone().unwrap());
    let mut shell = Command::new("setsid")
        .args(["--ctty", "/bin/bash", "--norc", "--noprofile", "-i"])
        .env("PS1", "$ ")
        .env("GANG_SOCKET", place.socket())
        .env("LC_ALL", "C")
        .stdin(stdio())
        .stdout(stdio())
        .stderr(stdio())
        .spawn()
        .unwrap();
    drop(slave);
    let mut terminal = Terminal { master: master.into(), seen: String::new() };

    // What is typed comes back as an echo, so what is expected is written with a gap in it.
    let gang = env!("CARGO_BIN_EXE_gang");
    terminal.expect("$ ");
    terminal.send(&format!("{gang} run -- sh -c 'echo pro''gram is up; exec sleep 600'\n"));
    terminal.expect("program is up");
    terminal.send("\x1a");
    terminal.expect("Stopped");
    terminal.send("echo state:$(cat /proc/$(jobs -p)/stat | cut -d' ' -f3).\n");
    terminal.expect("state:T.");
    terminal.send("fg\n");
    terminal.expect("sleep 600'\r\n");
    // `fg` prints the command before it continues it.
    std::thread::sleep(Duration::from_millis(200));
    terminal.send("\x03");
    terminal.expect("$ ");
    terminal.send("echo code''=$?\n");
    terminal.expect("code=130");
    terminal.send("exit\n");
    assert!(shell.wait().unwrap().code().is_some());
}
