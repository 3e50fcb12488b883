//! The daemon that `gang run` starts is everybody's: nothing of its first caller is left in it, nor
//! in its guardian.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use gang_daemon::{Place, Program, are_built, is_root};
use gang_harness::{skipped, wait_for, wait_until};
use gang_protocol::v1;

/// A place without a daemon; `None`, and said, where this build has no gangd.
fn place() -> Option<Place> {
    are_built(&["gangd"]).then(Place::new)
}

/// A job that is the first of its daemon, started by a shell after these commands. The job ends
/// with what is returned.
fn first_job(place: &Place, commands: &str) -> Program {
    let mut shell = place.command("bash");
    shell.env("GANG", place.programs.join("gang")).env("DIR", place.directory.path());
    let script = format!("{commands} \"$GANG\" run -q -- sleep infinity");
    shell.args(["-c", &script]).stdin(Stdio::null());
    Program::start(&mut shell)
}

/// The daemon's own word on itself, once it has a job.
fn status(place: &Place) -> v1::Status {
    wait_until("the job runs", || place.jobs().iter().any(|job| job.processes == 1));
    place.client().status().unwrap().status
}

/// Numbers of the daemon and of its guardian.
fn daemons(place: &Place) -> [i64; 2] {
    let status = status(place);
    [status.pid, status.guardian_pid.expect("a guardian runs")]
}

fn of(pid: i64, file: &str) -> String {
    let path = format!("/proc/{pid}/{file}");
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn field(pid: i64, name: &str) -> String {
    let status = of(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim().to_owned()
}

/// The guardian's group of version 2, below its root, once the guardian is in it: it moves there
/// itself, while the first job may run. `None` where that hierarchy is not mounted.
fn guardians_group(guardian: i64) -> Option<String> {
    of(guardian, "cgroup").lines().find(|line| line.starts_with("0::"))?;
    let is_apart = || {
        let groups = of(guardian, "cgroup");
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        group.ends_with(".guardian").then(|| group.to_owned())
    };
    Some(wait_for("the guardian is in a group of its own", is_apart))
}

/// The signals that a process ignores, but for those of the C library: posix_spawn(3) leaves these
/// ignored.
fn ignored(pid: i64) -> Vec<u32> {
    let set = u64::from_str_radix(&field(pid, "SigIgn:"), 16).unwrap();
    (1..=64).filter(|number| ![32, 33].contains(number) && set >> (number - 1) & 1 == 1).collect()
}

/// Whether root may lift hard limits, as it may not in some containers; says so where not.
fn may_lift_limits() -> bool {
    let nested = ["--nofile=100:100", "prlimit", "--nofile=200:200", "true"];
    let may = is_root() && Command::new("prlimit").args(nested).status().unwrap().success();
    if !may {
        skipped("needs CAP_SYS_RESOURCE, to lift hard limits");
    }
    may
}

/// The soft and the hard limit of one name.
fn limit(pid: i64, name: &str) -> [String; 2] {
    let limits = of(pid, "limits");
    let line = limits.lines().find_map(|line| line.strip_prefix(name));
    let mut values = line.unwrap_or_else(|| panic!("{name} in {limits}")).split_whitespace();
    [(); 2].map(|()| values.next().unwrap().to_owned())
}

fn variables(pid: i64) -> BTreeSet<String> {
    let environment = of(pid, "environ");
    let names = environment.split('\0').filter_map(|it| Some(it.split_once('=')?.0.to_owned()));
    names.collect()
}

/// The daemon keeps no descriptor of these files.
fn keeps_none_of(pid: i64, files: &[PathBuf]) {
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let open = fs::read_link(entry.path()).unwrap_or_default();
        assert!(!files.contains(&open), "process {pid} has {} open", open.display());
    }
}

/// Ends the job and waits for the end of its daemon.
fn end(place: &Place, job: Program) {
    drop(job);
    wait_until("the daemon has ended", || !place.jobs_dir().exists() && !place.socket().exists());
}

#[test]
fn descriptors_signals_and_environment_are_dropped() {
    let Some(place) = place() else { return };
    let commands = "exec 7>$DIR/lock 9>$DIR/other; flock 7; umask 077; \
         export LD_BIND_NOW=1 TZ=Asia/Tokyo SECRET=x NOTIFY_SOCKET=@x GANGD_LOG=info; \
         exec env --block-signal=TERM,USR1 --ignore-signal=INT,CHLD";
    let job = first_job(&place, commands);
    for pid in daemons(&place) {
        keeps_none_of(pid, &[place.path("lock"), place.path("other")]);
        assert_eq!(variables(pid), ["GANGD_LOG", "PATH"].map(str::to_owned).into());
        // The guardian unblocks what the thread that has started it blocks.
        wait_until("no signal is blocked", || field(pid, "SigBlk:") == "0000000000000000");
        assert_eq!(ignored(pid), [13], "process {pid}: Rust's runtime ignores SIGPIPE");
        assert_eq!(field(pid, "Umask:"), "0022", "process {pid}");
    }
    end(&place, job);
}

#[test]
fn recovery_is_not_bound_by_its_callers_limits() {
    if !may_lift_limits() {
        return;
    }
    let Some(place) = place() else { return };
    let _job = first_job(&place, "exec");
    // Nobody is left to release the job.
    let [daemon, guardian] =
        daemons(&place).map(|pid| rustix::process::Pid::from_raw(pid as i32).unwrap());
    rustix::process::kill_process(guardian, rustix::process::Signal::STOP).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    rustix::process::kill_process(guardian, rustix::process::Signal::KILL).unwrap();
    let ended = |pid: rustix::process::Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
        stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    wait_until("both have ended", || ended(daemon) && ended(guardian));
    let mut recover = place.command("bash");
    let script = "ulimit -f 0; ulimit -n 16; trap '' XFSZ; exec \"$0\" recover";
    let output = recover.args(["-c", script]).arg(place.programs.join("gang")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!place.jobs_dir().exists(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn soft_limits_are_lifted() {
    let Some(place) = place() else { return };
    // A user cannot lift hard limits again.
    let commands = "ulimit -Sn 64; ulimit -Sf 100000; ulimit -Ss 4096; ulimit -St 3600; exec";
    let hard = limit(std::process::id().into(), "Max open files")[1].clone();
    let job = first_job(&place, commands);
    for pid in daemons(&place) {
        let [soft, now] = limit(pid, "Max open files");
        assert_eq!(soft, now, "process {pid}");
        assert!(now == hard || is_root(), "process {pid}: {now}");
        for name in ["Max cpu time", "Max file size"] {
            let [soft, hard] = limit(pid, name);
            assert_eq!(soft, hard, "process {pid}: {name}");
        }
        let [soft, hard] = limit(pid, "Max stack size");
        assert!(soft == "8388608" || soft == hard, "process {pid}: {soft}");
    }
    end(&place, job);
}

#[test]
fn needs_root_hard_limits_are_lifted() {
    let Some(place) = place().filter(|_| may_lift_limits()) else { return };
    let commands = "ulimit -n 64; ulimit -f 100000; ulimit -t 3600; ulimit -v 8000000; \
         ulimit -c 5; exec prlimit --rttime=900000000:900000000";
    let job = first_job(&place, commands);
    for pid in daemons(&place) {
        for name in ["cpu time", "file size", "address space", "realtime timeout", "data size"] {
            let name = format!("Max {name}");
            assert_eq!(limit(pid, &name), ["unlimited", "unlimited"], "process {pid}: {name}");
        }
        let most = fs::read_to_string("/proc/sys/fs/nr_open").unwrap();
        assert_eq!(limit(pid, "Max open files"), [most.trim(), most.trim()], "process {pid}");
        assert_eq!(limit(pid, "Max core file size"), ["0", "unlimited"], "process {pid}");
    }
    end(&place, job);
}

#[test]
fn needs_root_attributes_are_dropped() {
    let Some(place) = place().filter(|_| is_root()) else { return };
    let commands = "echo 900 >/proc/self/oom_score_adj; \
         exec setpriv --groups 7 --rgid 7 --egid 7 setarch -R nice -n 5 ionice -c 3 chrt -b 0 \
         taskset -c 0";
    let job = first_job(&place, commands);
    let all = field(1, "Cpus_allowed_list:");
    for pid in daemons(&place) {
        assert_eq!(of(pid, "oom_score_adj").trim(), "0", "process {pid}");
        assert_eq!(of(pid, "personality").trim(), "00000000", "process {pid}");
        assert_eq!(field(pid, "Gid:"), "0\t0\t0\t0", "process {pid}");
        assert_eq!(field(pid, "Groups:"), "", "process {pid}");
        assert_eq!(field(pid, "Cpus_allowed_list:"), all, "process {pid}");
        let class = Command::new("ionice").args(["-p", &pid.to_string()]).output().unwrap();
        assert!(!class.stdout.starts_with(b"idle"), "process {pid}: {class:?}");
    }
    end(&place, job);
}

#[test]
fn needs_root_limits_of_caller_do_not_stop_daemon() {
    let Some(place) = place().filter(|_| may_lift_limits()) else { return };
    // The daemon writes files of jobs before it is ready, and gang none.
    let job = first_job(&place, "ulimit -f 0; exec");
    assert_eq!(limit(daemons(&place)[0], "Max file size"), ["unlimited", "unlimited"]);
    end(&place, job);
}

/// A group in each hierarchy where one can be made; they are removed with this.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn make(name: &str) -> Groups {
        let root = Path::new("/sys/fs/cgroup");
        let mounts = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        // A group of version 1 with cpusets takes nobody until it has CPUs and nodes.
        let mounts = mounts.chain([root.to_owned()]).filter(|it| it.join("cgroup.procs").exists());
        let groups = mounts.map(|mount| mount.join(name));
        Groups(groups.filter(|group| fs::create_dir(group).is_ok()).collect())
    }

    /// The group of version 2.
    fn unified(&self) -> Option<&PathBuf> {
        self.0.iter().find(|group| group.join("cgroup.kill").exists())
    }

    /// Shell commands that move the shell into all of them.
    fn enter(&self) -> String {
        let mut commands = String::new();
        for group in &self.0 {
            let group = group.display();
            commands += &format!(
                "for f in cpus mems; do [ ! -e {group}/cpuset.$f ] || \
                 cat {group}/../cpuset.$f >{group}/cpuset.$f; done 2>/dev/null; \
                 echo $$ >{group}/cgroup.procs || exit 9; "
            );
        }
        commands
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            let removed = wait_for("a group is removed", || match fs::remove_dir(group) {
                Err(error) if error.raw_os_error() == Some(16) => None,
                other => Some(other),
            });
            removed.unwrap();
        }
    }
}

#[test]
fn needs_root_kill_of_first_group_spares_gangd() {
    let Some(place) = place().filter(|_| is_root()) else { return };
    let groups = Groups::make(&format!("gang-test-caller-{}", std::process::id()));
    let Some(unified) = groups.unified() else {
        return skipped("no cgroup hierarchy of version 2, in which a group can be killed");
    };
    let first = first_job(&place, &(groups.enter() + "exec"));
    let [daemon, guardian] = daemons(&place);
    let paths = |pid| {
        let groups = of(pid, "cgroup");
        groups.lines().map(|line| line.splitn(3, ':').nth(2).unwrap().to_owned()).collect()
    };
    let of_daemon: Vec<String> = paths(daemon);
    assert!(of_daemon.iter().all(|path| path == "/"), "{}", of(daemon, "cgroup"));
    guardians_group(guardian).expect("a hierarchy of version 2");
    let of_guardian: Vec<String> = paths(guardian);
    let apart = of_guardian.iter().filter(|path| *path != "/").collect::<Vec<_>>();
    assert!(matches!(apart[..], [path] if path.ends_with(".guardian")), "{apart:?}");
    let apart = unified.parent().unwrap().join(apart[0].trim_start_matches('/'));
    // Another user's job, by the same daemon.
    let other = first_job(&place, "exec");
    wait_until("both run", || place.jobs().iter().filter(|job| job.processes == 1).count() == 2);
    fs::write(unified.join("cgroup.kill"), "1").unwrap();
    assert_eq!(daemons(&place), [daemon, guardian], "they live");
    drop(first);
    // The groups are nobody's, so their manager can remove them while the daemon lives.
    drop(groups);
    // A guardian that is killed is followed by one in the same group.
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(guardian as i32).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let next = wait_for("another guardian", || {
        let now = place.client().status().unwrap().status.guardian_pid?;
        (now != 0 && now != guardian).then_some(now)
    });
    let procs = apart.join("cgroup.procs");
    let is_in = || fs::read_to_string(&procs).is_ok_and(|text| text.trim() == next.to_string());
    wait_until("it is apart, too", is_in);
    end(&place, other);
    wait_until("the guardian's group is removed", || !apart.exists());
}

#[test]
fn needs_root_outliving_guardian_removes_own_group() {
    let Some(place) = place().filter(|_| is_root()) else { return };
    let job = first_job(&place, "exec");
    let [daemon, guardian] = daemons(&place);
    let Some(group) = guardians_group(guardian) else {
        return skipped("no cgroup hierarchy of version 2");
    };
    let roots =
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|root| Path::new(root).join(&group));
    let group = roots.into_iter().find(|group| group.exists()).unwrap();
    let daemon = rustix::process::Pid::from_raw(daemon as i32).unwrap();
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    wait_until("the guardian's group is removed", || !group.exists());
    drop(job);
}

#[test]
fn needs_root_users_daemon_lifts_what_it_may() {
    let Some(place) = place().filter(|_| is_root()) else { return };
    place.give_to(65534);
    place.copy_programs(&["gang", "gangd"]);
    let mut prlimit = place.command("prlimit");
    prlimit.args(["--nofile=64:512", "--fsize=10000000:10000000", "nice", "-n", "3", "setpriv"]);
    prlimit.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    prlimit.arg(place.path("gang")).args(["run", "-q", "--", "sh", "-c"]);
    prlimit.arg("\"$GANG\" status --json >$DIR/new; mv $DIR/new $DIR/status; exec sleep infinity");
    prlimit.env("GANG", place.path("gang")).env("DIR", place.directory.path());
    prlimit.env("LD_BIND_NOW", "1").current_dir("/").stdin(Stdio::null());
    let _job = Program::start(&mut prlimit);
    // Root does not believe the socket of another user.
    let status = wait_for("the job runs", || fs::read(place.path("status")).ok());
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    for name in ["pid", "guardian_pid"] {
        let pid = status["status"][name].as_i64().unwrap();
        assert_eq!(limit(pid, "Max open files"), ["512", "512"], "process {pid}");
        assert_eq!(limit(pid, "Max file size")[1], "10000000", "nobody may lift it");
        assert!(!variables(pid).contains("LD_BIND_NOW"), "process {pid}");
    }
}

#[test]
fn command_substitution_ends_with_its_program() {
    let Some(place) = place() else { return };
    // The daemon runs on, for another job.
    let script = "x=$(\"$GANG\" run -q -- sh -c 'until [ -e $DIR/go ]; do sleep 0.1; done; echo hi' \
         3>&1); echo $x >$DIR/said";
    let mut shell = place.command("bash");
    shell.env("GANG", place.programs.join("gang")).env("DIR", place.directory.path());
    let _first = Program::start(shell.args(["-c", script]).stdin(Stdio::null()));
    status(&place);
    let other = first_job(&place, "exec");
    wait_until("both run", || place.jobs().iter().filter(|job| job.processes == 1).count() == 2);
    fs::write(place.path("go"), "").unwrap();
    let said = || fs::read_to_string(place.path("said")).is_ok_and(|text| text == "hi\n");
    wait_until("the substitution has ended", said);
    end(&place, other);
}
