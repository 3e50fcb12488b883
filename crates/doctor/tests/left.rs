//! A doctor leaves nothing behind, for any question and any end.

mod programs;
mod watching;

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use gang_daemon::{Place, Program, stderr};
use gang_harness::{skipped, wait_for, wait_until};
use gang_protocol::v1::Policy;
use rustix::process::{Pid, Signal, kill_process};
use watching::{cannot_watch, command, diagnosis, doctor, sole_watcher};

const SPIN: &str = "while [ $SECONDS -lt 600 ]; do :; done";

/// A program as a job of that policy; none without a compiler.
fn job(place: &Place, policy: &str) -> Option<(Program, i64)> {
    let meet = programs::meet(place.directory.path())?;
    let mut gang = place.gang(&["run", "--policy", policy, "--"]);
    let program = Program::start(gang.arg(meet));
    wait_until("it is a job", || place.jobs().iter().any(|job| job.processes > 0));
    let id = place.jobs()[0].id;
    Some((program, id))
}

fn policy(place: &Place) -> Option<Policy> {
    place.jobs().first().map(|job| job.policy.clone())
}

/// Waits until it ends, for longer than it may take.
fn ended(mut doctor: Child) -> Output {
    wait_until("the doctor ends", || !matches!(doctor.try_wait(), Ok(None)));
    doctor.wait_with_output().unwrap()
}

/// Whether any process has this among its arguments.
fn is_executed(argument: &str) -> bool {
    let has =
        |command: Vec<u8>| command.split(|&byte| byte == 0).any(|it| it == argument.as_bytes());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok()).any(has)
}

fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

#[test]
fn needs_root_and_bpf_interrupt_restores_program() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let program = Program::spinner();
    let pid = program.pid().to_string();
    let groups = || fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let before = groups();
    for options in [&["--seconds", "300"][..], &["--seconds", "0.2", "--prove"]] {
        let mut doctor = command(&place, options);
        let mut doctor = doctor.args(["--pid", &pid]).stderr(Stdio::piped()).spawn().unwrap();
        // It is watched, or compared, from when it is in a group of its own.
        wait_until("it is in a group of its own, or cannot be watched", || {
            groups() != before || doctor.try_wait().unwrap().is_some()
        });
        // And a while into that, wherever the doctor is by then.
        thread::sleep(Duration::from_millis(500));
        let _ = kill_process(Pid::from_child(&doctor), Signal::TERM);
        let ended = doctor.wait_with_output().unwrap();
        let said = stderr(&ended);
        if cannot_watch(&said) {
            skipped(said);
            break;
        }
        assert_eq!(ended.status.signal(), Some(Signal::TERM.as_raw()), "{ended:?}");
        assert_eq!(groups(), before);
    }
}

#[test]
fn needs_root_and_bpf_watched_gang_is_a_gang_again() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let Some((program, id)) = job(&place, "gang") else { return };
    let id = id.to_string();
    for is_interrupted in [false, true] {
        let seconds = if is_interrupted { "300" } else { "1" };
        let mut doctor = command(&place, &["--json", "--seconds", seconds, &id]);
        let mut doctor = doctor.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("it is Linux's, or cannot be watched", || {
            policy(&place) == Some(Policy::none) || !matches!(doctor.try_wait(), Ok(None))
        });
        if is_interrupted {
            let _ = kill_process(Pid::from_child(&doctor), Signal::TERM);
        }
        let output = ended(doctor);
        assert_eq!(policy(&place), Some(Policy::gang), "{output:?}");
        if cannot_watch(&stderr(&output)) {
            skipped(stderr(&output));
            return;
        }
        assert!(is_interrupted || diagnosis(&output).is_some());
    }
    drop(program);
}

#[test]
fn needs_root_job_of_policy_auto_is_refused() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let Some((_program, id)) = job(&place, "auto") else { return };
    let output = doctor(&place, &[&id.to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("policy auto"), "{}", stderr(&output));
    assert_eq!(policy(&place), Some(Policy::auto));
}

#[test]
fn needs_root_and_bpf_started_processes_end_with_it() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let pids = place.path("pids");
    let script = format!(
        "sleep 1000 & echo $! >>{0}; (trap '' TERM; sleep 1000 & echo $! >>{0}; wait; sleep 1000) \
         & echo $! >>{0}; {SPIN}",
        pids.display()
    );
    // The slower the machine, the longer it takes until all of them are there.
    let mut seconds = 0.5;
    let output = wait_for("it has started its processes by the end", || {
        let _ = fs::remove_file(&pids);
        let length = seconds.to_string();
        seconds *= 4.0;
        let output = doctor(&place, &["--json", "--seconds", &length, "--", "bash", "-c", &script]);
        let written = fs::read_to_string(&pids).unwrap_or_default();
        // A killed process is gone a moment later.
        wait_until("none of its processes lives on", || !written.lines().any(lives));
        let is_all = written.lines().count() == 3 || cannot_watch(&stderr(&output));
        is_all.then_some(output)
    });
    if cannot_watch(&stderr(&output)) {
        skipped(stderr(&output));
    }
    wait_until("its job has ended", || place.jobs().is_empty());
}

#[test]
fn needs_root_unwatchable_program_is_left_or_ended() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    let becomes_nobody = || {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        setpriv
    };
    if !becomes_nobody().arg("true").status().is_ok_and(|status| status.success()) {
        skipped("needs setpriv, to become somebody who has no privilege");
        return;
    }
    place.give_to(65534);
    place.copy_programs(&["gang-doctor", "gang", "gangd"]);
    let own = place.directory.path();
    let doctor = |arguments: &[&str]| {
        let mut doctor = becomes_nobody();
        doctor.arg(own.join("gang-doctor")).args(arguments).current_dir("/");
        doctor.env("GANG_SOCKET", place.socket()).env("XDG_RUNTIME_DIR", own);
        let output = doctor.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains("has no cgroup of its own"), "{output:?}");
        wait_until("no job is left", || place.jobs().is_empty());
    };
    let script = format!("cd {}; {SPIN}", own.display());
    doctor(&["--", "bash", "-c", &script]);
    assert!(!is_executed(&script), "it runs on");
    let mut spins = becomes_nobody();
    let spins = Program::start(spins.args(["bash", "-c", SPIN]));
    doctor(&["--pid", &spins.pid().to_string()]);
    assert!(lives(&spins.pid().to_string()), "it was not ours to end");
}

/// A gang that ends the process that it has adopted, and waits for the end of the job.
const ADOPTS_AND_ENDS: &str = r#"#!/bin/sh
for pid; do :; done
"$GANG" "$@" || exit
kill -KILL "$pid"
for _ in $(seq 1800); do
  "$GANG" ls | grep -q doctor- || exit 0
  sleep 0.1
done
"#;

#[test]
fn needs_root_program_ending_at_adoption_is_named() {
    let Some(_sole) = sole_watcher() else { return };
    let place = Place::new();
    place.copy_programs(&["gang-doctor"]);
    let ending = place.path("gang");
    fs::write(&ending, ADOPTS_AND_ENDS).unwrap();
    fs::set_permissions(&ending, fs::Permissions::from_mode(0o755)).unwrap();
    // The daemon stays, for that one.
    let run = ["run", "--policy", "none", "--", "sleep", "300"];
    let _other = Program::start(&mut place.gang(&run));
    wait_until("the other is a job", || place.jobs().iter().any(|job| job.processes > 0));
    let spins = Program::spinner();
    let mut doctor = place.command(place.path("gang-doctor"));
    doctor.args(["--pid", &spins.pid().to_string()]).env("GANG", place.programs.join("gang"));
    let output = doctor.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("ended before it could be watched"), "{output:?}");
}
