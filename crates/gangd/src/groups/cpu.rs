//! The cpu controller's groups, by which jobs give way to the rest of the machine.
//!
//! With backend rt one group of all jobs is idle as a whole. In version 1 processes are put into it
//! besides their own groups; in version 2 it is the group above those of all jobs. With backend
//! weight each job has a group that weighs it: in version 1 again one besides, in version 2 the
//! group that the job lives in.
//!
//! With backend rt, too, a gang may have a group that weighs it alone
//! ([`gang_conductor::short_lived`]). The group lies beside that of all gangs: in version 1 below
//! the root of the controller, in version 2 below that of the hierarchy, and the job lives in it. A
//! kernel that groups real-time threads gives it none of their time, which such a gang does not
//! need.

use std::path::{Path, PathBuf};

use gang_engine::{
    bound::{ControlFile, ControlFiles, ProcessHandle},
    probe::{self, CpuControl},
    shared_group,
};
use gang_linux::{Error, Result, cgroup::Group};
use gang_schedule::{JobId, Policy};
use gang_timetable::Backend;

/// The groups of one daemon that have the cpu controller.
#[derive(Clone, Debug)]
pub struct CpuGroups {
    control: CpuControl,
    /// The group of all jobs: idle as a whole, so that a filling thread gives way to everybody
    /// outside.
    shared: Option<Group>,
    backend: Backend,
}

impl CpuGroups {
    /// None have it.
    pub(super) fn none(backend: Backend) -> CpuGroups {
        CpuGroups { control: CpuControl::None, shared: None, backend }
    }

    /// Makes the group that all jobs share. `above` has the root of the unified hierarchy and the
    /// group above those of jobs, where there are any.
    pub(super) fn open(
        control: &CpuControl,
        backend: Backend,
        above: Option<(Group, Group)>,
    ) -> CpuGroups {
        match prepare(control, backend, above) {
            Ok(shared) => CpuGroups { control: control.clone(), shared, backend },
            Err(error) => {
                let source = &error.source;
                tracing::warn!(%error, %source, "no cpu cgroup for jobs: fillers may delay others");
                CpuGroups::none(backend)
            }
        }
    }

    /// Where the controller's hierarchy of version 1 is mounted, if that is what there is.
    pub(super) fn v1_root(&self) -> Option<&Path> {
        match &self.control {
            CpuControl::V1(root) => Some(root),
            _ => None,
        }
    }

    /// Whether one group of all jobs gives way.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Whether the shared group is the one above those of jobs. A job whose group is elsewhere is
    /// not in it then.
    pub(super) fn is_above(&self) -> bool {
        self.control == CpuControl::V2 && self.is_shared()
    }

    /// Whether the place of a job's group of version 2 decides how the job gives way.
    pub(super) fn depends_on_place(&self) -> bool {
        let is_weighed = self.backend == Backend::Weight && self.control == CpuControl::V2;
        self.is_above() || is_weighed
    }

    /// Whether jobs can give way to the whole machine by groups of the controller.
    pub(super) fn can_give_way(&self) -> bool {
        self.is_shared() || (self.backend == Backend::Weight && self.control != CpuControl::None)
    }

    /// Whether a gang does, by its group of version 2 or by one of version 1.
    pub(super) fn gives_way(&self, group: &Path, has_group: bool) -> bool {
        match (self.backend, &self.control) {
            (Backend::Weight, CpuControl::V1(_)) => has_group,
            (Backend::Weight, _) => Group::at(group).has("cpu.weight"),
            _ => self.is_idle_as_a_whole(group, has_group),
        }
    }

    /// Whether a job is in the shared group: `group` is its group of version 2, `has_group` says
    /// whether it has one of version 1.
    pub(super) fn is_idle_as_a_whole(&self, group: &Path, has_group: bool) -> bool {
        self.shared.as_ref().is_some_and(|shared| match self.v1_root() {
            Some(_) => has_group,
            None => group.starts_with(shared.path()),
        })
    }

    /// The files that set the weight of the group of all jobs, where that group gives way.
    pub fn of_all(&self) -> Option<ControlFiles> {
        let group = self.shared.as_ref()?;
        let weight = match self.control {
            CpuControl::V1(_) => "cpu.shares",
            _ => "cpu.weight",
        };
        let open = |file| ControlFile::open(group.path().join(file)).ok();
        let (idle, weight) = (open("cpu.idle")?, open(weight)?);
        Some(ControlFiles { freeze: None, idle: Some(idle), weight: Some(weight) })
    }

    /// Has the group of all jobs give way again, whatever was made of it.
    pub fn give_way(&self) -> Result<()> {
        match (&self.control, &self.shared) {
            (CpuControl::V1(root), Some(_)) => shared_group::prepare(root).map(drop),
            (_, Some(shared)) => shared.write("cpu.idle", "1"),
            _ => Ok(()),
        }
    }

    /// The group of version 1 that the processes of a job are put into besides. `daemon` is the
    /// name of this daemon's groups.
    pub(super) fn of_job(&self, daemon: &str, job: JobId, policy: Policy) -> Option<PathBuf> {
        let (Some(_), Policy::Gang) = (self.v1_root(), policy) else { return None };
        match (self.backend, &self.shared) {
            (Backend::Rt, Some(shared)) => Some(shared.path().into()),
            (Backend::Weight, _) => self.own_group_of(daemon, job).map(|own| own.path().into()),
            _ => None,
        }
    }

    /// The group of version 1 that a job has for itself, if jobs have any.
    pub(super) fn own_group_of(&self, daemon: &str, job: JobId) -> Option<Group> {
        let root = self.v1_root().filter(|_| self.backend == Backend::Weight)?;
        Some(Group::at(root).child(format!("{daemon}-job-{job}")))
    }

    /// Makes a job's group of version 1, where it is not there.
    pub(super) fn make(&self, group: &Path) -> Result<()> {
        match (self.v1_root(), &self.shared) {
            (Some(root), Some(shared)) if shared.path() == group => {
                shared_group::prepare(root).map(drop)
            }
            _ => Group::at(group).create(),
        }
    }

    /// Puts a process into a job's group of version 1. That of all gangs is made again where
    /// another daemon removed it.
    pub(super) fn move_in(&self, group: &Path, process: &ProcessHandle) -> Result<()> {
        let moved = Group::at(group).add(process.pid);
        match (&moved, self.v1_root(), &self.shared) {
            // The other daemon found the group empty meanwhile.
            (Err(_), Some(root), Some(shared)) if shared.path() == group => {
                shared_group::prepare(root)?.add(process.pid)
            }
            _ => moved,
        }
    }

    /// The group that weighs one job alone, and the file of its weight. `group` is where the job
    /// lives, `cpu_group` its group of version 1, and `is_beside` whether it has one beside that of
    /// all gangs.
    pub(super) fn own_of<'a>(
        &self,
        group: &'a Path,
        cpu_group: Option<&'a Path>,
        is_beside: bool,
    ) -> Option<(&'a Path, &'static str)> {
        let has_own = self.backend == Backend::Weight || is_beside;
        match &self.control {
            CpuControl::V1(_) if has_own => Some((cpu_group?, "cpu.shares")),
            CpuControl::V2 if has_own => Some((group, "cpu.weight")),
            _ => None,
        }
    }

    /// The place of groups that weigh one gang alone, beside that of all gangs. `root` is that of
    /// the unified hierarchy.
    pub(super) fn beside<'a>(&'a self, root: Option<&'a Path>) -> Option<&'a Path> {
        self.shared.as_ref()?;
        match &self.control {
            CpuControl::V1(root) => Some(root),
            CpuControl::V2 => root,
            CpuControl::None => None,
        }
    }

    /// Removes the shared group of version 1 where it has no processes. A group above others serves
    /// more than this controller, and stays.
    pub(super) fn close(&self) {
        if let (Some(root), Some(_)) = (self.v1_root(), &self.shared) {
            shared_group::remove(root);
        }
    }
}

fn prepare(
    control: &CpuControl,
    backend: Backend,
    above: Option<(Group, Group)>,
) -> Result<Option<Group>> {
    match (control, backend) {
        (CpuControl::V1(root), Backend::Rt) => shared_group::prepare(root).map(Some),
        (CpuControl::V2, Backend::Rt | Backend::Weight) => {
            let Some((root, parent)) = above else { return Ok(None) };
            let _lock = shared_group::lock(root.path());
            if !probe::has_cpu_below(&root)? {
                root.write("cgroup.subtree_control", "+cpu")?;
                if backend == Backend::Rt {
                    keep_fifo(&root, &parent)?;
                }
            }
            if backend == Backend::Weight {
                parent.write("cgroup.subtree_control", "+cpu")?;
                return Ok(None);
            }
            parent.write("cpu.idle", "1")?;
            Ok(Some(parent))
        }
        _ => Ok(None),
    }
}

/// Turns the controller off again where it would take SCHED_FIFO from jobs, which then do without
/// the controller.
fn keep_fifo(root: &Group, parent: &Group) -> Result<()> {
    let group = parent.child("probe");
    group.create()?;
    let tried = probe::try_fifo(Some(&group));
    let _ = group.remove();
    tried.map_err(|error| {
        if let Err(error) = root.write("cgroup.subtree_control", "-cpu") {
            let source = &error.source;
            tracing::error!(%error, %source, "the cpu controller keeps jobs from being raised");
        }
        Error::new("use SCHED_FIFO beside the cpu controller in", parent.path().display(), error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_that_takes_sched_fifo_is_turned_off() {
        // The directory is no hierarchy: no process can be moved into its groups, as no real-time
        // process can be where the kernel groups those.
        let root = tempfile::tempdir().unwrap();
        let root = Group::at(root.path());
        let parent = root.child("gangd");
        parent.create().unwrap();
        let control = root.path().join("cgroup.subtree_control");
        let open = |backend| {
            std::fs::write(&control, "memory\n").unwrap();
            let above = Some((root.clone(), parent.clone()));
            let groups = CpuGroups::open(&CpuControl::V2, backend, above);
            (groups, std::fs::read_to_string(&control).unwrap())
        };
        let (groups, written_last) = open(Backend::Rt);
        assert_eq!((groups.control, groups.shared), (CpuControl::None, None));
        assert!(written_last.starts_with("-cpu"), "{written_last:?}");
        assert!(!parent.path().join("probe").exists());
        let (_, written_last) = open(Backend::Weight);
        assert!(written_last.starts_with("+cpu"), "{written_last:?}");
    }
}
