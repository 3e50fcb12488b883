//! `leave_alone`: gangs that have the machine for themselves are Linux's, and gangs again as soon as somebody comes.

mod place;

use std::{
    thread,
    time::{Duration, Instant},
};

use gang_linux::sched::Policy;
use gang_protocol::v1;
use gang_skips::skipped;
use place::{
    Place, Program, gives_way, is_released, is_root, job_with, machine, policies, wait_until,
};

/// Ordinary, in groups that do not give way.
fn is_left_to_linux(program: &Program) -> bool {
    policies(program.pid()) == [Policy::Other] && !gives_way(program.pid())
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
        thread::sleep(Duration::from_millis(50));
    }
    true
}

fn is_raised_and_fills(program: &Program) {
    wait_until("raised", || policies(program.pid()) == [Policy::Fifo]);
    wait_until("filling", || {
        policies(program.pid()) == [Policy::Batch] && gives_way(program.pid())
    });
}

#[test]
fn needs_root_and_bpf_a_gang_that_is_alone_is_left_to_linux_until_somebody_comes() {
    if !is_root() {
        return;
    }
    let mut place = Place::new(&["--backend", "rt", "--leave-alone"]);
    wait_until("measured, or not", || place.status().measuring != v1::Measuring::starting);
    if place.status().measuring == v1::Measuring::no {
        skipped(place.status().not_measured.unwrap_or_default());
        return;
    }
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
