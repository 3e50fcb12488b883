//! Somebody else is in the way of a daemon's files: the directory is his, or others may write to
//! it, or there are links to files that are dear to somebody. None of these is written.

mod place;

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::PathBuf,
    process::Stdio,
};

use gang_daemon::{Options, are_built, is_root, stderr, stdout};
use place::{Place, Program, has_backend, job_with, wait_until};

/// Known to every machine, as daemon.
const OTHER: u32 = 1;

/// All that a daemon or `gangd --release` writes beside the socket, for the first job.
const WRITTEN: [&str; 9] = [
    "gangd.next",
    "gangd.next.new",
    "status.json",
    "status.json.new",
    "gangd.jobs/1.json",
    "gangd.jobs/1.new",
    "gangd.jobs/1.pins",
    "gangd.jobs/1.page",
    "history.db-journal",
];

/// A file of somebody, and links to it wherever something is written.
fn plant(place: &gang_daemon::Place) -> PathBuf {
    let dear = place.path("dear");
    fs::write(&dear, "dear").unwrap();
    fs::set_permissions(&dear, Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(place.jobs_dir()).unwrap();
    WRITTEN.iter().for_each(|name| symlink(&dear, place.path(name)).unwrap());
    dear
}

fn is_dear(dear: &PathBuf) -> bool {
    let mode = fs::metadata(dear).unwrap().permissions().mode();
    fs::read_to_string(dear).unwrap() == "dear" && mode & 0o777 == 0o600
}

#[test]
fn needs_root_place_of_another_user_is_not_taken() {
    if !is_root() || !are_built(&["gang", "gangd"]) {
        return;
    }
    for (uid, mode, why) in [
        (OTHER, 0o700, "it belongs to user 1,"),
        (OTHER, 0o1777, "it belongs to user 1,"),
        (0, 0o1777, "others may write to it (mode 1777),"),
        (0, 0o775, "others may write to it (mode 0775),"),
    ] {
        let place = gang_daemon::Place::new();
        let dear = plant(&place);
        chown(place.directory.path(), Some(uid), None).unwrap();
        place.open_to_everybody(mode);
        let mut gangd = place.command(place.programs.join("gangd"));
        let mut release = place.command(place.programs.join("gangd"));
        let commands = [
            gangd.args(["--backend", "signal"]),
            release.arg("--release"),
            &mut place.gang(&["recover"]),
            &mut place.gang(&["run", "-q", "--", "true"]),
        ];
        for command in commands {
            let output = command.stdin(Stdio::null()).output().unwrap();
            let reason = stderr(&output);
            assert!(!output.status.success(), "{command:?}: {}", stdout(&output));
            for words in
                [why, "gangd keeps files only in a directory of its own user (0)", "name another"]
            {
                assert!(reason.contains(words), "{command:?}: {reason}");
            }
        }
        assert!(is_dear(&dear));
        assert!(!place.socket().exists() && !place.path("gangd.lock").exists());
        chown(place.directory.path(), Some(0), None).unwrap();
    }
}

#[test]
fn needs_root_daemon_writes_through_no_link() {
    if !has_backend("rt") {
        return;
    }
    let place = gang_daemon::Place::new();
    let dear = plant(&place);
    let configuration =
        format!("status_file = true\n[history]\npath = {:?}\n", place.path("history.db"));
    let options = Options {
        configuration: &configuration,
        flags: &["--backend", "rt", "--no-uncontended-passthrough"],
        ..Options::default()
    };
    let place = gang_daemon::Daemon::start_in(place, &options);
    let program = Program::spinner();
    let mut client = place.client();
    let job = client.register(&place::registration("job", 1)).unwrap();
    client.add_process(job, program.pid_i64()).unwrap();
    client.slot_page(job).unwrap();
    client.suspend(job).unwrap();
    client.resume(job).unwrap();
    let status = place.path("status.json");
    wait_until("the status file is written", || fs::symlink_metadata(&status).unwrap().is_file());
    for name in ["gangd.next", "gangd.jobs/1.json", "gangd.jobs/1.pins", "gangd.jobs/1.page"] {
        assert!(fs::symlink_metadata(place.path(name)).unwrap().is_file(), "{name}");
    }
    drop(program);
    wait_until("the job has ended", || place.jobs().is_empty());
    drop(client);
    assert!(is_dear(&dear));
}

#[test]
fn needs_root_daemon_runs_no_program_of_the_path() {
    if !is_root() {
        return;
    }
    let usual = Place::new(&[]).status().backends;
    let place = Place::launched(&["env", "PATH=/nowhere"], "", &[]);
    assert_eq!(place.status().backends, usual, "each is tried, on a process");
}

/// A user hears of the jobs of a dead daemon, though he cannot list them.
#[test]
fn needs_root_users_hear_of_jobs_left_to_root() {
    if !is_root() || !are_built(&["gang"]) {
        return;
    }
    let place = gang_daemon::Place::with_copies(&["gang"]);
    place.open_to_everybody(0o755);
    let hears = || {
        let mut gang = place.command(place.path("gang"));
        let output = gang.arg("ls").uid(OTHER).current_dir("/").output().unwrap();
        stderr(&output).contains("died and may have left jobs")
    };
    assert!(!hears());
    fs::create_dir(place.jobs_dir()).unwrap();
    fs::write(place.jobs_dir().join("1.json"), "").unwrap();
    for mode in [0o755, 0o711] {
        fs::set_permissions(place.jobs_dir(), Permissions::from_mode(mode)).unwrap();
        assert!(hears(), "{mode:o}");
    }
}

#[test]
fn needs_root_directories_are_closed_to_others() {
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let program = Program::sleeper();
    let job = job_with(&place, &program, 1);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.jobs_dir()), 0o711);
    assert_eq!(mode(place.jobs_dir().join(format!("{job}.json"))), 0o600);
    assert_eq!(mode(place.path("gangd.next")), 0o600);
    assert_eq!(mode(place.path("gangd.lock")), 0o600);
}
