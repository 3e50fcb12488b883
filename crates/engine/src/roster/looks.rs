//! Looks at a few threads of a job at a time, in turn.
//!
//! Each look is a call or a file, and a job may have thousands of threads. So new threads are
//! looked at as they come, and of the others a few with each read.

use std::path::Path;

use gang_linux::{clock, process, sched};
use gang_timetable::{Members, Runnable};

use super::{Kind, Roster, grow_tree};
use crate::thread;

/// Threads whose limits are looked at again with each read, and those whose attributes are.
const LOOKED_AT_AGAIN: usize = 16;
const ATTRIBUTES_AGAIN: usize = 256;

/// Threads whose CPUs are looked at again, with each read: a call each, of less than a microsecond.
pub const CPUS_SEEN_AGAIN: usize = 64;

/// Processes whose owners are looked at again, with each read: a file each, of some microseconds. A
/// program becomes another user's only where the machine's administrator has provided for that.
const OWNERS_SEEN_AGAIN: usize = 16;

/// Processes that a look for those of others is at: a call each, of a microsecond.
pub const OWNERS_AT_ONCE: usize = 128;

/// Some threads of a job, which stand for all.
#[derive(Clone, Debug)]
pub struct Part {
    pub tids: Vec<u32>,
    /// Threads that came since there was a part before.
    came: u32,
}

fn owner(proc_root: &Path, tid: u32) -> Option<process::Owner> {
    process::owner(proc_root, tid).ok()
}

/// Looks at some of many at a time, in turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    begins_at: usize,
}

impl Turn {
    /// At most so many of them, the next ones each time.
    fn next<'a, T>(
        &mut self,
        all: &'a [T],
        most: usize,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let begin = self.begins_at % all.len().max(1);
        self.begins_at = begin + most;
        all.iter().cycle().skip(begin).take(most.min(all.len()))
    }
}

/// Numbers far from each other for `count`s that follow each other (Fibonacci hashing: Knuth, The
/// Art of Computer Programming, 6.4).
fn spread(count: usize) -> usize {
    ((count as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize
}

impl Roster {
    /// Whether some thread may have other CPUs than it is known to have: to be read again then. Of
    /// more than [`CPUS_SEEN_AGAIN`] threads so many are looked at in turn, or `all` at once.
    pub fn may_have_moved(&mut self, members: &Members, all: bool) -> bool {
        if self.online.is_empty() {
            return false;
        }
        let most = if all { members.threads().len() } else { CPUS_SEEN_AGAIN };
        let looked_at = self.moved.next(members.threads(), most);
        let switched = looked_at.filter(|thread| !thread.is_exempt()).map(|thread| thread.tid);
        let has_others =
            |&tid: &u32| thread::affinity(tid).is_ok_and(|cpus| !members.is_usual(tid, &cpus));
        self.suspects = switched.filter(has_others).collect();
        !self.suspects.is_empty()
    }

    /// Whether the owner of some process is another one than it is known to be: to be read again
    /// then. Of more than 128 (`OWNERS_AT_ONCE`) so many are looked at in turn.
    pub fn may_be_foreign(&mut self, proc_root: &Path) -> bool {
        let Some(owner_uid) = self.owner_uid else { return false };
        let became_other = |&pid: &u32| {
            let was_foreign = self.are_foreign.get(&pid) == Some(&true);
            if !was_foreign && process::files_uid(proc_root, pid) == Some(owner_uid) {
                return false;
            }
            let is_foreign = owner(proc_root, pid).map(|of| of.is_foreign_to(owner_uid));
            is_foreign.is_some_and(|is_foreign| is_foreign != was_foreign)
        };
        let looked_at = self.became.next(&self.pids, OWNERS_AT_ONCE).copied();
        self.became_other = looked_at.filter(became_other).collect();
        !self.became_other.is_empty()
    }

    /// Whether the group has lost a thread that lives on: to be read again then.
    pub fn has_lost(&mut self, members: &Members) -> bool {
        let Kind::Cgroup { threads, expected, .. } = &self.kind else { return false };
        if threads.numbers(&mut self.bytes, &mut self.numbers).is_err() {
            return false;
        }
        self.numbers.extend(expected);
        self.numbers.sort_unstable();
        let is_there = |tid: u32| self.numbers.binary_search(&tid).is_ok();
        let mut lost = members.threads().iter().filter(|thread| !is_there(thread.tid));
        lost.any(|thread| thread::attributes(thread.tid).is_ok())
    }

    /// Owners, programs, cpusets and the kernel change at any moment where threads may run. Those
    /// that may have moved are looked at, and others in turn.
    pub(super) fn see_cpus(&mut self, members: &mut Members, proc_root: &Path) -> bool {
        let mut have_moved = false;
        if self.online.is_empty() {
            return false;
        }
        let suspects = std::mem::take(&mut self.suspects);
        for &tid in suspects.iter().chain(self.cpus.next(&self.numbers, CPUS_SEEN_AGAIN)) {
            let Ok(mut cpus) = thread::affinity(tid) else { continue };
            if !members.is_usual(tid, &cpus) {
                let Ok(all) = thread::cpus_allowed(proc_root, tid) else { continue };
                cpus = all;
            }
            let were_given = self.pins.were_given(&cpus);
            have_moved |= members.see_cpus(tid, cpus, were_given, &self.online);
        }
        have_moved
    }

    /// A program may limit its time as a real-time one at any moment. Threads that are new are
    /// looked at, and some of the others in turn.
    pub(super) fn note_rt_limits(&mut self, members: &mut Members, proc_root: &Path, new: &[u32]) {
        for &tid in new.iter().chain(self.limits.next(&self.numbers, LOOKED_AT_AGAIN)) {
            members.note_rt_limit(tid, sched::has_rt_time_limit(proc_root, tid));
        }
    }

    /// A program may become another user's at any moment. Processes that are new are looked at,
    /// those that may have become another's, and some of the others in turn: a look is a file of
    /// /proc, so that threads have none of their own. True where some thread is to be scheduled
    /// otherwise.
    pub(super) fn note_owners(
        &mut self,
        members: &mut Members,
        proc_root: &Path,
        new: &[u32],
    ) -> bool {
        let Some(owner_uid) = self.owner_uid else { return false };
        // One that ended meanwhile is nobody's.
        let is_foreign = |pid| Some(owner(proc_root, pid)?.is_foreign_to(owner_uid));
        let mut note = |pid, is_foreign| {
            let is_new = |tid: u32| new.binary_search(&tid).is_ok();
            let tids = process::threads(proc_root, pid).unwrap_or_default().into_iter();
            tids.filter(|&tid| members.note_owner(tid, is_foreign, is_new(tid))).count() > 0
        };
        let mut is_other = false;
        self.are_listed &= new.is_empty();
        if !self.are_listed {
            // Where they cannot be listed, they are the next time.
            self.are_listed = self.list_processes(proc_root).is_ok();
            for &pid in &self.pids {
                // The number of one that has ended may be a new one's.
                let is_new = new.binary_search(&pid).is_ok();
                let known = self.are_foreign.get(&pid).copied().filter(|_| !is_new);
                let Some(is_foreign) = known.or_else(|| is_foreign(pid)) else { continue };
                self.are_foreign.insert(pid, is_foreign);
                is_other |= is_foreign && note(pid, true);
            }
        }
        let became_other = std::mem::take(&mut self.became_other);
        let in_turn = self.owners.next(&self.pids, OWNERS_SEEN_AGAIN);
        for &pid in became_other.iter().chain(in_turn) {
            let Some(is_foreign) = is_foreign(pid) else { continue };
            let was_foreign = self.are_foreign.insert(pid, is_foreign) == Some(true);
            if is_foreign || was_foreign {
                is_other |= note(pid, is_foreign);
            }
        }
        self.note_processes(members);
        is_other
    }

    /// Lists the processes of the threads that were just read: no thread is of a younger one.
    fn list_processes(&mut self, proc_root: &Path) -> gang_linux::Result<()> {
        match &self.kind {
            Kind::Cgroup { processes, expected, .. } => {
                processes.numbers(&mut self.bytes, &mut self.pids)?;
                // Those that are going to come are of one process.
                let coming = expected.first().and_then(|&tid| owner(proc_root, tid));
                self.pids.extend(coming.map(|of| of.pid));
            }
            Kind::Tree { processes, .. } => {
                self.pids = processes.iter().map(|process| process.pid).collect();
            }
            Kind::Threads { singles, .. } => {
                self.pids = singles.iter().map(|single| single.pid).collect();
            }
        }
        self.pids.sort_unstable();
        self.pids.dedup();
        self.are_foreign.retain(|pid, _| self.pids.binary_search(pid).is_ok());
        Ok(())
    }

    /// An owner may set the attributes of a thread at any moment. Some threads are looked at in
    /// turn.
    pub(super) fn note_wishes(&mut self, members: &mut Members) -> bool {
        let mut is_other = false;
        for &tid in self.attributes.next(&self.numbers, ATTRIBUTES_AGAIN) {
            if let Ok(now) = thread::attributes(tid) {
                is_other |= members.note_attributes(tid, &now);
            }
        }
        is_other
    }

    /// Counts the threads that want to run, of a part that stands for all.
    pub fn count_runnable(&self, members: &Members, proc_root: &Path, part: &Part) -> Runnable {
        let of_part = part.tids.iter().filter_map(|&tid| process::status(proc_root, tid).ok());
        let runnable = of_part.filter(process::Status::is_runnable).count() as u32;
        match part.tids.len() < members.threads().len() {
            true => Runnable::of_part(runnable, part.tids.len() as u32, self.listed, part.came),
            false => Runnable::exactly(runnable),
        }
    }

    /// `most` threads, if there are more, and another part each time. Neighbours in a row do the
    /// same more often than others, and the first one of all more often something else.
    pub fn part(&mut self, members: &Members, most: usize) -> Part {
        let step = members.threads().len().div_ceil(most).max(1);
        self.counts = self.counts.wrapping_add(1);
        let part = members.threads().iter().skip(spread(self.counts) % step).step_by(step);
        Part { tids: part.map(|thread| thread.tid).collect(), came: std::mem::take(&mut self.came) }
    }

    /// Time in which one of its threads or more waited for a CPU, in microseconds; absent where the
    /// kernel does not say (Documentation/accounting/psi.rst).
    pub fn waited_us(&mut self) -> Option<u64> {
        match &self.kind {
            Kind::Cgroup { pressure, .. } => {
                pressure.as_ref()?.pressure_us(&mut self.bytes).ok().flatten()
            }
            Kind::Tree { .. } | Kind::Threads { .. } => None,
        }
    }

    /// CPU time its processes have used, in nanoseconds; absent where the kernel does not say. A
    /// process that ended is not counted any more where the job is a tree.
    pub fn cpu_time_ns(&mut self, members: &mut Members, proc_root: &Path) -> Option<u64> {
        match &mut self.kind {
            Kind::Cgroup { cpu, .. } => {
                let microseconds = cpu.as_ref()?.keyed("usage_usec", &mut self.bytes).ok()??;
                Some(self.used_before_ns + microseconds * 1000)
            }
            Kind::Tree { processes, removed } => {
                // Nobody else looks for the children of a job that is asleep.
                grow_tree(proc_root, processes, removed, &self.others.processes);
                let used = processes.iter().filter_map(|p| clock::cpu_ns_of(p.pid).ok()).sum();
                self.note_processes(members);
                Some(used)
            }
            Kind::Threads { singles, .. } => {
                let used =
                    singles.iter().filter_map(|it| process::thread_cpu_ns(proc_root, it.tid));
                let used: Vec<u64> = used.collect();
                (singles.is_empty() || !used.is_empty()).then(|| used.iter().sum())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_looks_reach_any_hundred_neighbours_soon() {
        // Of every 132 threads one is looked at: of three looks in succession one is of any hundred
        // in a row.
        let offsets: Vec<usize> = (0..10_000).map(|count| spread(count) % 132).collect();
        for looks in offsets.windows(3) {
            let is_seen = |first: usize| looks.iter().any(|look| (look + 132 - first) % 132 < 100);
            assert!((0..132).all(is_seen), "{looks:?}");
        }
    }
}
