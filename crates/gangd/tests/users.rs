//! Two users beside root, of whom neither may do anything to the other; and a third one, in the
//! group of administrators.
//!
//! The test program starts itself once more as each of them.

mod place;

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
};

use gang_harness::skipped;
use gang_protocol::{
    client::{Adopted, Change, Client, Decision, Registration},
    error::ClientError,
    v1,
};
use place::{
    Place, Program, has_backend, job_with, machine, patient_client, registration, wait_until,
    what_is_left,
};

/// Known to every machine, as daemon and nobody.
const ONE: u32 = 1;
const OTHER: u32 = 65_534;

/// Another one that every machine knows.
const THIRD: u32 = 2;

/// The part that this program plays; its arguments are other variables.
const PART: &str = "GANG_TEST_PART";

fn argument(name: &str) -> String {
    std::env::var(name).unwrap()
}

fn number(name: &str) -> i64 {
    argument(name).parse().unwrap()
}

fn client() -> Client {
    patient_client(argument("GANG_TEST_SOCKET").as_ref())
}

/// This test program as a user, where he can reach it.
fn as_user(place: &Place, uid: u32, test: &str, part: &str) -> Command {
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.directory.path(), everybody).unwrap();
    let copy = place.directory.path().join("test");
    if !copy.exists() {
        // By another process: one that is started meanwhile would keep it open for writing.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
        assert!(copied.unwrap().success());
    }
    let mut command = Command::new(copy);
    command
        .args(["--exact", test, "--nocapture"])
        .env(PART, part)
        .env("GANG_TEST_SOCKET", place.socket())
        .current_dir("/")
        .uid(uid)
        .gid(uid)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn succeeds(mut command: Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// A user with a job of his own; it ends when this is dropped.
struct User {
    child: Child,
    job: i64,
}

impl User {
    fn start(mut command: Command) -> User {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let job = lines
            .map_while(Result::ok)
            .find_map(|line| line.rsplit_once("job: ")?.1.parse().ok())
            .expect("the user has a job");
        User { child, job }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn not_permitted(result: Result<(), ClientError>) {
    assert!(matches!(result, Err(ClientError::NotPermitted { .. })), "{result:?}");
}

fn plays(part: &str) -> bool {
    std::env::var(PART).is_ok_and(|it| it == part)
}

/// Plays a user who minds his own business.
fn owner() {
    let mut client = client();
    let mine = Registration { class: v1::Class::interactive, ..registration("mine", 1) };
    let job = client.register(&mine).unwrap();
    client.add_process(job, std::process::id().into()).unwrap();
    println!("job: {job}");
    // Until it is killed.
    let _ = std::io::stdin().lines().next();
}

#[test]
fn needs_root_users_have_no_power_over_each_other() {
    const TEST: &str = "needs_root_users_have_no_power_over_each_other";
    if plays("owner") {
        return owner();
    }
    if plays("other_user") {
        return other_user();
    }
    if !has_backend("freeze") {
        return;
    }
    let place = Place::configured("[limits]\ncpus_per_user = 10\n", &["--backend", "freeze"]);
    let owner = User::start(as_user(&place, ONE, TEST, "owner"));
    let before = place.job(owner.job).unwrap();
    let mut other_user = as_user(&place, OTHER, TEST, "other_user");
    other_user
        .env("GANG_TEST_JOB", owner.job.to_string())
        .env("GANG_TEST_PID", owner.child.id().to_string());
    succeeds(other_user);
    let after = place.job(owner.job).unwrap();
    let asked = |job: &v1::Job| {
        (job.class.clone(), job.cpus, job.weight, job.promised_memory(), job.signals, job.processes)
    };
    assert_eq!(asked(&after), asked(&before), "nothing has changed");
    assert_eq!(after.owner_uid, i64::from(ONE));
    // Root may do it all, for its owner.
    let mut root = place.client();
    root.set_class(owner.job, v1::Class::express).unwrap();
    root.set(owner.job, &Change { weight: Some(7), ..Change::default() }).unwrap();
    root.remove_process(owner.job, owner.child.id().into()).unwrap();
    wait_until("it was the last", || place.job(owner.job).is_none());
}

fn other_user() {
    let (job, pid) = (number("GANG_TEST_JOB"), number("GANG_TEST_PID"));
    let mut client = client();
    let change = |change: Change| move |client: &mut Client| client.set(job, &change);
    not_permitted(client.kill(job, 15));
    not_permitted(client.suspend(job));
    not_permitted(client.set_progress(job, 1.0, 2.0));
    not_permitted(client.resume(job));
    not_permitted(client.remove_process(job, pid));
    not_permitted(client.set_class(job, v1::Class::standby));
    not_permitted(client.set_policy(job, v1::Policy::none));
    let decision = Decision {
        policy: v1::Policy::none,
        decided: true,
        gain: None,
        because: "another user says so".into(),
    };
    not_permitted(client.decide(job, decision));
    not_permitted(client.set_signals(job, true));
    not_permitted(client.slot_page(job).map(drop));
    not_permitted(client.add_process(job, std::process::id().into()));
    not_permitted(client.add_thread(job, std::process::id().into()));
    not_permitted(client.remove_thread(job, pid));
    not_permitted(change(Change { weight: Some(1), ..Change::default() })(&mut client));
    not_permitted(change(Change { mem_bytes: Some(1 << 20), ..Change::default() })(&mut client));
    let shown = client.show_job(job).unwrap();
    assert_eq!(shown.processes, None, "what others run is not shown");
    let own = client.register(&registration("own", 9)).expect("limits are each user's own");
    not_permitted(client.add_process(own, pid));
    not_permitted(client.add_thread(own, pid));
    not_permitted(client.adopt(&registration("theirs", 1), &Adopted::Process(pid)).map(drop));
    assert!(matches!(
        client.register(&registration("too many", 2)),
        Err(ClientError::LimitReached { maximum: 10, .. })
    ));
    // Nothing of what was refused is left over.
    let jobs = client.list_jobs().unwrap().jobs;
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [job, own]);
}

/// Of the arguments of every process that plays a part in this test.
const ARGUMENT: &str = "arguments_are_hidden_from_other_users";

/// Everything that anybody may ask the daemon, as it comes.
fn all_that_is_shown(job: i64) -> String {
    let calls = [
        ("ListJobs", "{}".to_owned()),
        ("ShowJob", format!("{{\"job\":{job}}}")),
        ("GetStatus", "{}".to_owned()),
        ("GetFrame", "{\"since_ns\":0}".to_owned()),
        ("GetSwitches", "{\"since_ns\":0}".to_owned()),
        ("GetHistory", "{}".to_owned()),
        ("Check", "{}".to_owned()),
    ];
    let mut stream = UnixStream::connect(argument("GANG_TEST_SOCKET")).unwrap();
    let mut all = Vec::new();
    for (method, parameters) in calls {
        let call =
            format!("{{\"method\":\"org.gangd.v1.{method}\",\"parameters\":{parameters}}}\0");
        stream.write_all(call.as_bytes()).unwrap();
        BufReader::new(&stream).read_until(0, &mut all).unwrap();
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// The text of all readable files below a directory, but for programs and the test's own.
fn all_that_lies_in(directory: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_ours = ["test", "gangd.toml"].map(Into::into).contains(&entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            all.push_str(&all_that_lies_in(&entry.path()));
        } else if kind.is_file() && !is_ours {
            let text = std::fs::read(entry.path()).unwrap_or_default();
            all.push_str(&String::from_utf8_lossy(&text));
        }
    }
    all
}

#[test]
fn needs_root_arguments_are_hidden_from_other_users() {
    const TEST: &str = "needs_root_arguments_are_hidden_from_other_users";
    if plays("owner") {
        return owner();
    }
    if plays("other_user") {
        let seen = all_that_is_shown(number("GANG_TEST_JOB"));
        assert!(seen.contains("\"mine\""), "it is shown: {seen}");
        let socket = argument("GANG_TEST_SOCKET");
        let files = all_that_lies_in(Path::new(&socket).parent().unwrap());
        assert!(files.contains("\"mine\""), "the status file has it: {files}");
        for secret in [ARGUMENT, PART, "GANG_TEST_"] {
            assert!(!seen.contains(secret), "{secret} in {seen}");
            assert!(!files.contains(secret), "{secret} in {files}");
        }
        return;
    }
    if !has_backend("freeze") {
        return;
    }
    assert!(TEST.contains(ARGUMENT));
    let history = tempfile::tempdir().unwrap();
    let settings =
        format!("status_file = true\n[history]\npath = {:?}\n", history.path().join("history.db"));
    let place = Place::configured(&settings, &["--backend", "freeze"]);
    let before = User::start(as_user(&place, ONE, TEST, "owner"));
    let ended = before.job;
    drop(before);
    let owner = User::start(as_user(&place, ONE, TEST, "owner"));
    wait_until("one of them has ended", || {
        let jobs = place.client().history(10, None, None).unwrap().jobs;
        jobs.iter().any(|job| job.id == ended)
    });
    let status = place.directory.path().join("status.json");
    wait_until("the other one is in the status file", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        text.contains(&format!("\"id\":{},", owner.job))
    });
    wait_until("its owner sees them", || {
        let shown = place.client().show_job(owner.job).unwrap().processes.unwrap();
        shown.iter().any(|process| process.command.contains(ARGUMENT))
    });
    let mut other_user = as_user(&place, OTHER, TEST, "other_user");
    other_user.env("GANG_TEST_JOB", owner.job.to_string());
    succeeds(other_user);
}

#[test]
fn needs_root_only_owner_sees_private_jobs() {
    const TEST: &str = "needs_root_only_owner_sees_private_jobs";
    if plays("owner") {
        return owner();
    }
    if plays("other_user") {
        return private_other_user();
    }
    if !has_backend("freeze") {
        return;
    }
    let history = tempfile::tempdir().unwrap();
    let path = history.path().join("history.db");
    let settings = format!("private = true\nstatus_file = true\n[history]\npath = {path:?}\n");
    let place = Place::configured(&settings, &["--backend", "freeze"]);
    drop(User::start(as_user(&place, OTHER, TEST, "owner")));
    drop(User::start(as_user(&place, ONE, TEST, "owner")));
    wait_until("both have ended", || {
        place.client().history(10, None, None).unwrap().jobs.len() == 2
    });
    let owner = User::start(as_user(&place, ONE, TEST, "owner"));
    let status = place.directory.path().join("status.json");
    let in_status = || std::fs::read_to_string(&status).is_ok_and(|text| text.contains("mine"));
    wait_until("the job is in the status file, which root can read", in_status);
    wait_until("the job is in plans", || {
        let rows = place.client().frame(Some(0)).unwrap().rows;
        rows.iter().any(|row| row.slots.iter().any(|slot| slot.job == owner.job))
    });
    let mut other_user = as_user(&place, OTHER, TEST, "other_user");
    other_user.env("GANG_TEST_JOB", owner.job.to_string());
    other_user.env("GANG_TEST_PID", owner.child.id().to_string());
    succeeds(other_user);
    assert_eq!(place.client().check().unwrap().violations, [], "root sees all");
    assert_eq!(place.status().jobs, 1);
}

/// Of jobs of others it learns nothing, not even which numbers they have.
fn private_other_user() {
    let (job, pid) = (number("GANG_TEST_JOB"), number("GANG_TEST_PID"));
    let mut client = client();
    assert_eq!(client.list_jobs().unwrap().jobs, []);
    assert_eq!(client.status().unwrap().status.jobs, 0);
    let rows = client.frame(Some(0)).unwrap().rows;
    assert!(!rows.is_empty() && rows.iter().all(|row| row.slots.is_empty()), "{rows:?}");
    let own = client.history(10, None, None).unwrap().jobs;
    assert!(matches!(&own[..], [one] if one.owner_uid == i64::from(OTHER)), "{own:?}");
    assert_eq!(client.history(10, Some(ONE.into()), None).unwrap().jobs, []);
    not_permitted(client.check().map(drop));
    let hidden = |result: Result<(), ClientError>| {
        assert!(matches!(result, Err(ClientError::NoSuchJob { .. })), "{result:?}");
    };
    hidden(client.show_job(job).map(drop));
    hidden(client.kill(job, 15));
    hidden(client.suspend(job));
    hidden(client.set_progress(job, 1.0, 2.0));
    hidden(client.set_class(job, v1::Class::standby));
    hidden(client.set_signals(job, true));
    hidden(client.slot_page(job).map(drop));
    hidden(client.add_process(job, std::process::id().into()));
    hidden(client.remove_process(job, pid));
    hidden(client.remove_thread(job, pid));
    let own = client.register(&registration("own", 1)).unwrap();
    assert_eq!(client.list_jobs().unwrap().jobs.iter().map(|it| it.id).collect::<Vec<_>>(), [own]);
    let seen = all_that_is_shown(job);
    let socket = argument("GANG_TEST_SOCKET");
    let files = all_that_lies_in(Path::new(&socket).parent().unwrap());
    for text in [&seen, &files] {
        assert!(!text.contains(&format!("\"owner_uid\":{ONE}")), "{text}");
    }
}

#[test]
fn needs_root_files_of_a_job_are_its_owners() {
    const TEST: &str = "needs_root_files_of_a_job_are_its_owners";
    if plays("owner") {
        let mut client = client();
        let job = client.register(&registration("mine", 1)).unwrap();
        let page = client.slot_page(job).unwrap();
        assert_eq!(std::fs::read(page).unwrap().len(), 4096);
        client.add_process(job, std::process::id().into()).unwrap();
        println!("job: {job}");
        let _ = std::io::stdin().lines().next();
        return;
    }
    if plays("reader") {
        assert_eq!(std::fs::read(argument("GANG_TEST_PAGE")).unwrap().len(), 4096);
        return;
    }
    if plays("other_user") {
        let refused = std::fs::read(argument("GANG_TEST_PAGE")).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        let directory = Path::new(&argument("GANG_TEST_PAGE")).parent().unwrap().to_owned();
        let refused = std::fs::read_dir(&directory).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        for name in ["1.json", "1.pins"] {
            let refused = std::fs::read(directory.join(name)).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{name}");
        }
        return;
    }
    if !has_backend("rt") {
        return;
    }
    let mut place = Place::new(&["--backend", "rt"]);
    let owner = User::start(as_user(&place, ONE, TEST, "owner"));
    let page = place.jobs_dir().join(format!("{}.page", owner.job));
    for _ in 0..2 {
        for (uid, part) in [(OTHER, "other_user"), (ONE, "reader")] {
            let mut user = as_user(&place, uid, TEST, part);
            user.env("GANG_TEST_PAGE", &page);
            succeeds(user);
        }
        place.kill();
        place.start();
    }
}

#[test]
fn needs_root_users_share_evenly_whatever_they_ask() {
    const TEST: &str = "needs_root_users_share_evenly_whatever_they_ask";
    if plays("many") {
        let mut client = client();
        let heavy = Registration { weight: 101, ..registration("heavy", machine()) };
        let error = client.register(&heavy).unwrap_err();
        assert!(error.to_string().contains("weights above 100"), "{error}");
        let programs = [(); 4].map(|()| Program::spinner());
        let jobs = programs.each_ref().map(|program| {
            let wanted = Registration {
                class: v1::Class::interactive,
                ..registration("one of many", machine())
            };
            let job = client.register(&wanted).unwrap();
            client.add_process(job, program.pid_i64()).unwrap();
            job
        });
        let change = Change { weight: Some(10_000), ..Change::default() };
        not_permitted(client.set(jobs[0], &change));
        println!("job: {}", jobs[0]);
        let _ = std::io::stdin().lines().next();
        return;
    }
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let program = Program::spinner();
    let mine = job_with(&place, &program, machine());
    let mut many = as_user(&place, OTHER, TEST, "many");
    // They end with the one who started them.
    many.process_group(0);
    let many = User::start(many);
    wait_until("four jobs of a user have as much as one of another", || {
        let jobs = place.client().list_jobs().unwrap().jobs;
        let share = |is_mine: bool| -> f64 {
            let jobs = jobs.iter().filter(|job| (job.id == mine) == is_mine);
            jobs.map(|job| job.share_wanted).sum()
        };
        jobs.len() == 5 && share(true) > 0.0 && (share(true) / share(false) - 1.0).abs() < 0.01
    });
    drop(many);
}

#[test]
fn needs_root_and_bpf_outside_threads_are_charged() {
    const TEST: &str = "needs_root_and_bpf_outside_threads_are_charged";
    if plays("quiet") || plays("loud") {
        let spinners = if plays("loud") { 6 } else { 0 };
        let _spinners: Vec<Program> = (0..spinners).map(|_| Program::spinner()).collect();
        let program = Program::spinner();
        let mut client = client();
        let job = client.register(&registration("gang", machine())).unwrap();
        client.add_process(job, program.pid_i64()).unwrap();
        println!("job: {job}");
        let _ = std::io::stdin().lines().next();
        return;
    }
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    wait_until("it is known whether anything is measured", || {
        place.status().measuring != v1::Measuring::starting
    });
    if let Some(reason) = place.status().not_measured {
        return skipped(format!("not measured: {reason}"));
    }
    let [quiet, loud] = [(ONE, "quiet"), (OTHER, "loud")].map(|(uid, part)| {
        let mut command = as_user(&place, uid, TEST, part);
        // They end with the one who started them.
        command.process_group(0);
        User::start(command)
    });
    // His gang and his other threads share his part, whatever else the machine does.
    wait_until("the gang of who has other threads, too, has less than another's", || {
        let jobs = place.client().list_jobs().unwrap().jobs;
        let share = |uid: u32| -> f64 {
            let of_user = jobs.iter().filter(|job| job.owner_uid == i64::from(uid));
            of_user.map(|job| job.share_wanted).sum()
        };
        jobs.len() == 2 && share(OTHER) > 0.0 && share(ONE) > 3.0 * share(OTHER)
    });
    drop((quiet, loud));
}

#[test]
fn needs_root_cgroup_of_foreign_processes_is_refused() {
    const TEST: &str = "needs_root_cgroup_of_foreign_processes_is_refused";
    if plays("other_user") {
        let (mut client, adopted) = (client(), Adopted::Cgroup(argument("GANG_TEST_GROUP")));
        not_permitted(client.adopt(&registration("theirs", 1), &adopted).map(drop));
        assert_eq!(client.list_jobs().unwrap().jobs, [], "no job is left over");
        return;
    }
    if !has_backend("freeze") {
        return;
    }
    let place = Place::new(&["--backend", "freeze"]);
    let Some(root) = gang_linux::cgroup::Hierarchies::detect(&Default::default()).unwrap().v2
    else {
        skipped("no cgroups of version 2");
        return;
    };
    let name = format!("gang-test-{}-mixed", std::process::id());
    let group = gang_linux::cgroup::Group::at(root).child(&name);
    group.create().unwrap();
    let sleeps = |uid: u32| {
        let mut sleep = Command::new("sleep");
        Program::start(sleep.arg("infinity").uid(uid).gid(uid))
    };
    let home = |program: &Program| {
        std::fs::read_to_string(format!("/proc/{}/cgroup", program.pid())).unwrap()
    };
    // One that is all another's, and one in which the other user has a process, too.
    let (theirs, his) = (sleeps(ONE), sleeps(OTHER));
    for program in [&theirs, &his] {
        group.add(program.pid()).unwrap();
        let before = home(&theirs);
        let mut other_user = as_user(&place, OTHER, TEST, "other_user");
        other_user.env("GANG_TEST_GROUP", &name);
        succeeds(other_user);
        assert_eq!(home(&theirs), before);
        assert_eq!(what_is_left(theirs.pid()), None);
    }
    drop((theirs, his));
    wait_until("the test's group can go", || group.remove().is_ok());
}

/// A machine with one more group, for a daemon alone: its member, and the command that becomes the
/// daemon. `None` where it cannot be had.
fn with_group(directory: &Path, name: &str, member: u32) -> Option<Vec<String>> {
    let can = Command::new("unshare").args(["-m", "true"]).status();
    let user = nix::unistd::User::from_uid(member.into()).unwrap();
    let (true, Some(user)) = (can.is_ok_and(|status| status.success()), user) else {
        skipped(format!("it takes unshare(1) with its rights, and a user {member}"));
        return None;
    };
    let groups = directory.join("group");
    let text = std::fs::read_to_string("/etc/group").unwrap();
    std::fs::write(&groups, format!("{text}{name}:x:61234:{}\n", user.name)).unwrap();
    let script = r#"mount --bind "$0" /etc/group && exec "$@""#;
    let words = ["unshare", "-m", "sh", "-c", script, groups.to_str().unwrap()];
    Some(words.map(str::to_owned).to_vec())
}

#[test]
fn needs_root_admin_group_makes_administrators() {
    const TEST: &str = "needs_root_admin_group_makes_administrators";
    match std::env::var(PART).as_deref() {
        Ok("owner") => return owner(),
        Ok("other_user") => return other_user(),
        Ok("administrator") => return administrator(),
        Ok("former") => return former_administrator(),
        _ => {}
    }
    if !has_backend("freeze") {
        return;
    }
    let machine = tempfile::tempdir().unwrap();
    let Some(launcher) = with_group(machine.path(), "gangadmin", THIRD) else { return };
    let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
    let settings = "admin_group = 'gangadmin'\n[limits]\ncpus_per_user = 10\n";
    let place = Place::launched(&launcher, settings, &["--backend", "freeze"]);
    let owner = User::start(as_user(&place, ONE, TEST, "owner"));
    for (uid, part) in [(OTHER, "other_user"), (THIRD, "administrator"), (OTHER, "other_user")] {
        let mut other = as_user(&place, uid, TEST, part);
        other
            .env("GANG_TEST_JOB", owner.job.to_string())
            .env("GANG_TEST_PID", owner.child.id().to_string());
        succeeds(other);
        let only_his = || place.client().list_jobs().unwrap().jobs.len() == 1;
        wait_until("what he registered has gone with him", only_his);
    }
    let job = place.job(owner.job).unwrap();
    assert_eq!((job.class, job.weight, job.signals), (v1::Class::express, 7, true));
    assert_eq!(job.owner_uid, i64::from(ONE), "whoever changes it, it is its owner's");
    // The group in the file is another one from now on, for every client that comes.
    let file = place.directory.path().join("gangd.toml");
    std::fs::write(file, "[limits]\ncpus_per_user = 10\n").unwrap();
    let daemon = rustix::process::Pid::from_raw(place.status().pid as i32).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::HUP).unwrap();
    wait_until("he is an administrator no more", || {
        as_user(&place, THIRD, TEST, "former").output().unwrap().status.success()
    });
}

/// Does to another's job what its owner may do, and what only administrators may.
fn administrator() {
    let (job, pid) = (number("GANG_TEST_JOB"), number("GANG_TEST_PID"));
    let mut client = client();
    let shown = client.show_job(job).unwrap();
    let processes = shown.processes.expect("administrators see what others run");
    assert!(processes.iter().any(|process| process.pid == pid), "{processes:?}");
    client.set_class(job, v1::Class::standby).unwrap();
    client.set_class(job, v1::Class::interactive).expect("it may raise a class");
    client.set_class(job, v1::Class::express).expect("to where only administrators put a job");
    client.set(job, &Change { weight: Some(7), ..Change::default() }).unwrap();
    client.set_signals(job, true).unwrap();
    client.suspend(job).unwrap();
    client.resume(job).unwrap();
    // Not by what its owner handles: he is to go on.
    client.kill(job, rustix::process::Signal::CONT.as_raw().into()).unwrap();
    let express = Registration { class: v1::Class::express, ..registration("first", 1) };
    let own = client.register(&express).expect("a job of class express");
    // But nobody gets a process that is another's into his own job.
    not_permitted(client.add_process(own, pid));
    not_permitted(client.adopt(&registration("theirs", 1), &Adopted::Process(pid)).map(drop));
}

/// Harmless where he is one yet.
fn former_administrator() {
    let express = Registration { class: v1::Class::express, ..registration("first", 1) };
    not_permitted(client().register(&express).map(drop));
}

#[test]
fn needs_root_limits_of_a_user_spare_other_users() {
    const TEST: &str = "needs_root_limits_of_a_user_spare_other_users";
    if plays("greedy") {
        return greedy();
    }
    if !has_backend("freeze") {
        return;
    }
    let place = Place::configured(
        "[limits]\njobs_per_user = 2\nclients_per_user = 3\n",
        &["--backend", "freeze"],
    );
    let program = Program::spinner();
    let watched = job_with(&place, &program, 1);
    let slots = || place.job(watched).unwrap().slots;
    for uid in [ONE, OTHER] {
        succeeds(as_user(&place, uid, TEST, "greedy"));
        let before = slots();
        wait_until("the gang of somebody else goes on", || slots() > before + 3);
    }
    for _ in 0..5 {
        place
            .client()
            .register(&registration("root's", 1))
            .expect("root has none but the daemon's");
    }
}

fn greedy() {
    let mut clients = vec![client()];
    let own = |client: &mut Client| client.register(&registration("own", 1));
    for _ in 0..2 {
        own(&mut clients[0]).unwrap();
    }
    let refused = own(&mut clients[0]).unwrap_err().to_string();
    assert!(refused.contains("limit of 2 jobs of a user is reached"), "{refused}");
    let refused = (0..4).find_map(|_| {
        let mut next = client();
        let refused = next.status().err();
        clients.push(next);
        refused
    });
    let refused = refused.expect("there is a limit").to_string();
    assert!(refused.contains("limit of 3 clients of a user is reached"), "{refused}");
    assert_eq!(clients.len(), 4);
    assert_eq!(
        clients[0].list_jobs().unwrap().jobs.iter().filter(|job| job.name == "own").count(),
        2
    );
}

#[test]
fn needs_root_a_class_given_up_is_not_had_back() {
    const TEST: &str = "needs_root_a_class_given_up_is_not_had_back";
    if plays("owner") {
        let mut client = client();
        let interactive = Registration { class: v1::Class::interactive, ..registration("own", 1) };
        let job = client.register(&interactive).unwrap();
        not_permitted(client.set_class(job, v1::Class::express));
        client.set_class(job, v1::Class::interactive).expect("it is there already");
        client.set_class(job, v1::Class::batch).unwrap();
        not_permitted(client.set_class(job, v1::Class::interactive));
        client.set_class(job, v1::Class::standby).unwrap();
        let error = client.set_class(job, v1::Class::batch).unwrap_err();
        assert!(error.to_string().contains("only administrators may raise it"), "{error}");
        // Not this one: a job of class standby stands still while anybody else wants the CPUs.
        let program = Program::sleeper();
        client.add_process(job, program.pid_i64()).unwrap();
        println!("job: {job}");
        let _ = std::io::stdin().lines().next();
        return;
    }
    if !has_backend("freeze") {
        return;
    }
    let mut place = Place::new(&["--backend", "freeze"]);
    let owner = User::start(as_user(&place, ONE, TEST, "owner"));
    place.kill();
    place.start();
    assert_eq!(place.job(owner.job).unwrap().class, v1::Class::standby, "another daemon knows it");
    place.client().set_class(owner.job, v1::Class::express).expect("administrators may raise");
    assert_eq!(place.job(owner.job).unwrap().class, v1::Class::express);
}

#[test]
fn waiting_jobs_are_served_in_turn() {
    let place = Place::new(&["--backend", "signal"]);
    let program = Program::sleeper();
    let memory = place.status().memory;
    let needs = |tenths: i64| Registration {
        mem_bytes: Some(memory.free / 10 * tenths),
        ..registration("needy", 1)
    };
    let mut client = place.client();
    let first = client.register(&needs(6)).unwrap();
    client.add_process(first, program.pid_i64()).unwrap();
    // Other programs take and give memory meanwhile, which must not decide what fits. A great job
    // waits; memory that is left over is kept for it, so that it does not starve.
    let mut great = raw_waiting(&place, memory.free / 10 * 6);
    wait_until("the great one has the first claim", || {
        matches!(place.client().register(&needs(2)), Err(ClientError::NotEnough { .. }))
    });
    assert!(client.register(&registration("humble", 1)).is_ok(), "who needs nothing waits not");
    // The great job goes, and no job waits any more.
    drop(great.take());
    wait_until("it is forgotten", || place.client().register(&needs(2)).is_ok());
    let never = Registration { mem_bytes: Some(memory.total + 1), wait: true, ..needs(1) };
    assert!(matches!(client.register(&never), Err(ClientError::NotEnough { .. })));
    let job = job_with(&place, &Program::sleeper(), 1);
    let much = Change { mem_bytes: Some(memory.total - 1), ..Change::default() };
    let refused = client.set(job, &much);
    assert!(refused.is_err(), "{refused:?}");
}

/// A client that waits for memory, as bytes on a socket: it can go at any moment.
fn raw_waiting(place: &Place, mem_bytes: i64) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    stream.write_all(waiting_call(mem_bytes).as_bytes()).unwrap();
    Some(stream)
}

fn waiting_call(mem_bytes: i64) -> String {
    let parameters = format!(
        r#"{{"name":"great","cpus":1,"min_cpus":1,"class":"batch","policy":"gang","weight":100,
        "mem_bytes":{mem_bytes},"wait":true}}"#
    );
    format!("{{\"method\":\"org.gangd.v1.Register\",\"parameters\":{parameters}}}\0")
}

/// Requests of one user that wait, or are refused because too many of his do.
const REQUESTS: usize = 130;

/// Half of the places that are not kept for root.
const WAITING_OF_USER: usize = 120;

/// Plays a user who waits again and again for memory that is not there.
fn patient() {
    use std::io::{ErrorKind, Read};
    let mem_bytes = client().status().unwrap().status.memory.total - 1;
    let mut waiting: Vec<UnixStream> = (0..REQUESTS)
        .map(|_| {
            let mut stream = UnixStream::connect(argument("GANG_TEST_SOCKET")).unwrap();
            stream.write_all(waiting_call(mem_bytes).as_bytes()).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    let mut answers = vec![Vec::new(); REQUESTS];
    wait_until("all but those that wait are answered", || {
        for (stream, answer) in waiting.iter_mut().zip(&mut answers) {
            let mut bytes = [0; 4096];
            match stream.read(&mut bytes) {
                Ok(read) => answer.extend_from_slice(&bytes[..read]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        answers.iter().filter(|answer| answer.ends_with(b"\0")).count()
            >= REQUESTS - WAITING_OF_USER
    });
    let answered = answers.iter().filter(|answer| !answer.is_empty());
    let answered: Vec<_> = answered.map(|answer| String::from_utf8_lossy(answer)).collect();
    assert_eq!(answered.len(), REQUESTS - WAITING_OF_USER);
    for answer in answered {
        assert!(answer.contains("LimitReached") && answer.contains("120"), "{answer}");
        assert!(answer.contains("jobs of a user that wait"), "{answer}");
    }
    client().register(&registration("humble", 1)).expect("who needs nothing does not wait");
    println!("job: 0");
    // Until it is killed.
    let _ = std::io::stdin().lines().next();
}

/// Another user finds a place in the queue: his request stays without an answer.
fn others_place() {
    use std::io::{ErrorKind, Read};
    let mem_bytes = client().status().unwrap().status.memory.total - 1;
    let mut stream = UnixStream::connect(argument("GANG_TEST_SOCKET")).unwrap();
    stream.write_all(waiting_call(mem_bytes).as_bytes()).unwrap();
    // Requests of one user keep their order: what comes after it was asked later.
    client().register(&registration("later", 1)).expect("who needs nothing does not wait");
    stream.set_nonblocking(true).unwrap();
    let answer = stream.read(&mut [0; 4096]).map_err(|error| error.kind());
    assert_eq!(answer, Err(ErrorKind::WouldBlock));
}

#[test]
fn needs_root_waiting_is_limited_by_user() {
    const TEST: &str = "needs_root_waiting_is_limited_by_user";
    if plays("patient") {
        return patient();
    }
    if plays("humble") {
        client().register(&registration("other's", 1)).expect("he needs nothing");
        let refused = client().register(&Registration {
            mem_bytes: Some(client().status().unwrap().status.memory.total - 1),
            ..registration("needy", 1)
        });
        assert!(matches!(refused, Err(ClientError::NotEnough { .. })), "{refused:?}");
        return others_place();
    }
    if !has_backend("freeze") {
        return;
    }
    let place = Place::configured(
        "[limits]\nclients = 600\nclients_per_user = 400\n",
        &["--backend", "freeze"],
    );
    let program = Program::spinner();
    let watched = job_with(&place, &program, 1);
    let patient = User::start(as_user(&place, ONE, TEST, "patient"));
    let slots = || place.job(watched).unwrap().slots;
    let before = slots();
    succeeds(as_user(&place, OTHER, TEST, "humble"));
    wait_until("the gang of somebody else goes on", || slots() > before + 3);
    assert_eq!(place.client().check().unwrap().violations, []);
    drop(patient);
    let little = Registration { mem_bytes: Some(1 << 20), ..registration("little", 1) };
    wait_until("they are forgotten", || place.client().register(&little).is_ok());
    wait_until("and their jobs", || place.client().list_jobs().unwrap().jobs.len() == 1);
}
