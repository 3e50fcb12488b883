//! `leave_alone`: gangs that have the machine for themselves are Linux's, and gangs again as soon as somebody comes.

mod place;

use std::{
    io::Write,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use gang_harness::skipped;
use gang_linux::sched::Policy;
use gang_protocol::v1;
use place::{
    Place, Program, gives_way, is_released, is_root, job_with, machine, policies, wait_until,
};

/// Each test here has the machine for itself, as far as the others go.
static ALONE: Mutex<()> = Mutex::new(());

/// Ordinary, in groups that do not give way.
fn is_left_to_linux(program: &Program) -> bool {
    let policies = policies(program.pid());
    !policies.is_empty()
        && policies.iter().all(|policy| *policy == Policy::Other)
        && !gives_way(program.pid())
}

/// Waits until it is; false on a machine on which others want CPUs all the time.
fn comes_to_be_left_to_linux(place: &Place, program: &Program) -> bool {
    let end = Instant::now() + Duration::from_secs(40);
    let mut looks_at_others = 0;
    while !is_left_to_linux(program) {
        looks_at_others += u32::from(place.status().unregistered_threads > 0);
        if Instant::now() > end {
            assert!(looks_at_others > 10, "nobody else wants a CPU: {:?}", policies(program.pid()));
            skipped("others want CPUs all the time");
            return false;
        }
        thread::sleep(Duration::from_millis(200));
    }
    true
}

/// A daemon as it is by default; it leaves nobody alone where it cannot measure.
fn a_place_that_measures() -> Option<Place> {
    let place = is_root().then(|| Place::that_leaves_alone(&["--backend", "rt"]))?;
    wait_until("measured, or not", || place.status().measuring != v1::Measuring::starting);
    if place.status().measuring == v1::Measuring::no {
        skipped(place.status().not_measured.unwrap_or_default());
        return None;
    }
    Some(place)
}

fn is_raised_and_fills(program: &Program) {
    wait_until("raised", || policies(program.pid()) == [Policy::Fifo]);
    wait_until("filling", || {
        policies(program.pid()) == [Policy::Batch] && gives_way(program.pid())
    });
}

#[test]
fn needs_root_and_bpf_a_gang_that_is_alone_is_left_to_linux_until_somebody_comes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut place) = a_place_that_measures() else { return };
    let program = Program::spinner();
    let job = job_with(&place, &program, machine());
    let nothing_is_wrong =
        |place: &Place| assert_eq!(place.client().check().unwrap().violations, []);
    if !comes_to_be_left_to_linux(&place, &program) {
        return;
    }
    assert_eq!(place.job(job).unwrap().alone, Some(true));
    let slots = place.job(job).unwrap().slots;
    wait_until("slots go on", || place.job(job).unwrap().slots > slots + 10);
    nothing_is_wrong(&place);

    let gang = Program::spinner();
    job_with(&place, &gang, machine());
    [&program, &gang].into_iter().for_each(is_raised_and_fills);
    assert_eq!(place.job(job).unwrap().alone, Some(false));
    nothing_is_wrong(&place);
    drop(gang);
    if !comes_to_be_left_to_linux(&place, &program) {
        return;
    }

    // A load that is no gang.
    let load: Vec<Program> = (0..machine()).map(|_| Program::spinner()).collect();
    is_raised_and_fills(&program);
    nothing_is_wrong(&place);
    drop(load);
    if !comes_to_be_left_to_linux(&place, &program) {
        return;
    }
    nothing_is_wrong(&place);

    place.kill_daemon();
    wait_until("released", || is_released(program.pid()));
    place.start();
    wait_until("slots by the next daemon", || place.job(job).is_some_and(|job| job.slots > 10));
    wait_until("measured", || place.status().measuring == v1::Measuring::yes);
    if !comes_to_be_left_to_linux(&place, &program) {
        return;
    }
    nothing_is_wrong(&place);
}

/// Who wants a CPU only for a moment, again and again, is no load; a gang that waits for that is raised all the same.
#[test]
fn needs_root_and_bpf_a_gang_that_is_disturbed_is_raised_for_a_while() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(place) = a_place_that_measures() else { return };
    // As many as there are CPUs, so that Linux has nowhere to put who disturbs them.
    let spinners =
        "for i in $(seq $(nproc)); do while [ $SECONDS -lt 120 ]; do :; done & done; wait";
    let program = Program::shell(&format!("read go; exec bash -c '{spinners}'"));
    let job = job_with(&place, &program, machine());
    (&mut program.0.stdin.as_ref().unwrap()).write_all(b"go\n").unwrap();
    let spins = || policies(program.pid()).len() > machine() as usize;
    wait_until("it spins", spins);
    if !comes_to_be_left_to_linux(&place, &program) {
        return;
    }
    let step = "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); done";
    let disturbs = Program::shell(&format!("while :; do {step}; sleep 0.04; done"));
    // This test has its turns in gaps then, in which nobody is raised.
    wait_until("raised", || place.job(job).unwrap().alone == Some(false));
    assert_eq!(place.client().check().unwrap().violations, []);
    drop(disturbs);
    comes_to_be_left_to_linux(&place, &program);
}
