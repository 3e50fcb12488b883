//! Starts that fail, and changes: `gang run` is killed on the way, the daemon is killed, has no
//! descriptors left, or has a full disk. Nothing stays of them, in no hierarchy of cgroups and in
//! no directory of the daemon, and the next job works.

mod place;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use gang_daemon::{are_built, stderr};
use gang_harness::skipped;
use gang_linux::{
    Roots,
    cgroup::{Group, Hierarchies},
};
use gang_protocol::{
    client::{Change, Client},
    hash::fnv1a,
    v1,
};
use gang_timetable::Backend;
use place::{
    Place, Program, groups_of, has_backend, is_root, job_with, registration, wait_until,
    what_is_left, with_each_backend,
};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Starts that are killed with each backend, unless GANG_STARTS says how many.
const STARTS: u64 = 60;

/// Within this time of its start a `gang run` is killed: a start takes less on an idle machine.
const KILLED_WITHIN_US: u64 = 20_000;

/// The code of a `gang run` that could not start its program.
const NOT_STARTED: i32 = 125;

/// The same numbers each time (splitmix64: Steele, Lea, Flood, 2014).
fn number(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A daemon with one job that sleeps, and all that there is of both.
struct Quiet {
    place: Place,
    _sleeper: Program,
    there: BTreeSet<PathBuf>,
}

impl Quiet {
    fn new(place: Place) -> Quiet {
        let sleeper = Program::sleeper();
        job_with(&place, &sleeper, 1);
        let is_starting = || place.status().measuring == v1::Measuring::starting;
        wait_until("nothing else starts", || !is_starting());
        let there = all_of(&place);
        Quiet { place, _sleeper: sleeper, there }
    }

    /// Nothing stays of what was started; another job works, and nothing stays of it either.
    fn is_quiet_after(&self, starts: &str) {
        self.wait_for_nothing_of(starts);
        let next = self.place.output(&["run", "-q", "--", "true"]);
        assert!(next.status.success(), "after {starts}: {}", stderr(&next));
        self.wait_for_nothing_of("the next job");
    }

    fn wait_for_nothing_of(&self, what: &str) {
        let mut left = BTreeSet::new();
        wait_until("nothing is left", || {
            let now = all_of(&self.place);
            let differs = now.symmetric_difference(&self.there).cloned().collect();
            if left != differs {
                eprintln!("of {what}: {differs:?}");
                left = differs;
            }
            left.is_empty()
        });
    }
}

/// The groups and files of a daemon and its jobs. A guardian makes and removes its own group.
fn all_of(place: &Place) -> BTreeSet<PathBuf> {
    let name = format!("gangd-{:016x}", fnv1a(place.socket().as_os_str().as_encoded_bytes()));
    let is_own = |path: &PathBuf| {
        let path = path.to_string_lossy();
        path.contains(&name) && !path.ends_with(".guardian")
    };
    let mounts = Hierarchies::detect(&Roots::default()).unwrap();
    let roots: BTreeSet<PathBuf> = mounts.v2.into_iter().chain(mounts.v1.into_values()).collect();
    let mut all = BTreeSet::new();
    for root in roots {
        let mut groups = vec![Group::at(root)];
        while let Some(group) = groups.pop() {
            // Others make and remove groups meanwhile.
            groups.extend(group.children().unwrap_or_default());
            all.extend(Some(group.path().to_owned()).filter(is_own));
        }
    }
    // As the daemon sees it: a file system may be mounted for it alone.
    let seen = PathBuf::from(format!("/proc/{}/root", place.pid()));
    let mut directories = vec![place.directory.path().to_owned()];
    while let Some(directory) = directories.pop() {
        let seen = seen.join(directory.strip_prefix("/").unwrap());
        for entry in fs::read_dir(seen).into_iter().flatten().flatten() {
            let path = directory.join(entry.file_name());
            directories.extend(entry.path().is_dir().then(|| path.clone()));
            all.insert(path);
        }
    }
    all
}

/// Kills a `gang run` after a time that the seed says.
fn killed_start(place: &Place, seed: u64) {
    let mut gang = place.gang(&["run", "-q", "--", "sleep", "60"]);
    let mut started = gang.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_micros(number(seed) % KILLED_WITHIN_US));
    started.kill().unwrap();
    started.wait().unwrap();
}

#[test]
fn needs_root_killed_starts_leave_nothing() {
    if !are_built(&["gang"]) {
        return;
    }
    with_each_backend(&[], |place| {
        let quiet = Quiet::new(place);
        let starts = std::env::var("GANG_STARTS").map_or(STARTS, |starts| starts.parse().unwrap());
        for seed in 0..starts {
            killed_start(&quiet.place, seed);
        }
        quiet.is_quiet_after("starts that were killed");
    });
}

#[test]
fn needs_root_starts_under_dead_daemon_leave_nothing() {
    if !are_built(&["gang"]) {
        return;
    }
    with_each_backend(&[], |place| {
        // A gang that finds no gangd starts none where the daemon is gone.
        place.copy_programs(&["gang"]);
        let mut quiet = Quiet::new(place);
        for seed in 0..4 {
            let gang = |place: &Place| {
                let mut gang = place.command(place.path("gang"));
                gang.args(["run", "-q", "--", "/bin/sleep", "60"]).env("PATH", "/nowhere");
                gang.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            };
            let mut started = [gang(&quiet.place), gang(&quiet.place)];
            thread::sleep(Duration::from_micros(number(seed) % KILLED_WITHIN_US));
            quiet.place.kill();
            for gang in &mut started {
                gang.kill().unwrap();
                gang.wait().unwrap();
            }
            quiet.place.start();
            quiet.is_quiet_after("starts whose daemon was killed");
        }
    });
}

/// A start that may fail, and then says why in one sentence.
fn refused_start(place: &Place) -> Option<String> {
    let mut gang = place.gang(&["run", "-q", "--", "true"]);
    // A daemon that cannot take a connection answers nothing.
    let output = gang.env("GANG_TIMEOUT", "1").stdin(Stdio::null()).output().unwrap();
    if output.status.success() {
        return None;
    }
    let reason = stderr(&output);
    assert_eq!(output.status.code(), Some(NOT_STARTED), "{reason}");
    let is_sentence = reason.lines().count() == 1 && !reason.contains("failed");
    assert!(reason.starts_with("gang: ") && is_sentence, "{reason:?}");
    Some(reason)
}

/// A limit on the descriptors of a process, until this is dropped.
struct FewDescriptors {
    pid: Pid,
    before: Rlimit,
}

impl FewDescriptors {
    /// So many are left.
    fn left(pid: u32, spare: usize) -> FewDescriptors {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let number = |file: io::Result<fs::DirEntry>| file.ok()?.file_name().to_str()?.parse().ok();
        let used: BTreeSet<u64> = files.filter_map(number).collect();
        let limit = (0..).filter(|number| !used.contains(number)).nth(spare);
        let pid = Pid::from_raw(pid as i32).unwrap();
        // Not everybody may raise a hard limit again; that of the daemon is the test's.
        let few = Rlimit { current: limit, ..getrlimit(Resource::Nofile) };
        FewDescriptors { pid, before: prlimit(Some(pid), Resource::Nofile, few).unwrap() }
    }
}

impl Drop for FewDescriptors {
    fn drop(&mut self) {
        let _ = prlimit(Some(self.pid), Resource::Nofile, self.before);
    }
}

#[test]
fn needs_root_starts_without_fds_leave_nothing() {
    if !are_built(&["gang"]) {
        return;
    }
    with_each_backend(&[], |place| {
        let quiet = Quiet::new(place);
        let mut reasons = String::new();
        // Each descriptor of a start is once the one that is missing.
        for spare in 0..16 {
            let few = FewDescriptors::left(quiet.place.pid(), spare);
            let reason = refused_start(&quiet.place);
            drop(few);
            reasons += &reason.unwrap_or_default();
            quiet.is_quiet_after(&format!("a start with {spare} descriptors left"));
        }
        assert!(reasons.contains("Too many open files"), "{reasons}");
    });
}

/// Has a daemon take a program into a new job; true where it does.
fn is_taken(place: &Place, program: &Program) -> bool {
    let added =
        Client::connect_within(&place.socket(), Duration::from_secs(1)).and_then(|mut it| {
            let job = it.register(&registration("job", 1))?;
            it.add_process(job, program.pid_i64())
        });
    added.is_ok()
}

#[test]
fn needs_root_refused_program_runs_on_as_before() {
    with_each_backend(&[], |place| {
        let quiet = Quiet::new(place);
        let mut refused = 0;
        for spare in 0..16 {
            let program = Program::sleeper();
            let groups = groups_of(program.pid());
            let few = FewDescriptors::left(quiet.place.pid(), spare);
            let is_taken = is_taken(&quiet.place, &program);
            drop(few);
            if !is_taken {
                refused += 1;
                wait_until("the program is as it was", || {
                    what_is_left(program.pid()).is_none() && groups_of(program.pid()) == groups
                });
            }
            drop(program);
            quiet.wait_for_nothing_of(&format!("a program with {spare} descriptors left"));
        }
        assert!((1..16).contains(&refused), "{refused}");
    });
}

#[test]
fn needs_root_changed_policy_leaves_no_group() {
    with_each_backend(&[], |place| {
        let quiet = Quiet::new(place);
        let mut refused = 0;
        for spare in 0..16 {
            let program = Program::sleeper();
            let mut client = quiet.place.client();
            let job = client.register(&registration("job", 1)).unwrap();
            client.add_process(job, program.pid_i64()).unwrap();
            for policy in [v1::Policy::none, v1::Policy::gang] {
                let change = Change { policy: Some(policy), ..Change::default() };
                let few = FewDescriptors::left(quiet.place.pid(), spare);
                refused += usize::from(client.set(job, &change).is_err());
                drop(few);
            }
            drop(program);
            quiet.wait_for_nothing_of(&format!("a change with {spare} descriptors left"));
        }
        // A tree of processes stays where it is.
        assert!(refused < 32, "{refused}");
    });
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "page")
}

/// The blocks of a small file system for a daemon's files of jobs, and their size in bytes.
const BLOCKS: u64 = 64;
const BLOCK: u64 = 4096;

/// Becomes a daemon whose files of jobs are on a small file system.
const ON_SMALL_DISK: &str = r#"
jobs=${3%.sock}.jobs
mkdir "$jobs" && mount -t tmpfs -o size="$0",mode=755 none "$jobs" && exec "$@"
"#;

/// Runs with each backend, on a daemon whose files of jobs are on a small file system.
fn with_small_disk(run: impl Fn(&Quiet)) {
    if !is_root() {
        return;
    }
    let mount = "mount -t tmpfs none /tmp";
    let can = Command::new("unshare").args(["-m", "sh", "-c", mount]).status();
    if !can.is_ok_and(|status| status.success()) {
        return skipped("needs unshare and mount, for a small file system");
    }
    let size = (BLOCKS * BLOCK).to_string();
    let launcher = ["unshare", "-m", "sh", "-c", ON_SMALL_DISK, &size];
    for backend in Backend::ALL.map(Backend::name).into_iter().filter(|name| has_backend(name)) {
        run(&Quiet::new(Place::launched(&launcher, "", &["--backend", backend])));
    }
}

/// Fills the small file system but for some blocks; returns the file that does.
fn fill_disk(quiet: &Quiet, spare: u64) -> PathBuf {
    let jobs = quiet.place.jobs_dir();
    let seen = format!("/proc/{}/root{}", quiet.place.pid(), jobs.display());
    let rest = Path::new(&seen).join("rest");
    let mut file = File::create(&rest).unwrap();
    let written = (0..).find(|_| file.write_all(&[1; BLOCK as usize]).is_err()).unwrap();
    assert!(written > spare, "the file system is full of others");
    file.set_len((written - spare) * BLOCK).unwrap();
    rest
}

#[test]
fn needs_root_starts_on_a_full_disk_leave_nothing() {
    if !are_built(&["gang"]) {
        return;
    }
    with_small_disk(|quiet| {
        let mut reasons = String::new();
        // Each block of a start is once the one that is missing.
        for spare in 0..8 {
            let rest = fill_disk(quiet, spare);
            if spare == 0 {
                let mut client = quiet.place.client();
                let job = client.register(&registration("job", 1)).unwrap();
                assert!(client.slot_page(job).is_err());
                let pages =
                    || all_of(&quiet.place).into_iter().filter(|path| is_page(path)).count();
                assert_eq!(pages(), 0);
            }
            let reason = refused_start(&quiet.place);
            fs::remove_file(&rest).unwrap();
            reasons += &reason.unwrap_or_default();
            quiet.is_quiet_after(&format!("a start with {spare} blocks left"));
        }
        assert!(reasons.contains("No space left on device"), "{reasons}");
    });
}

#[test]
fn needs_root_changes_not_on_file_are_none() {
    with_small_disk(|quiet| {
        let program = Program::sleeper();
        let mut client = quiet.place.client();
        let job = client.register(&registration("job", 1)).unwrap();
        client.add_process(job, program.pid_i64()).unwrap();
        let of_job = |client: &mut Client| {
            let v1::Job { state, weight, class, .. } = client.show_job(job).unwrap().details;
            (state == v1::JobState::suspended, weight, class)
        };
        let before = of_job(&mut client);
        let rest = fill_disk(quiet, 0);
        let change = Change { weight: Some(7), class: Some(v1::Class::batch), ..Change::default() };
        for error in [
            client.set(job, &change).unwrap_err(),
            client.suspend(job).unwrap_err(),
            client.set_signals(job, true).unwrap_err(),
        ] {
            assert!(error.to_string().contains("No space left on device"), "{error}");
        }
        assert_eq!(of_job(&mut client), before);
        fs::remove_file(&rest).unwrap();
        client.set(job, &change).unwrap();
        client.suspend(job).unwrap();
        assert_eq!(of_job(&mut client), (true, 7, v1::Class::batch));
        drop(program);
        quiet.wait_for_nothing_of("a job that changed");
    });
}
