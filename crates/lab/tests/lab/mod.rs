//! The program gang-lab, for tests that run it.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::process::{Command, Output};

use gang_daemon::{are_built, is_root};
use gang_harness::skipped;
use serde_json::Value;

pub fn lab(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gang-lab")).args(arguments.split(' ')).output().unwrap()
}

pub fn report(arguments: &str) -> Value {
    let output = lab(&format!("{arguments} --noisy --json -"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn conditions(report: &Value) -> Vec<&str> {
    let series = report["series"].as_array().unwrap();
    series.iter().map(|series| series["condition"].as_str().unwrap()).collect()
}

/// Whether the lab finds gang and gangd and may raise threads; says so where not.
pub fn gangd_is_there() -> bool {
    are_built(&["gang", "gangd"]) && is_root()
}

/// Whether a workload may run above the gangs; says so where it may not. Kernels that group
/// real-time threads refuse that in a group without real-time budget, to root as well.
pub fn fifo_is_permitted() -> bool {
    let tried = Command::new("chrt").args(["-f", "1", "true"]).output();
    let is_permitted = tried.is_ok_and(|tried| tried.status.success());
    if !is_permitted {
        skipped("SCHED_FIFO is refused");
    }
    is_permitted
}

/// Each condition with gangs reports how much these were coscheduled, or why that is not known;
/// under plain Linux, too.
pub fn gangs_are_reported(report: &Value, with_gangs: impl Fn(&str) -> bool) {
    let mut reported = 0;
    for series in report["series"].as_array().unwrap() {
        if with_gangs(series["condition"].as_str().unwrap()) {
            let percent = series["samples"]["coscheduled_percent"][0].as_f64();
            let why_not = series["not_measured"].as_str();
            assert!(percent.is_some() || why_not.is_some_and(|why| !why.is_empty()), "{series}");
            assert!(why_not.is_none_or(|why| !why.contains("a round of its own")), "{series}");
            assert!(percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)), "{series}");
            reported += 1;
        }
    }
    assert!(reported > 0, "{report}");
}

/// In each of so many rounds it was measured of a condition how much its programs were coscheduled;
/// false where nothing can be measured here, which is said.
pub fn is_measured_where_it_can_be(series: &Value, rounds: usize) -> bool {
    let samples = series["samples"]["coscheduled_percent"].as_array();
    if samples.is_some_and(|samples| samples.len() == rounds) {
        return true;
    }
    let reason = series["not_measured"].as_str().unwrap_or_else(|| panic!("{series}"));
    assert!(is_reason_not_to_measure(reason), "{series}");
    skipped(format!("gangs are not measured: {reason}"));
    false
}

/// Whether it is a reason that holds for everything on this machine.
pub fn is_reason_not_to_measure(text: &str) -> bool {
    ["built without clang", "CAP_BPF", "the kernel refuses"].iter().any(|it| text.contains(it))
}

/// Programs that run one after the other share the machine with nobody.
pub fn is_shared(condition: &str) -> bool {
    !condition.ends_with("batch")
}

/// Whether the lab finds libgang and a compiler for programs with it; says so where not.
pub fn libgang_is_there() -> bool {
    let gcc = Command::new("gcc").arg("--version").output().is_ok();
    if !gcc {
        skipped("there is no gcc");
    }
    gcc && are_built(&["libgang.a"])
}

/// A figure of the only round of a condition.
pub fn figure(report: &Value, condition: &str, figure: &str) -> f64 {
    let series = report["series"].as_array().unwrap();
    let of = series.iter().find(|series| series["condition"] == condition);
    let sample = of.and_then(|series| series["samples"][figure][0].as_f64());
    sample.unwrap_or_else(|| panic!("no {figure} of {condition}: {report}"))
}

/// The table of a report, for people, beside its JSON.
pub fn table_and_report(arguments: &str) -> (String, Value) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("figures.json");
    let output = lab(&format!("{arguments} --noisy --json {}", path.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    let report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), report)
}
