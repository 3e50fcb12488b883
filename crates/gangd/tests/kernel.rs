//! The daemon on the real kernel: it changes threads, and undoes that.

mod place;

use std::{collections::BTreeSet, fs, io::Write, path::Path, process::Command};

use gang_harness::skipped;
use gang_linux::{
    clock,
    sched::{self, SchedPolicy},
};
use gang_protocol::{
    client::{Change, Client, Registration},
    v1,
};
use place::{
    Place, Program, SPIN, gives_way, has_backend, is_root, job_with, machine, patient_client,
    policies, registration, wait_for, wait_released, wait_until, what_is_left,
};

#[test]
fn needs_root_gang_is_raised_in_slot_and_fills_else() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let (one, other) = (Program::spinner(), Program::spinner());
    for program in [&one, &other] {
        job_with(&place, program, machine());
    }
    for program in [&one, &other] {
        wait_until("raised", || policies(program.pid()).contains(&SchedPolicy::Fifo));
        let fills = |policy: &SchedPolicy| matches!(policy, SchedPolicy::Idle | SchedPolicy::Batch);
        wait_until("filling", || policies(program.pid()).iter().any(fills));
    }
    let check = place.client().check().unwrap();
    assert_eq!(check.violations, []);
    assert!(check.checked > 1);
}

#[test]
fn needs_root_affinity_is_restored_after_a_slot() {
    if !is_root() {
        return;
    }
    if machine() < 2 {
        skipped("a gang cannot be narrower than a machine of one CPU");
        return;
    }
    for backend in ["rt", "weight"] {
        if !has_backend(backend) {
            continue;
        }
        let mut place = Place::new(&["--backend", backend]);
        let programs = [Program::spinner(), Program::spinner(), Program::spinner()];
        let affinity = |program: &Program| sched::affinity(program.pid()).unwrap();
        let anywhere = affinity(&programs[0]);
        let are = |what: &str, pinned: bool| {
            wait_until(what, || {
                programs.iter().all(|program| {
                    let now = affinity(program);
                    if pinned { now.len() == 1 } else { now == anywhere }
                })
            });
        };
        for program in &programs {
            job_with(&place, program, 1);
        }
        are("kept to the CPUs of their slots", true);
        place.kill();
        are("anywhere, after a kill", false);
        place.start();
        are("kept to them by the next daemon", true);
        place.client().shutdown().unwrap();
        are("anywhere, after a stop", false);
    }
}

#[test]
fn needs_root_restarted_daemon_finds_its_jobs() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let (running, suspended) = (Program::spinner(), Program::spinner());
    let (first, second) = (job_with(&place, &running, 1), job_with(&place, &suspended, 1));
    place.client().suspend(second).unwrap();
    place.kill();
    wait_released(running.pid(), "released");
    place.start();
    let found = place.job(first).unwrap();
    assert_eq!((found.name.as_str(), found.cpus, found.processes > 0), ("job", 1, true));
    assert_eq!(place.job(second).unwrap().state, v1::JobState::suspended);
    wait_until("raised again", || policies(running.pid()).contains(&SchedPolicy::Fifo));
    let third = job_with(&place, &Program::spinner(), 1);
    assert!(third > second, "ids are not used again");
}

#[test]
fn needs_root_a_daemon_that_ends_leaves_no_trace() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let program = Program::spinner();
    let home = fs::read_to_string(format!("/proc/{}/cgroup", program.pid())).unwrap();
    let job = job_with(&place, &program, machine());
    wait_until("raised", || policies(program.pid()).contains(&SchedPolicy::Fifo));
    let group = place.job(job).unwrap().cgroup.unwrap();
    place.client().shutdown().unwrap();
    wait_released(program.pid(), "released");
    wait_until("the group is gone", || !Path::new(&group).exists());
    assert_eq!(fs::read_to_string(format!("/proc/{}/cgroup", program.pid())).unwrap(), home);
    // But the configuration, and which number the next job has.
    wait_until("the files are gone", || {
        fs::read_dir(place.directory.path()).map_or(0, Iterator::count) == 2
    });
}

#[test]
fn needs_root_process_that_leaves_is_as_before() {
    for backend in ["rt", "signal"] {
        if !has_backend(backend) {
            continue;
        }
        let place = Place::new(&["--backend", backend]);
        let (one, other) = (Program::spinner(), Program::spinner());
        let job = job_with(&place, &one, 1);
        let home = |pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let before = home(other.pid());
        place.client().add_process(job, other.pid_i64()).unwrap();
        wait_until("slots", || place.job(job).unwrap().slots > 3);
        assert_eq!(place.job(job).unwrap().processes, 2);
        place.client().remove_process(job, other.pid_i64()).unwrap();
        assert_eq!(place.job(job).unwrap().processes, 1);
        wait_released(other.pid(), "released");
        assert_eq!(home(other.pid()), before);
        let slots = place.job(job).unwrap().slots;
        wait_until("more slots", || place.job(job).unwrap().slots > slots + 30);
        assert_eq!(what_is_left(other.pid()), None, "it is in no timetable any more");
        let again = place.client().remove_process(job, other.pid_i64()).unwrap_err();
        assert!(again.to_string().contains("no process"), "{again}");
        place.client().remove_process(job, one.pid_i64()).unwrap();
        wait_until("a job without a process ends", || place.job(job).is_none());
        wait_released(one.pid(), "released");
    }
}

#[test]
fn needs_root_changes_of_a_job_outlive_the_daemon() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let program = Program::spinner();
    let mut client = place.client();
    let job =
        client.register(&Registration { mem_bytes: Some(200 << 20), ..registration("job", 1) });
    let job = job.unwrap();
    client.add_process(job, program.pid_i64()).unwrap();
    let shown = place.job(job).unwrap();
    let has_memory = Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
    assert!(shown.is_memory_enforced() || !has_memory, "{shown:?}");
    assert_eq!(shown.promised_memory(), Some(200 << 20));
    client.set_class(job, v1::Class::standby).unwrap();
    let change =
        Change { cpus: Some(2), weight: Some(7), mem_bytes: Some(100 << 20), ..Change::default() };
    client.set(job, &change).unwrap();
    let wrong = client.set(job, &Change { min_cpus: Some(3), ..Change::default() }).unwrap_err();
    assert!(wrong.to_string().contains("min_cpus"), "{wrong}");
    place.kill();
    place.start();
    let found = place.job(job).unwrap();
    let (class, cpus, weight) = (found.class.clone(), found.cpus, found.weight);
    assert_eq!((class, cpus, weight), (v1::Class::standby, 2, 7));
    assert_eq!(
        (found.promised_memory(), found.is_memory_enforced()),
        (Some(100 << 20), shown.is_memory_enforced())
    );
    if shown.is_memory_enforced() && has_memory {
        let group = fs::read_to_string(format!("/proc/{}/cgroup", program.pid())).unwrap();
        let line = group.lines().find(|line| line.contains(":memory:")).unwrap().to_owned();
        let group = format!("/sys/fs/cgroup/memory{}", line.rsplit(':').next().unwrap());
        let limit = fs::read_to_string(format!("{group}/memory.limit_in_bytes")).unwrap();
        assert_eq!(limit.trim(), (100 << 20).to_string());
        drop(program);
        wait_until("the group is gone", || !Path::new(&group).exists());
    }
}

#[test]
fn needs_root_class_sets_the_length_of_slots() {
    if !has_backend("rt") {
        return;
    }
    let settings = "[classes.batch]\nslice = '80ms'\n";
    let place = Place::configured(settings, &["--backend", "rt", "--slice", "10ms"]);
    let (one, other) = (Program::spinner(), Program::spinner());
    let jobs = [&one, &other].map(|program| job_with(&place, program, machine()));
    let both_ns = clock::utc_ns() as i64;
    // The slices of each turn that began when both were there and whose end was seen.
    let mut turns = [BTreeSet::new(), BTreeSet::new()];
    wait_until("each has a turn of eight slices", || {
        let rows = place.client().frame(Some(both_ns)).unwrap().rows;
        let rows = rows.iter().filter(|row| row.start_ns > both_ns);
        // Turns of the rest of the machine may come between.
        let holders: Vec<i64> =
            rows.filter_map(|row| row.slots.first()).map(|slot| slot.job).collect();
        let spans: Vec<&[i64]> = holders.chunk_by(|one, next| one == next).collect();
        for span in spans.iter().take(spans.len().saturating_sub(1)).skip(1) {
            turns[usize::from(span[0] == jobs[1])].insert(span.len());
        }
        turns.iter().all(|lengths| lengths.contains(&8))
    });
    assert_eq!(turns, [BTreeSet::from([8]), BTreeSet::from([8])]);
    assert_eq!(place.client().check().unwrap().violations, []);
}

#[test]
fn needs_root_frame_reports_every_short_slice() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt", "--slice", "1ms"]);
    let (one, other) = (Program::spinner(), Program::spinner());
    let jobs = [&one, &other].map(|program| job_with(&place, program, machine()));
    let mut client = place.client();
    // Slices that are over at the time of the question, and do not change any more.
    let mut ended_since = |since_ns: i64| -> Vec<v1::Row> {
        let now_ns = clock::utc_ns() as i64;
        let rows = client.frame(Some(since_ns)).unwrap().rows;
        assert!(rows.iter().all(|row| row.end_ns > since_ns.min(now_ns)));
        rows.into_iter().filter(|row| row.end_ns <= now_ns).collect()
    };
    let since_ns = clock::utc_ns() as i64;
    // The daemon keeps the slices of two seconds. Where the test has no CPU for as long, slices
    // seen before are gone.
    let (seen, later, again) = wait_for("slices that are seen twice", || {
        let seen = ended_since(since_ns);
        let last = seen.last()?.slice;
        wait_until("a hundred more", || {
            ended_since(since_ns).last().is_some_and(|row| row.slice > last + 100)
        });
        let later = ended_since(since_ns);
        let again: Vec<v1::Row> = later.iter().filter(|row| row.slice <= last).cloned().collect();
        (!again.is_empty()).then_some((seen, later, again))
    });
    assert!(seen.ends_with(&again));
    assert!(later.windows(2).all(|pair| pair[0].slice < pair[1].slice));
    for job in jobs {
        assert!(later.iter().any(|row| row.slots.iter().any(|slot| slot.job == job)));
    }
    // A moment that nobody can mean is no error.
    assert!(!ended_since(-1).is_empty() && ended_since(i64::MAX).is_empty());
}

#[test]
fn needs_root_history_and_status_file_are_readable() {
    if !has_backend("rt") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/history.db");
    let settings = format!("status_file = true\n[history]\npath = {path:?}\n");
    let log = directory.path().join("log");
    let to_log = format!("exec \"$@\" 2>> '{}'", log.display());
    let mut place = Place::launched(&["sh", "-c", &to_log, "sh"], &settings, &["--backend", "rt"]);
    let program = Program::spinner();
    let job = job_with(&place, &program, 1);
    let status = place.directory.path().join("status.json");
    let running = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        read["jobs"][0]["state"] == "running" && !read["frame"].as_array().unwrap().is_empty()
    };
    wait_until("the status file shows the job", running);
    wait_until("it used CPU", || place.job(job).unwrap().cpu_time_ns > 0);
    drop(program);
    wait_until("it is in the history", || {
        let ended = place.client().history(10, None, None).unwrap().jobs;
        ended.len() == 1 && ended[0].id == job && ended[0].cpu_time_ns > 0 && ended[0].slots > 0
    });
    assert_eq!(place.client().history(10, Some(7), None).unwrap().jobs, []);
    // The change outlives the daemon; and settings are read again by a signal.
    place.client().shutdown().unwrap();
    wait_until("the status file is gone", || !status.exists());
    place.start();
    assert_eq!(place.client().history(10, None, None).unwrap().jobs.len(), 1);
    let configure = |text: &str| {
        let file = place.directory.path().join("gangd.toml");
        fs::write(file, format!("{settings}{text}")).unwrap();
        let daemon = place.status().pid;
        let daemon = rustix::process::Pid::from_raw(daemon as i32).unwrap();
        rustix::process::kill_process(daemon, rustix::process::Signal::HUP).unwrap();
    };
    configure("[classes.batch]\nweight = 70\nslice = '40ms'\n");
    wait_until("the new weight", || place.status().batch_weight == 70);
    let slice_of = |class: v1::Class| {
        let slices = place.status().class_slices;
        slices.into_iter().find(|of| of.class == class).map(|of| of.slice_ns)
    };
    assert_eq!(slice_of(v1::Class::batch), Some(40_000_000));
    assert_eq!(slice_of(v1::Class::interactive), Some(place.status().slice_ns));
    configure("[classes.batch]\nweight = 0\n");
    wait_until("a wrong file was read", || {
        fs::read_to_string(&log).unwrap().contains("the configuration stays as it was")
    });
    assert_eq!(place.status().batch_weight, 70, "a wrong file changes nothing");
}

#[test]
fn needs_root_gangs_take_turns_by_weight() {
    if !has_backend("weight") {
        return;
    }
    let mut place = Place::new(&["--backend", "weight", "--slice", "50ms"]);
    let (one, other) = (Program::spinner(), Program::spinner());
    for program in [&one, &other] {
        job_with(&place, program, machine());
    }
    // Where its cpu controller is: of version 1, or of version 2.
    let group = |program: &Program| {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", program.pid())).unwrap();
        let of = |controller: &str| {
            let line = text.lines().find(|line| line.split(':').nth(1) == Some(controller));
            line.map(|line| line.rsplit(':').next().unwrap().to_owned())
        };
        let v1 = of("cpu").or(of("cpu,cpuacct")).map(|path| format!("/sys/fs/cgroup/cpu{path}"));
        v1.unwrap_or_else(|| format!("/sys/fs/cgroup{}", of("").unwrap()))
    };
    let idle = |program: &Program| {
        fs::read_to_string(format!("{}/cpu.idle", group(program))).unwrap().trim() == "1"
    };
    for wanted in [true, false, true] {
        wait_until("turns", || (idle(&one), idle(&other)) == (wanted, !wanted));
    }
    let of_thread = |policy: &SchedPolicy| *policy == SchedPolicy::Other;
    assert!(policies(one.pid()).iter().all(of_thread), "its threads are left alone");
    let check = place.client().check().unwrap();
    assert_eq!(check.violations, []);
    let was = group(&one);
    place.kill();
    wait_until("both as everybody", || !gives_way(one.pid()) && !gives_way(other.pid()));
    place.start();
    wait_until("turns again", || idle(&one) != idle(&other));
    place.client().shutdown().unwrap();
    wait_until("back where it was", || group(&one) != was && !Path::new(&was).exists());
}

#[test]
fn needs_root_process_of_new_session_stays_in_job() {
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    // The test's end does not reach it, so that it ends by itself in the end.
    let program = Program::shell("read go; (setsid setsid sleep 1000 &) ; exit 0");
    let job = job_with(&place, &program, 1);
    let mut program = program;
    program.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    program.0.wait().unwrap();
    let alone = || place.job(job).expect("the job lives on in what it left behind").processes == 1;
    wait_until("the one that left is alone in the job", alone);
    place.client().kill(job, 9).unwrap();
    wait_until("the job has ended", || place.job(job).is_none());
    // The job's groups are cleared away after its end, so that other clients are served meanwhile.
    wait_until("nothing of it is on file", || place.jobs_on_file() == 0);
}

#[test]
fn needs_root_children_of_slot_switch_and_release() {
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    // Children that leave their session at once, and whose parents end; threads; and spinners that
    // take the CPUs.
    let threads = "import threading, time\n\
        for _ in range(20):\n threading.Thread(target=time.sleep, args=(1000,)).start(); time.sleep(.02)";
    let has_python = Path::new("/usr/bin/python3").exists();
    if !has_python {
        skipped("no /usr/bin/python3 to start threads");
    }
    let threads =
        if has_python { format!("/usr/bin/python3 -c '{threads}' &") } else { String::new() };
    let mut program = Program::shell(&format!(
        "read go; {threads} i=0; while [ $i -lt 20 ]; do i=$((i+1)); sleep 0.02; \
         (setsid setsid sleep 1000 &) ; done; exec bash -c '{SPIN}'"
    ));
    let job = job_with(&place, &program, 1);
    let rival = Program::spinner();
    job_with(&place, &rival, machine());
    program.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let group = place.job(job).unwrap().cgroup.unwrap();
    let numbers = |file: &str| -> Vec<u32> {
        let text = fs::read_to_string(format!("{group}/{file}")).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    // Forty that sleep, and those that started them.
    let wanted = if has_python { 42 } else { 21 };
    wait_until("all have been started", || numbers("cgroup.threads").len() >= wanted);
    let of_gang = |tid: &u32| {
        // The process that started the others ends meanwhile.
        sched::get(*tid).is_ok_and(|now| now.policy != SchedPolicy::Other)
    };
    wait_until("each stands as the gang does", || numbers("cgroup.threads").iter().all(of_gang));
    assert_eq!(place.client().check().unwrap().violations, []);
    let processes = numbers("cgroup.procs");
    assert!(processes.len() > 20, "{processes:?}");
    place.kill();
    for pid in processes {
        wait_released(pid, "released");
    }
    place.start();
    place.client().kill(job, 9).unwrap();
    wait_until("the job has ended", || place.job(job).is_none());
}

#[test]
fn needs_root_suspend_and_kill_reach_all_processes() {
    for backend in ["rt", "freeze", "signal"] {
        if !has_backend(backend) {
            continue;
        }
        let place = Place::new(&["--backend", backend]);
        let program = Program::shell("sleep infinity & sleep infinity & wait");
        let job = job_with(&place, &program, 1);
        let group = place.job(job).unwrap().cgroup.unwrap();
        let frozen =
            || fs::read_to_string(format!("{group}/cgroup.events")).unwrap().contains("frozen 1");
        place.client().suspend(job).unwrap();
        wait_until("frozen", frozen);
        place.client().resume(job).unwrap();
        wait_until("not frozen", || !frozen());
        place.client().kill(job, 15).unwrap();
        wait_until("the job has ended", || place.job(job).is_none());
    }
}

#[test]
fn needs_root_a_cgroup_is_adopted_and_stays() {
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let mounts = gang_linux::cgroup::Hierarchies::detect(&Default::default()).unwrap();
    let name = format!("gang-test-{}", std::process::id());
    let group = gang_linux::cgroup::Group::at(mounts.v2.unwrap()).child(&name);
    group.create().unwrap();
    let program = Program::sleeper();
    group.add(program.pid()).unwrap();
    let mut client = place.client();
    let reply = client
        .adopt(&registration("adopted", 1), &gang_protocol::client::Adopted::Cgroup(name.clone()))
        .unwrap();
    assert_eq!(reply.processes, 1);
    assert_eq!(place.job(reply.job).unwrap().processes, 1);
    // Its processes are in a job, so that nobody else has them.
    let again = [
        gang_protocol::client::Adopted::Cgroup(name.clone()),
        gang_protocol::client::Adopted::Process(program.pid_i64()),
    ];
    for again in again {
        let refused = client.adopt(&registration("again", 1), &again).unwrap_err();
        let names_job = refused.to_string().contains(&format!("in job {}", reply.job));
        assert!(names_job, "{refused:?}");
    }
    client.add_process(reply.job, program.pid_i64()).unwrap();
    assert_eq!(place.client().list_jobs().unwrap().jobs.len(), 1);
    drop(program);
    wait_until("the job has ended", || place.job(reply.job).is_none());
    assert!(group.exists(), "what was there before is there after");
    wait_until("the test's group can go", || group.remove().is_ok());
}

#[test]
fn needs_root_fork_bomb_spares_its_neighbour() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let neighbour = Program::spinner();
    let job = job_with(&place, &neighbour, machine());
    // Bounded: 400 processes at a time, for some seconds.
    let bomb = Program::shell(
        "read go; i=0; while [ $i -lt 4000 ]; do sleep 0.2 & i=$((i+1)); \
         [ $((i % 400)) -eq 0 ] && wait; done",
    );
    let bomb_job = job_with(&place, &bomb, 1);
    let mut bomb = bomb;
    bomb.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let before = place.job(job).unwrap().slots;
    wait_until("the neighbour has its slots", || place.job(job).unwrap().slots > before + 20);
    assert_eq!(place.client().check().unwrap().violations, []);
    place.client().kill(bomb_job, 9).unwrap();
    wait_until("the bomb has ended", || {
        let _ = place.client().kill(bomb_job, 9);
        place.job(bomb_job).is_none()
    });
}

#[test]
fn needs_root_a_job_of_policy_none_is_left_to_linux() {
    if !has_backend("rt") {
        return;
    }
    let place = Place::new(&["--backend", "rt"]);
    let program = Program::spinner();
    let mut client = place.client();
    let spec = Registration { policy: v1::Policy::none, ..registration("plain", 1) };
    let job = client.register(&spec).unwrap();
    client.add_process(job, program.pid_i64()).unwrap();
    wait_until("its time is counted", || place.job(job).unwrap().cpu_time_ns > 100_000_000);
    assert_eq!(what_is_left(program.pid()), None);
    assert_eq!(place.job(job).unwrap().slots, 0);
}

#[test]
fn needs_root_simultaneous_starts_share_one_daemon() {
    if !has_backend("freeze") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("gangd.sock");
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_gangd"))
            .args(["--exit-when-idle", "--backend", "freeze", "--socket"])
            .arg(&socket)
            .spawn()
            .unwrap()
    };
    let (mut one, mut other) = (start(), start());
    wait_until("one serves", || Client::connect(&socket).is_ok());
    // As long as it has a client, it does not end.
    let mut client = patient_client(&socket);
    let is_served = client.status().unwrap().status.pid;
    // The daemon waits long for a first job, and for others only a second.
    client.register(&registration("first", 1)).unwrap();
    let ended = || one.try_wait().unwrap().or(other.try_wait().unwrap());
    let ended = wait_for("the other one has ended", ended);
    assert!(ended.success());
    assert_eq!(client.status().unwrap().status.pid, is_served, "the first one serves on");
    drop(client);
    wait_until("both have ended", || {
        one.try_wait().unwrap().is_some() && other.try_wait().unwrap().is_some()
    });
}
