//! Clients of other PID namespaces, which know processes by other numbers; and what a service
//! manager sets, which a daemon keeps.

mod place;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
};

use gang_daemon::{Daemon, Options};
use gang_harness::skipped;
use gang_protocol::{
    client::{Client, Registration},
    error::ClientError,
    v1,
};
use place::{Place, Program, is_root, job_with};
use serde_json::{Value, json};

/// Set to the socket where this program plays a client that compares nothing.
const PLAYS_CLIENT: &str = "GANGD_TEST_PLAYS_CLIENT";

/// Sends requests as a library in another language does, and prints the answers.
fn play_client(socket: &str) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).split(0);
    let mut ask = |method: &str, parameters: Value| {
        let request =
            json!({ "method": format!("org.gangd.v1.{method}"), "parameters": parameters });
        stream.write_all(format!("{request}\0").as_bytes()).unwrap();
        let answer = answers.next().unwrap().unwrap();
        serde_json::from_slice::<Value>(&answer).unwrap()
    };
    let job = ask(
        "Register",
        json!({ "name": "x", "cpus": 1, "min_cpus": 1, "class": "batch", "policy": "gang",
                "weight": 100 }),
    );
    let job = &job["parameters"]["job"];
    let pid: u32 = fs::read_link("/proc/self").unwrap().to_str().unwrap().parse().unwrap();
    let own = json!({ "job": job, "pid": pid });
    let tid = json!({ "job": job, "tid": pid });
    for (method, parameters) in [
        ("AddProcess", &own),
        ("RemoveProcess", &own),
        ("AddThread", &tid),
        ("RemoveThread", &tid),
        ("ListJobs", &json!({})),
    ] {
        println!("answer: {}", ask(method, parameters.clone()));
    }
}

#[test]
fn needs_root_inner_namespaces_numbers_are_refused() {
    const TEST: &str = "needs_root_inner_namespaces_numbers_are_refused";
    if let Ok(socket) = std::env::var(PLAYS_CLIENT) {
        return play_client(&socket);
    }
    if !is_root() {
        return;
    }
    let place = Place::new(&["--backend", "signal"]);
    let mut client = Command::new("unshare");
    client.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    client.arg(std::env::current_exe().unwrap()).args(["--exact", TEST, "--nocapture"]);
    let output = client.env(PLAYS_CLIENT, place.socket()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let answers = said.lines().filter_map(|line| Some(line.split_once("answer: ")?.1));
    let answers: Vec<Value> = answers.map(|text| serde_json::from_str(text).unwrap()).collect();
    if answers.is_empty() && !output.status.success() {
        return skipped(format!("needs unshare, to make a PID namespace: {output:?}"));
    }
    assert_eq!(answers.len(), 5, "{output:?}");
    for answer in &answers[..4] {
        assert_eq!(answer["error"], "org.gangd.v1.NotPermitted", "{answer}");
        let reason = answer["parameters"]["reason"].as_str().unwrap();
        assert!(reason.contains("does not see the processes of this PID namespace"), "{reason}");
    }
    assert_eq!(answers[4]["error"], Value::Null, "looking is permitted");
}

/// Set to the socket and a job where this program plays root of another user namespace.
const PLAYS_ROOT: &str = "GANGD_TEST_PLAYS_ROOT";

/// Asks for what root, or the owner of a job, may do; then for what a program may do with its own.
fn play_root(socket: &str, theirs: i64, pid: i64) {
    let connect = || Client::connect_within(socket.as_ref(), gang_harness::TEST_TIMEOUT).unwrap();
    let mut client = connect();
    let refused = |outcome: Result<(), ClientError>| {
        let reason = match outcome.unwrap_err() {
            ClientError::NotPermitted { reason, .. } => reason,
            error => panic!("{error}"),
        };
        assert!(reason.contains("the users of this user namespace"), "{reason}");
    };
    refused(client.kill(theirs, 9));
    refused(client.suspend(theirs));
    refused(client.remove_process(theirs, pid));
    refused(client.set_class(theirs, v1::Class::standby));
    assert!(client.shutdown().is_err());
    assert!(client.show_job(theirs).unwrap().processes.is_none());
    let express = place::registration("x", 1);
    let express = Registration { class: v1::Class::express, ..express };
    assert!(client.register(&express).is_err());
    let job = client.register(&place::registration("mine", 1)).unwrap();
    refused(client.add_process(job, pid));
    // As `gang run` does that stays as the parent of its program.
    let child = Program::sleeper();
    let of_child = client.register(&place::registration("child", 1)).unwrap();
    refused(client.add_process(of_child, pid));
    client.add_process(of_child, child.pid_i64()).unwrap();
    refused(client.kill(of_child, 9));
    // Not standby: it would wait until nobody else wants a CPU.
    client.set_class(job, v1::Class::batch).unwrap();
    client.add_caller(job).unwrap();
    let mut again = connect();
    again.set_progress(job, 1.0, 2.0).unwrap();
    assert!(again.show_job(job).unwrap().processes.is_some());
    refused(again.kill(theirs, 9));
    println!("all was as it is to be");
}

#[test]
fn needs_root_users_of_other_namespace_are_powerless() {
    const TEST: &str = "needs_root_users_of_other_namespace_are_powerless";
    if let Ok(what) = std::env::var(PLAYS_ROOT) {
        let words: Vec<&str> = what.split(' ').collect();
        return play_root(words[0], words[1].parse().unwrap(), words[2].parse().unwrap());
    }
    if !is_root() {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let unshare = |words: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user"]).args(words).stdin(Stdio::null());
        unshare
    };
    if !unshare(&["true"]).status().is_ok_and(|status| status.success()) {
        return skipped("needs unshare, to make a user namespace");
    }
    let program = Program::sleeper();
    let job = job_with(&place, &program, 1);
    let own = std::env::current_exe().unwrap();
    let mut client = unshare(&[own.to_str().unwrap(), "--exact", TEST, "--nocapture"]);
    let what = format!("{} {job} {}", place.socket().display(), program.pid());
    let output = client.env(PLAYS_ROOT, what).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("all was as it is to be"), "{output:?}");
    assert_eq!(place.job(job).unwrap().processes, 1);
}

#[test]
fn needs_root_kernel_threads_and_init_are_refused() {
    if !is_root() {
        return;
    }
    let place = Place::new(&["--backend", "signal"]);
    let is_first = fs::read_link("/proc/self/ns/pid").unwrap();
    if is_first.as_os_str() != "pid:[4026531836]" {
        return skipped("needs the first PID namespace, which has the kernel's threads");
    }
    let mut client = place.client();
    let job = client.register(&place::registration("x", 1)).unwrap();
    // Init, kthreadd and one of its children.
    let children = fs::read_to_string("/proc/2/task/2/children").unwrap();
    let child: i64 = children.split_whitespace().next().unwrap().parse().unwrap();
    let status = place.status();
    let guardian = status.guardian_pid.unwrap_or(status.pid);
    for pid in [1, 2, child, status.pid, guardian] {
        let error = client.add_process(job, pid).unwrap_err().to_string();
        assert!(error.contains("it belongs to the system, which runs the gangs"), "{error}");
    }
    let program = Program::sleeper();
    client.add_process(job, program.pid_i64()).unwrap();
}

#[test]
fn settings_of_a_service_manager_stay() {
    let launcher = [
        "env",
        "--ignore-signal=USR1",
        "SETTING=kept",
        "prlimit",
        "--nofile=500:500",
        "--fsize=1000000000:1000000000",
        "sh",
        "-c",
        "echo 500 >/proc/self/oom_score_adj; exec \"$0\" \"$@\"",
    ];
    let options =
        Options { launcher: &launcher, flags: &["--backend", "signal"], ..Options::default() };
    let daemon = Daemon::start_in(gang_daemon::Place::new(), &options);
    let of = |file: &str| {
        let bytes = fs::read(format!("/proc/{}/{file}", daemon.pid())).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert!(of("environ").contains("SETTING=kept\0"));
    assert_eq!(of("oom_score_adj"), "500\n");
    let limits = of("limits");
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!((&*limit("Max open files"), &*limit("Max file size")), ("500", "1000000000"));
    let ignored = of("status");
    let ignored = ignored.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert!(ignored & 1 << (10 - 1) != 0, "USR1: {ignored:x}");
    // Its guardian is where the manager looks for it.
    let groups = |pid: i64| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let guardian = daemon.client().status().unwrap().status.guardian_pid.unwrap();
    assert_eq!(groups(guardian), groups(daemon.pid().into()));
}
