//! Where a doctor is called, with a daemon of its own.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use gang_harness::{skipped, wait_for};
use serde_json::Value;

/// A directory, with the socket of a daemon that doctors start, and which ends by itself.
pub struct Place(pub tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    /// `gang doctor` with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_gang-doctor"));
        doctor
            .args(arguments)
            .env("GANG_SOCKET", self.socket())
            .env("XDG_RUNTIME_DIR", self.0.path());
        doctor
    }

    pub fn socket(&self) -> PathBuf {
        self.0.path().join("gangd.sock")
    }

    pub fn doctor(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

/// The diagnosis of a program that is watched for long enough. A slow machine sees less in a
/// second: where not enough is seen, it is watched for four times as long. `command` follows after
/// `--`.
pub fn seen_enough(
    place: &Place,
    command: &[&str],
    is_enough: impl Fn(&Value) -> bool,
) -> Option<Value> {
    let mut seconds = 1;
    let what = format!("the doctor sees enough of {command:?}");
    wait_for(&what, || {
        let length = seconds.to_string();
        let options = ["--json", "--seconds", &length, "--after", "0.5", "--"];
        seconds *= 4;
        let Some(diagnosis) = diagnosis(&place.doctor(&[&options[..], command].concat())) else {
            return Some(None);
        };
        eprintln!("in {length} s: {diagnosis:#}");
        is_enough(&diagnosis).then_some(Some(diagnosis))
    })
}

/// A program that `make test` has built beside this one.
pub fn beside(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_gang-doctor")).with_file_name(name);
    path.is_file().then_some(path)
}

/// One test of a program at a time: whoever else works changes what the doctor sees.
pub fn sole_watcher() -> Option<MutexGuard<'static, ()>> {
    static SOLE: Mutex<()> = Mutex::new(());
    can_watch().then(|| SOLE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// False where this cannot be tried; says why.
fn can_watch() -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root"
    } else if ["gang", "gangd"].iter().any(|name| beside(name).is_none()) {
        "gang and gangd are not built (make test builds them)"
    } else {
        return true;
    };
    skipped(reason);
    false
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// It says that nothing can be watched here.
pub fn cannot_watch(said: &str) -> bool {
    said.contains("built without") || said.contains("the kernel refuses")
}

/// The diagnosis, unless this machine cannot watch; then says so.
pub fn diagnosis(output: &Output) -> Option<Value> {
    let said = stderr(output);
    if cannot_watch(&said) {
        skipped(said);
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}
