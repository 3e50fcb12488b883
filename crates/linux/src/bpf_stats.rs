//! For how long the BPF programs of a process run, by the kernel's own count.
//!
//! The kernel counts while somebody asks for it: the `BPF_ENABLE_STATS` command of bpf(2), which
//! ends with the descriptor that it returns, unlike the setting `kernel.bpf_stats_enabled`. It
//! writes the sums beside each program that a process has open, in `/proc/PID/fdinfo`
//! (proc_pid_fdinfo(5)).

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{FromRawFd, OwnedFd},
    path::Path,
};

use crate::{Error, Result, error::unless_gone};

/// Of `linux/bpf.h`, for which libc has no names.
const BPF_ENABLE_STATS: libc::c_int = 32;
const BPF_STATS_RUN_TIME: u32 = 0;

/// As long as this is there the kernel counts, for all programs of the machine.
#[derive(Debug)]
pub struct Counting {
    _descriptor: OwnedFd,
}

impl Counting {
    /// Takes CAP_SYS_ADMIN, and Linux 5.8.
    pub fn start() -> Result<Counting> {
        // The part of `union bpf_attr` that this command has.
        let what = BPF_STATS_RUN_TIME;
        // SAFETY: the kernel reads `what`, whose size it gets with it.
        #[allow(unsafe_code)]
        let number = unsafe {
            libc::syscall(libc::SYS_bpf, BPF_ENABLE_STATS, &raw const what, size_of_val(&what))
        };
        if number < 0 {
            let error = io::Error::last_os_error();
            return Err(Error::new("have the kernel count", "how long BPF programs run", error));
        }
        // SAFETY: the kernel has just opened it, for this process and nobody else.
        #[allow(unsafe_code)]
        let descriptor = unsafe { OwnedFd::from_raw_fd(number as i32) };
        Ok(Counting { _descriptor: descriptor })
    }
}

/// The CPU time that the programs of a process took while the kernel counted, on all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    pub programs: usize,
    pub count: u64,
    pub time_ns: u64,
}

/// Reads it for the programs that a process has open. One that is open twice counts once.
pub fn of_process(proc_root: &Path, pid: u32) -> Result<Runs> {
    let dir = proc_root.join(pid.to_string()).join("fdinfo");
    let error = |e: io::Error| Error::new("read", dir.display(), e);
    let mut programs = BTreeMap::new();
    for entry in fs::read_dir(&dir).map_err(error)? {
        let path = entry.map_err(error)?.path();
        let text = fs::read_to_string(&path).map_err(|e| Error::new("read", path.display(), e));
        // Descriptors that were closed meanwhile are gone.
        let text = unless_gone(text)?;
        let number = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            value.trim().parse::<u64>().ok()
        };
        // Of descriptors, only programs have both; links have the number of their program.
        if let (Some(id), Some(time_ns)) = (number("prog_id"), number("run_time_ns")) {
            programs.insert(id, (time_ns, number("run_cnt").unwrap_or(0)));
        }
    }
    let sums = programs.values().fold((0, 0), |(time, count), of| (time + of.0, count + of.1));
    Ok(Runs { programs: programs.len(), count: sums.1, time_ns: sums.0 })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn programs_are_summed_up_once_each() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("7/fdinfo");
        fs::create_dir_all(&dir).unwrap();
        let program = |id: u32, ns: u32, count: u32| {
            format!(
                "pos:\t0\nprog_type:\t26\nprog_id:\t{id}\nrun_time_ns:\t{ns}\nrun_cnt:\t{count}\n"
            )
        };
        for (number, text) in [
            ("3", "pos:\t0\nflags:\t02\n".into()),
            ("4", program(11, 500, 5)),
            ("5", program(12, 70, 1)),
            ("6", program(11, 500, 5)),
            ("7", "link_type:\ttracing\nprog_id:\t11\n".into()),
        ] {
            fs::write(dir.join(number), text).unwrap();
        }
        let runs = of_process(root.path(), 7).unwrap();
        assert_eq!(runs, Runs { programs: 2, count: 6, time_ns: 570 });
        let error = of_process(root.path(), 8).unwrap_err();
        assert!(error.to_string().ends_with("8/fdinfo"), "{error}");
    }

    #[test]
    fn needs_root_the_kernel_counts_while_it_is_asked_to() {
        let me = std::process::id();
        assert_eq!(of_process(Path::new("/proc"), me).unwrap(), Runs::default());
        let counting = match Counting::start() {
            // Not allowed, or of a kernel that does not know it.
            Err(error)
                if matches!(
                    error.source.raw_os_error(),
                    Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL)
                ) =>
            {
                gang_harness::skipped(format_args!("{error}: {}", error.source));
                return;
            }
            counting => counting.unwrap(),
        };
        // The value ends with it: it is a descriptor, and no program.
        assert_eq!(of_process(Path::new("/proc"), me).unwrap(), Runs::default());
        let link = fs::read_link(format!("/proc/self/fd/{}", counting._descriptor.as_raw_fd()));
        assert_eq!(link.unwrap(), Path::new("anon_inode:bpf-stats"));
    }
}
