//! The group of version 1's cpu controller that all jobs of all daemons share.
//!
//! Problem: the kernel divides the time of real-time threads among the groups of one parent, and a
//! group without a share cannot have SCHED_FIFO at all (CONFIG_RT_GROUP_SCHED). One group can have
//! all of that time, two cannot; one that was removed has it until the last of its dead is buried.
//! And daemons come and go beside each other.
//!
//! Approach: one group, made when it is needed and removed by the daemon that leaves it empty. Its
//! time is taken from it before it is removed. A daemon that makes or removes it holds a lock. Any
//! user can open the directories of the hierarchy and lock them, and would keep all daemons
//! waiting, so that the lock is on a file that only the daemons' own user can open.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use gang_linux::{Error, Result, cgroup::Group, own_files};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

pub(crate) const NAME: &str = "gangd";

/// Absent where the kernel does not group real-time threads; then there is nothing to divide.
const REALTIME: &str = "cpu.rt_runtime_us";

/// How long to wait for the lock: a daemon that hangs must not keep others from their work.
const WAIT_MAX: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(5);

/// How often the file of the lock may be removed between the moment at which it is opened and that
/// at which it is locked.
const TRIES_MAX: u32 = 100;

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
#[derive(Debug)]
pub struct Lock {
    _held: File,
    /// Removed with the lock; absent where there was no place for such a file.
    path: Option<PathBuf>,
    makes_directory: bool,
}

/// Takes the lock that all daemons of this user have in common. The file of the lock is in a
/// directory of his own; `root`, where the hierarchy is mounted, is locked where he has none.
pub fn lock(root: &Path) -> Result<Lock> {
    let uid = rustix::process::geteuid();
    let directory = match uid.is_root() {
        true => PathBuf::from("/run/gangd"),
        false => PathBuf::from(format!("/run/user/{}", uid.as_raw())),
    };
    Lock::take(&directory, uid.is_root()).or_else(|error| match error.source.kind() {
        // Another daemon has it.
        ErrorKind::WouldBlock => Err(error),
        _ => Lock::of_directory(root),
    })
}

impl Lock {
    fn take(directory: &Path, may_make: bool) -> Result<Lock> {
        let path = directory.join("groups.lock");
        let error = |e| Error::new("lock", path.display(), e);
        let mut makes_directory = false;
        for _ in 0..TRIES_MAX {
            makes_directory |=
                may_make && fs::DirBuilder::new().mode(0o755).create(directory).is_ok();
            let opened = own_files::check_directory(directory)
                .and_then(|()| own_files::open_or_create(&path, 0o600).map_err(error));
            let file = match opened {
                // Its last holder removed the directory at this moment.
                Err(e) if e.source.kind() == ErrorKind::NotFound && may_make => continue,
                opened => opened?,
            };
            wait_for(&file).map_err(error)?;
            // Its last holder may have removed the file after it was opened here.
            let named = fs::metadata(&path).map(|named| named.ino());
            if named.is_ok_and(|named| file.metadata().is_ok_and(|held| held.ino() == named)) {
                return Ok(Lock { _held: file, path: Some(path), makes_directory });
            }
        }
        Err(error(ErrorKind::WouldBlock.into()))
    }

    fn of_directory(root: &Path) -> Result<Lock> {
        let error = |e| Error::new("lock", root.display(), e);
        let directory = File::open(root).map_err(error)?;
        wait_for(&directory).map_err(error)?;
        Ok(Lock { _held: directory, path: None, makes_directory: false })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        // The next holder knows by the number of the file that this one is over.
        let _ = fs::remove_file(path);
        if let (Some(directory), true) = (path.parent(), self.makes_directory) {
            // Not where a daemon has something in it by now.
            let _ = fs::remove_dir(directory);
        }
    }
}

fn wait_for(file: &File) -> io::Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if waited < WAIT_MAX => std::thread::sleep(PAUSE),
            taken => return Ok(taken?),
        }
        waited += PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn lock_of_another_user_on_hierarchy_delays_nobody() {
        let (root, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Any user can open the directory of the hierarchy.
        let of_another = Lock::of_directory(root.path()).unwrap();
        assert!(Lock::of_directory(root.path()).is_err(), "it is locked");
        let lock = Lock::take(own.path(), false).unwrap();
        let path = own.path().join("groups.lock");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600, "nobody else can open it");
        drop((lock, of_another));
        assert!(!path.exists() && own.path().exists());
    }

    #[test]
    fn one_daemon_at_a_time_has_the_lock() {
        let own = tempfile::tempdir().unwrap();
        let directory = own.path().join("gangd");
        let first = Lock::take(&directory, true).unwrap();
        assert!(Lock::take(&directory, true).is_err());
        let (events, order) = channel();
        let later = events.clone();
        let at = directory.clone();
        let second = std::thread::spawn(move || {
            let lock = std::iter::repeat_with(|| Lock::take(&at, true)).find_map(Result::ok);
            later.send("taken").unwrap();
            drop(lock);
        });
        events.send("released").unwrap();
        drop(first);
        second.join().unwrap();
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["released", "taken"]);
        assert!(!directory.join("groups.lock").exists());
    }
}
