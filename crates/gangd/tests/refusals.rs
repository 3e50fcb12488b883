//! Requests that the daemon refuses, without any other client noticing.

mod place;

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
};

use gang_daemon::{are_built, copy};
use gang_protocol::{
    client::{Adopted, Change, Registration},
    error::ClientError,
    v1,
};
use place::{Place, Program, has_backend, job_with, patient_client, registration, wait_until};

/// A daemon that anybody can start.
fn place() -> Place {
    Place::new(&["--backend", "signal"])
}

fn invalid(error: ClientError) -> (String, String) {
    match error {
        ClientError::InvalidValue { parameter, value, .. } => (parameter, value),
        other => panic!("{other}"),
    }
}

#[test]
fn impossible_values_are_refused_with_bounds() {
    let place = place();
    let mut client = place.client();
    let mut refused = |cpus, min_cpus, weight| {
        let job = Registration { min_cpus, weight, ..registration("job", cpus) };
        invalid(client.register(&job).unwrap_err())
    };
    let two = |parameter: &str, value: &str| (parameter.to_owned(), value.to_owned());
    assert_eq!(refused(0, 1, 100), two("cpus", "0"));
    assert_eq!(refused(-1, 1, 100), two("cpus", "-1"));
    assert_eq!(refused(10_000, 1, 100), two("cpus", "10000"));
    assert_eq!(refused(8000, 8000, 100), two("min_cpus", "8000"));
    assert_eq!(refused(2, 3, 100), two("min_cpus", "3"));
    assert_eq!(refused(1, 1, 0), two("weight", "0"));
    assert_eq!(refused(1, 1, 10_001), two("weight", "10001"));
    let wide = client.register(&registration("wide", 8000)).unwrap();
    assert!(wide > 0, "a gang wider than the machine runs on what there is");
    let name = registration("a\nb", 1);
    assert_eq!(invalid(client.register(&name).unwrap_err()).0, "name");
}

#[test]
fn missing_things_are_named() {
    let place = place();
    let mut client = place.client();
    assert!(matches!(client.show_job(7), Err(ClientError::NoSuchJob { job: 7, .. })));
    assert!(matches!(client.kill(7, 15), Err(ClientError::NoSuchJob { .. })));
    assert!(matches!(client.suspend(7), Err(ClientError::NoSuchJob { .. })));
    let job = client.register(&registration("job", 1)).unwrap();
    let gone = 4_194_304 - 7;
    assert!(matches!(client.add_process(job, gone), Err(ClientError::NoSuchProcess { .. })));
    for wrong in [0, -1, 1 << 40] {
        assert_eq!(invalid(client.add_process(job, wrong).unwrap_err()).0, "pid");
    }
    assert_eq!(invalid(client.kill(job, 0).unwrap_err()).0, "signal");
    assert_eq!(invalid(client.kill(job, 65).unwrap_err()).0, "signal");
}

#[test]
fn progress_comes_from_the_owner_and_is_checked() {
    let place = place();
    let mut client = place.client();
    let job = client.register(&registration("job", 1)).unwrap();
    let progress = |place: &Place| {
        let job = place.job(job).unwrap();
        job.progress.map(|it| (it.done, it.total))
    };
    assert_eq!(progress(&place), None);
    client.set_progress(job, 1.5, 4.0).unwrap();
    assert_eq!(progress(&place), Some((1.5, 4.0)));
    for (done, total) in [(-1.0, 4.0), (5.0, 4.0), (0.0, 0.0), (f64::MAX, 1.0)] {
        let (parameter, value) = invalid(client.set_progress(job, done, total).unwrap_err());
        assert_eq!((parameter.as_str(), value), ("done", format!("{done} of {total}")));
    }
    // JSON writes null for these.
    for (done, total) in [(f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let error = client.set_progress(job, done, total).unwrap_err();
        assert!(matches!(error, ClientError::InvalidValue { .. }), "{error}");
    }
    for wrong in ["1e999", "\"1\"", "null", "{}"] {
        let call = format!(
            r#"{{"method":"org.gangd.v1.SetProgress","parameters":{{"job":{job},"done":{wrong},"total":1}}}}"#
        );
        let answer = place.raw(format!("{call}\0").as_bytes(), 1);
        assert!(answer.contains("\"error\""), "{wrong}: {answer}");
    }
    assert!(matches!(client.set_progress(job + 1, 0.0, 1.0), Err(ClientError::NoSuchJob { .. })));
    assert_eq!(progress(&place), Some((1.5, 4.0)), "what is refused changes nothing");

    // Without waiting: the next request has its own answer, and a refusal comes with a later
    // report.
    for done in 0..=100 {
        client.report_progress(job, f64::from(done), 100.0).unwrap();
    }
    assert_eq!(client.show_job(job).unwrap().details.id, job);
    wait_until("the last report is taken", || {
        client.report_progress(job, 100.0, 100.0).unwrap();
        progress(&place) == Some((100.0, 100.0))
    });
    wait_until("a refusal is reported", || {
        let outcome = client.report_progress(job + 1, 0.0, 1.0);
        assert!(outcome.is_ok() || matches!(outcome, Err(ClientError::NoSuchJob { .. })));
        outcome.is_err()
    });
    client.report_progress(job, 1.0, 100.0).unwrap();
}

#[test]
fn needs_root_cgroups_not_adoptable_have_own_reasons() {
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let mut client = place.client();
    let mut adopt = |cgroup: &str| {
        client.adopt(&registration("job", 1), &Adopted::Cgroup(cgroup.to_owned())).unwrap_err()
    };
    assert!(matches!(adopt("/no/such/cgroup"), ClientError::NoSuchCgroup { .. }));
    assert_eq!(invalid(adopt("/")).0, "cgroup");
    assert_eq!(invalid(adopt("../../etc")).0, "cgroup");
    // Files that a user could put there would be read as root.
    let trap = place.path("trap");
    std::fs::create_dir(&trap).unwrap();
    std::os::unix::fs::symlink("/dev/zero", trap.join("cgroup.procs")).unwrap();
    let up = "../".repeat(12);
    for path in [format!("{up}{}", trap.display()), format!("a/{up}{}", trap.display())] {
        assert_eq!(invalid(adopt(&path)).0, "cgroup");
    }
    assert_eq!(place.client().list_jobs().unwrap().jobs.len(), 0);
}

#[test]
fn missing_memory_is_refused_or_waited_for() {
    let place = place();
    let mut client = place.client();
    let memory = client.status().unwrap().status.memory;
    assert!(memory.total >= memory.free && memory.free > 0 && memory.promised == 0);
    let needs = |part: i64| Registration {
        mem_bytes: Some(memory.free / 10 * part),
        ..registration("needy", 1)
    };
    let first = client.register(&needs(6)).unwrap();
    let refused = client.register(&needs(6)).unwrap_err();
    assert!(
        matches!(&refused, ClientError::NotEnough { resource, promised, .. }
        if resource == "memory" && *promised == memory.free / 10 * 6),
        "{refused}"
    );
    let never = Registration { mem_bytes: Some(memory.total + 1), wait: true, ..needs(1) };
    let never = client.register(&never).unwrap_err();
    assert!(matches!(never, ClientError::NotEnough { .. }), "waiting would be in vain: {never}");
    let negative = Registration { mem_bytes: Some(-1), ..needs(1) };
    assert_eq!(invalid(client.register(&negative).unwrap_err()).0, "mem_bytes");
    // One waits and goes away, another one waits and is let in when the first job ends.
    let waits = Registration { wait: true, ..needs(6) };
    let socket = place.socket();
    let (waits, socket) = (&waits, &socket);
    let given_up = std::thread::scope(|threads| {
        let mut impatient = UnixStream::connect(socket).unwrap();
        let call = format!(
            r#"{{"method":"org.gangd.v1.Register","parameters":{{"name":"gone","cpus":1,"min_cpus":1,
            "class":"batch","policy":"gang","weight":100,"mem_bytes":{},"wait":true}}}}"#,
            memory.free / 10 * 6
        );
        impatient.write_all(call.as_bytes()).and_then(|()| impatient.write_all(b"\0")).unwrap();
        // Memory that fits is kept for the job that waits.
        wait_until("the one waits", || {
            matches!(place.client().register(&needs(2)), Err(ClientError::NotEnough { .. }))
        });
        wait_until("nobody else asks", || place.threads("client").len() == 2);
        let waiting = threads.spawn(move || {
            let mut client = patient_client(socket);
            let job = client.register(waits).unwrap();
            (client.show_job(job).unwrap().details.promised_memory(), waits.mem_bytes)
        });
        wait_until("the other one asks", || place.threads("client").len() == 3);
        assert_eq!(client.list_jobs().unwrap().jobs.len(), 1);
        drop(impatient);
        drop(client);
        waiting.join().unwrap()
    });
    assert_eq!(given_up.0, given_up.1);
    assert!(place.job(first).is_none());
    wait_until("all are gone", || place.client().list_jobs().unwrap().jobs.is_empty());
}

#[test]
fn missing_disk_is_refused_or_waited_for() {
    let place = place();
    let mut client = place.client();
    let disk = client.status().unwrap().status.disk;
    assert!(disk.total >= disk.free && disk.free > 0 && disk.promised == 0, "{disk:?}");
    let part = |tenths: i64| disk.free / 10 * tenths;
    let needs = |bytes| Registration { disk_bytes: Some(bytes), ..registration("needy", 1) };
    let first = client.register(&needs(part(6))).unwrap();
    assert_eq!(place.job(first).unwrap().disk_bytes, Some(part(6)));
    let refused = client.register(&needs(part(6))).unwrap_err();
    let ClientError::NotEnough { resource, wanted, free, promised, total, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!((resource.as_str(), *wanted), ("disk", part(6)));
    // Others write to the same disk meanwhile.
    assert_eq!((*promised, *total), (part(6), disk.total));
    assert!((0..=disk.total).contains(free), "{refused}");
    for (bytes, wait) in [(disk.total + 1, true), (i64::MAX, true), (i64::MAX, false)] {
        let never = client.register(&Registration { wait, ..needs(bytes) }).unwrap_err();
        assert!(
            matches!(never, ClientError::NotEnough { .. }),
            "waiting would be in vain: {never}"
        );
    }
    assert_eq!(invalid(client.register(&needs(-1)).unwrap_err()).0, "disk_bytes");
    let more = Change { disk_bytes: Some(disk.total), ..Change::default() };
    let refused = client.set(first, &more).unwrap_err();
    assert!(matches!(refused, ClientError::NotEnough { .. }), "{refused}");
    assert_eq!(place.status().disk.promised, part(6), "what is refused is not promised");
    // By the command line: a job that does not fit is not started, and one that waits is started
    // when it fits.
    if !are_built(&["gang"]) {
        return;
    }
    let gang = place.programs.join("gang");
    let wanted = part(6).to_string();
    let run = |words: &[&str]| {
        let mut command = Command::new(&gang);
        command.args(["run", "--disk", &wanted]).args(words).env("GANG_SOCKET", place.socket());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let output = run(&["--", "echo", "started"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), &b""[..]), "{said}");
    assert!(said.contains(" of disk are not there: "), "{said}");
    let mut waits = run(&["--wait", "--", "echo", "started"]).spawn().unwrap();
    let mut said = BufReader::new(waits.stderr.take().unwrap()).lines();
    let line = said.find_map(|line| line.ok().filter(|line| line.contains("waiting for ")));
    assert!(line.is_some_and(|line| line.contains(" of disk")), "it says that it waits");
    assert!(waits.try_wait().unwrap().is_none());
    client.set(first, &Change { disk_bytes: Some(0), ..Change::default() }).unwrap();
    let output = waits.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"started\n"[..]));
    wait_until("nothing is promised", || place.status().disk.promised == 0);
}

#[test]
fn a_process_is_in_one_job_at_a_time() {
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let program = Program::sleeper();
    let first = job_with(&place, &program, 1);
    let mut client = place.client();
    let second = client.register(&registration("second", 1)).unwrap();
    let refused = client.add_process(second, program.pid_i64());
    assert!(matches!(refused, Err(ClientError::NotPermitted { .. })), "{refused:?}");
    client.add_process(first, program.pid_i64()).expect("adding it again changes nothing");
}

#[test]
fn a_job_without_a_process_ends_with_its_connection() {
    let place = place();
    let mut client = place.client();
    let job = client.register(&registration("job", 1)).unwrap();
    assert_eq!(place.job(job).unwrap().state, v1::JobState::starting);
    drop(client);
    wait_until("the job is gone", || place.job(job).is_none());
}

#[test]
fn job_outlives_the_connection_that_registered_it() {
    let place = place();
    let (mut client, mut other) = (place.client(), place.client());
    let job = client.register(&registration("job", 1)).unwrap();
    let unstarted = client.register(&registration("unstarted", 1)).unwrap();
    let program = Program::sleeper();
    other.add_process(job, program.pid_i64()).unwrap();
    drop(client);
    wait_until("the other job is gone", || place.job(unstarted).is_none());
    assert!(place.job(job).is_some());
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let place = place();
    let mut client = place.client();
    let job = client.register(&registration("job", 1)).unwrap();
    let long = vec![b'x'; 70 * 1024];
    let parameters = b"{\"method\":\"org.gangd.v1.Register\",\"parameters\":[]}\0";
    assert!(place.raw(parameters, 1).contains("\"error\""));
    for garbage in [
        &b"\0"[..],
        b"GET / HTTP/1.1\r\n\r\n\0",
        b"{}\0",
        b"{\"method\":5}\0",
        b"\xff\xfe\0",
        &long,
    ] {
        // All that comes until the connection is closed.
        let answer = place.raw(garbage, usize::MAX);
        assert!(answer.is_empty() || answer.contains("\"error\""), "{answer}");
    }
    for (request, error) in [
        ("org.gangd.v1.NoSuchMethod", "MethodNotFound"),
        ("org.elsewhere.Method", "InterfaceNotFound"),
        ("org.gangd.v1.Kill", "InvalidParameter"),
    ] {
        let message = format!("{{\"method\":\"{request}\"}}\0");
        let answer = place.raw(message.as_bytes(), 1);
        assert!(answer.contains(error), "{request}: {answer}");
    }
    assert!(place.job(job).is_some());
    assert_eq!(client.list_jobs().unwrap().jobs.len(), 1, "the old connection works on");
}

/// Plays another user: the test program starts itself as one.
const AS_USER: &str = "GANG_TEST_AS_USER";

#[test]
fn needs_root_one_user_has_no_power_over_another() {
    if let Ok(socket) = std::env::var(AS_USER) {
        return other_user(&socket);
    }
    if !has_backend("freeze") {
        return;
    }
    use std::os::unix::process::CommandExt;
    let place = Place::configured("[limits]\ncpus_per_user = 1000\n", &["--backend", "freeze"]);
    let program = Program::sleeper();
    let job = job_with(&place, &program, 1);
    place.client().set_class(job, v1::Class::express).expect("administrators may raise");
    // Where the other user can reach it.
    place.open_to_everybody(0o755);
    let own = place.path("test");
    copy(&[std::env::current_exe().unwrap()], &own);
    let output = Command::new(own)
        .args(["--exact", "needs_root_one_user_has_no_power_over_another", "--nocapture"])
        .env(AS_USER, place.socket())
        .env("GANG_TEST_JOB", job.to_string())
        .env("GANG_TEST_PID", program.pid().to_string())
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(place.job(job).is_some());
}

fn other_user(socket: &str) {
    let number = |name: &str| std::env::var(name).unwrap().parse::<i64>().unwrap();
    let (job, pid) = (number("GANG_TEST_JOB"), number("GANG_TEST_PID"));
    let mut client = patient_client(socket.as_ref());
    let not_permitted = |result: Result<(), ClientError>| {
        assert!(matches!(result, Err(ClientError::NotPermitted { .. })), "{result:?}");
    };
    not_permitted(client.kill(job, 9));
    not_permitted(client.suspend(job));
    not_permitted(client.resume(job));
    not_permitted(client.shutdown());
    not_permitted(client.add_process(job, std::process::id().into()));
    not_permitted(client.remove_process(job, pid));
    not_permitted(client.set_class(job, v1::Class::standby));
    not_permitted(client.set(job, &Change { weight: Some(1), ..Change::default() }));
    not_permitted(client.set_signals(job, true));
    not_permitted(client.slot_page(job).map(drop));
    let own = client.register(&registration("own", 1)).unwrap();
    not_permitted(client.add_process(own, pid));
    not_permitted(client.add_process(own, 1));
    not_permitted(client.adopt(&registration("theirs", 1), &Adopted::Process(pid)).map(drop));
    // Not a word of what another's process has: it would be counted against what is wanted.
    let total = client.status().unwrap().status.memory.total;
    let all = Registration { mem_bytes: Some(total), ..registration("theirs", 1) };
    not_permitted(client.adopt(&all, &Adopted::Process(pid)).map(drop));
    let refused = client.register(&all).unwrap_err();
    assert!(matches!(refused, ClientError::NotEnough { .. }), "{refused}");
    let express = Registration { class: v1::Class::express, ..registration("first", 1) };
    not_permitted(client.register(&express).map(drop));
    let shown = client.show_job(job).unwrap();
    assert_eq!(shown.processes, None, "what others run is not shown");
    // Not this one: a job of class standby stands still while anybody else wants the CPUs.
    let sleeper = Program::sleeper();
    client.add_process(own, sleeper.pid_i64()).expect("one's own process");
    let wide = Change { cpus: Some(5000), min_cpus: Some(1), ..Change::default() };
    let limited = client.set(own, &wide).unwrap_err();
    assert!(matches!(limited, ClientError::LimitReached { maximum: 1000, .. }), "{limited}");
    client.set(own, &Change { cpus: Some(900), ..wide }).unwrap();
    not_permitted(client.set_class(own, v1::Class::express));
    not_permitted(client.set_class(own, v1::Class::interactive));
    client.set_class(own, v1::Class::standby).expect("one may lower one's own");
    not_permitted(client.set_class(own, v1::Class::batch));
}
