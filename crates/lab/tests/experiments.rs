//! Measurements of gangd itself with tiny durations: that they run to their end and report what
//! they promise to report. No figure is judged here.

mod lab;

use std::path::Path;
use std::process::Command;

use gang_harness::skipped;
use lab::{
    conditions, fifo_is_permitted, figure, gangd_is_there, gangs_are_reported,
    is_reason_not_to_measure, is_shared, lab, libgang_is_there, report, table_and_report,
};
use serde_json::Value;

#[test]
fn barrier_under_plain_linux() {
    let report = report("barrier --plain --runs 2 --seconds 0.3 --hogs 1 --interval 1us");
    assert_eq!(report["rounds"], 2);
    let expected = [
        "alone, plain Linux",
        "2 copies, plain Linux",
        "alone, plain Linux, 1 hogs",
        "2 copies, plain Linux, 1 hogs",
    ];
    assert_eq!(conditions(&report), expected);
    for series in report["series"].as_array().unwrap() {
        assert_eq!(series["samples"]["iterations_per_s"].as_array().unwrap().len(), 2);
    }
    assert!(report["machine"]["cpus"].as_u64().unwrap() > 0);
}

#[test]
fn fill_under_plain_linux() {
    let report = report("fill --plain --runs 1 --rounds 3 --copies 2");
    assert_eq!(conditions(&report), ["batch", "plain Linux"]);
    assert!(report["ratios"][0]["value"].as_f64().unwrap() > 0.0);
    assert!(report["ratios"][0].get("interval").is_none(), "one round has no interval");
}

#[test]
fn overhead_share_and_lateness_under_plain_linux() {
    let overhead = report("overhead --plain --runs 1 --seconds 0.4");
    assert_eq!(conditions(&overhead), ["batch", "plain Linux"]);
    let share = report("share --plain --runs 1 --seconds 0.4");
    let percent = share["series"][0]["samples"]["share_percent"][0].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&percent));
    let lateness = report("lateness --plain --runs 1 --seconds 0.4");
    let samples = &lateness["series"][1]["samples"];
    assert!(samples["completion_ms_p99"][0].as_f64().is_some(), "{lateness}");
}

#[test]
fn barriers_under_plain_linux_need_libgang() {
    if !libgang_is_there() {
        return;
    }
    let report = report("barriers --plain --runs 1 --seconds 0.2");
    assert_eq!(conditions(&report).len(), 10);
    assert_eq!(conditions(&report)[0], "alone, plain Linux, libgang, slot page");
    assert_eq!(report["measures"].as_array().unwrap().len(), 3);
    for series in report["series"].as_array().unwrap() {
        assert!(series["samples"]["barriers_per_s"][0].as_f64().is_some(), "{series}");
    }
}

#[test]
#[ignore = "nightly: takes half a minute of all CPUs"]
fn barriers_under_gangd_need_libgang() {
    if !gangd_is_there() || !libgang_is_there() {
        return;
    }
    let report = report("barriers --runs 1 --seconds 0.1");
    assert_eq!(conditions(&report).len(), 20);
    gangs_are_reported(&report, |_| true);
}

#[test]
fn views_are_measured_with_contents_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let report = report("views --runs 1 --seconds 1");
    assert_eq!(conditions(&report), ["nobody looks on", "gang top and gang web"]);
    assert_eq!(report["measures"].as_array().unwrap().len(), 2);
    let looked_at = &report["series"][1]["samples"];
    gangs_are_reported(&report, |_| true);
    for figure in ["cpu_percent", "pictures_per_s", "frames_per_s", "late_us_p99"] {
        assert!(looked_at[figure][0].as_f64().unwrap() > 0.0, "{figure}: {report}");
    }
    assert!(report["series"][0]["samples"].get("cpu_percent").is_none());
}

#[test]
fn calls_of_libgang_need_gangd() {
    if !libgang_is_there() || !gangd_is_there() {
        return;
    }
    let report = report("calls --runs 1 --quick");
    let measures = report["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 5);
    assert!(measures.iter().all(|measure| measure["measured"]["value"].as_f64().is_some()));
}

#[test]
fn coscheduled_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let output = lab("coscheduled --noisy --runs 1 --seconds 0.3 --json -");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("gangd did not measure") && is_reason_not_to_measure(&errors) {
        skipped(errors);
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    assert_eq!(report["measures"].as_array().unwrap().len(), 4, "{errors}");
    let samples = |index: usize| &report["series"][index]["samples"];
    if samples(0)["programs_percent"].is_null() {
        let notes = report["notes"].to_string();
        assert!(notes.contains("is not measured: cannot have the kernel count"), "{report}");
        skipped(notes);
    } else {
        let programs = |index| samples(index)["programs_percent"][0].as_f64().unwrap();
        assert!(programs(0) > 0.0, "the kernel counts while it is measured: {report}");
        assert_eq!(programs(1), 0.0, "there are no programs while it is not: {report}");
    }
    let least = &report["series"][2]["samples"]["least_coscheduled_percent"][0];
    assert!((0.0..=100.0).contains(&least.as_f64().unwrap()), "{report}");
}

#[test]
fn barrier_under_gangd_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let report = report("barrier --runs 1 --seconds 0.5 --slices 20ms --hogs 0");
    assert!(conditions(&report).contains(&"2 copies, gangd 20ms"));
    gangs_are_reported(&report, |_| true);
    let measures = report["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 1, "{measures:?}");
}

#[test]
fn a_switch_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let (table, report) = table_and_report("switch --runs 1 --seconds 0.2 --sizes 3");
    assert_eq!(conditions(&report), ["3 asleep", "3 computing"]);
    gangs_are_reported(&report, |_| true);
    for condition in conditions(&report) {
        let of = |name: &str| figure(&report, condition, name);
        for (median, most) in [
            ("us_per_thread_p50", "us_per_thread_p99"),
            ("skew_us_p50", "skew_us_p99"),
            ("late_us_p50", "late_us_p99"),
        ] {
            assert!(0.0 <= of(median) && of(median) <= of(most), "{condition}: {report}");
            assert!(table.contains(median), "{table}");
        }
        assert!(of("us_per_thread_p50") > 0.0, "nothing costs nothing: {report}");
        assert!(table.contains(condition), "{table}");
    }
    // The promise is about 64 threads.
    assert_eq!(report["measures"].as_array().unwrap().len(), 0);
}

#[test]
fn idle_jobs_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let (table, report) = table_and_report("idle --runs 1 --seconds 0.5 --jobs 3");
    let condition = "3 idle jobs, 2 gangs";
    assert_eq!(conditions(&report), [condition]);
    gangs_are_reported(&report, |_| true);
    let of = |name: &str| figure(&report, condition, name);
    // Its CPU time is counted in ticks or finer; of two gangs it has some in any case.
    let (sum, daemon, guardian) = (of("cpu_percent"), of("daemon_percent"), of("guardian_percent"));
    assert!(daemon > 0.0 && guardian >= 0.0, "{report}");
    assert!((sum - daemon - guardian).abs() < 1e-6, "{report}");
    assert!(sum <= 100.0 * report["machine"]["cpus"].as_f64().unwrap(), "{report}");
    assert!(table.contains(condition) && table.contains("guardian_percent"), "{table}");
    // The promise is about 100 jobs.
    assert_eq!(report["measures"].as_array().unwrap().len(), 0);
}

#[test]
fn openmp_programs_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    if Command::new("gcc").arg("--version").output().is_err() {
        skipped("there is no gcc");
        return;
    }
    let arguments =
        "openmp --runs 1 --programs gauss --times 1 --time-limit 2 --wait default,passive";
    let (table, report) = table_and_report(arguments);
    let expected = ["plain Linux", "gangd", "plain Linux, passive", "gangd, passive"]
        .map(|way| ["alone", "2 copies"].map(|copies| format!("gauss (libgomp), {copies}, {way}")));
    assert_eq!(conditions(&report), expected.concat());
    for condition in conditions(&report) {
        assert!(figure(&report, condition, "s_for_each_copy") > 0.0, "{report}");
        let ended = figure(&report, condition, "ended");
        // Plain Linux may keep copies from each other for longer than they are waited for.
        assert!(ended == 1.0 || (ended == 0.0 && condition.contains("plain")), "{report}");
        assert!(table.contains(condition), "{table}");
    }
    let measures = report["measures"].as_array().unwrap();
    assert_eq!(measures.len(), 1, "{report}");
    assert_eq!(measures[0]["id"], "openmp-gauss");
    let of_waits = report["ratios"].as_array().unwrap().iter().filter(|ratio| {
        ratio["of"] == "gauss (libgomp), 2 copies, gangd, passive"
            && ratio["over"] == "gauss (libgomp), 2 copies, gangd"
    });
    assert_eq!(of_waits.count(), 1, "how to wait is compared: {report}");
}

#[test]
#[ignore = "nightly: takes half a minute of all CPUs"]
fn real_programs_need_gangd_and_one_of_them() {
    if !gangd_is_there() {
        return;
    }
    let programs = lab("programs --kinds mpich,qemu --noisy --runs 1 --times 2 --json -");
    let errors = String::from_utf8_lossy(&programs.stderr);
    if !programs.status.success() {
        assert!(errors.contains("nothing to run"), "{errors}");
        return skipped(errors);
    }
    let report: Value = serde_json::from_slice(&programs.stdout).unwrap();
    let (mut kinds, missing) = (0, report["notes"].as_array().unwrap());
    for (name, word) in [("MPICH", "mpich: "), ("QEMU", "qemu: ")] {
        if missing.iter().any(|note| note.as_str().unwrap().starts_with(word)) {
            continue;
        }
        kinds += 1;
        for way in ["alone", "2 at once, plain Linux", "2 at once, gangd"] {
            let condition = format!("{name}, {way}");
            assert!(figure(&report, &condition, "s_for_each_copy") > 0.0, "{report}");
            let ended = figure(&report, &condition, "ended");
            // Plain Linux may keep copies from each other for longer than they are waited for.
            assert!(ended == 1.0 || (ended == 0.0 && way.contains("plain")), "{report}");
        }
    }
    assert_eq!(conditions(&report).len(), 3 * kinds, "{report}");
    assert_eq!(report["ratios"].as_array().unwrap().len(), 2 * kinds, "{report}");
    let measures = report["measures"].as_array().unwrap();
    let ids: Vec<&str> = measures.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["programs-over-linux", "programs-over-alone"]);
    let worst = format!(", of {kinds} measured)");
    assert!(measures.iter().all(|it| it["measure"].as_str().unwrap().contains(&worst)), "{report}");
    gangs_are_reported(&report, |condition| condition.ends_with("gangd"));
}

#[test]
fn fill_under_gangd_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let fill = report("fill --runs 1 --rounds 3 --copies 2");
    assert_eq!(conditions(&fill), ["batch", "plain Linux", "gang without filling", "gang"]);
    gangs_are_reported(&fill, is_shared);
    assert_eq!(fill["measures"].as_array().unwrap().len(), 2, "{fill}");
}

#[test]
fn overhead_and_lateness_under_gangd_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let overhead = report("overhead --runs 1 --seconds 0.4");
    assert_eq!(conditions(&overhead), ["batch", "plain Linux", "gangd"]);
    gangs_are_reported(&overhead, is_shared);
    assert_eq!(overhead["measures"].as_array().unwrap().len(), 1, "{overhead}");
    let lateness = report("lateness --runs 1 --seconds 0.4");
    let expected = [
        "plain Linux, gangs only",
        "plain Linux, short task",
        "gangd, gangs only",
        "gangd, short task",
    ];
    assert_eq!(conditions(&lateness), expected);
    gangs_are_reported(&lateness, |_| true);
    assert_eq!(lateness["measures"].as_array().unwrap().len(), 2, "{lateness}");
    if !fifo_is_permitted() {
        return;
    }
    let frames = report("frames --runs 1 --seconds 0.4");
    assert_eq!(conditions(&frames), ["gangs only", "frames", "frames, nobody gives way"]);
    gangs_are_reported(&frames, |_| true);
    assert_eq!(frames["measures"].as_array().unwrap().len(), 2, "{frames}");
}

#[test]
fn kernels_refusal_to_measure_is_named_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let gangd = Path::new(env!("CARGO_BIN_EXE_gang-lab")).with_file_name("gangd");
    let without = dir.path().join("gangd");
    // Written by another process: one that this one had open for writing could still be open in a
    // child.
    let script = format!(
        "printf '#!/bin/sh\\nexec setpriv --bounding-set=-bpf,-perfmon,-sys_admin {} \"$@\"\\n' >{1} && \
         chmod +x {1}",
        gangd.display(),
        without.display()
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let dropped = ["--bounding-set=-bpf,-perfmon,-sys_admin", "true"];
    if !Command::new("setpriv").args(dropped).status().is_ok_and(|status| status.success()) {
        skipped("setpriv cannot drop rights");
        return;
    }
    let (gangd, json) = (without.display(), dir.path().join("figures.json"));
    let run = "fill --noisy --runs 1 --rounds 3 --copies 2";
    let output = lab(&format!("{run} --gangd {gangd} --json {}", json.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for series in &report["series"].as_array().unwrap()[1..] {
        assert!(series["not_measured"].is_string(), "{series}");
        assert!(series["samples"].get("coscheduled_percent").is_none(), "{series}");
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("coscheduled_percent") && text.contains("not measured"), "{text}");
}

#[test]
fn arrival_needs_gangd() {
    if !gangd_is_there() || !fifo_is_permitted() {
        return;
    }
    let arrival = report("arrival --runs 1 --arrivals 3");
    gangs_are_reported(&arrival, |_| true);
    let worst = &arrival["series"][0]["samples"]["waited_slices_max"][0];
    assert!(worst.as_f64().unwrap() > 0.0, "{arrival}");
}

#[test]
fn clients_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let clients = report("clients --quick --runs 1 --seconds 0.3 --ended 20");
    assert_eq!(conditions(&clients).len(), 3);
    assert_eq!(clients["measures"].as_array().unwrap().len(), 8, "{clients}");
    assert_eq!(clients["series"][0]["samples"]["lost"][0], 0.0, "{clients}");
    assert!(figure(&clients, "1,000 jobs at rest, 20 ended", "jobs_ended") >= 20.0, "{clients}");
}

#[test]
fn auto_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let output = lab("auto --noisy --runs 1 --seconds 1.5 --json -");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("cannot be measured here") {
        skipped(errors);
        return;
    }
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(conditions(&report), ["a gang", "auto"]);
    assert_eq!(report["measures"][0]["id"], "auto", "{report}");
    let is_decided = figure(&report, "auto", "was_decided") == 1.0;
    // A hundredth of so little time pays for no comparison.
    let is_longer = report["series"][1].get("longer_windows_s").is_some();
    assert!(is_longer || !is_decided, "{report}");
    let is_told = report["notes"].to_string().contains("In 1 of 1 rounds");
    assert_eq!(is_told, !is_decided, "{report}");
    gangs_are_reported(&report, |_| true);
}

/// The output of an experiment with the doctor; nothing where it cannot watch, with the
/// reason.
fn with_the_doctor(line: &str) -> Option<Value> {
    let doctor = Path::new(env!("CARGO_BIN_EXE_gang-lab")).with_file_name("gang-doctor");
    if !gangd_is_there() {
        return None;
    }
    if !doctor.is_file() {
        skipped("gang-doctor is not beside gang-lab");
        return None;
    }
    let output = lab(line);
    let errors = String::from_utf8_lossy(&output.stderr);
    let reasons = ["built without", "the kernel refuses"];
    if reasons.iter().any(|reason| errors.contains(reason)) {
        skipped(errors);
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
#[ignore = "nightly: takes half a minute of all CPUs"]
fn the_doctor_is_scored() {
    // One round tells nothing apart.
    let line = "doctor --only phases,small --runs 1 --at-most 2 --seconds 1 --noisy --json -";
    let Some(report) = with_the_doctor(line) else { return };
    assert_eq!(report["measures"][0]["id"], "doctor");
    assert!(report["verdict"].as_array().unwrap().len() > 3);
    assert_eq!((&report["rounds"], &report["more_rounds"]), (&Value::from(1), &Value::from(1)));
    for series in report["series"].as_array().unwrap() {
        assert_eq!(series["samples"]["iterations_per_s"].as_array().unwrap().len(), 2, "{series}");
    }
    let conditions = conditions(&report);
    assert!(conditions.contains(&"phases, spins: watched"), "not only barriers: {conditions:?}");
}

#[test]
fn watching_has_a_cost() {
    let Some(report) = with_the_doctor("watching --runs 1 --seconds 1 --noisy --json -") else {
        return;
    };
    assert_eq!(report["measures"].as_array().unwrap().len(), 4);
    for series in report["series"].as_array().unwrap() {
        for figure in ["cost_percent", "cost_of_both_percent"] {
            assert!(series["samples"][figure][0].is_f64(), "{series}");
        }
    }
    gangs_are_reported(&report, |_| true);
}

#[test]
#[ignore = "nightly: takes half a minute of all CPUs"]
fn needs_root_hostile_user_is_reported_by_attacks() {
    if !gangd_is_there() {
        return;
    }
    let (table, report) =
        table_and_report("hostile --runs 1 --seconds 0.5 --attack connections,forks,cpus");
    let expected = ["connections", "forks", "cpus"];
    let expected = expected.map(|name| ["without", "with"].map(|way| format!("{name}, {way}")));
    let expected = expected.as_flattened();
    assert_eq!(conditions(&report), expected);
    gangs_are_reported(&report, |_| true);
    for condition in expected {
        for name in [
            "share_percent",
            "steps_per_s",
            "late_plans_per_min",
            "ran_out_per_min",
            "memory_mib",
            "daemon_percent",
            "answer_ms",
        ] {
            assert!(figure(&report, condition, name) >= 0.0, "{report}");
        }
    }
    assert!(figure(&report, "connections, with", "acts_per_s") >= 0.0, "{report}");
    let ids: Vec<&str> = report["measures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    let promised = ["hostile-late", "hostile-ran-out", "hostile-share", "hostile-coscheduled"];
    assert_eq!(ids, promised);
    assert!(table.contains("forks (It has jobs that fork all the time.) The victims"), "{table}");
    assert!(table.contains("13 of 16 attacks."), "{table}");
}

#[test]
fn a_build_as_a_gang_and_an_ordinary_one_need_gangd() {
    if !gangd_is_there() || !libgang_is_there() {
        return;
    }
    let report = report("build --runs 1 --seconds 0.5");
    assert_eq!(conditions(&report), ["an ordinary build", "the build as a gang"]);
    for condition in conditions(&report) {
        assert!(figure(&report, condition, "files_per_s") > 0.0, "{report}");
    }
    assert_eq!(report["measures"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn shares_of_two_users_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let output = lab("accounts --noisy --runs 1 --seconds 1 --jobs 3 --json -");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("other users may not execute") {
        skipped(errors);
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    let condition = "3 gangs of one user, one of another";
    assert_eq!(conditions(&report), [condition]);
    assert!((0.0..=100.0).contains(&figure(&report, condition, "share_of_one_percent")));
    // The promise is about 100 gangs.
    assert_eq!(report["measures"].as_array().unwrap().len(), 0);
}

#[test]
fn a_kill_of_the_callers_group_needs_gangd() {
    if !gangd_is_there() || !fifo_is_permitted() {
        return;
    }
    let output = lab("kill --noisy --runs 1 --json -");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("cgroups of version 2, which are not there") {
        skipped(errors);
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    assert_eq!(conditions(&report), ["below the group", "out of the group"]);
    for condition in conditions(&report) {
        assert!(figure(&report, condition, "gone_after_ms") > 0.0, "{report}");
    }
}

#[test]
fn reading_back_is_counted_by_the_kernel_needs_gangd() {
    if !gangd_is_there() {
        return;
    }
    let output = lab("reading --noisy --runs 1 --seconds 0.5 --sizes 2 --json -");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("is counted: ") || errors.contains("the kernel lets nobody count") {
        skipped(errors);
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect(&errors);
    let of = |name: &str| figure(&report, "2 gangs of 2 threads", name);
    assert!(of("calls_per_s") > 0.0 && of("getattr_ns") > 0.0, "{report}");
    assert!((0.0..=100.0).contains(&of("cpus_percent")), "{report}");
    // The promises are about 2 and 64 threads.
    assert_eq!(report["measures"].as_array().unwrap().len(), 0);
}
