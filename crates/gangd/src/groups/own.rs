//! Groups that gangs have for themselves, and moving between groups.
//!
//! Problem: a gang that is weighed as a whole ([`gang_conductor::short_lived`]) needs a group of
//! the cpu controller for itself, beside that of all gangs. Its program goes on while it moves, and
//! starts processes, each in the group of the one that starts it.
//!
//! Approach: in version 1 the processes are in that group besides their others; in version 2 the
//! job lives there, and so its memory is limited there. Processes are moved until none is left
//! outside.

use std::path::{Path, PathBuf};

use gang_conductor::Regroup;
use gang_linux::{Result, cgroup::Group};
use gang_schedule::{JobId, Policy};
use gang_timetable::record::{Confinement, Placement};

use super::cgroups::Cgroups;

impl Cgroups {
    /// Where a gang is going to live once it has moved between groups of the cpu controller; absent
    /// where it cannot. Nothing is made yet.
    pub fn regrouped(
        &self,
        job: JobId,
        way: Regroup,
        placement: &Placement,
    ) -> Result<Option<Placement>> {
        if way != Regroup::ToOwn {
            return self.placement_by(job, Policy::Gang, placement).map(Some);
        }
        let Some(own) = self.group_beside(job) else { return Ok(None) };
        let mut to = placement.clone();
        // One that is not in the group of all gangs is kept where it is.
        let Placement::Cgroup { cpu_group, cpu_group_is_shared, adopted, .. } = &mut to else {
            return Ok(None);
        };
        let is_above = self.cpu.is_above();
        if !*cpu_group_is_shared || (is_above && *adopted) {
            return Ok(None);
        }
        *cpu_group_is_shared = false;
        match is_above {
            true => lives_in(&mut to, own.path().into()),
            false => *cpu_group = Some(own.path().into()),
        }
        Ok(Some(to))
    }

    /// The group that a gang may have for itself beside that of all gangs.
    pub(super) fn group_beside(&self, job: JobId) -> Option<Group> {
        let root = self.cpu.beside(self.root.as_deref())?;
        Some(Group::at(root).child(format!("{}-job-{job}", self.name)))
    }

    /// The number of the job that has a group of this name beside that of all gangs.
    pub(super) fn number_beside<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.name)?.strip_prefix("-job-")
    }

    /// Whether a gang has a group for itself beside that of all gangs.
    pub fn has_own(&self, placement: &Placement) -> bool {
        let Placement::Cgroup { group, cpu_group, .. } = placement else { return false };
        let at = if self.cpu.is_above() { Some(group) } else { cpu_group.as_ref() };
        let name = at.and_then(|at| at.file_name()?.to_str());
        self.cpu.is_shared() && name.is_some_and(|name| self.number_beside(name).is_some())
    }

    /// The group that is made for a job as it moves, besides those that it has.
    pub fn made_for_move(from: &Placement, to: &Placement) -> Option<PathBuf> {
        let groups = |at: &Placement| match at {
            Placement::Cgroup { group, cpu_group, cpu_group_is_shared, .. } => {
                let own = cpu_group.clone().filter(|_| !cpu_group_is_shared);
                Some((group.clone(), own))
            }
            Placement::Tree { .. } | Placement::Threads { .. } => None,
        };
        let ((before, cpu_before), (now, cpu_now)) = (groups(from)?, groups(to)?);
        let is_other = cpu_before != cpu_now;
        if before != now { Some(now) } else { cpu_now.filter(|_| is_other) }
    }

    /// The processes of a job that are not yet where it is to live, but where it lived.
    pub fn processes_outside(&self, from: &Placement, to: &Placement) -> Result<Vec<u32>> {
        let (
            Placement::Cgroup { group: before, cpu_group: cpu_before, .. },
            Placement::Cgroup { group: now, cpu_group: cpu_now, .. },
        ) = (from, to)
        else {
            return Ok(Vec::new());
        };
        let mut all = self.processes_of(from)?;
        if before == now {
            let is_outside = |at: Option<PathBuf>| match cpu_now {
                Some(_) => at != *cpu_now,
                None => at.is_some() && at == *cpu_before,
            };
            // One that ended meanwhile is nowhere.
            all.retain(|pid| self.origins(*pid).is_ok_and(|(_, at)| is_outside(at)));
        }
        Ok(all)
    }

    /// Removes the other group of a job whose processes have moved.
    pub fn remove_other(&self, placement: &Placement) {
        if let Placement::Cgroup { other: Some(other), .. } = placement {
            Group::at(other).remove_unused();
        }
    }
}

/// Has a job live in another group of version 2. Memory is limited in the group in which the job
/// lives.
pub(super) fn lives_in(placement: &mut Placement, own: PathBuf) {
    if let Placement::Cgroup { group, memory, .. } = placement {
        if let Some(Confinement { group, origin: None, .. }) = memory {
            group.clone_from(&own);
        }
        *group = own;
    }
}

/// Removes the groups without processes that lie beside that of all jobs; true where somebody is in
/// one of them.
pub(super) fn remove_beside(root: &Path, name: &str) -> bool {
    let of_jobs = format!("{name}-job-");
    let is_of_job = |group: &Group| {
        let name = group.path().file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&of_jobs))
    };
    let beside = Group::at(root).children().unwrap_or_default();
    // Each of them is tried.
    beside.iter().filter(|group| is_of_job(group) && group.remove_unused()).count() > 0
}
