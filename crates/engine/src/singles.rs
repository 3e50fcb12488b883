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
//! When a thread started is in a file whose reader waits while the process becomes another program
//! ([`process::stat`]). A thread that can wait takes such a [`Look`], and the one that follows the
//! clock takes what was [`Seen`].
//!
//! Properties: a thread that has ended is no member; where another thread has its number, the next
//! look shows that. Older threads are never touched. A younger one that chose SCHED_IDLE, or
//! exactly the CPUs of a slot, before it was looked at, loses that choice.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use gang_linux::{cgroup::Group, clock, process};
use gang_schedule::CpuSet;
use gang_timetable::{
    Attributes, THREADS_MAX, as_default, is_raised,
    record::{Placement, Single},
    released, released_inheritor,
};

use crate::{
    pins::{Pins, unpin},
    thread,
};

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

/// A thread that left its job by itself, with when it was a member yet; absent where a younger one
/// has its number.
pub fn stray(proc_root: &Path, tid: u32, was_there_ticks: u64) -> Option<Single> {
    let started = process::stat(proc_root, tid).ok()?.start_ticks;
    let pid = process::of_thread(proc_root, tid).ok()?;
    let process_started = process::stat(proc_root, pid).ok()?.start_ticks;
    let (since, normal) = (was_there_ticks, Attributes::other(0).into());
    let single = Single { tid, started, pid, process_started, since, normal };
    (started <= was_there_ticks).then_some(single)
}

/// Whether a thread has ended, as far as it shows without waiting: where its number is given to
/// another thread of its process, that is taken for it.
pub fn has_ended(single: &Single, proc_root: &Path) -> bool {
    !process::has_thread(proc_root, single.pid, single.tid)
}

/// False as soon as the thread has ended. It may wait ([`process::stat`]).
pub fn is_there(single: &Single, proc_root: &Path) -> bool {
    let stat = process::thread_stat(proc_root, single.pid, single.tid);
    // The first thread of a process stays on the list until the others have ended.
    stat.is_ok_and(|stat| stat.start_ticks == single.started && !matches!(stat.state, b'Z' | b'X'))
}

fn process_is_there(single: &Single, proc_root: &Path) -> bool {
    let stat = process::stat(proc_root, single.pid);
    stat.is_ok_and(|stat| stat.start_ticks == single.process_started)
}

/// The members of other jobs: what these have is nobody else's to release, nor what single threads
/// among them have started.
#[derive(Clone, Debug, Default)]
pub struct Others {
    pub singles: Vec<Single>,
    pub groups: Vec<PathBuf>,
    /// Those of jobs without a cgroup.
    pub processes: BTreeSet<u32>,
}

impl Others {
    /// Those of jobs that are known from files only.
    pub fn on_file<'a>(proc_root: &Path, jobs: impl Iterator<Item = &'a Placement>) -> Others {
        let mut others = Others::default();
        for placement in jobs {
            match placement {
                Placement::Cgroup { group, other, .. } => {
                    others.groups.extend([group].into_iter().chain(other).cloned());
                }
                Placement::Threads { threads } => others.singles.extend(threads),
                Placement::Tree { processes } => {
                    let there = processes.iter().filter(|(pid, started)| {
                        process::stat(proc_root, *pid).is_ok_and(|it| it.start_ticks == *started)
                    });
                    let trees = there.filter_map(|it| process::descendants(proc_root, it.0).ok());
                    others.processes.extend(trees.flatten());
                }
            }
        }
        others
    }

    /// Their threads as they are now.
    pub fn listed(&self) -> Listed {
        // A group that is gone has no threads.
        let groups = self.groups.iter().filter_map(|group| Group::at(group).threads().ok());
        let singles = self.singles.iter().map(|single| single.tid);
        Listed {
            threads: groups.flatten().chain(singles).collect(),
            processes: self.processes.clone(),
        }
    }

    /// Those of the found that are no members.
    fn without(&self, proc_root: &Path, found: Vec<Found>) -> Vec<(u32, Single)> {
        let groups = if found.is_empty() { &[][..] } else { &self.groups };
        // A group that is gone has no processes.
        let in_groups = groups.iter().filter_map(|group| Group::at(group).processes().ok());
        let in_groups: BTreeSet<u32> = in_groups.flatten().collect();
        let is_member = |it: &Found| {
            let mut singles = self.singles.iter().filter(|single| single.tid == it.tid);
            in_groups.contains(&it.pid)
                || self.processes.contains(&it.pid)
                || singles.any(|single| is_there(single, proc_root))
        };
        let inheritors = found.into_iter().filter(|it| !is_member(it));
        inheritors.map(|it| (it.tid, it.of)).collect()
    }
}

/// Members of jobs, listed at one moment.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    threads: BTreeSet<u32>,
    processes: BTreeSet<u32>,
}

impl Listed {
    /// Whether a thread is one of them.
    pub fn have(&self, proc_root: &Path, tid: u32) -> bool {
        let is_in_process = || {
            let pid = process::of_thread(proc_root, tid).unwrap_or(tid);
            self.processes.contains(&pid)
        };
        self.threads.contains(&tid) || (!self.processes.is_empty() && is_in_process())
    }
}

/// A thread of a process that may have inherited from a member.
struct Found {
    pid: u32,
    tid: u32,
    of: Single,
}

/// A look at the single threads of a job, and at what they have started, by files whose reader may
/// wait.
#[derive(Debug)]
pub struct Look {
    members: Vec<Single>,
    others: Others,
    inheritors: Inheritors,
}

impl Look {
    pub(crate) fn new(members: Vec<Single>, others: Others, inheritors: Inheritors) -> Look {
        Look { members, others, inheritors }
    }

    pub fn take(mut self, proc_root: &Path) -> Seen {
        let (came, beside) = self.inheritors.find(proc_root, &self.members, &self.others);
        let gone = self.members.into_iter().filter(|it| !is_there(it, proc_root)).collect();
        Seen { gone, came, beside, inheritors: self.inheritors }
    }
}

/// The findings of a [`Look`].
#[derive(Debug)]
pub struct Seen {
    /// Members that have ended.
    pub(crate) gone: Vec<Single>,
    /// Inheritors that nobody has looked at yet, each with the member it may have inherited from.
    pub(crate) came: Vec<(u32, Single)>,
    /// How many threads the members' processes have besides.
    pub(crate) beside: usize,
    /// For the next look.
    pub(crate) inheritors: Inheritors,
}

impl Seen {
    /// Leaves out inheritors that are members of a job by now.
    pub fn keep(&mut self, of_no_job: impl FnOnce(BTreeSet<u32>) -> BTreeSet<u32>) {
        if !self.came.is_empty() {
            let of_none = of_no_job(self.came.iter().map(|(tid, _)| *tid).collect());
            self.came.retain(|(tid, _)| of_none.contains(tid));
        }
    }
}

/// The threads that may have inherited from members.
#[derive(Debug, Default)]
pub(crate) struct Inheritors {
    looked_at: BTreeSet<u32>,
}

impl Inheritors {
    /// Those that nobody has looked at yet, each with the member it may have inherited from.
    /// Returns how many threads the members' processes have besides.
    fn find(
        &mut self,
        proc_root: &Path,
        members: &[Single],
        others: &Others,
    ) -> (Vec<(u32, Single)>, usize) {
        let (mut new, mut there, mut listed) = (Vec::new(), BTreeSet::new(), 0);
        let tree = Tree::of(proc_root, members, others);
        for single in tree.processes() {
            let tids = process::threads(proc_root, single.pid).unwrap_or_default();
            listed += tids.len();
            for tid in tids.into_iter().filter(|tid| !tree.tids.contains(tid)) {
                there.insert(tid);
                let is_new = !self.looked_at.contains(&tid);
                if is_new && is_younger(proc_root, single.pid, tid, single.since) {
                    new.push(Found { pid: single.pid, tid, of: *single });
                }
            }
        }
        for single in members.iter().filter(|single| is_there(single, proc_root)) {
            for child in process::children_of_thread(proc_root, single.pid, single.tid) {
                there.insert(child);
                if !self.looked_at.contains(&child) {
                    new.extend(tree.family(child, *single, &mut BTreeSet::new()));
                }
            }
        }
        // Of those that ended the numbers may be given to others.
        self.looked_at = there;
        (others.without(proc_root, new), listed)
    }
}

fn is_younger(proc_root: &Path, pid: u32, tid: u32, than: u64) -> bool {
    process::thread_stat(proc_root, pid, tid).is_ok_and(|stat| stat.start_ticks >= than)
}

/// Single members, and the processes below theirs.
struct Tree<'a> {
    proc_root: &'a Path,
    tids: BTreeSet<u32>,
    /// One member for each process: the one that was the first.
    members: BTreeMap<u32, Single>,
    others: BTreeMap<u32, Single>,
}

impl Tree<'_> {
    fn of<'a>(proc_root: &'a Path, members: &[Single], others: &Others) -> Tree<'a> {
        let by_process = |singles: &[Single]| {
            let mut firsts = BTreeMap::new();
            for single in singles {
                firsts.entry(single.pid).or_insert(*single);
            }
            firsts
        };
        let tids = members.iter().map(|single| single.tid).collect();
        let (members, others) = (by_process(members), by_process(&others.singles));
        Tree { proc_root, tids, members, others }
    }

    /// One member for each process that is there.
    fn processes(&self) -> impl Iterator<Item = &Single> {
        self.members.values().filter(|it| process_is_there(it, self.proc_root))
    }

    /// The nearest member of a process, given the nearest one above; absent where that is another
    /// job's.
    fn nearest(&self, pid: u32, above: Option<Single>) -> Option<Single> {
        let of = |singles: &BTreeMap<u32, Single>| {
            singles.get(&pid).copied().filter(|it| process_is_there(it, self.proc_root))
        };
        of(&self.members).or_else(|| above.filter(|_| of(&self.others).is_none()))
    }

    /// The threads of a process that `of` has started, and of all that this has started, each with
    /// the nearest member above it. Threads that are older than that one's membership are left out,
    /// and those of which the nearest single member is one of another job. Processes that were
    /// `seen` are left out, too.
    fn family(&self, first: u32, of: Single, seen: &mut BTreeSet<u32>) -> Vec<Found> {
        let (mut processes, mut next) = (Vec::new(), 0);
        if seen.insert(first) {
            processes.push((first, self.nearest(first, Some(of))));
        }
        while next < processes.len() && processes.len() <= THREADS_MAX {
            let (pid, of) = processes[next];
            let children = process::children(self.proc_root, pid).unwrap_or_default().into_iter();
            let new = children.filter(|child| seen.insert(*child));
            processes.extend(new.map(|child| (child, self.nearest(child, of))));
            next += 1;
        }
        let inheritors = |&(pid, of): &(u32, Option<Single>)| {
            let of = of?;
            let tids = process::threads(self.proc_root, pid).unwrap_or_default().into_iter();
            let tids = tids.filter(|tid| !self.tids.contains(tid));
            let young = tids.filter(|&tid| is_younger(self.proc_root, pid, tid, of.since));
            Some(young.map(|tid| Found { pid, tid, of }).collect::<Vec<_>>())
        };
        processes.iter().filter_map(inheritors).flatten().collect()
    }
}

/// All threads that may have inherited from members, looked at or not: for a release that knows the
/// members from a file only.
pub fn inheritors(proc_root: &Path, members: &[Single], others: &Others) -> Vec<(u32, Single)> {
    let (tree, mut seen) = (Tree::of(proc_root, members, others), BTreeSet::new());
    let families = tree.processes().flat_map(|it| tree.family(it.pid, *it, &mut seen));
    others.without(proc_root, families.collect())
}

/// Gives what threads that left their job by themselves have started what it would have had: all
/// that is younger than the last look at them. Each stray comes with the attributes that it had.
/// `of_no_job` leaves of threads those that no job has. Returns how many had something of gangd's.
pub fn release_started(
    proc_root: &Path,
    strays: &[(Single, Option<Attributes>)],
    everywhere: &CpuSet,
    pins: Option<&Pins>,
    of_no_job: impl FnOnce(BTreeSet<u32>) -> BTreeSet<u32>,
) -> usize {
    let singles: Vec<Single> = strays.iter().map(|(stray, _)| *stray).collect();
    let normal: BTreeMap<u32, Option<Attributes>> =
        strays.iter().map(|(stray, normal)| (stray.tid, *normal)).collect();
    let started = inheritors(proc_root, &singles, &Others::default());
    if started.is_empty() {
        return 0;
    }
    let of_none = of_no_job(started.iter().map(|(tid, _)| *tid).collect());
    let had_something = |&&(tid, of): &&(u32, Single)| {
        let (now, normal) = (thread::attributes(tid).ok(), normal[&of.tid]);
        // In a group that is idle as a whole, SCHED_BATCH is that of a thread out of its slot.
        let had = now.zip(normal).and_then(|(now, normal)| released(&now, &as_default(normal)));
        let is_changed = had.is_some_and(|had| thread::set_attributes(tid, &had).is_ok());
        unpin(tid, everywhere, pins) || is_changed
    };
    let started = started.iter().filter(|(tid, _)| of_none.contains(tid));
    started.filter(had_something).count()
}

/// Gives an inheritor what the member had; true where it had something of gangd's.
pub fn release_inheritor(tid: u32, of: &Single, everywhere: &CpuSet, pins: Option<&Pins>) -> bool {
    let own = pins.and_then(|pins| pins.own(of.tid));
    let (normal, mut changed) = (own.unwrap_or_else(|| of.normal.into()), false);
    // One that was started in a slot is an ordinary thread by then (SCHED_RESET_ON_FORK), or has
    // the weight of an oversubscribed gang.
    let now = thread::attributes(tid).ok();
    if let Some(had) = now.and_then(|now| released_inheritor(&now, &normal)) {
        changed |= thread::set_attributes(tid, &had).is_ok();
    }
    unpin(tid, everywhere, pins) || changed
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
            let (new, listed) = inheritors_of.find(root.path(), members, &Others::default());
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
        let none = Others::default();
        assert_eq!(pairs(inheritors(root.path(), &members, &none)), expected);
        assert_eq!(pairs(Inheritors::default().find(root.path(), &members, &none).0), expected);
        // Where the nearer one is no member, they are of the other.
        let expected = BTreeSet::from([(21, 7), (30, 7), (40, 7)]);
        assert_eq!(pairs(inheritors(root.path(), &members[..1], &none)), expected);
        // Where the nearer one is of another job, they are of no member of this one.
        let nearer = Placement::Threads { threads: members[1..].to_vec() };
        let others = Others::on_file(root.path(), [&nearer].into_iter());
        let expected = BTreeSet::from([(40, 7)]);
        assert_eq!(pairs(inheritors(root.path(), &members[..1], &others)), expected);
        let found = Inheritors::default().find(root.path(), &members[..1], &others).0;
        assert_eq!(pairs(found), expected);
    }

    #[test]
    fn members_of_other_jobs_are_no_inheritors() {
        let root = proc_of(&[
            (7, 7, 10),
            (7, 8, 60),
            (7, 9, 70),
            (20, 20, 80),
            (30, 30, 80),
            (31, 31, 90),
        ]);
        let children = [(7, 7, "20 30 "), (7, 8, ""), (7, 9, ""), (20, 20, ""), (30, 30, "31 ")];
        for (pid, tid, children) in children.into_iter().chain([(31, 31, "")]) {
            let file = root.path().join(format!("{pid}/task/{tid}/children"));
            fs::write(file, children).unwrap();
        }
        let found = |others: &[Placement]| {
            let others = Others::on_file(root.path(), others.iter());
            let members = [single(7, 7, 10)];
            let found = inheritors(root.path(), &members, &others).into_iter();
            BTreeSet::from_iter(found.map(|(tid, _)| tid))
        };
        assert_eq!(found(&[]), BTreeSet::from([8, 9, 20, 30, 31]));
        // A thread beside the member, the processes of a group, and a tree.
        let threads = vec![single(7, 8, 60)];
        assert_eq!(found(&[Placement::Threads { threads }]), BTreeSet::from([9, 20, 30, 31]));
        let group = root.path().join("group");
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cgroup.procs"), "20\n").unwrap();
        let in_group = Placement::Cgroup {
            group,
            origin: PathBuf::new(),
            cpu_group: None,
            cpu_origin: None,
            cpu_group_is_shared: false,
            adopted: false,
            memory: None,
            other: None,
        };
        assert_eq!(found(&[in_group]), BTreeSet::from([8, 9, 30, 31]));
        let tree = Placement::Tree { processes: vec![(30, 80), (31, 90)] };
        assert_eq!(found(&[tree]), BTreeSet::from([8, 9, 20]));
    }
}
