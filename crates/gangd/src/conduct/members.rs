//! The members of jobs: what was read of threads goes to the decisions.
//!
//! Problem: a thread is in one job at most, and the numbers of threads that have ended are given to
//! others. A reading of one job depends on the members of the others.
//!
//! Approach: a job is read as a whole, without the members of others. Threads that it lost, and
//! that live on, are lowered by a thread of their own. Single threads are looked at by another one,
//! and what it saw is taken at the next reading.

use std::collections::BTreeSet;

use gang_engine::{
    bound::Bound,
    roster::CPUS_SEEN_AGAIN,
    singles::{self, Others},
};
use gang_schedule::JobId;
use gang_timetable::record::Placement;

use super::{registry::Descriptors, state::State};

impl State {
    /// Reads the threads of a job again.
    pub fn read(&mut self, id: JobId) {
        if self.refresh(id) {
            self.core.found_members(id);
        }
    }

    /// Reads the threads of a job in the next timetable; true where one came that was not known.
    pub fn refresh(&mut self, id: JobId) -> bool {
        self.separate(id);
        self.look_at_singles(id);
        let online = self.core.schedule().topology().set().clone();
        let reading = self.core.reading(id);
        let Some((it, descriptors)) = reading.zip(self.registry.jobs.get_mut(&id)) else {
            return false;
        };
        // Root's power over the processes of others is no less without gangd.
        let owner_uid = Some(it.owner_uid).filter(|&uid| uid != 0);
        let Descriptors { roster, listeners } = descriptors;
        (roster.online, roster.owner_uid) = (online, owner_uid);
        let came = roster.refresh(it.members, &self.roots.proc).unwrap_or(false);
        if it.signals {
            let own = it.members.threads().iter().filter(|thread| !thread.is_foreign);
            let threads = own.map(|thread| thread.tid);
            listeners.refresh(&self.roots.proc, threads);
            *it.listeners = listeners.pids();
        }
        self.core.saw_members_of(id);
        self.send_strays(id);
        came
    }

    /// Takes what was seen of single threads, and has those of a job looked at anew.
    fn look_at_singles(&mut self, id: JobId) {
        while let Some((of, seen)) = self.single_reader.as_mut().and_then(|it| it.take()) {
            self.saw_singles(of, seen);
        }
        let Some(of) = self.registry.jobs.get_mut(&id) else { return };
        let Some(look) = of.roster.look() else { return };
        match &mut self.single_reader {
            Some(reader) => reader.ask((id, look)),
            None => self.saw_singles(id, look.take(&self.roots.proc)),
        }
    }

    fn saw_singles(&mut self, id: JobId, mut seen: singles::Seen) {
        seen.keep(|tids| self.core.of_no_job(tids));
        let home = self.core.jobs().get(&id).and_then(|job| job.home.as_ref());
        if let Some((home, of)) = home.zip(self.registry.jobs.get_mut(&id)) {
            of.roster.looked(seen, &home.members);
        }
    }

    /// Has threads lowered that left a job by themselves.
    fn send_strays(&mut self, id: JobId) {
        let Some(of) = self.registry.jobs.get_mut(&id) else { return };
        let alive = of.roster.strays().to_vec();
        if alive.is_empty() {
            return;
        }
        let Some(strays) = self.core.lost(id, alive) else { return };
        let found = of.roster.take_strays().into_iter().map(|gone| gone.tid);
        let back: BTreeSet<u32> = found.filter(|tid| !strays.contains_key(tid)).collect();
        self.strays_are_back(id, &back);
        for stray in strays.into_values() {
            let stray = stray.bind(|action| Bound::new(action, &self.registry));
            // Where that thread has ended, the daemon ends.
            let _ = self.strays.as_ref().map(|way| way.send(stray));
        }
    }

    /// Strays have nothing of gangd's any more, or are members of a job again.
    pub fn strays_are_back(&mut self, id: JobId, tids: &BTreeSet<u32>) {
        let home = self.core.jobs().get(&id).and_then(|job| job.home.as_ref());
        let of = self.registry.jobs.get_mut(&id).filter(|_| !tids.is_empty());
        if let Some((home, of)) = home.zip(of) {
            of.roster.forget_strays(tids, &home.members);
        }
    }

    /// Of threads that left these jobs by themselves, those that no job has. Threads that a
    /// job that is over left behind are released with it.
    pub fn strays_among(&self, strays: &[(JobId, u32)]) -> BTreeSet<(JobId, u32)> {
        let of_none = self.core.of_no_job(strays.iter().map(|&(_, tid)| tid).collect());
        let is_stray =
            |(job, tid): &(JobId, u32)| self.core.jobs().contains_key(job) && of_none.contains(tid);
        strays.iter().copied().filter(is_stray).collect()
    }

    /// Of these threads, those that no job has, and that are not being lowered as strays.
    pub fn outside_of_jobs(&self, tids: Vec<u32>) -> BTreeSet<u32> {
        let mut outside = self.core.of_no_job(tids.into_iter().collect());
        for of in self.registry.jobs.values() {
            for stray in of.roster.strays_on_file() {
                outside.remove(&stray);
            }
        }
        outside
    }

    /// Whether a job has lost a thread that lives on, or one of its threads chose other CPUs, or
    /// one of its processes has another owner now.
    pub fn may_be_astray(&mut self, id: JobId) -> bool {
        let can_fill = self.backend().can_fill();
        let home = self.core.jobs().get(&id).and_then(|job| job.home.as_ref());
        let Some((home, of)) = home.zip(self.registry.jobs.get_mut(&id)) else { return false };
        let (roster, members) = (&mut of.roster, &home.members);
        let all = members.threads().len() > CPUS_SEEN_AGAIN && self.measured.leaves_row(id);
        let has_moved = can_fill && roster.may_have_moved(members, all);
        // Each of them names those that the next reading begins with.
        let has_other_owner = roster.may_be_foreign(&self.roots.proc);
        has_moved || has_other_owner || roster.has_lost(members)
    }

    /// The members of all jobs but one.
    pub fn others_of(&self, id: JobId) -> Others {
        let jobs = self.core.jobs().values().filter(|job| job.id != id);
        let homes = jobs.filter_map(|job| job.home.as_ref());
        let mut others = Others::default();
        let on_file = self.registry.on_file.iter().filter(|(other, _)| **other != id);
        let on_file = on_file.map(|(_, placement)| placement);
        for placement in homes.clone().map(|home| &home.placement).chain(on_file.clone()) {
            match placement {
                Placement::Cgroup { group, other, .. } => {
                    others.groups.extend([group].into_iter().chain(other).cloned());
                }
                Placement::Threads { threads } => others.singles.extend(threads),
                Placement::Tree { .. } => {}
            }
        }
        let of = self.registry.jobs.iter().filter(|(other, _)| **other != id);
        let trees = of.flat_map(|(_, of)| of.roster.tree().iter().map(|process| process.pid));
        // Processes that leave are on file of their old job until they have left.
        let leaving = homes.flat_map(|home| home.leaving.iter().copied());
        others.processes.extend(trees.chain(leaving));
        for placement in on_file {
            if let Placement::Tree { processes } = placement {
                others.processes.extend(processes.iter().map(|&(pid, _)| pid));
            }
        }
        others
    }

    /// A process is in one job, also where its parent is in another one without a cgroup, or has a
    /// single thread in one.
    fn separate(&mut self, id: JobId) {
        let is_concerned =
            |of: &Descriptors| of.roster.is_tree() || !of.roster.singles().is_empty();
        if !self.registry.jobs.get(&id).is_some_and(is_concerned) {
            return;
        }
        let others = self.others_of(id);
        if let Some(of) = self.registry.jobs.get_mut(&id) {
            of.roster.others = others;
        }
    }
}
