//! The daemon reads the threads of its jobs, and looks at the machine.

use std::collections::{BTreeMap, BTreeSet};

use gang_conductor::{Counted, Eligibility, Followed, Looked, Now, strays::LOOK_NS};
use gang_schedule::JobId;
use gang_timetable::{Action, Group, Runnable, record::Placement};

use super::{Daemon, Lane, MS, USERS};
use crate::machine::Machine;

/// The CPU time that a look at one job for strays takes: not all jobs have their turn in one look.
const LOOK_AT_JOB_NS: u64 = 40_000;

impl Daemon {
    pub(super) fn followed(&self) -> Followed {
        let in_force = |lane: &Lane| lane.last.generation == lane.line.current().generation;
        Followed {
            is_behind: !self.lanes.iter().all(in_force),
            missed: self.lanes.iter().map(|lane| lane.missed).sum(),
        }
    }

    pub(super) fn read(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let came = self.refresh(machine, job);
        if came {
            self.core.found_members(job);
        }
        came
    }

    pub(super) fn refresh(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let others = self.rosters.iter().filter(|(other, _)| **other != job);
        let others = others.flat_map(|(_, of)| of.tree.iter().copied());
        // Those that leave are on file of their old job until they have left.
        let homes = self.core.jobs().values().filter(|other| other.id != job);
        let homes = homes.filter_map(|other| other.home.as_ref());
        let others = others.chain(homes.flat_map(|home| home.leaving.iter().copied())).collect();
        let Some(reading) = self.core.reading(job) else { return false };
        let is_tree = matches!(reading.placement, Placement::Tree { .. });
        let roster = self.rosters.entry(job).or_default();
        roster.others = others;
        let came = machine.read(job, reading, roster);
        if is_tree {
            let started = |pid: &u32| Some((*pid, machine.processes.get(pid)?.started));
            let tree = roster.tree.iter().filter_map(started).collect();
            // At once, which the daemon does now and then.
            if let Ok(Some(record)) = self.core.set_tree(job, tree) {
                machine.records.insert(job, record);
            }
        }
        self.core.saw_members_of(job);
        self.take_strays(machine, job);
        came
    }

    /// Threads left a job by themselves.
    fn take_strays(&mut self, machine: &mut Machine, job: JobId) {
        let Some(roster) = self.rosters.get_mut(&job).filter(|it| !it.found.is_empty()) else {
            return;
        };
        let Some(strays) = self.core.lost(job, roster.found.clone()) else { return };
        let found = std::mem::take(&mut roster.found);
        for gone in found.iter().filter(|gone| !strays.contains_key(&gone.tid)) {
            self.stray_is_back(machine, job, gone.tid);
        }
        self.strays.extend(strays.into_values());
    }

    fn stray_is_back(&mut self, machine: &mut Machine, job: JobId, tid: u32) {
        if let Some(roster) = self.rosters.get_mut(&job) {
            roster.strays.remove(&tid);
        }
        self.file_members(machine, job);
    }

    pub(super) fn process_has_left(&mut self, machine: &mut Machine, job: JobId, pid: u32) {
        self.rosters.entry(job).or_default().leaving.remove(&pid);
        self.file_members(machine, job);
    }

    fn file_members(&self, machine: &mut Machine, job: JobId) {
        let home = self.core.jobs().get(&job).and_then(|job| job.home.as_ref());
        if let (Some(home), Some(roster)) = (home, self.rosters.get(&job)) {
            if let Placement::Cgroup { .. } = home.placement {
                machine.file_members(job, &home.members, roster);
            }
        }
    }

    /// Where it is time to look, reads the jobs again that threads left by themselves.
    /// Returns those with threads that stand otherwise because of that.
    pub(super) fn look_for_strays(&mut self, machine: &mut Machine, now: Now) -> BTreeSet<JobId> {
        let mut jobs = self.core.strays_due(now);
        if jobs.is_empty() {
            return BTreeSet::new();
        }
        let count = jobs.len();
        jobs.truncate(LOOK_NS.div_ceil(LOOK_AT_JOB_NS) as usize);
        let (has_stopped, spent_ns) = (jobs.len() < count, LOOK_AT_JOB_NS * jobs.len() as u64);
        let is_behind = self.followed().is_behind;
        let is_astray = |&job: &JobId| {
            let of = &self.core.jobs()[&job];
            let Some(members) = of.home.as_ref().map(|home| &home.members) else { return false };
            let became_other = machine.have_other_owner(members, of.owner_uid);
            let mut tids = members.threads().iter().map(|it| it.tid);
            let is_astray = |tid| machine.is_outside(job, tid) || machine.has_moved(members, tid);
            let is_astray = !became_other.is_empty() || tids.any(is_astray);
            self.rosters.entry(job).or_default().became_other = became_other;
            (self.core.is_just_released(job) || is_astray) && self.read_planned(machine, job)
        };
        let astray = jobs.iter().copied().filter(is_astray).collect();
        let looked = Looked { jobs, has_stopped, astray, spent_ns, is_behind };
        self.core.looked_for_strays(now, &looked);
        looked.astray
    }

    /// Gives strays what they had, until no switcher follows a timetable that has them.
    pub(super) fn lower_strays(&mut self, machine: &mut Machine) {
        let in_force = self.lanes.iter().map(|lane| lane.line.current().generation).min();
        for (gone_from, record) in std::mem::take(&mut self.remains) {
            machine.release(&record);
            if in_force < Some(gone_from) {
                self.remains.push((gone_from, record));
            } else {
                machine.clear_away(&record);
            }
        }
        for stray in std::mem::take(&mut self.strays) {
            let is_out = in_force >= Some(stray.gone_from);
            // Threads that a job that is over left behind are released with it.
            let is_stray = self.core.jobs().contains_key(&stray.job)
                && self.core.is_of_no_job(stray.tid)
                && machine.is_outside(stray.job, stray.tid);
            if is_stray {
                // CPUs that it was not given it has by its owner's choice.
                let has_pinned = machine.has_given_cpus(stray.job, stray.tid);
                let is_due = |it: &&Action| has_pinned || !matches!(it, Action::Affinity { .. });
                stray.actions.iter().filter(is_due).for_each(|action| machine.perform(action));
                let is_of_job = |tid| !self.core.is_of_no_job(tid);
                let (normal, everywhere) = (stray.normal, &stray.everywhere);
                machine.release_started(stray.job, stray.tid, normal, everywhere, is_of_job);
            }
            if is_stray && !is_out {
                self.strays.push(stray);
            } else {
                self.stray_is_back(machine, stray.job, stray.tid);
            }
        }
    }

    /// An edge for which some switcher has no time, of those after the first one, which states what
    /// was there before. Gangs that take no turns any more leave their last slots as they can.
    pub(super) fn overfull_edge(&self) -> Option<String> {
        if self.core.is_crowding() {
            return None;
        }
        let takes_turns = |job: &JobId| {
            let job = self.core.jobs().get(job);
            job.is_some_and(|job| self.core.eligibility(job) == Eligibility::TakesTurns)
        };
        let jobs = self.core.jobs().values().filter(|job| takes_turns(&job.id));
        let members = jobs.filter_map(|job| job.home.as_ref()).map(|home| &home.members);
        let tids: BTreeSet<u32> =
            members.flat_map(|members| members.threads()).map(|thread| thread.tid).collect();
        let counts = |action: &&Action| match action {
            Action::Attributes { tid, .. } => tids.contains(tid),
            Action::Signal { job, .. } | Action::Control { group: Group::Job(job), .. } => {
                takes_turns(job)
            }
            Action::Control { group: Group::All, .. }
            | Action::Affinity { .. }
            | Action::Page { .. } => false,
        };
        let most = self.core.actions_max();
        self.lanes.iter().enumerate().find_map(|(at, lane)| {
            let later = lane.last.edges.iter().filter(|edge| edge.at_ns > lane.last.from_ns);
            later.into_iter().find_map(|edge| {
                let lists = [&edge.lower, &edge.raise, &edge.notify_before, &edge.notify_after];
                let parts = lists.into_iter().flatten().map(|&part| &lane.last.parts[part]);
                let count = parts.flatten().filter(counts).count();
                let what = || format!("switcher {at} has {count} actions of {most}");
                (count > most).then(what)
            })
        })
    }

    pub(super) fn read_planned(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let came = self.refresh(machine, job);
        self.core.was_read(job);
        came
    }

    pub(super) fn look(&mut self, now: Now) {
        self.look_at_ns = now.monotonic_ns + 100 * MS;
        let mut of_jobs = Vec::new();
        for job in self.core.to_count() {
            let threads = self.core.jobs()[&job]
                .home
                .as_ref()
                .map_or(0, |home| home.members.threads().len() as u32);
            of_jobs.push((job, Runnable::exactly(threads.min(2))));
        }
        let all: u32 = of_jobs.iter().map(|(_, it)| it.threads).sum::<u32>() + 1 + self.load;
        self.core.count(now, &Counted { all, of_daemon: 1, of_jobs });
        if self.core.asks_for_users() {
            // Some of them sleep, or have just come.
            let listed = (self.load + self.look_at_ns as u32 / 64 % 3) as usize;
            let mut threads = BTreeMap::new();
            for uid in USERS.iter().copied().cycle().skip(1).take(listed) {
                *threads.entry(self.core.account_of(uid)).or_default() += 1;
            }
            self.core.saw_users(now, threads);
        }
        self.core.saw_short_tasks(Some(now.monotonic_ns / (7 * MS)));
    }
}
