//! The cgroups of jobs, and moving processes in and out of them.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use gang_engine::{
    bound::{ControlFile, ControlFiles, ProcessHandle},
    probe::{CpuControl, Means, has_cpu_below},
    roster::Roster,
    shared_group,
};
use gang_linux::{
    Error, Result, Roots,
    cgroup::{self, Group, Hierarchies},
    error::{if_there, unless_gone},
    process,
};
use gang_schedule::{JobId, Policy};
use gang_timetable::{
    Attributes, Backend, Members,
    record::{JoinedProcess, Placement},
};

use super::{
    cpu::CpuGroups,
    location::{groups_named, is_made_by_daemons},
    memory::MemoryControl,
    own::{lives_in, remove_beside},
};
use crate::settings::Leave;

/// Where the processes of a job are, for threads that do not own the state.
#[derive(Clone, Debug)]
pub struct Address {
    pub placement: Placement,
    /// Of a job without a cgroup: those of its processes that are known.
    pub tree: Vec<Arc<ProcessHandle>>,
}

/// The cgroups of one daemon.
#[derive(Clone, Debug)]
pub struct Cgroups {
    pub(super) roots: Roots,
    /// The root of the unified hierarchy, where this user may make groups.
    pub(super) root: Option<PathBuf>,
    /// The group above those of all jobs.
    pub(super) name: String,
    pub cpu: CpuGroups,
    pub(super) memory: MemoryControl,
    pub(super) backend: Backend,
    /// Whether jobs leave the groups of their first processes.
    pub(super) leave: Leave,
    /// Groups of jobs can have a limit on processes, of version 2.
    pub(super) can_limit_processes: bool,
    /// Those that the machine has, also where this user may make no groups.
    pub(super) hierarchies: Hierarchies,
}

/// Handles on processes of a job that are open at a time. Each is a descriptor, and a job may have
/// more processes than the daemon may have descriptors.
const PART: usize = 256;

/// Handles on some processes of a list. A number may be given to another process before the handle
/// is opened, so the list is read again. A process that lives after that had its number all the
/// time.
fn handles_of(
    pids: &[u32],
    list: impl Fn() -> Result<Vec<u32>>,
) -> Result<Vec<Arc<ProcessHandle>>> {
    let mut handles = Vec::new();
    for &pid in pids {
        match ProcessHandle::open(pid) {
            Ok(process) => handles.push(process),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    let mut listed = list()?;
    listed.sort_unstable();
    handles.retain(|process| listed.binary_search(&process.pid).is_ok() && process.is_alive());
    Ok(handles)
}

fn can_limit_processes(means: &Means) -> bool {
    means.hierarchies.v2_controllers.iter().any(|controller| controller == "pids")
}

/// Removes the groups of jobs in which nobody is; true where somebody is in one of them.
fn remove_all_unused(parent: &Group) -> bool {
    let groups = parent.children().unwrap_or_default();
    groups.iter().filter(|group| group.remove_unused()).count() > 0
}

/// The groups that are made for a job alone.
fn made_for(placement: &Placement) -> Vec<Group> {
    let Placement::Cgroup { group, cpu_group, cpu_group_is_shared, adopted, .. } = placement else {
        return Vec::new();
    };
    let own = Some(group).filter(|_| !adopted);
    let of_cpu = cpu_group.as_ref().filter(|_| !cpu_group_is_shared);
    own.into_iter().chain(of_cpu).map(Group::at).collect()
}

fn guardian_group(root: &Path, name: &str) -> Group {
    Group::at(root).child(format!("{name}.guardian"))
}

impl Cgroups {
    /// Makes the groups above the jobs.
    pub fn open(
        roots: Roots,
        means: &Means,
        backend: Backend,
        name: &str,
        leave: Leave,
    ) -> Cgroups {
        let mut cgroups = Cgroups {
            roots,
            root: means.groups.clone(),
            name: name.to_owned(),
            cpu: CpuGroups::none(backend),
            memory: MemoryControl::of(means),
            backend,
            leave,
            can_limit_processes: can_limit_processes(means),
            hierarchies: means.hierarchies.clone(),
        };
        if let Some(parent) = cgroups.parent() {
            if let Err(error) = parent.create() {
                tracing::warn!(%error, "jobs are followed by their process trees");
                cgroups.root = None;
            }
        }
        // A group that an earlier daemon had no time to remove would give its CPU time to a job of
        // this one.
        for parent in cgroups.parent().iter().chain(&cgroups.plain_parent()) {
            remove_all_unused(parent);
        }
        for group in cgroups.root.iter().flat_map(|root| groups_named(root, &cgroups.prefix())) {
            group.remove_unused();
        }
        if let Some(root) = &cgroups.root {
            remove_beside(root, name);
        }
        let above = cgroups.root.as_deref().map(Group::at).zip(cgroups.parent());
        cgroups.cpu = CpuGroups::open(&means.cpu, backend, above);
        cgroups
    }

    /// The group above those of jobs of policy `none`.
    pub(super) fn plain_parent(&self) -> Option<Group> {
        self.root.as_ref().map(|root| Group::at(root).child(format!("{}.none", self.name)))
    }

    /// The group of a guardian that lives apart from its daemon, where there may be one.
    ///
    /// Nobody could turn the cpu controller on beside a real-time thread in a group, where the
    /// kernel groups real-time threads. Where the controller is on, such a kernel does not let the
    /// guardian in, and no harm is done.
    pub fn of_guardian(&self, means: &Means) -> Option<Group> {
        let root = self.root.as_ref()?;
        let may_be_turned_on =
            means.cpu == CpuControl::V2 && !has_cpu_below(&Group::at(root)).unwrap_or(false);
        (!may_be_turned_on).then(|| guardian_group(root, &self.name))
    }

    /// The group above those of all other jobs.
    pub(super) fn parent(&self) -> Option<Group> {
        self.root.as_ref().map(|root| Group::at(root).child(&self.name))
    }

    /// Where a job is going to live, by its first process. Nothing is made yet.
    pub fn placement_for(
        &self,
        job: JobId,
        policy: Policy,
        first: &ProcessHandle,
    ) -> Result<Placement> {
        if self.root.is_none() {
            let started = process::stat(&self.roots.proc, first.pid)?.start_ticks;
            return Ok(Placement::Tree { processes: vec![(first.pid, started)] });
        }
        let (origin, _) = self.origins(first.pid)?;
        let group = self.group_for(job, policy, &origin)?;
        self.in_group(job, policy, &group, first.pid, false)
    }

    /// The group of version 2 that a job is to have.
    pub(super) fn own_of(&self, job: JobId, policy: Policy) -> Option<Group> {
        let parent = match policy {
            Policy::Gang => self.parent(),
            Policy::None => self.plain_parent(),
        };
        parent.map(|parent| parent.child(format!("job-{job}")))
    }

    /// Makes the groups in which a job is going to live, where they are not there.
    pub fn make(&self, placement: &Placement) -> Result<()> {
        let Placement::Cgroup { group, origin, cpu_group, adopted, .. } = placement else {
            return Ok(());
        };
        if !adopted {
            let group = Group::at(group);
            let own = [self.parent(), self.plain_parent()].into_iter().flatten();
            for parent in own.filter(|parent| group.path().starts_with(parent.path())) {
                parent.create()?;
            }
            group.create()?;
            self.keep_limits(&group, origin)?;
        }
        cpu_group.as_ref().map_or(Ok(()), |group| self.cpu.make(group))
    }

    /// Removes what is left of the groups that a job may have had by its policies; true where one
    /// of them has processes.
    pub fn remove_all_of(&self, job: JobId) -> bool {
        let policies = [Policy::Gang, Policy::None];
        let own = policies.into_iter().filter_map(|policy| self.own_of(job, policy));
        let of_cpu = self.cpu.own_group_of(&self.name, job);
        own.chain(of_cpu).chain(self.group_beside(job)).filter(Group::remove_unused).count() > 0
    }

    /// Removes the groups that were made for one placement of a job, and that are not of the other
    /// one, where they have no processes.
    pub fn unmake(&self, placement: &Placement, but: &Placement) {
        let kept = made_for(but);
        for group in made_for(placement).into_iter().filter(|group| !kept.contains(group)) {
            group.remove_unused();
        }
    }

    /// Where a job lives that is a cgroup already.
    pub fn adopt(
        &self,
        job: JobId,
        policy: Policy,
        group: &Group,
        first: u32,
    ) -> Result<Placement> {
        self.in_group(job, policy, group, first, true)
    }

    fn in_group(
        &self,
        job: JobId,
        policy: Policy,
        group: &Group,
        first: u32,
        adopted: bool,
    ) -> Result<Placement> {
        let (origin, cpu_origin) = self.origins(first)?;
        let cpu_group = self.cpu_group_for(job, policy, cpu_origin.as_deref());
        let cpu_group_is_shared = self.cpu.is_idle_as_a_whole(group.path(), cpu_group.is_some());
        Ok(Placement::Cgroup {
            group: group.path().into(),
            origin,
            cpu_group,
            cpu_origin,
            cpu_group_is_shared,
            adopted,
            memory: None,
            other: None,
        })
    }

    /// The groups a process is in, as paths of the mounted file systems.
    pub(super) fn origins(&self, pid: u32) -> Result<(PathBuf, Option<PathBuf>)> {
        let (v2, v1) = cgroup::of_process(&self.roots, pid, "cpu")?;
        let below = |root: &Path, group: &str| root.join(group.trim_start_matches('/'));
        let origin = self.root.as_ref().map_or_else(PathBuf::new, |root| below(root, &v2));
        let cpu_origin = self.cpu.v1_root().zip(v1).map(|(root, group)| below(root, &group));
        Ok((origin, cpu_origin))
    }

    /// Where a process comes from, if not from where the first one of the job did.
    pub fn joined(&self, placement: &Placement, pid: u32) -> Result<Option<JoinedProcess>> {
        let Placement::Cgroup { origin: of_first, cpu_origin: cpu_of_first, memory, .. } =
            placement
        else {
            return Ok(None);
        };
        let (origin, cpu_origin) = self.origins(pid)?;
        let memory_of_first = memory.as_ref().and_then(|at| at.origin.as_ref());
        let memory_origin = memory_of_first.map(|_| self.memory_origin(pid)).transpose()?.flatten();
        let is_the_same = origin == *of_first
            && cpu_origin == *cpu_of_first
            && memory_origin.as_ref() == memory_of_first;
        Ok((!is_the_same).then_some(JoinedProcess { pid, origin, cpu_origin, memory_origin }))
    }

    /// The group of version 2 that a process is in.
    pub fn group_of(&self, pid: u32) -> Option<PathBuf> {
        let (group, _) = cgroup::of_process(&self.roots, pid, "cpu").ok()?;
        Some(self.root.as_ref()?.join(group.trim_start_matches('/')))
    }

    /// The job of this daemon that a process is in already, by the name of its group, which the
    /// daemon has made. A job that adopted a group has no such name.
    pub fn job_of(&self, pid: u32) -> Option<JobId> {
        let group = self.group_of(pid).filter(|group| is_made_by_daemons(group))?;
        let parents = self.parent().into_iter().chain(self.plain_parent());
        let with_others = parents.into_iter().find_map(|parent| {
            let name = group.strip_prefix(parent.path()).ok()?.to_str()?;
            name.strip_prefix("job-").map(str::to_owned)
        });
        let named = || {
            let name = group.file_name()?.to_str()?;
            let number = name.strip_prefix(&self.prefix()).or_else(|| self.number_beside(name));
            number.map(str::to_owned)
        };
        with_others.or_else(named)?.parse().ok().map(JobId)
    }

    /// The group of version 1 that a thread is in, where the group may have no real-time threads
    /// (RT_GROUP_SCHED).
    pub fn barred_from_realtime(&self, tid: u32) -> Result<Option<PathBuf>> {
        let (_, Some(group)) = self.origins(tid)? else { return Ok(None) };
        let runtime = if_there(Group::at(&group).read("cpu.rt_runtime_us"))?;
        Ok(runtime.filter(|runtime| runtime.trim() == "0").map(|_| group))
    }

    /// Where a job is going to live when it is scheduled by another policy. Nothing is made yet.
    pub fn placement_by(
        &self,
        job: JobId,
        policy: Policy,
        placement: &Placement,
    ) -> Result<Placement> {
        let mut to = placement.clone();
        let Placement::Cgroup { group, origin, cpu_origin, adopted, .. } = &to else {
            return Ok(to);
        };
        let own = self.cpu_group_for(job, policy, cpu_origin.as_deref());
        let lives = match self.cpu.depends_on_place() && !*adopted {
            true => self.group_for(job, policy, origin)?.path().into(),
            false => group.clone(),
        };
        let is_shared = self.cpu.is_idle_as_a_whole(&lives, own.is_some());
        lives_in(&mut to, lives);
        if let Placement::Cgroup { cpu_group, cpu_group_is_shared, .. } = &mut to {
            (*cpu_group, *cpu_group_is_shared) = (own, is_shared);
        }
        Ok(to)
    }

    /// The processes in the group of a job.
    pub fn processes_of(&self, placement: &Placement) -> Result<Vec<u32>> {
        match placement {
            Placement::Cgroup { group, .. } => unless_gone(Group::at(group).processes()),
            // They do not live anywhere.
            Placement::Tree { .. } | Placement::Threads { .. } => Ok(Vec::new()),
        }
    }

    /// The processes of a job.
    pub fn processes(&self, at: &Address) -> Result<Vec<u32>> {
        match &at.placement {
            Placement::Cgroup { group, .. } => unless_gone(Group::at(group).processes()),
            Placement::Tree { .. } => {
                let alive = at.tree.iter().filter(|process| process.is_alive());
                Ok(alive.map(|process| process.pid).collect())
            }
            Placement::Threads { .. } => Ok(Vec::new()),
        }
    }

    /// Does to each process of a job what must befall nobody else.
    pub fn each_process(&self, at: &Address, mut act: impl FnMut(&ProcessHandle)) -> Result<()> {
        match &at.placement {
            Placement::Cgroup { group, .. } => {
                let list = || unless_gone(Group::at(group).processes());
                for part in list()?.chunks(PART) {
                    handles_of(part, list)?.iter().for_each(|process| act(process));
                }
            }
            Placement::Tree { .. } => at.tree.iter().for_each(|process| act(process)),
            Placement::Threads { .. } => {}
        }
        Ok(())
    }

    /// The members of a job, found by where it lives.
    pub fn members(
        &self,
        placement: &Placement,
        normal: Attributes,
        affinity: &[u32],
    ) -> Result<(Roster, Members)> {
        let everywhere = affinity.iter().copied().collect();
        let roster = match placement {
            Placement::Cgroup { group, cpu_group, .. } => {
                let cpu = cpu_group.as_deref();
                let own_cpu = self.cpu.own_of(group, cpu, self.has_own(placement));
                let open = |path: PathBuf| if_there(ControlFile::open(path));
                let own = |(group, file): (&Path, &str)| open(group.join(file));
                let controls = ControlFiles {
                    freeze: open(group.join("cgroup.freeze"))?,
                    idle: own_cpu.map_or(Ok(None), |(group, _)| own((group, "cpu.idle")))?,
                    weight: own_cpu.map_or(Ok(None), own)?,
                };
                let is_shared = self.cpu.is_idle_as_a_whole(group, cpu.is_some());
                let in_idle_group = is_shared && own_cpu.is_none();
                Roster::of_group(&Group::at(group), controls, in_idle_group)?
            }
            Placement::Tree { processes } => {
                let mut handles = processes.iter().filter_map(|(pid, started)| {
                    let handle = ProcessHandle::open(*pid).ok()?;
                    let stat = process::stat(&self.roots.proc, *pid).ok()?;
                    (stat.start_ticks == *started).then_some(handle)
                });
                let first = handles.next().ok_or_else(|| {
                    let gone = io::Error::from_raw_os_error(3);
                    Error::new("find", "any process of the job", gone)
                })?;
                let mut roster = Roster::of_tree(first);
                let mut members = roster.members(normal, everywhere);
                members.keep_what_stays(self.backend);
                self.note_cpu_limits(&mut members.controls, placement);
                handles.for_each(|handle| roster.add_process(&mut members, handle));
                return Ok((roster, members));
            }
            Placement::Threads { threads } => {
                let roster = Roster::of_threads(threads.clone());
                if roster.is_over(&self.roots.proc) {
                    let gone = io::Error::from_raw_os_error(3);
                    return Err(Error::new("find", "any thread of the job", gone));
                }
                roster
            }
        };
        let mut members = roster.members(normal, everywhere);
        members.keep_what_stays(self.backend);
        self.note_cpu_limits(&mut members.controls, placement);
        Ok((roster, members))
    }

    /// Removes the groups that a daemon of this name left, where they have no processes. True where
    /// one has a process, if only until it has ended: one that was killed, say. The caller holds
    /// the lock of the daemon's socket.
    pub fn clear_up(roots: &Roots, name: &str) -> bool {
        let Ok(hierarchies) = Hierarchies::detect(roots) else { return false };
        let below = format!("{name}.job-");
        let mut used = false;
        let of_v2 = hierarchies.v2.iter().flat_map(|root| {
            [name.to_owned(), format!("{name}.none")].map(|name| Group::at(root).child(name))
        });
        for group in of_v2 {
            // The groups of jobs that are not on file any more: a user who removes a runtime
            // directory does not wait for the guardian.
            used |= remove_all_unused(&group);
            used |= group.remove_unused();
        }
        for group in hierarchies.v2.iter().flat_map(|root| groups_named(root, &below)) {
            used |= group.remove_unused();
        }
        // A guardian removes its own, unless it is killed.
        if let Some(root) = &hierarchies.v2 {
            let _ = guardian_group(root, name).remove();
        }
        used |= hierarchies.v2.as_ref().is_some_and(|root| remove_beside(root, name));
        let Some(root) = hierarchies.v1.get("cpu") else { return used };
        used |= remove_beside(root, name);
        shared_group::remove(root);
        used
    }

    /// Removes the groups above the jobs; those that still have jobs of another daemon stay.
    pub fn close(&self) {
        for parent in self.parent().into_iter().chain(self.plain_parent()) {
            let _ = parent.remove();
        }
        self.cpu.close();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn cpu_controller_is_turned_on_at_the_root() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("gangd");
        std::fs::create_dir(&parent).unwrap();
        let controls = [root.path(), &parent].map(|group| group.join("cgroup.subtree_control"));
        controls.iter().for_each(|file| std::fs::write(file, "memory\n").unwrap());
        let means = Means {
            hierarchies: Hierarchies::default(),
            groups: Some(root.path().into()),
            cpu: CpuControl::V2,
            findings: Vec::new(),
        };
        // The root is probed: would its controller take SCHED_FIFO from jobs? A directory that is
        // no hierarchy lets no process in, so the probe fails. The group above those of jobs needs
        // no controller.
        let cgroups =
            Cgroups::open(Roots::default(), &means, Backend::Rt, "gangd", Leave::default());
        let written = controls.map(|file| std::fs::read_to_string(file).unwrap());
        assert!(!cgroups.cpu.is_shared());
        assert!(written[0].starts_with("-cpu") && written[1] == "memory\n", "{written:?}");
    }

    #[test]
    fn guardian_is_apart_where_it_is_in_nobodys_way() {
        let root = tempfile::tempdir().unwrap();
        let of = |cpu: CpuControl, below: &str| {
            std::fs::write(root.path().join("cgroup.subtree_control"), below).unwrap();
            let groups = Some(root.path().into());
            let hierarchies = Hierarchies::default();
            let means = Means { hierarchies, groups, cpu, findings: Vec::new() };
            let cgroups = Cgroups {
                roots: Roots::default(),
                root: means.groups.clone(),
                name: "gangd-1".into(),
                cpu: CpuGroups::none(Backend::Signal),
                memory: MemoryControl::of(&means),
                backend: Backend::Signal,
                leave: Leave::default(),
                can_limit_processes: can_limit_processes(&means),
                hierarchies: means.hierarchies.clone(),
            };
            cgroups.of_guardian(&means).map(|group| group.path().to_owned())
        };
        let apart = Some(root.path().join("gangd-1.guardian"));
        assert_eq!(of(CpuControl::None, ""), apart);
        assert_eq!(of(CpuControl::V1("/cpu".into()), ""), apart);
        assert_eq!(of(CpuControl::V2, "cpu memory\n"), apart);
        assert_eq!(of(CpuControl::V2, "memory\n"), None, "somebody may turn it on");
    }

    #[test]
    fn process_with_a_reused_number_is_no_member() {
        let mut sleepers = [(); 3].map(|()| Command::new("sleep").arg("600").spawn().unwrap());
        let pids = sleepers.each_ref().map(std::process::Child::id);
        // The first one ended when the list had been read, and its number went to another process.
        let found = handles_of(&pids[..2], || Ok(vec![pids[2], pids[1]])).unwrap();
        let found: Vec<u32> = found.iter().map(|process| process.pid).collect();
        for sleeper in &mut sleepers {
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
        }
        assert_eq!(found, [pids[1]]);
        assert_eq!(handles_of(&pids, || Ok(pids.to_vec())).unwrap().len(), 0, "all have ended");
        assert!(handles_of(&[0], || Ok(vec![0])).is_err(), "no other process has number 0");
    }
}
