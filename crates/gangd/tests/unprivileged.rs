//! A daemon without privilege: jobs are trees of processes, and take turns by SIGSTOP and SIGCONT.
//! With CAP_SYS_NICE alone it raises them.
//!
//! These tests need root, to become a user without it.

mod place;

use std::{path::Path, process::Command};

use gang_daemon::copy;
use gang_harness::skipped;
use gang_linux::{
    process,
    sched::{self, SchedPolicy},
};
use gang_protocol::{client::Client, v1};
use place::{Place, Program, is_root, job_with, registration, wait_released, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// Known to every machine as nobody.
const NOBODY: u32 = 65_534;

const IS_NOBODY: &str = "GANG_TEST_IS_NOBODY";

/// True in a process of nobody's, which starts the test once more and does what it says.
fn is_nobody(test: &str) -> bool {
    is_nobody_with(test, &[])
}

/// The same; nobody's programs are started with capabilities.
fn is_nobody_with(test: &str, capabilities: &[&str]) -> bool {
    if std::env::var_os(IS_NOBODY).is_some() {
        return true;
    }
    if !is_root() {
        return false;
    }
    let mut becomes = Command::new("setpriv");
    let nobody = NOBODY.to_string();
    becomes.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    for capability in capabilities {
        becomes.args(["--inh-caps", capability, "--ambient-caps", capability]);
    }
    let mut tried = Command::new("setpriv");
    match tried.args(becomes.get_args()).arg("true").output() {
        Ok(output) if output.status.success() => {}
        refused => {
            skipped(format!(
                "needs setpriv of util-linux, which may set what it is to: {refused:?}"
            ));
            return false;
        }
    }
    // Where nobody can reach the programs.
    let place = gang_daemon::Place::new();
    place.open_to_everybody(0o755);
    place.copy_programs(&["gangd"]);
    // As cargo has it, below the daemon.
    let own = place.path("deps");
    std::fs::create_dir(&own).unwrap();
    let own = own.join("test");
    copy(&[std::env::current_exe().unwrap()], &own);
    let output = becomes
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env(IS_NOBODY, "1")
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    false
}

fn place() -> Place {
    let place = Place::new(&[]);
    assert_eq!(place.status().backend, "signal");
    place
}

fn job(place: &Place, program: &Program) -> i64 {
    let mut client = place.client();
    let cpus = client.status().unwrap().status.cpus;
    let id = client.register(&registration("job", cpus)).unwrap();
    client.add_process(id, program.pid_i64()).unwrap();
    id
}

fn processes(place: &Place, job: i64) -> Vec<u32> {
    let shown = |mut client: Client| client.show_job(job).unwrap().processes.unwrap_or_default();
    shown(place.client()).iter().map(|process| process.pid as u32).collect()
}

fn is_stopped(pid: u32) -> bool {
    process::stat(Path::new("/proc"), pid).is_ok_and(|stat| stat.state == b'T')
}

#[test]
fn needs_root_unprivileged_gangs_survive_the_daemon() {
    if !is_nobody("needs_root_unprivileged_gangs_survive_the_daemon") {
        return;
    }
    let mut place = place();
    let programs = [Program::spinner(), Program::spinner()];
    let jobs = programs.each_ref().map(|program| job(&place, program));
    for program in &programs {
        wait_until("in its slot", || !is_stopped(program.pid()));
        wait_until("out of its slot", || is_stopped(program.pid()));
    }
    let described = place.job(jobs[0]).unwrap();
    assert_eq!((described.cgroup, described.processes), (None, 1));
    place.client().suspend(jobs[1]).unwrap();
    wait_until("suspended", || is_stopped(programs[1].pid()));
    place.kill();
    for program in &programs {
        wait_until("it goes on", || !is_stopped(program.pid()));
    }
}

#[test]
fn needs_root_orphaned_process_goes_on_too() {
    if !is_nobody("needs_root_orphaned_process_goes_on_too") {
        return;
    }
    let mut place = place();
    let mut first = Program::shell("(sh -c 'while :; do :; done'; true) & read line");
    let id = job(&place, &first);
    wait_until("all are seen", || processes(&place, id).len() == 3);
    let children = process::children(Path::new("/proc"), first.pid()).unwrap();
    let middle = Pid::from_raw(children[0] as i32).unwrap();
    let last = process::children(Path::new("/proc"), children[0]).unwrap()[0];
    kill_process(middle, Signal::KILL).unwrap();
    drop(first.0.stdin.take());
    wait_until("one is left", || processes(&place, id) == [last]);
    place.client().suspend(id).unwrap();
    wait_until("it stands still", || is_stopped(last));
    let on_file = || place.jobs_text().contains(&format!("{last},"));
    wait_until("it is on file", on_file);
    place.kill();
    wait_until("it goes on", || !is_stopped(last));
}

#[test]
fn needs_root_a_job_that_sleeps_is_woken_by_a_child() {
    if !is_nobody("needs_root_a_job_that_sleeps_is_woken_by_a_child") {
        return;
    }
    let place = place();
    let mut program = Program::shell("read line; sh -c 'while :; do :; done'; true");
    let id = job(&place, &program);
    let state = || place.job(id).unwrap().state;
    wait_until("it sleeps", || state() == v1::JobState::sleeping);
    drop(program.0.stdin.take());
    wait_until("it is awake", || state() != v1::JobState::sleeping);
    wait_until("both are seen", || processes(&place, id).len() == 2);
}

#[test]
fn needs_root_cap_sys_nice_suffices_to_raise() {
    const TEST: &str = "needs_root_cap_sys_nice_suffices_to_raise";
    if !is_nobody_with(TEST, &["+sys_nice"]) {
        return;
    }
    let mut place = Place::new(&[]);
    let status = place.status();
    if status.backend != "rt" {
        skipped(place.obstacle("rt").expect("the best that can be used is taken"));
        return;
    }
    assert_eq!(status.guarantee, v1::Guarantee::exclusive);
    for backend in &status.backends {
        let needs_groups = ["weight", "freeze"].contains(&backend.name.as_str());
        assert_eq!(backend.usable, !needs_groups, "{backend:?}");
        let reason = backend.reason.as_deref().unwrap_or_default();
        assert!(!needs_groups || reason.contains("cgroup"), "{backend:?}");
    }
    let machine = status.cpus;
    let programs = [Program::spinner(), Program::spinner()];
    let jobs = programs.each_ref().map(|program| job_with(&place, program, machine));
    let policy = |program: &Program| sched::get(program.pid()).unwrap().policy;
    for program in &programs {
        wait_until("raised", || policy(program) == SchedPolicy::Fifo);
        wait_until("filling", || matches!(policy(program), SchedPolicy::Idle | SchedPolicy::Batch));
    }
    assert_eq!(place.client().check().unwrap().violations, []);
    assert_eq!(place.job(jobs[0]).unwrap().cgroup, None, "jobs are trees of processes");
    // The guardian may do what the daemon may.
    place.kill();
    for program in &programs {
        wait_released(program.pid(), "released");
    }
    place.start();
    wait_until("raised by the next daemon", || policy(&programs[0]) == SchedPolicy::Fifo);
    place.client().shutdown().unwrap();
    for program in &programs {
        wait_released(program.pid(), "released");
    }
}
