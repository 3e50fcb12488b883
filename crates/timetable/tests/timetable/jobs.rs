//! Jobs with threads that nobody has.

use gang_schedule::{CpuSet, JobId};
use gang_timetable::{Attributes, Controls, Members, SchedPolicy, Thread};

pub const JOB: JobId = JobId(1);

/// The CPUs of the machine that these jobs were started on.
fn everywhere() -> CpuSet {
    (0..64).collect()
}

/// A job in a cgroup of its own.
pub fn of_group(in_idle_group: bool) -> Members {
    let controls =
        Controls { freezer: true, idle: true, weight: true, in_idle_group, ..Controls::default() };
    Members::new(controls, Attributes::other(0), everywhere()).with_threads(threads())
}

/// The same, with a thread of another user.
pub fn with_foreign() -> Members {
    let foreign = Thread { is_foreign: true, ..thread(18, Attributes::other(0)) };
    let all = threads().into_iter().chain([foreign]);
    of_group(false).with_threads(all.collect())
}

/// A job of processes.
pub fn of_tree() -> Members {
    let mut job = Members::new(Controls::default(), Attributes::other(0), everywhere());
    job.processes = vec![11, 15];
    job.with_threads(threads())
}

fn thread(tid: u32, original: Attributes) -> Thread {
    Thread::new(tid, original)
}

/// Of every kind one.
fn threads() -> Vec<Thread> {
    let batch = Attributes { policy: SchedPolicy::Batch, ..Attributes::other(3) };
    let deadline = Attributes { policy: SchedPolicy::Deadline, ..Attributes::other(0) };
    let own = Attributes { policy: SchedPolicy::RoundRobin, ..Attributes::fifo(7) };
    vec![
        thread(11, Attributes::other(0)),
        thread(12, Attributes::other(10)),
        thread(13, Attributes::other(-5)),
        thread(14, Attributes { reset_on_fork: true, ..batch }),
        thread(15, own),
        thread(16, deadline),
        Thread { user_pinned: true, ..thread(17, Attributes::other(0)) },
    ]
}
