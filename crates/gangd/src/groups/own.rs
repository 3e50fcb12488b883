//! Groups that gangs have for themselves, and moving between groups.
//!
//! Problem: a gang that is weighed as a whole ([`gang_conductor::short_lived`]) needs a group of the
//! cpu controller for itself, beside that of all gangs. Its program goes on while it moves, and
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

use super::cgroups::{Cgroups, remove_unused};

impl Cgroups {
    /// Where a gang lives once it has moved between groups of the cpu controller; absent where it
    /// cannot.
    pub fn regrouped(
        &self,
        job: JobId,
        way: Regroup,
        placement: &Placement,
    ) -> Result<Option<Placement>> {
        if way == Regroup::ToShared {
            return self.placement_by(job, Policy::Gang, placement).map(Some);
        }
        let Some(root) = self.cpu.beside(self.root.as_deref()) else { return Ok(None) };
        let own = Group::at(root).child(self.beside(job));
        let mut to = placement.clone();
        let is_above = self.cpu.is_above();
        match &mut to {
            Placement::Cgroup { adopted: true, .. } if is_above => return Ok(None),
            Placement::Cgroup { cpu_group, cpu_group_is_shared, .. } => {
                *cpu_group_is_shared = false;
                if !is_above {
                    own.create()?;
                    *cpu_group = Some(own.path().into());
                }
            }
            Placement::Tree { .. } | Placement::Threads { .. } => return Ok(None),
        }
        if is_above {
            lives_in(&mut to, &own)?;
        }
        Ok(Some(to))
    }

    /// The name of a group of one job that lies beside that of all jobs.
    fn beside(&self, job: JobId) -> String {
        format!("{}-job-{job}", self.name)
    }

    /// The group that is made for a job as it moves, besides those that it has.
    pub fn made_for_move(from: &Placement, to: &Placement) -> Option<PathBuf> {
        let groups = |at: &Placement| match at {
            Placement::Cgroup { group, cpu_group, .. } => Some((group.clone(), cpu_group.clone())),
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
            Placement::Cgroup { group: now, .. },
        ) = (from, to)
        else {
            return Ok(Vec::new());
        };
        let mut all = self.processes_of(from)?;
        if before == now {
            // One that ended meanwhile is nowhere.
            let is_there = |pid: &u32| self.origins(*pid).is_ok_and(|(_, at)| at == *cpu_before);
            all.retain(|pid| cpu_before.is_some() && is_there(pid));
        }
        Ok(all)
    }

    /// Removes the other group of a job whose processes have moved.
    pub fn remove_other(&self, placement: &Placement) {
        if let Placement::Cgroup { other: Some(other), .. } = placement {
            let _ = Group::at(other).remove();
        }
    }

    /// Removes the group that a job has left; one in which somebody is stays.
    pub fn remove_left(&self, from: &Placement, to: &Placement) {
        let Placement::Cgroup { cpu_group, cpu_group_is_shared, group, adopted, .. } = from else {
            return;
        };
        let stays = |left: &Path| match to {
            Placement::Cgroup { group, cpu_group, .. } => {
                left == group || cpu_group.as_deref() == Some(left)
            }
            Placement::Tree { .. } | Placement::Threads { .. } => false,
        };
        let own_cpu = cpu_group.iter().filter(|_| !cpu_group_is_shared);
        let own = Some(group).filter(|_| !adopted).into_iter().chain(own_cpu);
        for left in own.filter(|left| !stays(left)) {
            let _ = Group::at(left).remove();
        }
    }
}

/// Has a job live in another group of version 2, made where it is not there. Memory is limited in
/// the group in which the job lives.
pub(super) fn lives_in(placement: &mut Placement, own: &Group) -> Result<()> {
    own.create()?;
    if let Placement::Cgroup { group, memory, .. } = placement {
        own.path().clone_into(group);
        if let Some(Confinement { group, origin: None, .. }) = memory {
            own.path().clone_into(group);
        }
    }
    Ok(())
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
    beside.iter().filter(|group| is_of_job(group) && remove_unused(group)).count() > 0
}
