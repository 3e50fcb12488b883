//! The rights that a doctor keeps which a daemon of root has started.
//!
//! Problem: any user starts such a doctor, by a job of policy `auto`. It reads what the user's
//! programs are like. A fault of it must not be root's.
//!
//! Approach: it keeps three capabilities. CAP_BPF and CAP_PERFMON are to watch threads, and
//! CAP_SYS_PTRACE is to read what a process has mapped. Where the machine has a user for it, it is
//! that user; the daemon knows the connection from before as root's. No program that it executed
//! would have more. Its memory is limited.
//!
//! Properties: in any order of failures it has no more rights than it was started with.

use anyhow::{Context, Result};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{
        CapabilitySet, CapabilitySets, Gid, Uid, capabilities, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities,
        set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};

/// The capabilities that measuring takes.
const KEPT: CapabilitySet =
    CapabilitySet::BPF.union(CapabilitySet::PERFMON).union(CapabilitySet::SYS_PTRACE);

/// Linux before 5.8, and services without the first two, have this in their place.
const IN_PLACE: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// The address space that it may have: what it keeps of a program has bounds far below. Ticks of
/// each CPU are kept while jobs are compared.
const MEMORY_BYTES: u64 = 2 << 30;
const MEMORY_BYTES_OF_CPU: u64 = 32 << 20;

/// Gives up all other rights. The first thread calls it before there are others.
pub fn confine(user: Option<(u32, u32)>) -> Result<()> {
    limit_memory().context("cannot limit its own memory")?;
    // Only where it has the right to.
    for capability in CapabilitySet::all().difference(KEPT).difference(IN_PLACE) {
        let _ = remove_capability_from_bounding_set(capability);
    }
    let _ = clear_ambient_capability_set();
    let own = capabilities(None).context("cannot read its own capabilities")?;
    let mut kept = own.permitted & KEPT;
    if !kept.contains(CapabilitySet::BPF | CapabilitySet::PERFMON) {
        kept |= own.permitted & IN_PLACE;
    }
    if let Some((uid, gid)) = user.filter(|_| may_change_users(own.effective)) {
        become_user(uid, gid).context("cannot become the user of its own")?;
    }
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).context("cannot give up capabilities")?;
    set_no_new_privs(true).context("cannot give up new privileges")
}

fn may_change_users(has: CapabilitySet) -> bool {
    has.contains(CapabilitySet::SETUID | CapabilitySet::SETGID)
}

fn become_user(uid: u32, gid: u32) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_keep_capabilities(false)
}

fn limit_memory() -> rustix::io::Result<()> {
    let of_old = getrlimit(Resource::As);
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let most = MEMORY_BYTES + cpus * MEMORY_BYTES_OF_CPU;
    let least = |limit: Option<u64>| Some(limit.map_or(most, |it| it.min(most)));
    let limit = Rlimit { current: least(of_old.current), maximum: least(of_old.maximum) };
    setrlimit(Resource::As, limit)
}
