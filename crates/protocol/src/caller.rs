//! The weight and the class of a job whose user says neither.
//!
//! A user who makes a program unimportant by nice(1), by SCHED_IDLE or by the class idle of
//! ionice(1), means it as a gang, too.

use std::path::{Path, PathBuf};

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
    /// By the policy of its CPU time or the class of its I/O.
    pub is_idle: bool,
}

impl Caller {
    /// This process; an ordinary one where it cannot be read.
    pub fn of_this_process() -> Caller {
        Caller::of(Path::new("/proc/self/stat"), 0)
    }

    /// Another process, or a thread; an ordinary one where it cannot be read.
    pub fn of_task(id: u32) -> Caller {
        Caller::of(&PathBuf::from(format!("/proc/{id}/stat")), id)
    }

    fn of(stat: &Path, id: u32) -> Caller {
        let stat = std::fs::read_to_string(stat).unwrap_or_default();
        let caller = Caller::of_stat(&stat).unwrap_or_default();
        Caller { is_idle: caller.is_idle || has_idle_io(id), ..caller }
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

#[cfg(test)]
mod tests {
    use super::*;

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
