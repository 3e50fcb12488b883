//! The experiments about messages, at their smallest: that they run to their end, lose nothing, and
//! name what cannot be had. No time is judged here.

mod lab;

use std::path::Path;
use std::process::{Command, Output};

use gang_daemon::{Place, are_built, built};
use gang_harness::skipped;
use lab::{conditions, figure, gangd_is_there};
use serde_json::Value;

/// The lab with gangd's provider beside it, where that can be made. The place has to stay.
fn place(names: &[&str]) -> Option<Place> {
    if !are_built(&[names, &["libgang_fabric.a"]].concat()) {
        return None;
    }
    let place = Place::with_copies(names);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/link-fabric");
    let library = built().join("libgang_fabric.a");
    let output = Command::new(script).arg(library).arg(place.directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(place)
}

fn lab(place: &Place, arguments: &str) -> Output {
    let mut command = Command::new(place.path("gang-lab"));
    command.args(arguments.split(' ')).args(["--noisy", "--json", "-"]).output().unwrap()
}

#[test]
fn each_medium_is_measured_or_named() {
    let Some(place) = place(&["gang-lab"]) else { return };
    let output = lab(&place, "net --quick --runs 1 --seconds 0.2");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("no medium can be had") {
        skipped(errors);
        return;
    }
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left_out: Vec<&str> =
        report["notes"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    for medium in [
        "gangd, shared memory",
        "gangd, segments",
        "gangd, UDP",
        "libfabric, shm",
        "libfabric, tcp;ofi_rxm",
        "UCX, shared memory",
        "UCX, TCP",
    ] {
        if let Some(why) = left_out.iter().find(|it| it.starts_with(&format!("{medium}: "))) {
            skipped(why);
            continue;
        }
        assert!(figure(&report, medium, "latency_us") > 0.0, "{report}");
        assert!(figure(&report, medium, "mb_per_s") > 0.0, "{report}");
        assert!(figure(&report, medium, "messages") > 400.0, "{report}");
        assert_eq!(figure(&report, medium, "wrong_words"), 0.0, "{report}");
    }
    assert_eq!(report["measures"].as_array().unwrap().len(), 3, "{report}");
}

#[test]
fn gangs_lose_no_message_needs_open_mpi() {
    if !gangd_is_there() {
        return;
    }
    let Some(place) = place(&["gang", "gangd", "gang-lab"]) else { return };
    let output = lab(&place, "netpreempt --quick --runs 1 --seconds 0.4 --slices 20ms");
    let errors = String::from_utf8_lossy(&output.stderr);
    if ["install ", "libgang-fi.so was not found"].iter().any(|it| errors.contains(it)) {
        skipped(errors);
        return;
    }
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let ways = ["alone", "net, 20ms", "shared memory, 20ms", "TCP, plain Linux"];
    let expected = ["lu", "ft"].map(|name| ways.map(|way| format!("{name}, {way}")));
    assert_eq!(conditions(&report), expected.as_flattened());
    for condition in expected.as_flattened() {
        assert!(figure(&report, condition, "messages") > 0.0, "{report}");
        for count in ["lost", "doubled", "wrong_words"] {
            assert_eq!(figure(&report, condition, count), 0.0, "{report}");
        }
        if condition.contains("net, ") {
            assert!(figure(&report, condition, "slots") > 0.0, "{report}");
            assert!(figure(&report, condition, "flushes") > 0.0, "{report}");
        }
    }
    let measures = report["measures"].as_array().unwrap();
    let ids: Vec<&str> = measures.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["netpreempt-lost", "netpreempt-phases-20ms"]);
}
