//! How tests call the doctor, and whether it can watch anything here.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::{
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use gang_daemon::{Place, are_built, is_root, stderr};
use gang_harness::{skipped, wait_for};
use serde_json::Value;

/// `gang doctor` with these arguments. It starts a daemon in this place, which ends by itself.
pub fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut doctor = place.command(env!("CARGO_BIN_EXE_gang-doctor"));
    doctor.args(arguments).env("XDG_RUNTIME_DIR", place.directory.path());
    doctor
}

pub fn doctor(place: &Place, arguments: &[&str]) -> Output {
    command(place, arguments).output().unwrap()
}

/// Where that does not do, nothing else would.
const LONGEST_S: u64 = 64;

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
        // No longer, so that a test ends that never sees enough.
        seconds = (seconds * 4).min(LONGEST_S);
        let Some(diagnosis) = diagnosis(&doctor(place, &[&options[..], command].concat())) else {
            return Some(None);
        };
        eprintln!("in {length} s: {diagnosis:#}");
        is_enough(&diagnosis).then_some(Some(diagnosis))
    })
}

/// One test of a program at a time: another program changes what the doctor sees.
pub fn sole_watcher() -> Option<MutexGuard<'static, ()>> {
    static SOLE: Mutex<()> = Mutex::new(());
    let can_watch = is_root() && are_built(&["gang", "gangd"]);
    can_watch.then(|| SOLE.lock().unwrap_or_else(PoisonError::into_inner))
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
