//! The rest of requests that wait for the switchers, and the end of jobs.

use gang_conductor::{
    Conductor, Eligibility, Job, Regroup,
    life::{Leaver, Moment},
};
use gang_schedule::{JobId, Policy};
use gang_timetable::{Action, Backend, Group, Known, Standing, before_gangd, record::Placement};

use super::{
    Died, Pending, World, nth,
    requests::{OWN, by_policy, has_own, in_cpu_group, in_place, shared},
};

impl World {
    pub(super) fn detach_thread(&mut self, job: JobId, b: u16) {
        self.hit(job, Moment::DetachThread);
        let Some(daemon) = &mut self.daemon else { return };
        let singles = daemon.rosters.get(&job).map(|of| of.singles.clone()).unwrap_or_default();
        let tid = nth(singles.iter(), b).map_or(1, |single| single.tid);
        // The number of one that has ended may be another's.
        daemon.read(&mut self.machine.borrow_mut(), job);
        if let Ok(leaver) = daemon.core.detach_thread(job, tid) {
            let roster = daemon.rosters.entry(job).or_default();
            roster.singles.retain(|it| it.tid != tid);
            roster.leaving.insert(tid);
            daemon.pending.push(Pending::ThreadLeaving { job, leaver });
        }
    }

    pub(super) fn detach(&mut self, job: JobId, b: u16) {
        let Some(daemon) = &mut self.daemon else { return };
        let Some(roster) = daemon.rosters.get(&job) else { return };
        let mut machine = self.machine.borrow_mut();
        let mut all = machine.in_group(job);
        all.extend(&roster.tree);
        let Some(pid) = nth(all.iter(), b) else { return };
        let is_known = |it: &Pending| match it {
            Pending::Arriving { pid: other, .. } | Pending::Leaving { pid: other, .. } => {
                *other == pid
            }
            Pending::ThreadLeaving { .. } | Pending::Moving { .. } | Pending::Regrouping { .. } => {
                false
            }
        };
        if daemon.pending.iter().any(is_known) || !machine.processes.contains_key(&pid) {
            return;
        }
        daemon.read(&mut machine, job);
        let tids = machine.tids(pid);
        let started = machine.processes[&pid].started;
        drop(machine);
        self.hit(job, Moment::Detach);
        let Some(daemon) = &mut self.daemon else { return };
        let mut machine = self.machine.borrow_mut();
        if let Ok(leaver) = daemon.core.detach(job, (pid, started), &tids) {
            machine.records.extend(leaver.record.clone().map(|record| (job, record)));
            let roster = daemon.rosters.entry(job).or_default();
            match self.backend {
                Backend::Signal => {
                    roster.tree.retain(|&other| other != pid);
                    roster.removed.insert(pid);
                    if let Some(reading) = daemon.core.reading(job) {
                        reading.members.processes.retain(|&other| other != pid);
                    }
                }
                _ => drop(roster.leaving.insert(pid)),
            }
            daemon.pending.push(Pending::Leaving { job, pid, leaver });
        }
    }

    /// The next step of a request that waits.
    pub(super) fn go_on(&mut self, a: u16) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if daemon.pending.is_empty() {
            return Ok(());
        }
        let at = usize::from(a) % daemon.pending.len();
        let in_force = daemon.lanes.iter().map(|lane| lane.line.current().generation).min();
        let is_gone = |leaver: &Leaver| in_force.is_none_or(|it| it >= leaver.gone_from);
        match daemon.pending.swap_remove(at) {
            Pending::Arriving { job, pid } => {
                self.effect()?;
                // Its handle says whether it is the same process.
                let home = self.daemon.as_ref().and_then(|it| it.core.jobs().get(&job));
                let first = home.and_then(|job| job.home.as_ref()?.coming);
                let now = self.machine.borrow().processes.get(&pid).map(|it| (pid, it.started));
                if first.is_none() || first != now {
                    // Others may have followed it.
                    let roster = self.daemon.as_ref().and_then(|it| it.rosters.get(&job));
                    let has_others = roster.is_some_and(|roster| {
                        let machine = self.machine.borrow();
                        let lives = |pid: &u32| machine.processes.contains_key(pid);
                        roster.tree.iter().chain(&roster.removed).any(lives)
                            || !machine.in_group(job).is_empty()
                    });
                    if !has_others {
                        self.end(job);
                        return Ok(());
                    }
                    if let Some(of) = self.daemon.as_mut().and_then(|it| it.rosters.get_mut(&job)) {
                        of.expected.clear();
                        of.expected_own.clear();
                    }
                    self.hit(job, Moment::Arrive);
                    return self.file(job, |core| core.arrive(job));
                }
                let mut machine = self.machine.borrow_mut();
                if let Some(process) = machine.processes.get_mut(&pid) {
                    process.group = Some(job).filter(|_| self.backend != Backend::Signal);
                }
                drop(machine);
                let home = self.daemon.as_ref().and_then(|it| it.core.jobs().get(&job));
                if let Some(home) = home.and_then(|job| job.home.as_ref()) {
                    let normal = home.members.default_of(pid).unwrap_or(home.normal);
                    let cpus = &home.members.everywhere;
                    if self.backend != Backend::Signal {
                        self.machine.borrow_mut().let_strays_go(job, pid, normal, cpus);
                    }
                }
                self.hit(job, Moment::Arrive);
                if let Some(of) = self.daemon.as_mut().and_then(|it| it.rosters.get_mut(&job)) {
                    of.expected.clear();
                    of.expected_own.clear();
                }
                self.file(job, |core| core.arrive(job))?;
                self.end_those_over();
            }
            Pending::Leaving { job, pid, leaver } if is_gone(&leaver) => {
                let mut machine = self.machine.borrow_mut();
                // The numbers of one that has ended may be another's.
                let is_there = machine.is_left(job, pid);
                if is_there {
                    leaver.actions.iter().for_each(|action| machine.perform(action));
                }
                // Those that the job did not know yet.
                let tids = if is_there { machine.tids(pid) } else { Vec::new() };
                for tid in tids {
                    if leaver.known.contains(&tid) {
                        continue;
                    }
                    let now = machine.model.attributes.get(&tid).copied();
                    if let (Some(now), Some(normal)) = (now, leaver.normal) {
                        let before = before_gangd(now, normal, true);
                        // Another thread of its process may have started it.
                        machine
                            .threads
                            .get_mut(&tid)
                            .into_iter()
                            .for_each(|it| it.may_have(before));
                        let known = Known { first_seen: now, ..Known::of(before) };
                        machine.perform(&Action::Attributes { tid, attributes: before, known });
                    }
                    let home = self.daemon.as_ref().and_then(|it| it.core.jobs().get(&job));
                    let home = home.and_then(|job| job.home.as_ref());
                    let pins = machine.pins.get(&job).cloned().unwrap_or_default();
                    if let Some(home) = home {
                        let cpus = machine.model.affinity.get(&tid).cloned().unwrap_or_default();
                        // CPUs that it chose may be those of a slot: then nobody can tell.
                        let is_own =
                            machine.threads.get(&tid).map(|it| &it.own_cpus) == Some(&cpus);
                        if pins.has_given(&cpus) && !is_own {
                            let cpus = home.members.everywhere.clone();
                            machine.perform(&Action::Affinity { tid, cpus });
                        }
                    }
                }
                drop(machine);
                self.effect()?;
                self.machine.borrow_mut().leave_group(pid);
                if let Some(daemon) = &mut self.daemon {
                    daemon.process_has_left(&mut self.machine.borrow_mut(), job, pid);
                }
                self.hit(job, Moment::Left);
                self.file(job, |core| core.has_left(job, pid, true))?;
                self.end_those_over();
            }
            Pending::ThreadLeaving { job, leaver } if is_gone(&leaver) => {
                // The number of one that has ended may be another's.
                let mut machine = self.machine.borrow_mut();
                if leaver.known.iter().all(|&tid| machine.is_single_left(job, tid)) {
                    leaver.actions.iter().for_each(|action| machine.perform(action));
                }
                drop(machine);
                // Threads that it has started are no members either.
                self.machine.borrow_mut().release_inheritors_of(job);
                let Some(daemon) = &mut self.daemon else { return Ok(()) };
                let roster = daemon.rosters.entry(job).or_default();
                let there = roster.singles.clone();
                for tid in leaver.known {
                    daemon.core.thread_has_left(job, tid);
                    roster.leaving.remove(&tid);
                }
                self.file(job, |core| Ok(core.set_threads(job, &there)))?;
                self.end_those_over();
            }
            Pending::Moving { job, policy, from } => self.move_over(job, policy, from)?,
            Pending::Regrouping { job, from } => self.regroup(job, from, a)?,
            // It waits on.
            waiting => daemon.pending.push(waiting),
        }
        Ok(())
    }

    /// Processes are in the groups of the other policy, once the threads of a gang have back what
    /// they had.
    pub(super) fn move_over(
        &mut self,
        job: JobId,
        policy: Policy,
        from: Placement,
    ) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let generation = daemon.core.generation();
        let is_in_force =
            daemon.lanes.iter().all(|lane| lane.line.current().generation >= generation);
        let Some(of) = daemon.core.jobs().get(&job) else { return Ok(()) };
        let Some(home) = &of.home else { return Ok(()) };
        let (before, to) = (of.spec.policy, by_policy(from.clone(), policy));
        let (normal, affinity) = (home.normal, home.affinity.clone());
        let quota = self.machine.borrow().quota_of(job);
        let [there, here] =
            [&to, &from].map(|at| self.members(quota, normal, &affinity, at).controls);
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let Some(of) = daemon.core.jobs().get(&job) else { return Ok(()) };
        // One that is suspended stands still, and stays lowered.
        let is_still = of.suspended && of.standing == Standing::Paused;
        let is_out = of.standing == Standing::Released || is_still;
        if policy == Policy::None && !(is_out && is_in_force) {
            daemon.pending.push(Pending::Moving { job, policy, from });
            return Ok(());
        }
        // A choice of an owner meanwhile is judged by what gangd gave there; and numbers of those
        // that have ended may be others'.
        daemon.read(&mut self.machine.borrow_mut(), job);
        if policy == Policy::None && !is_still {
            let Some(home) = daemon.core.jobs().get(&job).and_then(|of| of.home.as_ref()) else {
                return Ok(());
            };
            let (mut actions, in_slot) = (Vec::new(), daemon.core.jobs()[&job].in_slot);
            let (filling, released) = (Standing::Filling, Standing::Released);
            self.backend.actions(job, &home.members, filling, released, in_slot, &mut actions);
            actions.iter().for_each(|action| self.machine.borrow_mut().perform(action));
        }
        // The record says where gangs are until all processes have moved.
        if policy == Policy::None {
            self.hit(job, Moment::Move);
            self.file(job, |core| core.expect_at(job, from.clone()))?;
            self.effect()?;
        }
        self.hit(job, Moment::Moved);
        self.file(job, |core| {
            // Where CPUs have gone since it was asked for, the job stays where it was.
            let moved = core.moved(job, policy, to, there);
            moved.or_else(|_| core.moved(job, before, from, here))
        })?;
        self.leave_cpu_group(job);
        if let Some(daemon) = &mut self.daemon {
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        Ok(())
    }

    /// The weight of the own group that a job has left is of no matter any more.
    fn leave_cpu_group(&mut self, job: JobId) {
        let of = self.daemon.as_ref().and_then(|daemon| daemon.core.jobs().get(&job));
        let home = of.and_then(|of| of.home.as_ref());
        if home.is_some_and(|home| !home.members.controls.idle) {
            let mut machine = self.machine.borrow_mut();
            let left = machine.model.groups.get_mut(&Group::Job(job));
            left.into_iter().for_each(|group| (group.idle, group.weight) = (None, None));
        }
    }

    /// A gang moves to a group of the cpu controller for itself, or back. Some moves fail.
    pub(super) fn regroup(&mut self, job: JobId, from: Option<u64>, a: u16) -> Result<(), Died> {
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        // Its policy changes meanwhile.
        let is_it = |it: &Pending| matches!(it, Pending::Moving { job: of, .. } if *of == job);
        let asked = daemon.core.regroup(job).filter(|_| !daemon.pending.iter().any(is_it));
        let Some((way, placement)) = asked else { return Ok(()) };
        let Some(generation) = from else {
            let from = if has_own(&placement) {
                let _ = daemon.core.forsake_own_group(job);
                daemon.core.generation() + 1
            } else {
                daemon.core.generation()
            };
            daemon.pending.push(Pending::Regrouping { job, from: Some(from) });
            return Ok(());
        };
        let mut in_force = daemon.lanes.iter().map(|lane| lane.line.current().generation);
        if in_force.any(|it| it < generation) {
            // It waits no longer than so long.
            if a % 8 == 7 {
                let _ = daemon.core.cannot_regroup(now, job);
                return Ok(());
            }
            daemon.pending.push(Pending::Regrouping { job, from });
            return Ok(());
        }
        daemon.read(&mut self.machine.borrow_mut(), job);
        let mut actions = Vec::new();
        let of = &daemon.core.jobs()[&job];
        if has_own(&placement) {
            actions.extend(Conductor::as_others(job));
        } else if let Some(home) = &of.home {
            let (from, to) = (Standing::Filling, Standing::Released);
            self.backend.actions(job, &home.members, from, to, of.in_slot, &mut actions);
        }
        let (filed, to) = match way {
            Regroup::ToOwn => (placement.clone(), in_cpu_group(placement.clone(), Some(OWN))),
            Regroup::ToCaller => (placement.clone(), in_place(placement.clone())),
            Regroup::ToShared | Regroup::FromCaller => {
                (shared(placement.clone()), shared(placement.clone()))
            }
        };
        actions.iter().for_each(|action| self.machine.borrow_mut().perform(action));
        self.hit(job, Moment::Move);
        self.file(job, |core| core.expect_at(job, filed.with_other(Some(OWN.into()))))?;
        self.effect()?;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let Some(home) = daemon.core.jobs().get(&job).and_then(|of| of.home.as_ref()) else {
            return Ok(());
        };
        let has_failed = a % 4 == 0;
        let to = if has_failed { placement } else { to };
        let (normal, affinity) = (home.normal, home.affinity.clone());
        let quota = self.machine.borrow().quota_of(job);
        let members = self.members(quota, normal, &affinity, &to);
        self.hit(job, Moment::Moved);
        self.file(job, |core| core.moved(job, Policy::Gang, to, members.controls))?;
        self.leave_cpu_group(job);
        if let Some(daemon) = &mut self.daemon {
            if has_failed {
                let _ = daemon.core.cannot_regroup(now, job);
            }
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        Ok(())
    }

    /// Ends the jobs whose members have all ended.
    pub(super) fn end_those_over(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let machine = self.machine.borrow();
        let is_over = |(id, job): (&JobId, &Job)| {
            let (home, roster) = (job.home.as_ref()?, daemon.rosters.get(id)?);
            machine.is_over(*id, home, roster).then_some(*id)
        };
        let over: Vec<JobId> = daemon.core.jobs().iter().filter_map(is_over).collect();
        drop(machine);
        over.into_iter().for_each(|job| self.end(job));
    }

    /// A job that has slept for long leaves; its processes go on.
    pub(super) fn end_unused(&mut self, job: JobId) {
        let Some(daemon) = &self.daemon else { return };
        let of = &daemon.core.jobs()[&job];
        let is_unused = daemon.core.eligibility(of) == Eligibility::Asleep
            && of.standing == Standing::Released
            && !daemon.core.planned_gangs().contains(&job);
        let generation = daemon.core.generation();
        let is_in_force =
            daemon.lanes.iter().all(|lane| lane.line.current().generation >= generation);
        let is_busy = !daemon.pending.is_empty() || !daemon.orders.is_empty();
        if of.home.is_none() || (is_unused && is_in_force && !is_busy) {
            self.end(job);
        }
    }

    pub(super) fn end(&mut self, job: JobId) {
        self.hit(job, Moment::End);
        let Some(daemon) = &mut self.daemon else { return };
        let Some(ended) = daemon.core.end(job) else { return };
        daemon.rosters.remove(&job);
        daemon.uses.remove(&job);
        daemon.pending.retain(|it| match it {
            Pending::Arriving { job: of, .. }
            | Pending::Leaving { job: of, .. }
            | Pending::ThreadLeaving { job: of, .. }
            | Pending::Moving { job: of, .. }
            | Pending::Regrouping { job: of, .. } => *of != job,
        });
        self.carry_out();
        if self.effect().is_err() {
            return;
        }
        let Some(record) = ended.record() else { return };
        let mut machine = self.machine.borrow_mut();
        match &mut self.daemon {
            // A timetable in force would raise again what is released.
            Some(daemon) if machine.has_strays_of(&record) => {
                machine.release(&record);
                daemon.remains.push((daemon.core.generation() + 1, record));
            }
            _ => machine.clear_away(&record),
        }
    }
}
