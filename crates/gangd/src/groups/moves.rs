//! Processes move into the groups of a job, from one to another as the job moves, and out again.
//!
//! A process is named by its number, which may be another one's by the time it is written. So the
//! process must live before the write, and is looked at again after it.

use std::{
    io,
    path::{Path, PathBuf},
};

use gang_engine::{bound::ProcessHandle, singles};
use gang_linux::{Error, Result, cgroup::Group, process};
use gang_timetable::record::{JoinedProcess, Placement, Single};
use rustix::io::Errno;

use super::{cgroups::Cgroups, location::is_group_of_job};

impl Cgroups {
    /// Moves a process with its threads into a group, by what writes its number. The number may be
    /// another process's by now: so the process must live just before. Where it has ended just
    /// after, the process that has its number goes where its parent is.
    fn write_number(
        &self,
        process: &ProcessHandle,
        write: impl FnOnce() -> Result<()>,
        home: &Path,
        of: fn(&Cgroups, u32) -> Option<PathBuf>,
    ) -> Result<()> {
        if !process.is_alive() {
            return Err(Error::new("move process", process.pid, io::Error::from(Errno::SRCH)));
        }
        write()?;
        if !process.is_alive() {
            let parent = process::status(&self.roots.proc, process.pid).map(|it| it.parent);
            let to = parent.ok().and_then(|parent| of(self, parent));
            let _ = Group::at(to.as_deref().unwrap_or(home)).add(process.pid);
        }
        Ok(())
    }

    /// Moves a process with its threads in. A process that has ended is gone, and whoever has its
    /// number by now stays where he is.
    pub fn move_in(&self, placement: &Placement, process: &ProcessHandle) -> Result<()> {
        let Placement::Cgroup { group, cpu_group, adopted, origin, cpu_origin, memory, .. } =
            placement
        else {
            return Ok(());
        };
        if !adopted {
            let write = || Group::at(group).add(process.pid);
            self.write_number(process, write, origin, Cgroups::group_of)?;
        }
        if let Some(cpu_group) = cpu_group {
            let write = || self.cpu.move_in(cpu_group, process);
            let of = |of: &Cgroups, pid| of.origins(pid).ok()?.1;
            self.write_number(process, write, cpu_origin.as_ref().unwrap_or(cpu_group), of)?;
        }
        let memory = memory.as_ref().and_then(|at| Some((&at.group, at.origin.as_ref()?)));
        if let Some((group, origin)) = memory {
            let write = || Group::at(group).add(process.pid);
            let of = |of: &Cgroups, pid| of.memory_origin(pid).ok()?;
            self.write_number(process, write, origin, of)?;
        }
        Ok(())
    }

    /// Moves a process of a job back into the group that all gangs share; true where the process
    /// was outside.
    pub fn return_to_shared(&self, placement: &Placement, process: &ProcessHandle) -> Result<bool> {
        let Placement::Cgroup { group, cpu_group: Some(shared), .. } = placement else {
            return Ok(false);
        };
        let (at, cpu_at) = self.origins(process.pid)?;
        // A process in no group of the job has left the job.
        if at != *group || cpu_at.as_ref() == Some(shared) {
            return Ok(false);
        }
        if !process.is_alive() {
            return Ok(false);
        }
        self.cpu.move_in(shared, process).map(|()| true)
    }

    /// Moves a process back to where it, or the job's first process, came from. A process that has
    /// ended is out.
    pub fn move_out(
        &self,
        placement: &Placement,
        joined: Option<&JoinedProcess>,
        process: &ProcessHandle,
    ) -> Result<()> {
        let Placement::Cgroup { origin, cpu_group, cpu_origin, adopted, memory, .. } = placement
        else {
            return Ok(());
        };
        let memory_origin = memory.as_ref().and_then(|memory| memory.origin.as_ref());
        let (origin, cpu_origin, memory_origin) = match joined {
            None => (origin, cpu_origin, memory_origin),
            Some(it) => (&it.origin, &it.cpu_origin, it.memory_origin.as_ref().or(memory_origin)),
        };
        let cpu_origin = cpu_origin.as_ref().filter(|_| cpu_group.is_some());
        let origin = Some(origin).filter(|_| !adopted);
        for origin in [origin, cpu_origin, memory_origin].into_iter().flatten() {
            // Its number may be another's.
            if !process.is_alive() {
                return Ok(());
            }
            let mut above = origin.ancestors().map(Group::at).filter(Group::exists);
            match above.next().map_or(Ok(()), |group| group.add(process.pid)) {
                Err(error) if process.is_alive() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Has a process that left its job's group by itself leave the job's groups of version 1, too.
    pub fn leave_of_version_1(&self, placement: &Placement, single: &Single) -> Result<()> {
        let Placement::Cgroup { group, cpu_group, cpu_origin, memory, .. } = placement else {
            return Ok(());
        };
        let memory = memory.as_ref().and_then(|at| Some((&at.group, at.origin.as_ref()?)));
        let cpu = cpu_group.as_ref().zip(cpu_origin.as_ref());
        if cpu.is_none() && memory.is_none() {
            return Ok(());
        }
        let process = ProcessHandle::open(single.pid)?;
        // One thread alone may have left, and the number may be another's by now.
        let (at, cpu_at) = self.origins(single.pid)?;
        let is_of_job = at.starts_with(group) || is_group_of_job(&at);
        if is_of_job || !singles::is_there(single, &self.roots.proc) {
            return Ok(());
        }
        if let Some((_, origin)) = cpu.filter(|(group, _)| cpu_at.as_ref() == Some(group)) {
            let write = || Group::at(origin).add(process.pid);
            self.write_number(&process, write, origin, |of, pid| of.origins(pid).ok()?.1)?;
        }
        let memory_at = self.memory_origin(single.pid)?;
        if let Some((_, origin)) = memory.filter(|(group, _)| memory_at.as_ref() == Some(group)) {
            let write = || Group::at(origin).add(process.pid);
            self.write_number(&process, write, origin, |of, pid| of.memory_origin(pid).ok()?)?;
        }
        Ok(())
    }

    /// Moves a process from where its job lived to where it lives now.
    pub fn move_over(
        &self,
        from: &Placement,
        to: &Placement,
        process: &ProcessHandle,
    ) -> Result<()> {
        let (
            Placement::Cgroup { cpu_group: cpu_before, cpu_origin, .. },
            Placement::Cgroup { cpu_group: cpu_now, .. },
        ) = (from, to)
        else {
            return Ok(());
        };
        self.move_in(to, process)?;
        if let (Some(_), None, Some(origin)) = (cpu_before, cpu_now, cpu_origin) {
            let write = || Group::at(origin).add(process.pid);
            let of = |of: &Cgroups, pid| of.origins(pid).ok()?.1;
            self.write_number(process, write, origin, of)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use gang_engine::probe::{CpuControl, Means};
    use gang_linux::{Roots, cgroup::Hierarchies};
    use gang_timetable::Backend;

    use super::*;
    use crate::settings::Leave;

    /// The groups of a daemon in a directory.
    fn opened(root: &Path) -> Cgroups {
        let means = Means {
            hierarchies: Hierarchies::default(),
            groups: Some(root.into()),
            cpu: CpuControl::None,
            findings: Vec::new(),
        };
        Cgroups::open(Roots::default(), &means, Backend::Freeze, "gangd", Leave::default())
    }

    #[test]
    fn number_of_a_process_that_has_ended_is_not_moved() {
        let root = tempfile::tempdir().unwrap();
        let group = |name: &str| {
            let group = root.path().join(name);
            std::fs::create_dir(&group).unwrap();
            std::fs::write(group.join("cgroup.procs"), "").unwrap();
            group
        };
        let (job, origin, cpu, cpu_origin) = (group("job"), group("a"), group("cpu"), group("b"));
        let placement = Placement::Cgroup {
            group: job.clone(),
            origin: origin.clone(),
            cpu_group: Some(cpu.clone()),
            cpu_origin: Some(cpu_origin.clone()),
            cpu_group_is_shared: false,
            adopted: false,
            memory: None,
            other: None,
        };
        let cgroups = opened(root.path());
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        let process = ProcessHandle::open(sleeper.id()).unwrap();
        let written = || {
            let all = [&job, &origin, &cpu, &cpu_origin];
            all.map(|group| std::fs::read_to_string(group.join("cgroup.procs")).unwrap())
        };
        let moved = cgroups.move_in(&placement, &process);
        let number = sleeper.id().to_string();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(moved.is_ok());
        assert_eq!(written(), [&*number, "", &*number, ""]);
        for group in [&job, &cpu] {
            std::fs::write(group.join("cgroup.procs"), "").unwrap();
        }
        // By now the number may be another process's.
        assert!(cgroups.move_in(&placement, &process).unwrap_err().is_gone());
        assert!(cgroups.move_over(&placement, &placement, &process).unwrap_err().is_gone());
        assert!(cgroups.move_out(&placement, None, &process).is_ok());
        assert_eq!(written(), [""; 4]);
    }

    #[test]
    fn origin_that_takes_no_process_is_not_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let origin = root.path().join("home");
        std::fs::write(root.path().join("cgroup.procs"), "").unwrap();
        // The kernel says EBUSY where the owner of a group has turned a controller on below it.
        std::fs::create_dir_all(origin.join("cgroup.procs")).unwrap();
        let placement = |adopted| Placement::Cgroup {
            group: root.path().join("job"),
            origin: origin.clone(),
            cpu_group: None,
            cpu_origin: None,
            cpu_group_is_shared: false,
            adopted,
            memory: None,
            other: None,
        };
        let cgroups = opened(root.path());
        let process = ProcessHandle::open(std::process::id()).unwrap();
        let joined = JoinedProcess {
            pid: process.pid,
            origin: origin.clone(),
            cpu_origin: None,
            memory_origin: None,
        };
        for joined in [None, Some(&joined)] {
            assert!(cgroups.move_out(&placement(false), joined, &process).is_err());
        }
        assert!(cgroups.move_out(&placement(true), None, &process).is_ok(), "it stays there");
        let above = std::fs::read_to_string(root.path().join("cgroup.procs")).unwrap();
        assert_eq!(above, "", "a group above may limit it less");
    }
}
