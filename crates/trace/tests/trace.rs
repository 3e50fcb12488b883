//! The program, with a daemon of its own and two gangs.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Output},
};

use gang_harness::{skipped, wait_for, wait_until};
use serde_json::Value;

struct Gangs(Vec<Child>);

impl Drop for Gangs {
    fn drop(&mut self) {
        for gang in &mut self.0 {
            let _ = gang.kill();
            let _ = gang.wait();
        }
    }
}

fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_gang-trace")).with_file_name(name)
}

fn trace(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gang-trace"))
        .args(arguments)
        .current_dir(directory)
        .env("GANG_SOCKET", directory.join("gangd.sock"))
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two gangs for ten minutes at most: one spins, the other one has short processes do it.
fn gangs(directory: &Path) -> Gangs {
    let start = |name: &str, what: &str| {
        Command::new(beside("gang"))
            .args([
                "run",
                "--name",
                name,
                "--",
                "bash",
                "-c",
                &format!("while [ $SECONDS -lt 600 ]; do {what}; done"),
            ])
            .env("GANG_SOCKET", directory.join("gangd.sock"))
            .spawn()
            .unwrap()
    };
    let gangs = Gangs(vec![start("one", ":"), start("\"other\"", "(:)")]);
    wait_until("two gangs take turns", || {
        let output = Command::new(beside("gang"))
            .args(["ls", "--json"])
            .env("GANG_SOCKET", directory.join("gangd.sock"))
            .output()
            .unwrap();
        let jobs: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let run = |job: &Value| job["slots"].as_i64().unwrap_or(0) > 0;
        jobs["jobs"].as_array().is_some_and(|jobs| jobs.len() == 2 && jobs.iter().all(run))
    });
    gangs
}

/// How many processes of a job ran.
fn processes(events: &[Value], job: &str) -> usize {
    let is_slot = |event: &&Value| event["cat"] == "slot" && event["name"] == job;
    let Some(slot) = events.iter().find(is_slot) else { return 0 };
    let arguments = events.iter().map(|event| &event["args"]);
    let its = arguments.filter(|of| of["job"] == slot["args"]["job"]);
    its.filter_map(|of| of["pid"].as_i64()).collect::<BTreeSet<i64>>().len()
}

#[test]
fn needs_root_a_trace_has_slots_and_who_ran_in_them() {
    let is_built = ["gang", "gangd"].iter().all(|name| beside(name).is_file());
    if !rustix::process::geteuid().is_root() || !is_built {
        skipped("needs root, and gang and gangd beside it");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let _gangs = gangs(directory.path());
    let mut arguments = vec!["--seconds", "0.5", "--out", "t.json"];
    let is_drawn = gang_picture::python_with("matplotlib").is_some();
    if is_drawn {
        arguments.extend(["--picture", "t.svg"]);
    }
    let path = directory.path().join("t.json");
    let trace = wait_for("both have slots, and the other some processes", || {
        let output = trace(directory.path(), &arguments);
        if stderr(&output).contains("cannot record what runs") {
            skipped(stderr(&output));
            return Some(None);
        }
        assert!(output.status.success(), "{}", stderr(&output));
        let trace: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let has_slot = |name: &&str| {
            events.iter().any(|event| event["cat"] == "slot" && event["name"] == **name)
        };
        // Where a thousand others want the CPUs, half a second may be none of theirs. Processes of
        // the other one come and go in a millisecond, and each is of its job.
        let (ones, others) = (processes(events, "one"), processes(events, "\"other\""));
        assert!(ones <= 1, "{ones}");
        let is_enough = ["one", "\"other\""].iter().all(has_slot) && others > 4;
        is_enough.then_some(Some(trace))
    });
    let Some(trace) = trace else { return };
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |cat: &'static str| events.iter().filter(move |event| event["cat"] == cat);
    assert!(of("in slot").count() > 0 && of("in slot").all(|event| event["args"]["job"].is_i64()));
    let phases = ["late", "lower", "raise"];
    let (switches, parts): (Vec<&Value>, Vec<&Value>) =
        of("switch").partition(|event| event["name"] == "switch");
    assert!(!switches.is_empty(), "the gangs took turns");
    let span = |event: &Value| {
        let ts = event["ts"].as_f64().unwrap();
        (event["tid"].clone(), ts, ts + event["dur"].as_f64().unwrap())
    };
    for part in parts {
        assert!(phases.iter().any(|phase| part["name"] == *phase), "{part}");
        let (tid, begin, end) = span(part);
        // Nanoseconds of two sums.
        let is_of = |(of, from, to): (Value, f64, f64)| {
            of == tid && from <= begin + 0.001 && end <= to + 0.001
        };
        assert!(switches.iter().any(|switch| is_of(span(switch))), "{part} is of no switch");
    }
    assert!(phases.iter().all(|phase| of("switch").any(|event| event["name"] == *phase)));
    if is_drawn {
        let svg = fs::read_to_string(directory.path().join("t.svg")).unwrap();
        // Quotes need no escape in what is between tags.
        for drawn in [">one</text>", ">\"other\"</text>", "<g id=\"late\">", "<g id=\"raise\">"] {
            assert!(svg.contains(drawn), "{drawn} is not drawn");
        }
    } else {
        skipped("the picture needs matplotlib (on Debian: the package python3-matplotlib)");
    }
    assert_eq!(trace["metadata"]["switches_lost"], 0);
    let within = |event: &&Value| {
        let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        ts >= 0.0 && dur >= 0.0 && ts + dur <= 500_001.0
    };
    let complete: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert!(complete.iter().all(within));
}

#[test]
fn without_a_daemon_there_is_nothing_to_record() {
    let directory = tempfile::tempdir().unwrap();
    let output = trace(directory.path(), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).starts_with("gang trace: "), "{}", stderr(&output));
    assert!(!directory.path().join("gang-trace.json").exists());
    for wrong in [["--seconds", "0"], ["--picture", "a.gif"]] {
        assert_eq!(trace(directory.path(), &wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn needs_root_refused_recording_says_what_it_takes() {
    if !rustix::process::geteuid().is_root() || !beside("gangd").is_file() {
        skipped("needs root, and gangd beside it");
        return;
    }
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    if paranoid.trim().parse().unwrap_or(2) < 1 {
        skipped("everybody may record here (kernel.perf_event_paranoid)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("gangd.sock");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    // Where another user can execute it; by another process, see ETXTBSY in execve(2).
    let program = directory.path().join("gang-trace");
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_gang-trace")).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut gangd = Command::new(beside("gangd")).arg("--socket").arg(&socket).spawn().unwrap();
    wait_until("the daemon listens", || socket.exists());
    let out = directory.path().join("t.json");
    let output = Command::new(&program)
        .args(["--seconds", "60", "--out"])
        .arg(&out)
        .current_dir("/")
        .env("GANG_SOCKET", &socket)
        .uid(65534)
        .gid(65534)
        .output();
    let pid = rustix::process::Pid::from_child(&gangd);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    gangd.wait().unwrap();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("cannot record what runs: recording takes root"), "{said}");
    assert!(!out.exists());
}
