//! `uncontended_passthrough`: gangs that have the machine for themselves are left to Linux, and are
//! gangs again as soon as somebody comes.

mod place;

use std::{
    io::Write,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use gang_harness::skipped;
use gang_linux::sched::SchedPolicy;
use gang_protocol::v1;
use place::{
    Place, Program, SPIN, gives_way, has_backend, job_with, machine, policies, wait_for,
    wait_released, wait_until,
};

/// Each test here has the machine for itself, as far as the others go.
static TURNS: Mutex<()> = Mutex::new(());

/// Ordinary, in groups that do not give way.
fn is_left_to_linux(program: &Program) -> bool {
    let policies = policies(program.pid());
    !policies.is_empty()
        && policies.iter().all(|policy| *policy == SchedPolicy::Other)
        && !gives_way(program.pid())
}

/// The looks that find other threads that want CPUs, after which a machine is taken for a busy one.
const LOOKS_AT_OTHERS: u32 = 60;

/// Waits until it is. False on a machine on which others want CPUs, as the daemon counts them.
fn comes_to_be_left_to_linux(place: &Place, program: &Program, job: i64) -> bool {
    let mut looks_at_others = 0;
    let is_uncontended = wait_for("left to Linux, or others want CPUs", || {
        if is_left_to_linux(program) && place.job(job).unwrap().uncontended {
            return Some(true);
        }
        looks_at_others += u32::from(place.status().unregistered_threads > 0);
        // The client that asks wants a CPU, too.
        thread::sleep(Duration::from_millis(200));
        (looks_at_others == LOOKS_AT_OTHERS).then_some(false)
    });
    if !is_uncontended {
        skipped("others want CPUs all the time");
    }
    is_uncontended
}

/// A daemon as it is by default; it raises all gangs where it cannot measure.
fn a_place_that_measures() -> Option<Place> {
    let place = has_backend("rt").then(|| Place::that_passes_through(&["--backend", "rt"]))?;
    wait_until("measured, or not", || place.status().measuring != v1::Measuring::starting);
    if place.status().measuring == v1::Measuring::no {
        skipped(place.status().not_measured.unwrap_or_default());
        return None;
    }
    Some(place)
}

fn is_raised_and_fills(program: &Program) {
    wait_until("raised", || policies(program.pid()) == [SchedPolicy::Fifo]);
    wait_until("filling", || {
        policies(program.pid()) == [SchedPolicy::Batch] && gives_way(program.pid())
    });
}

#[test]
fn needs_root_and_bpf_uncontended_gang_left_to_linux() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut place) = a_place_that_measures() else { return };
    let program = Program::spinner();
    let job = job_with(&place, &program, machine());
    let nothing_is_wrong =
        |place: &Place| assert_eq!(place.client().check().unwrap().violations, []);
    if !comes_to_be_left_to_linux(&place, &program, job) {
        return;
    }
    let slots = place.job(job).unwrap().slots;
    wait_until("slots go on", || place.job(job).unwrap().slots > slots + 10);
    nothing_is_wrong(&place);

    let gang = Program::spinner();
    job_with(&place, &gang, machine());
    [&program, &gang].into_iter().for_each(is_raised_and_fills);
    assert!(!place.job(job).unwrap().uncontended);
    nothing_is_wrong(&place);
    drop(gang);
    if !comes_to_be_left_to_linux(&place, &program, job) {
        return;
    }

    // A load that is no gang.
    let load: Vec<Program> = (0..machine()).map(|_| Program::spinner()).collect();
    is_raised_and_fills(&program);
    nothing_is_wrong(&place);
    drop(load);
    if !comes_to_be_left_to_linux(&place, &program, job) {
        return;
    }
    nothing_is_wrong(&place);

    place.kill();
    wait_released(program.pid(), "released");
    place.start();
    wait_until("slots by the next daemon", || place.job(job).is_some_and(|job| job.slots > 10));
    wait_until("measured", || place.status().measuring == v1::Measuring::yes);
    if !comes_to_be_left_to_linux(&place, &program, job) {
        return;
    }
    nothing_is_wrong(&place);
}

/// The part of it that a busy machine has, too.
#[test]
fn needs_root_and_bpf_a_gang_beside_a_load_is_raised() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(place) = a_place_that_measures() else { return };
    let _load: Vec<Program> = (0..machine()).map(|_| Program::spinner()).collect();
    let program = Program::spinner();
    let job = job_with(&place, &program, machine());
    is_raised_and_fills(&program);
    assert!(!place.job(job).unwrap().uncontended);
    assert_eq!(place.client().check().unwrap().violations, []);
}

/// A thread that wants a CPU only for a moment, again and again, is no load. A gang that waits for
/// such threads is raised all the same.
#[test]
fn needs_root_and_bpf_disturbed_gang_raised_a_while() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(place) = a_place_that_measures() else { return };
    // As many as there are CPUs, so that Linux has nowhere to put the threads that disturb them.
    let spinners = format!("for i in $(seq $(nproc)); do {SPIN} & done; wait");
    let program = Program::shell(&format!("read go; exec bash -c '{spinners}'"));
    let job = job_with(&place, &program, machine());
    (&mut program.0.stdin.as_ref().unwrap()).write_all(b"go\n").unwrap();
    let spins = || policies(program.pid()).len() > machine() as usize;
    wait_until("it spins", spins);
    if !comes_to_be_left_to_linux(&place, &program, job) {
        return;
    }
    let step = "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); done";
    let disturbs = Program::shell(&format!("while :; do {step}; sleep 0.04; done"));
    // This test has its turns in gaps then, in which nobody is raised.
    wait_until("raised", || !place.job(job).unwrap().uncontended);
    assert_eq!(place.client().check().unwrap().violations, []);
    drop(disturbs);
    comes_to_be_left_to_linux(&place, &program, job);
}
