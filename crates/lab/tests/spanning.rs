//! The experiments on hosts of a cluster, at their smallest: that they run to their end and report
//! what they promise to report. No figure is judged here, but the clocks that are made to differ.

mod lab;

use std::sync::{Mutex, PoisonError};

use gang_harness::skipped;
use lab::{conditions, figure, gangd_is_there, lab};
use serde_json::Value;

/// Each experiment has daemons and an etcd of its own on the same CPUs, where real-time gangs of
/// several would keep an etcd from ever running.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A slow machine gets nothing done in the least time: it has four times as much, and again.
const LONGEST_S: f64 = 8.0;

/// The report of an experiment that measures for so many seconds, or more where nothing was done in
/// some condition; none where this machine lacks what it needs, which is said.
fn of_hosts(line: &str, seconds: f64, done: &[&str]) -> Option<Value> {
    if !gangd_is_there() {
        return None;
    }
    let mut seconds = seconds;
    loop {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let output = lab(&format!("{line} --seconds {seconds} --noisy --runs 1 --json -"));
        drop(turn);
        let errors = String::from_utf8_lossy(&output.stderr);
        let lacks = ["install ", "needs a CPU", "no network could be made"];
        if lacks.iter().any(|it| errors.contains(it)) {
            skipped(errors);
            return None;
        }
        let is_last = seconds >= LONGEST_S;
        if is_last || !errors.contains("the hosts hardly began slices together") {
            assert!(output.status.success(), "{errors}");
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let is_done =
                |condition: &&str| done.iter().all(|it| figure(&report, condition, it) > 0.0);
            if conditions(&report).iter().all(is_done) {
                return Some(report);
            }
            assert!(!is_last, "nothing was done in {seconds} s: {report}");
        }
        seconds *= 4.0;
    }
}

#[test]
fn needs_root_hosts_of_a_cluster_are_measured() {
    let Some(report) = of_hosts("hosts --trials 1 --away 2", 1.0, &["samples"]) else { return };
    let expected = [
        "switches of two spanning jobs",
        "a spanning job beside local ones",
        "first slots",
        "etcd away",
        "messages between hosts",
    ];
    assert_eq!(conditions(&report), expected);
    let measures = report["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 9, "{report}");
    assert!(measures.iter().all(|it| it["measured"]["value"].is_f64()), "{report}");
}

#[test]
#[ignore = "nightly: takes a minute, and needs etcd and two daemons for itself"]
fn needs_root_hosts_whose_clocks_differ_switch_apart() {
    let Some(report) = of_hosts("skew --errors 0ms,20ms", 2.0, &[]) else { return };
    let apart = "two pairs, gangs, clocks 20ms apart";
    let gangs = ["two pairs, gangs, one clock", apart];
    assert_eq!(
        conditions(&report),
        [&["one pair alone", "two pairs, plain Linux"][..], &gangs].concat()
    );
    for condition in conditions(&report) {
        assert!(figure(&report, condition, "rounds_per_s") >= 0.0, "{report}");
    }
    for condition in gangs {
        assert!(figure(&report, condition, "samples") > 0.0, "{report}");
    }
    // The daemon is told nothing but the option: so it took it.
    let [near, far] = gangs.map(|condition| figure(&report, condition, "began_apart_us_p50"));
    assert!(far > near, "{report}");
}

#[test]
#[ignore = "nightly: takes a minute, and needs etcd and two daemons for itself"]
fn needs_root_a_code_of_hydrodynamics_runs_on_hosts() {
    let line = "hydro --side 64 --hosts 1,2,1024";
    let Some(report) = of_hosts(line, 0.5, &["steps_per_s"]) else { return };
    let expected = ["1 host", "2 hosts"].map(|hosts| {
        ["alone", "two, plain Linux", "two, gangs"].map(|programs| format!("{hosts}, {programs}"))
    });
    assert_eq!(conditions(&report), expected.as_flattened());
    let notes = report["notes"].to_string();
    assert!(notes.contains("1024 hosts: each needs a CPU"), "{report}");
}

#[test]
#[ignore = "nightly: takes a minute, and needs etcd and two daemons for itself"]
fn needs_root_jobs_wait_for_a_slow_network() {
    let line = "slow-network --jobs 2 --mbit 50 --compute 1ms --bytes 20000";
    let Some(report) = of_hosts(line, 0.5, &["rounds_per_s", "cpus_used"]) else { return };
    let expected = ["one job alone", "plain Linux", "gangs without filling", "gangs"];
    assert_eq!(conditions(&report), expected);
    // 50 Mbit/s carry both messages of a round in 6.4 ms, on any machine.
    assert!(figure(&report, "plain Linux", "rounds_per_s") < 200.0, "{report}");
}
