//! Memory: how much the machine has, how much a cgroup uses, and keeping the daemon's own pages.

use std::{fs, io, path::Path};

use crate::{
    Error, Result,
    cgroup::{self, Group},
};

/// Locks all present and future pages of this process, so that a switch never waits for a disk;
/// pages are locked as they are first used.
pub fn lock_all() -> Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|e| Error::new("lock", "the pages of this process", e))
}

/// Memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// Memory that new programs could have without paging, as the kernel estimates it
    /// (MemAvailable).
    pub available: u64,
}

/// Reads `/proc/meminfo` (proc(5)).
pub fn of_machine(proc_root: &Path) -> Result<Memory> {
    let path = proc_root.join("meminfo");
    let error = |e: io::Error| Error::new("read", path.display(), e);
    let text = fs::read_to_string(&path).map_err(error)?;
    let field = |name| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
    };
    match (field("MemTotal:"), field("MemAvailable:")) {
        (Some(total), Some(available)) => Ok(Memory { total, available }),
        _ => Err(error(io::ErrorKind::InvalidData.into())),
    }
}

/// Memory of processes that is of no file and that they do not share, in bytes. The kernel could
/// not take it back without swapping. Shared memory is left out, since it would be counted again
/// and again.
pub fn of_processes(proc_root: &Path, pids: &[u32]) -> u64 {
    let page = rustix::param::page_size() as u64;
    let of_process = |pid: &u32| {
        let text = fs::read_to_string(proc_root.join(pid.to_string()).join("statm")).ok()?;
        let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
        Some(resident.saturating_sub(shared))
    };
    pids.iter().filter_map(of_process).sum::<u64>() * page
}

/// Memory that a group of either version accounts for, in bytes, but for files' pages, which the
/// kernel can take back and counts as available. Absent where the group accounts for none.
pub fn of_group(group: &Group) -> Option<u64> {
    let text = group.read("memory.stat").ok()?;
    let field = |name| cgroup::keyed_number(&text, name);
    let of_v1 = || Some(field("total_rss")? + field("total_shmem")?);
    of_v1().or_else(|| Some(field("anon")? + field("shmem")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_estimate_is_read() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("meminfo");
        fs::write(&path, "MemTotal:       100 kB\nMemFree: 1 kB\nMemAvailable:    50 kB\n")
            .unwrap();
        let memory = Memory { total: 102_400, available: 51_200 };
        assert_eq!(of_machine(root.path()).unwrap(), memory);
        fs::write(&path, "MemTotal: 100 kB\n").unwrap();
        assert!(of_machine(root.path()).is_err());
    }

    #[test]
    fn this_process_has_memory() {
        let filled = std::hint::black_box(vec![1u8; 1 << 20]);
        assert!(of_processes(Path::new("/proc"), &[std::process::id()]) > filled.len() as u64);
    }

    #[test]
    fn pages_of_files_are_not_held_by_a_group() {
        let root = tempfile::tempdir().unwrap();
        let group = Group::at(root.path());
        assert_eq!(of_group(&group), None);
        let write = |text| fs::write(root.path().join("memory.stat"), text).unwrap();
        write("cache 9\nrss 1\nshmem 1\ntotal_cache 90\ntotal_rss 20\ntotal_shmem 3\n");
        assert_eq!(of_group(&group), Some(23));
        write("anon 5\nfile 100\nkernel 7\nshmem 2\n");
        assert_eq!(of_group(&group), Some(7));
    }
}
