//! Threads that leave the group of their job without asking.

mod place;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use gang_linux::{
    cgroup::Hierarchies,
    sched::{self, Attributes, SchedPolicy},
};
use gang_protocol::client::Adopted;
use place::{Place, Program, has_backend, registration, wait_busily_until, wait_until};
use rustix::process::{Pid, Signal, kill_process};

/// Groups beside each other, which are gone when this is dropped.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// Two groups; absent where there is no hierarchy of version 2.
    fn two(of: &str) -> Option<Groups> {
        let root = Hierarchies::detect(&Default::default()).unwrap().v2?;
        let name = |part: &str| format!("gang-test-{of}-{part}-{}", std::process::id());
        let groups = ["from", "to"].map(|part| root.join(name(part)));
        groups.iter().for_each(|group| fs::create_dir(group).unwrap());
        Some(Groups(groups.into()))
    }

    fn take(&self, at: usize, pid: u32) {
        fs::write(self.0[at].join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn name(&self, at: usize) -> String {
        self.0[at].file_name().unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            wait_until("the group of a test is empty", || fs::remove_dir(group).is_ok());
        }
    }
}

/// As a thread of an exclusive gang is in its slot, or of an oversubscribed one.
fn is_in_slot(pid: u32) -> bool {
    let now = sched::get(pid).unwrap();
    let is_fifo = now.policy == SchedPolicy::Fifo;
    is_fifo || now == Attributes { reset_on_fork: true, ..Attributes::other(-20) }
}

/// The groups of version 1 that a process is in.
fn groups_of_version_1(pid: u32) -> Vec<PathBuf> {
    let all = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    all.lines().filter(|line| !line.starts_with("0::")).map(PathBuf::from).collect()
}

/// A gang of two processes in a group of their own, and another gang beside it.
struct Gang {
    place: Place,
    leaves: Program,
    stays: Program,
    _rival: Program,
    groups: Groups,
    before: (Attributes, Vec<u32>),
    /// Of version 1.
    groups_before: Vec<PathBuf>,
}

impl Gang {
    fn of(name: &str, cpus: i64, flags: &[&str]) -> Option<Gang> {
        let groups = Groups::two(name)?;
        let (leaves, stays, rival) = (Program::spinner(), Program::spinner(), Program::spinner());
        let pids = [&leaves, &stays].map(Program::pid);
        let before = (sched::get(pids[0]).unwrap(), sched::affinity(pids[0]).unwrap());
        let groups_before = groups_of_version_1(pids[0]);
        pids.iter().for_each(|&pid| groups.take(0, pid));
        let place = Place::new(&[&["--backend", "rt"], flags].concat());
        let mut client = place.client();
        client.adopt(&registration("job", cpus), &Adopted::Cgroup(groups.name(0))).unwrap();
        let other = client.register(&registration("other", place::machine())).unwrap();
        client.add_process(other, rival.pid_i64()).unwrap();
        // The test must have a CPU for moments of each slot.
        sched::set_nice(0, -20).unwrap();
        Some(Gang { place, leaves, stays, _rival: rival, groups, before, groups_before })
    }

    /// Moves the process within its slot.
    fn leave_in_slot(&self) {
        let pid = self.leaves.pid();
        wait_busily_until("it is in its slot", || is_in_slot(pid));
        self.groups.take(1, pid);
    }

    fn now(&self) -> (Attributes, Vec<u32>) {
        let pid = self.leaves.pid();
        (sched::get(pid).unwrap(), sched::affinity(pid).unwrap())
    }

    fn is_as_before(&self) -> bool {
        self.now() == self.before && groups_of_version_1(self.leaves.pid()) == self.groups_before
    }

    /// It comes back and leaves in its slot, so many times. Says for each time how long it took
    /// until it was as before, and whether the other one was in the same slot yet.
    fn leave_again(&self, times: usize) -> Vec<(Duration, bool)> {
        let leave = |_| {
            self.leave_in_slot();
            let left = Instant::now();
            wait_busily_until("it is as before", || self.is_as_before());
            let (took, is_in_slot) = (left.elapsed(), is_in_slot(self.stays.pid()));
            self.groups.take(0, self.leaves.pid());
            (took, is_in_slot)
        };
        (0..times).map(leave).collect()
    }
}

/// Times that a process leaves.
const LEAVES: usize = 20;

#[test]
#[ignore = "nightly: needs CPUs that nobody takes away, to judge how soon"]
fn needs_root_leaver_of_long_slot_is_lowered_in_it() {
    if !has_backend("rt") {
        return;
    }
    // Looks come every 40 ms, and edges at the end of the slot and of each gap in it.
    let flags = ["--slice", "1s", "--gap", "10ms/200ms"];
    let Some(gang) = Gang::of("soon", 2, &flags) else { return };
    // A turn comes every four seconds.
    let left = gang.leave_again(LEAVES / 4);
    let in_slot = left.iter().filter(|(_, is_in_slot)| *is_in_slot).count();
    assert!(in_slot * 2 > left.len(), "too few were lowered within their slot: {left:?}");
}

#[test]
#[ignore = "nightly: needs CPUs that nobody takes away, to judge a time"]
fn needs_root_who_leaves_is_lowered_within_100_ms() {
    if !has_backend("rt") {
        return;
    }
    for (cpus, slice) in [(2, "20ms"), (1, "20ms"), (2, "500ms")] {
        let Some(gang) = Gang::of("figure", cpus, &["--slice", slice]) else { return };
        let left = gang.leave_again(LEAVES);
        let late = left.iter().filter(|(took, _)| *took > Duration::from_millis(100)).count();
        // One in twenty meets something else that the machine does.
        assert!(late * LEAVES <= left.len(), "{slice}, {cpus}: {left:?}");
    }
}

#[test]
fn needs_root_who_leaves_a_slot_is_lowered() {
    if !has_backend("rt") {
        return;
    }
    // Exclusive and oversubscribed, with slices of all lengths, of which short ones have no gap
    // before each.
    for (cpus, slice) in [(2, "1ms"), (1, "1ms"), (2, "20ms"), (1, "500ms")] {
        let Some(gang) = Gang::of("leaves", cpus, &["--slice", slice]) else { return };
        gang.leave_in_slot();
        wait_until("it is as before", || gang.is_as_before());
        // A timetable may have it yet, for a stretch; later ones do not.
        let slots = || gang.place.jobs().iter().map(|job| job.slots).sum::<i64>();
        let before = slots();
        wait_until("further slots", || slots() > before + 4);
        wait_until("it is as before", || gang.is_as_before());
        let before = slots();
        wait_busily_until("slots without it", || {
            assert!(gang.is_as_before(), "{slice}, {cpus}: {:?}", gang.now());
            slots() > before + 8
        });
        assert_eq!(gang.place.client().check().unwrap().violations, []);
        wait_until("the other one has slots", || is_in_slot(gang.stays.pid()));
    }
}

#[test]
fn needs_root_last_one_to_leave_a_job_is_lowered() {
    if !has_backend("rt") {
        return;
    }
    let Some(gang) = Gang::of("last", 2, &["--slice", "1ms"]) else { return };
    gang.groups.take(1, gang.stays.pid());
    gang.leave_in_slot();
    wait_until("the job is over", || gang.place.client().list_jobs().unwrap().jobs.len() == 1);
    wait_until("it is as before", || gang.is_as_before());
    std::thread::sleep(Duration::from_millis(300));
    assert!(gang.is_as_before(), "{:?}", gang.now());
}

#[test]
fn needs_root_guardian_lowers_leavers_of_dead_daemon() {
    if !has_backend("rt") {
        return;
    }
    let Some(mut gang) = Gang::of("died", 2, &["--slice", "20ms"]) else { return };
    let pid = gang.leaves.pid();
    let daemon = Pid::from_raw(gang.place.pid() as i32).unwrap();
    // Nobody lowers anybody any more.
    wait_busily_until("it is in its slot when the daemon stops", || {
        wait_busily_until("it is in its slot", || is_in_slot(pid));
        kill_process(daemon, Signal::STOP).unwrap();
        let stat = || fs::read_to_string(Path::new("/proc").join(format!("{daemon}/stat")));
        wait_busily_until("the daemon stands still", || {
            stat().unwrap().rsplit_once(") ").unwrap().1.starts_with('T')
        });
        let is_in_slot = is_in_slot(pid);
        if !is_in_slot {
            kill_process(daemon, Signal::CONT).unwrap();
        }
        is_in_slot
    });
    // On a busy machine the guardian may have taken the daemon for a stuck one by now.
    gang.groups.take(1, pid);
    gang.place.kill();
    wait_until("it is as before", || gang.is_as_before());
}
