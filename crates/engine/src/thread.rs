//! Attributes and CPUs of threads, between timetables and Linux.

use std::io;

use gang_linux::sched;
use gang_schedule::CpuSet;
use gang_timetable::{Attributes, Policy};

/// How a thread is scheduled now.
pub fn attributes(tid: u32) -> io::Result<Attributes> {
    sched::get(tid).map(from_linux)
}

/// Allocates nothing.
pub fn set_attributes(tid: u32, attributes: &Attributes) -> io::Result<()> {
    sched::set(tid, &to_linux(attributes))
}

/// The CPUs a thread may run on.
pub fn affinity(tid: u32) -> io::Result<CpuSet> {
    Ok(sched::affinity(tid)?.into_iter().collect())
}

/// Allocates nothing.
pub fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    sched::set_affinity(tid, cpus.iter())
}

pub(crate) fn from_linux(of: sched::Attributes) -> Attributes {
    let policy = match of.policy {
        sched::Policy::Other => Policy::Other,
        sched::Policy::Fifo => Policy::Fifo,
        sched::Policy::RoundRobin => Policy::RoundRobin,
        sched::Policy::Batch => Policy::Batch,
        sched::Policy::Idle => Policy::Idle,
        sched::Policy::Deadline => Policy::Deadline,
        sched::Policy::Ext => Policy::Ext,
    };
    let sched::Attributes { nice, priority, reset_on_fork, .. } = of;
    Attributes { policy, nice, priority, reset_on_fork }
}

pub(crate) fn to_linux(of: &Attributes) -> sched::Attributes {
    let policy = match of.policy {
        Policy::Other => sched::Policy::Other,
        Policy::Fifo => sched::Policy::Fifo,
        Policy::RoundRobin => sched::Policy::RoundRobin,
        Policy::Batch => sched::Policy::Batch,
        Policy::Idle => sched::Policy::Idle,
        Policy::Deadline => sched::Policy::Deadline,
        Policy::Ext => sched::Policy::Ext,
    };
    let Attributes { nice, priority, reset_on_fork, .. } = *of;
    sched::Attributes { policy, nice, priority, reset_on_fork }
}
