//! The limits where a job was called, as they change while it runs.
//!
//! Problem: whoever limits the group of a service, a session or a batch job means the programs that
//! were called there, at any time. A gang that left that group because nothing limited it does not
//! notice.
//!
//! Approach: the limits are read again now and then. A gang goes back to where it was called when
//! something begins to limit the processes there, and may leave once nothing does. It has the
//! limits on memory and on the number of processes in a group of its own as well, and takes them
//! over there.

use gang_conductor::Regroup;
use std::path::Path;

use gang_linux::{
    Result,
    cgroup::{self, Group},
    limits,
};
use gang_schedule::{CpuSet, JobId, Policy};
use gang_timetable::{
    Controls,
    record::{Confinement, Placement},
};

use super::{cgroups::Cgroups, location::PIDS};

impl Cgroups {
    /// The move of a gang to where it is to live by the limits that are in force now. Absent where
    /// it lives there.
    pub fn way_by_limits(&self, job: JobId, placement: &Placement) -> Result<Option<Regroup>> {
        let to = self.placement_by(job, Policy::Gang, placement)?;
        let (
            Placement::Cgroup { cpu_group_is_shared: was_shared, .. },
            Placement::Cgroup { cpu_group_is_shared: is_shared, .. },
        ) = (placement, &to)
        else {
            return Ok(None);
        };
        let is_out = *was_shared || self.has_own(placement);
        Ok(match (is_out, *is_shared) {
            (true, false) => Some(Regroup::ToCaller),
            (false, true) => Some(Regroup::FromCaller),
            (true, true) | (false, false) => None,
        })
    }

    /// Whether limits are in force for a job that it has not taken over. `has` are those on its CPU
    /// time that it has.
    pub fn has_other_limits(&self, placement: &Placement, has: &Controls) -> bool {
        let mut now = *has;
        self.note_cpu_limits(&mut now, placement);
        if now != *has {
            return true;
        }
        let Placement::Cgroup { group, .. } = placement else { return false };
        let has = Group::at(group).read(PIDS).unwrap_or_default();
        self.process_limit(placement).is_some_and(|limit| limit != has.trim())
            || self.inherited_memory(placement).is_some_and(|now| {
                now != placement.confinement().and_then(|confinement| confinement.inherited)
            })
    }

    /// Has a job keep the limit on processes of the group that it left.
    pub fn renew_process_limit(&self, placement: &Placement) -> Result<()> {
        let Placement::Cgroup { group, origin, .. } = placement else { return Ok(()) };
        match self.process_limit(placement) {
            Some(limit) if limit == "max" => Group::at(group).write(PIDS, limit),
            Some(_) => self.keep_limits(&Group::at(group), origin),
            None => Ok(()),
        }
    }

    /// The CPUs of the cpuset that the first process of a job is in; absent where there are none,
    /// and for single threads, of which each has its own.
    pub fn cpuset_of(&self, placement: &Placement) -> Option<CpuSet> {
        let pid = match placement {
            Placement::Cgroup { .. } => *self.processes_of(placement).ok()?.first()?,
            Placement::Tree { processes } => processes.first()?.0,
            Placement::Threads { .. } => return None,
        };
        let (v2, v1) = cgroup::of_process(&self.roots, pid, "cpuset").ok()?;
        let at = |root: &Path, group: &str| root.join(group.trim_start_matches('/'));
        let read = |group: &Path, file: &str| -> Option<CpuSet> {
            let text = Group::at(group).read(file).ok()?;
            text.trim().parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
        };
        // Not those that are effective: a CPU that is offline comes back.
        let possible = read(&self.roots.sys.join("devices/system/cpu"), "possible")?;
        // A group that has none of its parent's has all of them, as the kernel does it.
        let within = |all: CpuSet, cpus: CpuSet| match all.intersection(&cpus) {
            none if none.is_empty() => all,
            both => both,
        };
        let of_v1 = self.hierarchies.v1.get("cpuset").zip(v1.filter(|group| group != "/"));
        if let Some((root, group)) = of_v1 {
            return Some(within(possible, read(&at(root, &group), "cpuset.cpus")?));
        }
        let Some(root) = self.root_of_v2() else { return Some(possible) };
        let group = at(root, &v2);
        let above = group.ancestors().take_while(|above| above.starts_with(root));
        let above: Vec<&Path> = above.collect();
        let above = above.into_iter().rev().filter_map(|above| read(above, "cpuset.cpus"));
        Some(above.fold(possible, within))
    }

    /// The limit on its processes that a job is to have in its own group. Absent where a group
    /// above has it.
    fn process_limit(&self, placement: &Placement) -> Option<String> {
        let Placement::Cgroup { group, origin, .. } = placement else { return None };
        self.left_group(placement).filter(|_| self.can_limit_processes)?;
        let least = limits::least(self.root.as_ref()?, origin, PIDS);
        match least {
            Some(most) => Some(most.to_string()),
            None => Group::at(group).has(PIDS).then(|| "max".to_owned()),
        }
    }

    /// The limit on memory that a job is to keep, if there is any now. Absent where the job is
    /// below the group that has it.
    fn inherited_memory(&self, placement: &Placement) -> Option<Option<u64>> {
        let Placement::Cgroup { origin, .. } = placement else { return None };
        self.left_group(placement)?;
        Some(limits::least(self.memory_root()?, origin, "memory.max"))
    }

    /// Where the memory of a job is to be limited from now on, of which so much is promised to it.
    pub fn confinement_by_limits(
        &self,
        placement: &Placement,
        mem_bytes: u64,
    ) -> Option<Confinement> {
        let Placement::Cgroup { group, memory, .. } = placement else { return None };
        let Some(inherited) = self.inherited_memory(placement) else { return memory.clone() };
        let confinement = Confinement { group: group.clone(), origin: None, inherited };
        (mem_bytes > 0 || inherited.is_some()).then_some(confinement)
    }
}
