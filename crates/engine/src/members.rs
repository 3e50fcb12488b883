//! The threads and processes of one job, and what must be remembered of them.
//!
//! A job is a cgroup where one can be made: fork, exec and a double fork cannot leave it. Without
//! the right to make one, a job is the tree of processes below its first one; a process once seen
//! stays in the job when its parent ends.

use std::{ops::Deref, path::Path, sync::Arc};

use gang_linux::{
    cgroup::{Group, OpenFile},
    clock,
    error::{if_there, unless_gone},
    process,
};
use gang_schedule::{CpuSet, JobId};
use gang_timetable::{Action, Attributes, Controls, Runnable, Seen, Signal, THREADS_MAX};

use crate::{
    bound::{ControlFiles, ProcessHandle},
    pins::Pins,
    singles::{self, Inheritors, Single},
    thread,
};

/// How the members of a job are found.
#[derive(Debug)]
enum Roster {
    Cgroup {
        threads: OpenFile,
        cpu: Option<OpenFile>,
        pressure: Option<OpenFile>,
        /// Still in the group, and not of the job any more.
        leaving: Vec<Arc<ProcessHandle>>,
        /// Of the job, and not in the group yet.
        expected: Vec<u32>,
    },
    /// Those that were taken out of the job are not found again.
    Tree { processes: Vec<Arc<ProcessHandle>>, removed: Vec<Arc<ProcessHandle>> },
    /// Single threads; the rest of their processes is none of the job.
    Threads { singles: Vec<Single>, inheritors: Inheritors },
}

impl Roster {
    fn singles(&self) -> &[Single] {
        match self {
            Roster::Threads { singles, .. } => singles,
            Roster::Cgroup { .. } | Roster::Tree { .. } => &[],
        }
    }
}

/// Some threads of a job, which stand for all.
#[derive(Clone, Debug)]
pub struct Part {
    pub tids: Vec<u32>,
    /// Threads that came since there was a part before.
    came: u32,
}

/// The members of one job.
#[derive(Debug)]
pub struct Members {
    roster: Roster,
    pub control_files: ControlFiles,
    /// The part that matters for how they stand.
    known: gang_timetable::Members,
    /// For those who must release it without knowing anything else.
    pub pins: Pins,
    /// How many threads it had when they were last read.
    listed: usize,
    /// Threads that came since there was a [`Part`].
    came: u32,
    /// How many of these there were.
    counts: usize,
    bytes: Vec<u8>,
    numbers: Vec<u32>,
}

impl Deref for Members {
    type Target = gang_timetable::Members;

    fn deref(&self) -> &gang_timetable::Members {
        &self.known
    }
}

impl Members {
    /// The members of a cgroup; `in_idle_group` where it, or one above, is idle as a whole.
    pub fn of_group(
        group: &Group,
        control_files: ControlFiles,
        in_idle_group: bool,
        default: Attributes,
        everywhere: CpuSet,
    ) -> gang_linux::Result<Members> {
        let threads = OpenFile::open(group, "cgroup.threads")?;
        let cpu = if_there(OpenFile::open(group, "cpu.stat"))?;
        // A kernel may refuse it, and jobs do without.
        let pressure = OpenFile::open(group, "cpu.pressure").ok();
        let roster =
            Roster::Cgroup { threads, cpu, pressure, leaving: Vec::new(), expected: Vec::new() };
        let has = Controls {
            freezer: control_files.freeze.is_some(),
            idle: control_files.idle.is_some(),
            weight: control_files.weight.is_some(),
            in_idle_group,
        };
        let known = gang_timetable::Members::new(has, default, everywhere);
        Ok(Members::new(roster, control_files, known))
    }

    /// A process and its descendants.
    pub fn of_tree(first: Arc<ProcessHandle>, default: Attributes, everywhere: CpuSet) -> Members {
        let roster = Roster::Tree { processes: vec![first], removed: Vec::new() };
        let known = gang_timetable::Members::new(Controls::default(), default, everywhere);
        let mut members = Members::new(roster, ControlFiles::default(), known);
        members.note_processes();
        members
    }

    /// Single threads.
    pub fn of_threads(singles: Vec<Single>, default: Attributes, everywhere: CpuSet) -> Members {
        let roster = Roster::Threads { singles, inheritors: Inheritors::default() };
        let known = gang_timetable::Members::new(Controls::default(), default, everywhere);
        Members::new(roster, ControlFiles::default(), known)
    }

    fn new(roster: Roster, control_files: ControlFiles, known: gang_timetable::Members) -> Members {
        Members {
            roster,
            control_files,
            known,
            pins: Pins::default(),
            listed: 0,
            came: 0,
            counts: 0,
            bytes: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// A process that actions may name.
    pub fn process(&self, pid: u32) -> Option<&Arc<ProcessHandle>> {
        match &self.roster {
            Roster::Cgroup { leaving, .. } => leaving.iter().find(|it| it.pid == pid),
            Roster::Tree { processes, removed } => {
                processes.iter().chain(removed).find(|it| it.pid == pid)
            }
            Roster::Threads { .. } => None,
        }
    }

    /// Its threads were restricted to these CPUs, or may run anywhere.
    pub fn set_pinned(&mut self, cpus: Option<CpuSet>) {
        self.known.pinned = cpus;
    }

    fn note_processes(&mut self) {
        if let Roster::Tree { processes, .. } = &self.roster {
            self.known.processes.clear();
            self.known.processes.extend(processes.iter().map(|process| process.pid));
        }
    }

    /// The processes of a job without a cgroup; empty for one with a cgroup.
    pub fn tree(&self) -> &[Arc<ProcessHandle>] {
        match &self.roster {
            Roster::Tree { processes, .. } => processes,
            Roster::Cgroup { .. } | Roster::Threads { .. } => &[],
        }
    }

    /// The members of a job of single threads; empty for one of processes.
    pub fn singles(&self) -> &[Single] {
        self.roster.singles()
    }

    /// True for a tree of which no process is left, and where no single thread is.
    pub fn is_over(&self, proc_root: &Path) -> bool {
        match &self.roster {
            Roster::Cgroup { .. } => false,
            Roster::Tree { processes, .. } => !processes.iter().any(|process| process.is_alive()),
            Roster::Threads { singles, .. } => {
                !singles.iter().any(|single| single.is_there(proc_root))
            }
        }
    }

    /// Adds a thread to a job of single ones.
    pub fn add_single(&mut self, single: Single) {
        if let Roster::Threads { singles, .. } = &mut self.roster {
            singles.push(single);
        }
    }

    /// Lets a single thread go: appends the calls that give it back what it had. True where it was
    /// a member.
    pub fn let_single_go(&mut self, tid: u32, out: &mut Vec<Action>) -> bool {
        let Roster::Threads { singles, .. } = &mut self.roster else { return false };
        let before = singles.len();
        singles.retain(|single| single.tid != tid);
        let was_member = singles.len() < before;
        self.known.let_go(&[tid], out);
        was_member
    }

    /// Adds a process to a job that is a tree.
    pub fn add_process(&mut self, process: Arc<ProcessHandle>) {
        if let Roster::Tree { processes, removed } = &mut self.roster {
            removed.retain(|other| other.pid != process.pid);
            // It may have been found as somebody's child before it was added.
            processes.retain(|other| other.pid != process.pid);
            processes.push(process);
        }
        self.note_processes();
    }

    /// Lets a process go: appends the calls that give its threads back what they had, and does not
    /// find it again. Returns the threads that the job knew, in order of number.
    pub fn let_go(
        &mut self,
        proc_root: &Path,
        job: JobId,
        process: &Arc<ProcessHandle>,
        out: &mut Vec<Action>,
    ) -> Vec<u32> {
        let pid = process.pid;
        // Where they cannot be read, who sees the process off gives them back what they had.
        let tids = process::threads(proc_root, pid).unwrap_or_default();
        let known = self.known.let_go(&tids, out);
        match &mut self.roster {
            Roster::Cgroup { leaving, .. } => leaving.push(process.clone()),
            Roster::Tree { processes, removed } => {
                processes.retain(|other| other.pid != pid);
                removed.push(process.clone());
                // The next slot would have continued it.
                out.push(Action::Signal { job, pid, signal: Signal::Continue });
            }
            Roster::Threads { .. } => {}
        }
        self.note_processes();
        known
    }

    /// Remembers the attributes that threads have before they join. Where these are not what the
    /// job's first thread had, they cannot be found out any more once the threads are switched.
    pub fn remember_attributes(&mut self, before: &[(u32, Attributes)]) {
        for &(tid, original) in before {
            if let Ok(cpus) = thread::affinity(tid) {
                let were_given = self.pins.were_given(&cpus);
                let original = Some(original);
                self.known.remember_attributes(&Seen {
                    tid,
                    now: self.known.default,
                    cpus,
                    were_given,
                    original,
                });
            }
        }
    }

    /// Threads are going to come, which are not in the job's cgroup yet: moving them may take the
    /// kernel longer than a slice. They are members until it is said that all have come.
    pub fn expect(&mut self, tids: Vec<u32>) {
        if let Roster::Cgroup { expected, .. } = &mut self.roster {
            *expected = tids;
        }
    }

    /// A process that was let go is out of the job's cgroup, or is a member again where it stayed
    /// in.
    pub fn has_left(&mut self, pid: u32) {
        if let Roster::Cgroup { leaving, .. } = &mut self.roster {
            leaving.retain(|process| process.pid != pid);
        }
    }

    /// Reads the threads again; those known keep what is remembered of them. True where one came
    /// that was not known. Where they cannot be read, those known before stay.
    pub fn refresh(&mut self, proc_root: &Path) -> gang_linux::Result<bool> {
        let mut beside = 0;
        match &mut self.roster {
            Roster::Cgroup { threads, leaving, expected, .. } => {
                threads.numbers(&mut self.bytes, &mut self.numbers)?;
                self.numbers.extend(expected.iter());
                leaving.retain(|process| process.is_alive());
                for process in leaving.iter() {
                    let theirs = unless_gone(process::threads(proc_root, process.pid))?;
                    self.numbers.retain(|tid| !theirs.contains(tid));
                }
            }
            Roster::Tree { processes, removed } => {
                grow_tree(proc_root, processes, removed);
                self.numbers.clear();
                for process in processes.iter() {
                    self.numbers.extend(unless_gone(process::threads(proc_root, process.pid))?);
                }
            }
            Roster::Threads { singles, inheritors } => {
                let (came, listed) = inheritors.find(proc_root, singles);
                for (tid, member) in came {
                    singles::release_inheritor(
                        tid,
                        &member,
                        &self.known.everywhere,
                        Some(&self.pins),
                    );
                }
                singles.retain(|single| single.is_there(proc_root));
                self.numbers.clear();
                self.numbers.extend(singles.iter().map(|single| single.tid));
                beside = listed;
            }
        }
        self.note_processes();
        self.listed = self.known.admit(&mut self.numbers, beside);
        let (singles, pins) = (self.roster.singles(), &self.pins);
        let came = self.known.update(&self.numbers, |tid| {
            let (now, cpus) = (thread::attributes(tid).ok()?, thread::affinity(tid).ok()?);
            let single = singles.iter().find(|single| single.tid == tid);
            let original = single.map(|single| single.normal.into());
            Some(Seen { tid, now, were_given: pins.were_given(&cpus), cpus, original })
        });
        self.came = self.came.saturating_add(came.try_into().unwrap_or(u32::MAX));
        let user_pinned = self.known.threads().iter().filter(|thread| thread.user_pinned);
        if let Err(error) = self.pins.set_user_pinned(user_pinned.map(|thread| thread.tid)) {
            tracing::warn!(%error, "a release may take from threads the CPUs that they chose");
        }
        Ok(came > 0)
    }

    /// Its threads are going to be restricted to these CPUs; to be said before it is done.
    pub fn give(&mut self, cpus: &CpuSet) {
        if let Err(error) = self.pins.give(cpus) {
            tracing::warn!(%error, "a release may leave threads on the CPUs of their last slot");
        }
    }

    /// Appends the actions that let the threads run on every CPU again, where they were restricted.
    pub fn unpin(&mut self, out: &mut Vec<Action>) {
        self.known.unpin(out);
    }

    /// Counts the threads that want to run, of a part that stands for all.
    pub fn count_runnable(&self, proc_root: &Path, part: &Part) -> Runnable {
        let of_part = part.tids.iter().filter_map(|&tid| process::status(proc_root, tid).ok());
        let runnable = of_part.filter(process::Status::is_runnable).count() as u32;
        match part.tids.len() < self.threads().len() {
            true => Runnable::of_part(runnable, part.tids.len() as u32, self.listed, part.came),
            false => Runnable::exactly(runnable),
        }
    }

    /// At most `most` threads, other ones each time. Neighbours in a row behave more alike than
    /// others do, and the first thread of all more often behaves differently.
    pub fn part(&mut self, most: usize) -> Part {
        let step = self.threads().len().div_ceil(most).max(1);
        self.counts = self.counts.wrapping_add(1);
        let part = self.known.threads().iter().skip(spread(self.counts) % step).step_by(step);
        Part { tids: part.map(|thread| thread.tid).collect(), came: std::mem::take(&mut self.came) }
    }

    /// Notes on which CPUs threads were last.
    pub fn note_cpus(&mut self, cpus: &[(u32, u32)]) {
        self.known.note_cpus(cpus);
    }

    /// Time in which at least one of its threads waited for a CPU, in microseconds; absent where
    /// the kernel does not measure it (Documentation/accounting/psi.rst).
    pub fn waited_us(&mut self) -> Option<u64> {
        match &self.roster {
            Roster::Cgroup { pressure, .. } => {
                pressure.as_ref()?.pressure_us(&mut self.bytes).ok().flatten()
            }
            Roster::Tree { .. } | Roster::Threads { .. } => None,
        }
    }

    /// CPU time its processes have used, in nanoseconds; absent where the kernel does not say.
    /// Where the job is a tree, a process that ended is not counted any more.
    pub fn cpu_time_ns(&mut self, proc_root: &Path) -> Option<u64> {
        match &mut self.roster {
            Roster::Cgroup { cpu, .. } => {
                let microseconds = cpu.as_ref()?.keyed("usage_usec", &mut self.bytes).ok()??;
                Some(microseconds * 1000)
            }
            Roster::Tree { processes, removed } => {
                // Nobody else looks for the children of a job that is asleep.
                grow_tree(proc_root, processes, removed);
                self.known.processes = processes.iter().map(|process| process.pid).collect();
                Some(processes.iter().filter_map(|p| clock::cpu_ns_of(p.pid).ok()).sum())
            }
            Roster::Threads { singles, .. } => {
                let stat = |of: &Single| process::thread_stat(proc_root, of.pid, of.tid).ok();
                let stats = singles.iter().filter_map(stat);
                Some(stats.map(|stat| stat.cpu_ticks * 10_000_000).sum())
            }
        }
    }
}

/// Numbers far from each other for `count`s that follow each other (Fibonacci hashing: Knuth, The
/// Art of Computer Programming, 6.4).
fn spread(count: usize) -> usize {
    ((count as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
}

/// Drops processes that ended, and adds children that came since the last look. Only the tree's own
/// processes are read, since this is done in every period.
fn grow_tree(
    proc_root: &Path,
    processes: &mut Vec<Arc<ProcessHandle>>,
    removed: &mut Vec<Arc<ProcessHandle>>,
) {
    processes.retain(|process| process.is_alive());
    removed.retain(|process| process.is_alive());
    let mut next = 0;
    while next < processes.len() && processes.len() <= THREADS_MAX {
        let parent = processes[next].pid;
        for pid in process::children(proc_root, parent).unwrap_or_default() {
            if processes.iter().chain(&*removed).all(|known| known.pid != pid) {
                // Its number may have been given to another process before it was opened.
                let is_child = |child: &Arc<ProcessHandle>| {
                    process::status(proc_root, child.pid).is_ok_and(|it| it.parent == parent)
                };
                processes.extend(ProcessHandle::open(pid).ok().filter(is_child));
            }
        }
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_looks_reach_any_hundred_neighbours_soon() {
        // Of every 132 threads one is looked at: of three looks in succession one is of any hundred
        // in a row.
        let offsets: Vec<usize> = (0..10_000).map(|count| spread(count) % 132).collect();
        for looks in offsets.windows(3) {
            let is_seen = |first: usize| looks.iter().any(|look| (look + 132 - first) % 132 < 100);
            assert!((0..132).all(is_seen), "{looks:?}");
        }
    }
}
