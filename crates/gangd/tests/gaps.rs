//! Gaps come more often while short tasks do, on the real kernel.

mod place;

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use gang_harness::skipped;
use gang_protocol::v1;
use place::{Place, Program, is_root, job_with, machine, wait_until};

const SELDOM_NS: i64 = 20_000_000;

/// Waits until gaps come as seldom as they can; false on a machine with short tasks of its own. Who asks is one, too.
fn come_seldom(place: &Place) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while place.status().gap_period_ns != SELDOM_NS {
        if Instant::now() > end {
            skipped("others want CPUs all the time, each for a moment");
            return false;
        }
        thread::sleep(Duration::from_millis(1500));
    }
    true
}

#[test]
fn needs_root_and_bpf_gaps_come_more_often_while_short_tasks_do() {
    if !is_root() {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    wait_until("measured, or not", || place.status().measuring != v1::Measuring::starting);
    if let Some(reason) = place.status().not_measured {
        skipped(reason);
        return;
    }
    // As many threads as there are CPUs, so that nobody finds one that is idle.
    let spins = "for i in $(seq $(nproc)); do while [ $SECONDS -lt 120 ]; do :; done & done; wait";
    let gangs = [0, 1].map(|_| Program::shell(&format!("read go; exec bash -c '{spins}'")));
    for gang in &gangs {
        job_with(&place, gang, machine());
        (&mut gang.0.stdin.as_ref().unwrap()).write_all(b"go\n").unwrap();
    }
    if !come_seldom(&place) {
        return;
    }
    let shell = Program::shell("while :; do sleep 0.002; done");
    wait_until("more often", || place.status().gap_period_ns == SELDOM_NS / 2);
    assert_eq!(place.client().check().unwrap().violations, []);
    drop(shell);
    if !come_seldom(&place) {
        return;
    }
    assert_eq!(place.client().check().unwrap().violations, []);
    // Who computes for long has every gap, and more of them would give it no more time.
    let _hog = Program::shell("exec bash -c 'while [ $SECONDS -lt 60 ]; do :; done'");
    thread::sleep(Duration::from_secs(3));
    assert!(come_seldom(&place), "beside a hog");
}

#[test]
fn needs_root_gaps_come_often_where_nobody_sees_who_waits_for_them() {
    if !is_root() {
        return;
    }
    let period_ns =
        |flags: &[&str]| Place::new(&[&["--backend", "rt"], flags].concat()).status().gap_period_ns;
    assert_eq!(period_ns(&["--no-measure"]), SELDOM_NS / 2);
    assert_eq!(period_ns(&["--no-measure", "--gap", "1ms/20ms"]), SELDOM_NS, "as it was asked for");
    assert_eq!(period_ns(&["--slice", "10ms"]), SELDOM_NS / 2, "at the end of every slice");
}
