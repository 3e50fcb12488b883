//! Every workload ends by itself and prints one line of JSON that adds up.

mod lab;

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gang_harness::wait_for;
use serde_json::Value;

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn workload(arguments: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_gang-lab"))
        .arg("workload")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// The workload over a window in which it did something: what is a window of work on one machine is
/// too short for any on another.
fn workload_at_work(arguments: &str, is_work: impl Fn(&Value) -> bool) -> Value {
    let (mut lead, mut length) = (Duration::from_millis(300), Duration::from_millis(200));
    wait_for(&format!("{arguments} does something in its window"), || {
        let start_ns = now_ns() + lead.as_nanos() as u64;
        let seconds = length.as_secs_f64();
        let window = format!("--seconds {seconds} --start-at {start_ns}");
        let outcome = workload(&format!("{arguments} {window}"));
        assert_eq!(number(&outcome, "/started_at_ns"), start_ns);
        assert_eq!(number(&outcome, "/elapsed_ns"), length.as_nanos() as u64);
        (lead, length) = (2 * lead, 2 * length);
        is_work(&outcome).then_some(outcome)
    })
}

/// The same, by what it counts.
fn workload_that_counts(arguments: &str) -> Value {
    workload_at_work(arguments, |outcome| number(outcome, "/iterations") > 0)
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

#[test]
fn barrier_counts_iterations_in_its_window() {
    for wait in ["spin", "spin-block", "spin-block:1us"] {
        let outcome = workload_that_counts(&format!(
            "barrier --threads 2 --interval 1us --variance 1000 --wait {wait}"
        ));
        assert_eq!(outcome["workload"], "barrier");
        assert_eq!(outcome["per_thread"].as_array().unwrap().len(), 2);
        assert_eq!(number(&outcome, "/per_thread/1/iterations"), number(&outcome, "/iterations"));
        let sum =
            number(&outcome, "/per_thread/0/cpu_ns") + number(&outcome, "/per_thread/1/cpu_ns");
        assert_eq!(number(&outcome, "/cpu_ns"), sum);
    }
}

#[test]
fn hog_counts_the_work_of_its_threads() {
    for name in ["hog", "loop"] {
        let outcome = workload_that_counts(&format!("{name} --threads 3"));
        let parts: u64 =
            (0..3).map(|n| number(&outcome, &format!("/per_thread/{n}/iterations"))).sum();
        assert_eq!(number(&outcome, "/iterations"), parts);
        assert!(number(&outcome, "/cpu_ns") > 0);
    }
}

#[test]
fn phases_do_their_work_and_end() {
    let outcome = workload("phases --rounds 20 --barriers 3 --serial 10us");
    assert_eq!(outcome["finished"], true);
    assert!(number(&outcome, "/finished_at_ns") > number(&outcome, "/started_at_ns"));
}

#[test]
fn phases_give_up_at_their_limit() {
    let outcome = workload("phases --rounds 1000000000 --limit 0.1s");
    assert_eq!(outcome["finished"], false);
}

#[test]
fn tick_records_every_tick() {
    for phase in ["", " --phase 3ms"] {
        let outcome = workload(&format!("tick --every 10ms --run 0.2ms --seconds 0.3{phase}"));
        assert_eq!(number(&outcome, "/ticks"), 30);
        for kind in ["wake", "completion"] {
            let [p50, p99, max] =
                ["p50_ms", "p99_ms", "max_ms"].map(|name| outcome[kind][name].as_f64().unwrap());
            assert!(0.0 <= p50 && p50 <= p99 && p99 <= max, "{outcome}");
        }
    }
}

#[test]
fn compositor_records_every_frame_where_permitted() {
    if !lab::fifo_is_permitted() {
        return;
    }
    let outcome = workload("tick --every 10ms --run 0.2ms --compositor --seconds 0.3");
    assert_eq!(number(&outcome, "/ticks"), 30);
}

#[test]
fn sleepers_sleep_and_the_busy_ones_do_not() {
    let is_busy = |outcome: &Value| number(outcome, "/per_thread/4/cpu_ns") > 0;
    let outcome = workload_at_work("sleepers --threads 4 --busy 1", is_busy);
    assert_eq!(number(&outcome, "/threads"), 5);
    assert_eq!(number(&outcome, "/per_thread/0/cpu_ns"), 0);
    assert_eq!(number(&workload("threads --threads 0 --seconds 0.01"), "/cpu_ns"), 0);
}

#[test]
fn release_kills_and_finds_ordinary_threads_released() {
    let mut daemon = Command::new("sleep").arg("3600").spawn().unwrap();
    let (kill, watch) = (daemon.id(), std::process::id());
    let outcome = workload(&format!("release --kill {kill} --watch {watch} --at {}", now_ns()));
    assert!(!daemon.wait().unwrap().success(), "the process was not killed");
    assert_eq!(outcome["released"], true);
    assert_eq!(number(&outcome, "/raised_before"), 0);
}

#[test]
fn a_window_in_the_far_future_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_gang-lab"))
        .args(["workload", "hog", "--start-at", &(now_ns() + 4_000_000_000_000).to_string()])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("more than an hour ahead"), "{errors}");
}

#[test]
fn solvers_and_scan_count_what_they_do() {
    for name in ["gauss --size 32", "matmul --size 32", "scan --bytes 100000"] {
        let outcome = workload_that_counts(&format!("{name} --threads 2"));
        assert!(number(&outcome, "/cpu_ns") > 0, "{outcome}");
    }
    // A workload that counts by steps says when the first was done.
    let outcome = workload_that_counts("gauss --size 32");
    let [first_ns, start_ns] = ["/first_at_ns", "/started_at_ns"].map(|it| number(&outcome, it));
    assert!(
        (start_ns..start_ns + number(&outcome, "/elapsed_ns")).contains(&first_ns),
        "{outcome}"
    );
}

#[test]
fn a_domain_of_one_thread_misses_nothing() {
    let does_steps = |outcome: &Value| number(outcome, "/steps") > 0;
    let outcome = workload_at_work("deadlines --threads 1 --step 100us", does_steps);
    assert_eq!(number(&outcome, "/missed"), 0);
}

#[test]
fn a_stream_does_all_its_packets() {
    let outcome = workload("stream --packets 7 --burst 3 --points 50 --seconds 0.2 --pin 0");
    assert_eq!(outcome["finished"], true);
    assert_eq!(number(&outcome, "/packets"), 7);
    assert!(outcome["latency_ms_p99"].as_f64().unwrap() > 0.0);
}

#[test]
fn edges_are_told_from_interruptions() {
    let outcome = workload("edges --threads 1 --slice 10ms --seconds 0.2");
    // No edge is further than half a slice from its boundary, but for the digits that are kept of
    // it.
    assert!(outcome["begin_us_p99"].as_f64().unwrap() <= 5_005.0, "{outcome}");
}

#[test]
fn phases_without_their_cache_do_not_begin() {
    let output = Command::new(env!("CARGO_BIN_EXE_gang-lab"))
        .args(["workload", "phases", "--rounds", "1", "--cache", "/nowhere/redis"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("/nowhere/redis"), "{errors}");
}
