//! Attributes, CPUs and signals, between timetables, Linux and files.

use std::{io, path::Path};

use gang_linux::{process, sched};
use gang_schedule::CpuSet;
use gang_timetable::{
    self as timetable, Attributes, Known, OVERSUBSCRIBED, SchedPolicy, is_raised,
};
use rustix::process::Signal;

/// SIGUSR1 to a process that listens: its slot ends (L5).
pub const SLOT_ENDS: Signal = Signal::USR1;
/// SIGUSR2 to a process that listens: its slot has begun.
pub const SLOT_BEGINS: Signal = Signal::USR2;

/// How a thread is scheduled now.
pub fn attributes(tid: u32) -> io::Result<Attributes> {
    sched::get(tid).map(from_linux)
}

/// Puts a raised thread behind others of its priority; one that is not raised stays as it is.
/// Allocates nothing.
pub fn give_way(tid: u32, known: &Known) -> io::Result<()> {
    let now = from_linux(sched::get_without_nice(tid)?);
    let Some(lowered) = known.give_way(&now) else { return Ok(()) };
    sched::set_policy(tid, &to_linux(&lowered))?;
    sched::set_policy(tid, &to_linux(&now))
}

/// Gives a thread these attributes, if it is raised. Allocates nothing.
pub fn lower_if_raised(tid: u32, to: &Attributes, known: &Known) -> io::Result<()> {
    let is_raised = is_raised(&from_linux(sched::get_without_nice(tid)?));
    if is_raised { switch(tid, to, known) } else { Ok(()) }
}

/// Gives a thread these attributes, unless its owner has chosen others. Allocates nothing.
///
/// Between the look and the change, the owner may choose a policy, which is lost then: the kernel
/// has no call that does both. A nice value is not: it is not touched where it stays the same.
pub fn switch(tid: u32, to: &Attributes, known: &Known) -> io::Result<()> {
    let mut now = from_linux(sched::get_without_nice(tid)?);
    let mut then = known.switch(&now, to);
    if then.is_none() {
        // Another switcher, or the guardian, may be changing them at this moment.
        now = attributes(tid)?;
        then = known.switch(&now, to);
    }
    match then {
        Some(then) if then != now => change(tid, &now, &then),
        _ => Ok(()),
    }
}

/// Gives a thread attributes. Allocates nothing.
pub fn set_attributes(tid: u32, attributes: &Attributes) -> io::Result<()> {
    change(tid, &self::attributes(tid)?, attributes)
}

/// The nice value by itself: the policy of some threads is changed without it, and the kernel
/// ignores it with SCHED_IDLE.
///
/// Whether children are ordinary threads is changed by itself, too: before a thread is raised, and
/// after it was lowered. A copy of the thread that is made meanwhile is an ordinary one then
/// ([`gang_timetable::lowered`]). For the same reason, the nice value of a slot comes after that
/// flag, and goes before it.
fn change(tid: u32, now: &Attributes, then: &Attributes) -> io::Result<()> {
    let flagged = |of: &Attributes| to_linux(&Attributes { reset_on_fork: true, ..*of });
    if then.nice > now.nice {
        sched::set_nice(tid, then.nice)?;
    }
    if is_raised(then) && !now.reset_on_fork && !now.policy.is_realtime() {
        sched::set_policy(tid, &flagged(now))?;
    }
    if is_raised(now) && !then.reset_on_fork {
        sched::set_policy(tid, &flagged(then))?;
    }
    sched::set_policy(tid, &to_linux(then))?;
    if then.nice < now.nice { sched::set_nice(tid, then.nice) } else { Ok(()) }
}

/// How a thread is scheduled that a member has started, as it is seen for the first time. Not for
/// root's threads.
///
/// The kernel may have copied a thread that was given back what it had: the copy is as in a slot,
/// and its children would be real-time, too. Its owner cannot have made it so where the thread has
/// no right to be real-time (`RLIMIT_RTPRIO`). The copy gets the flag then, and is as any other
/// that gangd has raised.
pub fn attributes_of_copy(tid: u32) -> io::Result<Attributes> {
    let now = attributes(tid)?;
    let flagged = Attributes { reset_on_fork: true, ..now };
    if flagged == now || !is_raised(&flagged) || sched::may_be_realtime(tid) {
        return Ok(now);
    }
    sched::set_policy(tid, &to_linux(&flagged))?;
    Ok(flagged)
}

/// The CPUs a thread may run on.
pub fn affinity(tid: u32) -> io::Result<CpuSet> {
    Ok(sched::affinity(tid)?.into_iter().collect())
}

/// The same, with those that are offline among them: the call leaves these out, and the file is not
/// read under the lock under which they are changed.
pub fn cpus_allowed(proc_root: &Path, tid: u32) -> io::Result<CpuSet> {
    let mut online = affinity(tid)?;
    for _ in 0..READINGS_MAX {
        let listed = process::cpus_allowed(proc_root, tid).map_err(|error| error.source)?;
        let again = affinity(tid)?;
        match listed.parse() {
            Ok(all) if again == online => return Ok(all),
            _ => online = again,
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "its CPUs are changed all the time"))
}

/// Readings of what others may change meanwhile.
const READINGS_MAX: usize = 16;

/// Allocates nothing.
pub fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    sched::set_affinity(tid, cpus.iter())
}

pub(crate) fn from_linux(of: sched::Attributes) -> Attributes {
    let policy = match of.policy {
        sched::SchedPolicy::Other => SchedPolicy::Other,
        sched::SchedPolicy::Fifo => SchedPolicy::Fifo,
        sched::SchedPolicy::RoundRobin => SchedPolicy::RoundRobin,
        sched::SchedPolicy::Batch => SchedPolicy::Batch,
        sched::SchedPolicy::Idle => SchedPolicy::Idle,
        sched::SchedPolicy::Deadline => SchedPolicy::Deadline,
        sched::SchedPolicy::Ext => SchedPolicy::Ext,
    };
    let sched::Attributes { nice, priority, reset_on_fork, .. } = of;
    Attributes { policy, nice, priority, reset_on_fork }
}

pub(crate) fn to_linux(of: &Attributes) -> sched::Attributes {
    let policy = match of.policy {
        SchedPolicy::Other => sched::SchedPolicy::Other,
        SchedPolicy::Fifo => sched::SchedPolicy::Fifo,
        SchedPolicy::RoundRobin => sched::SchedPolicy::RoundRobin,
        SchedPolicy::Batch => sched::SchedPolicy::Batch,
        SchedPolicy::Idle => sched::SchedPolicy::Idle,
        SchedPolicy::Deadline => sched::SchedPolicy::Deadline,
        SchedPolicy::Ext => sched::SchedPolicy::Ext,
    };
    let Attributes { nice, priority, reset_on_fork, .. } = *of;
    sched::Attributes { policy, nice, priority, reset_on_fork }
}

/// The signal of Linux that a signal of a timetable is.
pub fn signal(signal: timetable::Signal) -> Signal {
    match signal {
        timetable::Signal::Stop => Signal::STOP,
        timetable::Signal::Continue => Signal::CONT,
        timetable::Signal::SlotEnds => SLOT_ENDS,
        timetable::Signal::SlotBegins => SLOT_BEGINS,
    }
}

/// Threads of the machine whose attributes are looked at, at most: two calls each.
const LOOKED_AT_MAX: usize = 100_000;

/// The threads of the machine that have what gangd gives to one in its slot, of the first 100,000.
/// Nobody can tell whether gangd gave it: owners may want the same.
pub fn as_in_slot(proc_root: &Path) -> gang_linux::Result<Vec<u32>> {
    let is_given = |&tid: &u32| {
        let now = attributes(tid);
        now.is_ok_and(|now| is_raised(&now) || now == OVERSUBSCRIBED)
    };
    Ok(process::all_threads(proc_root)?.take(LOOKED_AT_MAX).filter(is_given).collect())
}
