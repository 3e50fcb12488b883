//! Readings of a daemon, of the members of its jobs.

use std::collections::{BTreeMap, BTreeSet};

use gang_conductor::{Home, Reading};
use gang_schedule::JobId;
use gang_timetable::{
    Attributes, Backend, Members, Seen, Starter, is_raised,
    record::{Placement, Single},
};

use super::{Machine, Roster};

impl Machine {
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
    pub fn read(&mut self, job: JobId, of: Reading<'_>, roster: &mut Roster) -> bool {
        let Reading { owner_uid, placement, members, .. } = of;
        let mut tids: Vec<u32> = match placement {
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
                let everywhere = members.everywhere.clone();
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
        if let Placement::Tree { .. } = placement {
            members.processes.clone_from(&roster.tree);
        }
        members.admit(&mut tids, roster.beside);
        let pins = self.pins.get(&job).cloned().unwrap_or_default();
        self.note_starters(&tids, members, &pins.own);
        let singles = &roster.singles;
        for &tid in tids.iter().filter(|&&tid| !members.knows(tid)) {
            let is_on_file =
                pins.own.contains_key(&tid) || singles.iter().any(|single| single.tid == tid);
            let is_reset = self.model.attributes.get(&tid) == Some(&Attributes::other(0));
            let thread = self.threads.get_mut(&tid).filter(|_| !is_on_file);
            thread.into_iter().for_each(|it| it.was_reset = is_reset);
        }
        let had_foreign = members.has_foreign_that_run();
        let mut is_other = false;
        for tid in &tids {
            let Some(now) = self.model.attributes.get(tid) else { continue };
            is_other |= members.note_attributes(*tid, now);
        }
        let has_own = members.has_own_attributes() || !pins.own.is_empty();
        let was_listed = std::mem::replace(&mut roster.listed, self.ticks);
        let new = tids.iter().copied().filter(|&tid| !members.knows(tid));
        let new: Vec<u32> = new.collect();
        let came = members.update(&tids, |tid| {
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
        let gone = members.take_gone(was_listed);
        if let Placement::Cgroup { .. } = placement {
            let is_it = |thread: &super::Thread| thread.started <= was_listed;
            let alive = gone.into_iter().filter(|it| self.threads.get(&it.tid).is_some_and(is_it));
            let found: Vec<_> = alive.collect();
            roster.strays.extend(found.iter().map(|it| (it.tid, it.was_there_ticks)));
            roster.found.extend(found);
            self.file_members(job, members, roster);
        }
        // New ones, those that may have become another user's, and one of the others in turn.
        let mut looked_at = std::mem::take(&mut roster.became_other);
        let pids = tids.iter().filter_map(|tid| self.threads.get(tid)).map(|thread| thread.pid);
        let pids: BTreeSet<u32> = pids.collect();
        let next = pids.iter().copied().find(|&pid| pid > roster.owner_turn);
        roster.owner_turn = next.unwrap_or(0);
        looked_at.extend(next.into_iter().chain(pids.difference(&roster.owners_seen).copied()));
        roster.owners_seen = pids;
        for &tid in &tids {
            let (is_foreign, is_new) = (self.is_foreign(tid, owner_uid), new.contains(&tid));
            let pid = self.threads.get(&tid).map(|thread| thread.pid);
            if is_new || pid.is_some_and(|pid| looked_at.contains(&pid)) {
                is_other |= members.note_owner(tid, is_foreign, is_new);
            }
        }
        is_other |= had_foreign && !members.has_foreign_that_run();
        if !members.stops_foreign {
            // As far as it is known: one that was not looked at is the owner's again later.
            let is_own = |pid: &u32| !members.is_foreign(*pid);
            members.processes = roster.tree.iter().copied().filter(is_own).collect();
        }
        for tid in &tids {
            if let Some(thread) = self.threads.get_mut(tid) {
                (thread.is_unread, thread.unread, thread.was_read) = (false, Vec::new(), true);
            }
        }
        let have_moved = self.see_cpus(&tids, members, &pins);
        let mut chose: Vec<u32> = members.user_pinned().collect();
        // Those that leave are in the job's groups, and on file, until they have left.
        let leaving: Vec<u32> = match placement {
            Placement::Threads { .. } => roster.leaving.iter().copied().collect(),
            _ => roster.leaving.iter().flat_map(|&pid| self.tids(pid)).collect(),
        };
        chose.extend(leaving.iter().filter(|tid| pins.user_pinned.contains(tid)));
        chose.extend(roster.strays.keys().filter(|tid| pins.user_pinned.contains(tid)));
        let leaving = leaving.into_iter().chain(roster.strays.keys().copied());
        let removed = roster.removed.iter().flat_map(|&pid| self.tids(pid));
        let leavers: Vec<u32> = leaving.chain(removed).collect();
        let mut own = members.own_attributes(&leavers, &pins.own, &roster.expected_own);
        roster.expected_own.retain(|&tid, _| !members.knows(tid));
        own.extend(&roster.expected_own);
        if self.backend.is_some_and(Backend::can_fill) {
            let pins = self.pins.entry(job).or_default();
            (pins.user_pinned, pins.own) = (chose, own);
        }
        came > 0 || is_other || have_moved
    }

    /// On file: the members of a job, and those that left it and are not as before yet.
    pub fn file_members(&mut self, job: JobId, members: &Members, roster: &Roster) {
        if self.backend.is_some_and(Backend::can_fill) {
            let tids = members.threads().iter().map(|it| it.tid);
            let leaving = roster.leaving.iter().flat_map(|&pid| self.tids(pid));
            let tids = tids.chain(leaving).collect();
            let pins = self.pins.entry(job).or_default();
            (pins.members, pins.strays) = ((roster.listed, tids), roster.strays.clone());
        }
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
            // A real-time one, or one of an oversubscribed gang in its slot, may have started it.
            let may_have_lost = |now: &Attributes| now.nice == -20 || *now == Attributes::other(0);
            let now = self.model.attributes.get(&tid).copied().unwrap_or(thread.own);
            let may_have_lost = may_have_lost(&now);
            let (own, lost_nice) = (thread.own, thread.lost_nice || may_have_lost);
            let of_it = of_it.flat_map(|it| it.normal.iter().copied().chain([it.own]));
            let all = of_it.chain(read).chain([members.default]);
            // Each once: a process may have thousands of threads.
            let mut ordinary: Vec<Attributes> = Vec::new();
            for it in all.map(super::default_of) {
                if !ordinary.contains(&it) {
                    ordinary.push(it);
                }
            }
            let nice_values: BTreeSet<i32> = thread.normal.iter().map(|had| had.nice).collect();
            let may_have = ordinary.into_iter().flat_map(|it| {
                let nice = nice_values.iter().copied().chain([own.nice]);
                let nice =
                    nice.chain(lost_nice.then_some([it.nice, now.nice]).into_iter().flatten());
                nice.map(move |nice| Attributes { nice, ..it })
            });
            let may_have: Vec<Attributes> = may_have.filter(|it| *it != own).collect();
            if let Some(thread) = self.threads.get_mut(&tid) {
                // As long as it looks as when it was first seen, it is taken for one of those.
                thread.at_start.extend(&may_have);
                may_have.into_iter().for_each(|had| thread.may_have(had));
            }
        }
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
                    && !own.is_back
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
            self.record_of_process(pid, pid)
                .is_some_and(|of| of.id == job.0 && !self.is_foreign(pid, of.owner_uid))
                && !self.processes[&pid].is_unseen
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
