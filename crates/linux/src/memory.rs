//! Memory: how much the machine has, how much a cgroup uses, and keeping the daemon's own pages.

use std::{fs, io, path::Path};

use crate::{Error, Result};

/// Locks all present and future pages of this process, so that a switch never waits for a disk; pages
/// are locked as they are first used.
pub fn lock_all() -> Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|e| Error::new("lock", "the pages of this process", e))
}

/// Memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub total: u64,
    /// What new programs could have without paging, as the kernel estimates it (MemAvailable).
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

/// Memory that processes have resident, in bytes. What they share is counted for each of them.
pub fn resident(proc_root: &Path, pids: &[u32]) -> u64 {
    let page = rustix::param::page_size() as u64;
    let of_process = |pid: &u32| {
        let text = fs::read_to_string(proc_root.join(pid.to_string()).join("statm")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    pids.iter().filter_map(of_process).sum::<u64>() * page
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
        assert!(resident(Path::new("/proc"), &[std::process::id()]) > 100_000);
    }
}
