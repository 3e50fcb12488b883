//! The machine that storms rage on: processes, their threads, and what is on file.
//!
//! It does what Linux does to them (sched(7), cgroups(7)), as far as the daemon depends on it.
//! Every action that anybody performs on it is held against the invariants first.

mod acts;
mod check;
mod choices;
mod reading;
mod releases;

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{CpuSet, JobId, Quota};
use gang_timetable::{
    Attributes, Backend, Gone, Members, THREADS_MAX,
    model::Model,
    record::{Placement, Record, Single},
};

pub struct Thread {
    pub pid: u32,
    /// As its owner has it.
    pub own: Attributes,
    pub own_cpus: CpuSet,
    /// A real-time parent started it: it lost its nice value (sched(7)).
    pub lost_nice: bool,
    /// Attributes of the first thread of a job that a member of it started this one in: which of
    /// them it would have had, nobody can tell of one that lost its nice value.
    pub normal: Vec<Attributes>,
    /// The same of CPUs: those of a slot may be those that its parent chose.
    pub normal_cpus: Vec<CpuSet>,
    /// Attributes that it may have had as it was started, or first seen.
    pub at_start: Vec<Attributes>,
    /// Its attributes before its owner chose others that no daemon has read yet: a release cannot
    /// tell a policy that was chosen in a slot from what gangd gave.
    pub unread: Vec<Attributes>,
    /// Its owner has changed it since it was read.
    pub is_unread: bool,
    /// It started, or was first seen, as a child of a real-time thread is.
    pub was_reset: bool,
    /// It was read once.
    pub was_read: bool,
    /// Its owner has changed its policy, and it was not switched since then.
    pub is_unswitched: bool,
    /// It is its job's owner's again, and what it was to get back as another's may come later.
    pub is_back: bool,
    /// Its owner chose its CPUs while it was a member of a job.
    pub choice: Choice,
    pub started: u64,
}

/// A choice of CPUs in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// There is none, or the daemon knows of it.
    Known,
    /// The daemon has not looked yet.
    Unseen,
    /// The daemon cannot distinguish it from its own.
    Alike,
    /// It is lost by that, and the daemon has not looked since.
    Lost,
}

impl Thread {
    /// Nobody can tell whether its owner wants this.
    pub fn may_have(&mut self, had: Attributes) {
        if !self.normal.contains(&had) {
            self.normal.push(had);
        }
    }

    /// One that this one starts.
    fn child(&self, pid: u32) -> Thread {
        let Thread { own, lost_nice, .. } = *self;
        let (own_cpus, normal_cpus) = (self.own_cpus.clone(), self.normal_cpus.clone());
        let mut normal = self.normal.clone();
        normal.extend(&self.unread);
        Thread {
            pid,
            own,
            own_cpus,
            lost_nice,
            normal,
            normal_cpus,
            at_start: Vec::new(),
            unread: Vec::new(),
            is_unread: false,
            was_reset: false,
            was_read: false,
            is_unswitched: false,
            is_back: false,
            choice: self.choice,
            started: 0,
        }
    }
}

pub struct Process {
    pub uid: u32,
    /// It became another user's, and a timetable may have it as one of its job's owner.
    pub is_unseen: bool,
    /// When it became another user's (monotonic).
    pub became_ns: Option<u64>,
    pub started: u64,
    /// The job in whose cgroup it is.
    pub group: Option<JobId>,
    pub parent: u32,
    /// When it left the group of a job by itself (monotonic).
    pub left_ns: Option<u64>,
}

/// Which CPUs gangd gave to threads of a job, on file.
#[derive(Clone, Default)]
pub struct Pins {
    given: Vec<CpuSet>,
    user_pinned: Vec<u32>,
    /// Attributes that owners want of threads.
    own: BTreeMap<u32, Attributes>,
    /// The members of a job with a cgroup, and when they were there (ticks).
    members: (u64, Vec<u32>),
    /// Those that left by themselves, each with when it was a member yet.
    strays: BTreeMap<u32, u64>,
}

impl Pins {
    pub fn has_given(&self, cpus: &CpuSet) -> bool {
        self.given.contains(cpus)
    }

    /// Whether a thread is on file as a member, or as one that left by itself.
    fn has_filed(&self, tid: u32) -> bool {
        self.members.1.contains(&tid) || self.strays.contains_key(&tid)
    }
}

#[derive(Default)]
pub struct Machine {
    pub model: Model,
    pub threads: BTreeMap<u32, Thread>,
    pub processes: BTreeMap<u32, Process>,
    pub records: BTreeMap<JobId, Record>,
    pub pins: BTreeMap<JobId, Pins>,
    /// Numbers of those that have ended, with when (monotonic).
    pub ended: Vec<(u32, u64)>,
    next: u32,
    ticks: u64,
    pub all: CpuSet,
    pub online: CpuSet,
    pub backend: Option<Backend>,
    /// The quotas of CPU time of the groups in which jobs were called, in ‰ of a CPU.
    pub quotas: BTreeMap<u64, u32>,
    /// When each of them last came, changed or went (monotonic).
    pub limited_ns: BTreeMap<u64, u64>,
    /// Jobs that an administrator suspended: a timetable of then may stop all of their members.
    pub stopped_whole: BTreeSet<JobId>,
    /// Invariants that did not hold.
    pub violations: Vec<String>,
}

/// Where the members of a job are read, as the daemon's roster does.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    pub leaving: BTreeSet<u32>,
    pub expected: Vec<u32>,
    /// The own attributes of threads that are going to come.
    pub expected_own: BTreeMap<u32, Attributes>,
    /// Of a job without a cgroup.
    pub tree: Vec<u32>,
    pub removed: BTreeSet<u32>,
    /// Processes of other jobs without a cgroup.
    pub others: BTreeSet<u32>,
    pub singles: Vec<Single>,
    pub beside: usize,
    /// When the members were last listed (ticks).
    pub listed: u64,
    /// Threads that left by themselves, and are on file yet.
    pub strays: BTreeMap<u32, u64>,
    /// Those that were not taken yet.
    pub found: Vec<Gone>,
    /// Processes whose owner is looked at by the next reading; those whose owner was looked at, and
    /// the last one of these whose turn it was again.
    pub became_other: BTreeSet<u32>,
    pub owners_seen: BTreeSet<u32>,
    pub owner_turn: u32,
}

/// The groups in which jobs are called, by the numbers of the jobs.
const GROUPS: u64 = 3;

/// The attributes that a thread may have by default where another one has `of`: nothing that was
/// given to that one alone. The code that is checked has the same rule once more, so that a fault
/// there shows here.
fn default_of(of: Attributes) -> Attributes {
    let of = if of.policy.is_realtime() { Attributes::other(of.nice) } else { of };
    Attributes { nice: of.nice.max(0), reset_on_fork: false, ..of }
}

impl Machine {
    /// The quota that binds a job where it was called.
    pub fn quota_of(&self, job: JobId) -> Option<Quota> {
        let group = job.0 % GROUPS;
        let cpu_permille = *self.quotas.get(&group)?;
        Some(Quota { group, cpu_permille, period_us: u32::MAX })
    }

    /// The quota of the group in which a job was called comes, changes or goes.
    pub fn limit(&mut self, job: JobId, cpu_permille: Option<u32>, now_ns: u64) {
        let group = job.0 % GROUPS;
        match cpu_permille {
            Some(quota) => drop(self.quotas.insert(group, quota)),
            None => drop(self.quotas.remove(&group)),
        }
        self.limited_ns.insert(group, now_ns);
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        100 + self.next
    }

    /// Starts a process with one thread.
    pub fn spawn(&mut self, uid: u32, nice: i32, number: Option<u32>) -> u32 {
        let pid = number.unwrap_or_else(|| self.number());
        self.ticks += 1;
        let (started, is_unseen, became_ns, left_ns) = (self.ticks, false, None, None);
        let process =
            Process { uid, is_unseen, became_ns, started, group: None, parent: 1, left_ns };
        self.processes.insert(pid, process);
        let (own, own_cpus) = (Attributes::other(nice), self.all.clone());
        self.add_thread(
            pid,
            pid,
            Thread {
                pid,
                own,
                own_cpus,
                lost_nice: false,
                normal: Vec::new(),
                normal_cpus: Vec::new(),
                at_start: Vec::new(),
                unread: Vec::new(),
                is_unread: false,
                was_reset: false,
                was_read: false,
                is_unswitched: false,
                is_back: false,
                choice: Choice::Known,
                started: 0,
            },
            None,
        );
        pid
    }

    fn add_thread(&mut self, tid: u32, pid: u32, thread: Thread, parent: Option<u32>) {
        debug_assert!(self.processes.contains_key(&pid));
        let now = parent.and_then(|tid| self.model.attributes.get(&tid)).copied();
        let cpus = parent.and_then(|tid| self.model.affinity.get(&tid)).cloned();
        let now = now.unwrap_or(thread.own);
        // SCHED_RESET_ON_FORK (sched(7)): no real-time child, and none of a nice value below 0.
        let reset = now.reset_on_fork && (now.policy.is_realtime() || now.nice < 0);
        let now = match reset {
            true if now.policy.is_realtime() => Attributes::other(0),
            true => Attributes { nice: 0, ..now },
            false => now,
        };
        let now = Attributes { reset_on_fork: false, ..now };
        if std::env::var_os("STORM_TRACE").is_some() {
            eprintln!(
                "  thread {tid} of {pid} starts, by {parent:?}: {now:?}, own {:?}",
                thread.own
            );
        }
        self.model.attributes.insert(tid, now);
        self.model.affinity.insert(tid, cpus.unwrap_or_else(|| thread.own_cpus.clone()));
        let lost_nice = thread.lost_nice || reset;
        // A child of one that has not got its nice value back looks the same.
        let was_reset = reset || (lost_nice && now == Attributes::other(0));
        let normal = parent.and_then(|tid| Some(default_of(self.record_of(tid)?.normal.into())));
        // By fork alone it gets what its parent has of its own.
        let of_parent = thread.normal.iter().copied().chain(lost_nice.then_some(thread.own));
        // Of what it may have, its nice value is a child's too, unless that is lost.
        let with_nice =
            |it: Attributes| [default_of(it), Attributes { nice: it.nice, ..default_of(it) }];
        let of_parent =
            of_parent.flat_map(|it| with_nice(it).into_iter().take(2 - usize::from(reset)));
        let by_default = of_parent.chain(normal);
        // A nice value below 0 stays unless it is lost, whatever becomes of the policy.
        let kept = |it| [it, Attributes { nice: thread.own.nice, ..it }];
        // One of 0 or above that was chosen in the slot of an oversubscribed gang is a child's,
        // too: the kernel takes those below 0 alone.
        let of_slot = (!reset).then_some(Attributes { nice: now.nice, ..thread.own });
        let normal: Vec<Attributes> = by_default.flat_map(kept).chain(of_slot).collect();
        let at_start = normal.iter().copied().chain([thread.own]).collect();
        // One that is younger than a single member loses CPUs that are those of a slot.
        let beside = self.records.values().find(|record| match &record.placement {
            Placement::Threads { threads } => {
                let line = self.ancestors(pid);
                threads.iter().any(|it| line.contains(&(it.pid, it.process_started)))
            }
            Placement::Cgroup { .. } | Placement::Tree { .. } => false,
        });
        let of = parent.and_then(|tid| self.record_of(tid)).or(beside);
        let of_job = of.map(|record| record.affinity.iter().copied().collect());
        let normal_cpus = thread.normal_cpus.iter().cloned().chain(of_job).collect();
        self.ticks += 1;
        let started = self.ticks;
        self.threads.insert(
            tid,
            Thread { lost_nice, was_reset, normal, at_start, normal_cpus, started, ..thread },
        );
    }

    /// A thread starts another one in its process.
    pub fn start_thread(&mut self, parent: u32) {
        let tid = self.number();
        let Some(of) = self.threads.get(&parent) else { return };
        let (pid, thread) = (of.pid, of.child(of.pid));
        self.add_thread(tid, pid, thread, Some(parent));
    }

    /// A thread starts another process, in the same groups.
    pub fn fork(&mut self, parent: u32) {
        let pid = self.number();
        let Some(of) = self.threads.get(&parent) else { return };
        let thread = of.child(pid);
        let Some(process) = self.processes.get(&of.pid) else { return };
        let Process { uid, is_unseen, became_ns, group, left_ns, .. } = *process;
        let parent_pid = of.pid;
        self.ticks += 1;
        let started = self.ticks;
        let child =
            Process { uid, is_unseen, became_ns, started, group, parent: parent_pid, left_ns };
        self.processes.insert(pid, child);
        self.add_thread(pid, pid, thread, Some(parent));
    }

    /// A process becomes another user's, as those with the set-user-ID bit do.
    pub fn become_other(&mut self, pid: u32, uid: u32, now_ns: u64) {
        let owner_uid = self.record_of_process(pid, pid).map(|record| record.owner_uid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.uid == uid {
            return;
        }
        (process.uid, process.is_unseen, process.became_ns) = (uid, true, Some(now_ns));
        // It stands as its job from the next timetable on.
        let threads = self.threads.values_mut().filter(|thread| thread.pid == pid);
        let is_back = owner_uid.is_some_and(|owner| owner == uid);
        threads.filter(|_| is_back).for_each(|thread| {
            (thread.is_unswitched, thread.is_back) = (true, true);
        });
    }

    /// All orders are carried out: threads that are back stand as their jobs from the next switch
    /// on.
    pub fn orders_are_done(&mut self) {
        let is_seen = |pid: &u32| self.processes.get(pid).is_some_and(|of| !of.is_unseen);
        for thread in self.threads.values_mut().filter(|it| it.is_back && is_seen(&it.pid)) {
            (thread.is_unswitched, thread.is_back) = (true, false);
        }
        let stops_foreign = |job: &JobId| self.records.get(job).is_some_and(|of| of.stops_foreign);
        self.stopped_whole.retain(stops_foreign);
    }

    /// The daemon has seen to whom the process of a thread belongs.
    pub fn is_seen(&mut self, tid: u32) {
        let pid = self.threads.get(&tid).map(|thread| thread.pid);
        if let Some(process) = pid.and_then(|pid| self.processes.get_mut(&pid)) {
            process.is_unseen = false;
        }
    }

    /// Whether a thread belongs to another user than a job of this one.
    pub fn is_foreign(&self, tid: u32, owner_uid: u32) -> bool {
        let process = self.threads.get(&tid).and_then(|thread| self.processes.get(&thread.pid));
        owner_uid != 0 && process.is_some_and(|process| process.uid != owner_uid)
    }

    /// Of the processes of a job's members, those whose owner is another one than it is known to
    /// be.
    pub fn have_other_owner(&self, members: &Members, owner_uid: u32) -> BTreeSet<u32> {
        let threads = members.threads().iter();
        let other = threads.filter(|it| it.is_foreign != self.is_foreign(it.tid, owner_uid));
        other.filter_map(|it| self.threads.get(&it.tid)).map(|thread| thread.pid).collect()
    }

    /// Stopped or frozen, a thread does nothing.
    pub fn stands_still(&self, tid: u32) -> bool {
        let pid = self.threads[&tid].pid;
        let group = self.processes[&pid].group.map(gang_timetable::Group::Job);
        let is_frozen = group.is_some_and(|group| self.model.group(group).frozen == Some(true));
        is_frozen || self.model.stopped.contains(&pid)
    }

    pub fn end_thread(&mut self, tid: u32) {
        // The first one stays until the others have ended.
        if self.threads.get(&tid).is_some_and(|thread| thread.pid != tid) {
            self.forget_thread(tid);
        }
    }

    fn forget_thread(&mut self, tid: u32) {
        self.threads.remove(&tid);
        self.model.attributes.remove(&tid);
        self.model.affinity.remove(&tid);
    }

    pub fn exit(&mut self, pid: u32, now_ns: u64) {
        if std::env::var_os("STORM_TRACE").is_some() {
            eprintln!("  exit {pid}");
        }
        if self.processes.remove(&pid).is_none() {
            return;
        }
        self.tids(pid).into_iter().for_each(|tid| self.forget_thread(tid));
        self.model.stopped.remove(&pid);
        self.processes.values_mut().filter(|it| it.parent == pid).for_each(|it| it.parent = 1);
        self.ended.push((pid, now_ns));
    }

    pub fn tids(&self, pid: u32) -> Vec<u32> {
        self.threads.iter().filter(|(_, of)| of.pid == pid).map(|(&tid, _)| tid).collect()
    }

    pub fn in_group(&self, job: JobId) -> Vec<u32> {
        let there = self.processes.iter().filter(|(_, of)| of.group == Some(job));
        there.map(|(&pid, _)| pid).collect()
    }

    fn is_there(&self, single: &Single) -> bool {
        self.threads.get(&single.tid).is_some_and(|of| of.pid == single.pid)
            && self.processes.get(&single.pid).map(|of| of.started) == Some(single.process_started)
    }

    pub fn leave_group(&mut self, pid: u32) {
        self.processes.get_mut(&pid).into_iter().for_each(|process| process.group = None);
    }

    /// The job on file that a thread is in, where one is.
    fn record_of(&self, tid: u32) -> Option<&Record> {
        let pid = self.threads.get(&tid)?.pid;
        self.record_of_process(pid, tid)
    }

    fn record_of_process(&self, pid: u32, tid: u32) -> Option<&Record> {
        let all = || self.records.values().filter(|record| self.is_on_file(record, pid, tid));
        // One that is on its way itself is not meant by what is said of its parent.
        all().find(|record| record.coming.is_none_or(|(first, _)| first == pid)).or(all().next())
    }

    /// Whether what is on file of a job says that it has a thread.
    fn is_on_file(&self, record: &Record, pid: u32, tid: u32) -> bool {
        let Some(process) = self.processes.get(&pid) else { return false };
        // Children that a process starts while it is on its way are released with it.
        let is_coming = record.coming.is_some_and(|first| self.ancestors(pid).contains(&first));
        is_coming
            || match &record.placement {
                Placement::Cgroup { .. } => {
                    process.group == Some(JobId(record.id)) || self.is_stray(record, tid)
                }
                Placement::Tree { processes } => {
                    self.ancestors(pid).iter().any(|it| processes.contains(it))
                }
                Placement::Threads { threads } => {
                    threads.iter().any(|single| single.tid == tid && self.is_there(single))
                }
            }
    }

    /// Whether a thread is on file of a job, and of no job's group.
    pub(super) fn is_stray(&self, record: &Record, tid: u32) -> bool {
        let Some(thread) = self.threads.get(&tid) else { return false };
        self.pins.get(&JobId(record.id)).is_some_and(|pins| {
            let (ticks, members) = &pins.members;
            let at = members.contains(&tid).then_some(ticks);
            let at = pins.strays.get(&tid).or(at);
            let is_in_group = self.processes[&thread.pid].group.is_some();
            at.is_some_and(|at| thread.started <= *at) && !is_in_group
        })
    }

    /// Whether some thread left the group of a job on file.
    pub fn has_strays_of(&self, record: &Record) -> bool {
        self.threads.keys().any(|&tid| self.is_stray(record, tid))
    }

    /// Whether a thread lives out of the group of a job.
    pub fn is_outside(&self, job: JobId, tid: u32) -> bool {
        let Some(thread) = self.threads.get(&tid) else { return false };
        let process = &self.processes[&thread.pid];
        process.left_ns.is_some() && process.group != Some(job)
    }

    /// Whether some thread of a process is.
    pub fn has_strays(&self, pid: u32) -> bool {
        let tids = self.tids(pid);
        self.records.values().any(|record| tids.iter().any(|&tid| self.is_stray(record, tid)))
    }

    /// A process leaves the group of its job by itself.
    pub fn stray(&mut self, pid: u32, now_ns: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.group, process.left_ns) = (None, Some(now_ns));
        }
    }

    /// A process, its parent and so on, each with when it started.
    pub fn ancestors(&self, mut pid: u32) -> Vec<(u32, u64)> {
        let mut line = Vec::new();
        while let Some(process) = self.processes.get(&pid) {
            line.push((pid, process.started));
            pid = process.parent;
        }
        line
    }

    fn violation(&mut self, what: String) {
        if self.violations.len() < 8 {
            self.violations.push(what);
        }
    }
}

/// So many threads, and one more than are switched.
pub const CROWD: usize = THREADS_MAX + 1;
