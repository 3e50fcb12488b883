//! With the backend `signal`, `gang run` stands between its caller and the program.

mod fake;

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, Stdio};

use fake::{Fake, Place, stderr, stdout};
use gang_harness::wait_until;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// A shell that `gang run` runs, and what it writes.
struct Program {
    gang: Child,
    pid: Pid,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Runs a script of which the first act is to be ready.
    fn start(place: &Place, script: &str) -> Program {
        let script = format!("{script}\necho $$; while :; do sleep 0.01; done");
        let mut gang = place
            .gang(&["run", "-q", "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            // The kernel stops no group that nothing in its session could continue; the test's own
            // may be one.
            .process_group(0)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(gang.stdout.take().unwrap());
        let pid = line(&mut output).parse().unwrap();
        Program { gang, pid: Pid::from_raw(pid).unwrap(), output }
    }

    fn line(&mut self) -> String {
        line(&mut self.output)
    }

    /// Sends a signal to `gang run` alone.
    fn signal_gang(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.gang), signal).unwrap();
    }

    fn end(mut self) {
        kill_process(self.pid, Signal::KILL).unwrap();
        assert_eq!(self.gang.wait().unwrap().signal(), Some(9));
    }
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// The letter of a process in proc(5).
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn program_is_added_before_it_begins_in_same_group() {
    let fake = Fake::of_signals();
    let place = fake.place();
    let program = Program::start(&place, "");
    let added = format!("AddProcess(42, {})", program.pid.as_raw_nonzero());
    assert_eq!(fake.calls()[2], added);
    let group = |pid| rustix::process::getpgid(Some(pid)).unwrap();
    assert_eq!(group(program.pid), group(Pid::from_child(&program.gang)));
    program.end();
}

#[test]
fn signals_for_gang_alone_are_for_the_program() {
    let place = Fake::of_signals().place();
    let mut traps = String::new();
    let signals = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
        ("ALRM", Signal::ALARM),
        ("CONT", Signal::CONT),
    ];
    for (name, _) in signals {
        traps.push_str(&format!("trap 'echo {name}' {name}; "));
    }
    let mut program = Program::start(&place, &traps);
    for (name, signal) in signals {
        program.signal_gang(signal);
        assert_eq!(program.line(), name);
    }
    program.end();
}

#[test]
fn signal_of_program_to_its_group_comes_once() {
    let place = Fake::of_signals().place();
    // A signal of another process comes after those that gang has heard of together with the
    // program. Its number is the largest, so it is passed on last.
    let script = "trap 'echo got' USR1; trap '' TERM; trap 'exit 5' WINCH; \
        kill -USR1 0; kill -TERM 0; sh -c \"kill -WINCH $PPID\"; while :; do sleep 0.01; done";
    let gang = place.gang(&["run", "-q", "--", "sh", "-c", script]);
    let mut outer = Command::new("setsid");
    outer.arg("--wait").arg(gang.get_program()).args(gang.get_args());
    let output = outer.env("GANG_SOCKET", place.socket()).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert_eq!(stdout(&output), "got\n");
}

#[test]
fn stops_of_the_scheduler_are_not_gangs() {
    let place = Fake::of_signals().place();
    let mut program = Program::start(&place, "trap 'exit 3' TERM");
    let gang = Pid::from_child(&program.gang);
    for _ in 0..50 {
        kill_process(program.pid, Signal::STOP).unwrap();
        wait_until("the program stops", || state(program.pid) == Some('T'));
        assert_ne!(state(gang), Some('T'));
        kill_process(program.pid, Signal::CONT).unwrap();
    }
    // A signal for a program out of its slot waits for the slot.
    kill_process(program.pid, Signal::STOP).unwrap();
    program.signal_gang(Signal::TERM);
    kill_process(program.pid, Signal::CONT).unwrap();
    assert_eq!(program.gang.wait().unwrap().code(), Some(3));
}

#[test]
fn stop_signal_suspends_job_and_gang_until_continued() {
    for to_program in [false, true] {
        let fake = Fake::of_signals();
        let place = fake.place();
        let program = Program::start(&place, "");
        let gang = Pid::from_child(&program.gang);
        kill_process(if to_program { program.pid } else { gang }, Signal::TSTP).unwrap();
        let suspended = format!("the job is suspended, to_program {to_program}");
        wait_until(&suspended, || fake.calls().contains(&"Suspend(42)".to_owned()));
        wait_until("gang stops", || state(gang) == Some('T'));
        kill_process(gang, Signal::CONT).unwrap();
        wait_until("the job is resumed", || fake.calls().contains(&"Resume(42)".to_owned()));
        kill_process(program.pid, Signal::CONT).unwrap();
        program.end();
    }
}

#[test]
fn without_a_daemon_stop_signals_work_all_the_same() {
    let fake = Fake::of_signals();
    let place = fake.place();
    let program = Program::start(&place, "");
    std::fs::remove_file(place.socket()).unwrap();
    program.signal_gang(Signal::TSTP);
    let gang = Pid::from_child(&program.gang);
    wait_until("both stop", || [gang, program.pid].map(state) == [Some('T'); 2]);
    program.signal_gang(Signal::CONT);
    wait_until("the program runs", || state(program.pid) != Some('T'));
    program.end();
}

#[test]
fn kill_9_of_gang_ends_the_program_not_the_rest() {
    let place = Fake::of_signals().place();
    // Its number comes out of the session that it has made.
    let leave = "exec setsid sh -c 'echo $$; exec sleep 600 >/dev/null'";
    let mut program = Program::start(&place, &format!("left=$({leave} &); echo $left"));
    // The first line was taken for the program's own number.
    let left_behind = program.pid;
    program.pid = Pid::from_raw(program.line().parse().unwrap()).unwrap();
    program.gang.kill().unwrap();
    program.gang.wait().unwrap();
    wait_until("the program ends", || matches!(state(program.pid), None | Some('Z')));
    assert!(test_kill_process(left_behind).is_ok());
    kill_process(left_behind, Signal::KILL).unwrap();
}

#[test]
fn rest_is_continued_before_its_group_has_nobody() {
    let fake = Fake::of_signals();
    let place = fake.place();
    assert!(place.output(&["run", "-q", "--", "true"]).status.success());
    assert_eq!(fake.calls().last().unwrap(), "Kill(42, 18)");
}

#[test]
fn caller_that_ignores_sigchld_learns_of_the_end() {
    let place = Fake::of_signals().place();
    let gang = place.gang(&["run", "-q", "--", "sh", "-c", "exit 6"]);
    let mut outer = Command::new("env");
    outer.args(["--ignore-signal=CHLD"]).arg(gang.get_program()).args(gang.get_args());
    let output = outer.env("GANG_SOCKET", place.socket()).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
}

#[test]
fn signal_ignored_by_caller_can_end_the_program() {
    let place = Fake::of_signals().place();
    let script = "exec env --default-signal=HUP sh -c 'kill -HUP $$'";
    let gang = place.gang(&["run", "-q", "--", "sh", "-c", script]);
    let mut outer = Command::new("env");
    outer.args(["--ignore-signal=HUP"]).arg(gang.get_program()).args(gang.get_args());
    let output = outer.env("GANG_SOCKET", place.socket()).output().unwrap();
    assert_eq!(output.status.signal(), Some(1), "{}", stderr(&output));
}

#[test]
fn refused_program_ends_before_it_begins() {
    let fake = Fake { refuses_processes: true, ..Fake::of_signals() };
    let place = fake.place();
    let output = place.output(&["run", "-q", "--", "sh", "-c", "echo began"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(stdout(&output), "");
    assert!(stderr(&output).starts_with("gang: "), "{output:?}");
    assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
}
