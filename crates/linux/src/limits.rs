//! Limits that a cgroup puts on its processes: those of controllers, and programs that filter.
//!
//! A process that is moved out of a group leaves all of it. Files and their values are those of
//! Documentation/admin-guide/cgroup-v2.rst, and of Documentation/scheduler/sched-bwc.rst for
//! version 1; programs are those that bpf(2) attaches to a group (`BPF_PROG_ATTACH`): filters of
//! devices, of addresses, of settings.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use crate::cgroup::Group;

/// Files of version 2 that limit a group, each with the value of a group that is not limited.
const LIMITS: [(&str, &str); 7] = [
    ("cpu.max", "max"),
    ("cpu.uclamp.max", "max"),
    ("cpuset.cpus", ""),
    ("cpuset.mems", ""),
    ("io.max", ""),
    ("memory.high", "max"),
    ("memory.swap.max", "max"),
];

/// A limit on the processes of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The group that has it, which may be above.
    pub group: PathBuf,
    /// Its file, or what else it is.
    pub name: String,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.name, self.group.display())
    }
}

/// The group and those above it, without the root of the hierarchy, which has no limits.
fn up_to<'a>(root: &'a Path, group: &'a Path) -> impl Iterator<Item = &'a Path> {
    group.ancestors().take_while(move |above| above.starts_with(root) && *above != root)
}

/// The nearest limit on a group of version 2, by one of its files, one in `others` or one of those
/// above; or else by programs. `others` are further files whose value is `max` without a limit.
pub fn of_group(root: &Path, group: &Path, others: &[&str]) -> Option<Limit> {
    let others = others.iter().map(|&file| (file, "max"));
    let files: Vec<(&str, &str)> = LIMITS.into_iter().chain(others).collect();
    let limited = |above: &Path| {
        let is_limit = |(file, without): &&(&str, &str)| {
            let value = Group::at(above).read(file).unwrap_or_default();
            let first = value.split_whitespace().next().unwrap_or_default();
            !value.is_empty() && first != *without && !first.is_empty()
        };
        let (file, _) = files.iter().find(is_limit)?;
        Some(Limit { group: above.into(), name: (*file).into() })
    };
    let by_programs = || {
        let name = "a BPF program".into();
        has_programs(root, group).then(|| Limit { group: group.into(), name })
    };
    up_to(root, group).find_map(limited).or_else(by_programs)
}

/// The least value of a file of a group and those above it, where one limits.
pub fn least(root: &Path, group: &Path, file: &str) -> Option<u64> {
    let limits = up_to(root, group).filter_map(|above| Group::at(above).read(file).ok());
    limits.filter_map(|limit| limit.trim().parse().ok()).min()
}

/// The nearest quota of CPU time on a group of version 1.
pub fn quota_v1(root: &Path, group: &Path) -> Option<Limit> {
    const FILE: &str = "cpu.cfs_quota_us";
    let is_limited = |above: &&Path| {
        let quota = Group::at(*above).read(FILE).unwrap_or_default();
        quota.trim().parse::<i64>().is_ok_and(|quota_us| quota_us > 0)
    };
    let above = up_to(root, group).find(is_limited)?;
    Some(Limit { group: above.into(), name: FILE.into() })
}

/// Of `linux/bpf.h`, for which libc has no names.
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_F_QUERY_EFFECTIVE: u32 = 1;

/// Kinds of programs that a group may have (`enum bpf_attach_type`): packets in and out, sockets,
/// devices, addresses, settings, options of sockets.
const KINDS: [u32; 22] =
    [0, 1, 2, 3, 6, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 22, 29, 30, 31, 32];

/// The part of `union bpf_attr` that the query has.
#[repr(C)]
#[derive(Default)]
struct Query {
    target_fd: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    program_ids: u64,
    programs: u32,
    reserved: u32,
}

/// How many programs of a kind are in force in a group; none where that cannot be asked.
fn programs(group: &File, kind: u32) -> u32 {
    let mut query = Query {
        target_fd: group.as_raw_fd() as u32,
        attach_type: kind,
        query_flags: BPF_F_QUERY_EFFECTIVE,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes `query` alone, whose size it gets with it: there is no
    // room for numbers of programs.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size_of::<Query>()) };
    if result == 0 { query.programs } else { 0 }
}

/// Whether programs are in force in a group that are not in force at the root.
fn has_programs(root: &Path, group: &Path) -> bool {
    let open = || Ok::<_, io::Error>((File::open(root)?, File::open(group)?));
    let Ok((root, group)) = open() else { return false };
    KINDS.into_iter().any(|kind| programs(&group, kind) > programs(&root, kind))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nearest_limit_is_told() {
        let root = tempfile::tempdir().unwrap();
        let (above, group) = (root.path().join("user"), root.path().join("user/session"));
        fs::create_dir_all(&group).unwrap();
        let limit = |others: &[&str]| {
            of_group(root.path(), &group, others).map(|limit| (limit.group, limit.name))
        };
        for (file, value) in [
            ("cpu.max", "max 100000\n"),
            ("cpuset.cpus", "\n"),
            ("io.max", ""),
            ("memory.high", "max\n"),
            ("pids.max", "max\n"),
        ] {
            fs::write(group.join(file), value).unwrap();
        }
        fs::write(root.path().join("cpu.max"), "1 100000\n").unwrap();
        assert_eq!(limit(&["pids.max"]), None, "the root has no limits");
        fs::write(above.join("pids.max"), "20\n").unwrap();
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&["pids.max"]), Some((above.clone(), "pids.max".into())));
        fs::write(group.join("pids.max"), "max\n").unwrap();
        assert_eq!(least(root.path(), &group, "pids.max"), Some(20));
        fs::write(group.join("pids.max"), "30\n").unwrap();
        assert_eq!(least(root.path(), &group, "pids.max"), Some(20));
        fs::write(group.join("pids.max"), "max\n").unwrap();
        fs::write(above.join("cpu.max"), "20000 100000\n").unwrap();
        let found = of_group(root.path(), &group, &[]).unwrap();
        assert_eq!(found.to_string(), format!("cpu.max of {}", above.display()));
        fs::write(group.join("cpuset.cpus"), "0-1\n").unwrap();
        assert_eq!(limit(&[]), Some((group.clone(), "cpuset.cpus".into())));
    }

    #[test]
    fn quota_of_version_1_holds_below() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("step/task");
        fs::create_dir_all(&group).unwrap();
        assert_eq!(quota_v1(root.path(), &group), None);
        fs::write(group.join("cpu.cfs_quota_us"), "-1\n").unwrap();
        assert_eq!(quota_v1(root.path(), &group), None);
        fs::write(root.path().join("step/cpu.cfs_quota_us"), "20000\n").unwrap();
        let found = quota_v1(root.path(), &group).unwrap();
        assert_eq!(found.group, root.path().join("step"));
    }

    #[test]
    fn a_directory_that_is_no_group_has_no_programs() {
        let root = tempfile::tempdir().unwrap();
        assert!(!has_programs(root.path(), &root.path().join("none")));
        assert!(!has_programs(root.path(), root.path()));
    }
}
