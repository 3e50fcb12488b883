//! `gang` with the real daemon, which it starts itself: how the daemon begins, serves and ends, and
//! what a sudden death leaves.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use gang_daemon::{Program, are_built, stderr};
use gang_harness::{skipped, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A directory in which gang starts daemons, and programs write.
struct Place(gang_daemon::Place);

impl Place {
    /// `None`, and said, where this build has no gangd.
    fn new() -> Option<Place> {
        are_built(&["gangd"]).then(|| Place(gang_daemon::Place::new()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn gang(&self, args: &[&str]) -> Command {
        let mut gang = self.0.gang(args);
        gang.env("GANG_SOCKET", self.path("run/gangd.sock")).stdin(Stdio::null());
        gang.env("GANG", self.0.programs.join("gang")).env("DIR", self.0.directory.path());
        gang
    }

    fn output(&self, args: &[&str]) -> Output {
        self.gang(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.output(args);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The text that a program wrote under this name.
    fn written(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// The backends that this user may use on this machine.
    fn backends(&self) -> Vec<String> {
        let output = self.output(&["run", "--", "sh", "-c", "$GANG status --json > $DIR/backends"]);
        assert!(output.status.success(), "{output:?}");
        // The next program has a daemon of its own.
        let status = self.written("backends");
        wait_until("the daemon has ended", || !daemons(&status).into_iter().any(lives));
        let mut usable = Vec::new();
        for backend in status["status"]["backends"].as_array().unwrap() {
            let name = backend["name"].as_str().unwrap().to_owned();
            match backend["usable"] == true {
                true => usable.push(name),
                false => skipped(format!("{name}: {}", backend["reason"])),
            }
        }
        usable
    }
}

/// Numbers of the daemon and of its guardian.
fn daemons(status: &Value) -> [Pid; 2] {
    ["pid", "guardian_pid"]
        .map(|name| Pid::from_raw(status["status"][name].as_i64().unwrap() as i32).unwrap())
}

/// With its last thread ends what it listens on, though nobody may have waited for its end yet.
fn lives(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).into_iter().flatten();
    let has_ended = |stat: String| stat.contains(") Z ") || stat.contains(") X ");
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .any(|stat| !has_ended(stat))
}

/// The groups, in all hierarchies, that have the name of one.
fn groups_named(name: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mounts = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = mounts.chain([root.to_owned()]).map(|mount| mount.join(name));
    named.filter(|group| group.exists()).collect()
}

const PROGRAM: &str =
    "$GANG status --json > $DIR/status; $GANG show --json $GANG_JOB > $DIR/show; exit 7";

#[test]
fn daemon_of_run_ends_after_last_job_without_traces() {
    let Some(place) = Place::new() else { return };
    for backend in place.backends() {
        let run = ["run", "--backend", &backend, "--", "sh", "-c"];
        let output = place.output(&[&run[..], &[PROGRAM]].concat());
        assert_eq!(output.status.code(), Some(7), "{backend}: {}", stderr(&output));
        let (status, shown) = (place.written("status"), place.written("show"));
        assert_eq!(status["status"]["backend"], *backend);
        assert_eq!(status["status"]["jobs"], 1);
        let killed = place.output(&[&run[..], &["kill -9 $$"]].concat());
        assert_eq!(killed.status.signal(), Some(9), "{backend}: {}", stderr(&killed));
        wait_until("daemon and guardian have ended", || !daemons(&status).into_iter().any(lives));
        // But for the number that the next job gets.
        wait_until("its files are gone", || {
            let left = fs::read_dir(place.path("run")).into_iter().flatten().flatten();
            left.filter(|entry| entry.file_name() != "gangd.next").count() == 0
        });
        if let Some(group) = shown["details"]["cgroup"].as_str() {
            let group = Path::new(group);
            let own = group.parent().unwrap().file_name().unwrap().to_str().unwrap();
            assert!(own.starts_with("gangd-"), "{}", group.display());
            wait_until("its groups are gone", || groups_named(own).is_empty());
        }
    }
}

/// Set where this program plays one with two threads more, which wait until its input ends.
const HAS_THREADS: &str = "GANG_TEST_HAS_THREADS";

fn has_threads() {
    let tid = || rustix::thread::gettid().as_raw_nonzero().get();
    let (sender, tids) = std::sync::mpsc::channel();
    for _ in 0..2 {
        let sender = sender.clone();
        std::thread::spawn(move || {
            sender.send(tid()).unwrap();
            std::thread::park();
        });
    }
    println!("threads: {} {}", tids.recv().unwrap(), tids.recv().unwrap());
    let _ = std::io::stdin().lines().next();
}

#[test]
fn single_threads_are_adopted_all_or_none() {
    const TEST: &str = "single_threads_are_adopted_all_or_none";
    if std::env::var_os(HAS_THREADS).is_some() {
        return has_threads();
    }
    let Some(place) = Place::new() else { return };
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", TEST, "--nocapture"]).env(HAS_THREADS, "1");
    let mut program = Program::start(program.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    let numbers = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("threads: ")?.1.to_owned()));
    let numbers = numbers.unwrap();
    let (one, other) = numbers.split_once(' ').unwrap();
    // It outlives its threads' job, so that the daemon is there for what comes next.
    let backend = if place.backends().iter().any(|it| it == "rt") { "rt" } else { "signal" };
    let _beside = spinner(&place, backend);
    wait_until("a daemon is there", || place.output(&["status"]).status.success());
    let names = || {
        let listed = place.json(&["ls", "--json"]);
        let jobs = listed["jobs"].as_array().unwrap().clone();
        jobs.into_iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Jobs are listed in the order in which they came.
    wait_until("a job is beside", || names() == ["bash"]);
    let adopted =
        place.output(&["adopt", "--thread", one, other, "-n", "1", "--name", "threads of it"]);
    if backend == "signal" {
        skipped("needs the backend rt: single threads are only refused");
        assert_eq!(adopted.status.code(), Some(1), "{adopted:?}");
        assert!(stderr(&adopted).contains("acts on whole processes"), "{adopted:?}");
        wait_until("no job is left of it", || names() == ["bash"]);
        return;
    }
    assert!(adopted.status.success(), "{adopted:?}");
    let said = String::from_utf8_lossy(&adopted.stdout).into_owned();
    assert!(said.ends_with(": threads of it, 2 single threads\n"), "{said}");
    let show = || place.json(&["show", "threads of it", "--json"]);
    // How many there are is what the daemon saw when it looked last.
    wait_until("both are seen", || show()["details"]["threads"] == 2);
    let shown = show();
    let (details, processes) = (&shown["details"], shown["processes"].as_array().unwrap());
    assert_eq!(details["single_threads"], true, "{details}");
    let tids: Vec<String> =
        processes[0]["tids"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert!(tids.iter().all(|tid| [one, other].contains(&tid.as_str())), "{tids:?}");
    assert_eq!((processes.len(), tids.len()), (1, 2));
    // One of them is in a job: of what comes with it, nobody is taken.
    let main = program.pid().to_string();
    let refused = place.output(&["adopt", "--thread", &main, one, "-n", "1", "--name", "more"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(stderr(&refused).contains("a thread is in one job at a time"), "{refused:?}");
    wait_until("no job is left of it", || names() == ["bash", "threads of it"]);
    drop(program);
    wait_until("it ends with its threads", || names() == ["bash"]);
}

/// Known to every machine as nobody.
const NOBODY: [&str; 5] = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];

#[test]
fn needs_root_unprivileged_daemon_says_what_it_is() {
    let Some(place) = Place::new() else { return };
    let becomes_nobody = || {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(NOBODY);
        setpriv
    };
    if !becomes_nobody().arg("true").status().is_ok_and(|status| status.success()) {
        skipped("needs root and setpriv, to become somebody who has no privilege");
        return;
    }
    place.0.give_to(65534);
    place.0.copy_programs(&["gang", "gangd"]);
    let (own, by_gang) = (place.path("gang"), place.gang(&[]));
    let mut gang = becomes_nobody();
    gang.arg(&own).args(["run", "--", "sh", "-c", PROGRAM]).stdin(Stdio::null()).current_dir("/");
    for (name, value) in by_gang.get_envs() {
        match value {
            Some(value) => gang.env(name, value),
            None => gang.env_remove(name),
        };
    }
    let output = gang.env("GANG", &own).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    let line = "gang: gangs take turns by SIGSTOP and SIGCONT, because rt cannot be used: ";
    assert!(said.starts_with(line) && said.lines().count() == 1, "{said}");
    let status = place.written("status");
    assert_eq!(status["status"]["backend"], "signal");
    assert_eq!(place.written("show")["details"]["owner_uid"], 65534);
    wait_until("daemon and guardian have ended", || !daemons(&status).into_iter().any(lives));
}

/// A job that spins for as long as there is this test.
fn spinner(place: &Place, backend: &str) -> Program {
    let spins = format!("while [ -d /proc/{} ]; do :; done", std::process::id());
    let run = ["run", "-q", "--backend", backend, "-n", "1", "--", "bash", "-c", &spins];
    Program::start(&mut place.gang(&run))
}

#[test]
fn next_command_releases_what_is_left_and_reports_it() {
    let Some(place) = Place::new() else { return };
    for (backend, command) in place.backends().into_iter().zip(["ls", "status", "check", "show 1"])
    {
        let _programs = [spinner(&place, &backend), spinner(&place, &backend)];
        let jobs = || {
            let listed = place.output(&["ls", "--json"]);
            let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
            let jobs = listed["jobs"].as_array().cloned().unwrap_or_default();
            jobs.into_iter().filter(|job| job["slots"].as_i64() > Some(0)).collect::<Vec<_>>()
        };
        let mut running = Vec::new();
        wait_until("both have had slots", || {
            running = jobs();
            running.len() == 2
        });
        let suspended = running[1]["id"].to_string();
        assert!(place.output(&["suspend", &suspended]).status.success());
        wait_until("one is suspended", || jobs().iter().any(|job| job["state"] == "suspended"));
        let [daemon, guardian] = daemons(&place.json(&["status", "--json"]));
        // Neither hears of the other's end.
        kill_process(guardian, Signal::STOP).unwrap();
        kill_process(daemon, Signal::KILL).unwrap();
        wait_until("the daemon is dead", || !lives(daemon));
        kill_process(guardian, Signal::KILL).unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        let found = place.output(&words);
        assert_eq!(found.status.code(), Some(3), "{backend}: {found:?}");
        let said = stderr(&found);
        let begin = "a daemon left 2 job(s) behind, 2 of them with ";
        assert!(said.starts_with(begin), "{backend}: {said} of {running:?}");
        assert!(
            said.contains(" stood still; all are released\ngang: no gangd listens at "),
            "{said}"
        );
        let again = stderr(&place.output(&words));
        assert!(again.starts_with("gang: no gangd listens at "), "{again}");
    }
}
