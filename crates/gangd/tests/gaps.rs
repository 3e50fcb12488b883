//! Gaps come more often while short tasks do, on the real kernel.

mod place;

use std::{fs, io::Write, thread, time::Duration};

use gang_harness::skipped;
use gang_protocol::v1;
use place::{Place, Program, SPIN, has_backend, job_with, machine, wait_until};

const SELDOM_NS: i64 = 20_000_000;

/// The client that asks is a short task, too: the looks are further apart than the daemon remembers
/// one.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1500);

/// The looks after which a machine is taken for one with short tasks of its own.
const LOOKS: u32 = 13;

/// Whether gaps come to be as seldom as they can be.
fn come_seldom(place: &Place) -> bool {
    (0..LOOKS).any(|_| {
        thread::sleep(BETWEEN_LOOKS);
        place.status().gap_period_ns == SELDOM_NS
    })
}

/// The same; says so where they do not.
fn come_seldom_here(place: &Place) -> bool {
    let seldom = come_seldom(place);
    if !seldom {
        skipped("others want CPUs all the time, each for a moment");
    }
    seldom
}

/// How often a program had to leave a CPU on which it would have run on.
fn interruptions(program: &Program) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn needs_root_and_bpf_short_tasks_double_the_gaps() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    wait_until("measured, or not", || place.status().measuring != v1::Measuring::starting);
    if let Some(reason) = place.status().not_measured {
        skipped(reason);
        return;
    }
    // As many threads as there are CPUs, so that nobody finds one that is idle.
    let spins = format!("for i in $(seq $(nproc)); do {SPIN} & done; wait");
    let gangs = [0, 1].map(|_| Program::shell(&format!("read go; exec bash -c '{spins}'")));
    for gang in &gangs {
        job_with(&place, gang, machine());
        (&mut gang.0.stdin.as_ref().unwrap()).write_all(b"go\n").unwrap();
    }
    if !come_seldom_here(&place) {
        return;
    }
    // Some for each CPU, which start nobody: on a slow machine, too, each gap has one that sleeps.
    let naps = "while :; do read -t 0.002 line <&3; done";
    let each = format!("exec 3<&0; for i in $(seq $((4 * $(nproc)))); do {naps} & done; wait");
    let short_tasks = Program::shell(&format!("exec bash -c '{each}'"));
    wait_until("more often", || {
        thread::sleep(BETWEEN_LOOKS);
        place.status().gap_period_ns == SELDOM_NS / 2
    });
    assert_eq!(place.client().check().unwrap().violations, []);
    drop(short_tasks);
    if !come_seldom_here(&place) {
        return;
    }
    assert_eq!(place.client().check().unwrap().violations, []);
    // A thread that computes for long has every gap, and more of them would give it no more time.
    let hog = Program::spinner();
    let before = interruptions(&hog);
    wait_until("it had thirty gaps", || {
        thread::sleep(BETWEEN_LOOKS);
        interruptions(&hog) > before + 30
    });
    if !come_seldom(&place) {
        drop(hog);
        // Short tasks of others may have come meanwhile, and then they are still there.
        assert!(!come_seldom_here(&place), "gaps come more often beside a hog");
    }
}

#[test]
fn needs_root_gaps_come_often_without_bpf() {
    if !has_backend("rt") {
        return;
    }
    let period_ns =
        |flags: &[&str]| Place::new(&[&["--backend", "rt"], flags].concat()).status().gap_period_ns;
    assert_eq!(period_ns(&["--no-measure"]), SELDOM_NS / 2);
    assert_eq!(period_ns(&["--no-measure", "--gap", "1ms/20ms"]), SELDOM_NS, "as it was asked for");
    assert_eq!(period_ns(&["--slice", "10ms"]), SELDOM_NS / 2, "at the end of every slice");
}
