//! Job control: Ctrl-Z and Ctrl-C at a terminal reach the program as if gang were not there.

mod fake;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fake::{Fake, Place};
use gang_harness::{TEST_TIMEOUT, wait_until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const GANG: &str = env!("CARGO_BIN_EXE_gang");

/// A terminal with an interactive shell in it.
struct Terminal {
    master: std::fs::File,
    seen: String,
    shell: Child,
}

impl Terminal {
    fn open(place: &Place) -> Terminal {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        // Wide enough for any path: a shell breaks the echo of a command at the edge.
        let size = Winsize { ws_row: 24, ws_col: 9999, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        let stdio = || Stdio::from(slave.try_clone().unwrap());
        let shell = Command::new("setsid")
            .args(["--ctty", "/bin/bash", "--norc", "--noprofile", "-i"])
            .env("PS1", "$ ")
            .env("GANG_SOCKET", place.socket())
            .env("GANG_TIMEOUT", &place.timeout)
            .env("LC_ALL", "C")
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let mut terminal = Terminal { master: master.into(), seen: String::new(), shell };
        terminal.expect("$ ");
        terminal
    }

    /// Waits for a text, and returns what came before it.
    fn expect(&mut self, text: &str) -> String {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.seen.contains(text) {
            self.read_until(deadline, text);
        }
        let (before, rest) = self.seen.split_once(text).unwrap();
        let (before, rest) = (before.to_owned(), rest.to_owned());
        self.seen = rest;
        before
    }

    /// The number between `before` and a point.
    fn expect_pid(&mut self, before: &str) -> Pid {
        self.expect(before);
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.seen.contains('.') {
            self.read_until(deadline, "a number and a point");
        }
        let (pid, rest) = self.seen.split_once('.').unwrap();
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        self.seen = rest.to_owned();
        pid
    }

    fn read_until(&mut self, deadline: Instant, expected: &str) {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap();
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        assert!(
            poll(&mut fds, Some(&timeout)).unwrap() > 0,
            "{expected:?} does not come after:\n{}",
            self.seen
        );
        let mut chunk = [0; 4096];
        let length = self.master.read(&mut chunk).unwrap();
        self.seen.push_str(&String::from_utf8_lossy(&chunk[..length]));
    }

    /// Typed text comes back as an echo, so expected text is typed with a gap in it.
    fn send(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn expect_code(&mut self, code: i32) {
        self.send("echo code''=$?.\n");
        self.expect(&format!("code={code}."));
    }

    fn leave(mut self) {
        self.send("exit\n");
        assert!(self.shell.wait().unwrap().code().is_some());
    }
}

/// Stops and continues a program as gangd does, until it is dropped.
struct Turns {
    over: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Turns {
    /// A slot, and a pause, is longer than said on a machine that is slow: the program has stood
    /// still before it is continued, and has run before it is stopped.
    fn of(pid: Pid, in_slot: Duration, out_of_slot: Duration) -> Turns {
        let (over, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (ends, counts) = (over.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            // It may have ended.
            let until = |holds: &dyn Fn() -> bool| {
                while !ends.load(Ordering::Relaxed) && times_run(pid).is_some() && !holds() {
                    std::thread::sleep(Duration::from_micros(100));
                }
            };
            while !ends.load(Ordering::Relaxed) {
                let _ = kill_process(pid, Signal::STOP);
                until(&|| state(pid) == Some('T'));
                std::thread::sleep(out_of_slot);
                let before = times_run(pid);
                let _ = kill_process(pid, Signal::CONT);
                until(&|| times_run(pid) != before || before == Some(0));
                std::thread::sleep(in_slot);
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        Turns { over, count, thread: Some(thread) }
    }

    fn wait_for(&self, count: usize) {
        wait_until("the program has its turns", || self.count.load(Ordering::Relaxed) >= count);
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The fields of proc_pid_stat(5) from the third on, the state, where there is such a process.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Some(stat.rsplit(") ").next()?.split(' ').map(str::to_owned).collect())
}

fn state(pid: Pid) -> Option<char> {
    stat(pid)?[0].chars().next()
}

/// How often a process has got a CPU; 0 where the kernel does not count.
fn times_run(pid: Pid) -> Option<u64> {
    let path = format!("/proc/{}/schedstat", pid.as_raw_nonzero());
    std::fs::read_to_string(path).ok()?.trim().rsplit(' ').next()?.parse().ok()
}

/// Waits until a program goes on in the foreground: `fg` prints its command before.
fn wait_until_in_front(pid: Pid) {
    wait_until("the program is in front", || {
        let stat = stat(pid).unwrap();
        let (state, group, in_front) = (&stat[0], &stat[2], &stat[5]);
        state != "T" && group == in_front
    });
}

/// Stops a program, and waits until it stands still. Until it has seen the signal, a program that
/// sleeps in a read takes input that is meant for its shell.
fn stop(pid: Pid) {
    kill_process(pid, Signal::STOP).unwrap();
    wait_until("the program stands still", || state(pid) == Some('T'));
}

fn has_bash() -> bool {
    let found = std::path::Path::new("/bin/bash").exists();
    if !found {
        gang_harness::skipped("no /bin/bash for a shell with job control");
    }
    found
}

#[test]
fn needs_bash_ctrl_z_stops_fg_continues_ctrl_c_ends() {
    for fake in [Fake::new(), Fake::of_signals()] {
        if !has_bash() {
            return;
        }
        let place = fake.place();
        let mut terminal = Terminal::open(&place);
        terminal.send(&format!("'{GANG}' run -- sh -c 'echo pid:$$.; exec sleep 600'\n"));
        // First the echo of the command.
        terminal.expect("sleep 600'");
        let pid = terminal.expect_pid("pid:");
        terminal.send("\x1a");
        terminal.expect("Stopped");
        terminal.send("echo state:$(cat /proc/$(jobs -p)/stat | cut -d' ' -f3).\n");
        terminal.expect("state:T.");
        terminal.send("fg\n");
        terminal.expect("sleep 600'\r\n");
        wait_until_in_front(pid);
        terminal.send("\x03");
        terminal.expect("$ ");
        terminal.expect_code(130);
        terminal.leave();
    }
}

#[test]
fn needs_bash_turns_of_a_program_disturb_no_shell() {
    if !has_bash() {
        return;
    }
    let fake = Fake::of_signals();
    let place = fake.place();
    let mut terminal = Terminal::open(&place);
    let script = "echo pid:$$.; read word; echo read $word.; read word; exit 7";
    terminal.send(&format!("'{GANG}' run -q -- sh -c '{script}'\n"));
    // First the echo of the command.
    terminal.expect("exit 7");
    let pid = terminal.expect_pid("pid:");
    for (in_slot_ms, out_of_slot_ms) in [(2, 2), (1, 20)] {
        let turns = Turns::of(
            pid,
            Duration::from_millis(in_slot_ms),
            Duration::from_millis(out_of_slot_ms),
        );
        turns.wait_for(50);
    }
    let turns = Turns::of(pid, Duration::from_millis(3), Duration::from_millis(3));
    terminal.send("some''thing\n");
    let before = terminal.expect("read some''thing.");
    assert!(!before.contains("Stopped"), "{before}");
    // Out of its slot most of the time; Ctrl-Z must be heard all the same.
    drop(turns);
    for round in 1..=5 {
        let turns = Turns::of(pid, Duration::from_millis(1), Duration::from_millis(15));
        turns.wait_for(round);
        terminal.send("\x1a");
        terminal.expect("Stopped");
        terminal.expect("$ ");
        // As the daemon does when it is asked to suspend the job. (Left alone it would read on: the
        // signal that begins a turn takes back a stop that its terminal asked for and it has not
        // seen.)
        drop(turns);
        stop(pid);
        let suspensions = || fake.calls().iter().filter(|call| *call == "Suspend(42)").count();
        assert_eq!(suspensions(), round);
        terminal.send("fg\n");
        terminal.expect("exit 7'\r\n");
        let resumptions = || fake.calls().iter().filter(|call| *call == "Resume(42)").count();
        wait_until("the job is resumed", || resumptions() >= round);
        assert_eq!(resumptions(), round);
        kill_process(pid, Signal::CONT).unwrap();
    }
    terminal.send("end\n");
    terminal.expect("$ ");
    terminal.expect_code(7);
    terminal.leave();
}

#[test]
fn needs_bash_ctrl_z_reaches_handler_out_of_slot() {
    if !has_bash() {
        return;
    }
    let fake = Fake::of_signals();
    let place = fake.place();
    let mut terminal = Terminal::open(&place);
    // No child, which Ctrl-Z would stop.
    let script = "trap \"echo got it\" TSTP; echo pid:$$.; while :; do read -t 0.01; done";
    terminal.send(&format!("'{GANG}' run -q -- bash -c '{script}'\n"));
    terminal.expect("done'");
    let pid = terminal.expect_pid("pid:");
    for _ in 0..5 {
        let turns = Turns::of(pid, Duration::from_millis(20), Duration::from_millis(60));
        turns.wait_for(1);
        terminal.send("\x1a");
        terminal.expect("got it");
        drop(turns);
    }
    // Typed while it is being stopped, and has not seen that yet. Before it has, SIGCONT would
    // discard both, and nobody could tell.
    for round in 0..20 {
        kill_process(pid, Signal::STOP).unwrap();
        terminal.send("\x1a");
        wait_until("the program stands still", || state(pid) == Some('T'));
        std::thread::sleep(Duration::from_micros(100 * round));
        kill_process(pid, Signal::CONT).unwrap();
        terminal.expect("got it");
    }
    assert!(!fake.calls().contains(&"Suspend(42)".to_owned()));
    terminal.send("\x03");
    terminal.expect("$ ");
    terminal.expect_code(130);
    terminal.leave();
}

#[test]
fn needs_bash_background_program_stops_at_read() {
    for fake in [Fake::new(), Fake::of_signals()] {
        if !has_bash() {
            return;
        }
        let place = fake.place();
        let mut terminal = Terminal::open(&place);
        let script = "echo pid:$$.; read word; echo read $word.; exit 9";
        terminal.send(&format!("'{GANG}' run -q -- sh -c '{script}' &\n"));
        terminal.expect("exit 9' &");
        let pid = terminal.expect_pid("pid:");
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !terminal.seen.contains("Stopped") {
            terminal.send("\n");
            std::thread::sleep(Duration::from_millis(50));
            terminal.read_until(deadline, "Stopped");
        }
        terminal.send("fg\n");
        terminal.expect("exit 9'\r\n");
        wait_until_in_front(pid);
        terminal.send("some''thing\n");
        terminal.expect("read some''thing.");
        terminal.expect("$ ");
        terminal.expect_code(9);
        terminal.leave();
    }
}
