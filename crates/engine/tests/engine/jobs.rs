//! Jobs on directories that look like cgroups, with threads that nobody has.

use std::{fs, path::Path, sync::Arc};

use gang_engine::{
    action::{ControlFile, ProcessHandle},
    members::{Controls, Members, Thread},
};
use gang_linux::{
    cgroup::Group,
    sched::{Attributes, Policy},
};
use rustix::thread::CpuSet;

/// The CPUs of the machine that these jobs were started on.
pub fn everywhere() -> CpuSet {
    let mut cpus = CpuSet::new();
    (0..64).for_each(|cpu| cpus.set(cpu));
    cpus
}

/// Makes what a cgroup of version 2 has, and opens it.
pub fn group(path: &Path, weight: &str) -> (Group, Controls) {
    fs::create_dir_all(path).unwrap();
    for file in ["cgroup.threads", "cgroup.procs", "cgroup.freeze", "cpu.idle", weight] {
        fs::write(path.join(file), "").unwrap();
    }
    fs::write(path.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let open = |name: &str| Some(ControlFile::open(path.join(name)).unwrap());
    let controls = Controls {
        freeze: open("cgroup.freeze"),
        cpu_idle: open("cpu.idle"),
        cpu_weight: open(weight),
        // Of several jobs, every other one.
        in_idle_group: path.to_string_lossy().ends_with(['1', '3', '5']),
    };
    (Group::at(path), controls)
}

/// A job in a cgroup of its own.
pub fn of_group(path: &Path, weight: &str, threads: Vec<Thread>) -> Members {
    let (group, controls) = group(path, weight);
    let members = Members::of_group(&group, controls, Attributes::other(0), everywhere());
    members.unwrap().with_threads(threads)
}

/// A job of this process and its parent: whoever records does not signal them.
pub fn of_tree(threads: Vec<Thread>) -> Members {
    let open = |pid| -> Arc<ProcessHandle> { ProcessHandle::open(pid).unwrap() };
    let mut members =
        Members::of_tree(open(std::process::id()), Attributes::other(0), everywhere());
    members.add_process(open(std::os::unix::process::parent_id()));
    members.with_threads(threads)
}

pub fn thread(tid: u32, original: Attributes) -> Thread {
    Thread { tid, original, moored: false, cpu: None }
}

/// Of every kind one.
pub fn threads() -> Vec<Thread> {
    let batch = Attributes { policy: Policy::Batch, ..Attributes::other(3) };
    let deadline = Attributes { policy: Policy::Deadline, ..Attributes::other(0) };
    let own = Attributes { policy: Policy::RoundRobin, ..Attributes::fifo(7) };
    let mut moored = thread(17, Attributes::other(0));
    moored.moored = true;
    vec![
        thread(11, Attributes::other(0)),
        thread(12, Attributes::other(10)),
        thread(13, Attributes::other(-5)),
        thread(14, Attributes { reset_on_fork: true, ..batch }),
        thread(15, own),
        thread(16, deadline),
        moored,
    ]
}
