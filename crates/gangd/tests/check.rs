//! `gang check` on the real kernel: it finds what does not stand as it is to, and nothing else.

mod place;

use std::{fs, io::Write};

use gang_linux::sched;
use place::{Place, Program, has_backend, job_with, machine, wait_until};

#[test]
fn needs_root_check_finds_wrong_standings() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let program = Program::spinner();
    let job = job_with(&place, &program, machine());
    wait_until("slots", || place.job(job).unwrap().slots > 3);
    place.client().suspend(job).unwrap();
    let found = || place.client().check().unwrap().violations;
    wait_until("nothing is wrong", || found().is_empty());
    // Nobody changes what stands still.
    let attributes = sched::get(program.pid()).unwrap();
    let raised = sched::Attributes::fifo(gang_timetable::priority::GANG);
    // One look may see nothing, where the conductor is behind just then; and a timetable may state
    // once more how the job stands.
    let mut wrong = Vec::new();
    wait_until("something is wrong", || {
        sched::set(program.pid(), &raised).unwrap();
        wrong = found();
        !wrong.is_empty()
    });
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    let thread = format!("thread {} of job {job} is to be paused", program.pid());
    assert!(wrong[0].found.contains(&thread), "{wrong:?}");
    sched::set(program.pid(), &attributes).unwrap();
    let freezer = format!("{}/cgroup.freeze", place.job(job).unwrap().cgroup.unwrap());
    wait_until("it is not frozen", || {
        fs::write(&freezer, "0").unwrap();
        found().iter().any(|wrong| wrong.found.contains("is not frozen"))
    });
    fs::write(&freezer, "1").unwrap();
    wait_until("nothing is wrong", || found().is_empty());
}

#[test]
fn needs_root_check_looks_at_all_of_many_threads() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let sleepers = "i=0; while [ $i -lt 300 ]; do sleep infinity & i=$((i + 1)); done";
    let many = Program::shell(&format!("read go; {sleepers}; echo all; while :; do :; done"));
    let last = Program::spinner();
    let (first, second) = (job_with(&place, &many, 1), job_with(&place, &last, 1));
    let mut many = many;
    many.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let threads = |job| place.job(job).unwrap().threads;
    wait_until("all are there", || (threads(first), threads(second)) == (301, 1));
    // Threads that came are read before they are switched.
    wait_until("all of both are looked at", || place.client().check().unwrap().checked >= 302);
    std::thread::scope(|scope| {
        let ask = || scope.spawn(|| place.client().check().unwrap());
        let askers: Vec<_> = (0..20).map(|_| ask()).collect();
        for asker in askers {
            let check = asker.join().unwrap();
            assert_eq!(check.violations, []);
            assert!(check.checked >= 302, "{}", check.checked);
        }
    });
}
