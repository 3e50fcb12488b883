//! `gang check` finds threads of no job that are as in a slot. In a file of its own, since no other
//! daemon may run meanwhile.

mod place;

use std::path::Path;

use gang_harness::skipped;
use gang_linux::{process, sched};
use place::{Place, Program, has_backend, wait_until};

/// Another daemon's gangs look as those of this one: nothing is said of threads then.
fn has_other_daemon(place: &Place) -> bool {
    let pids = process::processes(Path::new("/proc")).unwrap();
    let is_gangd = |pid| process::name(Path::new("/proc"), pid).is_ok_and(|it| it == "[gangd]");
    let parent = |pid| process::status(Path::new("/proc"), pid).map_or(0, |it| it.parent);
    let own = place.pid();
    pids.into_iter().any(|pid| pid != own && is_gangd(pid) && parent(pid) != own)
}

#[test]
fn needs_root_check_finds_raised_thread_of_no_job() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let program = Program::sleeper();
    let raised = sched::Attributes::fifo(gang_timetable::priority::GANG);
    sched::set(program.pid(), &raised).unwrap();
    let mut is_other = false;
    wait_until("it is found", || {
        is_other |= has_other_daemon(&place);
        let wrong = place.client().check().unwrap().violations;
        let thread = format!("thread {} [sleep] of no job", program.pid());
        wrong.iter().any(|wrong| wrong.found.contains(&thread)) || is_other
    });
    if is_other {
        return skipped("needs that no other daemon runs");
    }
    sched::set(program.pid(), &sched::Attributes::other(0)).unwrap();
    assert_eq!(place.client().check().unwrap().violations, []);
}
