//! Gangs whose processes live too short to be switched one by one, as those of a build do.

mod place;

use std::{
    fs,
    path::{Path, PathBuf},
};

use gang_harness::skipped;
use gang_linux::sched::SchedPolicy;
use gang_protocol::{client::Change, v1};
use place::{
    Place, Program, SPIN, groups_of, has_backend, job_with, machine, policies, wait_released,
    wait_until, what_is_left,
};

/// A program that starts short processes, two at a time, until it reads a line; then it spins.
fn bustle() -> Program {
    let short = "(i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done) &";
    Program::shell(&format!(
        "exec 3<&0; (read line <&3; kill $$) & exec sh -c 'trap \"exec bash -c \\\"{SPIN}\\\"\" TERM; \
         while :; do {short} {short} wait; done'"
    ))
}

/// The group of the cpu controller that a gang has for itself.
fn own_group(program: &Program) -> Option<PathBuf> {
    let is_own = |group: &PathBuf| {
        let name = group.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.contains("-job-") && group.join("cpu.idle").exists()
    };
    groups_of(program.pid()).into_iter().find(is_own)
}

/// Whether a group is idle as a whole; else whether it has the highest weight.
fn weighs(group: &Path) -> (bool, bool) {
    let read = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
    let highest = [("cpu.weight", "10000"), ("cpu.shares", "262144")];
    let is_highest = highest.iter().any(|(file, value)| read(file).trim() == *value);
    (read("cpu.idle").trim() == "1", is_highest)
}

/// A gang that is weighed as a whole beside one that spins; nothing where no gang can be.
fn weighed(place: &Place) -> Option<(Program, Program, i64, PathBuf)> {
    let (program, rival) = (bustle(), Program::spinner());
    job_with(place, &rival, machine());
    let job = job_with(place, &program, machine());
    wait_until("its processes are seen to be short-lived", || short_lived(place, job).is_some());
    if short_lived(place, job) == Some(v1::ShortLived::unweighed) {
        skipped("no group of the cpu controller can be made for one gang");
        return None;
    }
    let group = own_group(&program).expect("it is in its group when it is said to be weighed");
    Some((program, rival, job, group))
}

fn short_lived(place: &Place, job: i64) -> Option<v1::ShortLived> {
    place.job(job).unwrap().short_lived
}

#[test]
fn needs_root_short_lived_processes_have_a_group() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let Some((mut program, rival, job, group)) = weighed(&place) else { return };
    for _ in 0..3 {
        wait_until("raised in its slot", || weighs(&group) == (false, true));
        wait_until("idle out of it", || weighs(&group) == (true, false));
    }
    assert!(!policies(program.pid()).contains(&SchedPolicy::Fifo));
    assert!(own_group(&rival).is_none(), "the other gang is where all are");
    assert_eq!(place.client().check().unwrap().violations, []);
    // Its processes stay from now on.
    program.0.stdin.take();
    wait_until("it is a gang as others are", || short_lived(&place, job).is_none());
    wait_until("its processes have left the group", || own_group(&program).is_none());
    wait_until("raised", || policies(program.pid()).contains(&SchedPolicy::Fifo));
    assert!(!group.exists(), "{}", group.display());
    assert_eq!(place.client().check().unwrap().violations, []);
    place.client().shutdown().unwrap();
    wait_released(program.pid(), "released");
}

#[test]
fn needs_root_gang_in_own_group_outlives_daemon() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let Some((program, _rival, job, group)) = weighed(&place) else { return };
    place.kill();
    wait_until("its group weighs what others do", || weighs(&group) == (false, false));
    wait_released(program.pid(), "released");
    place.start();
    assert_eq!(short_lived(&place, job), Some(v1::ShortLived::weighed), "as before");
    wait_until("raised in its slot", || weighs(&group) == (false, true));
    wait_until("idle out of it", || weighs(&group) == (true, false));
    place.client().kill(job, 9).unwrap();
    wait_until("the job has ended", || place.job(job).is_none());
    wait_until("its group is gone", || !group.exists());
}

#[test]
fn needs_root_policy_none_takes_gang_out_of_group() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let Some((program, _rival, job, group)) = weighed(&place) else { return };
    let none = Change { policy: Some(v1::Policy::none), ..Change::default() };
    place.client().set(job, &none).unwrap();
    assert_eq!((own_group(&program), short_lived(&place, job)), (None, None));
    assert!(!group.exists(), "{}", group.display());
    assert_eq!(what_is_left(program.pid()), None);
    let gang = Change { policy: Some(v1::Policy::gang), ..Change::default() };
    place.client().set(job, &gang).unwrap();
    wait_until("its processes are short-lived again", || own_group(&program).is_some());
    assert_eq!(place.client().check().unwrap().violations, []);
}
