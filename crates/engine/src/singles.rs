//! Single threads as members of a job, which the rest of their processes is none of.
//!
//! Problem: a thread has a number that may be given to another one, and not every kernel has
//! descriptors of threads. And what a member starts inherits its policy and its CPUs without being
//! a member: nobody would give it back what it would have without gangd.
//!
//! Approach: a thread is known by its number, its process and its start. Threads that are younger
//! than the membership, in the process or started by the member, are looked at once. One that has
//! what a member has is an *inheritor*, and gets what the nearest member above it had before.
//!
//! Properties: a thread that has ended is no member, also where another thread has its number.
//! Older threads are never touched. A younger one that chose SCHED_IDLE, or exactly the CPUs of a
//! slot, before it was looked at, loses that choice.

use std::{collections::BTreeSet, path::Path};

use gang_linux::{clock, process};
use gang_schedule::CpuSet;
use gang_timetable::{Attributes, THREADS_MAX, is_raised, record::Single, released_inheritor};

use crate::{pins::Pins, thread};

/// A thread of a process, as it is now.
pub fn read(proc_root: &Path, pid: u32, tid: u32) -> gang_linux::Result<Single> {
    let process_started = process::stat(proc_root, pid)?.start_ticks;
    let started = process::thread_stat(proc_root, pid, tid)?.start_ticks;
    let read = |source| gang_linux::Error::new("read the attributes of thread", tid, source);
    let mut normal = thread::attributes(tid).map_err(read)?;
    // Nobody's own choice: an earlier daemon left it so.
    if is_raised(&normal) {
        normal = Attributes::other(normal.nice);
    }
    let since = clock::boot_ticks();
    Ok(Single { tid, started, pid, process_started, since, normal: normal.into() })
}

/// False as soon as the thread has ended.
pub fn is_there(single: &Single, proc_root: &Path) -> bool {
    let stat = process::thread_stat(proc_root, single.pid, single.tid);
    // The first thread of a process stays on the list until the others have ended.
    stat.is_ok_and(|stat| stat.start_ticks == single.started && !matches!(stat.state, b'Z' | b'X'))
}

fn process_is_there(single: &Single, proc_root: &Path) -> bool {
    let stat = process::stat(proc_root, single.pid);
    stat.is_ok_and(|stat| stat.start_ticks == single.process_started)
}

/// The threads that may have inherited from members.
#[derive(Debug, Default)]
pub struct Inheritors {
    looked_at: BTreeSet<u32>,
}

impl Inheritors {
    /// Those that nobody has looked at yet, each with the member it may have inherited from.
    /// Returns how many threads the members' processes have besides.
    pub fn find(&mut self, proc_root: &Path, members: &[Single]) -> (Vec<(u32, Single)>, usize) {
        let (mut new, mut there, mut listed) = (Vec::new(), BTreeSet::new(), 0);
        for single in members_by_process(members).filter(|it| process_is_there(it, proc_root)) {
            let tids = process::threads(proc_root, single.pid).unwrap_or_default();
            listed += tids.len();
            let is_member = |tid: &u32| members.iter().any(|member| member.tid == *tid);
            for tid in tids.into_iter().filter(|tid| !is_member(tid)) {
                there.insert(tid);
                let is_new = !self.looked_at.contains(&tid);
                if is_new && is_younger(proc_root, single.pid, tid, single.since) {
                    new.push((tid, *single));
                }
            }
        }
        for single in members.iter().filter(|single| is_there(single, proc_root)) {
            for child in process::children_of_thread(proc_root, single.pid, single.tid) {
                there.insert(child);
                if !self.looked_at.contains(&child) {
                    new.extend(family(proc_root, child, *single, members));
                }
            }
        }
        // Of those that ended the numbers may be given to others.
        self.looked_at = there;
        (new, listed)
    }
}

/// One member for each process: the one that was the first.
fn members_by_process(members: &[Single]) -> impl Iterator<Item = &Single> {
    members.iter().enumerate().filter_map(|(at, single)| {
        let is_first = members[..at].iter().all(|earlier| earlier.pid != single.pid);
        is_first.then_some(single)
    })
}

fn is_younger(proc_root: &Path, pid: u32, tid: u32, than: u64) -> bool {
    process::thread_stat(proc_root, pid, tid).is_ok_and(|stat| stat.start_ticks >= than)
}

/// The threads of a process that `of` has started, and of all that this has started, each with the
/// nearest member above it. Threads that are older than that one's membership are left out: they
/// may be in other jobs.
fn family(proc_root: &Path, first: u32, of: Single, members: &[Single]) -> Vec<(u32, Single)> {
    let of_itself = |pid: u32| {
        let mut singles = members_by_process(members);
        singles.find(|it| it.pid == pid && process_is_there(it, proc_root)).copied()
    };
    let (mut processes, mut next) = (vec![(first, of_itself(first).unwrap_or(of))], 0);
    while next < processes.len() && processes.len() <= THREADS_MAX {
        let (pid, of) = processes[next];
        let children = process::children(proc_root, pid).unwrap_or_default().into_iter();
        processes.extend(children.map(|child| (child, of_itself(child).unwrap_or(of))));
        next += 1;
    }
    let inheritors = |&(pid, of): &(u32, Single)| {
        let tids = process::threads(proc_root, pid).unwrap_or_default().into_iter();
        let tids = tids.filter(|tid| !members.iter().any(|member| member.tid == *tid));
        let young = tids.filter(|&tid| is_younger(proc_root, pid, tid, of.since));
        young.map(|tid| (tid, of)).collect::<Vec<_>>()
    };
    processes.iter().flat_map(inheritors).collect()
}

/// All threads that may have inherited from members, looked at or not: for a release that knows the
/// members from a file only.
pub fn inheritors(proc_root: &Path, members: &[Single]) -> Vec<(u32, Single)> {
    let there = members_by_process(members).filter(|it| process_is_there(it, proc_root));
    there.flat_map(|single| family(proc_root, single.pid, *single, members)).collect()
}

/// Gives an inheritor what the member had; true where it had something of gangd's.
pub fn release_inheritor(tid: u32, of: &Single, everywhere: &CpuSet, pins: Option<&Pins>) -> bool {
    let own = pins.and_then(|pins| pins.own(of.tid));
    let (normal, mut changed) = (own.unwrap_or_else(|| of.normal.into()), false);
    // One that was started in a slot is an ordinary thread by then (SCHED_RESET_ON_FORK), or has
    // the weight of a wide gang.
    let now = thread::attributes(tid).ok();
    if let Some(had) = now.and_then(|now| released_inheritor(&now, &normal)) {
        changed |= thread::set_attributes(tid, &had).is_ok();
    }
    let is_given =
        |cpus: &CpuSet| cpus != everywhere && pins.is_some_and(|pins| pins.has_pinned(tid, cpus));
    if thread::affinity(tid).is_ok_and(|cpus| is_given(&cpus)) {
        changed |= thread::set_affinity(tid, everywhere).is_ok();
    }
    changed
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gang_timetable::record::Normal;

    use super::*;

    /// A `/proc` of threads: process, number and start.
    fn proc_of(threads: &[(u32, u32, u64)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for &(pid, tid, started) in threads {
            let fields = "0 0 0 0 0 0 0 0 0 1 1 0 0 20 0 1 0";
            let tail = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
            let line = format!("{tid} (x) S 1 {fields} {started} {tail}");
            let process = root.path().join(pid.to_string());
            let task = process.join(format!("task/{tid}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("stat"), &line).unwrap();
            if pid == tid {
                fs::write(process.join("stat"), &line).unwrap();
            }
        }
        root
    }

    fn single(pid: u32, tid: u32, started: u64) -> Single {
        let normal = Normal::default();
        Single { tid, started, pid, process_started: 10, since: 50, normal }
    }

    #[test]
    fn reused_thread_number_is_no_member() {
        let root = proc_of(&[(7, 7, 10), (7, 8, 20)]);
        assert!(is_there(&single(7, 8, 20), root.path()));
        assert!(!is_there(&single(7, 8, 21), root.path()), "it started at another time");
        assert!(!is_there(&single(9, 8, 20), root.path()), "it is of another process");
        assert!(!is_there(&single(7, 9, 20), root.path()));
    }

    #[test]
    fn inheritors_are_younger_and_looked_at_once() {
        let root =
            proc_of(&[(7, 7, 10), (7, 8, 20), (7, 9, 49), (7, 11, 50), (7, 12, 60), (20, 20, 70)]);
        let children = root.path().join("7/task/8/children");
        fs::write(&children, "20 ").unwrap();
        let members = [single(7, 8, 20)];
        let mut inheritors_of = Inheritors::default();
        let mut found = |members: &[Single]| {
            let (new, listed) = inheritors_of.find(root.path(), members);
            let mut new: Vec<u32> = new.into_iter().map(|(tid, _)| tid).collect();
            new.sort_unstable();
            (new, listed)
        };
        assert_eq!(found(&members), (vec![11, 12, 20], 5));
        assert_eq!(found(&members), (vec![], 5));
        // One ends, and its number is given to another one; a member is none.
        fs::remove_dir_all(root.path().join("7/task/12")).unwrap();
        assert!(found(&members).0.is_empty());
        let again = root.path().join("7/task/12");
        fs::create_dir_all(&again).unwrap();
        fs::copy(root.path().join("7/task/11/stat"), again.join("stat")).unwrap();
        assert!(found(&[members[0], single(7, 12, 50)]).0.is_empty());
        assert_eq!(found(&members).0, [12]);
        // The number of the process is another's now; or that of the member, which started nobody
        // then.
        assert!(found(&[Single { process_started: 11, ..members[0] }]).0.is_empty());
        assert_eq!(found(&[single(7, 8, 21)]).0, [11, 12]);
    }

    #[test]
    fn inheritors_are_of_the_nearest_member_above_them() {
        let root = proc_of(&[(7, 7, 10), (20, 20, 10), (20, 21, 70), (30, 30, 80), (40, 40, 90)]);
        // 7 has started 20 and 40, and 20 has started 30.
        let all = [(7, 7, "20 40 "), (20, 20, "30 "), (20, 21, ""), (30, 30, ""), (40, 40, "")];
        for (pid, tid, children) in all {
            let file = root.path().join(format!("{pid}/task/{tid}/children"));
            fs::write(file, children).unwrap();
        }
        let members = [single(7, 7, 10), single(20, 20, 10)];
        let pairs = |found: Vec<(u32, Single)>| {
            BTreeSet::from_iter(found.into_iter().map(|(tid, of)| (tid, of.tid)))
        };
        let expected = BTreeSet::from([(21, 20), (30, 20), (40, 7)]);
        assert_eq!(pairs(inheritors(root.path(), &members)), expected);
        assert_eq!(pairs(Inheritors::default().find(root.path(), &members).0), expected);
        // Where the nearer one is no member, they are of the other.
        let expected = BTreeSet::from([(21, 7), (30, 7), (40, 7)]);
        assert_eq!(pairs(inheritors(root.path(), &members[..1])), expected);
    }
}
