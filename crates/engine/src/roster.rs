//! The threads and processes of one job, and what must be remembered of them.
//!
//! A job is a cgroup where one can be made: fork, exec and a double fork cannot leave it. Without
//! the right to make one, a job is the tree of processes below its first one; a process once seen
//! stays in the job when its parent ends.

mod looks;

pub use looks::{CPUS_SEEN_AGAIN, Part};

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use gang_linux::{
    cgroup::{Group, OpenFile},
    clock,
    error::{if_there, unless_gone},
    process,
};
use gang_schedule::CpuSet;
use gang_timetable::{
    Attributes, Controls, Gone, Members, Seen, Starter, THREADS_MAX, record::Single,
};
use looks::Turn;

use crate::{
    bound::{ControlFiles, ProcessHandle},
    pins::Pins,
    singles::{self, Inheritors, Look, Others},
    thread,
};

/// How the members of a job are found.
#[derive(Debug)]
enum Kind {
    Cgroup {
        threads: OpenFile,
        processes: OpenFile,
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
    Threads {
        singles: Vec<Single>,
        /// Not of the job any more, and on file yet.
        leaving: Vec<Single>,
        /// Absent while a look is under way.
        inheritors: Option<Inheritors>,
        /// How many other threads their processes had at the last look.
        beside: usize,
    },
}

impl Kind {
    fn singles(&self) -> &[Single] {
        match self {
            Kind::Threads { singles, .. } => singles,
            Kind::Cgroup { .. } | Kind::Tree { .. } => &[],
        }
    }
}

/// Where the threads and processes of one job are read. Its [`Members`] are what is
/// remembered of them; the conductor keeps these.
#[derive(Debug)]
pub struct Roster {
    kind: Kind,
    pub control_files: ControlFiles,
    /// For those who must release it without knowing anything else.
    pub pins: Pins,
    in_idle_group: bool,
    /// CPU time that it used in groups of version 2 in which it lived before.
    used_before_ns: u64,
    /// The members of other jobs: a child that is one of these is not found. Those of jobs with a
    /// cgroup are known to a job of single threads only.
    pub others: Others,
    /// How many threads it had when they were last read, and when that was, in ticks since boot.
    listed: usize,
    listed_ticks: u64,
    /// Threads that left by themselves and are not as before yet: on file until they are. Each is
    /// with when it was a member, in ticks since boot.
    strays: BTreeMap<u32, u64>,
    /// The threads of processes that leave, each with its process: on file until they have left.
    leavers: Vec<(u32, u32)>,
    /// Those found since they were last taken.
    found: Vec<Gone>,
    /// Threads that came since there was a [`Part`].
    came: u32,
    /// How many of these there were.
    counts: usize,
    bytes: Vec<u8>,
    numbers: Vec<u32>,
    /// Looks at the limits of some threads in turn, and at their attributes.
    limits: Turn,
    attributes: Turn,
    /// The attributes that owners want of threads that are going to come.
    expected_own: BTreeMap<u32, Attributes>,
    /// The CPUs that are online. Where they are not known, nobody looks where threads may run.
    pub online: CpuSet,
    /// Looks at the CPUs of some threads in turn.
    cpus: Turn,
    /// The same, of those that may have chosen others since.
    moved: Turn,
    /// Of these, those that have others than they are known to have.
    suspects: Vec<u32>,
    /// The user to whom the job belongs; absent where members of all users are treated alike.
    pub owner_uid: Option<u32>,
    /// The processes of the threads that were last read, where these could be listed.
    pids: Vec<u32>,
    are_listed: bool,
    /// Of those whose owner was looked at: whether this is another user than the job's.
    are_foreign: BTreeMap<u32, bool>,
    /// Looks at the owners of some of them in turn.
    owners: Turn,
    /// The same, of those that may have become another user's since.
    became: Turn,
    /// Of these, those whose owner is another one than it is known to be.
    became_other: Vec<u32>,
}

impl Roster {
    /// That of a cgroup; `in_idle_group` where it, or one above, is idle as a whole.
    pub fn of_group(
        group: &Group,
        control_files: ControlFiles,
        in_idle_group: bool,
    ) -> gang_linux::Result<Roster> {
        let threads = OpenFile::open(group, "cgroup.threads")?;
        let processes = OpenFile::open(group, "cgroup.procs")?;
        let cpu = if_there(OpenFile::open(group, "cpu.stat"))?;
        // A kernel may refuse it, and jobs do without.
        let pressure = OpenFile::open(group, "cpu.pressure").ok();
        let kind = Kind::Cgroup {
            threads,
            processes,
            cpu,
            pressure,
            leaving: Vec::new(),
            expected: Vec::new(),
        };
        Ok(Roster::new(kind, control_files, in_idle_group))
    }

    /// A process and its descendants.
    pub fn of_tree(first: Arc<ProcessHandle>) -> Roster {
        let kind = Kind::Tree { processes: vec![first], removed: Vec::new() };
        Roster::new(kind, ControlFiles::default(), false)
    }

    /// Single threads.
    pub fn of_threads(singles: Vec<Single>) -> Roster {
        let (leaving, inheritors) = (Vec::new(), Some(Inheritors::default()));
        let kind = Kind::Threads { singles, leaving, inheritors, beside: 0 };
        Roster::new(kind, ControlFiles::default(), false)
    }

    fn new(kind: Kind, control_files: ControlFiles, in_idle_group: bool) -> Roster {
        Roster {
            kind,
            control_files,
            pins: Pins::default(),
            in_idle_group,
            used_before_ns: 0,
            others: Others::default(),
            listed: 0,
            listed_ticks: 0,
            strays: BTreeMap::new(),
            leavers: Vec::new(),
            found: Vec::new(),
            came: 0,
            counts: 0,
            bytes: Vec::new(),
            numbers: Vec::new(),
            limits: Turn::default(),
            attributes: Turn::default(),
            expected_own: BTreeMap::new(),
            online: CpuSet::new(),
            cpus: Turn::default(),
            moved: Turn::default(),
            suspects: Vec::new(),
            owner_uid: None,
            pids: Vec::new(),
            are_listed: false,
            are_foreign: BTreeMap::new(),
            owners: Turn::default(),
            became: Turn::default(),
            became_other: Vec::new(),
        }
    }

    /// The job is read in other groups from now on, of which `to` is; what is known of it stays.
    /// `is_elsewhere` where its group of version 2 is another one, which counts CPU time anew.
    pub fn moved(
        &mut self,
        to: Roster,
        is_elsewhere: bool,
        members: &mut Members,
        proc_root: &Path,
    ) {
        if is_elsewhere {
            self.used_before_ns =
                self.cpu_time_ns(members, proc_root).unwrap_or(self.used_before_ns);
        }
        (self.control_files, self.in_idle_group) = (to.control_files, to.in_idle_group);
        if let (
            Kind::Cgroup { threads, processes, cpu, pressure, .. },
            Kind::Cgroup {
                threads: threads_now,
                processes: processes_now,
                cpu: cpu_now,
                pressure: pressure_now,
                ..
            },
        ) = (&mut self.kind, to.kind)
        {
            (*threads, *processes) = (threads_now, processes_now);
            (*cpu, *pressure) = (cpu_now, pressure_now);
        }
    }

    /// The members of the job, before any of its threads was read.
    pub fn members(&self, default: Attributes, everywhere: CpuSet) -> Members {
        let has = Controls {
            freezer: self.control_files.freeze.is_some(),
            idle: self.control_files.idle.is_some(),
            weight: self.control_files.weight.is_some(),
            weighs_as_others: false,
            in_idle_group: self.in_idle_group,
            kept_from_realtime: false,
            quota: None,
        };
        let mut members = Members::new(has, default, everywhere);
        members.are_single = matches!(self.kind, Kind::Threads { .. });
        self.note_processes(&mut members);
        members
    }

    /// A process that actions may name.
    pub fn process(&self, pid: u32) -> Option<&Arc<ProcessHandle>> {
        match &self.kind {
            Kind::Cgroup { leaving, .. } => leaving.iter().find(|it| it.pid == pid),
            Kind::Tree { processes, removed } => {
                processes.iter().chain(removed).find(|it| it.pid == pid)
            }
            Kind::Threads { .. } => None,
        }
    }

    fn note_processes(&self, members: &mut Members) {
        if let Kind::Tree { processes, .. } = &self.kind {
            let all = processes.iter().map(|process| process.pid);
            let stops = |pid: &u32| members.stops_foreign || !members.is_foreign(*pid);
            members.processes = all.filter(stops).collect();
        }
    }

    pub fn is_tree(&self) -> bool {
        matches!(self.kind, Kind::Tree { .. })
    }

    /// The processes of a job without a cgroup; empty for one with a cgroup.
    pub fn tree(&self) -> &[Arc<ProcessHandle>] {
        match &self.kind {
            Kind::Tree { processes, .. } => processes,
            Kind::Cgroup { .. } | Kind::Threads { .. } => &[],
        }
    }

    /// The members of a job of single threads; empty for one of processes.
    pub fn singles(&self) -> &[Single] {
        self.kind.singles()
    }

    /// True for a tree of which no process is left, and where no single thread is.
    pub fn is_over(&self, proc_root: &Path) -> bool {
        match &self.kind {
            Kind::Cgroup { .. } => false,
            Kind::Tree { processes, .. } => !processes.iter().any(|process| process.is_alive()),
            Kind::Threads { singles, .. } => {
                singles.iter().all(|single| singles::has_ended(single, proc_root))
            }
        }
    }

    /// The next look at single threads, where the one before was [taken](Roster::looked).
    pub fn look(&mut self) -> Option<Look> {
        let Kind::Threads { singles, leaving, inheritors, .. } = &mut self.kind else {
            return None;
        };
        let members_on_file = [&singles[..], &leaving[..]].concat();
        Some(Look::new(members_on_file, self.others.clone(), inheritors.take()?))
    }

    /// A look was taken. Threads that single threads have started get what these had.
    pub fn looked(&mut self, seen: singles::Seen, members: &Members) {
        let Kind::Threads { singles, leaving, inheritors, beside } = &mut self.kind else {
            return;
        };
        // It may be a member since the look began.
        let is_member = |tid| singles.iter().chain(leaving.iter()).any(|it| it.tid == tid);
        for (tid, member) in seen.came.into_iter().filter(|(tid, _)| !is_member(*tid)) {
            singles::release_inheritor(tid, &member, &members.everywhere, Some(&self.pins));
        }
        singles.retain(|single| !seen.gone.contains(single));
        (*inheritors, *beside) = (Some(seen.inheritors), seen.beside);
    }

    /// Adds a thread to a job of single ones.
    pub fn add_single(&mut self, single: Single) {
        if let Kind::Threads { singles, .. } = &mut self.kind {
            singles.push(single);
        }
    }

    /// Takes a single thread out.
    pub fn remove_single(&mut self, tid: u32) {
        if let Kind::Threads { singles, leaving, .. } = &mut self.kind {
            leaving.extend(singles.iter().filter(|single| single.tid == tid));
            singles.retain(|single| single.tid != tid);
        }
    }

    /// Adds a process to a job that is a tree.
    pub fn add_process(&mut self, members: &mut Members, process: Arc<ProcessHandle>) {
        if let Kind::Tree { processes, removed } = &mut self.kind {
            removed.retain(|other| other.pid != process.pid);
            // It may have been found as somebody's child before it was added.
            processes.retain(|other| other.pid != process.pid);
            processes.push(process);
        }
        self.note_processes(members);
    }

    /// A process leaves the job, and is not found again.
    pub fn leaves(&mut self, members: &mut Members, process: Arc<ProcessHandle>) {
        match &mut self.kind {
            Kind::Cgroup { leaving, .. } => leaving.push(process),
            Kind::Tree { processes, removed } => {
                processes.retain(|other| other.pid != process.pid);
                removed.push(process);
            }
            Kind::Threads { .. } => {}
        }
        self.note_processes(members);
    }

    /// Threads are going to come, which are not in the job's cgroup yet: moving them may take the
    /// kernel longer than a slice. They are members until it is said that all have come.
    pub fn expect(&mut self, tids: Vec<u32>) {
        if let Kind::Cgroup { expected, .. } = &mut self.kind {
            *expected = tids;
        }
    }

    /// Threads are going to come that chose their CPUs: on file until the threads are read again.
    pub fn expect_user_pinned(&mut self, tids: Vec<u32>) {
        if let Err(error) = self.pins.add_user_pinned(tids) {
            tracing::warn!(%error, "a release may take from threads the CPUs that they chose");
        }
    }

    /// Threads are going to come whose owner wants other attributes than the job's first thread
    /// had: on file until they are read.
    pub fn expect_own(&mut self, own: BTreeMap<u32, Attributes>) {
        self.expected_own.extend(own);
        self.file_own(self.pins.all_own().clone());
    }

    /// Of those that have ended meanwhile the numbers may be others'.
    pub fn all_came(&mut self) {
        self.expected_own.clear();
    }

    fn file_own(&mut self, mut own: BTreeMap<u32, Attributes>) {
        own.extend(&self.expected_own);
        if let Err(error) = self.pins.set_own(own) {
            tracing::warn!(%error, "a release may take from threads the attributes that they chose");
        }
    }

    /// A process that was let go is out of the job's cgroup, or is a member again where it stayed
    /// in; a single thread is in no timetable any more.
    pub fn has_left(&mut self, number: u32, members: &Members) {
        self.leavers.retain(|&(pid, _)| pid != number);
        match &mut self.kind {
            Kind::Cgroup { leaving, .. } => {
                leaving.retain(|process| process.pid != number);
                // Its threads are on file as members no more.
                self.file_members(members);
            }
            Kind::Threads { leaving, .. } => leaving.retain(|single| single.tid != number),
            Kind::Tree { .. } => {}
        }
    }

    /// Reads the threads again; those known keep what is remembered of them. True where one came
    /// that was not known, or is to be scheduled otherwise. Where they cannot be read, those known
    /// before stay.
    pub fn refresh(&mut self, members: &mut Members, proc_root: &Path) -> gang_linux::Result<bool> {
        let (mut beside, mut own_cpus, mut leavers) = (0, Vec::new(), Vec::new());
        let was_listed_ticks = self.listed_ticks;
        match &mut self.kind {
            Kind::Cgroup { threads, leaving, expected, .. } => {
                threads.numbers(&mut self.bytes, &mut self.numbers)?;
                self.numbers.extend(expected.iter());
                leaving.retain(|process| process.is_alive());
                self.leavers.clear();
                for process in leaving.iter() {
                    let theirs = unless_gone(process::threads(proc_root, process.pid))?;
                    self.numbers.retain(|tid| !theirs.contains(tid));
                    // They stay in the job's groups, and on file, until they have left.
                    self.leavers.extend(theirs.iter().map(|&tid| (process.pid, tid)));
                    leavers.extend(theirs);
                }
            }
            Kind::Tree { processes, removed } => {
                grow_tree(proc_root, processes, removed, &self.others.processes);
                self.numbers.clear();
                for process in processes.iter() {
                    self.numbers.extend(unless_gone(process::threads(proc_root, process.pid))?);
                }
                for process in removed.iter() {
                    leavers.extend(unless_gone(process::threads(proc_root, process.pid))?);
                }
            }
            Kind::Threads { singles, leaving, beside: listed, .. } => {
                singles.retain(|single| !singles::has_ended(single, proc_root));
                self.numbers.clear();
                self.numbers.extend(singles.iter().map(|single| single.tid));
                leavers.extend(leaving.iter().map(|single| single.tid));
                beside = *listed;
            }
        }
        self.listed_ticks = clock::boot_ticks();
        self.note_processes(members);
        self.listed = members.admit(&mut self.numbers, beside);
        // Attributes of a starter are known before those of the threads that it started.
        let is_other = self.note_wishes(members);
        let had_foreign = members.has_foreign_that_run();
        let (singles, pins) = (self.kind.singles(), &self.pins);
        let mut new = Vec::new();
        let has_own = members.has_own_attributes() || !pins.all_own().is_empty();
        let everywhere = members.everywhere.clone();
        // One of a backend that changes no policy is as its owner has it; the first ones are no
        // copies of members, and root may make its threads real-time.
        let may_be_copies =
            self.owner_uid.is_some() && !members.keeps_attributes && !members.threads().is_empty();
        let came = members.update(&self.numbers, |tid| {
            new.push(tid);
            let single = singles.iter().find(|single| single.tid == tid);
            let original = single.map(|single| single.normal.into());
            let original = pins.own(tid).or(original);
            let now = match may_be_copies && original.is_none() {
                true => thread::attributes_of_copy(tid),
                false => thread::attributes(tid),
            };
            let (now, mut cpus) = (now.ok()?, thread::affinity(tid).ok()?);
            if cpus != everywhere && !pins.were_given(&cpus) {
                cpus = thread::cpus_allowed(proc_root, tid).ok()?;
            }
            let were_given = pins.were_given(&cpus);
            let starter = || process::starter(proc_root, tid).ok();
            let starter = has_own.then(starter).flatten();
            let started_by = starter.map(|tid| Starter { tid, on_file: pins.own(tid) });
            Some(Seen { tid, now, were_given, cpus, original, started_by })
        });
        self.note_rt_limits(members, proc_root, &new);
        self.find_strays(members, was_listed_ticks);
        leavers.extend(self.strays.keys());
        let is_other = self.note_owners(members, proc_root, &new) || is_other;
        // From now on its group can be frozen as a whole.
        let is_other = is_other || (had_foreign && !members.has_foreign_that_run());
        let on_file = self.pins.all_own();
        let own = members.own_attributes(&leavers, on_file, &self.expected_own);
        self.expected_own.retain(|&tid, _| !members.knows(tid));
        self.file_own(own);
        own_cpus.extend(leavers.iter().filter(|tid| self.pins.is_user_pinned(**tid)));
        self.came = self.came.saturating_add(came.try_into().unwrap_or(u32::MAX));
        let have_moved = self.see_cpus(members, proc_root);
        own_cpus.extend(members.user_pinned());
        if let Err(error) = self.pins.set_user_pinned(own_cpus.into_iter()) {
            tracing::warn!(%error, "a release may take from threads the CPUs that they chose");
        }
        Ok(came > 0 || is_other || have_moved)
    }

    /// Threads that the group has no more, and that live on. The members are on file before a
    /// timetable has them, and strays until they are as before.
    fn find_strays(&mut self, members: &mut Members, was_listed_ticks: u64) {
        let gone = members.take_gone(was_listed_ticks);
        if !matches!(self.kind, Kind::Cgroup { .. }) {
            return;
        }
        let alive = gone.into_iter().filter(|gone| thread::attributes(gone.tid).is_ok());
        for gone in alive.filter(|gone| !gone.actions.is_empty()) {
            self.strays.insert(gone.tid, gone.was_there_ticks);
            self.found.push(gone);
        }
        self.file_members(members);
    }

    fn file_members(&mut self, members: &Members) {
        let tids = members.threads().iter().map(|thread| thread.tid);
        let tids = tids.chain(self.leavers.iter().map(|&(_, tid)| tid));
        // A stray is in the one list before it is off the other.
        let filed = self.pins.set_strays(&self.strays);
        if let Err(error) = filed.and(self.pins.set_members(self.listed_ticks, tids)) {
            tracing::warn!(%error, "a release may not find threads that leave their job");
        }
    }

    /// Threads that left by themselves and were not taken yet.
    pub fn strays(&self) -> &[Gone] {
        &self.found
    }

    /// Threads that left by themselves since the last call.
    pub fn take_strays(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.found)
    }

    /// Those that are not as before yet.
    pub fn strays_on_file(&self) -> impl Iterator<Item = u32> {
        self.strays.keys().copied()
    }

    /// Strays have nothing of gangd's any more, or are members again.
    pub fn forget_strays(&mut self, tids: &BTreeSet<u32>, members: &Members) {
        self.strays.retain(|stray, _| !tids.contains(stray));
        self.file_members(members);
    }

    /// Its threads are going to be restricted to these CPUs; to be said before it is done.
    pub fn give(&mut self, cpus: &CpuSet) {
        if let Err(error) = self.pins.give(cpus) {
            tracing::warn!(%error, "a release may leave threads on the CPUs of their last slot");
        }
    }
}

/// Drops processes that ended, and adds children that came since the last look. Only the tree's own
/// processes are read, since this is done in every period.
fn grow_tree(
    proc_root: &Path,
    processes: &mut Vec<Arc<ProcessHandle>>,
    removed: &mut Vec<Arc<ProcessHandle>>,
    others: &BTreeSet<u32>,
) {
    processes.retain(|process| process.is_alive());
    removed.retain(|process| process.is_alive());
    let mut next = 0;
    while next < processes.len() && processes.len() <= THREADS_MAX {
        let parent = processes[next].pid;
        for pid in process::children(proc_root, parent).unwrap_or_default() {
            let is_known = processes.iter().chain(&*removed).any(|known| known.pid == pid);
            if !is_known && !others.contains(&pid) {
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
