//! The group of version 1's cpu controller that all jobs of all daemons share.
//!
//! Problem: the kernel divides the time of real-time threads among the groups of one parent, and a
//! group without a share cannot have SCHED_FIFO at all (CONFIG_RT_GROUP_SCHED). One group can have
//! all of that time, two cannot; one that was removed has it until the last of its dead is buried.
//! And daemons come and go beside each other.
//!
//! Approach: one group, made when it is needed and removed by the daemon that leaves it empty. Its
//! time is taken from it before it is removed. A daemon that makes or removes it holds a lock on
//! the directory above.

use std::{fs::File, path::Path, time::Duration};

use gang_linux::{Error, Result, cgroup::Group};
use rustix::fs::{FlockOperation, flock};

const NAME: &str = "gangd";

/// Absent where the kernel does not group real-time threads; then there is nothing to divide.
const REALTIME: &str = "cpu.rt_runtime_us";

/// How long to wait for the lock: anybody may hold it, and must not keep the daemon from its work.
const WAIT_MAX: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

/// Makes the group where it is not there, with all the time of real-time threads, idle as a whole.
/// `root` is where the hierarchy is mounted.
pub fn prepare(root: &Path) -> Result<Group> {
    let _lock = lock(root);
    let group = Group::at(root).child(NAME);
    group.create()?;
    if let Ok(all) = Group::at(root).read(REALTIME) {
        give_realtime(&group, all.trim())?;
    }
    // Where there are jobs in it, it may be raised at this moment.
    if group.processes()?.is_empty() {
        group.write("cpu.idle", "1")?;
    }
    Ok(group)
}

/// Removes the group where nobody is in it.
pub fn remove(root: &Path) {
    let _lock = lock(root);
    let group = Group::at(root).child(NAME);
    if group.processes().is_ok_and(|processes| !processes.is_empty()) {
        return;
    }
    let had = group.read(REALTIME);
    let taken = group.write(REALTIME, "0");
    if let (Err(_), Ok(had), Ok(())) = (group.remove(), had, taken) {
        let _ = group.write(REALTIME, had.trim());
    }
}

/// A group that an earlier daemon removed without taking its time may keep it for a moment.
fn give_realtime(group: &Group, all: &str) -> Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        if group.read(REALTIME)?.trim() == all {
            return Ok(());
        }
        match group.write(REALTIME, all) {
            Err(_) if waited < WAIT_MAX => std::thread::sleep(PAUSE),
            result => return result,
        }
        waited += PAUSE;
    }
}

/// Held while a group of all jobs of a daemon is made, removed or tried.
pub fn lock(root: &Path) -> Result<File> {
    let error = |e| Error::new("lock", root.display(), e);
    let directory = File::open(root).map_err(error)?;
    let mut waited = Duration::ZERO;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(_) if waited < WAIT_MAX => std::thread::sleep(PAUSE),
            Err(e) => return Err(error(e.into())),
            Ok(()) => return Ok(directory),
        }
        waited += PAUSE;
    }
}
