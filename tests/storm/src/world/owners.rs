//! The doings of owners of processes, and what the survey sees.

use std::collections::BTreeSet;

use gang_conductor::{
    Counted, Eligibility, JobSeen, NewThreads,
    life::{Leaver, Moment, State},
};
use gang_schedule::{CpuSet, JobId, Topology};
use gang_timetable::{
    Action, Attributes, Backend, Known, Members, Runnable, SchedPolicy,
    record::{Placement, Record},
};

use super::{Daemon, MS, Pending, USERS, World, has_single, nth};
use crate::script::Kind;

/// A number is given again after that long.
const REUSED_AFTER_NS: u64 = 1_000 * MS;

/// The attributes that a thread may have by these actions although its owner has chosen none.
fn known_in(action: &Action, tid: u32) -> Option<Known> {
    match action {
        Action::Attributes { tid: of, known, .. } => (*of == tid).then_some(*known),
        _ => None,
    }
}

/// The same of a leaver's thread.
fn known_of(leaver: &Leaver, tid: u32) -> Option<Known> {
    leaver.actions.iter().find_map(|action| known_in(action, tid))
}

/// The same of all that switchers may do yet, and of orders that wait.
fn known_by_switchers(daemon: &Daemon, tid: u32) -> impl Iterator<Item = Known> {
    let timetables = daemon.lanes.iter().flat_map(|lane| [&**lane.line.current(), &*lane.last]);
    let actions = timetables.flat_map(|it| {
        it.parts.iter().flatten().chain(it.immediate.iter().map(|(_, action)| action))
    });
    actions.chain(&daemon.orders).filter_map(move |action| known_in(action, tid))
}

impl World {
    /// A process starts that has the number of one that has ended.
    pub(super) fn reuse(&mut self, a: u16, b: u16) {
        let mut machine = self.machine.borrow_mut();
        let now_ns = self.now.monotonic_ns;
        // Without a daemon nobody looks in between, however long that takes.
        let is_unseen = self.daemon.is_none();
        let is_free = |&(_, at_ns): &(u32, u64)| is_unseen || at_ns + REUSED_AFTER_NS < now_ns;
        if let Some(at) = machine.ended.iter().position(is_free) {
            let (number, _) = machine.ended.remove(at);
            let uid = USERS[usize::from(a) % USERS.len()];
            machine.spawn(uid, i32::from(b % 5), Some(number));
            // The daemon holds descriptors: it takes none for another.
            if let Some(daemon) = &mut self.daemon {
                for roster in daemon.rosters.values_mut() {
                    roster.tree.retain(|&pid| pid != number);
                    roster.removed.remove(&number);
                }
                for job in daemon.core.jobs().keys().copied().collect::<Vec<_>>() {
                    if let Some(reading) = daemon.core.reading(job) {
                        reading.members.processes.retain(|&pid| pid != number);
                    }
                }
            }
        }
    }

    /// A program starts a thread or a process, or ends a thread.
    pub(super) fn work(&mut self, kind: Kind, a: u16, b: u16) {
        let mut machine = self.machine.borrow_mut();
        let tid = nth(machine.threads.keys(), a);
        if let Some(tid) = tid.filter(|&tid| !machine.stands_still(tid)) {
            match kind {
                Kind::StartThread => machine.start_thread(tid),
                Kind::Fork => machine.fork(tid),
                _ => machine.end_thread(tid),
            }
        }
        drop(machine);
        // A switcher notices that there are new ones.
        if b % 3 > 0 && kind != Kind::EndThread {
            self.look_for_new_threads();
        }
    }

    /// A process leaves the group of its job by itself: a manager moves it, or its user.
    pub(super) fn leave(&mut self, a: u16) {
        let mut machine = self.machine.borrow_mut();
        let pending = self.daemon.iter().flat_map(|daemon| &daemon.pending);
        let is_leaving = |pid: u32| {
            let mut pending = pending.clone();
            pending.any(|it| matches!(it, Pending::Leaving { pid: of, .. } if *of == pid))
        };
        let in_groups = machine.processes.iter().filter(|(_, of)| of.group.is_some());
        // Of one that was never read nobody knows, and nobody has raised it.
        let may_go = |pid: &u32| {
            machine.threads[pid].was_read && !machine.stands_still(*pid) && !is_leaving(*pid)
        };
        let all: Vec<u32> = in_groups.map(|(&pid, _)| pid).filter(may_go).collect();
        if let Some(pid) = nth(all.iter(), a) {
            machine.stray(pid, self.now.monotonic_ns);
        }
        drop(machine);
        self.end_those_over();
    }

    /// A process ends.
    pub(super) fn exit(&mut self, a: u16) {
        let mut machine = self.machine.borrow_mut();
        // A job without a cgroup has those whose parents have ended if the daemon looked
        // before.
        let mut came = BTreeSet::new();
        if let (Backend::Signal, Some(daemon)) = (self.backend, &mut self.daemon) {
            let jobs: Vec<JobId> = daemon.rosters.keys().copied().collect();
            came.extend(jobs.into_iter().filter(|&job| daemon.read(&mut machine, job)));
        }
        // One that ends on its way into a job, or out of it by itself, or of which one thread is a
        // member, leaves children that nobody finds again.
        let leaves_strays = |pid: u32| {
            let line = machine.ancestors(pid);
            let has_left = line.iter().any(|&(pid, _)| machine.has_strays(pid));
            if has_left && machine.processes.values().any(|child| child.parent == pid) {
                return true;
            }
            let mut records = machine.records.values();
            let is_of = |it: &Record| {
                it.coming.is_some_and(|first| line.contains(&first))
                    || line.iter().any(|&(pid, _)| has_single(it, pid))
            };
            records.any(is_of) && machine.processes.values().any(|child| child.parent == pid)
        };
        let pid = nth(machine.processes.keys(), a).filter(|&pid| !leaves_strays(pid));
        if let Some(pid) = pid {
            machine.exit(pid, self.now.monotonic_ns);
        }
        drop(machine);
        // The thread that moves it into its job hears of it at once.
        let is_it = |it: &Pending| match it {
            Pending::Arriving { pid: other, .. } => Some(*other) == pid,
            _ => false,
        };
        let at = self.daemon.as_ref().and_then(|it| it.pending.iter().position(is_it));
        if let Some(at) = at {
            let _ = self.go_on(at as u16);
            self.carry_out();
        }
        self.end_those_over();
        if !came.is_empty() {
            let _ = self.conduct(NewThreads::Of(came));
        }
    }

    pub(super) fn change_cpus(&mut self, take: bool, a: u16) {
        let all = self.topology.cpus().len() as u32;
        let cpu = u32::from(a) % all;
        match take {
            true if self.offline.len() as u32 + 1 < all => drop(self.offline.insert(cpu)),
            true => return,
            false => drop(self.offline.remove(&cpu)),
        }
        let online = self.topology.cpus().iter().filter(|cpu| !self.offline.contains(&cpu.id));
        self.machine.borrow_mut().online = online.clone().map(|cpu| cpu.id).collect();
        if let (Some(daemon), Ok(topology)) =
            (&mut self.daemon, Topology::new(online.copied().collect()))
        {
            let _ = daemon.core.change_topology(topology);
        }
        self.ring();
    }

    /// An owner sets the nice value or the policy of a thread, be it in its slot or not.
    pub(super) fn choose_attributes(&mut self, kind: Kind, a: u16, b: u16) {
        let mut machine = self.machine.borrow_mut();
        let Some(tid) = nth(machine.threads.keys(), a) else { return };
        // The kernel has no call that looks before it changes: what is chosen between two calls of
        // a switcher is lost. Here the second call comes first.
        for lane in self.daemon.iter_mut().flat_map(|it| &mut it.lanes) {
            if let Some((_, raised)) = lane.gives_way.take_if(|(of, _)| *of == tid) {
                machine.raise_again(tid, raised);
            }
        }
        let before = machine.model.attributes[&tid];
        let now = if kind == Kind::SetNice {
            Attributes { nice: i32::from(b % 6) * 3 - 6, ..before }
        } else {
            // Nobody can tell a policy that gangd gives from the same one, chosen; nor SCHED_IDLE
            // of one that comes.
            let jobs = self.daemon.iter().flat_map(|daemon| daemon.core.jobs().values());
            let mut all = jobs.filter_map(|job| Some(&job.home.as_ref()?.members));
            let of = all.find(|members| members.knows(tid));
            // On its way, a job is on file where it goes.
            // One that leaves is no member any more. It gets back what it had by what was known as
            // it was asked to leave, wherever its job goes meanwhile.
            let pending = self.daemon.iter().flat_map(|daemon| &daemon.pending);
            let leaver = pending.filter_map(Pending::leaver).find_map(|it| known_of(it, tid));
            let is_idle = match (of, leaver) {
                (Some(members), _) => members.controls.in_idle_group,
                (None, Some(known)) => known.in_idle_group,
                (None, None) => {
                    self.in_idle_group && machine.has_group(tid) && !machine.is_apart(tid)
                }
            };
            let low = if is_idle { SchedPolicy::Idle } else { SchedPolicy::Batch };
            // A thread has a policy, and nothing says who gave it (sched(7)). Where its job has
            // moved, both SCHED_BATCH and SCHED_IDLE may be gangd's. So it is as long as switchers
            // follow a timetable from before that, or the one that states the job anew: that one
            // may hold until its end, although the conductor knows by then that it was carried out.
            let has_moved =
                of.map_or_else(|| leaver.is_some_and(|known| known.has_moved), Members::has_moved);
            let mut known = self.daemon.iter().flat_map(|it| known_by_switchers(it, tid));
            if has_moved || known.any(|it| it.has_moved || it.in_idle_group != is_idle) {
                return;
            }
            let policy = [SchedPolicy::Other, low, SchedPolicy::RoundRobin][usize::from(b % 3)];
            // The nice value of an oversubscribed gang in its slot stays, under a real-time policy,
            // too. Nobody without privilege takes the flag away that ends it with a fork
            // (user_check_sched_setscheduler); who has it keeps the nice value for ever.
            let is_in_oversubscribed_slot = before.reset_on_fork && !before.policy.is_realtime();
            let is_of_slot =
                is_in_oversubscribed_slot && before.nice < machine.threads[&tid].own.nice;
            if before.nice == -20 || is_of_slot {
                return;
            }
            let priority = if policy.is_realtime() { 5 } else { 0 };
            Attributes { policy, priority, reset_on_fork: false, nice: before.nice }
        };
        machine.choose(tid, now);
    }

    /// An owner changes the CPUs of what no job has.
    pub(super) fn choose_cpus(&mut self, a: u16, b: u16) {
        let mut machine = self.machine.borrow_mut();
        let Some(tid) = nth(machine.threads.keys(), a) else { return };
        let pid = machine.threads[&tid].pid;
        let is_free = machine.processes[&pid].group.is_none()
            && !machine.has_strays(pid)
            && self.daemon.as_ref().is_none_or(|daemon| {
                daemon.rosters.values().all(|roster| {
                    !roster.expected.contains(&tid)
                        && !roster.tree.contains(&pid)
                        && !roster.removed.contains(&pid)
                        && roster.singles.iter().all(|single| single.pid != pid)
                })
            })
            && machine.records.values().all(|record| {
                // Of what a process on its way has started, exactly the CPUs of a slot are taken
                // for those of the slot.
                let line = machine.ancestors(pid);
                record.coming.is_none_or(|first| !line.contains(&first))
                    && !matches!(
                        record.placement,
                        Placement::Tree { .. } | Placement::Threads { .. }
                    )
            });
        if !is_free {
            return;
        }
        let all = machine.all.clone();
        let mut cpus: CpuSet = all.iter().filter(|cpu| (b >> cpu) & 1 == 1).collect();
        if cpus.is_empty() {
            cpus = all;
        }
        machine.threads.get_mut(&tid).into_iter().for_each(|it| it.own_cpus = cpus.clone());
        machine.model.affinity.insert(tid, cpus);
    }

    /// An owner, or its own program, changes where a member of a job may run.
    pub(super) fn bind(&mut self, a: u16, b: u16) {
        let mut machine = self.machine.borrow_mut();
        let is_member = |tid: &&u32| {
            let pid = machine.threads[*tid].pid;
            let mut jobs = self.daemon.iter().flat_map(|daemon| daemon.core.jobs().values());
            jobs.any(|job| {
                job.home.as_ref().is_some_and(|home| {
                    home.coming.is_none()
                        && !home.is_of_threads()
                        && home.members.knows(**tid)
                        && !home.leaving.contains(&pid)
                })
            })
        };
        let Some(tid) = nth(machine.threads.keys().filter(is_member), a) else { return };
        let all = machine.all.iter();
        let mut cpus: CpuSet = all.filter(|cpu| (b >> (cpu % 16)) & 1 == 1).collect();
        if cpus.is_disjoint(&machine.online) {
            cpus = machine.all.clone();
        }
        machine.bind(tid, cpus);
    }

    /// The survey sees processes of a job that end as soon as they have begun, or none for long.
    pub(super) fn bustle(&mut self, a: u16, b: u16) {
        let Some(daemon) = &mut self.daemon else { return };
        let has_group = |id: &&JobId| {
            let home = daemon.core.jobs()[*id].home.as_ref();
            home.is_some_and(|it| matches!(it.placement, Placement::Cgroup { .. }))
        };
        let Some(job) = nth(daemon.core.jobs().keys().filter(has_group), a) else { return };
        let looks = if b % 3 == 0 { 50 } else { 3 };
        let mut came = false;
        for _ in 0..looks {
            let mut machine = self.machine.borrow_mut();
            let members = daemon.core.jobs()[&job].home.as_ref().map(|home| &home.members);
            let tids: Vec<u32> =
                members.into_iter().flat_map(|it| it.threads()).map(|it| it.tid).collect();
            let runs = |tid: &&u32| {
                machine.threads.contains_key(tid)
                    && !machine.stands_still(**tid)
                    && machine.processes[&machine.threads[tid].pid].group == Some(job)
            };
            let parent = nth(tids.iter().filter(runs), b).filter(|_| b % 3 > 0);
            if let Some(parent) = parent {
                let before: BTreeSet<u32> = machine.processes.keys().copied().collect();
                (0..tids.len().max(2)).for_each(|_| machine.fork(parent));
                came |= daemon.read(&mut machine, job);
                let now_ns = self.now.monotonic_ns;
                let new = machine.processes.keys().filter(|pid| !before.contains(pid));
                let new: Vec<u32> = new.copied().collect();
                new.into_iter().for_each(|pid| machine.exit(pid, now_ns));
                daemon.read(&mut machine, job);
            }
            let of_jobs = vec![(job, Runnable::exactly(1))];
            daemon.core.count(self.now, &Counted { all: 2, of_daemon: 1, of_jobs });
        }
        if came {
            let _ = self.conduct(NewThreads::Of([job].into()));
        }
        self.ring();
    }

    /// The survey sees a job.
    pub(super) fn see(&mut self, kind: Kind, a: u16) {
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return };
        let Some(job) = nth(daemon.core.jobs().keys(), a) else { return };
        if daemon.core.eligibility(&daemon.core.jobs()[&job]) == Eligibility::TooManyThreads {
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        let of = daemon.uses.entry(job).or_default();
        match kind {
            Kind::Use => *of += 5 * MS,
            Kind::Oversubscribe => {
                let cpus = daemon.core.jobs()[&job].spec.cpus;
                let of_jobs = vec![(job, Runnable::exactly(cpus + 1))];
                for _ in 0..3 {
                    let of_jobs = of_jobs.clone();
                    daemon.core.count(self.now, &Counted { all: cpus + 2, of_daemon: 1, of_jobs });
                }
                return self.ring();
            }
            _ => {}
        }
        let seen = JobSeen { id: job, cpu_time_ns: *of, waited_us: None };
        let state = State::of(&daemon.core.jobs()[&job]);
        let was_awake = daemon.core.jobs()[&job].activity.awake;
        let has_home = daemon.core.jobs()[&job].home.is_some();
        if has_home && daemon.core.looked_at(now, seen) {
            let _ = daemon.core.fall_asleep(now, job, 0);
            *self.cells.entry((state, Moment::Sleep)).or_default() += 1;
        } else if !was_awake && daemon.core.jobs()[&job].activity.awake {
            *self.cells.entry((state, Moment::Wake)).or_default() += 1;
        } else if kind == Kind::Idle {
            // Nothing says when the kernel reports a job that wakes.
            let _ = if was_awake { daemon.core.sleep(job) } else { daemon.core.wake(job) };
            let moment = if was_awake { Moment::Sleep } else { Moment::Wake };
            *self.cells.entry((state, moment)).or_default() += 1;
        }
        self.ring();
    }
}
