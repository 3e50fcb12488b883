//! Surroundings of the program that started the daemon, which the daemon drops.
//!
//! Problem: `gang run` starts a daemon where none listens. That daemon is everybody's and outlives
//! its first caller, whose locks, limits and groups are nobody else's.
//!
//! Approach: a daemon that a program started takes what a service would have. The program hands a
//! pipe over (`--ready-fd`), by which such a daemon is known. The settings of a service manager are
//! an administrator's, and stay; so do those of a release that it runs, which keeps the jobs. The
//! environment acts while a program is executed (LD_PRELOAD), so the starter clears it
//! (`gang::programs`).

use gang_linux::{Error, Roots, cgroup, inherited, sched};
use nix::unistd::{Gid, geteuid, setgroups, setresgid, setresuid};

use crate::args::Args;

/// Whether a program started this process, and not an administrator's service manager.
pub fn is_program(args: &Args) -> bool {
    args.ready_fd.is_some() || (args.release && !args.keep_jobs)
}

/// Closes what the caller left open, but for the pipe to it. To be called before anything is
/// opened.
pub fn close_descriptors(args: &Args) {
    if is_program(args) {
        // Linux 5.9 and later can; elsewhere they stay open.
        let _ = inherited::close_others(args.ready_fd);
    }
}

/// Drops all else but the right to schedule. Rights that cannot be dropped stay, and the log says
/// so.
pub fn forget(roots: &Roots) {
    inherited::forget_signals();
    let mut stay = inherited::lift_limits(&roots.proc);
    stay.extend(inherited::forget_oom_score(&roots.proc).err());
    inherited::forget_attributes();
    take_identity();
    forget_terminal();
    stay.iter().for_each(log);
}

/// Leaves the caller's cgroups. Not for a process that ends at once by itself.
pub fn leave_groups(roots: &Roots) {
    cgroup::leave_all(roots).iter().for_each(log);
    // A cpuset of version 1 narrows the CPUs of its threads, and does not widen them.
    let _ = sched::set_affinity(0, 0..1024);
}

/// Drops what the daemon has inherited from the terminal at which the first program was started.
pub fn forget_terminal() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let nice = sched::get(0).map_or(0, |attributes| attributes.nice);
    // A user may not lower nice, and leave another policy all the same.
    if sched::set(0, &sched::Attributes::other(nice.min(0))).is_err() {
        let _ = sched::set(0, &sched::Attributes::other(nice));
    }
    let _ = sched::set_affinity(0, 0..1024);
}

/// The user whose rights this process has is the only one that it is of: the real one could send
/// signals to it. Root is in no group but its own.
fn take_identity() {
    let user = geteuid();
    if user.is_root() {
        // A user namespace may refuse it.
        let root = Gid::from_raw(0);
        let _ = setgroups(&[]);
        let _ = setresgid(root, root, root);
    }
    let _ = setresuid(user, user, user);
}

fn log(error: &Error) {
    let reason = &error.source;
    tracing::warn!(%reason, "the surroundings of the first caller stay in part: {error}");
}
