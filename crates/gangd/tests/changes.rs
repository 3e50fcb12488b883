//! Changes of a job while it runs, on the real kernel: its processes, its memory.

mod place;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::Barrier,
    thread,
};

use gang_harness::skipped;
use gang_linux::{process, sched};
use gang_protocol::{
    client::{Change, Client, Registration},
    error::ClientError,
    v1,
};
use place::{
    Place, Program, has_backend, is_root, job_with, registration, wait_released, wait_until,
    what_is_left, with_each_backend,
};
use rustix::process::{Pid, setpriority_process};

const MIB: i64 = 1 << 20;

fn groups_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()
}

/// CPU time of a process and all below it, in ticks.
fn used(pid: u32) -> u64 {
    let pids = process::descendants(Path::new("/proc"), pid).unwrap();
    let stats = pids.into_iter().filter_map(|pid| process::stat(Path::new("/proc"), pid).ok());
    stats.map(|stat| stat.cpu_ticks).sum()
}

#[test]
fn needs_root_process_leaves_stopped_job_and_runs_on() {
    for backend in ["rt", "freeze", "signal"] {
        if !has_backend(backend) {
            continue;
        }
        let place = Place::new(&["--backend", backend]);
        let stays = Program::spinner();
        let mut leaves = Program::shell("read go; sh -c 'while :; do :; done' & wait");
        let before = groups_of(leaves.pid());
        let job = job_with(&place, &stays, 2);
        let mut client = place.client();
        client.add_process(job, leaves.pid_i64()).unwrap();
        // Another gang for which this one has to make room.
        let rival = Program::spinner();
        job_with(&place, &rival, 2);
        client.suspend(job).unwrap();
        wait_until("suspended", || place.job(job).unwrap().state == v1::JobState::suspended);
        client.remove_process(job, leaves.pid_i64()).unwrap();
        assert_eq!(what_is_left(leaves.pid()), None, "{backend}: it has back what it had");
        assert_eq!(groups_of(leaves.pid()), before, "{backend}");
        assert_eq!(place.job(job).unwrap().processes, 1);
        leaves.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        wait_until("what it starts runs", || used(leaves.pid()) > 3);
        assert_eq!(
            what_is_left(leaves.pid()),
            None,
            "{backend}: its children follow it, not the job"
        );
        assert_eq!(place.job(job).unwrap().processes, 1);
        assert_eq!(place.client().check().unwrap().violations, []);
    }
}

#[test]
fn needs_root_processes_leave_a_running_gang() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let (stays, rival) = (Program::spinner(), Program::spinner());
    let (job, _) = (job_with(&place, &stays, 2), job_with(&place, &rival, 2));
    let mut client = place.client();
    for _ in 0..5 {
        // Starts threads' worth of short children all the time.
        let busy = Program::shell("while :; do (:) & (:); done");
        client.add_process(job, busy.pid_i64()).unwrap();
        let slots = place.job(job).unwrap().slots;
        wait_until("slots", || place.job(job).unwrap().slots > slots + 2);
        client.remove_process(job, busy.pid_i64()).unwrap();
        let slots = place.job(job).unwrap().slots;
        wait_until("more slots", || place.job(job).unwrap().slots > slots + 5);
        assert_eq!(what_is_left(busy.pid()), None, "no timetable has it, nor what it starts");
    }
    wait_until("one is left", || place.job(job).unwrap().processes == 1);
}

/// Two clients add a process each to a job that has none, at the same time, as parent and child do
/// after a fork. Either of them may be the first one.
fn add_two_first_processes(place: Place) {
    const ROUNDS: usize = 12;
    let programs = [5, 9].map(|nice| {
        let program = Program::shell("read end");
        setpriority_process(Pid::from_raw(program.pid() as i32), nice).unwrap();
        program
    });
    let seen = |program: &Program| (sched::get(program.pid()).unwrap(), groups_of(program.pid()));
    let before: Vec<_> = programs.iter().map(seen).collect();
    let mut client = place.client();
    for round in 0..ROUNDS {
        let job = client.register(&registration("two", 2)).unwrap();
        let start = Barrier::new(programs.len());
        thread::scope(|scope| {
            for program in &programs {
                let (mut client, start) = (place.client(), &start);
                scope.spawn(move || {
                    start.wait();
                    client.add_process(job, program.pid_i64()).unwrap();
                });
            }
        });
        assert_eq!(place.job(job).unwrap().processes, 2, "round {round}");
        assert_eq!(client.check().unwrap().violations, [], "round {round}");
        for (program, before) in programs.iter().zip(&before) {
            client.remove_process(job, program.pid_i64()).unwrap();
            assert_eq!(seen(program), *before, "round {round}: each has back what it had");
        }
        wait_until("the job has ended", || place.job(job).is_none());
    }
    wait_until("nothing is on file", || place.jobs_on_file() == 0);
}

#[test]
fn needs_root_two_first_processes_are_both_members() {
    with_each_backend(&[], add_two_first_processes);
}

/// The group of version 1 that limits the memory of a process, where there is one.
fn memory_group(pid: u32) -> Option<PathBuf> {
    let groups = groups_of(pid);
    let group = groups.lines().find_map(|line| line.split_once(":memory:"))?.1;
    Some(Path::new("/sys/fs/cgroup/memory").join(group.trim_start_matches('/')))
}

fn limit(group: &Path) -> i64 {
    let text = fs::read_to_string(group.join("memory.limit_in_bytes")).unwrap();
    text.trim().parse().unwrap()
}

/// Says what is skipped where memory cannot be limited in a hierarchy of version 1.
fn can_limit() -> bool {
    let can = is_root() && Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
    if !can {
        skipped("needs root and the memory controller of version 1");
    }
    can
}

fn with_memory(place: &Place, program: &Program, mib: i64) -> (Client, i64) {
    let mut client = place.client();
    let needy = Registration { mem_bytes: Some(mib * MIB), ..registration("needy", 1) };
    let job = client.register(&needy).unwrap();
    client.add_process(job, program.pid_i64()).unwrap();
    (client, job)
}

#[test]
fn needs_root_memory_is_limited_to_the_promise() {
    if !can_limit() || !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    // tail keeps a line whole, however long it is.
    let mut greedy =
        Program::shell("read go; head -c 300000000 /dev/zero | tail | wc -c; read end");
    let (mut client, job) = with_memory(&place, &greedy, 64);
    let shown = client.show_job(job).unwrap().details;
    assert_eq!((shown.is_memory_enforced(), shown.promised_memory()), (true, Some(64 * MIB)));
    let group = memory_group(greedy.pid()).unwrap();
    assert_eq!(limit(&group), 64 * MIB);
    greedy.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let killed = || {
        let text = fs::read_to_string(group.join("memory.oom_control")).unwrap();
        text.lines().any(|line| line.starts_with("oom_kill ") && line != "oom_kill 0")
    };
    wait_until("the kernel ends what takes more", killed);
    assert!(place.client().check().is_ok(), "nobody else is hit");
    drop(greedy);
    wait_until("the group is gone with the job", || !group.exists());
}

#[test]
fn needs_root_memory_limit_below_use_is_refused() {
    if !can_limit() || !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let script = "exec bash -c 'x=$(head -c 60000000 /dev/zero | tr \"\\0\" x); read y'";
    let program = Program::shell(script);
    let before = groups_of(program.pid());
    let (mut client, job) = with_memory(&place, &program, 1000);
    let shown = || place.job(job).unwrap();
    wait_until("it uses memory", || shown().used_memory().unwrap() > 60_000_000);
    let group = memory_group(program.pid()).unwrap();
    let to = |mib: i64| Change { mem_bytes: Some(mib * MIB), ..Change::default() };
    let refused = client.set(job, &to(16)).unwrap_err();
    assert!(refused.to_string().contains("memory.limit_in_bytes"), "{refused}");
    let unchanged = |shown: &v1::Job| (shown.promised_memory(), shown.is_memory_enforced());
    assert_eq!(unchanged(&shown()), (Some(1000 * MIB), true));
    assert_eq!(limit(&group), 1000 * MIB);
    client.set(job, &to(500)).unwrap();
    assert_eq!((limit(&group), unchanged(&shown())), (500 * MIB, (Some(500 * MIB), true)));
    // Without the schedule's consent nothing changes either.
    let wrong = Change { cpus: Some(1), min_cpus: Some(2), ..to(700) };
    assert!(client.set(job, &wrong).unwrap_err().to_string().contains("min_cpus"));
    assert_eq!((limit(&group), shown().promised_memory()), (500 * MIB, Some(500 * MIB)));
    let all = place.status().memory.total / MIB + 1;
    assert!(matches!(client.set(job, &to(all)), Err(ClientError::NotEnough { .. })));
    client.set(job, &to(0)).unwrap();
    assert!(limit(&group) > 1 << 50);
    assert_eq!(unchanged(&place.job(job).unwrap()), (None, false));
    client.set(job, &to(400)).unwrap();
    // Programs run on without limits when the daemon dies; the next one sets them again.
    place.kill();
    wait_until("lifted", || limit(&group) > 1 << 50);
    place.start();
    assert_eq!((limit(&group), place.job(job).unwrap().is_memory_enforced()), (400 * MIB, true));
    place.client().remove_process(job, program.pid_i64()).unwrap();
    assert_eq!(groups_of(program.pid()), before);
    wait_until("nothing is left", || !group.exists() && place.jobs_on_file() == 0);
}

#[test]
fn needs_root_memory_limit_comes_with_first_wish() {
    if !can_limit() || !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let program = Program::shell("sleep infinity & sleep infinity & wait");
    wait_until("all are there", || {
        process::descendants(Path::new("/proc"), program.pid()).unwrap().len() == 3
    });
    let pids = process::descendants(Path::new("/proc"), program.pid()).unwrap();
    let before = groups_of(pids[0]);
    let mut client = place.client();
    let adopted = gang_protocol::client::Adopted::Process(program.pid_i64());
    let job = client.adopt(&registration("adopted", 1), &adopted).unwrap();
    assert_eq!(job.processes, 3);
    assert_eq!(place.job(job.job).unwrap().promised_memory(), None);
    let change = Change { mem_bytes: Some(100 * MIB), ..Change::default() };
    client.set(job.job, &change).unwrap();
    let groups: Vec<_> = pids.iter().map(|&pid| memory_group(pid).unwrap()).collect();
    assert_eq!(limit(&groups[0]), 100 * MIB);
    assert!(groups.iter().all(|group| *group == groups[0]), "{groups:?}");
    client.shutdown().unwrap();
    wait_until("all is as before", || pids.iter().all(|&pid| groups_of(pid) == before));
    wait_until("the group is gone", || !groups[0].exists());
}

#[test]
fn needs_root_process_of_adopted_cgroup_stays_in_it() {
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let program = Program::sleeper();
    let (first, mut client) = (job_with(&place, &program, 1), place.client());
    let group = OwnGroup::beside(&place.job(first).unwrap().cgroup.unwrap(), "adopted");
    client.remove_process(first, program.pid_i64()).unwrap();
    group.take(&program);
    let name = group.0.file_name().unwrap().to_str().unwrap();
    let adopted = gang_protocol::client::Adopted::Cgroup(name.to_owned());
    let job = client.adopt(&registration("adopted", 1), &adopted).unwrap().job;
    let refused = client.remove_process(job, program.pid_i64()).unwrap_err();
    assert!(refused.to_string().contains("move the process to another one"), "{refused}");
    assert_eq!(place.job(job).unwrap().processes, 1);
    drop(program);
    wait_until("the job ends", || place.job(job).is_none());
    assert!(group.0.exists(), "it was there before the job");
}

/// A group of the unified hierarchy; it is removed when this is dropped.
struct OwnGroup(PathBuf);

impl OwnGroup {
    fn beside(cgroup: &str, name: &str) -> OwnGroup {
        let root = Path::new(cgroup).ancestors().nth(2).unwrap();
        let group = root.join(format!("gangd-test-{name}-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        OwnGroup(group)
    }

    fn take(&self, program: &Program) {
        fs::write(self.0.join("cgroup.procs"), program.pid().to_string()).unwrap();
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn needs_root_processes_go_back_to_their_origins() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let first = Program::shell("exec nice -n 10 sleep infinity");
    let nice = |program: &Program| sched::get(program.pid()).unwrap().nice;
    wait_until("it is nice", || nice(&first) == 10);
    let job = job_with(&place, &first, 2);
    let group = OwnGroup::beside(&place.job(job).unwrap().cgroup.unwrap(), "home");
    let (leaves, stays) = (Program::spinner(), Program::spinner());
    for program in [&leaves, &stays] {
        group.take(program);
        place.client().add_process(job, program.pid_i64()).unwrap();
    }
    let homes = [&first, &leaves, &stays].map(|program| groups_of(program.pid()));
    assert!(homes.iter().all(|group| *group == homes[0]), "all are in the job");
    let slots = place.job(job).unwrap().slots;
    wait_until("slots", || place.job(job).unwrap().slots > slots + 10);
    assert_eq!((nice(&leaves), nice(&stays)), (0, 0), "not as the first one has it");
    let name = group.0.file_name().unwrap().to_str().unwrap();
    let is_home = |program: &Program| groups_of(program.pid()).contains(name);
    place.client().remove_process(job, leaves.pid_i64()).unwrap();
    assert!(is_home(&leaves) && !is_home(&stays));
    assert_eq!((what_is_left(leaves.pid()), nice(&leaves)), (None, 0));
    // Another daemon knows it too.
    place.kill();
    place.start();
    place.client().shutdown().unwrap();
    wait_until("the other one is home", || is_home(&stays) && what_is_left(stays.pid()).is_none());
    wait_until("and the first", || !is_home(&first) && groups_of(first.pid()) != homes[0]);
    assert_eq!((nice(&stays), nice(&first)), (0, 10));
    // The group goes when nobody is in it any more.
    drop((leaves, stays));
}

#[test]
fn needs_root_policy_changes_to_none_and_back() {
    for backend in ["rt", "freeze", "signal"] {
        if !has_backend(backend) {
            continue;
        }
        let mut place = Place::new(&["--backend", backend]);
        // With a child, and one that comes later.
        let mut program = Program::shell(
            "sh -c 'while :; do :; done' & read go; sh -c 'while :; do :; done' & wait",
        );
        let before = groups_of(program.pid());
        let outside_cpu = |groups: &str| {
            groups
                .lines()
                .filter(|line| line.contains("cpu"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        wait_until("it has a child", || {
            process::descendants(Path::new("/proc"), program.pid()).unwrap().len() == 2
        });
        let mut client = place.client();
        let adopted = gang_protocol::client::Adopted::Process(program.pid_i64());
        let job = client.adopt(&registration("both", 1), &adopted).unwrap().job;
        // Another gang with which it takes turns.
        let rival = Program::spinner();
        job_with(&place, &rival, 2);
        wait_until("it has slots", || place.job(job).unwrap().slots > 5);

        client.set_policy(job, v1::Policy::none).unwrap();
        // The kernel takes a moment to thaw a group.
        wait_released(program.pid(), "it has back what it had");
        assert_eq!(outside_cpu(&groups_of(program.pid())), outside_cpu(&before), "{backend}");
        let shown = place.job(job).unwrap();
        assert_eq!((shown.policy, shown.processes), (v1::Policy::none, 2), "{backend}");
        program.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        wait_until("another child", || place.job(job).unwrap().processes == 3);
        assert_eq!(what_is_left(program.pid()), None, "{backend}: neither is its child a gang");
        // Twice is once.
        client.set_policy(job, v1::Policy::none).unwrap();

        client.set_policy(job, v1::Policy::gang).unwrap();
        let slots = place.job(job).unwrap().slots;
        wait_until("it has slots again", || place.job(job).unwrap().slots > slots + 5);
        assert_eq!(place.job(job).unwrap().processes, 3, "{backend}");
        assert_eq!(place.client().check().unwrap().violations, [], "{backend}");

        // The daemon's end releases either kind, and the next daemon knows which it was.
        client.set_policy(job, v1::Policy::none).unwrap();
        place.kill();
        place.start();
        assert_eq!(place.job(job).unwrap().policy, v1::Policy::none, "{backend}");
        place.client().set_policy(job, v1::Policy::gang).unwrap();
        place.kill();
        wait_released(program.pid(), "released");
    }
}

#[test]
fn needs_root_job_of_policy_none_shares_with_rest() {
    if !is_root() {
        return;
    }
    let place = Place::new(&[]);
    let (gang, plain) = (Program::spinner(), Program::spinner());
    job_with(&place, &gang, 2);
    let mut client = place.client();
    let none = Registration { policy: v1::Policy::none, ..registration("plain", 1) };
    let job = client.register(&none).unwrap();
    client.add_process(job, plain.pid_i64()).unwrap();
    wait_until("its thread counts with the rest", || place.status().unregistered_threads > 0);
}

#[test]
fn needs_root_a_change_is_made_whole_or_not_at_all() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let program = Program::spinner();
    let job = job_with(&place, &program, 1);
    let mut client = place.client();
    let terms = |job: v1::Job| {
        let mem_bytes = job.promised_memory();
        let v1::Job { class, policy, cpus, min_cpus, weight, disk_bytes, .. } = job;
        (class, policy, cpus, min_cpus, weight, mem_bytes, disk_bytes)
    };
    let before = terms(place.job(job).unwrap());
    let machine = place.status().cpus;
    let all = Change {
        class: Some(v1::Class::standby),
        policy: Some(v1::Policy::none),
        cpus: Some(machine + 1),
        min_cpus: Some(machine + 1),
        weight: Some(7),
        mem_bytes: Some(64 * MIB),
        disk_bytes: Some(1),
    };
    let more = place.status().memory.total + 1;
    for refused in [
        // More CPUs than there are, for a gang; fewer than it needs; more memory than there is.
        Change { policy: None, ..all.clone() },
        Change { policy: Some(v1::Policy::gang), ..all.clone() },
        Change { cpus: Some(1), ..all.clone() },
        Change { mem_bytes: Some(more), ..all.clone() },
    ] {
        client.set(job, &refused).unwrap_err();
        assert_eq!(terms(place.job(job).unwrap()), before, "{refused:?}");
    }
    client.set(job, &all).unwrap();
    let changed = |class, policy, cpus| (class, policy, cpus, cpus, 7, Some(64 * MIB), Some(1));
    let wide = changed(v1::Class::standby, v1::Policy::none, machine + 1);
    assert_eq!(terms(place.job(job).unwrap()), wide);
    // As a gang it must fit again, in the same request.
    let gang = Change { policy: Some(v1::Policy::gang), ..Change::default() };
    client.set(job, &gang).unwrap_err();
    assert_eq!(terms(place.job(job).unwrap()), wide);
    let (class, cpus) = (Some(v1::Class::batch), Some(1));
    client.set(job, &Change { class, cpus, ..gang }).unwrap();
    let narrow = changed(v1::Class::batch, v1::Policy::gang, 1);
    assert_eq!(terms(place.job(job).unwrap()), narrow);
    let slots = place.job(job).unwrap().slots;
    wait_until("it has slots again", || place.job(job).unwrap().slots > slots + 5);
    assert_eq!(place.client().check().unwrap().violations, []);
}
