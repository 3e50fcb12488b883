//! The weight and the class of a job whose user says neither.
//!
//! A user who makes a program unimportant by nice(1), by SCHED_IDLE, by the class idle of ionice(1)
//! or by a cgroup that is idle as a whole (`cpu.idle`) means it as a gang, too.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::libc;

use crate::limits::{WEIGHT_DEFAULT, WEIGHT_MIN};
use crate::v1;

/// The weights that the kernel gives to nice values from 0 to 19 (`sched_prio_to_weight`).
const KERNEL_WEIGHTS: [i64; 20] =
    [1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29, 23, 18, 15];

/// The number of SCHED_IDLE (sched(7)).
const SCHED_IDLE: i64 = 5;

/// The priority of I/O is that of one process; its class is above these bits, and 3 is the class
/// idle (linux/ioprio.h).
const IO_OF_PROCESS: libc::c_int = 1;
const IO_CLASS_SHIFT: u32 = 13;
const IO_IDLE: i64 = 3;

/// How a process is scheduled, as far as a job's defaults depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub nice: i64,
    /// By the policy of its CPU time, the class of its I/O or its cgroup.
    pub is_idle: bool,
}

impl Caller {
    /// This process; an ordinary one where it cannot be read.
    pub fn of_this_process() -> Caller {
        Caller::of(Path::new("/proc/self"), 0)
    }

    /// Another process, or a thread; an ordinary one where it cannot be read.
    pub fn of_task(id: u32) -> Caller {
        Caller::of(&PathBuf::from(format!("/proc/{id}")), id)
    }

    fn of(directory: &Path, id: u32) -> Caller {
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
        let caller = Caller::of_stat(&read("stat")).unwrap_or_default();
        let is_idle = caller.is_idle
            || has_idle_io(id)
            || has_idle_group(&read("cgroup"), Path::new("/sys/fs/cgroup"));
        Caller { is_idle, ..caller }
    }

    /// Of a line of `/proc/PID/stat` (proc(5)).
    fn of_stat(line: &str) -> Option<Caller> {
        // The name may have spaces and parentheses; after it comes field 3.
        let (_, rest) = line.rsplit_once(')')?;
        let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<i64>().ok();
        Some(Caller { nice: field(19)?, is_idle: field(41)? == SCHED_IDLE })
    }

    /// A nice value above 0 weighs as it does for the kernel; one below 0 gives nobody more.
    pub fn weight(self) -> i64 {
        let nice = self.nice.clamp(0, KERNEL_WEIGHTS.len() as i64 - 1);
        let weight = WEIGHT_DEFAULT * KERNEL_WEIGHTS[nice as usize];
        ((weight + KERNEL_WEIGHTS[0] / 2) / KERNEL_WEIGHTS[0]).max(WEIGHT_MIN)
    }

    pub fn class(self) -> v1::Class {
        if self.is_idle { v1::Class::standby } else { v1::Class::batch }
    }
}

/// Whether the I/O of a thread, or of this one (0), comes after all others' (ioprio_get(2)). False
/// where the kernel has no block devices.
fn has_idle_io(id: u32) -> bool {
    // SAFETY: it is handed no memory.
    #[allow(unsafe_code)]
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, IO_OF_PROCESS, id) };
    priority >> IO_CLASS_SHIFT == IO_IDLE
}

/// Whether a group of the cpu controller, or one above it, is idle as a whole, by the text of
/// `/proc/PID/cgroup` (cgroups(7)).
fn has_idle_group(cgroups: &str, mount: &Path) -> bool {
    cgroups.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return false };
        // Of version 2, alone or beside version 1.
        let (places, is_of_cpu) = match controllers {
            "" => (["", "unified"], true),
            of => (["cpu", of], of.split(',').any(|controller| controller == "cpu")),
        };
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        let mut files = groups
            .flat_map(|group| places.map(|place| mount.join(place).join(group).join("cpu.idle")));
        is_of_cpu && files.any(|file| fs::read_to_string(file).is_ok_and(|it| it.trim() == "1"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_in_an_idle_group_is_idle() {
        let mount = tempfile::tempdir().unwrap();
        let group = |path: &str, idle: &str| {
            fs::create_dir_all(mount.path().join(path)).unwrap();
            fs::write(mount.path().join(path).join("cpu.idle"), idle).unwrap();
        };
        group("user/slow", "1\n");
        group("user/slow/below", "0\n");
        group("user/fast", "0\n");
        group("unified/slow", "1\n");
        group("cpu,cpuacct/slow", "1\n");
        let is_idle = |text: &str| has_idle_group(text, mount.path());
        for idle in ["0::/user/slow\n", "0::/user/slow/below\n", "0::/slow\n"] {
            assert!(is_idle(idle), "{idle}");
        }
        assert!(is_idle("4:memory:/\n3:cpu,cpuacct:/slow\n0::/\n"));
        for other in ["0::/user/fast\n", "0::/\n", "3:cpuset:/slow\n", "", "0:"] {
            assert!(!is_idle(other), "{other}");
        }
    }

    #[test]
    fn nice_values_weigh_as_for_the_kernel() {
        let weight = |nice| Caller { nice, is_idle: false }.weight();
        assert_eq!([-20, 0, 1, 5, 10, 19].map(weight), [100, 100, 80, 33, 11, 1]);
    }

    #[test]
    fn a_line_of_stat_is_read_behind_the_name() {
        let rest =
            "S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 39 19 1 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0";
        let line = |policy: u32| format!("7 (a ) b) {rest} {policy} 0 0 0\n");
        assert_eq!(Caller::of_stat(&line(0)), Some(Caller { nice: 19, is_idle: false }));
        assert_eq!(Caller::of_stat(&line(5)).map(Caller::class), Some(v1::Class::standby));
        assert_eq!(Caller::of_stat("7 (x) S 1"), None);
        assert!(Caller::of_this_process().nice >= -20);
    }

    #[test]
    fn a_caller_of_idle_io_is_idle() {
        let of = |class: i64| {
            let set = move || {
                let priority = class << IO_CLASS_SHIFT;
                // SAFETY: it is handed no memory, and acts on this thread alone.
                #[allow(unsafe_code)]
                let done =
                    unsafe { libc::syscall(libc::SYS_ioprio_set, IO_OF_PROCESS, 0, priority) };
                assert_eq!(done, 0);
                Caller::of_this_process().is_idle
            };
            std::thread::spawn(set).join().unwrap()
        };
        assert!(of(IO_IDLE));
        assert!(!of(0), "none of its own");
    }
}
