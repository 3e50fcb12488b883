//! Jobs on directories that look like cgroups.

use std::{fs, path::Path, sync::Arc};

use gang_engine::{
    bound::{ControlFile, ControlFiles, ProcessHandle},
    roster::Roster,
};
use gang_linux::cgroup::Group;
use gang_schedule::CpuSet;
use gang_timetable::{Attributes, Members};

/// The CPUs of the machine that these jobs were started on.
pub fn everywhere() -> CpuSet {
    (0..64).collect()
}

/// Makes what a cgroup of version 2 has, and opens it.
pub fn group(path: &Path, weight: &str) -> (Group, ControlFiles) {
    fs::create_dir_all(path).unwrap();
    for file in ["cgroup.threads", "cgroup.procs", "cgroup.freeze", "cpu.idle", weight] {
        fs::write(path.join(file), "").unwrap();
    }
    fs::write(path.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    let open = |name: &str| Some(ControlFile::open(path.join(name)).unwrap());
    let controls = ControlFiles {
        freeze: open("cgroup.freeze"),
        idle: open("cpu.idle"),
        weight: open(weight),
    };
    (Group::at(path), controls)
}

/// A job of this process and its parent.
pub fn of_tree() -> (Roster, Members) {
    let open = |pid| -> Arc<ProcessHandle> { ProcessHandle::open(pid).unwrap() };
    let mut roster = Roster::of_tree(open(std::process::id()));
    let mut members = roster.members(Attributes::other(0), everywhere());
    roster.add_process(&mut members, open(std::os::unix::process::parent_id()));
    (roster, members)
}
