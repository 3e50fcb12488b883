//! The command lines of processes.
//!
//! Problem: a command line is read in the memory of its process. The page may be of a file system
//! of the process's owner (fuse(4)), and then the reader waits for as long as the owner likes.
//!
//! Approach: threads of their own read, a few at a time for the jobs of each user. A client waits
//! for them for a moment; a process whose command line has not come by then has its name instead,
//! in brackets.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc::sync_channel},
    thread,
    time::{Duration, Instant},
};

use gang_linux::process;
use gang_schedule::UserId;

/// A client waits for all command lines of a job for so long.
const WAITS: Duration = Duration::from_secs(1);

/// Threads that read command lines of one user's processes at a time.
const READERS_MAX: usize = 4;

/// Threads that read.
#[derive(Debug, Default)]
pub struct CommandLines {
    reading: Arc<Mutex<BTreeMap<UserId, usize>>>,
}

/// The right to read those of one user, until the thread that has it ends.
struct Permit {
    reading: Arc<Mutex<BTreeMap<UserId, usize>>>,
    of: UserId,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = reading.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                reading.remove(&self.of);
            }
        }
    }
}

impl CommandLines {
    /// Of processes, which are a user's; those that have ended are missing.
    pub fn read(&self, of: UserId, proc_root: &Path, pids: &[u32]) -> BTreeMap<u32, String> {
        self.read_by(of, proc_root, pids, process::command)
    }

    fn read_by(
        &self,
        of: UserId,
        proc_root: &Path,
        pids: &[u32],
        command: fn(&Path, u32) -> gang_linux::Result<String>,
    ) -> BTreeMap<u32, String> {
        let mut lines = BTreeMap::new();
        if let Some(permit) = self.permit(of) {
            let (sender, lines_read) = sync_channel(pids.len());
            let (root, asked): (PathBuf, Vec<u32>) = (proc_root.into(), pids.into());
            let read = move || {
                let _permit = permit;
                for pid in asked {
                    // The client does not wait any more.
                    if sender.try_send((pid, command(&root, pid))).is_err() {
                        break;
                    }
                }
            };
            // Without a thread each has its name.
            let _ = thread::Builder::new().name("command-lines".into()).spawn(read);
            let until = Instant::now() + WAITS;
            let left = || until.saturating_duration_since(Instant::now());
            while let Ok((pid, line)) = lines_read.recv_timeout(left()) {
                lines.insert(pid, line);
            }
        }
        let line = |&pid: &u32| {
            let line = lines.remove(&pid).unwrap_or_else(|| process::name(proc_root, pid));
            Some((pid, line.ok()?))
        };
        pids.iter().filter_map(line).collect()
    }

    fn permit(&self, of: UserId) -> Option<Permit> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let count = reading.entry(of).or_default();
        if *count >= READERS_MAX {
            return None;
        }
        *count += 1;
        Some(Permit { reading: self.reading.clone(), of })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: UserId = UserId(1);

    fn never(_: &Path, _: u32) -> gang_linux::Result<String> {
        loop {
            thread::park();
        }
    }

    #[test]
    fn who_is_not_read_has_his_name() {
        let (lines, root, me) = (CommandLines::default(), Path::new("/proc"), std::process::id());
        let of_me = lines.read(ONE, root, &[me, u32::MAX]);
        assert!(of_me.len() == 1 && !of_me[&me].starts_with('['), "{of_me:?}");
        for _ in 0..READERS_MAX {
            let line = &lines.read_by(ONE, root, &[me], never)[&me];
            assert!(line.starts_with('[') && line.ends_with(']'), "{line}");
        }
        // Nobody reads his any more; another one's are read.
        assert!(lines.read(ONE, root, &[me])[&me].starts_with('['));
        assert!(!lines.read(UserId(2), root, &[me])[&me].starts_with('['));
    }
}
