//! Scheduling attributes of threads: `sched_setattr(2)` and its kin.

use std::{io, path::Path, time::Duration};

use crate::{Error, Result, Roots};

/// The scheduling policies of Linux, by their numbers in `sched(7)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedPolicy {
    Other,
    Fifo,
    RoundRobin,
    Batch,
    Idle,
    Deadline,
    Ext,
}

impl SchedPolicy {
    fn number(self) -> u32 {
        match self {
            SchedPolicy::Other => 0,
            SchedPolicy::Fifo => 1,
            SchedPolicy::RoundRobin => 2,
            SchedPolicy::Batch => 3,
            SchedPolicy::Idle => 5,
            SchedPolicy::Deadline => 6,
            SchedPolicy::Ext => 7,
        }
    }

    pub fn from_number(number: u32) -> Option<SchedPolicy> {
        [
            SchedPolicy::Other,
            SchedPolicy::Fifo,
            SchedPolicy::RoundRobin,
            SchedPolicy::Batch,
            SchedPolicy::Idle,
            SchedPolicy::Deadline,
            SchedPolicy::Ext,
        ]
        .into_iter()
        .find(|policy| policy.number() == number)
    }

    /// Above every ordinary thread.
    pub fn is_realtime(self) -> bool {
        matches!(self, SchedPolicy::Fifo | SchedPolicy::RoundRobin | SchedPolicy::Deadline)
    }
}

/// How one thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub policy: SchedPolicy,
    /// −20 to 19; what counts under `Other` and `Batch`, kept by the kernel under the others.
    pub nice: i32,
    /// 1 to 99 under `Fifo` and `RoundRobin`, 0 otherwise.
    pub priority: u32,
    /// Children start as ordinary threads.
    pub reset_on_fork: bool,
}

impl Attributes {
    pub const fn other(nice: i32) -> Self {
        Attributes { policy: SchedPolicy::Other, nice, priority: 0, reset_on_fork: false }
    }

    pub const fn batch(nice: i32) -> Self {
        Attributes { policy: SchedPolicy::Batch, nice, priority: 0, reset_on_fork: false }
    }

    pub const fn idle(nice: i32) -> Self {
        Attributes { policy: SchedPolicy::Idle, nice, priority: 0, reset_on_fork: false }
    }

    pub const fn fifo(priority: u32) -> Self {
        Attributes { policy: SchedPolicy::Fifo, nice: 0, priority, reset_on_fork: true }
    }
}

const FLAG_RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` in its first published size, 48 bytes.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SCHED_ATTR_SIZE: u32 = size_of::<SchedAttr>() as u32;

/// Sets the attributes of a thread (0 is the caller). Allocates nothing.
pub fn set(tid: u32, attributes: &Attributes) -> io::Result<()> {
    let attr = SchedAttr {
        size: SCHED_ATTR_SIZE,
        policy: attributes.policy.number(),
        flags: if attributes.reset_on_fork { FLAG_RESET_ON_FORK } else { 0 },
        nice: attributes.nice,
        priority: attributes.priority,
        ..SchedAttr::default()
    };
    set_attr(tid, &attr)
}

fn set_attr(tid: u32, attr: &SchedAttr) -> io::Result<()> {
    // SAFETY: `attr` is a live sched_attr whose size field says its size; the kernel only reads it.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const *attr, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes the clamps of its utilisation from the calling thread (uclampset(1)).
pub fn forget_clamps() -> io::Result<()> {
    /// `struct sched_attr` since Linux 5.3, 56 bytes.
    #[repr(C)]
    struct WithClamps {
        attr: SchedAttr,
        least: u32,
        most: u32,
    }
    // linux/sched.h: policy and parameters stay, the clamps are set. Those of all bits are none.
    const KEEP_ALL: u64 = 0x18;
    const CLAMPS: u64 = 0x60;
    let attr = SchedAttr {
        size: size_of::<WithClamps>() as u32,
        flags: KEEP_ALL | CLAMPS,
        ..SchedAttr::default()
    };
    let clamps = WithClamps { attr, least: u32::MAX, most: u32::MAX };
    // SAFETY: `clamps` is a live sched_attr whose size field says its size; the kernel only reads
    // it.
    #[allow(unsafe_code)]
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const clamps, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets all attributes of a thread but its nice value, which stays. Allocates nothing.
pub fn set_policy(tid: u32, attributes: &Attributes) -> io::Result<()> {
    let reset = if attributes.reset_on_fork { libc::SCHED_RESET_ON_FORK } else { 0 };
    let policy = attributes.policy.number() as libc::c_int | reset;
    let param = libc::sched_param { sched_priority: attributes.priority as libc::c_int };
    // SAFETY: the kernel reads one sched_param, which is live. By the call itself, since that of
    // musl does nothing.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const param) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the nice value of a thread, whatever its policy is.
pub fn set_nice(tid: u32, nice: i32) -> io::Result<()> {
    let thread = rustix::process::Pid::from_raw(tid as i32);
    rustix::process::setpriority_process(thread, nice).map_err(Into::into)
}

/// Whether a thread may make itself a real-time one without privilege (`RLIMIT_RTPRIO`). True where
/// that cannot be asked.
#[allow(clippy::unnecessary_cast)]
pub fn may_be_realtime(tid: u32) -> bool {
    soft_limit(tid, libc::RLIMIT_RTPRIO as u32).is_none_or(|limit| limit > 0)
}

/// Whether the kernel ends the process of a thread for the CPU time that it uses as a real-time
/// thread without sleeping (`RLIMIT_RTTIME`). False where that cannot be asked.
#[allow(clippy::unnecessary_cast)]
pub fn has_rt_time_limit(proc_root: &Path, tid: u32) -> bool {
    soft_limit(tid, libc::RLIMIT_RTTIME as u32).map_or_else(
        // Of another user's process that takes CAP_SYS_RESOURCE, and the file nothing.
        || {
            let limits = std::fs::read_to_string(proc_root.join(format!("{tid}/limits")));
            limits.is_ok_and(|text| limits_rt_time(&text))
        },
        |limit| limit != libc::RLIM_INFINITY,
    )
}

/// The value of an `RLIMIT_` constant, whose type differs by libc; absent where it cannot be asked.
fn soft_limit(tid: u32, resource: u32) -> Option<libc::rlim_t> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: nothing is set; the kernel writes one rlimit into `limit`, which is one.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::prlimit(tid as libc::pid_t, resource as _, std::ptr::null(), &raw mut limit)
    };
    (result == 0).then_some(limit.rlim_cur)
}

/// Whether a file `limits` of a process (proc(5)) has a soft limit of that time.
fn limits_rt_time(text: &str) -> bool {
    const NAME: &str = "Max realtime timeout";
    let line = text.lines().find_map(|line| line.strip_prefix(NAME));
    let soft = line.and_then(|fields| fields.split_whitespace().next());
    soft.is_some_and(|soft| soft != "unlimited")
}

/// The attributes of a thread (0 is the caller), also while somebody changes them. Allocates
/// nothing.
///
/// The kernel reads them one after the other without the lock under which they are changed
/// (`sched_getattr` in kernel/sched/syscalls.c). The attributes may be partly from before a change
/// and partly from after it, such as a SCHED_FIFO thread whose children are real-time, too. So they
/// are read until two readings are the same, and between two of them that lock is waited for.
pub fn get(tid: u32) -> io::Result<Attributes> {
    let mut before = get_once(tid)?;
    for _ in 1..READINGS_MAX {
        // It takes the lock of the thread (`sched_getaffinity` there).
        let _ = rustix::thread::sched_getaffinity(rustix::thread::Pid::from_raw(tid as i32));
        let now = get_once(tid)?;
        if now == before {
            break;
        }
        before = now;
    }
    Ok(before)
}

/// Changes come one in a slot at most, and a reading takes less than a microsecond.
const READINGS_MAX: usize = 8;

fn get_once(tid: u32) -> io::Result<Attributes> {
    let attributes = get_without_nice(tid)?;
    // Of a real-time thread, sched_getattr leaves it out, though the kernel keeps it.
    let nice = match attributes.policy.is_realtime() {
        true => rustix::process::getpriority_process(rustix::process::Pid::from_raw(tid as i32))?,
        false => attributes.nice,
    };
    Ok(Attributes { nice, ..attributes })
}

/// Attributes of one reading, in the middle of a change perhaps, with a nice value of 0 for every
/// real-time thread. Allocates nothing.
pub fn get_without_nice(tid: u32) -> io::Result<Attributes> {
    let mut attr = SchedAttr::default();
    // SAFETY: the kernel writes at most SCHED_ATTR_SIZE bytes into `attr`, which has that size.
    #[allow(unsafe_code)]
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, SCHED_ATTR_SIZE, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let policy = SchedPolicy::from_number(attr.policy).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("unknown policy {}", attr.policy))
    })?;
    Ok(Attributes {
        policy,
        nice: attr.nice,
        priority: attr.priority,
        reset_on_fork: attr.flags & FLAG_RESET_ON_FORK != 0,
    })
}

/// Makes the calling thread a SCHED_FIFO thread of the given priority; its children are ordinary.
pub fn become_fifo(priority: u32) -> Result<()> {
    set(0, &Attributes::fifo(priority))
        .map_err(|e| Error::new("set SCHED_FIFO for", "this thread", e))
}

/// Makes the calling thread a SCHED_DEADLINE thread, which comes before every SCHED_FIFO one and is
/// not counted with them (sched(7), Documentation/scheduler/sched-deadline.rst). It may use
/// `runtime` of every `period`; its children are ordinary.
pub fn become_deadline(runtime: Duration, period: Duration) -> Result<()> {
    let attr = SchedAttr {
        size: SCHED_ATTR_SIZE,
        policy: SchedPolicy::Deadline.number(),
        flags: FLAG_RESET_ON_FORK,
        runtime_ns: runtime.as_nanos() as u64,
        deadline_ns: period.as_nanos() as u64,
        period_ns: period.as_nanos() as u64,
        ..SchedAttr::default()
    };
    set_attr(0, &attr).map_err(|e| Error::new("set SCHED_DEADLINE for", "this thread", e))
}

/// Restricts a thread (0 is the caller) to the CPUs with these numbers.
pub fn set_affinity(tid: u32, cpus: impl IntoIterator<Item = u32>) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus.into_iter().filter(|&cpu| (cpu as usize) < rustix::thread::CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    let pid = rustix::thread::Pid::from_raw(tid as i32);
    rustix::thread::sched_setaffinity(pid, &set).map_err(Into::into)
}

/// The CPUs a thread (0 is the caller) may run on, in order of number.
pub fn affinity(tid: u32) -> io::Result<Vec<u32>> {
    let pid = rustix::thread::Pid::from_raw(tid as i32);
    let set = rustix::thread::sched_getaffinity(pid)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .map(|c| c as u32)
        .collect())
}

/// The share of each CPU that the kernel keeps for ordinary threads, 0 to 1.
///
/// Two mechanisms stop real-time threads that leave less, at another moment on every CPU; the one
/// that keeps more counts. The first is the limit `sched_rt_runtime_us` (sched(7)). Since Linux
/// 6.12 it holds only with CONFIG_RT_GROUP_SCHED, which is not asked for. The second is the
/// deadline server since Linux 6.12, which ignores the limit (`fair_server` in debugfs: Linux
/// d741f297bcea, "sched/fair: Fair server interface"). A value that cannot be read is taken for
/// Linux' default.
pub fn kept_for_ordinary(roots: &Roots) -> f64 {
    const DEFAULT: f64 = 0.05;
    let kernel = roots.proc.join("sys/kernel");
    let number = |name: &str| number_in(&kernel.join(name));
    let limited = match (number("sched_rt_runtime_us"), number("sched_rt_period_us")) {
        (Some(runtime), _) if runtime < 0.0 => 0.0,
        (Some(runtime), Some(period)) => 1.0 - (runtime / period).clamp(0.0, 1.0),
        _ => DEFAULT,
    };
    let release = std::fs::read_to_string(kernel.join("osrelease")).ok();
    let has_server = release.is_none_or(|text| release_of(&text) >= [6, 12]);
    let served = fair_server(&roots.sys.join("kernel/debug/sched/fair_server"));
    limited.max(served.unwrap_or(if has_server { DEFAULT } else { 0.0 }))
}

/// The first two numbers of a kernel's release.
fn release_of(text: &str) -> [u32; 2] {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)]
}

/// The share of the deadline server on the CPU where it has most; absent where that cannot be read.
fn fair_server(directory: &Path) -> Option<f64> {
    let share = |cpu: io::Result<std::fs::DirEntry>| {
        let cpu = cpu.ok()?.path();
        let share = number_in(&cpu.join("runtime"))? / number_in(&cpu.join("period"))?;
        (0.0..=1.0).contains(&share).then_some(share)
    };
    std::fs::read_dir(directory).ok()?.filter_map(share).max_by(f64::total_cmp)
}

fn number_in(path: &Path) -> Option<f64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_real_time_is_read_of_others_processes() {
        let line = |soft: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max realtime priority     0                    0                    \n\
                 Max realtime timeout      {soft}            unlimited            us        \n"
            )
        };
        assert!(limits_rt_time(&line("200000")));
        assert!(!limits_rt_time(&line("unlimited")) && !limits_rt_time(""));
        let own = std::fs::read_to_string("/proc/self/limits").unwrap();
        let own_tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert_eq!(limits_rt_time(&own), has_rt_time_limit(Path::new("/proc"), own_tid));
    }

    #[test]
    fn kernel_share_of_ordinary_threads_is_read() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(kept_for_ordinary(&roots), 0.05, "nothing can be read");
        write("proc/sys/kernel/sched_rt_period_us", "1000000\n");
        let kept = |release: &str, runtime: &str| {
            write("proc/sys/kernel/osrelease", release);
            write("proc/sys/kernel/sched_rt_runtime_us", runtime);
            (kept_for_ordinary(&roots) * 1000.0).round() / 1000.0
        };
        for (release, runtime, share) in [
            ("6.1.0-30-amd64\n", "950000\n", 0.05),
            ("6.1.0-30-amd64\n", "-1\n", 0.0),
            ("5.15.0\n", "-1\n", 0.0),
            ("6.12.48+deb13-amd64\n", "-1\n", 0.05),
            ("6.18-rc1\n", "900000\n", 0.1),
            ("7.0.1\n", "-1\n", 0.05),
        ] {
            assert_eq!(kept(release, runtime), share, "{release} {runtime}");
        }
        for (cpu, runtime) in [("cpu0", "0\n"), ("cpu1", "20000000\n")] {
            write(&format!("sys/kernel/debug/sched/fair_server/{cpu}/runtime"), runtime);
            write(&format!("sys/kernel/debug/sched/fair_server/{cpu}/period"), "1000000000\n");
        }
        assert_eq!(kept("6.18.0\n", "-1\n"), 0.02);
        assert_eq!(kept("6.18.0\n", "950000\n"), 0.05);
        write("sys/kernel/debug/sched/fair_server/cpu1/runtime", "0\n");
        assert_eq!(kept("6.18.0\n", "-1\n"), 0.0);
    }

    #[test]
    fn numbers_of_policies_go_there_and_back() {
        for number in 0..10 {
            if let Some(policy) = SchedPolicy::from_number(number) {
                assert_eq!(policy.number(), number);
            }
        }
        assert_eq!(SchedPolicy::from_number(4), None, "SCHED_ISO was never built");
    }

    #[test]
    fn a_thread_may_lower_itself_to_idle() {
        std::thread::spawn(|| {
            let before = get(0).unwrap();
            set(0, &Attributes::idle(before.nice)).unwrap();
            assert_eq!(get(0).unwrap().policy, SchedPolicy::Idle);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_ended_is_gone() {
        let tid = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let tid = tid.join().unwrap();
        // The kernel may take a moment to forget it.
        let error = gang_harness::wait_for("the thread is gone", || get(tid).err());
        assert!(crate::error::is_gone(&error), "{error}");
    }
}
