//! Operation of the daemon: restarts, a service manager's socket, a broken disk.

mod place;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use gang_harness::{TEST_TIMEOUT, skipped};
use gang_linux::sched::SchedPolicy;
use gang_protocol::client::Client;
use place::{
    Place, Program, has_backend, job_with, patient_client, policies, registration,
    wait_busily_until, wait_released, wait_until,
};
use rustix::process::Signal;

#[test]
fn needs_root_release_keeps_jobs_for_the_next_daemon() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let program = Program::spinner();
    let job = job_with(&place, &program, 1);
    wait_until("raised", || policies(program.pid()).contains(&SchedPolicy::Fifo));
    place.kill();
    place.release(&["--keep-jobs"]);
    wait_released(program.pid(), "released");
    place.start();
    wait_until("the job is found again", || place.job(job).is_some());
    wait_until("raised again", || policies(program.pid()).contains(&SchedPolicy::Fifo));
    // While a daemon runs there is nothing to release.
    place.release(&["--keep-jobs"]);
    assert!(place.job(job).is_some());
}

#[test]
fn job_numbers_are_never_given_twice() {
    let mut place = Place::new(&[]);
    let mut last = 0;
    for round in 0..4 {
        let job = place.client().register(&registration("job", 1)).unwrap();
        assert!(job > last, "round {round}: {job} after {last}");
        last = job;
        if round % 2 == 0 {
            place.client().shutdown().unwrap();
        } else {
            place.kill();
            place.release(&[]);
        }
        place.start();
    }
    // Its runtime directory is empty after a restart of the machine, and its history is not.
    let directory = tempfile::tempdir().unwrap();
    let settings = format!("[history]\npath = {:?}\n", directory.path().join("history.db"));
    let ended = {
        let place = Place::configured(&settings, &[]);
        for _ in 0..3 {
            last = job_with(&place, &Program::shell("read line"), 1);
        }
        wait_until("they are in the history", || {
            place.client().history(10, None, None).unwrap().jobs.len() == 3
        });
        last
    };
    let place = Place::configured(&settings, &[]);
    assert!(place.client().register(&registration("job", 1)).unwrap() > ended);
}

#[test]
fn best_usable_backend_is_taken_with_the_reason() {
    let place = Place::new(&[]);
    let status = place.status();
    let names: Vec<&str> = status.backends.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["rt", "weight", "freeze", "signal"], "the strongest first");
    let best = status.backends.iter().find(|found| found.usable).unwrap();
    assert_eq!((&status.backend, &status.guarantee), (&best.name, &best.guarantee));
    for found in &status.backends {
        assert_eq!(found.usable, found.reason.is_none(), "{found:?}");
        if found.usable {
            let place = Place::new(&["--backend", &found.name]);
            assert_eq!(place.status().backend, found.name, "who asks for another one has it");
        }
    }
}

#[test]
fn varlink_reports_interface_and_version() {
    let place = Place::new(&["--backend", "signal"]);
    let ask = |method: &str, parameters: serde_json::Value| {
        let method = format!("org.varlink.service.{method}");
        let call = serde_json::json!({ "method": method, "parameters": parameters });
        let answer = place.raw(format!("{call}\0").as_bytes(), 1);
        serde_json::from_str::<serde_json::Value>(answer.trim_end_matches('\0')).unwrap()
    };
    let info = &ask("GetInfo", serde_json::json!({}))["parameters"];
    // In no order.
    let mut interfaces: Vec<_> =
        info["interfaces"].as_array().unwrap().iter().filter_map(|it| it.as_str()).collect();
    interfaces.sort_unstable();
    assert_eq!(interfaces, ["org.gangd.auto1", "org.gangd.v1", "org.varlink.service"]);
    assert_eq!(info["product"], "gang scheduling daemon");
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    let interface = serde_json::json!({ "interface": "org.gangd.v1" });
    let described = &ask("GetInterfaceDescription", interface)["parameters"]["description"];
    assert_eq!(described, include_str!("../../protocol/src/org.gangd.v1.varlink"));
    let other = serde_json::json!({ "interface": "org.gangd.v2" });
    assert!(ask("GetInterfaceDescription", other)["error"].is_string());
}

#[test]
fn a_configuration_is_checked_without_a_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gangd.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        let mut gangd = Command::new(env!("CARGO_BIN_EXE_gangd"));
        gangd.arg("--socket").arg(directory.path().join("gangd.sock"));
        gangd.arg("--check-config").arg("--config").arg(&path);
        let output = gangd.output().unwrap();
        let said = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), said(output.stdout), said(output.stderr))
    };
    let fine = format!("{}: fine\n", path.display());
    assert_eq!(check("slice = '20ms'\n"), (Some(0), fine, String::new()));
    let wrong = format!(
        "gangd: in {}: line 2: idle_after: 10800s is more than forget_after, 7200s\n",
        path.display()
    );
    assert_eq!(check("slice = '20ms'\nidle_after = '3h'\n"), (Some(1), String::new(), wrong));
    let (code, _, said) = check("slices = 3\n");
    assert!(code == Some(1) && said.contains("line 1: unknown field `slices`"), "{said}");
    fs::remove_file(&path).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "it makes nothing");
}

/// A level, and a message of it. The first messages are for people who have to act, the last for
/// developers who look for mistakes in programs.
const MESSAGES: [(&str, &str); 4] = [
    ("ERROR", "the configuration stays as it was"),
    ("WARN", "needs a restart to take effect"),
    ("INFO", "job ended"),
    ("DEBUG", "a client was disconnected"),
];

/// A daemon with that level, if any, logs so many of those messages, when all of it happens, and
/// none of the others.
fn logs(level: Option<&str>, count: usize) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let set = level.map_or("-uGANGD_LOG".to_owned(), |level| format!("GANGD_LOG={level}"));
    let to_file = format!("exec \"$@\" 2> {}", log.display());
    let launcher = ["env", &set, "sh", "-c", &to_file, "sh"];
    let place = Place::launched(&launcher, "", &["--backend", "signal", "--no-measure"]);
    let configure = |text: &str| {
        fs::write(place.directory.path().join("gangd.toml"), text).unwrap();
        place.signal(Signal::HUP);
    };
    let unreadable = place.raw(b"no request\0", 1);
    assert!(unreadable.contains("InvalidValue"), "{unreadable}");
    let program = Program::sleeper();
    let job = job_with(&place, &program, 1);
    drop(program);
    wait_until("the job has ended", || place.job(job).is_none());
    configure("slice = '30ms'\n[classes.batch]\nweight = 70\n");
    wait_until("the new weight", || place.status().batch_weight == 70);
    configure("slice = 'long'\n");
    let read = || fs::read_to_string(&log).unwrap();
    for (level, what) in MESSAGES.into_iter().take(count) {
        let logs = |line: &str| line.contains(level) && line.contains(what);
        wait_until(what, || read().lines().any(logs));
    }
    let text = read();
    for (level, _) in MESSAGES.into_iter().skip(count) {
        assert!(!text.contains(&format!(" {level} ")), "{text}");
    }
}

#[test]
fn log_levels_select_messages() {
    thread::scope(|scope| {
        for (level, count) in [(Some("error"), 1), (Some("warn"), 2), (None, 3), (Some("debug"), 4)]
        {
            scope.spawn(move || logs(level, count));
        }
    });
}

#[test]
fn daemon_runs_without_a_history() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    fs::write(&path, "dear diary, this is no database at all").unwrap();
    let place = Place::configured(&format!("[history]\npath = {path:?}\n"), &[]);
    place.client().register(&registration("job", 1)).unwrap();
    let refused = place.client().history(10, None, None).unwrap_err().to_string();
    assert!(refused.contains("history"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary, this is no database at all");
}

#[test]
fn status_file_is_whole_and_follows_no_link() {
    // The user who starts the daemon may keep his own files to himself.
    let private = ["sh", "-c", r#"umask 077; exec "$0" "$@""#];
    let place = Place::launched(&private, "status_file = true\n", &["--backend", "signal"]);
    let file = place.directory.path().join("status.json");
    wait_until("the status file is there", || file.exists());
    let found = fs::metadata(&file).unwrap();
    assert_eq!(
        found.mode() & 0o7777,
        0o644,
        "everybody may read it, and only the daemon write (L32)"
    );
    assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
    let (over, versions_seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (reads, versions, most) = thread::scope(|threads| {
        threads.spawn(|| {
            // Few, and many with long names: the file is short and long by turns.
            for round in 0.. {
                let mut client = place.client();
                for _ in 0..if round % 2 == 0 { 1 } else { 40 } {
                    client.register(&registration(&"long".repeat(16), 1)).unwrap();
                }
                // The second one from here on was begun when all of them were there.
                let until = versions_seen.load(Ordering::Relaxed) + 2;
                while versions_seen.load(Ordering::Relaxed) < until {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let (mut reads, mut versions, mut most) = (0, BTreeSet::new(), 0);
        let read_on = || {
            let text = fs::read(&file).expect("it is always there");
            let read: serde_json::Value = serde_json::from_slice(&text)
                .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&text)));
            reads += 1;
            versions.insert(read["written_at_ns"].as_u64().unwrap());
            versions_seen.store(versions.len(), Ordering::Relaxed);
            most = most.max(read["jobs"].as_array().unwrap().len());
            reads >= 1000 && versions.len() >= 10 && most >= 40
        };
        // Over, too, where this panics.
        let outcome = catch_unwind(AssertUnwindSafe(|| wait_busily_until("1,000 reads", read_on)));
        over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
        (reads, versions.len(), most)
    });
    assert!(reads >= 1000 && versions >= 10 && most >= 40, "{reads}, {versions}, {most}");
    // Somebody lays a trap where the file is made.
    let victim = place.directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let trap = file.with_extension("json.new");
    wait_until("the trap is laid", || symlink(&victim, &trap).is_ok());
    let mut client = place.client();
    client.register(&registration("after the trap", 1)).unwrap();
    wait_until("the file is written again", || {
        fs::read_to_string(&file).is_ok_and(|text| text.contains("after the trap"))
    });
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(!fs::symlink_metadata(&file).unwrap().is_symlink());
}

#[test]
fn socket_of_service_manager_outlives_the_daemon() {
    let Ok(activator) = which("systemd-socket-activate") else {
        skipped("systemd-socket-activate is not here");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("gangd.sock");
    let mut daemon = Command::new(activator)
        .arg("--listen")
        .arg(&socket)
        .arg(env!("CARGO_BIN_EXE_gangd"))
        .arg("--socket")
        .arg(&socket)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    // The first connection starts it.
    wait_until("the daemon answers", || {
        let client = Client::connect_within(&socket, TEST_TIMEOUT);
        client.is_ok_and(|mut client| client.status().is_ok())
    });
    patient_client(&socket).shutdown().unwrap();
    assert!(daemon.wait().unwrap().success());
    assert!(socket.exists());
}

fn which(program: &str) -> Result<std::path::PathBuf, std::env::VarError> {
    let path = std::env::var("PATH")?;
    let mut found = std::env::split_paths(&path).map(|directory| directory.join(program));
    found.find(|file| file.exists()).ok_or(std::env::VarError::NotPresent)
}
