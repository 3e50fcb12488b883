//! Limits, a freeze or a kill of the group in which a program was called reach the job.

mod place;

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use gang_daemon::are_built;
use gang_harness::skipped;
use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies},
    sched::SchedPolicy,
};
use gang_protocol::{error::ClientError, v1::JobState};
use place::{
    Place, Program, groups_of, has_backend, job_with, policies, wait_released, wait_until,
    with_each_backend,
};
use rustix::process::{Pid, Signal, kill_process};

/// A group of a caller; it is removed when this is dropped.
struct CallersGroup(Group);

impl CallersGroup {
    fn below(root: &Path, name: &str) -> CallersGroup {
        let group = Group::at(root).child(format!("caller-{name}-{}", std::process::id()));
        group.create().unwrap();
        CallersGroup(group)
    }

    /// Of version 2; absent where there is none.
    fn new(name: &str) -> Option<CallersGroup> {
        let root = Hierarchies::detect(&Roots::default()).unwrap().v2;
        if root.is_none() {
            skipped("no cgroups of version 2");
        }
        Some(CallersGroup::below(&root?, name))
    }

    /// Starts a program as from a shell in the group.
    fn start(&self) -> Program {
        let program = Program::spinner();
        self.0.add(program.pid()).unwrap();
        program
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn groups_below(&self) -> usize {
        self.0.children().unwrap().len()
    }
}

impl Drop for CallersGroup {
    fn drop(&mut self) {
        let below = self.0.children().unwrap_or_default().into_iter();
        below.for_each(|group| drop(group.remove()));
        let _ = self.0.remove();
    }
}

fn group_of(place: &Place, job: i64) -> PathBuf {
    place.job(job).unwrap().cgroup.unwrap().into()
}

/// The job is below the group in which its first process was.
fn is_below(place: &Place, job: i64, caller: &CallersGroup) -> bool {
    group_of(place, job).parent() == Some(caller.path())
}

#[test]
fn needs_root_callers_group_is_frozen_with_its_jobs() {
    with_each_backend(&[], |place| {
        let Some(caller) = CallersGroup::new("kill") else { return };
        let programs = [caller.start(), caller.start()];
        let jobs = programs.each_ref().map(|program| job_with(&place, program, 1));
        if place.job(jobs[0]).unwrap().cgroup.is_none() {
            return;
        }
        jobs.iter().for_each(|&job| assert!(is_below(&place, job, &caller)));
        for &job in &jobs {
            wait_until("slots", || place.job(job).unwrap().slots > 3);
        }
        caller.0.freeze(true).unwrap();
        wait_until("all stand still", || {
            jobs.iter().all(|&job| Group::at(group_of(&place, job)).is_frozen().unwrap())
        });
        let by = caller.path().display().to_string();
        wait_until("it is said which group is frozen", || {
            jobs.iter().all(|&job| place.job(job).unwrap().frozen_by.as_ref() == Some(&by))
        });
        caller.0.freeze(false).unwrap();
        let before = jobs.map(|job| place.job(job).unwrap().slots);
        wait_until("slots after that", || {
            jobs.iter().zip(before).all(|(&job, before)| place.job(job).unwrap().slots > before + 3)
        });
        // One that leaves its job is where it was called.
        place.client().remove_process(jobs[0], programs[0].pid_i64()).unwrap();
        assert!(groups_of(programs[0].pid()).contains(&caller.path().to_owned()));
        wait_released(programs[0].pid(), "released");
        caller.0.write("cgroup.kill", "1").unwrap();
        wait_until("the jobs are over", || jobs.iter().all(|&job| place.job(job).is_none()));
        wait_until("nothing is left", || caller.groups_below() == 0);
    });
}

#[test]
fn needs_root_job_in_frozen_group_begins_once_thawed() {
    with_each_backend(&[], |place| {
        let Some(caller) = CallersGroup::new("frozen") else { return };
        let programs = [caller.start(), caller.start()];
        caller.0.freeze(true).unwrap();
        wait_until("it is frozen", || caller.0.is_frozen().unwrap());
        let [job, moved] = programs.each_ref().map(|program| job_with(&place, program, 1));
        // One leaves while both stand still.
        place.client().remove_process(moved, programs[1].pid_i64()).unwrap();
        wait_until("a job is over", || place.job(moved).is_none());
        caller.0.freeze(false).unwrap();
        wait_until("slots", || place.job(job).unwrap().slots > 3);
        assert_eq!(place.client().check().unwrap().violations, []);
    });
}

/// A group whose jobs leave it: it is named as one of another daemon's jobs.
fn that_jobs_leave(number: u32) -> Option<CallersGroup> {
    let root = Hierarchies::detect(&Roots::default()).unwrap().v2;
    if root.is_none() {
        skipped("no cgroups of version 2");
    }
    let group = Group::at(root?).child(format!("caller.job-{}{number}", std::process::id()));
    group.create().unwrap();
    Some(CallersGroup(group))
}

#[test]
fn needs_root_kill_of_group_reaches_jobs_that_left() {
    with_each_backend(&[], |place| {
        let Some(caller) = that_jobs_leave(1) else { return };
        let program = caller.start();
        let job = job_with(&place, &program, 1);
        if place.job(job).unwrap().cgroup.is_none() {
            return;
        }
        assert!(!is_below(&place, job, &caller));
        wait_until("slots", || place.job(job).unwrap().slots > 3);
        let state = || place.job(job).unwrap().state;
        caller.0.freeze(true).unwrap();
        wait_until("it is suspended", || state() == JobState::suspended);
        caller.0.freeze(false).unwrap();
        wait_until("it goes on", || state() != JobState::suspended);
        let asked = caller.0.processes().unwrap();
        assert_eq!(asked.len(), 1);
        let deputy = Pid::from_raw(asked[0] as i32).unwrap();
        // As a batch system stops the processes of its group.
        kill_process(deputy, Signal::STOP).unwrap();
        wait_until("it stands still with them", || state() == JobState::suspended);
        kill_process(deputy, Signal::CONT).unwrap();
        wait_until("it goes on with them", || state() != JobState::suspended);
        // As a service manager asks the processes of its group to end.
        kill_process(deputy, Signal::WINCH).unwrap();
        kill_process(deputy, Signal::USR1).unwrap();
        wait_until("the program got it, too", || place.job(job).is_none());
        wait_until("nobody stays", || caller.0.processes().unwrap().is_empty());
        let programs = [caller.start(), caller.start()];
        let jobs = programs.each_ref().map(|program| job_with(&place, program, 1));
        caller.0.write("cgroup.kill", "1").unwrap();
        wait_until("all are killed", || jobs.iter().all(|&job| place.job(job).is_none()));
    });
}

/// The process that stays in a group for a job that left it.
fn deputy_in(caller: &CallersGroup) -> u32 {
    wait_until("somebody stays", || caller.0.processes().unwrap().len() == 1);
    caller.0.processes().unwrap()[0]
}

#[test]
fn needs_root_who_stays_in_a_group_has_no_rights() {
    const OTHER: u32 = 65_534;
    if !has_backend("rt") || !are_built(&["gang"]) {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    place.copy_programs(&["gang"]);
    place.open_to_everybody(0o755);
    let Some(caller) = that_jobs_leave(3) else { return };
    let mut called = place.command("sh");
    called
        .args(["-c", "echo $$ >$0/cgroup.procs && exec setpriv --clear-groups \"$@\""])
        .arg(caller.path())
        .args(["--reuid=65534", "--regid=65534"])
        .arg(place.path("gang"))
        .args(["run", "-q", "-n", "1", "--", "sh", "-c", "trap '' USR2; exec sleep 1000"])
        .current_dir("/");
    let program = Program::start(&mut called);
    wait_until("it is a job, and has left", || {
        let left = caller.0.processes().unwrap().iter().all(|&pid| pid != program.pid());
        place.jobs().iter().any(|job| job.processes > 0) && left
    });
    let deputy = deputy_in(&caller);
    let of_it = |name: &str| fs::read_to_string(format!("/proc/{deputy}/{name}")).unwrap();
    // It has started as the daemon does.
    wait_until("it is the owner's", || {
        of_it("status").contains("Uid:\t65534\t65534\t65534\t65534")
    });
    for limit in ["Max realtime priority", "Max nice priority", "Max locked memory"] {
        let limits = of_it("limits");
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        let values: Vec<&str> = line[limit.len()..].split_whitespace().take(2).collect();
        assert_eq!(values, ["0", "0"], "{line}");
    }
    assert!(of_it("status").contains("CapEff:\t0000000000000000"), "{}", of_it("status"));
    // The kernel asks the same to read where it was executed from as to trace it (ptrace(2)).
    let as_owner = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).uid(OTHER).gid(OTHER).stderr(Stdio::null());
        command.status().unwrap().success()
    };
    assert!(as_owner("readlink", &[&format!("/proc/{}/exe", program.pid())]), "its own program");
    assert!(!as_owner("readlink", &[&format!("/proc/{deputy}/exe")]), "who stays in its group");
    // Its owner may end it, as often as he likes, and another one comes.
    let mut before = deputy;
    for _ in 0..20 {
        // It is root's for a moment.
        wait_until("its owner ends it", || as_owner("kill", &["-USR2", &before.to_string()]));
        wait_until("another one stays", || {
            let now = caller.0.processes().unwrap();
            now.len() == 1 && now[0] != before
        });
        before = deputy_in(&caller);
    }
    let [job] = &place.client().list_jobs().unwrap().jobs[..] else { panic!("no single job") };
    let last = deputy_in(&caller).to_string();
    wait_until("its owner ends it", || as_owner("kill", &["-USR1", &last]));
    wait_until("its program has ended with it", || place.job(job.id).is_none());
    wait_until("nobody stays", || caller.0.processes().unwrap().is_empty());
}

#[test]
fn needs_root_job_follows_its_group_unless_ordered() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let Some(caller) = that_jobs_leave(4) else { return };
    let program = caller.start();
    let job = job_with(&place, &program, 1);
    let state = |place: &Place| place.job(job).unwrap().state;
    let frozen = |caller: &CallersGroup, is_frozen: bool| {
        caller.0.freeze(is_frozen).unwrap();
        wait_until("it is so", || caller.0.is_frozen().unwrap() == is_frozen);
    };
    // A person suspends it, before and while the group stands still.
    place.client().suspend(job).unwrap();
    frozen(&caller, true);
    place.client().suspend(job).unwrap();
    frozen(&caller, false);
    let other = Program::spinner();
    let beside = job_with(&place, &other, 1);
    wait_until("many plans later", || place.job(beside).unwrap().slots > 20);
    assert_eq!(state(&place), JobState::suspended);
    place.client().resume(job).unwrap();
    wait_until("it goes on", || state(&place) != JobState::suspended);
    // The group goes on while there is no daemon.
    frozen(&caller, true);
    wait_until("it stands still with the group", || state(&place) == JobState::suspended);
    place.kill();
    frozen(&caller, false);
    place.start();
    wait_until("it goes on with the group", || {
        place.job(job).is_some_and(|job| job.state != JobState::suspended)
    });
    assert_eq!(place.client().check().unwrap().violations, []);
    drop(program);
    wait_until("nobody stays", || caller.0.processes().unwrap().is_empty());
}

#[test]
fn needs_root_nobody_stays_in_group_of_dead_daemon() {
    if !has_backend("rt") {
        return;
    }
    let Some(caller) = that_jobs_leave(2) else { return };
    let mut place = Place::new(&["--backend", "rt"]);
    let program = caller.start();
    let job = job_with(&place, &program, 1);
    wait_until("somebody stays", || !caller.0.processes().unwrap().is_empty());
    place.kill();
    wait_until("nobody does", || caller.0.processes().unwrap().is_empty());
    place.start();
    wait_until("somebody does again", || !caller.0.processes().unwrap().is_empty());
    place.client().remove_process(job, program.pid_i64()).unwrap();
    wait_until("only the program", || caller.0.processes().unwrap() == [program.pid()]);
}

#[test]
fn needs_root_job_below_caller_outlives_daemon() {
    with_each_backend(&[], |mut place| {
        let Some(caller) = CallersGroup::new("daemon") else { return };
        let program = caller.start();
        let job = job_with(&place, &program, 1);
        if place.job(job).unwrap().cgroup.is_none() {
            return;
        }
        let group = group_of(&place, job);
        place.kill();
        wait_released(program.pid(), "released");
        place.start();
        assert_eq!(group_of(&place, job), group, "the next daemon finds it there");
        wait_until("slots", || place.job(job).unwrap().slots > 3);
        place.client().shutdown().unwrap();
        wait_until("the group is gone", || caller.groups_below() == 0);
        assert!(groups_of(program.pid()).contains(&caller.path().to_owned()));
    });
}

#[test]
fn needs_root_empty_group_of_a_caller_stays() {
    if !has_backend("rt") {
        return;
    }
    let Some(caller) = CallersGroup::new("empty") else { return };
    let mut place = Place::new(&["--backend", "rt"]);
    let program = caller.start();
    job_with(&place, &program, 1);
    place.kill_daemon_and_guardian();
    drop(program);
    place.release(&[]);
    assert!(caller.path().exists(), "it is its owner's");
    assert_eq!(caller.groups_below(), 0);
}

/// A group of version 1 whose processes have a fifth of a CPU; absent where there is none.
fn with_quota(name: &str) -> Option<CallersGroup> {
    let v1 = Hierarchies::detect(&Roots::default()).unwrap().v1;
    let root = v1.get("cpu").filter(|root| root.join("cpu.cfs_quota_us").exists());
    if root.is_none() {
        skipped("no cpu controller of version 1 with quotas");
    }
    let group = CallersGroup::below(root?, name);
    group.0.write("cpu.cfs_quota_us", "20000").unwrap();
    Some(group)
}

/// How often the processes of a group had used up their quota.
fn throttled(caller: &CallersGroup) -> u64 {
    let text = caller.0.read("cpu.stat").unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
    count.unwrap().parse().unwrap()
}

#[test]
fn needs_root_quota_of_a_caller_binds_the_job() {
    if !has_backend("rt") {
        return;
    }
    let Some(caller) = with_quota("quota") else { return };
    let place = Place::new(&["--backend", "rt"]);
    let (limited, other) = (caller.start(), Program::spinner());
    let [job, beside] = [&limited, &other].map(|program| job_with(&place, program, 1));
    wait_until("slots of the other one", || place.job(beside).unwrap().slots > 3);
    wait_until("slots", || place.job(job).unwrap().slots > 3);
    let before = (throttled(&caller), place.job(job).unwrap().slots);
    wait_until("the quota is used up in slots", || {
        assert_eq!(policies(limited.pid()).into_iter().find(|it| *it == SchedPolicy::Fifo), None);
        assert!(groups_of(limited.pid()).contains(&caller.path().to_owned()), "it stays there");
        throttled(&caller) > before.0 + 3 && place.job(job).unwrap().slots > before.1 + 3
    });
    // A fifth of a CPU is a slot in every fifth slice, and one at once.
    let quota = place.job(job).unwrap().cpu_quota.unwrap();
    assert_eq!((quota.cpus, quota.by.contains("cpu.cfs_quota_us of /")), (0.2, true));
    let had = |job: i64| place.job(job).unwrap().slots;
    let (began, before) = (Instant::now(), had(job));
    wait_until("slots within the quota", || had(job) > before + 5);
    let (slots, slice_ns) = ((had(job) - before) as f64, place.status().slice_ns as f64);
    let slices = began.elapsed().as_nanos() as f64 / slice_ns;
    assert!(slots <= slices / 5.0 + 2.0, "{slots} of {slices} slices");
    // Another one comes into the job of nobody whom the quota does not limit.
    let third = caller.start();
    match place.client().add_process(beside, third.pid_i64()).unwrap_err() {
        ClientError::NotPermitted { reason, .. } => {
            assert!(reason.contains("cpu.cfs_quota_us of /"), "{reason}");
        }
        error => panic!("{error}"),
    }
    place.client().remove_process(job, limited.pid_i64()).unwrap();
    wait_released(limited.pid(), "released");
}

#[test]
fn needs_root_quota_that_comes_later_binds_the_job() {
    if !has_backend("rt") {
        return;
    }
    let Some(caller) = with_quota("later") else { return };
    let limit = |quota_us: &str| caller.0.write("cpu.cfs_quota_us", quota_us).unwrap();
    limit("-1");
    let place = Place::new(&["--backend", "rt"]);
    let (program, other) = (caller.start(), Program::spinner());
    let [job, beside] = [&program, &other].map(|program| job_with(&place, program, 1));
    let is_raised = || policies(program.pid()).contains(&SchedPolicy::Fifo);
    let is_in_place = || groups_of(program.pid()).contains(&caller.path().to_owned());
    wait_until("raised in its slots", is_raised);
    if is_in_place() {
        return skipped("gangs do not give way by groups of the cpu controller");
    }
    limit("20000");
    wait_until("it is where it was called", is_in_place);
    let before = (throttled(&caller), place.job(job).unwrap().slots);
    wait_until("the quota is used up in slots", || {
        assert!(is_in_place() && !is_raised());
        throttled(&caller) > before.0 + 3 && place.job(job).unwrap().slots > before.1 + 3
    });
    assert!(place.job(job).unwrap().kept_by.unwrap().contains("cpu.cfs_quota_us"));
    limit("-1");
    wait_until("it leaves again", || !is_in_place());
    wait_until("raised again", is_raised);
    wait_until("slots of the other one", || place.job(beside).unwrap().slots > before.1);
    assert!(place.job(job).unwrap().kept_by.is_none());
    place.client().remove_process(job, program.pid_i64()).unwrap();
    wait_released(program.pid(), "released");
    assert!(is_in_place());
}

#[test]
fn needs_root_jobs_leave_a_quota_if_settings_say() {
    if !has_backend("rt") {
        return;
    }
    let Some(caller) = with_quota("always") else { return };
    let place = Place::configured("[cgroups]\nleave = \"always\"\n", &["--backend", "rt"]);
    let program = caller.start();
    job_with(&place, &program, 1);
    wait_until("raised", || policies(program.pid()).contains(&SchedPolicy::Fifo));
    assert!(!groups_of(program.pid()).contains(&caller.path().to_owned()));
    place.client().shutdown().unwrap();
    wait_until("back", || groups_of(program.pid()).contains(&caller.path().to_owned()));
}
