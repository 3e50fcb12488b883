//! PID namespaces, as containers have them: a daemon within, and on either side of one.

use std::{
    ops::Deref,
    process::{Output, Stdio},
};

use gang_daemon::{Program, are_built, is_root, stderr, stdout};
use gang_harness::{TEST_TIMEOUT, skipped, wait_until};

const UNSEEN: &str = "gangd does not see the processes of this PID namespace; give the container \
                      a daemon of its own (GANG_SOCKET)";

/// A directory in which daemons run that die with their namespaces, and so leave their groups. A
/// release removes these.
struct Place(gang_daemon::Place);

impl Deref for Place {
    type Target = gang_daemon::Place;

    fn deref(&self) -> &gang_daemon::Place {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // One that is asked again and again is never idle.
            self.output(&["shutdown"]);
            wait_until("the daemon has ended", || self.output(&["ls"]).status.code() == Some(3));
            wait_until("all is released", || self.output(&["recover"]).status.success());
        }
    }
}

/// A place without a daemon; `None`, and said, where a test needs what is not there.
fn place() -> Option<Place> {
    if !is_root() || !are_built(&["gangd"]) {
        return None;
    }
    let place = Place(gang_daemon::Place::new());
    let works = contained(&place, &["true"]).status.success();
    if !works {
        skipped("needs unshare, to make a PID namespace");
    }
    works.then_some(place)
}

/// Runs a program as process 1 of a PID namespace.
fn contained(place: &Place, words: &[&str]) -> Output {
    let within = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    unshared(place, &within, words)
}

fn unshared(place: &Place, namespaces: &[&str], words: &[&str]) -> Output {
    let mut timeout = place.command("timeout");
    timeout.arg(TEST_TIMEOUT.as_secs().to_string()).arg("unshare").args(namespaces).args(words);
    timeout.env("GANG", place.programs.join("gang")).stdin(Stdio::null());
    timeout.output().unwrap()
}

#[test]
fn needs_root_process_1_of_container_runs_as_gang() {
    let Some(place) = place() else { return };
    let gang = place.programs.join("gang");
    let run = [gang.to_str().unwrap(), "run", "-q", "--", "sh", "-c", "echo $$; exit 4"];
    let output = contained(&place, &run);
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(4), "1\n"), "{}", stderr(&output));
}

#[test]
fn needs_root_child_in_container_runs_as_gang() {
    let Some(place) = place() else { return };
    let run = "\"$GANG\" run -q -- sh -c 'echo child of $PPID; exit 4'";
    let shell = format!("bash -c {}; exit $?", shell_word(&format!("{run}; exit $?")));
    let output = contained(&place, &["sh", "-c", &shell]);
    let said = stderr(&output);
    assert_eq!((output.status.code(), &*stdout(&output)), (Some(4), "child of 2\n"), "{said}");
}

/// A text as one word of a shell's command.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn needs_root_client_in_lower_namespace_is_a_gang() {
    let Some(place) = place() else { return };
    let gang = place.programs.join("gang");
    let _job =
        Program::start(place.gang(&["run", "-q", "--", "sleep", "infinity"]).stdin(Stdio::null()));
    wait_until("a daemon is there", || place.jobs().len() == 1);
    let contained =
        |words: &[&str]| contained(&place, &[&[gang.to_str().unwrap()], words].concat());
    // Gang is process 1 there, and so is the program; the machine's process 1 is another one.
    let script = "echo $$ of $(grep -c job- /proc/self/cgroup); \"$GANG\" ls --json; \
                  \"$GANG\" run -- sh -c 'echo inner'; exit 4";
    let output = contained(&["run", "-q", "--name", "within", "--", "sh", "-c", script]);
    let (said, errors) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(said.starts_with("1 of 1\n") && said.contains("\"within\""), "{said}");
    assert!(said.ends_with("inner\n"), "{said}");
    assert!(errors.contains("runs in job 2, in which gang run was called"), "{errors}");
    // Numbers are the machine's.
    for words in
        [&["adopt", "1", "-n", "1", "--name", "x"][..], &["adopt", "--thread", "1", "-n", "1"]]
    {
        let output = contained(words);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(UNSEEN), "{output:?}");
    }
    wait_until("no job is left of it", || place.jobs().len() == 1);
}

#[test]
fn needs_root_client_in_upper_namespace_only_looks() {
    let Some(place) = place() else { return };
    let within = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut unshare = place.command("unshare");
    unshare.args(within).arg(place.programs.join("gang"));
    unshare.args(["run", "-q", "--", "sleep", "infinity"]).stdin(Stdio::null());
    let _job = Program::start(&mut unshare);
    wait_until("a daemon is there", || place.jobs().iter().any(|job| job.processes == 1));
    let listed = place.output(&["ls"]);
    assert!(listed.status.success() && stdout(&listed).contains("sleep"), "{listed:?}");
    let me = std::process::id().to_string();
    for (words, operation, code) in [
        (&["run", "-q", "--", "true"][..], "add a process", 125),
        (&["adopt", &me, "-n", "1", "--name", "x"], "adopt processes", 1),
        (&["adopt", "--thread", &me, "-n", "1", "--name", "x"], "add a thread", 1),
    ] {
        let output = place.output(words);
        let expected = format!("gang: {operation} is not permitted: {UNSEEN}\n");
        assert_eq!((output.status.code(), stderr(&output)), (Some(code), expected));
    }
    wait_until("no job is left of it", || place.jobs().len() == 1);
}

#[test]
fn needs_root_namespace_without_own_proc_is_refused() {
    let Some(place) = place() else { return };
    let gang = place.programs.join("gang");
    let run = [gang.to_str().unwrap(), "run", "-q", "--", "true"];
    let output = unshared(&place, &["--pid", "--fork", "--kill-child"], &run);
    assert_eq!(output.status.code(), Some(125));
    let said = stderr(&output);
    assert!(said.contains("/proc is of another PID namespace; mount that of this one"), "{said}");
}
