//! A release undoes all that a daemon left behind, from files only.

use std::{
    fs,
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use gang_engine::{
    bound::ProcessHandle,
    pins::Pins,
    release::{self, Found},
    roster::Roster,
    store::Store,
};
use gang_harness::wait_until;
use gang_linux::{
    Roots,
    cgroup::Group,
    clock, process,
    sched::{self, SchedPolicy},
};
use gang_timetable::{
    Attributes,
    record::{Normal, Placement, Record, Single},
};
use rustix::process::{Pid, Signal};

use crate::{jobs::group, parked::Parked};

/// For jobs of which nothing but their record is known.
const NOWHERE: &str = "/nonexistent";

pub fn record(id: u64, placement: Placement) -> Record {
    Record {
        id,
        name: format!("job{id}"),
        owner_uid: 0,
        class: "batch".into(),
        policy: "gang".into(),
        weight: 100,
        cpus: 2,
        min_cpus: 1,
        registered_at_ns: 0,
        suspended: false,
        suspended_by_group: false,
        stops_foreign: false,
        placement,
        normal: Normal::default(),
        keeps_attributes: false,
        affinity: sched::affinity(0).unwrap(),
        signals: false,
        mem_bytes: 0,
        disk_bytes: 0,
        joined: Vec::new(),
        coming: None,
        nonce: None,
        slurm_job: None,
        auto: false,
    }
}

pub fn in_group(group: &Path) -> Placement {
    Placement::Cgroup {
        group: group.into(),
        origin: group.with_file_name("origin"),
        cpu_group: None,
        cpu_origin: None,
        cpu_group_is_shared: false,
        adopted: false,
        memory: None,
        other: None,
    }
}

/// A job in a directory that stands still.
pub fn frozen(path: &Path, threads: &[&Parked]) -> PathBuf {
    group(path, "cpu.weight");
    let list: String = threads.iter().map(|thread| format!("{}\n", thread.tid)).collect();
    fs::write(path.join("cgroup.threads"), list).unwrap();
    fs::write(path.join("cgroup.freeze"), "1").unwrap();
    fs::write(path.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    path.join("cgroup.freeze")
}

pub fn store_of(directory: &Path, records: &[Record]) -> Store {
    let store = Store::at(directory.join("jobs"));
    store.create().unwrap();
    records.iter().for_each(|record| store.put(record).unwrap());
    store
}

pub fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// Whether this user may have a thread leave SCHED_IDLE, as a release does; else it is said.
fn may_leave_idle() -> bool {
    let thread = Parked::filling();
    let nice = sched::get(thread.tid).unwrap().nice;
    let left = sched::set(thread.tid, &sched::Attributes::other(nice));
    if let Err(error) = &left {
        gang_harness::skipped(format!("leaving SCHED_IDLE takes root, or RLIMIT_NICE: {error}"));
    }
    left.is_ok()
}

#[test]
fn release_thaws_group_and_lowers_threads() {
    if !may_leave_idle() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (filling, ordinary) = (Parked::filling(), Parked::ordinary());
    let nice = sched::get(filling.tid).unwrap().nice;
    let before = sched::get(ordinary.tid).unwrap();
    let group = directory.path().join("job");
    let freeze = frozen(&group, &[&filling, &ordinary]);
    let store = store_of(directory.path(), &[record(1, in_group(&group))]);
    let found = release::all(&Roots::default(), &store);
    assert_eq!(found, Found { jobs: 1, threads: 2, lowered: 1, paused: 1, missed: 0, strays: 0 });
    assert_eq!(read(&freeze), "0");
    let now = sched::get(filling.tid).unwrap();
    assert_eq!((now.policy, now.nice), (SchedPolicy::Other, nice));
    assert_eq!(sched::get(ordinary.tid).unwrap(), before);

    fs::write(group.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let again = release::all(&Roots::default(), &store);
    assert_eq!(again, Found { jobs: 1, threads: 2, lowered: 0, paused: 0, missed: 0, strays: 0 });
}

/// A process that has its first slot while it is moved.
#[test]
fn who_is_on_the_way_into_the_group_is_released_too() {
    if !may_leave_idle() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new("chrt").args(["-i", "0", "sleep", "600"]).spawn().unwrap();
    let policy = || sched::get(child.id()).unwrap().policy;
    wait_until("it is what it is to be", || policy() == SchedPolicy::Idle);
    let group = directory.path().join("job");
    frozen(&group, &[]);
    let started = process::stat(Path::new("/proc"), child.id()).unwrap().start_ticks;
    let coming = Some((child.id(), started));
    let record = Record { coming, ..record(1, in_group(&group)) };
    let found = release::job(&Roots::default(), &Store::at(NOWHERE), &record);
    let after = policy();
    // A later owner of the number is somebody else.
    let other = Record { coming: Some((child.id(), started + 1)), ..record };
    let not_it = release::job(&Roots::default(), &Store::at(NOWHERE), &other);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((found.threads, found.lowered, after), (1, 1, SchedPolicy::Other));
    assert_eq!(not_it.threads, 0);
}

#[test]
fn a_job_that_fills_by_its_own_wish_goes_on_doing_so() {
    let directory = tempfile::tempdir().unwrap();
    let thread = Parked::filling();
    let group = directory.path().join("job");
    frozen(&group, &[&thread]);
    let normal = Normal { policy: 5, ..Normal::default() };
    let record = Record { normal, ..record(1, in_group(&group)) };
    assert_eq!(release::job(&Roots::default(), &Store::at(NOWHERE), &record).lowered, 0);
    assert_eq!(thread.policy(), SchedPolicy::Idle);
}

/// Raises a thread that waits, where this user may, as a switcher does.
#[test]
fn nice_value_survives_a_slot_needs_fifo() {
    let directory = tempfile::tempdir().unwrap();
    let thread = Parked::start(|| {
        let nice = sched::get(0).unwrap().nice;
        sched::set(0, &sched::Attributes::other((nice + 3).min(19))).unwrap();
    });
    let before = sched::get(thread.tid).unwrap();
    let raised = sched::Attributes::fifo(gang_timetable::priority::GANG);
    if let Err(error) = sched::set(thread.tid, &raised) {
        gang_harness::skipped(format!("SCHED_FIFO is refused: {error}"));
        return;
    }
    assert_eq!(sched::get(thread.tid).unwrap().nice, before.nice);
    let group = directory.path().join("job");
    frozen(&group, &[&thread]);
    assert_eq!(
        release::job(&Roots::default(), &Store::at(NOWHERE), &record(1, in_group(&group))).lowered,
        1
    );
    assert_eq!(sched::get(thread.tid).unwrap(), before);
}

/// A gang that is narrower than the machine, under a backend that changes no policy.
#[test]
fn release_unpins_all_but_user_pinned_threads() {
    if !may_leave_idle() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let anywhere = sched::affinity(0).unwrap();
    if anywhere.len() < 2 {
        gang_harness::skipped("needs two CPUs");
        return;
    }
    let of_slot = [anywhere[0]];
    let set = of_slot.iter().copied().collect();
    let on = |cpu: u32| Parked::start(move || sched::set_affinity(0, [cpu]).unwrap());
    let (pinned, chose, chose_another) = (Parked::ordinary(), on(anywhere[0]), on(anywhere[1]));
    let fills = Parked::start(move || {
        sched::set(0, &sched::Attributes::idle(sched::get(0).unwrap().nice)).unwrap();
        sched::set_affinity(0, [of_slot[0]]).unwrap();
    });
    let threads = [&pinned, &chose, &chose_another, &fills];
    let path = directory.path().join("job");
    frozen(&path, &threads);
    let record = record(1, in_group(&path));
    let store = store_of(directory.path(), std::slice::from_ref(&record));
    let everywhere = anywhere.iter().copied().collect();
    let normal = Attributes::other(0);
    let group = Group::at(&path);
    let mut roster = Roster::of_group(&group, Default::default(), false).unwrap();
    let mut members = roster.members(normal, everywhere);
    roster.pins = Pins::create(&store.pins(1)).unwrap();
    roster.refresh(&mut members, Path::new("/proc")).unwrap();
    roster.give(&set);
    sched::set_affinity(pinned.tid, of_slot).unwrap();
    drop(roster);
    let found = release::all(&Roots::default(), &store);
    let now = || threads.map(|thread| sched::affinity(thread.tid).unwrap());
    let (own, other) = (vec![anywhere[0]], vec![anywhere[1]]);
    // The last one fills by its own choice, and stays so.
    let wanted = [anywhere, own.clone(), other, own];
    assert_eq!((now(), found.lowered), (wanted.clone(), 1));
    assert_eq!(release::all(&Roots::default(), &store).lowered, 0);
    // A job that goes takes the file with it.
    store.remove(1).unwrap();
    store.destroy();
    assert!(!store.directory().exists());
    assert_eq!(now(), wanted);
}

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Sleeper {
        let child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        Sleeper(child)
    }

    fn state(&self) -> u8 {
        process::stat(Path::new("/proc"), self.0.id()).unwrap().state
    }

    fn stop(&self) {
        ProcessHandle::open(self.0.id()).unwrap().signal(Signal::STOP).unwrap();
        wait_until("it stands still", || self.state() == b'T');
    }

    fn started(&self) -> u64 {
        process::stat(Path::new("/proc"), self.0.id()).unwrap().start_ticks
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn release_continues_stopped_but_no_reused_pid() {
    let (one, other) = (Sleeper::start(), Sleeper::start());
    one.stop();
    other.stop();
    let processes = vec![(one.0.id(), one.started()), (other.0.id(), other.started() + 1)];
    let found = release::job(
        &Roots::default(),
        &Store::at(NOWHERE),
        &record(1, Placement::Tree { processes }),
    );
    assert_eq!((found.jobs, found.paused), (1, 1));
    wait_until("it goes on", || one.state() != b'T');
    assert_eq!(other.state(), b'T');
}

/// The first thread of a process is a thread like others.
#[test]
fn release_lowers_single_threads_and_inheritors() {
    if !may_leave_idle() {
        return;
    }
    let script = "sleep 600 & exec chrt -i 0 sh -c 'sleep 600 & echo all; wait'";
    let start = || {
        let command = &mut Command::new("sh");
        let child = command.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn();
        let mut child = child.unwrap();
        let mut said = [0; 4];
        child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        Family(child)
    };
    let (one, other) = (start(), start());
    let single = |of: &Family, later: u64| {
        let started = process::stat(Path::new("/proc"), of.0.id()).unwrap().start_ticks + later;
        let (tid, pid) = (of.0.id(), of.0.id());
        let normal = Normal::default();
        // Threads that it started before it was a member were there before: here all came later.
        Single { tid, started, pid, process_started: started, since: started, normal }
    };
    let threads = vec![single(&one, 0), single(&other, 1)];
    let record = record(1, Placement::Threads { threads });
    let found = release::job(&Roots::default(), &Store::at(NOWHERE), &record);
    assert_eq!(found, Found { jobs: 1, threads: 1, lowered: 1, paused: 0, missed: 0, strays: 0 });
    assert_eq!(one.policies(), [SchedPolicy::Other; 3]);
    // Its older child never was anything else.
    assert_eq!(other.policies(), [SchedPolicy::Idle, SchedPolicy::Other, SchedPolicy::Idle]);
    let again = release::job(&Roots::default(), &Store::at(NOWHERE), &record);
    assert_eq!(again, Found { jobs: 1, threads: 1, lowered: 0, paused: 0, missed: 0, strays: 0 });
}

/// A process with its descendants, in a group of their own.
struct Family(Child);

impl Family {
    /// In order of number.
    fn policies(&self) -> Vec<SchedPolicy> {
        let pids = process::descendants(Path::new("/proc"), self.0.id()).unwrap();
        pids.into_iter().map(|pid| sched::get(pid).unwrap().policy).collect()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn processes_go_to_their_origin_or_nearest_group() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    fs::write(root.join("cgroup.procs"), "").unwrap();
    let job = root.join("job");
    group(&job, "cpu.weight");
    fs::write(job.join("cgroup.procs"), "77\n").unwrap();
    let gone = record(1, in_group(&job));
    release::dissolve(&gone);
    assert_eq!(read(&root.join("cgroup.procs")), "77");
    group(&root.join("origin"), "cpu.weight");
    release::dissolve(&gone);
    assert_eq!(read(&root.join("origin/cgroup.procs")), "77");
}

#[test]
fn origin_that_takes_no_process_leaves_it_in_the_job() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let (job, origin) = (root.join("job"), root.join("origin"));
    group(&job, "cpu.weight");
    fs::write(job.join("cgroup.procs"), "77").unwrap();
    fs::write(root.join("cgroup.procs"), "").unwrap();
    // The kernel says EBUSY where the owner of a group has turned a controller on below it.
    fs::create_dir_all(origin.join("cgroup.procs")).unwrap();
    let record = record(1, in_group(&job));
    assert!(!release::dissolve(&record), "it is tried again");
    assert_eq!(read(&root.join("cgroup.procs")), "", "a group above may limit it less");
    assert_eq!(read(&job.join("cgroup.procs")), "77");
    fs::remove_dir(origin.join("cgroup.procs")).unwrap();
    fs::write(origin.join("cgroup.procs"), "").unwrap();
    release::dissolve(&record);
    assert_eq!(read(&origin.join("cgroup.procs")), "77");
}

#[test]
fn groups_that_gangd_made_go_and_those_it_found_stay() {
    let root = tempfile::tempdir().unwrap();
    for (adopted, is_shared) in [(false, false), (false, true), (true, false), (true, true)] {
        let (job, cpu) = (root.path().join("gangd/job"), root.path().join("cpu/gangd"));
        fs::create_dir_all(&job).unwrap();
        fs::create_dir_all(&cpu).unwrap();
        let mut placement = in_group(&job);
        if let Placement::Cgroup { adopted: a, cpu_group, cpu_group_is_shared, .. } = &mut placement
        {
            (*a, *cpu_group, *cpu_group_is_shared) = (adopted, Some(cpu.clone()), is_shared);
        }
        let record = record(1, placement);
        release::dissolve(&record);
        assert_eq!((job.exists(), cpu.exists()), (adopted, is_shared));
        release::dissolve_common(&[record]);
        assert!(!cpu.exists());
        assert_eq!(job.parent().unwrap().exists(), adopted);
    }
}

#[test]
fn group_beside_that_of_all_gangs_goes_with_it() {
    let root = tempfile::tempdir().unwrap();
    for name in ["gangd", "gangd-job-1", "cpu/gangd", "cpu/gangd-job-1"] {
        fs::create_dir_all(root.path().join(name)).unwrap();
    }
    let mut placement = in_group(&root.path().join("gangd-job-1"));
    if let Placement::Cgroup { cpu_group, .. } = &mut placement {
        *cpu_group = Some(root.path().join("cpu/gangd-job-1"));
    }
    let record = record(1, placement);
    release::dissolve(&record);
    release::dissolve_common(&[record]);
    let left = |path: &Path| fs::read_dir(path).unwrap().count();
    assert_eq!((left(root.path()), left(&root.path().join("cpu"))), (1, 0));
}

#[test]
fn job_between_two_groups_is_released_in_both() {
    let root = tempfile::tempdir().unwrap();
    let (one, other) = (Parked::ordinary(), Parked::ordinary());
    let (shared, own) = (root.path().join("gangd/job-1"), root.path().join("gangd-job-1"));
    frozen(&shared, &[&one]);
    frozen(&own, &[&other]);
    fs::write(own.join("cpu.weight"), "10000").unwrap();
    fs::write(own.join("cgroup.procs"), "77\n").unwrap();
    let origin = root.path().join("gangd/origin");
    group(&origin, "cpu.weight");
    let record = record(1, in_group(&shared).with_other(Some(own.clone())));
    let found = release::job(&Roots::default(), &Store::at(NOWHERE), &record);
    assert_eq!(found.threads, 2);
    assert!(read(&own.join("cpu.weight")).starts_with("100"));
    assert_eq!([&shared, &own].map(|at| read(&at.join("cgroup.freeze"))), ["0", "0"]);
    release::dissolve(&record);
    assert_eq!(read(&origin.join("cgroup.procs")), "77");
}

/// Group files as a daemon leaves them that dies: a gang out of its slot, and one in it.
fn with_cpu(path: &Path, weight: (&str, &str), idle: &str) {
    group(path, weight.0);
    fs::write(path.join(weight.0), weight.1).unwrap();
    fs::write(path.join("cpu.idle"), idle).unwrap();
}

#[test]
fn release_gives_groups_the_usual_weight() {
    let root = tempfile::tempdir().unwrap();
    // A plain file keeps its tail when less is written: 100 after 10000 could be either.
    let (raised, chosen) = (root.path().join("raised"), root.path().join("chosen"));
    with_cpu(&raised, ("cpu.shares", "262144"), "0");
    with_cpu(&chosen, ("cpu.weight", "77"), "1");
    for path in [&raised, &chosen] {
        release::job(&Roots::default(), &Store::at(NOWHERE), &record(1, in_group(path)));
        assert_eq!(read(&path.join("cpu.idle")), "0");
    }
    assert!(read(&raised.join("cpu.shares")).starts_with("1024"));
    assert_eq!(read(&chosen.join("cpu.weight")), "77", "somebody else chose it");
}

#[test]
fn release_takes_jobs_out_of_the_idle_group() {
    let root = tempfile::tempdir().unwrap();
    let thread = Parked::ordinary();
    let (parent, job) = (root.path().join("gangd"), root.path().join("gangd/job"));
    let (shared, origin) = (root.path().join("cpu/gangd"), root.path().join("cpu/origin"));
    for path in [&parent, &shared, &origin] {
        with_cpu(path, ("cpu.weight", "100"), "1");
    }
    frozen(&job, &[&thread]);
    fs::write(job.join("cgroup.procs"), "77\n").unwrap();
    fs::write(shared.join("cgroup.procs"), "77\n88\n").unwrap();
    let of_v2 = |adopted| {
        let mut placement = in_group(&job);
        if let Placement::Cgroup { adopted: a, cpu_group_is_shared, .. } = &mut placement {
            (*a, *cpu_group_is_shared) = (adopted, true);
        }
        placement
    };
    let sweep = |placement| {
        let store = store_of(root.path(), &[record(1, placement)]);
        release::sweep(&Roots::default(), &store);
    };
    sweep(of_v2(true));
    assert_eq!(read(&parent.join("cpu.idle")), "1", "it is not gangd's");
    sweep(of_v2(false));
    assert_eq!(read(&parent.join("cpu.idle")), "0");
    // In version 1 jobs of other daemons are in that group, too.
    let mut of_v1 = of_v2(false);
    if let Placement::Cgroup { cpu_group, cpu_origin, .. } = &mut of_v1 {
        (*cpu_group, *cpu_origin) = (Some(shared.clone()), Some(origin.clone()));
    }
    let store = store_of(root.path(), &[record(1, of_v1.clone())]);
    release::all_from_common_groups(&Roots::default(), &store, || false);
    assert_eq!(
        read(&origin.join("cgroup.procs")),
        "",
        "the daemon went on before anybody was moved"
    );
    sweep(of_v1);
    assert_eq!(read(&origin.join("cgroup.procs")), "77");
    assert_eq!(read(&shared.join("cpu.idle")), "1");
}

#[test]
fn a_sweep_keeps_the_jobs_that_still_run() {
    let directory = tempfile::tempdir().unwrap();
    let thread = Parked::ordinary();
    let running = directory.path().join("gangd/running");
    frozen(&running, &[&thread]);
    let ended = directory.path().join("gangd/ended");
    fs::create_dir(&ended).unwrap();
    let records = [record(1, in_group(&running)), record(2, in_group(&ended))];
    let store = store_of(directory.path(), &records);
    assert_eq!(release::sweep(&Roots::default(), &store), 1);
    assert!(!ended.exists());
    assert_eq!(store.records().0, records[..1]);
    fs::remove_dir_all(&running).unwrap();
    assert_eq!(release::sweep(&Roots::default(), &store), 0);
    assert!(!store.directory().exists());
    assert!(!running.parent().unwrap().exists());
}

#[test]
fn leftovers_of_a_killed_daemon_are_swept() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_of(directory.path(), &[]);
    for name in ["3.new", "4.page", "5.pins"] {
        fs::write(store.directory().join(name), "half").unwrap();
    }
    assert_eq!(release::sweep(&Roots::default(), &store), 0);
    assert!(!store.directory().exists());
    // A job of which nobody knows anything stays on file, with what belongs to it.
    let store = store_of(directory.path(), &[]);
    for name in ["6.json", "6.pins"] {
        fs::write(store.directory().join(name), "{").unwrap();
    }
    assert_eq!(release::sweep(&Roots::default(), &store), 0);
    assert_eq!(fs::read_dir(store.directory()).unwrap().count(), 2);
}

/// Another version of gangd wrote one record, two are cut short, and of one nothing is left.
#[test]
fn jobs_of_unreadable_records_are_released() {
    if !may_leave_idle() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut sleepers = [(); 4].map(|()| Sleeper::start());
    let tids = sleepers.each_ref().map(|it| it.0.id());
    tids.iter().for_each(|&tid| sched::set(tid, &sched::Attributes::idle(0)).unwrap());
    let started = |tid| process::stat(Path::new("/proc"), tid).unwrap().start_ticks;
    let group = directory.path().join("gangd/job-1");
    let freeze = frozen(&group, &[]);
    fs::write(group.join("cgroup.threads"), format!("{}\n", tids[0])).unwrap();
    let tree = |tid| Placement::Tree { processes: vec![(tid, started(tid))] };
    let placements = [in_group(&group), tree(tids[1]), tree(tids[2]), tree(tids[3])];
    let records: Vec<Record> = (1..).zip(placements).map(|(id, at)| record(id, at)).collect();
    let store = store_of(directory.path(), &records);
    let file = |id: u64| store.directory().join(format!("{id}.json"));
    fs::write(file(1), read(&file(1)).replace("\"weight\": 100", "\"weight\": \"heavy\"")).unwrap();
    let text = read(&file(2));
    fs::write(file(2), &text[..text.find("\"normal\"").unwrap() + 20]).unwrap();
    // Its members are on file elsewhere.
    fs::write(file(3), &read(&file(3))[..40]).unwrap();
    let mut pins = Pins::create(&store.pins(3)).unwrap();
    pins.set_members(clock::boot_ticks(), [tids[2]].into_iter()).unwrap();
    fs::write(file(4), "").unwrap();
    assert!(store.records().0.is_empty());

    let found = release::all(&Roots::default(), &store);
    let policies = tids.map(|tid| sched::get(tid).unwrap().policy);
    use SchedPolicy::{Idle, Other};
    assert_eq!(policies, [Other, Other, Other, Idle]);
    assert_eq!((found.jobs, found.lowered, found.paused, read(&freeze)), (3, 3, 1, "0".into()));
    // They are cleared away as others are. Files that lead to nobody stay.
    assert_eq!(release::sweep(&Roots::default(), &store), 3);
    for sleeper in &mut sleepers {
        sleeper.0.kill().unwrap();
        sleeper.0.wait().unwrap();
    }
    fs::remove_dir_all(&group).unwrap();
    assert_eq!(release::sweep(&Roots::default(), &store), 0);
    assert_eq!([1, 2, 3, 4].map(|id| file(id).exists()), [false, false, true, true]);
}

#[test]
fn store_with_jobs_is_not_destroyed() {
    let directory = tempfile::tempdir().unwrap();
    let store = store_of(directory.path(), &[record(1, in_group(directory.path()))]);
    store.destroy();
    assert_eq!(store.records().0.len(), 1);
    store.remove(1).unwrap();
    store.destroy();
    assert!(!store.directory().exists());
    assert!(store.records().0.is_empty() && store.records().1.is_empty());
    let refused = store.put(&record(1, in_group(directory.path()))).unwrap_err();
    assert!(refused.to_string().contains("1.json"), "{refused}");
}

#[test]
fn strays_are_released_unless_another_job_has_them() {
    if !may_leave_idle() {
        return;
    }
    let [left, moved] = [(); 2].map(|()| Sleeper::start());
    let tids = [&left, &moved].map(|it| it.0.id());
    tids.iter().for_each(|&tid| sched::set(tid, &sched::Attributes::idle(0)).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| directory.path().join(name));
    paths.iter().for_each(|path| drop(frozen(path, &[])));
    fs::write(paths[1].join("cgroup.threads"), format!("{}\n", tids[1])).unwrap();
    let [one, two] = [1, 2].map(|id| record(id, in_group(&paths[id as usize - 1])));
    // Its members stay as they are.
    let two = Record { keeps_attributes: true, ..two };
    let store = store_of(directory.path(), &[one, two]);
    let mut pins = Pins::create(&store.pins(1)).unwrap();
    pins.set_members(clock::boot_ticks(), tids.iter().copied()).unwrap();
    let found = release::all(&Roots::default(), &store);
    assert_eq!((found.strays, found.lowered, found.jobs), (1, 1, 1));
    let now = tids.map(|tid| sched::get(tid).unwrap().policy);
    assert_eq!(now, [SchedPolicy::Other, SchedPolicy::Idle]);
    let again = release::all(&Roots::default(), &store);
    assert_eq!((again.strays, again.lowered), (1, 0));
}
