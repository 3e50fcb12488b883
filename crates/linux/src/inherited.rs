//! Things that this process was left by its parent: descriptors, and all that outlives fork(2) and
//! execve(2).
//!
//! Problem: a daemon that a program starts is everybody's, and serves on when that program has
//! ended. A lock, a limit or an ignored signal of that program would hold for everybody's jobs.
//!
//! Approach: the process drops one thing after another and takes what the kernel gives to a service
//! instead. Most calls here need no right. One that is refused leaves things as they were.
//!
//! The kernel does not give back: no_new_privs, seccomp filters and Landlock rules, the bounding
//! set of capabilities, namespaces and the root directory.

use std::{
    fs, io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    path::Path,
    ptr,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Error, Result, sched};

/// Takes an inherited descriptor over; it is closed when dropped, and no child inherits it.
///
/// To be called once for a number, before this process has opened anything itself that could have
/// that number: at the start of `main`.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: F_SETFD touches no memory; it fails where the descriptor is not open.
    #[allow(unsafe_code)]
    let result = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nobody else in this process owns it: it was inherited.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes what the parent left open: all descriptors but the standard three and `kept`.
///
/// To be called before this process has opened anything itself: at the start of `main`.
pub fn close_others(kept: Option<RawFd>) -> Result<()> {
    const FIRST: libc::c_uint = 3;
    let kept = kept.and_then(|kept| libc::c_uint::try_from(kept).ok()).filter(|it| *it >= FIRST);
    let ranges = match kept {
        None => [Some((FIRST, libc::c_uint::MAX)), None],
        Some(kept) => [
            (kept > FIRST).then(|| (FIRST, kept - 1)),
            (kept < libc::c_uint::MAX).then(|| (kept + 1, libc::c_uint::MAX)),
        ],
    };
    for (first, last) in ranges.into_iter().flatten() {
        // SAFETY: this process has opened nothing, so nothing in it owns one of these descriptors.
        #[allow(unsafe_code)]
        if unsafe { libc::close_range(first, last, 0) } != 0 {
            let error = io::Error::last_os_error();
            return Err(Error::new("close", "the descriptors that the parent left open", error));
        }
    }
    Ok(())
}

/// Blocks no signal, and ignores none but SIGPIPE, which Rust's runtime ignores.
pub fn forget_signals() {
    // SAFETY: the set is filled before it is used. The calls read and write what they are handed,
    // which lives as long as they take. No handler is replaced, only what was ignored.
    #[allow(unsafe_code)]
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        for number in (1..=libc::SIGRTMAX()).filter(|number| *number != libc::SIGPIPE) {
            let mut now: libc::sigaction = std::mem::zeroed();
            // Some numbers are the C library's own, and refused.
            let is_known = libc::sigaction(number, ptr::null(), &raw mut now) == 0;
            if is_known && now.sa_sigaction == libc::SIG_IGN {
                libc::signal(number, libc::SIG_DFL);
            }
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// The limits, and for those whose loss ends a daemon what they bound.
const LIMITS: [(Resource, Option<&str>); 16] = [
    (Resource::Cpu, Some("CPU time")),
    (Resource::Fsize, Some("size of files")),
    (Resource::Data, Some("data")),
    (Resource::Stack, None),
    (Resource::Core, None),
    (Resource::Rss, None),
    (Resource::Nproc, None),
    (Resource::Nofile, None),
    (Resource::Memlock, None),
    (Resource::As, Some("address space")),
    (Resource::Locks, None),
    (Resource::Sigpending, None),
    (Resource::Msgqueue, None),
    (Resource::Nice, None),
    (Resource::Rtprio, None),
    (Resource::Rttime, Some("real-time CPU time")),
];

/// The stack that the kernel gives to init. A larger one would also change where the kernel maps
/// memory.
const STACK: u64 = 8 << 20;

/// Lifts the limits on resources as far as this process may: root has none, others reach their hard
/// limits. Returns the hard limits that stay and may end a daemon.
pub fn lift_limits(proc_root: &Path) -> Vec<Error> {
    let most_files = fs::read_to_string(proc_root.join("sys/fs/nr_open")).ok();
    let most_files = most_files.and_then(|text| text.trim().parse().ok());
    let mut stay = Vec::new();
    for (resource, what) in LIMITS {
        let Rlimit { maximum, .. } = getrlimit(resource);
        let usual = match resource {
            Resource::Stack => Some(STACK),
            Resource::Core => Some(0),
            _ => None,
        };
        let within = |maximum: Option<u64>| {
            let current = [usual, maximum].into_iter().flatten().min();
            setrlimit(resource, Rlimit { current, maximum })
        };
        let highest = match resource {
            // None would be refused.
            Resource::Nofile => most_files.max(maximum),
            _ => None,
        };
        if let Err(refused) = within(highest) {
            let _ = within(maximum);
            if let Some(what) = what.filter(|_| maximum.is_some()) {
                stay.push(Error::new("lift the hard limit on", what, refused));
            }
        }
    }
    stay
}

/// Has the kernel kill this process for want of memory no sooner than others.
pub fn forget_oom_score(proc_root: &Path) -> Result<()> {
    let path = proc_root.join("self/oom_score_adj");
    let error = |e| Error::new("write", path.display(), e);
    let score = fs::read_to_string(&path).map_err(error)?;
    if score.trim().parse::<i32>().is_ok_and(|score| score > 0) {
        fs::write(&path, "0").map_err(error)?;
    }
    Ok(())
}

/// The slack of timers that the kernel gives to init, in nanoseconds.
const TIMER_SLACK_NS: libc::c_ulong = 50_000;

/// Takes what the kernel gives to init for each of these: the priority of I/O (which then follows
/// nice), the nodes to have memory of (as by numactl(8)), the slack of timers, huge pages, the
/// execution domain (as by setarch(8)), the clamps of its utilisation (as by uclampset(1)), the
/// cookie of core scheduling and the session's keyring, which may hold secrets. A kernel may lack
/// each of them.
pub fn forget_attributes() {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
    // linux/prctl.h
    const PR_SCHED_CORE: libc::c_int = 62;
    const PR_SCHED_CORE_SHARE_FROM: libc::c_int = 3;
    // SAFETY: these change attributes of this process and are handed no memory, or a null pointer
    // where they take it for nothing.
    #[allow(unsafe_code)]
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0);
        libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_DEFAULT, ptr::null::<u8>(), 0);
        libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
        libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0);
        libc::personality(0);
        // The cookie of core scheduling: that of the first process, which has none.
        libc::prctl(PR_SCHED_CORE, PR_SCHED_CORE_SHARE_FROM, 1, 0, 0);
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, ptr::null::<u8>());
    }
    // Kernels without clamps refuse it.
    let _ = sched::forget_clamps();
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn open_descriptors_are_taken_others_refused() {
        let number = OwnedFd::from(fs::File::open("/dev/null").unwrap()).into_raw_fd();
        drop(take(number).unwrap());
        assert!(take(1_000_000).is_err());
        assert!(take(1).is_err());
    }

    #[test]
    fn a_score_for_want_of_memory_is_never_raised() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("self/oom_score_adj");
        fs::create_dir(root.path().join("self")).unwrap();
        for (before, after) in [("900\n", "0"), ("0\n", "0\n"), ("-500\n", "-500\n")] {
            fs::write(&file, before).unwrap();
            forget_oom_score(root.path()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), after);
        }
        assert!(forget_oom_score(Path::new("/nonexistent")).is_err());
    }
}
