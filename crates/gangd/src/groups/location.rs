//! Where the group of a job is: below the one in which its first process was, or with those of all
//! gangs.
//!
//! Problem: who limits, freezes or kills the group in which a program was called means the program,
//! too. A job that leaves that group leaves its limits, and nobody's kill reaches it. But where the
//! unified hierarchy has the cpu controller, gangs give way to the rest of the machine by one group
//! above those of all gangs.
//!
//! Approach: the group of a job is below that of its first process, where its place does not matter
//! for how gangs give way. Elsewhere it is so for processes that something limits. Such a job is
//! never real-time where a quota limits its CPU time, which binds ordinary threads alone.

use std::path::{Path, PathBuf};

use gang_linux::{
    Error, Result,
    cgroup::{self, Group},
    limits::{self, CpuQuota, Limit},
};
use gang_schedule::{CpuSet, JobId, Policy, Quota};
use gang_timetable::{Controls, record::Placement};

use super::cgroups::Cgroups;
use crate::settings::Leave;

/// The limit on processes of version 2. A job that leaves it keeps as much by itself.
pub(super) const PIDS: &str = "pids.max";

/// Members of a job without a cgroup whose groups are read for a quota.
const QUOTAS_READ: usize = 16;

/// Groups that are looked at for those that an earlier daemon left behind.
const GROUPS_MAX: usize = 100_000;

/// All groups below one whose names begin like that, where there are not too many groups.
pub(super) fn groups_named(root: &Path, prefix: &str) -> Vec<Group> {
    let (mut found, mut at, mut seen) = (Vec::new(), vec![Group::at(root)], 0);
    while let Some(group) = at.pop() {
        seen += 1;
        if seen > GROUPS_MAX {
            break;
        }
        for child in group.children().unwrap_or_default() {
            let name = child.path().file_name().and_then(|name| name.to_str());
            match name.is_some_and(|name| name.starts_with(prefix)) {
                true => found.push(child),
                false => at.push(child),
            }
        }
    }
    found
}

impl Cgroups {
    /// How the names of groups of jobs begin that are below those of their first processes.
    pub(super) fn prefix(&self) -> String {
        format!("{}.job-", self.name)
    }

    /// The group of a job whose first process came from another one, not made yet. One below a
    /// group that may have none below it is with those of other gangs, unless the job would leave a
    /// limit by that.
    pub(super) fn group_for(&self, job: JobId, policy: Policy, origin: &Path) -> Result<Group> {
        let none = || Error::new("make", "a cgroup", std::io::ErrorKind::Unsupported);
        let root = self.root.as_ref().ok_or_else(none)?;
        let stays = self.stays_below(root, policy, origin);
        if stays && !is_threaded(origin) {
            return Ok(Group::at(origin).child(format!("{}{job}", self.prefix())));
        }
        if let (true, Some(limit), false) =
            (stays, self.limit_on(origin), self.leave == Leave::Always)
        {
            let kind = std::io::ErrorKind::Unsupported;
            return Err(Error::new("keep the job within", limit, kind));
        }
        self.own_of(job, policy).ok_or_else(none)
    }

    fn stays_below(&self, root: &Path, policy: Policy, origin: &Path) -> bool {
        if origin == root || !origin.starts_with(root) {
            return false;
        }
        // A job of another daemon would be over with this one alone. Its name is no reason to leave
        // a limit.
        if origin.ancestors().any(is_group_of_job) {
            return self.leave != Leave::Always && self.limit_on(origin).is_some();
        }
        let gives_way_by_place = policy == Policy::Gang && self.cpu.depends_on_place();
        match self.leave {
            _ if !gives_way_by_place => true,
            Leave::Never => true,
            Leave::Always => false,
            Leave::Unconfined => self.limit_on(origin).is_some(),
        }
    }

    /// The nearest limit on a group of the unified hierarchy that a job would leave.
    fn limit_on(&self, group: &Path) -> Option<Limit> {
        let others: &[&str] = if self.can_limit_processes { &[] } else { &[PIDS] };
        limits::of_group(self.root.as_ref()?, group, others)
    }

    /// Limits the processes of a job as where its first process came from.
    fn limit_processes(&self, group: &Group, origin: &Path) -> Result<()> {
        let least = |root| limits::least(root, origin, PIDS);
        let Some((root, most)) = self.root.as_deref().and_then(|it| Some((it, least(it)?))) else {
            return Ok(());
        };
        if !group.has(PIDS) {
            for above in [Some(root), group.path().parent()].into_iter().flatten() {
                Group::at(above).write("cgroup.subtree_control", "+pids")?;
            }
        }
        group.write(PIDS, most.to_string())
    }

    /// Has a job keep the limits of a group that it leaves, as far as it can.
    pub(super) fn keep_limits(&self, group: &Group, origin: &Path) -> Result<()> {
        let is_left = self.can_limit_processes && !group.path().starts_with(origin);
        if is_left { self.limit_processes(group, origin) } else { Ok(()) }
    }

    /// The group of the cpu controller of version 1 to which the processes of a job are moved;
    /// absent where they stay in theirs, which has a quota of CPU time.
    pub(super) fn cpu_group_for(
        &self,
        job: JobId,
        policy: Policy,
        cpu_origin: Option<&Path>,
    ) -> Option<PathBuf> {
        let quota = cpu_origin.and_then(|origin| self.quota_on(origin));
        let stays = quota.is_some() && self.leave != Leave::Always;
        self.cpu.of_job(&self.name, job, policy).filter(|_| !stays)
    }

    fn quota_on(&self, cpu_group: &Path) -> Option<Limit> {
        limits::quota_v1(self.cpu.v1_root()?, cpu_group)
    }

    /// Why the threads of a job are never made real-time ones: a quota would not hold, or the
    /// kernel refuses.
    pub fn kept_from_realtime(&self, placement: &Placement) -> Option<String> {
        let is_barred = || {
            let Placement::Cgroup { cpu_group, cpu_origin, .. } = placement else { return None };
            let at = cpu_group.as_ref().or(cpu_origin.as_ref())?;
            let runtime = Group::at(at).read("cpu.rt_runtime_us").ok()?;
            (runtime.trim() == "0").then(|| format!("cpu.rt_runtime_us of {}", at.display()))
        };
        self.cpu_quota(placement).map(|quota| quota.limit.to_string()).or_else(is_barred)
    }

    /// The quota of CPU time that binds a job where it lives: the least of both versions. One that
    /// has all CPUs of the machine binds nobody.
    pub fn cpu_quota(&self, placement: &Placement) -> Option<CpuQuota> {
        let online = || {
            let online =
                Group::at(self.roots.sys.join("devices/system/cpu")).read("online").ok()?;
            Some(online.trim().parse::<CpuSet>().ok()?.len() as u64)
        };
        let binds = |quota: &CpuQuota| {
            online().is_none_or(|online| u64::from(quota.cpu_permille) < 1000 * online)
        };
        self.quota_on_file(placement).filter(binds)
    }

    fn quota_on_file(&self, placement: &Placement) -> Option<CpuQuota> {
        match placement {
            Placement::Cgroup { group, cpu_group, cpu_origin, .. } => {
                let v1 = cpu_group.as_ref().or(cpu_origin.as_ref());
                self.least_quota(Some(group), v1.map(PathBuf::as_path))
            }
            Placement::Tree { processes } => {
                self.quota_of_processes(processes.iter().map(|(pid, _)| *pid))
            }
            Placement::Threads { threads } => {
                self.quota_of_processes(threads.iter().map(|single| single.pid))
            }
        }
    }

    /// The least of processes wherever they are, of the first ones.
    fn quota_of_processes(&self, pids: impl Iterator<Item = u32>) -> Option<CpuQuota> {
        let of_process = |pid| {
            let (v2, v1) = cgroup::of_process(&self.roots, pid, "cpu").ok()?;
            let at = |root: &Path, group: &str| root.join(group.trim_start_matches('/'));
            let v2 = self.root_of_v2().map(|root| at(root, &v2));
            let v1 = self.cpu_root_of_v1().zip(v1).map(|(root, group)| at(root, &group));
            self.least_quota(v2.as_deref(), v1.as_deref())
        };
        let quotas = pids.take(QUOTAS_READ).filter_map(of_process);
        quotas.min_by_key(|quota| quota.cpu_permille)
    }

    fn least_quota(&self, v2: Option<&Path>, v1: Option<&Path>) -> Option<CpuQuota> {
        let of_v2 = self.root_of_v2().zip(v2).and_then(|(root, at)| limits::cpu_quota(root, at));
        let of_v1 =
            self.cpu_root_of_v1().zip(v1).and_then(|(root, at)| limits::cpu_quota_v1(root, at));
        of_v2.into_iter().chain(of_v1).min_by_key(|quota| quota.cpu_permille)
    }

    pub(super) fn root_of_v2(&self) -> Option<&Path> {
        self.root.as_deref().or(self.hierarchies.v2.as_deref())
    }

    fn cpu_root_of_v1(&self) -> Option<&Path> {
        self.cpu.v1_root().or_else(|| self.hierarchies.v1.get("cpu").map(PathBuf::as_path))
    }

    /// The limits on CPU time where a job lives, as its members have them.
    pub fn note_cpu_limits(&self, controls: &mut Controls, placement: &Placement) {
        controls.kept_from_realtime = self.kept_from_realtime(placement).is_some();
        controls.quota = self.cpu_quota(placement).map(|of| Quota {
            group: of.group_id,
            cpu_permille: of.cpu_permille,
            period_us: of.period_us,
        });
    }

    /// The group of version 2 that a job has left, where a kill of it would not reach the job.
    pub fn left_group(&self, placement: &Placement) -> Option<PathBuf> {
        let Placement::Cgroup { group, origin, adopted, .. } = placement else { return None };
        let root = self.root.as_ref()?;
        let is_left = !adopted && origin.starts_with(root) && origin != root;
        (is_left && !group.starts_with(origin)).then(|| origin.clone())
    }

    /// Kills all processes of a job, those that are started meanwhile among them.
    pub fn kill(&self, placement: &Placement) {
        let Placement::Cgroup { group, .. } = placement else { return };
        let group = Group::at(group);
        // Linux 5.14.
        if group.write("cgroup.kill", "1").is_err() {
            tracing::debug!(group = %group.path().display(), "killed one by one");
        }
    }

    /// The limit or setting that keeps a gang in the groups of its caller, where it does not give
    /// way to the whole machine out of its slots for that reason.
    pub fn kept_by(&self, placement: &Placement) -> Option<String> {
        let Placement::Cgroup { group, origin, cpu_group, .. } = placement else { return None };
        let gives_way = self.has_own(placement) || self.cpu.gives_way(group, cpu_group.is_some());
        if !self.cpu.can_give_way() || gives_way {
            return None;
        }
        let limit = || self.limit_on(origin).map(|limit| limit.to_string());
        let by_setting = || "the setting [cgroups] leave".to_owned();
        Some(self.kept_from_realtime(placement).or_else(limit).unwrap_or_else(by_setting))
    }

    /// The group that is frozen, of that of a job and those above it: the nearest one.
    pub fn frozen_by(&self, placement: &Placement) -> Option<String> {
        let Placement::Cgroup { group, .. } = placement else { return None };
        let root = self.root_of_v2()?;
        // The root itself cannot be.
        let groups = group.ancestors().take_while(|of| of.starts_with(root) && *of != root);
        let is_frozen = |of: &&Path| {
            let asked = Group::at(*of).read("cgroup.freeze");
            asked.is_ok_and(|asked| asked.trim() == "1")
        };
        let found = groups.into_iter().find(is_frozen).map(Path::to_owned);
        found.or_else(|| self.frozen_by_v1(placement)).map(|of| of.display().to_string())
    }

    /// The same of version 1: the control of the group with which those below stand still.
    fn frozen_by_v1(&self, placement: &Placement) -> Option<PathBuf> {
        let root = self.hierarchies.v1.get("freezer")?;
        let pid = *self.processes_of(placement).ok()?.first()?;
        let (_, group) = cgroup::of_process(&self.roots, pid, "freezer").ok()?;
        let group = root.join(group?.trim_start_matches('/'));
        let mut groups = group.ancestors().take_while(|of| of.starts_with(root) && of != root);
        let is_frozen = |of: &&Path| {
            Group::at(*of).read("freezer.self_freezing").is_ok_and(|asked| asked.trim() == "1")
        };
        groups.find(is_frozen).map(|group| group.join("freezer.state"))
    }

    /// The limit that a process would leave as it comes into a job that is elsewhere.
    pub fn left_by(&self, placement: &Placement, pid: u32) -> Result<Option<Limit>> {
        let Placement::Cgroup { group, cpu_group, adopted, .. } = placement else {
            return Ok(None);
        };
        if self.leave == Leave::Always {
            return Ok(None);
        }
        let (origin, cpu_origin) = self.origins(pid)?;
        let is_left = |limit: &Limit, to: &PathBuf| !to.starts_with(&limit.group);
        let of_v2 = self.limit_on(&origin).filter(|limit| !adopted && is_left(limit, group));
        let greater = || self.greater_limit(&origin, group).filter(|_| !adopted);
        let of_v1 = || {
            let (to, origin) = (cpu_group.as_ref()?, cpu_origin?);
            self.quota_on(&origin).filter(|limit| is_left(limit, to))
        };
        let of_memory = || self.greater_memory_v1(placement, pid).transpose();
        Ok(match of_v2.or_else(greater).or_else(of_v1) {
            Some(limit) => Some(limit),
            None => of_memory().transpose()?,
        })
    }

    /// A limit on memory or processes of a group that is greater, or absent, in another one. A job
    /// has the limits of its first process there, not those of others.
    fn greater_limit(&self, from: &Path, to: &Path) -> Option<Limit> {
        let root = self.root.as_deref()?;
        ["memory.max", PIDS].into_iter().find_map(|file| limits::lost(root, from, to, file))
    }

    /// The same of version 1, where the memory of a job is limited in a group of its own.
    fn greater_memory_v1(&self, placement: &Placement, pid: u32) -> Result<Option<Limit>> {
        let at = placement.confinement().filter(|at| at.origin.is_some());
        let (Some(at), Some(root)) = (at, self.memory_root_v1()) else { return Ok(None) };
        let from = self.memory_origin(pid)?;
        Ok(from.and_then(|from| limits::lost(root, &from, &at.group, "memory.limit_in_bytes")))
    }
}

/// Whether a daemon has made a group for a job, by its name and by who has made it. Users may give
/// any name to groups in what was delegated to them.
pub(super) fn is_group_of_job(group: &Path) -> bool {
    let is_named = || Some(is_of_job(group.file_name()?.to_str()?));
    is_named().unwrap_or(false) && is_made_by_daemons(group)
}

/// Whether the daemon's user has made a group.
pub(super) fn is_made_by_daemons(group: &Path) -> bool {
    let own_uid = rustix::process::geteuid().as_raw();
    Group::at(group).owner_uid().is_ok_and(|uid| uid == own_uid)
}

/// The name of a job's group, of any daemon: `job-7`, `gangd-12ab.job-7` or `gangd-12ab-job-7`.
fn is_of_job(name: &str) -> bool {
    let is_beside = |of: &str| of.starts_with("gangd") && of.ends_with('-');
    let is_ours = |of: &str| of.is_empty() || of.ends_with('.') || is_beside(of);
    let number = name.rsplit_once("job-").filter(|(of, _)| is_ours(of));
    number.is_some_and(|(_, number)| number.parse::<u64>().is_ok())
}

/// A group of threads has no groups below it to which processes can be moved.
fn is_threaded(group: &Path) -> bool {
    Group::at(group).read("cgroup.type").is_ok_and(|kind| kind.contains("threaded"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gang_linux::{Roots, cgroup::Hierarchies};
    use gang_timetable::{Backend, record::Confinement};

    use super::super::{cpu::CpuGroups, memory::MemoryControl};
    use super::*;

    /// The groups below a directory, with those of processes as a directory of its own lists them.
    fn cgroups(root: &Path, memory: MemoryControl) -> Cgroups {
        Cgroups {
            roots: Roots { proc: root.join("proc"), sys: root.join("sys") },
            root: Some(root.into()),
            name: "gangd".into(),
            cpu: CpuGroups::none(Backend::Freeze),
            memory,
            backend: Backend::Freeze,
            leave: Leave::default(),
            can_limit_processes: true,
            hierarchies: Hierarchies::default(),
        }
    }

    fn group(root: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let group = root.join(name);
        fs::create_dir_all(&group).unwrap();
        files.iter().for_each(|(file, text)| fs::write(group.join(file), text).unwrap());
        group
    }

    #[test]
    fn name_of_a_group_leads_out_of_no_limit() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut cgroups = cgroups(root, MemoryControl::None);
        let above = group(root, "user", &[]);
        let origin = group(root, "user/job-7", &[]);
        let of = |cgroups: &Cgroups| {
            let found = cgroups.group_for(JobId(3), Policy::None, &origin).unwrap();
            found.path().strip_prefix(root).unwrap().to_owned()
        };
        assert_eq!(of(&cgroups), Path::new("gangd.none/job-3"), "as beside a job of a daemon");
        fs::write(above.join("cpu.max"), "1000 100000\n").unwrap();
        assert_eq!(of(&cgroups), Path::new("user/job-7/gangd.job-3"));
        cgroups.leave = Leave::Always;
        assert_eq!(of(&cgroups), Path::new("gangd.none/job-3"));
        (cgroups.leave, _) = (Leave::Never, fs::remove_file(above.join("cpu.max")).unwrap());
        if std::os::unix::fs::chown(&origin, Some(65_534), None).is_err() {
            return gang_harness::skipped("needs root, to give a directory away");
        }
        assert_eq!(of(&cgroups), Path::new("user/job-7/gangd.job-3"), "no daemon has made it");
        assert!(!is_group_of_job(&origin) && is_of_job("job-7"));
    }

    #[test]
    fn newcomer_leaves_no_limit_that_its_job_has_not() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let cgroups = cgroups(root, MemoryControl::V2(root.into()));
        let process = group(root, "proc/7", &[("cgroup", "0::/small/inner\n")]);
        let small = group(root, "small", &[]);
        group(root, "small/inner", &[("memory.max", "max\n"), ("pids.max", "max\n")]);
        let job = group(root, "gangd/job-1", &[]);
        let placement = Placement::Cgroup {
            group: job.clone(),
            origin: root.join("elsewhere"),
            cpu_group: None,
            cpu_origin: None,
            cpu_group_is_shared: false,
            adopted: false,
            memory: None,
            other: None,
        };
        let left = || cgroups.left_by(&placement, 7).unwrap().map(|limit| limit.to_string());
        for file in ["memory.max", "pids.max"] {
            assert_eq!(left(), None);
            fs::write(small.join(file), "1000\n").unwrap();
            let expected = format!("{file} of {}", small.display());
            assert_eq!(left(), Some(expected.clone()));
            fs::write(job.join(file), "1001\n").unwrap();
            assert_eq!(left(), Some(expected), "the job may have more");
            fs::write(job.join(file), "1000\n").unwrap();
        }
        assert_eq!(left(), None, "it has the same limits");
        // Version 1.
        let v1 = cgroups_of_v1(root);
        let within = root.join("v1/job");
        fs::write(process.join("cgroup"), "1:memory:/step\n0::/\n").unwrap();
        let mut placement = placement;
        let at = Confinement { group: within, origin: Some(root.join("v1")), inherited: None };
        placement.set_confinement(Some(at));
        let left = v1.left_by(&placement, 7).unwrap().unwrap();
        assert_eq!(left.group, root.join("v1/step"));
        fs::write(root.join("v1/job/memory.limit_in_bytes"), "4096\n").unwrap();
        assert_eq!(v1.left_by(&placement, 7).unwrap(), None);
    }

    fn cgroups_of_v1(root: &Path) -> Cgroups {
        let unlimited = [("memory.limit_in_bytes", "9223372036854771712\n")];
        group(root, "v1/job", &unlimited);
        group(root, "v1/step", &[("memory.limit_in_bytes", "4096\n")]);
        cgroups(root, MemoryControl::V1(root.join("v1")))
    }

    #[test]
    fn groups_of_jobs_are_known_by_name() {
        for name in ["job-7", "gangd.job-7", "gangd-12ab.job-70", "gangd-job-7"] {
            assert!(is_of_job(name), "{name}");
        }
        for name in ["job-", "job-x", "nightjob-7", "gangd", "session-1.scope", "job-7.service"] {
            assert!(!is_of_job(name), "{name}");
        }
    }

    #[test]
    fn groups_are_found_by_the_beginnings_of_their_names() {
        let root = tempfile::tempdir().unwrap();
        for path in ["a/b/gangd.job-1", "a/gangd.job-2/inner", "gangd/job-3", "a/gangdx.job-4"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let mut found: Vec<PathBuf> = groups_named(root.path(), "gangd.job-")
            .into_iter()
            .map(|group| group.path().strip_prefix(root.path()).unwrap().into())
            .collect();
        found.sort();
        assert_eq!(found, [Path::new("a/b/gangd.job-1"), Path::new("a/gangd.job-2")]);
    }
}
