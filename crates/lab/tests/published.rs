//! The experiments of the papers, and of users, with tiny durations: that they run to their end and
//! report what they promise to report. No figure is judged here.

mod lab;

use gang_harness::skipped;
use lab::{
    conditions, figure, gangd_is_there, gangs_are_reported, is_measured_where_it_can_be, is_shared,
    lab, report,
};
use serde_json::Value;

#[test]
fn solvers_and_speedup_under_plain_linux() {
    for (name, condition) in [("gauss", "2 threads, alone"), ("matmul", "2 threads, alone")] {
        let line = format!("{name} --plain --runs 1 --seconds 0.2 --threads 2 --size 64");
        let report = report(&line);
        assert_eq!(conditions(&report), [condition, "2 threads, plain Linux"]);
        for condition in conditions(&report) {
            assert!(figure(&report, condition, "mflops_of_cpu_time") > 0.0, "{report}");
        }
    }
    let speedup = report("speedup --plain --runs 1 --seconds 0.2 --threads 2 --size 64");
    assert_eq!(conditions(&speedup), ["1 thread, plain Linux", "2 threads, plain Linux"]);
    let verdict = speedup["verdict"].as_array().unwrap();
    let is_told = |it: &Value| it.as_str().unwrap().starts_with("2 threads are ");
    assert!(verdict.iter().any(is_told), "{speedup}");
}

#[test]
fn sweeps_and_alternatives_under_plain_linux() {
    let interval = report("interval --plain --runs 1 --seconds 0.2 --points 40us");
    assert_eq!(conditions(&interval), ["40us, plain Linux"]);
    let variance = report("variance --plain --runs 1 --seconds 0.2 --points 0ns,1ms");
    assert_eq!(conditions(&variance), ["0ns, plain Linux", "1ms, plain Linux"]);
    assert_eq!(conditions(&report("batch --plain --runs 1 --seconds 0.4")).len(), 2);
    assert_eq!(conditions(&report("priority --plain --runs 1 --seconds 0.2")).len(), 3);
}

#[test]
fn stream_deadlines_and_holes_under_plain_linux() {
    let stream = report("stream --plain --runs 1 --seconds 0.3 --bursts 2");
    assert_eq!(conditions(&stream), ["bursts of 2, plain Linux", "bursts of 2, partition"]);
    let deadlines = report("deadlines --plain --quick --runs 1 --seconds 0.5");
    assert_eq!(conditions(&deadlines), ["2 domains, plain Linux", "8 domains, plain Linux"]);
    let holes = report("holes --plain --runs 1 --seconds 0.02 --instances 1");
    assert_eq!(conditions(&holes).len(), 4);
}

/// As published: all numbers of threads, domains and instances, and the steps of the paper; in one
/// round.
#[test]
#[ignore = "nightly: takes a minute, and others are shorter of the same"]
fn with_paper_experiments_run_to_their_end() {
    let gauss = report("gauss --plain --paper --runs 1 --seconds 0.1 --size 64");
    let cpus = gauss["machine"]["cpus"].as_u64().unwrap();
    assert_eq!(conditions(&gauss).len() as u64, 2 * cpus);
    assert_eq!(gauss["notes"].as_array().unwrap().len(), 0, "nothing is left out: {gauss}");
    assert_eq!(conditions(&report("batch --plain --paper --runs 1 --seconds 0.4")).len(), 2);
    let deadlines = report("deadlines --plain --paper --runs 1 --seconds 0.5");
    let expected = ["1 domain", "2 domains", "4 domains", "8 domains"];
    assert_eq!(conditions(&deadlines), expected.map(|of| format!("{of}, plain Linux")));
    let holes = report("holes --plain --paper --runs 1 --seconds 0.02");
    assert_eq!(conditions(&holes).len(), 2 * 8 * 2, "1 to 8 of both programs");
    for report in [gauss, deadlines, holes] {
        assert_eq!(report["rounds"], 1);
        for series in report["series"].as_array().unwrap() {
            assert!(!series["samples"].as_object().unwrap().is_empty(), "{series}");
        }
    }
}

#[test]
#[ignore = "nightly: takes a minute, and others are shorter of the same"]
fn with_paper_experiments_reach_their_end_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let gauss = report("gauss --paper --runs 1 --seconds 0.1 --threads 1 --size 64");
    assert_eq!(conditions(&gauss).len(), 3);
    let deadlines = report("deadlines --paper --runs 1 --seconds 0.5");
    assert_eq!(conditions(&deadlines).len(), 8);
    gangs_are_reported(&deadlines, |_| true);
}

/// A gang of more threads than CPUs is what a larger machine's gang is to this one.
#[test]
fn sixteen_threads_run_to_their_end() {
    let gauss = report("gauss --plain --runs 1 --seconds 0.2 --threads 16 --size 64");
    assert_eq!(conditions(&gauss), ["16 threads, alone", "16 threads, plain Linux"]);
    let barrier = report("barrier --plain --runs 1 --seconds 0.2 --hogs 0 --threads 16");
    assert_eq!(conditions(&barrier).len(), 2);
    let stream = report("stream --plain --runs 1 --seconds 0.3 --bursts 2 --threads 16");
    assert_eq!(conditions(&stream).len(), 2);
}

#[test]
#[ignore = "nightly: takes half a minute of all CPUs"]
fn users_under_gangd_where_it_is_there() {
    let with_gangd = gangd_is_there();
    let plain = if with_gangd { "--quick" } else { "--plain --quick" };
    let users = lab(&format!("users {plain} --noisy --runs 1 --times 2 --time-limit 2 --json -"));
    let errors = String::from_utf8_lossy(&users.stderr);
    if !users.status.success() {
        assert!(errors.contains("nothing to run"), "{errors}");
        skipped(errors);
        return;
    }
    let users: Value = serde_json::from_slice(&users.stdout).unwrap();
    assert!(!users["notes"].as_array().unwrap().is_empty(), "{users}");
    if with_gangd {
        gangs_are_reported(&users, |_| true);
    }
}

#[test]
fn solvers_and_sweeps_under_gangd_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let gauss = report("gauss --runs 2 --seconds 0.2 --threads 2 --watch-plain --size 64");
    assert_eq!(conditions(&gauss).len(), 3);
    assert_eq!(gauss["measures"].as_array().unwrap().len(), 2);
    gangs_are_reported(&gauss, |_| true);
    let plain = &gauss["series"][0];
    is_measured_where_it_can_be(plain, 2);
    assert!(plain.get("looked_at_apart").is_none(), "in every round, as was asked for: {plain}");
    let interval = report("interval --runs 1 --seconds 0.2 --points 40us,4ms --halvings 1");
    let verdicts = interval["verdict"].as_array().unwrap();
    assert!(verdicts.iter().any(|v| v.as_str().unwrap().contains("ETH")), "{interval}");
    gangs_are_reported(&interval, |_| true);
    let plain = &interval["series"][0];
    if is_measured_where_it_can_be(plain, 1) {
        assert_eq!(plain["looked_at_apart"], true, "{plain}");
    }
}

#[test]
fn batch_and_priority_under_gangd_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let batch = report("batch --runs 1 --seconds 0.4");
    assert_eq!(conditions(&batch).len(), 4);
    gangs_are_reported(&batch, is_shared);
    let priority = report("priority --runs 1 --seconds 0.2");
    assert_eq!(conditions(&priority).len(), 5);
    gangs_are_reported(&priority, |_| true);
}

#[test]
#[ignore = "nightly: takes half a minute of all CPUs"]
fn deadlines_and_holes_under_gangd_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let deadlines = report("deadlines --quick --runs 1 --seconds 0.5");
    assert_eq!(deadlines["measures"].as_array().unwrap().len(), 1);
    gangs_are_reported(&deadlines, |_| true);
    let holes = report("holes --runs 1 --seconds 0.02 --instances 2");
    assert_eq!(conditions(&holes).len(), 10);
    assert_eq!(
        conditions(&holes).iter().filter(|it| it.starts_with("deadlines beside")).count(),
        2
    );
    assert!(figure(&holes, "2 of CoEVP, batch", "cpus_used") > 0.0, "{holes}");
    gangs_are_reported(&holes, is_shared);
}

#[test]
#[ignore = "nightly: takes half a minute of all CPUs"]
fn stream_slices_and_noise_under_gangd_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let stream = report("stream --runs 1 --seconds 0.3 --bursts 1,4");
    assert_eq!(conditions(&stream).len(), 6);
    gangs_are_reported(&stream, |_| true);
    let slices = report("slices --quick --runs 1 --seconds 0.1 --slices 10ms");
    assert_eq!(conditions(&slices).len(), 6);
    gangs_are_reported(&slices, is_shared);
    let mut verdict = slices["verdict"].as_array().unwrap().iter().filter_map(Value::as_str);
    assert!(verdict.any(|it| it.starts_with("A single round cannot show")), "{slices}");
    let noise = report("noise --runs 1 --seconds 0.6");
    assert_eq!(conditions(&noise), ["1ms", "10ms", "50ms"]);
    gangs_are_reported(&noise, |_| true);
    // All of them have gangs that spin.
    for series in noise["series"].as_array().unwrap() {
        is_measured_where_it_can_be(series, 1);
    }
}

#[test]
fn matmul_speedup_and_variance_need_gangd() {
    if !gangd_is_there() {
        return;
    }
    let matmul = report("matmul --runs 1 --seconds 0.2 --threads 2 --size 64");
    assert_eq!(conditions(&matmul).len(), 3);
    gangs_are_reported(&matmul, |_| true);
    let speedup = report("speedup --runs 1 --seconds 0.2 --threads 1 --size 64");
    assert_eq!(conditions(&speedup), ["1 thread, plain Linux", "1 thread, gangd"]);
    let variance = report("variance --runs 1 --seconds 0.2 --points 1ms --halvings 0");
    assert_eq!(conditions(&variance), ["1ms, plain Linux", "1ms, gangd"]);
}
