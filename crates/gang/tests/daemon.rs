//! A daemon that is not there: starting one, and cleaning up after one that died.

mod fake;

use std::path::Path;

use fake::{Fake, Place, gang_beside, stderr, stdout};
use gang_harness::{wait_for, wait_until};

/// Listens as soon as the script that plays gangd asks for it, which proves that the script ran.
fn listen_when_started(fake: &Fake, place: &Place) {
    let (fake, socket, started) = (fake.clone(), place.socket(), place.path("bin/started"));
    std::thread::spawn(move || {
        wait_until("gangd is started", || started.exists());
        fake.listen(&socket);
    });
}

/// A gangd that waits until the fake listens, says so, and stays as long as its place.
const READY: &str = r#"
dir=$(dirname "$0")
echo "$args" > "$dir/args"
touch "$dir/started"
while ! [ -S "$socket" ]; do sleep 0.01; done
eval "echo ready >&$fd"
echo $$ > "$dir/pid"
ps -o sid= -p $$ > "$dir/session"
eval "exec $fd>&-"
while [ -e "$dir/args" ]; do sleep 0.1; done
"#;

fn read(path: &Path) -> String {
    let line = || std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'));
    wait_for(&format!("a line in {}", path.display()), line).trim().to_owned()
}

#[test]
fn run_starts_a_daemon_that_is_not_its_child() {
    let fake = Fake::new();
    let place = Place::new();
    listen_when_started(&fake, &place);
    let script = "read none < /proc/$$/task/$$/children; echo children:$none";
    let gang = ["run", "--backend", "rt", "--", "sh", "-c", script];
    let output = gang_beside(&place, READY, &gang).output().unwrap();
    assert_eq!(stdout(&output), "children:\n", "{}", stderr(&output));

    let bin = place.path("bin");
    let args = read(&bin.join("args"));
    let socket = place.socket();
    let expected =
        format!("--socket {} --exit-when-idle --backend rt --ready-fd ", socket.display());
    assert!(args.starts_with(&expected), "{args}");
    let ours = std::fs::read_to_string("/proc/self/stat").unwrap();
    let session = ours.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap();
    assert_ne!(read(&bin.join("session")), session, "it has a session of its own");
}

#[test]
fn gangd_keeps_only_needed_variables_of_caller() {
    let place = Place::new();
    std::fs::create_dir(place.jobs_dir()).unwrap();
    std::fs::write(place.jobs_dir().join("3"), "").unwrap();
    let gangd = "tr '\\0' '\\n' < /proc/$$/environ > \"$(dirname \"$0\")/environment$release\"; \
        if [ \"$release\" ]; then rm \"${socket%.*}\".jobs/*; exit 0; fi; exit 1";
    let mut run = gang_beside(&place, gangd, &["run", "--", "true"]);
    let path = std::env::var("PATH").unwrap();
    for (name, value) in [
        ("LD_BIND_NOW", "1"),
        ("TZ", "Asia/Tokyo"),
        ("SECRET", "x"),
        ("NOTIFY_SOCKET", "@x"),
        ("GANGD_LOG", "debug"),
        ("PATH", &path),
    ] {
        run.env(name, value);
    }
    run.output().unwrap();
    // Jobs that a dead daemon left are released first.
    for file in ["environment1", "environment"] {
        let found = std::fs::read_to_string(place.path("bin").join(file)).unwrap();
        let mut found: Vec<&str> = found.lines().collect();
        found.sort_unstable();
        assert_eq!(found, ["GANGD_LOG=debug".to_owned(), format!("PATH={path}")], "{file}");
    }
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let place = Place::new();
    let gangd = "eval \"echo 'the directory /run/x cannot be made: no space' >&$fd\"; exit 1";
    let output = gang_beside(&place, gangd, &["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        stderr(&output),
        format!(
            "gang: cannot start a daemon at {}: the directory /run/x cannot be made: no space\n",
            place.socket().display()
        )
    );
}

#[test]
fn a_daemon_that_dies_without_a_word_is_reported() {
    let place = Place::new();
    let output = gang_beside(&place, "exit 3", &["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("ended (exit status: 3) before it was ready"), "{output:?}");
}

#[test]
fn daemon_that_ends_at_once_is_retried_not_for_ever() {
    let place = Place::new();
    let gangd = "echo x >> $(dirname $0)/starts; eval \"echo ready >&$fd\"";
    let output = gang_beside(&place, gangd, &["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("no gangd listens at"), "{output:?}");
    let starts = std::fs::read_to_string(place.path("bin/starts")).unwrap();
    assert_eq!(starts.lines().count(), 3);
}

#[test]
fn other_commands_start_none() {
    let place = Place::new();
    for command in ["ls", "status", "check", "shutdown"] {
        let output =
            gang_beside(&place, "touch $(dirname $0)/started", &[command]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{command}");
        assert!(stderr(&output).starts_with("gang: no gangd listens at "), "{output:?}");
    }
    assert!(!place.path("bin/started").exists());
}

/// Plays `gangd --release`.
const RELEASES: &str = "if [ \"$release\" ]; then \
    echo \"released job 3 (lu), which a daemon that died had raised\"; \
    rm \"${socket%.*}\".jobs/*; fi";

#[test]
fn any_command_releases_what_a_dead_daemon_left() {
    let place = Place::new();
    let jobs = place.jobs_dir();
    std::fs::create_dir(&jobs).unwrap();
    std::fs::write(jobs.join("3"), "").unwrap();

    let first = gang_beside(&place, RELEASES, &["ls"]).output().unwrap();
    assert_eq!(first.status.code(), Some(3));
    assert_eq!(stdout(&first), "");
    assert!(
        stderr(&first).starts_with(
            "released job 3 (lu), which a daemon that died had raised\ngang: no gangd listens"
        ),
        "{first:?}"
    );
    let second = gang_beside(&place, RELEASES, &["ls"]).output().unwrap();
    assert!(stderr(&second).starts_with("gang: no gangd listens"), "{second:?}");
}

#[test]
fn recover_says_what_it_did() {
    let place = Place::new();
    std::fs::create_dir(place.jobs_dir()).unwrap();
    let quiet = gang_beside(&place, "exit 0", &["recover"]).output().unwrap();
    assert_eq!(quiet.status.code(), Some(0));
    assert!(stdout(&quiet).starts_with("nothing to recover at "), "{quiet:?}");
    let gangd = "echo 'the freezer is stuck' >&2; exit 1";
    let failed = gang_beside(&place, gangd, &["recover"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("the freezer is stuck"), "{failed:?}");

    let place = Fake::new().place();
    let alive = gang_beside(&place, "exit 9", &["recover"]).output().unwrap();
    assert_eq!(alive.status.code(), Some(0));
    assert!(stdout(&alive).contains("listens at"), "{alive:?}");
}
