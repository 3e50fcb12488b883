//! Members of a job that come and go: the list is a file, the threads are real.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use gang_engine::{bound::ProcessHandle, pins::Pins, roster::Roster, thread};
use gang_harness::wait_until;
use gang_linux::clock;
use gang_schedule::CpuSet;
use gang_timetable::{Attributes, Known, Members, SchedPolicy, THREADS_MAX, record::Single};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{
    jobs::{everywhere, group, of_tree},
    parked::Parked,
};

const PROC: &str = "/proc";

struct Job {
    directory: tempfile::TempDir,
    roster: Roster,
    members: Members,
}

impl Job {
    fn start(default: Attributes, everywhere: CpuSet) -> Job {
        let directory = tempfile::tempdir().unwrap();
        let (group, controls) = group(directory.path(), "cpu.weight");
        let roster = Roster::of_group(&group, controls, false).unwrap();
        let members = roster.members(default, everywhere);
        Job { directory, roster, members }
    }

    /// True where somebody came.
    fn refresh(&mut self) -> bool {
        self.roster.refresh(&mut self.members, Path::new(PROC)).unwrap()
    }

    /// True where somebody came.
    fn has(&mut self, threads: &[&Parked]) -> bool {
        let list: String = threads.iter().map(|thread| format!("{}\n", thread.tid)).collect();
        fs::write(self.directory.path().join("cgroup.threads"), list).unwrap();
        self.refresh()
    }

    fn tids(&self) -> Vec<u32> {
        self.members.threads().iter().map(|thread| thread.tid).collect()
    }
}

fn sorted(threads: &[&Parked]) -> Vec<u32> {
    let tids: BTreeSet<u32> = threads.iter().map(|thread| thread.tid).collect();
    tids.into_iter().collect()
}

#[test]
fn threads_that_cannot_be_read_are_not_gone() {
    let (mut tree, mut members) = of_tree();
    assert!(tree.refresh(&mut members, Path::new(PROC)).unwrap());
    let threads = members.threads().len();
    let proc_root = tempfile::tempdir().unwrap();
    // Refused as no process that is there would be.
    let own = proc_root.path().join(std::process::id().to_string());
    fs::create_dir(&own).unwrap();
    fs::write(own.join("task"), "").unwrap();
    tree.refresh(&mut members, proc_root.path()).unwrap_err();
    assert_eq!(members.threads().len(), threads, "somebody has to lower it");
    fs::remove_file(own.join("task")).unwrap();
    assert!(!tree.refresh(&mut members, proc_root.path()).unwrap());
    assert_eq!(members.threads().len(), 0, "the process has ended");
}

#[test]
fn a_process_that_is_added_again_is_in_the_job_once() {
    let (mut tree, mut members) = of_tree();
    let pids = |of: &Roster| of.tree().iter().map(|process| process.pid).collect::<BTreeSet<_>>();
    let (before, count) = (pids(&tree), tree.tree().len());
    tree.add_process(&mut members, ProcessHandle::open(std::process::id()).unwrap());
    assert_eq!((pids(&tree), tree.tree().len()), (before, count));
}

#[test]
fn staying_threads_keep_what_is_remembered() {
    let (one, two, three) = (Parked::ordinary(), Parked::ordinary(), Parked::ordinary());
    let mut job = Job::start(Attributes::other(0), everywhere());
    assert!(job.has(&[&two, &one]));
    assert_eq!(job.tids(), sorted(&[&one, &two]));
    assert!(!job.has(&[&two, &one, &one]), "nobody came");
    let before = job.members.threads()[0].original;
    thread::set_attributes(job.tids()[0], &Attributes::idle(before.nice)).unwrap();
    assert!(job.has(&[&one, &two, &three]));
    assert_eq!(job.members.threads()[0].original, before);
    assert!(!job.has(&[&three]));
    assert_eq!(job.tids(), [three.tid]);
    assert!(!job.has(&[]));
    assert_eq!(job.tids(), [] as [u32; 0]);
}

#[test]
fn a_thread_that_fills_already_was_as_its_job_is() {
    let [fills, later] = [(); 2].map(|()| Parked::filling());
    let default = Attributes { policy: SchedPolicy::Batch, ..Attributes::other(0) };
    let mut job = Job::start(default, everywhere());
    job.has(&[&fills]);
    job.has(&[&fills, &later]);
    let original = |job: &Job, tid| {
        job.members.threads().iter().find(|thread| thread.tid == tid).unwrap().original
    };
    let nice = thread::attributes(later.tid).unwrap().nice;
    assert_eq!(original(&job, later.tid), Attributes { nice, ..default });
    // Before gangd did anything, it was its own choice.
    assert_eq!(original(&job, fills.tid), thread::attributes(fills.tid).unwrap());
}

#[test]
fn thread_gone_before_the_look_is_left_out() {
    let gone = Parked::ordinary();
    let tid = gone.tid;
    drop(gone);
    let mut job = Job::start(Attributes::other(0), everywhere());
    // The kernel may take a moment to forget it.
    wait_until("it is forgotten", || thread::attributes(tid).is_err());
    fs::write(job.directory.path().join("cgroup.threads"), format!("{tid}\n")).unwrap();
    job.refresh();
    assert_eq!(job.tids(), [] as [u32; 0]);
}

#[test]
fn who_chose_its_cpus_itself_is_not_restricted() {
    let parked = Parked::ordinary();
    let own = thread::affinity(0).unwrap();
    let elsewhere = CpuSet::from_iter([1023]);
    for (everywhere, pinned, user_pinned) in
        [(&own, None, false), (&elsewhere, None, true), (&elsewhere, Some(&own), false)]
    {
        let mut job = Job::start(Attributes::other(0), everywhere.clone());
        job.members.pinned = pinned.cloned();
        job.has(&[&parked]);
        assert_eq!(job.members.threads()[0].user_pinned, user_pinned);
        assert_eq!(job.members.pinning(&own).count(), usize::from(!user_pinned));
        let mut calls = Vec::new();
        job.members.unpin(&mut calls);
        job.members.unpin(&mut calls);
        assert_eq!(calls.len(), usize::from(pinned.is_some()), "once, and only where pinned");
    }
}

#[test]
fn a_job_beyond_the_thread_limit_says_so() {
    let thread = Parked::ordinary();
    let mut job = Job::start(Attributes::other(0), everywhere());
    let many: String = std::iter::repeat_n(format!("{}\n", thread.tid), THREADS_MAX + 1).collect();
    fs::write(job.directory.path().join("cgroup.threads"), many).unwrap();
    job.refresh();
    assert!(job.members.has_too_many_threads());
    job.has(&[&thread]);
    assert!(!job.members.has_too_many_threads());
}

#[test]
fn known_threads_stay_beyond_the_thread_limit() {
    let thread = Parked::ordinary();
    let mut job = Job::start(Attributes::other(0), everywhere());
    job.has(&[&thread]);
    // Many that have ended, and before them in the list.
    let many: String =
        (1..=THREADS_MAX).map(|at| format!("{}\n", i32::MAX as usize - at)).collect();
    let list = job.directory.path().join("cgroup.threads");
    for text in [format!("{many}{}\n", thread.tid), format!("{}\n{many}", thread.tid)] {
        fs::write(&list, text).unwrap();
        job.refresh();
        assert!(job.members.has_too_many_threads());
        let known: Vec<u32> = job.members.threads().iter().map(|thread| thread.tid).collect();
        assert_eq!(known, [thread.tid]);
    }
}

/// The kernel reads the attributes of a thread one after the other, and somebody may change them
/// meanwhile.
#[test]
fn thread_in_mid_switch_wishes_nothing_needs_fifo() {
    const READS: usize = 100_000;
    // Long beside a switch, so that no second one is met by chance.
    const BETWEEN_SWITCHES: Duration = Duration::from_micros(10);
    let parked = Parked::ordinary();
    let own = thread::attributes(parked.tid).unwrap();
    let raised = Attributes { nice: own.nice, ..Attributes::fifo(gang_timetable::priority::GANG) };
    let filling = Attributes { policy: SchedPolicy::Idle, ..own };
    if let Err(error) = thread::set_attributes(parked.tid, &raised) {
        gang_harness::skipped(format!("SCHED_FIFO is refused: {error}"));
        return;
    }
    thread::set_attributes(parked.tid, &own).unwrap();
    let mut job = Job::start(own, everywhere());
    job.has(&[&parked]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let known = Known::of(own);
            for to in [raised, filling].iter().cycle() {
                thread::switch(parked.tid, to, &known).unwrap();
                let until = Instant::now() + BETWEEN_SWITCHES;
                while Instant::now() < until {}
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let of_owner = |_| {
            job.refresh();
            (job.members.threads()[0].original != own).then(|| job.members.threads()[0])
        };
        let wish = (0..READS).find_map(of_owner);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(wish.map(|it| it.original), None, "its owner chose nothing");
    });
}

#[test]
fn each_of_many_threads_that_moves_is_found() {
    let own = thread::affinity(0).unwrap();
    let Some(cpu) = own.iter().next().filter(|_| own.len() > 1) else {
        return eprintln!("skipped: there is one CPU");
    };
    let threads: Vec<Parked> = (0..70).map(|_| Parked::ordinary()).collect();
    let threads: Vec<&Parked> = threads.iter().collect();
    let mut job = Job::start(Attributes::other(0), own.clone());
    job.roster.online = own;
    job.has(&threads);
    let tids = sorted(&threads);
    for (at, tid) in [(69, tids[69]), (0, tids[0]), (65, tids[65])] {
        let mut moved = |all| job.roster.may_have_moved(&job.members, all);
        assert!(!moved(false) && !moved(false) && !moved(true), "{at}: none has moved");
        thread::set_affinity(tid, &CpuSet::from_iter([cpu])).unwrap();
        // At two looks in turn, or at one.
        let is_found = if at == 0 { moved(true) } else { moved(false) || moved(false) };
        assert!(is_found, "{at}");
        assert!(job.refresh(), "{at}: it is not in its place");
        assert!(job.members.threads()[at].user_pinned, "{at}");
    }
}

#[test]
fn stray_is_on_file_with_when_it_was_a_member() {
    let threads = [Parked::ordinary(), Parked::ordinary()];
    let [stays, leaves] = &threads;
    let mut job = Job::start(Attributes::other(0), everywhere());
    job.roster.pins = Pins::create(&job.directory.path().join("1.pins")).unwrap();
    job.has(&[stays, leaves]);
    let was_there_ticks = clock::boot_ticks();
    let on_file = |job: &Job, of: &Parked| {
        job.roster.pins.members().find(|(tid, _)| *tid == of.tid).map(|(_, at)| at)
    };
    for _ in 0..2 {
        wait_until("it is later", || clock::boot_ticks() > was_there_ticks + 1);
        job.has(&[stays]);
        assert!(on_file(&job, leaves).unwrap() <= was_there_ticks);
        assert!(on_file(&job, stays).unwrap() > was_there_ticks);
    }
    job.roster.forget_strays(&[leaves.tid].into(), &job.members);
    assert_eq!(on_file(&job, leaves), None);
}

#[test]
fn owners_are_read_of_processes_alone() {
    let threads: Vec<Parked> = (0..40).map(|_| Parked::ordinary()).collect();
    let threads: Vec<&Parked> = threads.iter().collect();
    let mut job = Job::start(Attributes::other(0), thread::affinity(0).unwrap());
    job.roster.owner_uid = Some(1000);
    // Nothing is there of single threads but their numbers.
    let proc_root = tempfile::tempdir().unwrap();
    let process = proc_root.path().join("7");
    for thread in &threads {
        fs::create_dir_all(process.join(format!("task/{}", thread.tid))).unwrap();
    }
    let group = job.directory.path().to_owned();
    let is_of = |uid: u32| {
        let text = format!("Tgid:\t7\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        fs::write(process.join("status"), text).unwrap();
    };
    let mut has = |threads: &[&Parked]| {
        let list: String = threads.iter().map(|thread| format!("{}\n", thread.tid)).collect();
        fs::write(group.join("cgroup.threads"), list).unwrap();
        let is_other = job.roster.refresh(&mut job.members, proc_root.path()).unwrap();
        let foreign = job.members.threads().iter().filter(|thread| thread.is_foreign);
        (is_other, foreign.count())
    };
    fs::write(group.join("cgroup.procs"), "7\n").unwrap();
    is_of(1000);
    assert_eq!(has(&threads[..10]), (true, 0));
    is_of(1001);
    assert_eq!(has(&threads[..20]), (true, 20), "those that are known, and those that are new");
    assert_eq!(has(&threads[..20]), (false, 20));
    assert_eq!(has(&threads[..30]), (true, 30));
    is_of(1000);
    assert_eq!(has(&threads[..30]), (true, 0));
    // Where the process cannot be looked at when its threads come, it is the next time.
    is_of(1001);
    fs::rename(process.join("status"), process.join("hidden")).unwrap();
    assert_eq!(has(&threads), (true, 0));
    fs::rename(process.join("hidden"), process.join("status")).unwrap();
    assert_eq!(has(&threads), (true, 40));
}

#[test]
fn each_of_many_processes_with_new_owner_is_found() {
    let processes: Vec<Parked> = (0..200).map(|_| Parked::ordinary()).collect();
    let processes: Vec<&Parked> = processes.iter().collect();
    let pids = sorted(&processes);
    let mut job = Job::start(Attributes::other(0), thread::affinity(0).unwrap());
    job.roster.owner_uid = Some(1000);
    let proc_root = tempfile::tempdir().unwrap();
    let is_of = |pid: u32, uid: u32| {
        let of_process = proc_root.path().join(pid.to_string());
        fs::create_dir_all(of_process.join(format!("task/{pid}"))).unwrap();
        let text = format!("Tgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n");
        fs::write(of_process.join("status"), text).unwrap();
    };
    pids.iter().for_each(|&pid| is_of(pid, 1000));
    let list: String = pids.iter().map(|pid| format!("{pid}\n")).collect();
    for file in ["cgroup.threads", "cgroup.procs"] {
        fs::write(job.directory.path().join(file), &list).unwrap();
    }
    job.roster.refresh(&mut job.members, proc_root.path()).unwrap();
    for at in [199, 0, 100] {
        for uid in [1001, 1000] {
            let mut look = || job.roster.may_be_foreign(proc_root.path());
            assert!(!look() && !look(), "{at}: all are as they are known to be");
            is_of(pids[at], uid);
            assert!(look() || look(), "{at}: two looks are at all of them");
            assert!(job.roster.refresh(&mut job.members, proc_root.path()).unwrap());
            let foreign = job.members.threads().iter().filter(|thread| thread.is_foreign);
            let foreign: Vec<u32> = foreign.map(|thread| thread.tid).collect();
            assert_eq!(foreign, if uid == 1001 { vec![pids[at]] } else { vec![] });
        }
    }
    job.roster.owner_uid = None;
    is_of(pids[0], 1001);
    let looks = [(); 2].map(|()| job.roster.may_be_foreign(proc_root.path()));
    assert_eq!(looks, [false; 2], "to root nobody is foreign");
}

#[test]
fn nobody_waits_for_a_file_to_read_single_threads() {
    let (stays, ends) = (Parked::ordinary(), Parked::ordinary());
    let proc_root = tempfile::tempdir().unwrap();
    let process = proc_root.path().join("7");
    let single = |tid: u32| {
        let task = process.join(format!("task/{tid}"));
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("status"), "State:\tS (sleeping)\n").unwrap();
        let normal = Attributes::other(0).into();
        Single { tid, started: 20, pid: 7, process_started: 10, since: 50, normal }
    };
    // A reader that opens one waits until somebody writes.
    let stat = proc_root.path().join("7/stat");
    let singles = vec![single(stays.tid), single(ends.tid)];
    let of_thread = |tid: u32| process.join(format!("task/{tid}/stat"));
    for file in [stat.clone(), of_thread(stays.tid), of_thread(ends.tid)] {
        mknodat(CWD, &file, FileType::Fifo, Mode::RUSR, 0).unwrap();
    }
    let mut roster = Roster::of_threads(singles);
    let mut members = roster.members(Attributes::other(0), thread::affinity(0).unwrap());
    let mut read = |roster: &mut Roster| {
        roster.refresh(&mut members, proc_root.path()).unwrap();
        let tids: BTreeSet<u32> = members.threads().iter().map(|thread| thread.tid).collect();
        (tids, members.clone())
    };
    assert_eq!(read(&mut roster).0, [stays.tid, ends.tid].into());
    assert!(!roster.is_over(proc_root.path()));
    let look = roster.look().unwrap();
    assert!(roster.look().is_none(), "one at a time");
    fs::write(process.join(format!("task/{}/status", ends.tid)), "State:\tZ (zombie)\n").unwrap();
    let (tids, members) = read(&mut roster);
    assert_eq!(tids, [stays.tid].into());
    // Another thread has its number now.
    fs::remove_file(of_thread(stays.tid)).unwrap();
    let fields = "0 0 0 0 0 0 0 0 0 1 1 0 0 20 0 1 0";
    let text = format!("{} (x) S 1 {fields} 21 {}", stays.tid, "0 ".repeat(20));
    fs::write(of_thread(stays.tid), text).unwrap();
    for file in [stat, of_thread(ends.tid)] {
        fs::remove_file(file).unwrap();
    }
    roster.looked(look.take(proc_root.path()), &members);
    assert!(read(&mut roster).0.is_empty() && roster.is_over(proc_root.path()));
    assert!(roster.look().is_some());
}
