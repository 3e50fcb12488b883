//! A switcher that has no CPU for a while, as an ordinary thread on a busy machine: its late
//! actions come after those of others, and do not last.

mod place;

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use gang_linux::process;
use place::{
    Held, Place, Program, job_with, stands_still, wait_released, wait_until, what_is_left,
    with_each_backend,
};

/// Most of them end where there is no gap in which all gangs leave their slots anyway.
const SHORT_SLICES: [&str; 2] = ["--slice", "2ms"];

/// Longer than plans are made ahead, so that timetables pass a switcher by.
const LONG: Duration = Duration::from_millis(450);

/// One at a time: a gang whose switcher is held may keep the highest weight meanwhile. Two such
/// gangs leave next to nothing to ordinary threads, of which their daemons have some, and guardians
/// take the daemons for stuck.
static HOLDS: Mutex<()> = Mutex::new(());

/// Has a thread do nothing while something is done, and for long after it.
fn without<T>(tid: u32, what: impl FnOnce() -> T) -> T {
    let _held = Held::thread(tid);
    let done = what();
    thread::sleep(LONG);
    done
}

/// CPU time of a process, in ticks.
fn used(program: &Program) -> u64 {
    process::stat(std::path::Path::new("/proc"), program.pid()).unwrap().cpu_ticks
}

fn goes_on(program: &Program) {
    let before = used(program);
    wait_until("it goes on", || used(program) > before + 3);
}

/// For longer than plans are made ahead, and has not run meanwhile.
fn stays_still(program: &Program) -> bool {
    let (began, before) = (Instant::now(), used(program));
    while began.elapsed() < LONG {
        if !stands_still(program.pid()) {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    used(program) == before
}

/// Everybody stands as the daemon thinks, and stays so.
fn is_as_planned(place: &Place, when: &str) {
    for _ in 0..3 {
        let violations = || place.client().check().unwrap().violations;
        let mut last = Vec::new();
        wait_until(when, || {
            let now = violations();
            if now != last {
                eprintln!("{when}: {now:?}");
            }
            last = now;
            last.is_empty()
        });
    }
}

#[test]
fn needs_root_suspend_holds_while_a_switcher_is_late() {
    let _turn = HOLDS.lock().unwrap_or_else(PoisonError::into_inner);
    with_each_backend(&SHORT_SLICES, |place| {
        let programs = [Program::spinner(), Program::spinner()];
        let [_, job] = programs.each_ref().map(|program| job_with(&place, program, 2));
        let mut client = place.client();
        for tid in place.switchers() {
            goes_on(&programs[1]);
            without(tid, || client.suspend(job).unwrap());
            // The switcher's late action continues it, until the conductor sends a new timetable.
            wait_until("suspended", || stays_still(&programs[1]));
            is_as_planned(&place, "suspended");
            let left = what_is_left(programs[1].pid());
            assert!(stands_still(programs[1].pid()), "it stays so: {left:?}");
            without(tid, || client.resume(job).unwrap());
            goes_on(&programs[1]);
            is_as_planned(&place, "resumed");
        }
    });
}

#[test]
fn needs_root_uncontended_gang_runs_despite_lateness() {
    let _turn = HOLDS.lock().unwrap_or_else(PoisonError::into_inner);
    with_each_backend(&SHORT_SLICES, |place| {
        let stays = Program::spinner();
        job_with(&place, &stays, 2);
        let mut client = place.client();
        for tid in place.switchers() {
            let rival = Program::spinner();
            let job = job_with(&place, &rival, 2);
            goes_on(&rival);
            without(tid, || client.suspend(job).unwrap());
            goes_on(&stays);
            is_as_planned(&place, "uncontended");
            client.resume(job).unwrap();
            goes_on(&rival);
            // The daemon waits until no switcher can undo it.
            let (mut another, pid) = (place.client(), rival.pid_i64());
            let remove = move || another.remove_process(job, pid);
            let removed = without(tid, || thread::spawn(remove));
            removed.join().unwrap().unwrap();
            wait_released(rival.pid(), "released");
            goes_on(&stays);
            is_as_planned(&place, "uncontended again");
        }
    });
}
