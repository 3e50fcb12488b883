//! The memory of jobs: what they use, and keeping them to what they were promised.
//!
//! The limit of version 2 is on the job's own group. That of version 1 is on a group beside, which all
//! processes of the job are put into. What a process used before it came into that group is not counted
//! (Documentation/admin-guide/cgroup-v1/memory.rst); a program that `gang run` starts has used nothing.

use std::path::PathBuf;

use gang_engine::{
    probe::Means,
    store::{Confinement, Whereabouts},
};
use gang_linux::{
    Result,
    cgroup::{self, Group},
    memory,
};
use gang_schedule::JobId;
use rustix::fs::Access;

use super::Lodging;

/// How the kernel can limit the memory of a job.
#[derive(Clone, Debug)]
pub(super) enum MemoryControl {
    /// The root of the unified hierarchy, which has the memory controller.
    V2(PathBuf),
    /// The root of the hierarchy of version 1 that has it.
    V1(PathBuf),
    None,
}

impl MemoryControl {
    pub(super) fn of(means: &Means) -> MemoryControl {
        let hierarchies = &means.hierarchies;
        let in_v2 = hierarchies.v2_controllers.iter().any(|controller| controller == "memory");
        match (&means.groups, hierarchies.v1.get("memory")) {
            (Some(root), _) if in_v2 => MemoryControl::V2(root.clone()),
            (_, Some(root)) if rustix::fs::access(root, Access::WRITE_OK).is_ok() => {
                MemoryControl::V1(root.clone())
            }
            _ => MemoryControl::None,
        }
    }
}

/// Rounds in which processes are looked for that were started while others were moved.
const ROUNDS_MAX: usize = 100;

impl Lodging {
    /// Where the memory of a job can be limited; nothing is done there yet. A group that was there
    /// before the job has limits of its own, which stay.
    pub fn confinement(
        &self,
        job: JobId,
        whereabouts: &Whereabouts,
        first: u32,
    ) -> Result<Option<Confinement>> {
        let Whereabouts::Cgroup { group, adopted, .. } = whereabouts else { return Ok(None) };
        match &self.memory {
            MemoryControl::V2(_) if !adopted => {
                Ok(Some(Confinement { group: group.clone(), home: None }))
            }
            MemoryControl::V1(root) => {
                let (_, home) = cgroup::of_process(&self.roots, first, "memory")?;
                let home = root.join(home.unwrap_or_default().trim_start_matches('/'));
                let group = root.join(format!("{}-job-{job}", self.name));
                Ok(Some(Confinement { group, home: Some(home) }))
            }
            _ => Ok(None),
        }
    }

    /// Sets the limit, or lifts it (0 bytes). Refused where more is in use, and cannot be taken back:
    /// nobody is to be killed because somebody asked for less.
    pub fn limit(&self, at: &Confinement, mem_bytes: u64) -> Result<()> {
        let group = Group::at(&at.group);
        if at.home.is_some() {
            group.create()?;
            let limit = if mem_bytes == 0 { "-1".to_owned() } else { mem_bytes.to_string() };
            return group.write("memory.limit_in_bytes", limit);
        }
        if let (MemoryControl::V2(root), false) = (&self.memory, group.has("memory.max")) {
            for above in [Some(root.as_path()), at.group.parent()].into_iter().flatten() {
                Group::at(above).write("cgroup.subtree_control", "+memory")?;
            }
        }
        let in_use = memory::of_group(&group).unwrap_or(0);
        if mem_bytes > 0 && mem_bytes < in_use {
            // What version 1 answers.
            let busy = std::io::Error::from(rustix::io::Errno::BUSY);
            let file = at.group.join("memory.max");
            return Err(gang_linux::Error::new("write", file.display(), busy));
        }
        let limit = if mem_bytes == 0 { "max".to_owned() } else { mem_bytes.to_string() };
        group.write("memory.max", limit)
    }

    /// Puts all processes of a job where its memory is limited.
    pub fn gather(&self, whereabouts: &Whereabouts, at: &Confinement) -> Result<()> {
        let (Whereabouts::Cgroup { group, .. }, Some(_)) = (whereabouts, &at.home) else {
            return Ok(());
        };
        let (of_job, limited) = (Group::at(group), Group::at(&at.group));
        for _ in 0..ROUNDS_MAX {
            let inside = limited.processes()?;
            let mut outside = of_job.processes()?;
            outside.retain(|pid| !inside.contains(pid));
            if outside.is_empty() {
                break;
            }
            // One that ends meanwhile needs no limit.
            outside.into_iter().for_each(|pid| drop(limited.add(pid)));
        }
        Ok(())
    }

    /// Memory that a job uses, of what the kernel could not take back for others.
    pub fn memory_used(&self, whereabouts: &Whereabouts) -> u64 {
        let (group, at) = match whereabouts {
            Whereabouts::Tree { processes } => {
                let pids: Vec<u32> = processes.iter().map(|(pid, _)| *pid).collect();
                return memory::of_processes(&self.roots.proc, &pids);
            }
            Whereabouts::Cgroup { group, memory, .. } => (group, memory),
        };
        let counted = at.as_ref().and_then(|at| memory::of_group(&Group::at(&at.group)));
        counted.unwrap_or_else(|| {
            let pids = Group::at(group).processes().unwrap_or_default();
            memory::of_processes(&self.roots.proc, &pids)
        })
    }
}
