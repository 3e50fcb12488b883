//! Requests of clients, up to where they wait.

use std::collections::BTreeMap;

use gang_conductor::{
    Candidate, Conductor, Home, Regroup, Suspension,
    admission::Resources,
    life::{Cell, Filed, Moment, State, cell},
};
use gang_schedule::{CpuSet, JobId, Policy, Spec};
use gang_timetable::{
    Attributes, Backend, Seen, before_gangd,
    record::{JoinedProcess, Placement},
};

use super::{Died, JOBS_MAX, Pending, SUBORDINATE, USERS, World, has_single, nth};
use crate::{machine::Roster, script::Kind};

/// The group of the cpu controller that a gang has for itself.
pub(super) const OWN: &str = "own";

/// The same place in the group of all gangs.
pub(super) fn shared(placement: Placement) -> Placement {
    in_cpu_group(placement, None)
}

/// The same place, where the first process came from.
pub(super) fn in_place(mut placement: Placement) -> Placement {
    if let Placement::Cgroup { cpu_group, cpu_group_is_shared, .. } = &mut placement {
        (*cpu_group, *cpu_group_is_shared) = (None, false);
    }
    placement
}

/// Where a job of that policy lives: Linux alone schedules nobody in the group of all gangs.
pub(super) fn by_policy(placement: Placement, policy: Policy) -> Placement {
    match policy {
        Policy::None => in_place(placement),
        Policy::Gang => shared(placement),
    }
}

pub(super) fn has_own(placement: &Placement) -> bool {
    matches!(placement, Placement::Cgroup { cpu_group: Some(_), .. })
}

fn is_in_place(placement: &Placement) -> bool {
    let (group, is_shared) = match placement {
        Placement::Cgroup { cpu_group, cpu_group_is_shared, .. } => {
            (cpu_group, cpu_group_is_shared)
        }
        Placement::Tree { .. } | Placement::Threads { .. } => return false,
    };
    group.is_none() && !is_shared
}

/// The same place in a group of the cpu controller.
pub(super) fn in_cpu_group(mut placement: Placement, group: Option<&str>) -> Placement {
    if let Placement::Cgroup { cpu_group, cpu_group_is_shared, .. } = &mut placement {
        (*cpu_group, *cpu_group_is_shared) = (group.map(Into::into), group.is_none());
    }
    placement
}

impl World {
    /// A request of a client, or its next step.
    pub(super) fn request(&mut self, kind: Kind, a: u16, b: u16) -> Result<(), Died> {
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let job = nth(daemon.core.jobs().keys(), a);
        match (kind, job) {
            (Kind::Register, _) => {
                let cpus = u32::from(b % 5) + 1;
                let policy = if b % 11 == 0 { Policy::None } else { Policy::Gang };
                let candidate = Candidate {
                    name: "job".into(),
                    owner_uid: USERS[usize::from(a) % USERS.len()],
                    spec: Spec { policy, min_cpus: cpus.min(2), ..Spec::new(cpus) },
                    resources: Resources::default(),
                    signals: b % 13 == 0,
                    auto: b % 17 == 0,
                };
                let uid = candidate.owner_uid;
                *self.cells.entry((State::Absent, Moment::Register)).or_default() += 1;
                if let Ok(JobId(job)) = daemon.core.register(now, candidate) {
                    self.users.insert(daemon.core.account_of(uid));
                    // Parts take no numbers.
                    if job != self.next_job {
                        let what = format!("local jobs have the next number: {job}");
                        self.machine.borrow_mut().violations.push(what);
                    }
                    self.next_job = self.next_job.max(job + 1);
                }
            }
            (Kind::Attach, Some(job)) => self.attach(job, b)?,
            (Kind::Arrive, _) => self.go_on(a)?,
            (Kind::Join, Some(job)) => self.join(job, b)?,
            (Kind::Follow, Some(job)) => self.follow(job, b)?,
            (Kind::AddThread, Some(job)) => self.add_thread(job, b)?,
            (Kind::Detach, Some(job)) => self.detach(job, b),
            (Kind::DetachThread, Some(job)) => self.detach_thread(job, b),
            (Kind::Suspend | Kind::Resume, Some(job)) => {
                let suspended = kind == Kind::Suspend;
                self.hit(job, if suspended { Moment::Suspend } else { Moment::Resume });
                // By its owner, or by an administrator.
                let with_foreign = b % 8 == 7;
                self.file(job, |core| {
                    let before = core.job(job).map(Suspension::of)?;
                    core.suspend(now, job, before.after(suspended, with_foreign))
                })?;
                let stops_all = suspended && with_foreign;
                self.machine.borrow_mut().stopped_whole.extend(stops_all.then_some(job));
            }
            (Kind::Signals, Some(job)) => {
                self.hit(job, Moment::SetSignals);
                self.file(job, |core| core.set_signals(job, b % 2 == 0))?;
            }
            (Kind::Change, Some(job)) => {
                self.hit(job, Moment::Change);
                self.file(job, |core| {
                    core.change(job, |spec, _| {
                        spec.cpus = u32::from(b % 6) + 1;
                        spec.min_cpus = spec.min_cpus.min(spec.cpus);
                        spec.weight = u32::from(b % 400) + 1;
                    })
                })?;
            }
            // The group in which it was called is limited, or is not any more.
            (Kind::Confine, Some(job)) if b % 4 == 1 => {
                let core = &mut self.daemon.as_mut().ok_or(Died)?.core;
                match core.jobs()[&job].home.as_ref().map(|home| &home.placement) {
                    Some(at) if is_in_place(at) => {
                        core.move_for_limits(job, Some(Regroup::FromCaller));
                    }
                    Some(Placement::Cgroup { .. }) => {
                        core.move_for_limits(job, Some(Regroup::ToCaller));
                    }
                    _ => {}
                }
            }
            (Kind::Confine, Some(job)) => {
                self.hit(job, Moment::Confine);
                self.file(job, |core| core.confine(job, None, b % 2 == 0))?;
            }
            (Kind::Limit, Some(job)) => self.limit(job, b),
            (Kind::Page, Some(job)) => {
                self.hit(job, Moment::OpenPage);
                self.daemon.as_mut().ok_or(Died)?.open_page(job);
            }
            (Kind::Policy, Some(job)) => self.change_policy(job, b)?,
            (Kind::End, Some(job)) => self.end_unused(job),
            (Kind::Flood, _) => self.flood(a, b)?,
            (Kind::EnterPart, _) => self.enter_part(a, b)?,
            (Kind::GiveEntries, _) => self.give_entries(a, b),
            (Kind::EndEntries, _) => self.end_entries(),
            _ => {}
        }
        self.carry_out();
        self.ring();
        Ok(())
    }

    /// The group in which a job was called has another quota of CPU time, or none, which the daemon
    /// reads.
    fn limit(&mut self, job: JobId, b: u16) {
        let quotas = [None, Some(100), Some(500), Some(1500), Some(3000)];
        let quota = quotas[usize::from(b) % quotas.len()];
        let mut machine = self.machine.borrow_mut();
        machine.limit(job, quota, self.now.monotonic_ns);
        let Some(daemon) = &mut self.daemon else { return };
        for job in daemon.core.jobs().keys().copied().collect::<Vec<JobId>>() {
            let quota = machine.quota_of(job);
            let limited = daemon.core.limit_cpu_time(job, quota.is_some(), quota);
            if limited.is_err() {
                machine.violations.push(format!("the quota of job {job} is read: {limited:?}"));
            }
        }
    }

    /// A hostile user asks for as many jobs as he can have, by many users of his, has processes in
    /// some, and has them stand still and go on. A user who has no job yet may have one after that.
    pub(super) fn flood(&mut self, a: u16, b: u16) -> Result<(), Died> {
        let uids = SUBORDINATE.cycle().skip(usize::from(a)).step_by(97);
        for (uid, i) in uids.zip(0..b % 48 + 1) {
            let Some(daemon) = &mut self.daemon else { return Ok(()) };
            let cpus = u32::from(b % 5) + 1;
            let candidate = Candidate {
                name: "flood".into(),
                owner_uid: uid,
                spec: Spec { weight: 1_000, ..Spec::new(cpus) },
                resources: Resources::default(),
                signals: false,
                auto: b % 3 == 0,
            };
            let Ok(job) = daemon.core.register(self.now, candidate) else { break };
            self.users.insert(daemon.core.account_of(uid));
            self.next_job = self.next_job.max(job.0 + 1);
            if i % 3 == 0 {
                self.machine.borrow_mut().spawn(uid, 0, None);
                self.attach(job, b.wrapping_add(i))?;
            }
        }
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let user = daemon.core.account_of(*SUBORDINATE.start());
        let his = daemon.core.jobs().values().filter(|job| job.spec.user == user);
        let (now, his) = (self.now, his.map(|job| job.id).collect::<Vec<JobId>>());
        for (at, job) in his.into_iter().enumerate() {
            let how = [Suspension::Own, Suspension::None][(at + usize::from(a)) % 2];
            self.file(job, |core| core.suspend(now, job, how))?;
            if at % 4 == 3 && b % 2 == 0 {
                self.end_unused(job);
            }
        }
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        // Root may have them all. The registry says how many parts there are.
        let unlimited = daemon.core.jobs().values();
        let unlimited = unlimited.filter(|job| job.owner_uid == 0 || job.nonce.is_some()).count();
        for uid in USERS.into_iter().filter(|_| unlimited < JOBS_MAX / 4) {
            let user = daemon.core.account_of(uid);
            let spec = Spec::new(1);
            let (name, resources) = ("first".into(), Resources::default());
            let first =
                Candidate { name, owner_uid: uid, spec, resources, signals: false, auto: false };
            if daemon.core.jobs().values().any(|job| job.spec.user == user) {
                continue;
            }
            match daemon.core.register(now, first) {
                Ok(job) => {
                    self.next_job = self.next_job.max(job.0 + 1);
                    self.users.insert(user);
                }
                Err(error) => self.machine.borrow_mut().violations.push(format!(
                    "nobody keeps others out: user {uid} has no job, and may have none: {error:?}"
                )),
            }
        }
        Ok(())
    }

    /// A change of the conductor's that is on file afterwards.
    pub(super) fn file(
        &mut self,
        job: JobId,
        change: impl FnOnce(&mut Conductor) -> Filed,
    ) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let Ok(record) = change(&mut daemon.core) else { return Ok(()) };
        self.carry_out();
        self.effect()?;
        if let Some(record) = record {
            self.machine.borrow_mut().records.insert(job, record);
        }
        Ok(())
    }

    pub(super) fn placement(&self, pid: u32) -> Placement {
        match self.backend {
            Backend::Signal => {
                let started = self.machine.borrow().processes[&pid].started;
                Placement::Tree { processes: vec![(pid, started)] }
            }
            _ => Placement::Cgroup {
                group: "group".into(),
                origin: "origin".into(),
                cpu_group: None,
                cpu_origin: None,
                cpu_group_is_shared: true,
                adopted: false,
                memory: None,
                other: None,
            },
        }
    }

    /// A process that no job has, of the owner of a job.
    pub(super) fn free_process(&self, job: JobId, b: u16) -> Option<u32> {
        let daemon = self.daemon.as_ref()?;
        let owner = daemon.core.jobs().get(&job)?.owner_uid;
        let machine = self.machine.borrow();
        let is_taken = |pid: u32| {
            machine.processes[&pid].group.is_some()
                || machine.has_strays(pid)
                || daemon.rosters.values().any(|roster| {
                    roster.tree.contains(&pid)
                        || roster.singles.iter().any(|it| it.pid == pid)
                        || roster.expected.contains(&pid)
                })
                || machine.records.values().any(|it| it.coming.is_some_and(|it| it.0 == pid))
                || machine.records.values().any(|it| has_single(it, pid))
                || daemon.pending.iter().any(|it| match it {
                    Pending::Arriving { pid: other, .. } | Pending::Leaving { pid: other, .. } => {
                        *other == pid
                    }
                    Pending::ThreadLeaving { .. }
                    | Pending::Moving { .. }
                    | Pending::Regrouping { .. } => false,
                })
        };
        // A job without a cgroup has the children of its processes as well.
        let ancestors_are_free = |pid: u32| {
            let mut next = machine.processes.get(&pid).map(|of| of.parent);
            while let Some(at) = next.filter(|at| machine.processes.contains_key(at)) {
                if is_taken(at) {
                    return false;
                }
                next = machine.processes.get(&at).map(|of| of.parent);
            }
            true
        };
        let free = machine.processes.iter().filter(|(pid, of)| {
            // One that a single member has started may have what that one had in its slot.
            let is_its_own = machine.tids(**pid).iter().all(|tid| machine.is_its_own(*tid));
            let is_free = !is_taken(**pid) && ancestors_are_free(**pid) && is_its_own;
            (of.uid == owner || owner == 0) && is_free
        });
        let free: Vec<u32> = free.map(|(&pid, _)| pid).collect();
        nth(free.iter(), b)
    }

    /// The same, of one that is going to come.
    fn coming_process(&self, job: JobId, b: u16) -> Option<u32> {
        let pid = self.free_process(job, b)?;
        self.machine.borrow_mut().know_choices(pid);
        Some(pid)
    }

    pub(super) fn attach(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(pid) = self.coming_process(job, b) else { return Ok(()) };
        // The file does not tell the children that one had before from those of its way.
        if self.machine.borrow().processes.values().any(|child| child.parent == pid) {
            return Ok(());
        }
        let Some(daemon) = &self.daemon else { return Ok(()) };
        // One that comes while the first one is on its way is a further one.
        if daemon.core.jobs()[&job].home.is_some() {
            return self.follow(job, b);
        }
        let placement = by_policy(self.placement(pid), daemon.core.jobs()[&job].spec.policy);
        let (normal, affinity, started) = {
            let machine = self.machine.borrow();
            let normal = machine.model.attributes[&pid];
            let affinity: Vec<u32> = machine.model.affinity[&pid].iter().collect();
            (normal, affinity, machine.processes[&pid].started)
        };
        let quota = self.machine.borrow().quota_of(job);
        let members = self.members(quota, normal, &affinity, &placement);
        let mut home = Home::new(placement, members, normal, affinity);
        home.coming = Some((pid, started));
        let record = self.daemon.as_ref().map(|it| it.core.jobs()[&job].record_at(&home));
        self.effect()?;
        let expected_own = self.expect_own(job, pid, normal);
        self.effect()?;
        self.machine.borrow_mut().records.extend(record.map(|record| (job, record)));
        self.effect()?;
        self.machine.borrow_mut().begin_pins(job);
        self.hit(job, Moment::Attach);
        let now = self.now;
        let tids = self.machine.borrow().tids(pid);
        let is_tree = self.backend == Backend::Signal;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if daemon.core.attach(now, job, home, (pid, started)).is_ok() {
            let tree = if is_tree { vec![pid] } else { Vec::new() };
            let expected = if is_tree { Vec::new() } else { tids };
            daemon
                .rosters
                .insert(job, Roster { expected, expected_own, tree, ..Roster::default() });
            daemon.read(&mut self.machine.borrow_mut(), job);
            daemon.pending.push(Pending::Arriving { job, pid });
        }
        Ok(())
    }

    /// Threads or processes that are there become the members of a job.
    pub(super) fn join(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(pid) = self.coming_process(job, b) else { return Ok(()) };
        let single = self.machine.borrow_mut().single(pid);
        let Some(single) = single.filter(|_| self.backend == Backend::Rt && self.config.fill)
        else {
            return Ok(());
        };
        let affinity: Vec<u32> = self.machine.borrow().model.affinity[&pid].iter().collect();
        let placement = Placement::Threads { threads: vec![single] };
        let normal = single.normal.into();
        let quota = self.machine.borrow().quota_of(job);
        let members = self.members(quota, normal, &affinity, &placement);
        let home = Home::new(placement, members, normal, affinity);
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let is_first = daemon.core.jobs()[&job].home.is_none();
        if is_first {
            let record = daemon.core.jobs()[&job].record_at(&home);
            self.effect()?;
            self.machine.borrow_mut().records.insert(job, record);
            self.effect()?;
            self.machine.borrow_mut().pins.remove(&job);
        }
        self.hit(job, Moment::Join);
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let joined = daemon.core.join(now, job, home);
        if joined.is_ok() && is_first {
            let singles = vec![single];
            daemon.rosters.insert(job, Roster { singles, ..Roster::default() });
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        Ok(())
    }

    pub(super) fn add_thread(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(pid) = self.coming_process(job, b) else { return Ok(()) };
        let single = self.machine.borrow_mut().single(pid);
        let (Some(single), Some(daemon)) = (single, &self.daemon) else { return Ok(()) };
        let record = daemon.core.with_thread(job, single);
        let cell = cell(State::of(&daemon.core.jobs()[&job]), Moment::AddThread);
        if let Cell::Refused(why) = cell {
            // Nothing is on file of a thread that does not come.
            self.hit(job, Moment::AddThread);
            if record.is_ok() {
                let what = format!("job {job} takes no thread: {why}");
                self.machine.borrow_mut().violations.push(what);
            }
        }
        let Ok(Some(record)) = record else { return Ok(()) };
        self.effect()?;
        let cpus = self.machine.borrow().model.affinity[&single.tid].clone();
        let has_own_cpus = !record.affinity.iter().copied().eq(cpus.iter());
        self.machine.borrow_mut().records.insert(job, record);
        self.hit(job, Moment::AddThread);
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if daemon.core.add_thread(job, single).is_ok() {
            let own = has_own_cpus.then_some(single.tid);
            self.machine.borrow_mut().expect_user_pinned(job, own.into_iter());
            daemon.rosters.entry(job).or_default().singles.push(single);
            let now = single.normal.into();
            let seen = Seen {
                tid: single.tid,
                now,
                cpus,
                were_given: false,
                original: Some(now),
                started_by: None,
            };
            let _ = daemon.core.members_came(job, &[seen]);
        }
        Ok(())
    }

    /// A further process comes.
    pub(super) fn follow(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(pid) = self.coming_process(job, b) else { return Ok(()) };
        let Some(home) = self.daemon.as_ref().and_then(|it| it.core.jobs()[&job].home.as_ref())
        else {
            return Ok(());
        };
        let (normal, started) = (home.normal, self.machine.borrow().processes[&pid].started);
        let is_tree = match home.placement {
            Placement::Threads { .. } => return Ok(()),
            Placement::Tree { .. } => true,
            Placement::Cgroup { .. } => false,
        };
        let everywhere = home.members.everywhere.clone();
        // Numbers of threads that have ended may be those of this process.
        if let Some(daemon) = &mut self.daemon {
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        let before = self.unlike(pid, normal, &everywhere);
        if is_tree {
            self.expect_own(job, pid, normal);
            self.effect()?;
            self.hit(job, Moment::Follow);
            self.file(job, |core| core.follow_in_tree(job, (pid, started)))?;
            let Some(daemon) = &mut self.daemon else { return Ok(()) };
            let roster = daemon.rosters.entry(job).or_default();
            roster.removed.remove(&pid);
            roster.tree.retain(|&other| other != pid);
            roster.tree.push(pid);
        } else {
            let members = self.machine.borrow().in_group(job).into_iter().collect();
            let joined = JoinedProcess {
                pid,
                origin: "other".into(),
                cpu_origin: None,
                memory_origin: None,
            };
            self.hit(job, Moment::Follow);
            self.file(job, |core| core.expect(job, joined, &members))?;
            self.effect()?;
            let own_cpus = before.iter().filter(|it| it.cpus != everywhere).map(|it| it.tid);
            self.machine.borrow_mut().expect_user_pinned(job, own_cpus);
            self.expect_own(job, pid, normal);
            self.effect()?;
            let mut machine = self.machine.borrow_mut();
            machine.processes.get_mut(&pid).into_iter().for_each(|it| it.group = Some(job));
        }
        self.effect()?;
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.core.members_came(job, &before);
            daemon.read(&mut self.machine.borrow_mut(), job);
            daemon.rosters.entry(job).or_default().expected_own.clear();
        }
        Ok(())
    }

    /// The threads of a process that have other attributes or CPUs than the job's first thread had.
    fn unlike(&self, pid: u32, normal: Attributes, everywhere: &CpuSet) -> Vec<Seen> {
        let machine = self.machine.borrow();
        let seen = |tid: u32| {
            let now = *machine.model.attributes.get(&tid)?;
            let cpus = machine.model.affinity.get(&tid)?.clone();
            let original = Some(before_gangd(now, normal, false));
            Some(Seen { tid, now, cpus, were_given: false, original, started_by: None })
        };
        let all = machine.tids(pid).into_iter().filter_map(seen);
        all.filter(|it| it.original != Some(normal) || it.cpus != *everywhere).collect()
    }

    /// On file: what threads that are going to come have of their own.
    fn expect_own(
        &mut self,
        job: JobId,
        pid: u32,
        normal: Attributes,
    ) -> BTreeMap<u32, Attributes> {
        let machine = self.machine.borrow();
        let own = |tid| {
            let now = *machine.model.attributes.get(&tid)?;
            Some((tid, before_gangd(now, normal, false)))
        };
        let own: BTreeMap<u32, Attributes> =
            machine.tids(pid).into_iter().filter_map(own).collect();
        drop(machine);
        if let Some(of) = self.daemon.as_mut().and_then(|it| it.rosters.get_mut(&job)) {
            of.expected_own.extend(&own);
        }
        self.machine.borrow_mut().expect_own(job, own.clone());
        own
    }

    pub(super) fn change_policy(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let policy = if b % 2 == 0 { Policy::None } else { Policy::Gang };
        let of = &daemon.core.jobs()[&job];
        let is_moving = |it: &Pending| {
            matches!(it, Pending::Moving { .. } | Pending::Regrouping { from: Some(_), .. })
        };
        if of.spec.policy == policy || daemon.pending.iter().any(is_moving) {
            return Ok(());
        }
        let Some(home) = &of.home else {
            return self.file(job, |core| core.change(job, |spec, _| spec.policy = policy));
        };
        if daemon.core.changed(job, |spec, _| spec.policy = policy).is_err() {
            return Ok(());
        }
        let from = home.placement.clone();
        let to = by_policy(from.clone(), policy);
        match policy {
            Policy::None => {
                let _ = daemon.core.change(job, |spec, _| spec.policy = policy);
            }
            Policy::Gang => {
                self.hit(job, Moment::Move);
                self.file(job, |core| core.expect_at(job, to))?;
            }
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.pending.push(Pending::Moving { job, policy, from });
        }
        Ok(())
    }
}
