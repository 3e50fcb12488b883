//! The memory of jobs: what they use, and the limit that keeps them to what they were promised.
//!
//! The limit of version 2 is on the job's own group. That group is no longer below the user's, so
//! each job keeps the limits that held above its first process. The limit of version 1 is on a
//! group below that of the first process, and all processes of the job are put into it. Memory that
//! a process used before it came into that group is not counted there
//! (Documentation/admin-guide/cgroup-v1/memory.rst). A program that `gang run` starts has used
//! none.

use std::{
    io,
    path::{Path, PathBuf},
};

use gang_engine::probe::Means;
use gang_linux::{
    Error, Result,
    cgroup::{self, Group},
    limits, memory,
};
use gang_schedule::JobId;
use gang_timetable::record::{Confinement, Placement};
use rustix::fs::Access;

use super::cgroups::Cgroups;

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

impl Cgroups {
    /// The place where the memory of a job is to be limited, by its promise or by what limits its
    /// first process now. Nothing is done there yet. A group that was there before the job has
    /// limits of its own, which stay.
    pub fn confinement(
        &self,
        job: JobId,
        placement: &Placement,
        first: u32,
        mem_bytes: u64,
    ) -> Result<Option<Confinement>> {
        let Placement::Cgroup { group, adopted, origin, .. } = placement else { return Ok(None) };
        match &self.memory {
            MemoryControl::V2(root) if !adopted => {
                // Of one below where it comes from, all limits hold by themselves.
                if group.starts_with(origin) && origin != root {
                    return Ok(None);
                }
                let inherited = limits::least(root, origin, "memory.max");
                let confinement = Confinement { group: group.clone(), origin: None, inherited };
                Ok((mem_bytes > 0 || inherited.is_some()).then_some(confinement))
            }
            // Below where it comes from, so that the limits of its user hold.
            MemoryControl::V1(root) if mem_bytes > 0 => {
                let origin = self.memory_origin(first)?.unwrap_or_else(|| root.clone());
                let group = origin.join(format!("{}-job-{job}", self.name));
                Ok(Some(Confinement { group, origin: Some(origin), inherited: None }))
            }
            _ => Ok(None),
        }
    }

    /// The root of the hierarchy of version 2, where that limits memory.
    pub(super) fn memory_root(&self) -> Option<&Path> {
        match &self.memory {
            MemoryControl::V2(root) => Some(root),
            MemoryControl::V1(_) | MemoryControl::None => None,
        }
    }

    /// The root of the hierarchy of version 1 that limits memory, where it does.
    pub(super) fn memory_root_v1(&self) -> Option<&Path> {
        match &self.memory {
            MemoryControl::V1(root) => Some(root),
            MemoryControl::V2(_) | MemoryControl::None => None,
        }
    }

    /// The group of version 1 that accounts for the memory of a process now.
    pub(super) fn memory_origin(&self, pid: u32) -> Result<Option<PathBuf>> {
        let MemoryControl::V1(root) = &self.memory else { return Ok(None) };
        let (_, origin) = cgroup::of_process(&self.roots, pid, "memory")?;
        Ok(origin.map(|origin| root.join(origin.trim_start_matches('/'))))
    }

    /// Sets the limit, or lifts it (0 bytes). Refused where more is in use and cannot be taken
    /// back: no process is to be killed because somebody asked for less.
    pub fn limit(&self, at: &Confinement, mem_bytes: u64) -> Result<()> {
        let group = Group::at(&at.group);
        if at.origin.is_some() {
            group.create()?;
            let limit = if mem_bytes == 0 { "-1".to_owned() } else { mem_bytes.to_string() };
            return group.write("memory.limit_in_bytes", limit);
        }
        if let (MemoryControl::V2(root), false) = (&self.memory, group.has("memory.max")) {
            for above in [Some(root.as_path()), at.group.parent()].into_iter().flatten() {
                Group::at(above).write("cgroup.subtree_control", "+memory")?;
            }
        }
        if mem_bytes > 0 {
            let error = |operation, file: &str, source: io::Error| {
                Error::new(operation, at.group.join(file).display(), source)
            };
            let unknown = || error("read", "memory.stat", io::ErrorKind::InvalidData.into());
            if mem_bytes < memory::of_group(&group).ok_or_else(unknown)? {
                // Version 1 answers the same.
                return Err(error("write", "memory.max", rustix::io::Errno::BUSY.into()));
            }
        }
        let least = (mem_bytes > 0).then_some(mem_bytes).into_iter().chain(at.inherited).min();
        group.write("memory.max", least.map_or("max".to_owned(), |bytes| bytes.to_string()))
    }

    /// Puts all processes of a job where its memory is limited.
    pub fn gather(&self, placement: &Placement, at: &Confinement) -> Result<()> {
        let (Placement::Cgroup { group, .. }, Some(_)) = (placement, &at.origin) else {
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
    pub fn memory_used(&self, placement: &Placement) -> u64 {
        let (group, at) = match placement {
            Placement::Tree { processes } => {
                let pids: Vec<u32> = processes.iter().map(|(pid, _)| *pid).collect();
                return memory::of_processes(&self.roots.proc, &pids);
            }
            // Threads share the memory of their process, which is none of the job.
            Placement::Threads { .. } => return 0,
            Placement::Cgroup { group, memory, .. } => (group, memory),
        };
        let counted = at.as_ref().and_then(|at| memory::of_group(&Group::at(&at.group)));
        counted.unwrap_or_else(|| {
            let pids = Group::at(group).processes().unwrap_or_default();
            memory::of_processes(&self.roots.proc, &pids)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gang_timetable::Backend;

    use super::super::cpu::CpuGroups;
    use super::*;
    use crate::settings::Leave;

    #[test]
    fn job_of_version_2_keeps_limits_of_its_origin() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let (origin, group) = (root.join("user.slice"), root.join("gangd/job-1"));
        fs::create_dir(&origin).unwrap();
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.stat"), "anon 50\nfile 900\nshmem 0\n").unwrap();
        let cgroups = Cgroups {
            roots: Default::default(),
            hierarchies: Default::default(),
            root: Some(root.into()),
            name: "gangd".into(),
            cpu: CpuGroups::none(Backend::Freeze),
            memory: MemoryControl::V2(root.into()),
            backend: Backend::Freeze,
            leave: Leave::default(),
            can_limit_processes: false,
        };
        let placement = Placement::Cgroup {
            group: group.clone(),
            origin: origin.clone(),
            cpu_group: None,
            cpu_origin: None,
            cpu_group_is_shared: false,
            adopted: false,
            memory: None,
            other: None,
        };
        let confinement = |bytes| cgroups.confinement(JobId(1), &placement, 1, bytes).unwrap();
        assert_eq!(confinement(0), None);
        let wished = confinement(100).unwrap();
        fs::write(origin.join("memory.max"), "5000\n").unwrap();
        let kept = confinement(0).unwrap();
        assert_eq!((kept.inherited, &kept.group), (Some(5000), &group));
        let file = group.join("memory.max");
        let limited = |at: &Confinement, bytes| {
            // A control file has no rest of what was written before.
            fs::write(&file, "").unwrap();
            let outcome = cgroups.limit(at, bytes);
            (outcome.is_ok(), fs::read_to_string(&file).unwrap())
        };
        assert_eq!(limited(&kept, 0), (true, "5000".into()));
        assert_eq!(limited(&kept, 9000), (true, "5000".into()));
        assert_eq!(limited(&kept, 100), (true, "100".into()));
        assert_eq!(limited(&kept, 20), (false, "".into()));
        assert_eq!(limited(&wished, 9000), (true, "9000".into()));
        assert_eq!(limited(&wished, 0), (true, "max".into()));
        assert_eq!(cgroups.memory_used(&placement), 0, "not counted, and nobody is there");
    }
}
