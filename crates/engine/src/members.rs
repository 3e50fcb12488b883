//! The threads and processes of one job, and what must be remembered of them.
//!
//! A job is a cgroup where one can be made: fork, exec and a double fork cannot leave it. Without
//! the right to make one, a job is the tree of processes below its first one; a process once seen
//! stays in the job when its parent ends.

use std::{path::Path, sync::Arc};

use gang_linux::{
    cgroup::{Group, OpenFile},
    clock,
    error::{if_there, unless_gone},
    process,
    sched::{self, Attributes},
};
use rustix::{
    process::Signal,
    thread::{self, CpuSet},
};

use crate::{
    action::{Action, ControlFile, ProcessHandle},
    pins::Pins,
    priority,
    runnable::Runnable,
    singles::{self, Heirs, Single},
};

/// More threads than this and a job gets no slots until it has fewer: the lists would take longer
/// to read than a slice (a fork bomb must not delay its neighbours).
pub const THREADS_MAX: usize = 4096;

/// One thread of a job.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    pub tid: u32,
    /// As it was when the job took it, to be given back.
    pub original: Attributes,
    /// The program chose its CPUs itself, and knows why.
    pub moored: bool,
    /// The CPU it was last seen on.
    pub cpu: Option<u32>,
}

impl Thread {
    /// The program made it a real-time thread itself; it knows why, and is left alone.
    pub fn is_exempt(&self) -> bool {
        self.original.policy.is_realtime()
    }
}

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
    Threads { singles: Vec<Single>, heirs: Heirs },
}

/// Some threads of a job, which stand for all.
#[derive(Clone, Debug)]
pub struct Part {
    pub tids: Vec<u32>,
    /// Threads that came since there was a part before.
    came: u32,
}

/// Control files of a job's own cgroups, where it has them.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    /// `cgroup.freeze` of version 2.
    pub freeze: Option<Arc<ControlFile>>,
    /// `cpu.idle` and `cpu.weight` (version 2) or `cpu.shares` (version 1).
    pub cpu_idle: Option<Arc<ControlFile>>,
    pub cpu_weight: Option<Arc<ControlFile>>,
    /// Its group, or one above, is idle as a whole (`cpu.idle`).
    pub in_idle_group: bool,
}

/// The members of one job.
#[derive(Debug)]
pub struct Members {
    roster: Roster,
    pub controls: Controls,
    /// In order of number.
    threads: Vec<Thread>,
    /// The attributes that a released thread of unknown past gets.
    pub default: Attributes,
    /// The CPUs that its first process might run on.
    everywhere: CpuSet,
    /// CPUs its threads were last restricted to; absent where they run anywhere.
    pub pinned: Option<CpuSet>,
    /// For those who must release it without knowing anything else.
    pub pins: Pins,
    /// It had more than [`THREADS_MAX`] threads when they were last read.
    crowded: bool,
    /// How many it had then.
    listed: usize,
    /// Threads that came since there was a [`Part`].
    came: u32,
    /// How many of these there were.
    counts: usize,
    bytes: Vec<u8>,
    numbers: Vec<u32>,
}

impl Members {
    /// The members of a cgroup.
    pub fn of_group(
        group: &Group,
        controls: Controls,
        default: Attributes,
        everywhere: CpuSet,
    ) -> gang_linux::Result<Members> {
        let threads = OpenFile::open(group, "cgroup.threads")?;
        let cpu = if_there(OpenFile::open(group, "cpu.stat"))?;
        // A kernel may refuse it, and jobs do without.
        let pressure = OpenFile::open(group, "cpu.pressure").ok();
        let roster =
            Roster::Cgroup { threads, cpu, pressure, leaving: Vec::new(), expected: Vec::new() };
        Ok(Members::new(roster, controls, default, everywhere))
    }

    /// A process and its descendants.
    pub fn of_tree(first: Arc<ProcessHandle>, default: Attributes, everywhere: CpuSet) -> Members {
        let roster = Roster::Tree { processes: vec![first], removed: Vec::new() };
        Members::new(roster, Controls::default(), default, everywhere)
    }

    /// Single threads.
    pub fn of_threads(singles: Vec<Single>, default: Attributes, everywhere: CpuSet) -> Members {
        let roster = Roster::Threads { singles, heirs: Heirs::default() };
        Members::new(roster, Controls::default(), default, everywhere)
    }

    fn new(roster: Roster, controls: Controls, default: Attributes, everywhere: CpuSet) -> Members {
        Members {
            roster,
            controls,
            threads: Vec::new(),
            default,
            everywhere,
            pinned: None,
            pins: Pins::default(),
            crowded: false,
            listed: 0,
            came: 0,
            counts: 0,
            bytes: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// Takes its threads, in order of number, as they are told instead of asking the kernel.
    #[cfg(feature = "recording")]
    pub fn with_threads(mut self, threads: Vec<Thread>) -> Members {
        self.threads = threads;
        self
    }

    /// Another thread comes, of the highest number, without the kernel being asked.
    #[cfg(feature = "recording")]
    pub fn add_thread(&mut self, thread: Thread) {
        self.threads.push(thread);
    }

    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    pub fn is_crowded(&self) -> bool {
        self.crowded
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
        match &self.roster {
            Roster::Threads { singles, .. } => singles,
            Roster::Cgroup { .. } | Roster::Tree { .. } => &[],
        }
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

    /// Lets a single thread go: appends the calls that give it back what it had. True where it was a member.
    pub fn let_single_go(&mut self, tid: u32, out: &mut Vec<Action>) -> bool {
        let Roster::Threads { singles, .. } = &mut self.roster else { return false };
        let before = singles.len();
        singles.retain(|single| single.tid != tid);
        let was_member = singles.len() < before;
        if let Ok(at) = self.threads.binary_search_by_key(&tid, |thread| thread.tid) {
            let thread = self.threads.remove(at);
            self.give_back(&thread, out);
        }
        was_member
    }

    /// Appends the calls that give a thread back what it had.
    fn give_back(&self, thread: &Thread, out: &mut Vec<Action>) {
        if thread.is_exempt() {
            return;
        }
        out.push(Action::Attributes { tid: thread.tid, attributes: thread.original });
        if self.pinned.is_some() && !thread.moored {
            out.push(Action::Affinity { tid: thread.tid, cpus: self.everywhere });
        }
    }

    /// Adds a process to a job that is a tree.
    pub fn add_process(&mut self, process: Arc<ProcessHandle>) {
        if let Roster::Tree { processes, removed } = &mut self.roster {
            removed.retain(|other| other.pid != process.pid);
            // It may have been found as somebody's child before it was added.
            processes.retain(|other| other.pid != process.pid);
            processes.push(process);
        }
    }

    /// Lets a process go: appends the calls that give its threads back what they had, and does not find
    /// it again. Returns the threads that the job knew, in order of number.
    pub fn let_go(
        &mut self,
        proc_root: &Path,
        process: &Arc<ProcessHandle>,
        out: &mut Vec<Action>,
    ) -> Vec<u32> {
        let pid = process.pid;
        // Where they cannot be read, who sees the process off gives them back what they had.
        let tids = process::threads(proc_root, pid).unwrap_or_default();
        let of_process = self.threads.iter().filter(|thread| tids.contains(&thread.tid));
        let known = of_process.clone().map(|thread| thread.tid).collect();
        of_process.for_each(|thread| self.give_back(thread, out));
        match &mut self.roster {
            Roster::Cgroup { leaving, .. } => leaving.push(process.clone()),
            Roster::Tree { processes, removed } => {
                processes.retain(|other| other.pid != pid);
                removed.push(process.clone());
                // The next slot would have continued it.
                out.push(Action::Signal { process: process.clone(), signal: Signal::CONT });
            }
            Roster::Threads { .. } => {}
        }
        self.threads.retain(|thread| !tids.contains(&thread.tid));
        known
    }

    /// Threads that came are told, with what they had before: where it is not what the job's first one
    /// had, it cannot be told any more once they are switched.
    pub fn know(&mut self, before: &[(u32, Attributes)]) {
        for &(tid, original) in before {
            match self.threads.binary_search_by_key(&tid, |thread| thread.tid) {
                Ok(at) => self.threads[at].original = original,
                Err(at) => {
                    let Ok(cpus) = affinity(tid) else { continue };
                    let moored = self.is_moored(&cpus);
                    self.threads.insert(at, Thread { tid, original, moored, cpu: None });
                }
            }
        }
    }

    /// Threads are going to come, which are not in the job's cgroup yet: moving them may take the kernel
    /// longer than a slice. They are members until it is said that all have come.
    pub fn expect(&mut self, tids: Vec<u32>) {
        if let Roster::Cgroup { expected, .. } = &mut self.roster {
            *expected = tids;
        }
    }

    /// A process that was let go is out of the job's cgroup, or is a member again where it stayed in.
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
            Roster::Threads { singles, heirs } => {
                let (came, listed) = heirs.find(proc_root, singles);
                for (tid, member) in came {
                    singles::disinherit(tid, &member, &self.everywhere, Some(&self.pins));
                }
                singles.retain(|single| single.is_there(proc_root));
                self.numbers.clear();
                self.numbers.extend(singles.iter().map(|single| single.tid));
                beside = listed;
            }
        }
        self.crowded = self.numbers.len().max(beside) > THREADS_MAX;
        self.numbers.sort_unstable();
        self.numbers.dedup();
        self.listed = self.numbers.len();
        if self.crowded {
            self.leave_out_strangers();
        }
        Ok(self.merge())
    }

    /// Of too many threads those stay that were known: they may be raised, and must be lowered. The order in
    /// which the kernel lists them is not the same each time.
    fn leave_out_strangers(&mut self) {
        let known = &self.threads;
        let is_known = |tid: &u32| known.binary_search_by_key(tid, |thread| thread.tid).is_ok();
        let mut room = THREADS_MAX - self.numbers.iter().filter(|tid| is_known(tid)).count();
        self.numbers.retain(|tid| {
            let stays = is_known(tid) || room > 0;
            room -= usize::from(stays && !is_known(tid));
            stays
        });
    }

    fn merge(&mut self) -> bool {
        let unchanged = self.threads.len() == self.numbers.len()
            && self.threads.iter().map(|t| t.tid).eq(self.numbers.iter().copied());
        if unchanged {
            return false;
        }
        let was_started_here = !self.threads.is_empty();
        let mut known = std::mem::take(&mut self.threads).into_iter().peekable();
        let mut came = false;
        for &tid in &self.numbers {
            while known.peek().is_some_and(|thread| thread.tid < tid) {
                known.next();
            }
            match known.next_if(|thread| thread.tid == tid) {
                Some(thread) => self.threads.push(thread),
                None => {
                    came = true;
                    self.came = self.came.saturating_add(1);
                    // One that is gone already is not worth remembering.
                    if let (Ok(now), Ok(cpus)) = (sched::get(tid), affinity(tid)) {
                        let single = self.singles().iter().find(|single| single.tid == tid);
                        let original = single.map_or_else(
                            || original(now, self.default, was_started_here),
                            |single| single.normal.into(),
                        );
                        let moored = self.is_moored(&cpus);
                        self.threads.push(Thread { tid, original, moored, cpu: None });
                    }
                }
            }
        }
        let moored = self.threads.iter().filter(|thread| thread.moored);
        if let Err(error) = self.pins.moor(moored.map(|thread| thread.tid)) {
            tracing::warn!(%error, "a release may take from threads the CPUs that they chose");
        }
        came
    }

    /// Whether a thread that is seen for the first time chose these CPUs. One that was started by a thread
    /// in a slot has those of that slot, which may be over.
    fn is_moored(&self, cpus: &CpuSet) -> bool {
        *cpus != self.everywhere && Some(*cpus) != self.pinned && !self.pins.were_given(cpus)
    }

    /// Its threads are going to be restricted to these CPUs; to be said before it is done.
    pub fn give(&mut self, cpus: CpuSet) {
        if let Err(error) = self.pins.give(cpus) {
            tracing::warn!(%error, "a release may leave threads on the CPUs of their last slot");
        }
    }

    /// Appends the calls that let the threads run on every CPU again, where they were restricted.
    pub fn unpin(&mut self, out: &mut Vec<Action>) {
        if self.pinned.take().is_some() {
            out.extend(self.pinning(self.everywhere));
        }
    }

    /// The calls that restrict its threads to some CPUs, of those that have not chosen their own.
    pub fn pinning(&self, cpus: CpuSet) -> impl Iterator<Item = Action> {
        let threads = self.threads.iter().filter(|thread| !thread.is_exempt() && !thread.moored);
        threads.map(move |thread| Action::Affinity { tid: thread.tid, cpus })
    }

    /// Counts the threads that want to run, of a part that stands for all.
    pub fn count_runnable(&self, proc_root: &Path, part: &Part) -> Runnable {
        let of_part = part.tids.iter().filter_map(|&tid| process::status(proc_root, tid).ok());
        let runnable = of_part.filter(process::Status::is_runnable).count() as u32;
        match part.tids.len() < self.threads.len() {
            true => Runnable::of_part(runnable, part.tids.len() as u32, self.listed, part.came),
            false => Runnable::exactly(runnable),
        }
    }

    /// `most` threads, if there are more, and another part each time: neighbours in a row do the same more often than
    /// others, and the first one of all more often something else.
    pub fn part(&mut self, most: usize) -> Part {
        let step = self.threads.len().div_ceil(most).max(1);
        self.counts = self.counts.wrapping_add(1);
        let part = self.threads.iter().skip(spread(self.counts) % step).step_by(step);
        Part { tids: part.map(|thread| thread.tid).collect(), came: std::mem::take(&mut self.came) }
    }

    /// Notes on which CPUs threads were last.
    pub fn note_cpus(&mut self, cpus: &[(u32, u32)]) {
        for &(tid, cpu) in cpus {
            if let Ok(index) = self.threads.binary_search_by_key(&tid, |thread| thread.tid) {
                self.threads[index].cpu = Some(cpu);
            }
        }
    }

    /// Time in which one of its threads or more waited for a CPU, in microseconds; absent where the
    /// kernel does not tell (Documentation/accounting/psi.rst).
    pub fn waited_us(&mut self) -> Option<u64> {
        match &self.roster {
            Roster::Cgroup { pressure, .. } => {
                pressure.as_ref()?.pressure_us(&mut self.bytes).ok().flatten()
            }
            Roster::Tree { .. } | Roster::Threads { .. } => None,
        }
    }

    /// CPU time its processes have used, in nanoseconds; absent where the kernel does not tell. A
    /// process that ended is not counted any more where the job is a tree.
    pub fn cpu_time_ns(&mut self, proc_root: &Path) -> Option<u64> {
        match &mut self.roster {
            Roster::Cgroup { cpu, .. } => {
                let microseconds = cpu.as_ref()?.keyed("usage_usec", &mut self.bytes).ok()??;
                Some(microseconds * 1000)
            }
            Roster::Tree { processes, removed } => {
                // Nobody else looks for the children of a job that is asleep.
                grow_tree(proc_root, processes, removed);
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

/// Numbers far from each other for `count`s that follow each other (Fibonacci hashing: Knuth, The Art of Computer
/// Programming, 6.4).
fn spread(count: usize) -> usize {
    ((count as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
}

/// The CPUs a thread may run on, as the kernel has it.
pub fn affinity(tid: u32) -> rustix::io::Result<CpuSet> {
    thread::sched_getaffinity(thread::Pid::from_raw(tid as i32))
}

/// True for what gangd gives to a thread in its slot.
pub fn is_raised(attributes: &Attributes) -> bool {
    *attributes == Attributes { nice: attributes.nice, ..Attributes::fifo(priority::GANG) }
}

/// What a thread seen for the first time was before gangd. One that a thread of the job has started
/// carries what gangd gave its parent; the job's own default is what it would have had.
pub fn original(now: Attributes, default: Attributes, was_started_here: bool) -> Attributes {
    // As a wide gang in its slot has it.
    let wide = now == Attributes::other(-20);
    // The children of a thread in its slot are ordinary ones, and lose its nice value (sched(7), "Reset
    // scheduling policy for child processes").
    let reset = was_started_here && now == Attributes::other(0);
    if wide || reset {
        default
    } else if is_raised(&now)
        || now.policy == sched::Policy::Idle
        || (was_started_here && now.policy == sched::Policy::Batch)
    {
        let nice = if now.nice == -20 { default.nice } else { now.nice };
        Attributes { nice, ..default }
    } else {
        now
    }
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
mod tests;
