//! The machine that storms rage on: processes, their threads, and what is on file.
//!
//! It does what Linux does to them (sched(7), cgroups(7)), as far as the daemon depends on it.
//! Every action that anybody performs on it is held against the invariants first.

use std::collections::{BTreeMap, BTreeSet};

use gang_conductor::Home;
use gang_schedule::{CpuSet, JobId};
use gang_timetable::{
    Action, Attributes, Backend, Members, SchedPolicy, Seen, Signal, Starter, THREADS_MAX,
    is_raised,
    model::Model,
    record::{Placement, Record, Single},
    released, released_inheritor,
};

pub struct Thread {
    pub pid: u32,
    /// As its owner has it.
    pub own: Attributes,
    pub own_cpus: CpuSet,
    /// A real-time parent started it: it lost its nice value (sched(7)).
    pub lost_nice: bool,
    /// What the first thread of a job had that a member of it started this one in: which of them it
    /// would have had, nobody can tell of one that lost its nice value.
    pub normal: Vec<Attributes>,
    /// The same of CPUs: those of a slot may be those that its parent chose.
    pub normal_cpus: Vec<CpuSet>,
    /// What it may have had as it was started.
    pub at_start: Vec<Attributes>,
    /// What it had before its owner chose what no daemon has read yet: a release cannot tell a
    /// policy that was chosen in a slot from what gangd gave.
    pub unread: Vec<Attributes>,
    /// Its owner has changed it since it was read.
    pub is_unread: bool,
    /// It started, or was first seen, as a child of a real-time thread is.
    pub was_reset: bool,
    /// It was read once.
    pub was_read: bool,
    /// Its owner has changed its policy, and it was not switched since then.
    pub is_unswitched: bool,
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
            choice: self.choice,
            started: 0,
        }
    }
}

pub struct Process {
    pub uid: u32,
    pub started: u64,
    /// The job in whose cgroup it is.
    pub group: Option<JobId>,
    pub parent: u32,
}

/// Which CPUs gangd gave to threads of a job, on file.
#[derive(Clone, Default)]
pub struct Pins {
    given: Vec<CpuSet>,
    user_pinned: Vec<u32>,
    /// Attributes that owners want of threads.
    own: BTreeMap<u32, Attributes>,
}

impl Pins {
    pub fn has_given(&self, cpus: &CpuSet) -> bool {
        self.given.contains(cpus)
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
    /// Invariants that did not hold.
    pub violations: Vec<String>,
}

/// Where the members of a job are read, as the daemon's roster does.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    pub leaving: BTreeSet<u32>,
    pub expected: Vec<u32>,
    /// What threads have of their own that are going to come.
    pub expected_own: BTreeMap<u32, Attributes>,
    /// Of a job without a cgroup.
    pub tree: Vec<u32>,
    pub removed: BTreeSet<u32>,
    /// Processes of other jobs without a cgroup.
    pub others: BTreeSet<u32>,
    pub singles: Vec<Single>,
    pub beside: usize,
}

impl Machine {
    fn number(&mut self) -> u32 {
        self.next += 1;
        100 + self.next
    }

    /// Starts a process with one thread.
    pub fn spawn(&mut self, uid: u32, nice: i32, number: Option<u32>) -> u32 {
        let pid = number.unwrap_or_else(|| self.number());
        self.ticks += 1;
        let process = Process { uid, started: self.ticks, group: None, parent: 1 };
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
        // SCHED_RESET_ON_FORK.
        let reset = now.policy.is_realtime() && now.reset_on_fork;
        let now = if reset { Attributes::other(0) } else { now };
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
        let normal = parent.and_then(|tid| Some(self.record_of(tid)?.normal.into()));
        let normal: Vec<Attributes> = thread.normal.iter().copied().chain(normal).collect();
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
        let (uid, group, parent_pid) = (process.uid, process.group, of.pid);
        self.ticks += 1;
        let process = Process { uid, started: self.ticks, group, parent: parent_pid };
        self.processes.insert(pid, process);
        self.add_thread(pid, pid, thread, Some(parent));
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

    /// Whether the members of a job have all ended.
    pub fn is_over(&self, job: JobId, home: &Home, roster: &Roster) -> bool {
        if !home.leaving.is_empty() && !matches!(home.placement, Placement::Cgroup { .. }) {
            return false;
        }
        match home.placement {
            Placement::Cgroup { .. } => self.in_group(job).is_empty() && home.coming.is_none(),
            Placement::Tree { .. } => !roster.tree.iter().any(|it| self.processes.contains_key(it)),
            Placement::Threads { .. } => !roster.singles.iter().any(|it| self.is_there(it)),
        }
    }

    /// Reads the threads of a job again; true where one came.
    pub fn read(&mut self, job: JobId, home: &mut Home, roster: &mut Roster) -> bool {
        let mut tids: Vec<u32> = match home.placement {
            Placement::Cgroup { .. } => {
                roster.leaving.retain(|pid| self.processes.contains_key(pid));
                let here = self.in_group(job).into_iter();
                let here = here.filter(|pid| !roster.leaving.contains(pid));
                let mut tids: Vec<u32> = here.flat_map(|pid| self.tids(pid)).collect();
                tids.extend(&roster.expected);
                tids
            }
            Placement::Tree { .. } => {
                roster.tree.retain(|pid| self.processes.contains_key(pid));
                let mut at = 0;
                while at < roster.tree.len() {
                    let parent = roster.tree[at];
                    let children = self.processes.iter().filter(|(_, of)| of.parent == parent);
                    let new = children.map(|(&pid, _)| pid);
                    let new = new.filter(|pid| !roster.removed.contains(pid));
                    let new = new.filter(|pid| !roster.others.contains(pid));
                    let new: Vec<u32> = new.filter(|pid| !roster.tree.contains(pid)).collect();
                    roster.tree.extend(new);
                    at += 1;
                }
                roster.tree.iter().flat_map(|&pid| self.tids(pid)).collect()
            }
            Placement::Threads { .. } => {
                let everywhere = home.members.everywhere.clone();
                // Those that leave are on file until they have left.
                let mut singles = roster.singles.clone();
                if let Some(Placement::Threads { threads }) =
                    self.records.get(&job).map(|record| &record.placement)
                {
                    singles.extend(threads.iter().filter(|it| roster.leaving.contains(&it.tid)));
                }
                self.release_inheritors(job, &singles, &everywhere);
                roster.singles.retain(|single| self.is_there(single));
                roster.singles.iter().map(|single| single.tid).collect()
            }
        };
        if let Placement::Tree { .. } = home.placement {
            home.members.processes.clone_from(&roster.tree);
        }
        home.members.admit(&mut tids, roster.beside);
        let pins = self.pins.get(&job).cloned().unwrap_or_default();
        self.note_starters(&tids, &home.members, &pins.own);
        let singles = &roster.singles;
        for &tid in tids.iter().filter(|&&tid| !home.members.knows(tid)) {
            let is_on_file =
                pins.own.contains_key(&tid) || singles.iter().any(|single| single.tid == tid);
            let is_reset = self.model.attributes.get(&tid) == Some(&Attributes::other(0));
            let thread = self.threads.get_mut(&tid).filter(|_| !is_on_file);
            thread.into_iter().for_each(|it| it.was_reset = is_reset);
        }
        let mut is_other = false;
        for tid in &tids {
            let Some(now) = self.model.attributes.get(tid) else { continue };
            is_other |= home.members.note_attributes(*tid, now);
        }
        let has_own = home.members.has_own_attributes() || !pins.own.is_empty();
        let came = home.members.update(&tids, |tid| {
            let now = *self.model.attributes.get(&tid)?;
            let cpus = self.model.affinity.get(&tid)?.clone();
            let single = singles.iter().find(|single| single.tid == tid);
            let original = single.map(|single| single.normal.into());
            let original = pins.own.get(&tid).copied().or(original);
            let starter = Some(self.starter(tid)).filter(|_| has_own);
            let on_file = |tid| pins.own.get(&tid).copied();
            let started_by = starter.map(|tid| Starter { tid, on_file: on_file(tid) });
            let were_given = pins.given.contains(&cpus);
            Some(Seen { tid, now, were_given, cpus, original, started_by })
        });
        for tid in &tids {
            if let Some(thread) = self.threads.get_mut(tid) {
                (thread.is_unread, thread.unread, thread.was_read) = (false, Vec::new(), true);
            }
        }
        roster.expected_own.retain(|&tid, _| !home.members.knows(tid));
        self.see_cpus(&tids, &mut home.members, &pins);
        let mut chose: Vec<u32> = home.members.user_pinned().collect();
        // Those that leave are in the job's groups, and on file, until they have left.
        let leaving: Vec<u32> = match home.placement {
            Placement::Threads { .. } => roster.leaving.iter().copied().collect(),
            _ => roster.leaving.iter().flat_map(|&pid| self.tids(pid)).collect(),
        };
        chose.extend(leaving.iter().filter(|tid| pins.user_pinned.contains(tid)));
        let mut own: BTreeMap<u32, Attributes> = home.members.own_attributes().collect();
        let removed = roster.removed.iter().flat_map(|&pid| self.tids(pid));
        let leavers = leaving.into_iter().chain(removed);
        own.extend(leavers.filter_map(|tid| Some((tid, *pins.own.get(&tid)?))));
        own.extend(&roster.expected_own);
        if self.backend.is_some_and(Backend::can_fill) {
            let pins = self.pins.entry(job).or_default();
            (pins.user_pinned, pins.own) = (chose, own);
        }
        came > 0 || is_other
    }

    /// Nobody can tell which thread of a process started another one: it may get what any of them
    /// has, or what was last read of the first one.
    fn note_starters(
        &mut self,
        tids: &[u32],
        members: &Members,
        on_file: &BTreeMap<u32, Attributes>,
    ) {
        for &tid in tids.iter().filter(|&&tid| !members.knows(tid)) {
            let Some(thread) = self.threads.get(&tid) else { continue };
            let first = self.starter(tid);
            let starter = self.threads.get(&first).map(|it| it.pid);
            let of_it = self.threads.values().filter(|it| Some(it.pid) == starter);
            let read = members.threads().iter().find(|it| it.tid == first).map(|it| it.original);
            // Of one that leaves, it is on file.
            let read = read.or_else(|| on_file.get(&first).copied());
            // A real-time one, or one of a wide gang in its slot, may have started it.
            let may_have_lost = |now: &Attributes| now.nice == -20 || *now == Attributes::other(0);
            let now = self.model.attributes.get(&tid).copied().unwrap_or(thread.own);
            let may_have_lost = may_have_lost(&now);
            let (own, lost_nice) = (thread.own, thread.lost_nice || may_have_lost);
            let of_it = of_it.flat_map(|it| it.normal.iter().copied().chain([it.own]));
            let all = of_it.chain(read).chain([members.default]);
            let ordinary = all.map(|it| match it.policy.is_realtime() {
                true => Attributes::other(it.nice),
                false => it,
            });
            let nice_values: Vec<i32> = thread.normal.iter().map(|had| had.nice).collect();
            let may_have = ordinary.flat_map(|it| {
                let nice = nice_values.iter().copied().chain([own.nice]);
                let nice =
                    nice.chain(lost_nice.then_some([it.nice, now.nice]).into_iter().flatten());
                nice.map(move |nice| Attributes { nice, ..it })
            });
            let may_have: Vec<Attributes> = may_have.filter(|it| *it != own).collect();
            if let Some(thread) = self.threads.get_mut(&tid) {
                may_have.into_iter().for_each(|had| thread.may_have(had));
            }
        }
    }

    /// The owner of a thread gives it other attributes.
    pub fn choose(&mut self, tid: u32, now: Attributes) {
        let before = self.model.attributes.insert(tid, now);
        let is_on_file = self.record_of(tid).is_some();
        let Some(thread) = self.threads.get_mut(&tid).filter(|_| before != Some(now)) else {
            return;
        };
        if std::env::var_os("STORM_TRACE").is_some() {
            eprintln!("  choose {tid}: {now:?} instead of {before:?}, on file {is_on_file}");
        }
        let is_nice = before.is_some_and(|before| before.nice != now.nice);
        let had = thread.own;
        thread.is_unread = true;
        if is_nice {
            // One that lost the policy of its parent still has not got it back, perhaps.
            thread.normal.extend(thread.lost_nice.then_some(Attributes::other(now.nice)));
            // As one that a real-time parent has started, which lost its nice value; or as what
            // such a one has started.
            let may_be_new = !thread.was_read || thread.was_reset || thread.lost_nice;
            thread.lost_nice = may_be_new && now.nice == 0;
            thread.own.nice = now.nice;
            let before_that = thread.normal.clone();
            let all = thread.unread.iter_mut().chain(&mut thread.normal);
            all.for_each(|it| it.nice = now.nice);
            if thread.lost_nice {
                let at_start = thread.at_start.clone();
                let before_that = before_that.into_iter().chain([had]).chain(at_start);
                before_that.for_each(|had| thread.may_have(had));
            }
            // In its slot, one of a wide gang is SCHED_OTHER: nobody can tell that its owner did
            // not choose that, too.
            if before == Some(Attributes::other(-20)) {
                thread.is_unswitched = true;
                thread.may_have(now);
            }
        } else {
            // That of a wide gang in its slot is not its owner's.
            let nice =
                if now.nice == -20 && !now.policy.is_realtime() { had.nice } else { now.nice };
            thread.own = Attributes { nice, ..now };
            // As one that a real-time parent has started.
            if now == Attributes::other(0) && (thread.was_reset || !thread.was_read) {
                thread.may_have(had);
            }
            // The nice value may be that of any thread that may have started it.
            for nice in thread.normal.iter().map(|it| it.nice).collect::<Vec<i32>>() {
                thread.may_have(Attributes { nice, ..now });
            }
            thread.is_unswitched = !now.policy.is_realtime();
            // One that was real-time of its own becomes an ordinary one.
            let had = if had.policy.is_realtime() { Attributes::other(nice) } else { had };
            thread.unread.extend(is_on_file.then_some(Attributes { nice, ..had }));
            // It looks as one of a wide gang does in its slot: nobody can tell that it was chosen.
            if now == Attributes::other(-20) {
                thread.may_have(Attributes { nice, ..had });
            }
        }
    }

    /// Whether a thread is of a job with a cgroup, or on its way there.
    pub fn has_group(&self, tid: u32) -> bool {
        let is_group = |of: &Record| matches!(of.placement, Placement::Cgroup { .. });
        self.record_of(tid).is_some_and(is_group)
    }

    /// Whether it is of a gang that a group of its own weighs.
    pub fn is_apart(&self, tid: u32) -> bool {
        let is_apart = |of: &Record| {
            matches!(of.placement, Placement::Cgroup { cpu_group_is_shared: false, .. })
        };
        self.record_of(tid).is_some_and(is_apart)
    }

    /// What the owner of a thread wants, by what is on file.
    fn wanted_on_file(&self, tid: u32) -> Option<Attributes> {
        let record = self.record_of(tid)?;
        let own = self.pins.get(&JobId(record.id)).and_then(|pins| pins.own.get(&tid));
        Some(own.copied().unwrap_or(record.normal.into()))
    }

    /// The first thread of the process that started a thread.
    fn starter(&self, tid: u32) -> u32 {
        let pid = self.threads[&tid].pid;
        if pid == tid { self.processes[&pid].parent } else { pid }
    }

    /// On file: threads are going to come that have these attributes of their own.
    pub fn expect_own(&mut self, job: JobId, own: BTreeMap<u32, Attributes>) {
        if self.backend.is_some_and(Backend::can_fill) {
            self.pins.entry(job).or_default().own.extend(own);
        }
    }

    /// The daemon looks at which CPUs threads have.
    fn see_cpus(&mut self, tids: &[u32], members: &mut Members, pins: &Pins) {
        for &tid in tids {
            let Some(cpus) = self.model.affinity.get(&tid).cloned() else { continue };
            let were_given = pins.given.contains(&cpus);
            members.see_cpus(tid, cpus.clone(), were_given, &self.online);
            let everywhere = members.everywhere.clone();
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            if thread.choice == Choice::Unseen {
                // On file from the next read on; until then a release may take it for a slot's.
                thread.normal_cpus.push(everywhere);
            }
            // Where it was every CPU online, it shows once there are others.
            let is_known = matches!(thread.choice, Choice::Known | Choice::Lost)
                || members.own_cpus(tid) == Some(&cpus);
            thread.choice = if is_known { Choice::Known } else { Choice::Alike };
        }
    }

    /// An owner chooses the CPUs of a thread, wherever it is.
    pub fn bind(&mut self, tid: u32, cpus: CpuSet) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        thread.choice = Choice::Unseen;
        let before = std::mem::replace(&mut thread.own_cpus, cpus.clone());
        // What its daemon knew of is given back where that daemon does not look any more.
        thread.normal_cpus.push(before);
        self.model.affinity.insert(tid, cpus);
    }

    /// The CPUs that the threads of a process have are taken for their own when it comes, whatever
    /// the daemon of a job before knew of them.
    pub fn know_choices(&mut self, pid: u32) {
        for (tid, thread) in self.threads.iter_mut().filter(|(_, of)| of.pid == pid) {
            if self.model.affinity.get(tid) == Some(&thread.own_cpus) {
                thread.choice = Choice::Known;
            }
        }
    }

    /// On file: threads that chose their CPUs are going to come.
    pub fn expect_user_pinned(&mut self, job: JobId, tids: impl Iterator<Item = u32>) {
        if self.backend.is_some_and(Backend::can_fill) {
            self.pins.entry(job).or_default().user_pinned.extend(tids);
        }
    }

    /// A job begins anew: no CPUs are given yet.
    pub fn begin_pins(&mut self, job: JobId) {
        let own = std::mem::take(&mut self.pins.entry(job).or_default().own);
        self.pins.insert(job, Pins { own, ..Pins::default() });
    }

    /// On file: threads of a job are going to be restricted to these CPUs.
    pub fn give(&mut self, job: JobId, cpus: &CpuSet) {
        let given = &mut self.pins.entry(job).or_default().given;
        if !given.contains(cpus) {
            given.push(cpus.clone());
        }
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
        // What a process starts while it is on its way is released with it.
        let is_coming = record.coming.is_some_and(|first| self.ancestors(pid).contains(&first));
        is_coming
            || match &record.placement {
                Placement::Cgroup { .. } => process.group == Some(JobId(record.id)),
                Placement::Tree { processes } => {
                    self.ancestors(pid).iter().any(|it| processes.contains(it))
                }
                Placement::Threads { threads } => {
                    threads.iter().any(|single| single.tid == tid && self.is_there(single))
                }
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

    /// A raised thread that a number chooses.
    pub fn nth_raised(&self, number: u16) -> Option<u32> {
        let raised = self.model.attributes.iter().filter(|(_, now)| is_raised(now));
        let raised: Vec<u32> = raised.map(|(tid, _)| *tid).collect();
        (!raised.is_empty()).then(|| raised[usize::from(number) % raised.len()])
    }

    pub fn is_raised(&self, tid: u32) -> bool {
        self.model.attributes.get(&tid).is_some_and(is_raised)
    }

    /// The first call by which a raised thread gives way; what it gets by the second.
    pub fn lower_for_a_moment(&mut self, action: &Action) -> Option<(u32, Attributes)> {
        let Action::Attributes { tid, known, .. } = action else { return None };
        let now = *self.model.attributes.get(tid)?;
        self.model.attributes.insert(*tid, known.give_way(&now)?);
        Some((*tid, now))
    }

    /// The second call, whatever happened since the first.
    pub fn raise_again(&mut self, tid: u32, raised: Attributes) {
        if self.threads.contains_key(&tid) {
            self.model.attributes.insert(tid, raised);
        }
    }

    /// Performs an action, and says what is wrong with it.
    pub fn perform(&mut self, action: &Action) {
        if std::env::var_os("STORM_TRACE").is_some() {
            eprintln!("  does {action:?}");
        }
        match action {
            Action::Attributes { tid, attributes, known } => {
                let Some(thread) = self.threads.get(tid) else { return };
                let now = &self.model.attributes[tid];
                // A kernel that groups real-time threads refuses that.
                if is_raised(attributes) && known.switch(now, attributes).is_some() {
                    let may_be_there = |of: &Record| match &of.placement {
                        Placement::Cgroup { cpu_group, other, .. } => {
                            cpu_group.is_some() || other.is_some()
                        }
                        Placement::Tree { .. } | Placement::Threads { .. } => false,
                    };
                    if self.record_of(*tid).is_some_and(may_be_there) {
                        self.violation(format!(
                            "nobody is real-time in a group of its own: thread {tid}"
                        ));
                        return;
                    }
                }
                if thread.own != *attributes && known.switch(now, attributes).is_some() {
                    let uid = self.processes[&thread.pid].uid;
                    match self.record_of(*tid).map(|record| (record.id, record.owner_uid)) {
                        None => self.violation(format!(
                            "on file before it is done: thread {tid} gets {attributes:?}, and no \
                             job on file has it"
                        )),
                        Some((job, owner)) if owner != 0 && owner != uid => {
                            self.violation(format!(
                                "nobody raises another's thread: {tid} of user {uid} by job {job} \
                                 of user {owner}"
                            ));
                        }
                        Some(_) => {}
                    }
                }
            }
            Action::Affinity { tid, cpus } => {
                let Some(thread) = self.threads.get_mut(tid) else { return };
                if thread.choice != Choice::Known {
                    // As if nobody had chosen.
                    thread.choice = Choice::Lost;
                    thread.own_cpus = thread.normal_cpus.last().cloned().unwrap_or_default();
                }
                if thread.own_cpus != *cpus && !thread.normal_cpus.contains(cpus) {
                    let (pid, tid) = (thread.pid, *tid);
                    let records = self.records.values();
                    let records = records.filter(|record| self.is_on_file(record, pid, tid));
                    let mut pins = records.filter_map(|it| self.pins.get(&JobId(it.id)));
                    let is_on_file = pins
                        .any(|pins| pins.given.contains(cpus) && !pins.user_pinned.contains(&tid));
                    if !is_on_file {
                        self.violation(format!(
                            "pins are on file before they are set: thread {tid} gets {cpus}"
                        ));
                    }
                }
            }
            Action::Signal { pid, signal: Signal::Stop, .. } => {
                let Some(process) = self.processes.get(pid) else { return };
                let uid = process.uid;
                let owner = self.record_of_process(*pid, *pid).map(|of| (of.id, of.owner_uid));
                if let Some((job, owner)) = owner.filter(|&(_, owner)| owner != 0 && owner != uid) {
                    self.violation(format!(
                        "nobody stops another's process: {pid} of user {uid} by job {job} of user \
                         {owner}"
                    ));
                }
                if owner.is_none() {
                    self.violation(format!(
                        "on file before it is done: process {pid} of {:?} is stopped, and no job on \
                         file has it: {:?}",
                        self.ancestors(*pid),
                        self.records.values().map(|it| &it.placement).collect::<Vec<_>>()
                    ));
                }
            }
            Action::Control { .. } | Action::Signal { .. } | Action::Page { .. } => {}
        }
        if let Action::Attributes { tid, attributes, known } = action {
            // A switcher that was late gives back what was its own before that was changed, or
            // lowers it by that.
            let wanted = self.wanted_on_file(*tid);
            if wanted != Some(known.own) {
                let is_raised = attributes.policy.is_realtime() || attributes.nice == -20;
                let was_wide = self.model.attributes[tid] == Attributes::other(-20);
                let thread = self.threads.get_mut(tid).into_iter();
                thread.for_each(|it| {
                    let own = it.own;
                    (!is_raised).then(|| it.may_have(Attributes { nice: own.nice, ..*attributes }));
                    // A choice after the last read is covered up by that, but for the nice value,
                    // which shows under any policy.
                    let covered = wanted
                        .into_iter()
                        .flat_map(|had| [had, Attributes { nice: own.nice, ..had }]);
                    covered.for_each(|had| it.may_have(had));
                    let all = it.normal.iter().copied().chain([own]);
                    let all = all.map(|it| Attributes { nice: known.own.nice, ..it });
                    let all: Vec<Attributes> = all.filter(|_| was_wide).collect();
                    all.into_iter().for_each(|had| it.may_have(had));
                });
            }
            let is_left = known.switch(&self.model.attributes[tid], attributes).is_none();
            // By a timetable that knows what its owner wants.
            let thread = self.threads.get_mut(tid);
            let thread = thread.filter(|it| !is_left && it.own == known.own);
            thread.into_iter().for_each(|it| it.is_unswitched = false);
        }
        let _ = self.model.perform(action);
    }

    /// Undoes what is done to one job, from what is on file of it alone: as the guardian does.
    pub fn release(&mut self, record: &Record) {
        let job = JobId(record.id);
        let normal: Attributes = record.normal.into();
        let everywhere: CpuSet = record.affinity.iter().copied().collect();
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        for tid in tids {
            if !self.is_on_file(record, self.threads[&tid].pid, tid) {
                continue;
            }
            let single = match &record.placement {
                Placement::Threads { threads } => threads.iter().find(|it| it.tid == tid),
                Placement::Cgroup { .. } | Placement::Tree { .. } => None,
            };
            let normal = single.map_or(normal, |single| single.normal.into());
            let own = |tid| self.pins.get(&job).and_then(|pins| pins.own.get(&tid)).copied();
            let mut starters = std::iter::successors(Some(tid), |&at| {
                self.threads.contains_key(&at).then(|| self.starter(at))
            });
            let starter = starters.find_map(own);
            // Another thread of that process may have started it, or that process has ended.
            let ordinary = starter.or(Some(normal)).map(|it| match it.policy.is_realtime() {
                true => Attributes::other(it.nice),
                false => it,
            });
            let now = self.model.attributes.get(&tid).map(|now| now.nice);
            if let (None, Some(of)) = (own(tid), ordinary) {
                let thread = self.threads.get_mut(&tid);
                thread.into_iter().for_each(|it| {
                    it.may_have(of);
                    it.may_have(Attributes { nice: it.own.nice, ..of });
                    let all = it.normal.iter().map(|had| had.nice);
                    let all: Vec<i32> = all.chain(now.filter(|_| it.lost_nice)).collect();
                    all.into_iter().for_each(|nice| it.may_have(Attributes { nice, ..of }));
                });
            }
            let normal = starter.unwrap_or(normal);
            let cpus = self.model.affinity.get(&tid).cloned().unwrap_or_default();
            let has_pinned = self
                .pins
                .get(&job)
                .is_some_and(|pins| pins.given.contains(&cpus) && !pins.user_pinned.contains(&tid));
            if std::env::var_os("STORM_TRACE").is_some() {
                eprintln!(
                    "  release of job {job}: {tid} on {cpus}, pinned {has_pinned}, to {everywhere}, coming {:?}",
                    record.coming
                );
            }
            if has_pinned && cpus != everywhere {
                self.model.affinity.insert(tid, everywhere.clone());
            }
            let had = self.model.attributes.get(&tid).and_then(|now| released(now, &normal));
            let had = had.filter(|_| !record.keeps_attributes);
            self.model.attributes.extend(had.map(|had| (tid, had)));
            // From now on that is what it has.
            let now = self.model.attributes.get(&tid).copied().unwrap_or(normal);
            let thread = self.threads.get_mut(&tid).filter(|it| it.unread.contains(&now));
            thread.into_iter().for_each(|it| {
                it.own = now;
                // One that lost its nice value looks again as it did when it was first seen.
                if it.lost_nice && now == Attributes::other(0) {
                    let at_start = it.at_start.clone();
                    at_start.into_iter().for_each(|had| it.may_have(had));
                }
            });
            let pid = self.threads[&tid].pid;
            self.model.stopped.remove(&pid);
        }
        self.model.groups.remove(&gang_timetable::Group::Job(job));
        if let Placement::Threads { threads } = &record.placement {
            self.release_inheritors(job, threads, &everywhere);
        }
    }

    /// The same, of the members that are on file.
    pub fn release_inheritors_of(&mut self, job: JobId) {
        let Some(record) = self.records.get(&job) else { return };
        let everywhere: CpuSet = record.affinity.iter().copied().collect();
        if let Placement::Threads { threads } = record.placement.clone() {
            self.release_inheritors(job, &threads, &everywhere);
        }
    }

    /// What single members have started is no member: it gets back what it would have had.
    fn release_inheritors(&mut self, job: JobId, singles: &[Single], everywhere: &CpuSet) {
        let pins = self.pins.get(&job).cloned().unwrap_or_default();
        let records = self.records.values().filter(|record| JobId(record.id) != job);
        let of_others = records.flat_map(|record| match &record.placement {
            Placement::Threads { threads } => threads.clone(),
            Placement::Cgroup { .. } | Placement::Tree { .. } => Vec::new(),
        });
        let all: Vec<Single> = singles.iter().copied().chain(of_others).collect();
        for single in singles {
            let own = pins.own.get(&single.tid).copied();
            let normal: Attributes = own.unwrap_or_else(|| single.normal.into());
            let is_younger = |(tid, of): &(&u32, &Thread)| {
                let is_member = singles.iter().any(|it| it.tid == **tid);
                let line = self.ancestors(of.pid);
                let is_of = |it: &Single, at: &(u32, u64)| (it.pid, it.process_started) == *at;
                let nearest = line.iter().find(|at| all.iter().any(|it| is_of(it, at)));
                // Those of another job have what that one gives them.
                !is_member
                    && self.record_of(**tid).is_none()
                    && of.started > single.since
                    && nearest.is_some_and(|at| is_of(single, at))
            };
            let tids = self.threads.iter().filter(is_younger).map(|(&tid, _)| tid);
            for tid in tids.collect::<Vec<u32>>() {
                let now = self.model.attributes[&tid];
                if let Some(had) = released_inheritor(&now, &normal) {
                    self.model.attributes.insert(tid, had);
                    // SCHED_IDLE looks as that of a filling thread does where its owner has chosen
                    // it, or where it may be the owner's since before there was this member.
                    let thread = self.threads.get_mut(&tid);
                    let thread = thread.filter(|it| {
                        let is_own = it.own == now || it.normal.contains(&now);
                        is_own && now.policy == SchedPolicy::Idle
                    });
                    thread.into_iter().for_each(|it| it.may_have(had));
                }
                let cpus = self.model.affinity[&tid].clone();
                if cpus != *everywhere && pins.has_given(&cpus) {
                    self.model.affinity.insert(tid, everywhere.clone());
                    // Where it chose exactly those of a slot, that choice is lost.
                    if let Some(thread) = self.threads.get_mut(&tid) {
                        let is_own = thread.own_cpus == cpus || thread.normal_cpus.contains(&cpus);
                        thread.normal_cpus.extend(is_own.then(|| everywhere.clone()));
                    }
                }
            }
        }
    }

    /// The guardian releases all jobs on file.
    pub fn release_all(&mut self) {
        let records: Vec<Record> = self.records.values().cloned().collect();
        records.iter().for_each(|record| self.release(record));
        self.model.groups.remove(&gang_timetable::Group::All);
    }

    /// A job that is over leaves nothing but its processes.
    pub fn clear_away(&mut self, record: &Record) {
        // What a tree has below it may be another job's.
        if !matches!(record.placement, Placement::Tree { .. }) {
            self.release(record);
        }
        let job = JobId(record.id);
        self.in_group(job).into_iter().for_each(|pid| self.leave_group(pid));
        self.records.remove(&job);
        self.pins.remove(&job);
    }

    /// A process was on its way into a job, and is there. What it has started meanwhile is not: it
    /// gets back what it would have had.
    pub fn let_strays_go(&mut self, job: JobId, first: u32, normal: Attributes, cpus: &CpuSet) {
        let pins = self.pins.get(&job).cloned().unwrap_or_default();
        let is_stray = |pid: u32| {
            let line = self.ancestors(pid);
            self.processes[&pid].group.is_none() && line.iter().any(|&(pid, _)| pid == first)
        };
        let strays: Vec<u32> = self.processes.keys().copied().filter(|&it| is_stray(it)).collect();
        let tids: Vec<u32> = strays.into_iter().flat_map(|pid| self.tids(pid)).collect();
        for tid in tids {
            let now = self.model.attributes[&tid];
            let had = released(&now, &normal);
            self.model.attributes.extend(had.map(|had| (tid, had)));
            // SCHED_IDLE or SCHED_BATCH that the first thread has of its own looks as what another
            // thread of its process has out of its slot, and that one may have started this one.
            let may_be_given = matches!(now.policy, SchedPolicy::Idle | SchedPolicy::Batch);
            let is_alike = may_be_given && now.policy == normal.policy;
            // The policy of the one that started it may have been another one then.
            let may_have = had.or(is_alike.then_some(now));
            if let (Some(may_have), Some(thread)) = (may_have, self.threads.get_mut(&tid)) {
                thread.may_have(may_have);
            }
            if pins.has_given(&self.model.affinity[&tid]) {
                self.model.affinity.insert(tid, cpus.clone());
                // Where it chose them, that choice is lost.
                self.threads.get_mut(&tid).into_iter().for_each(|it| {
                    it.own_cpus = cpus.clone();
                });
            }
        }
    }

    /// Whether a process that leaves a job is there yet.
    pub fn is_left(&self, job: JobId, pid: u32) -> bool {
        let record = self.records.get(&job);
        record.is_some_and(|record| self.is_on_file(record, pid, pid))
    }

    /// The same of a single thread.
    pub fn is_single_left(&self, job: JobId, tid: u32) -> bool {
        self.record_of(tid).is_some_and(|record| record.id == job.0)
    }

    pub fn leave_group(&mut self, pid: u32) {
        self.processes.get_mut(&pid).into_iter().for_each(|process| process.group = None);
    }

    /// Whether a thread has what its owner gave it, as far as anybody can tell.
    pub fn is_its_own(&self, tid: u32) -> bool {
        let (thread, now) = (&self.threads[&tid], self.model.attributes[&tid]);
        // What its parent had of its own is lost with the nice value.
        let lost = [Attributes { nice: 0, ..thread.own }, Attributes::other(0)];
        now == thread.own
            || (thread.lost_nice && lost.contains(&now))
            || thread.normal.contains(&now)
            || thread.unread.contains(&now)
    }

    /// What threads that no job has keep of gangd; of all threads where `everybody` is released.
    pub fn check_released(&mut self, everybody: bool) {
        let mut wrong = Vec::new();
        for (tid, thread) in &self.threads {
            if !everybody && self.record_of(*tid).is_some() {
                continue;
            }
            let (now, is_own) = (self.model.attributes[tid], self.is_its_own(*tid));
            if !is_own {
                wrong.push(format!(
                    "what is released is as its owner had it: thread {tid} has {now:?}, not {:?}",
                    thread.own
                ));
            }
            let cpus = &self.model.affinity[tid];
            if *cpus != thread.own_cpus && !thread.normal_cpus.contains(cpus) {
                wrong.push(format!(
                    "what is released is as its owner had it: thread {tid} of {:?} is on {cpus}, not {}",
                    self.ancestors(thread.pid), thread.own_cpus
                ));
            }
            if self.model.stopped.contains(&thread.pid) {
                wrong.push(format!("nobody stays stopped: process {}", thread.pid));
            }
        }
        wrong.into_iter().for_each(|what| self.violation(what));
    }

    /// No thread is raised whose job is not on file, whoever has raised it.
    pub fn check_raised(&mut self) {
        let is_stray = |tid: &&u32| {
            let now = &self.model.attributes[*tid];
            is_raised(now) && now.policy != self.threads[*tid].own.policy
        };
        let strays: Vec<u32> = self.threads.keys().filter(is_stray).copied().collect();
        for tid in strays {
            if self.record_of(tid).is_none() {
                self.violation(format!("a thread that is raised is of a job on file: {tid}"));
            }
        }
    }

    /// No thread is in a slot.
    pub fn check_lowered(&mut self) {
        let mut raised = self.model.attributes.iter().filter(|(tid, now)| {
            let own = self.threads.get(tid).map(|thread| thread.own.policy);
            is_raised(now) && own != Some(now.policy)
        });
        if let Some(tid) = raised.next().map(|(&tid, _)| tid) {
            self.violation(format!("the deadline lowers every gang: thread {tid} is raised"));
        }
    }

    /// The threads of a job run on the CPUs of its slot, or where they ran without it.
    pub fn check_cpus(
        &self,
        members: &Members,
        slot: Option<&CpuSet>,
        online: &CpuSet,
    ) -> Result<(), String> {
        for thread in members.threads().iter().filter(|it| !it.is_exempt() && !it.user_pinned) {
            let (of, cpus) = (&self.threads[&thread.tid], &self.model.affinity[&thread.tid]);
            if of.choice != Choice::Known {
                continue;
            }
            let is_own = *cpus == of.own_cpus || of.normal_cpus.contains(cpus);
            let is_right = match slot {
                Some(slot) => cpus == slot || (is_own && slot == online),
                None => is_own,
            };
            if !is_right {
                let tid = thread.tid;
                return Err(format!("thread {tid} is on {cpus}, and its slot is {slot:?}"));
            }
        }
        Ok(())
    }

    /// Each thread that chose its CPUs has some of them in the slot of its gang.
    pub fn check_places(
        &self,
        living: &Members,
        members: &Members,
        slot: &CpuSet,
    ) -> Result<(), String> {
        for thread in living.threads().iter().filter(|it| !it.is_exempt()) {
            let (tid, of) = (thread.tid, &self.threads[&thread.tid]);
            let Some(own) = members.own_cpus(tid).filter(|_| of.choice == Choice::Known) else {
                continue;
            };
            if own.is_disjoint(slot) {
                return Err(format!("thread {tid} may use {own}, and the slot is {slot}"));
            }
            let has = &self.model.affinity[&tid];
            if has != own {
                return Err(format!("thread {tid} chose {own}, and has {has}"));
            }
        }
        Ok(())
    }

    /// Threads that are left alone run where they like.
    pub fn check_left_alone(&self, living: &Members) -> Result<(), String> {
        for thread in living.threads().iter().filter(|it| it.is_exempt() && !it.user_pinned) {
            let (tid, of) = (thread.tid, &self.threads[&thread.tid]);
            let has = &self.model.affinity[&tid];
            let is_own = *has == of.own_cpus || of.normal_cpus.contains(has);
            if of.choice == Choice::Known && !is_own {
                return Err(format!(
                    "thread {tid} is left alone on {}, and has {has}",
                    of.own_cpus
                ));
            }
        }
        Ok(())
    }

    /// The members that live, of which it is known how they were, as they are to stand.
    pub fn living(&self, job: JobId, members: &Members) -> Members {
        let lives = |thread: &&gang_timetable::Thread| {
            // Another one may have its number by now.
            let is_of_job = self.record_of(thread.tid).map(|it| it.id) == Some(job.0);
            let own = self.threads.get(&thread.tid).filter(|_| is_of_job);
            own.is_some_and(|own| {
                // One that came unseen before its group was frozen stands still as it was.
                let stands_still = self.model.attributes.get(&thread.tid) == Some(&own.own)
                    && self.model.group(gang_timetable::Group::Job(job)).frozen == Some(true);
                !own.lost_nice
                    && !own.is_unread
                    && !own.is_unswitched
                    && !stands_still
                    && (own.normal.is_empty() || own.own == thread.original)
            })
        };
        let threads = members.threads().iter().filter(lives).copied().collect();
        let mut living =
            Members::new(members.controls, members.default, members.everywhere.clone());
        // Here, too, another one may have its number by now.
        let lives =
            |pid: &&u32| self.record_of_process(**pid, **pid).map(|it| it.id) == Some(job.0);
        living.processes = members.processes.iter().filter(lives).copied().collect();
        living.with_threads(threads)
    }

    /// A process below those of a job without a cgroup that runs, also one that nobody has read.
    pub fn find_running(
        &self,
        job: JobId,
        home: &Home,
        roster: &Roster,
        is_elsewhere: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        if !matches!(home.placement, Placement::Tree { .. }) {
            return None;
        }
        let is_out = |pid: &u32| home.leaving.contains(pid) || roster.removed.contains(pid);
        let is_of_job = |&pid: &u32| {
            self.record_of_process(pid, pid).map(|record| record.id) == Some(job.0)
                && !self.ancestors(pid).iter().any(|(pid, _)| is_out(pid) || is_elsewhere(*pid))
        };
        let mut running = self.processes.keys().filter(|pid| !self.model.stopped.contains(pid));
        running.find(|pid| is_of_job(pid)).copied()
    }

    /// A thread that is a member by itself, as it is now.
    pub fn single(&mut self, tid: u32) -> Option<Single> {
        let pid = self.threads.get(&tid)?.pid;
        let process_started = self.processes.get(&pid)?.started;
        let mut normal = *self.model.attributes.get(&tid)?;
        if is_raised(&normal) {
            normal = Attributes::other(normal.nice);
        }
        self.ticks += 1;
        let normal = normal.into();
        Some(Single { tid, started: 0, pid, process_started, since: self.ticks, normal })
    }
}

/// So many threads, and one more than are switched.
pub const CROWD: usize = THREADS_MAX + 1;
