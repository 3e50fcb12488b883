//! Limits that a cgroup puts on its processes: those of controllers, and programs that filter.
//!
//! A process that is moved out of a group leaves all of it. Files and their values are those of
//! Documentation/admin-guide/cgroup-v2.rst, and of Documentation/scheduler/sched-bwc.rst for
//! version 1; programs are those that bpf(2) attaches to a group (`BPF_PROG_ATTACH`): filters of
//! devices, of addresses, of settings.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
};

use crate::cgroup::Group;

/// Files of version 2 that limit a group, each with the value of a group that is not limited.
const LIMITS: [(&str, &str); 8] = [
    ("cpu.max", "max"),
    ("cpu.uclamp.max", "max"),
    ("cpuset.cpus", ""),
    ("cpuset.mems", ""),
    ("io.max", ""),
    ("memory.high", "max"),
    ("memory.swap.max", "max"),
    ("memory.zswap.max", "max"),
];

/// Files of version 2 with a limit for each of many resources, a line of each.
const LISTS: [&str; 3] = ["misc.max", "rdma.max", "dmem.max"];

/// Whether a list limits any resource: a line is the name of one, and a value or several ones with
/// names of their own (`mlx4_0 hca_handle=2 hca_object=max`).
fn limits_any(list: &str) -> bool {
    let mut values = list.lines().flat_map(|line| line.split_whitespace().skip(1));
    values.any(|value| value.rsplit('=').next() != Some("max"))
}

/// The files of a group that limit huge pages, of each size.
fn of_huge_pages(group: &Path) -> Vec<String> {
    let names = std::fs::read_dir(group).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("hugetlb.") && name.ends_with(".max")).collect()
}

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
        let read = |file: &str| Group::at(above).read(file).unwrap_or_default();
        let by_list = || LISTS.into_iter().find(|file| limits_any(&read(file))).map(str::to_owned);
        let by_pages = || of_huge_pages(above).into_iter().find(|file| read(file).trim() != "max");
        let file = files.iter().find(is_limit).map(|(file, _)| (*file).to_owned());
        let name = file.or_else(by_list).or_else(by_pages)?;
        Some(Limit { group: above.into(), name })
    };
    let by_programs = || {
        let name = match has_programs(root, group) {
            Ok(true) => "a BPF program".into(),
            Ok(false) => return None,
            Err(error) => format!("what BPF programs do, which the kernel does not say ({error}),"),
        };
        Some(Limit { group: group.into(), name })
    };
    up_to(root, group).find_map(limited).or_else(by_programs)
}

/// The least value of a file of a group and those above it, where one limits.
pub fn least(root: &Path, group: &Path, file: &str) -> Option<u64> {
    let limits = up_to(root, group).filter_map(|above| Group::at(above).read(file).ok());
    limits.filter_map(|limit| limit.trim().parse().ok()).min()
}

/// The nearest limit by a file, of a group and those above it, that a process would not be under in
/// another group, which has none or a greater one.
pub fn lost(root: &Path, from: &Path, to: &Path, file: &str) -> Option<Limit> {
    let value = |group: &Path| Group::at(group).read(file).ok()?.trim().parse::<u64>().ok();
    let has = least(root, to, file);
    let is_lost = |above: &&Path| value(above).is_some_and(|most| has.is_none_or(|has| has > most));
    let above = up_to(root, from).find(is_lost)?;
    Some(Limit { group: above.into(), name: file.into() })
}

/// The quota of CPU time of version 1, of each period.
const QUOTA_V1: &str = "cpu.cfs_quota_us";

/// The nearest quota of CPU time on a group of version 1.
pub fn quota_v1(root: &Path, group: &Path) -> Option<Limit> {
    let is_limited = |above: &&Path| {
        let quota = Group::at(*above).read(QUOTA_V1).unwrap_or_default();
        quota.trim().parse::<i64>().is_ok_and(|quota_us| quota_us > 0)
    };
    let above = up_to(root, group).find(is_limited)?;
    Some(Limit { group: above.into(), name: QUOTA_V1.into() })
}

/// A quota of CPU time on a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    pub limit: Limit,
    /// The number of the group, its own in its hierarchy as long as the group exists.
    pub group_id: u64,
    /// Thousandths of a CPU, at least 1.
    pub cpu_permille: u32,
    /// The period for which the kernel gives them at a time.
    pub period_us: u32,
}

/// The least quota of CPU time on a group and those above it. The root of a hierarchy has none;
/// that of a cgroup namespace may have one.
pub fn cpu_quota(root: &Path, group: &Path) -> Option<CpuQuota> {
    least_quota(root, group, "cpu.max", |above| {
        let text = above.read("cpu.max").ok()?;
        let mut words = text.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    })
}

/// The same of version 1.
pub fn cpu_quota_v1(root: &Path, group: &Path) -> Option<CpuQuota> {
    least_quota(root, group, QUOTA_V1, |above| {
        let number = |file: &str| above.read(file).ok()?.trim().parse().ok();
        Some((number(QUOTA_V1)?, number("cpu.cfs_period_us")?))
    })
}

/// `read`: the quota of a group and its period, where the group has one.
fn least_quota(
    root: &Path,
    group: &Path,
    file: &str,
    read: impl Fn(&Group) -> Option<(i64, i64)>,
) -> Option<CpuQuota> {
    let found = group.ancestors().take_while(|above| above.starts_with(root)).filter_map(|above| {
        let (quota_us, period_us) = read(&Group::at(above))?;
        let permille = (quota_us > 0 && period_us > 0).then(|| 1000 * quota_us / period_us)?;
        Some(CpuQuota {
            limit: Limit { group: above.into(), name: file.into() },
            group_id: std::fs::metadata(above).ok()?.ino(),
            cpu_permille: permille.clamp(1, u32::MAX.into()) as u32,
            period_us: period_us.clamp(1, u32::MAX.into()) as u32,
        })
    });
    // Of equal ones that of the group that has the others in it.
    found.min_by_key(|quota| (quota.cpu_permille, quota.limit.group.clone()))
}

/// Of `linux/bpf.h`, for which libc has no names.
const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_F_QUERY_EFFECTIVE: u32 = 1;

/// Kinds of programs that a group may have (`enum bpf_attach_type`): packets in and out, sockets,
/// devices, addresses, settings, options of sockets, security checks, and sockets of this machine.
const KINDS: [u32; 29] = [
    0, 1, 2, 3, 6, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 22, 29, 30, 31, 32, 34, 43, 49,
    50, 51, 52, 53,
];

/// Programs of a kind that are in force in a group are no more than these, or cannot be told.
const PROGRAMS_MAX: usize = 1024;

/// `union bpf_attr`, with room for what later kernels add to a query. From Linux 6.17 on the kernel
/// writes a field behind those that are asked for, whatever the size that it was given.
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
    later: [u64; 28],
}

/// `query` has room for as many numbers as it says.
fn ask(query: &mut Query) -> io::Result<()> {
    // SAFETY: the kernel reads and writes `query`, which is larger than its own `union bpf_attr`,
    // and writes at most as many numbers as `query` says to where it says.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut *query, size_of::<Query>())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The numbers of the programs of a kind that are in force in a group. An error where the kernel
/// has such programs and does not tell them.
fn programs(group: &File, kind: u32) -> io::Result<Vec<u32>> {
    let mut ids = vec![0; PROGRAMS_MAX];
    let mut query = Query {
        target_fd: group.as_raw_fd() as u32,
        attach_type: kind,
        query_flags: BPF_F_QUERY_EFFECTIVE,
        program_ids: ids.as_mut_ptr() as u64,
        programs: PROGRAMS_MAX as u32,
        ..Query::default()
    };
    let error = match ask(&mut query) {
        Ok(()) => {
            ids.truncate(query.programs as usize);
            return Ok(ids);
        }
        Err(error) => error,
    };
    match error.raw_os_error() {
        // The kernel does not know the kind, or has no such programs, or this is none of its
        // groups.
        Some(libc::EINVAL | libc::ENOSYS | libc::EBADF) => Ok(Vec::new()),
        // A user moves processes where the kernel lets him do so without gangd.
        Some(libc::EPERM) if !rustix::process::geteuid().is_root() => Ok(Vec::new()),
        _ => Err(error),
    }
}

/// Whether programs are in force in a group that are not in force at the root. A group that is gone
/// has none.
fn has_programs(root: &Path, group: &Path) -> io::Result<bool> {
    let (root, group) = match (File::open(root), File::open(group)) {
        (Err(e), _) | (_, Err(e)) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        (root, group) => (root?, group?),
    };
    for kind in KINDS {
        let of_group = programs(&group, kind)?;
        if !of_group.is_empty() {
            let of_root = programs(&root, kind)?;
            if of_group.iter().any(|id| !of_root.contains(id)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn needs_root_kernel_writes_nothing_behind_a_query() {
        #[repr(C)]
        struct Guarded {
            query: Query,
            behind: [u64; 32],
        }
        let root = crate::cgroup::Hierarchies::detect(&crate::Roots::default()).unwrap().v2;
        let Some(root) = root else {
            gang_harness::skipped("no cgroups of version 2");
            return;
        };
        let root = File::open(root).unwrap();
        for kind in KINDS {
            let query = Query {
                target_fd: root.as_raw_fd() as u32,
                attach_type: kind,
                query_flags: BPF_F_QUERY_EFFECTIVE,
                ..Query::default()
            };
            let mut guarded = Guarded { query, behind: [u64::MAX; 32] };
            // Refused or not.
            let _ = ask(&mut guarded.query);
            assert_eq!(guarded.behind, [u64::MAX; 32], "kind {kind}");
        }
    }

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
    fn least_quota_of_all_groups_above_holds() {
        let root = tempfile::tempdir().unwrap();
        let group = |name: &str| root.path().join(name);
        fs::create_dir_all(group("pod/step/task")).unwrap();
        let of = |name: &str, cpu_max: &str| {
            fs::write(group(name).join("cpu.max"), cpu_max).unwrap();
            let found = cpu_quota(root.path(), &group("pod/step/task"));
            found.map(|it| (it.limit.group, it.cpu_permille))
        };
        assert_eq!(of("pod/step/task", "max 100000\n"), None);
        assert_eq!(of("pod", "150000 100000\n"), Some((group("pod"), 1500)));
        assert_eq!(of("pod/step/task", "20000 10000\n"), Some((group("pod"), 1500)), "a greater");
        assert_eq!(of("pod/step", "1000 1000000\n"), Some((group("pod/step"), 1)));
        assert_eq!(of("pod/step", "1500 1000\n"), Some((group("pod"), 1500)), "an equal one below");
        // That of a cgroup namespace.
        assert_eq!(of("", "50000 100000\n"), Some((group(""), 500)));
        let ids = ["pod", "pod/step"].map(|name| fs::metadata(group(name)).unwrap().ino());
        assert_ne!(ids[0], ids[1]);
        let of_v1 = |quota: &str| {
            fs::write(group("pod/cpu.cfs_quota_us"), quota).unwrap();
            fs::write(group("pod/cpu.cfs_period_us"), "100000\n").unwrap();
            let found = cpu_quota_v1(root.path(), &group("pod/step/task"))?;
            assert_eq!((found.group_id, found.limit.group), (ids[0], group("pod")));
            Some(found.cpu_permille)
        };
        assert_eq!((of_v1("-1\n"), of_v1("20000\n")), (None, Some(200)));
    }

    #[test]
    fn lists_and_sizes_limit_as_well() {
        assert!(!limits_any("") && !limits_any("res_a max\nres_b max\n"));
        assert!(limits_any("res_a max\nres_b 10\n"));
        assert!(!limits_any("mlx4_0 hca_handle=max hca_object=max\n"));
        assert!(limits_any("mlx4_0 hca_handle=2 hca_object=max\n"));
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("user");
        fs::create_dir(&group).unwrap();
        let limit = || of_group(root.path(), &group, &[]).map(|limit| limit.name);
        for file in ["hugetlb.2MB.max", "hugetlb.1GB.max", "misc.max", "memory.zswap.max"] {
            fs::write(group.join(file), "max\n").unwrap();
        }
        fs::write(group.join("misc.max"), "sev max\n").unwrap();
        assert_eq!(limit(), None);
        for (file, value) in [
            ("hugetlb.2MB.max", "4194304\n"),
            ("misc.max", "sev 3\n"),
            ("rdma.max", "mlx4_0 hca_handle=2 hca_object=max\n"),
            ("memory.zswap.max", "0\n"),
        ] {
            let before = fs::read_to_string(group.join(file)).ok();
            fs::write(group.join(file), value).unwrap();
            assert_eq!(limit().as_deref(), Some(file));
            fs::write(group.join(file), before.unwrap_or_default()).unwrap();
        }
    }

    #[test]
    fn limit_that_another_group_lacks_is_lost_there() {
        let root = tempfile::tempdir().unwrap();
        let group = |name: &str, limit: &str| {
            let group = root.path().join(name);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("memory.max"), limit).unwrap();
            group
        };
        let (from, above) = (group("a/b", "max"), group("a", "500"));
        let lost = |to: &Path| lost(root.path(), &from, to, "memory.max").map(|limit| limit.group);
        assert_eq!(lost(&group("none", "max")), Some(above.clone()));
        assert_eq!(lost(&group("greater", "501")), Some(above));
        assert_eq!(lost(&group("least", "500")), None);
        assert_eq!(lost(&group("a/c", "max")), None, "below the same one");
    }

    /// A program for packets that lets all pass.
    fn program() -> io::Result<File> {
        #[repr(C)]
        #[derive(Default)]
        struct Load {
            kind: u32,
            instructions: u32,
            at: u64,
            license: u64,
            rest: [u64; 12],
        }
        const BPF_PROG_LOAD: libc::c_int = 5;
        const CGROUP_SKB: u32 = 8;
        // Moves 1 into register 0, and exits.
        let code: [u64; 2] = [0x1_0000_00b7, 0x95];
        let license = c"GPL";
        let load = Load {
            kind: CGROUP_SKB,
            instructions: 2,
            at: code.as_ptr() as u64,
            license: license.as_ptr() as u64,
            ..Load::default()
        };
        bpf(BPF_PROG_LOAD, &load).map(|fd| {
            // SAFETY: the kernel has just opened it for this process, and nobody else knows it.
            #[allow(unsafe_code)]
            unsafe {
                std::os::fd::FromRawFd::from_raw_fd(fd)
            }
        })
    }

    fn bpf<T>(command: libc::c_int, of: &T) -> io::Result<i32> {
        // SAFETY: the kernel reads what it gets, whose size it gets with it, and what that points
        // to.
        #[allow(unsafe_code)]
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, of, size_of::<T>()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
    }

    /// Attaches a program to packets out of a group; groups below may have others instead.
    fn attach(program: &File, group: &Path) {
        const BPF_PROG_ATTACH: libc::c_int = 8;
        const EGRESS: i32 = 1;
        const ALLOW_OVERRIDE: i32 = 1;
        let group = File::open(group).unwrap();
        let to = [group.as_raw_fd(), program.as_raw_fd(), EGRESS, ALLOW_OVERRIDE];
        bpf(BPF_PROG_ATTACH, &to).unwrap();
    }

    #[test]
    fn needs_root_programs_are_known_by_their_numbers() {
        let root = crate::cgroup::Hierarchies::detect(&crate::Roots::default()).unwrap().v2;
        let Some(root) = root.filter(|_| rustix::process::geteuid().is_root()) else {
            return gang_harness::skipped("needs root, and cgroups of version 2");
        };
        let (first, second) = match (program(), program()) {
            (Ok(first), Ok(second)) => (first, second),
            (Err(e), _) | (_, Err(e)) => return gang_harness::skipped(e),
        };
        let above = Group::at(&root).child(format!("programs-{}", std::process::id()));
        let groups = [above.child("same"), above.child("other")];
        [&above].into_iter().chain(&groups).for_each(|group| group.create().unwrap());
        let [same, other] = groups.each_ref().map(|group| group.path());
        let before = has_programs(&root, same).unwrap();
        attach(&first, above.path());
        attach(&second, other);
        let found = [
            has_programs(&root, same).unwrap(),
            has_programs(above.path(), same).unwrap(),
            has_programs(above.path(), other).unwrap(),
        ];
        groups.iter().chain([&above]).for_each(|group| group.remove().unwrap());
        assert_eq!((before, found), (false, [true, false, true]));
    }

    #[test]
    fn a_directory_that_is_no_group_has_no_programs() {
        let root = tempfile::tempdir().unwrap();
        assert!(!has_programs(root.path(), &root.path().join("none")).unwrap());
        assert!(!has_programs(root.path(), root.path()).unwrap());
    }
}
