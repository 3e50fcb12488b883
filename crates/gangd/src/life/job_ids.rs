//! The numbers of jobs, none of which is given twice.
//!
//! Problem: a user may keep the number of a job in a script or on paper. With that number he must
//! never act on a later job, which is another user's. And the history is to have each number once.
//!
//! Approach: the next number is on file beside the socket before any client hears of the one before
//! it. The file stays when the daemon ends. Where the file is lost, as by a restart of the machine,
//! the history says which numbers were given.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use gang_linux::own_files;
use gang_schedule::JobId;

/// Greater numbers are of jobs that span hosts.
const MAX: u64 = JobId::FIRST_SPANNING.0;

/// The next number, on file.
#[derive(Debug)]
pub struct JobIds {
    path: PathBuf,
    next: Mutex<u64>,
}

/// Where the file of the daemon at a socket is.
fn path(socket: &Path) -> PathBuf {
    socket.with_extension("next")
}

/// The file that takes its place as soon as it is whole.
fn new_of(path: &Path) -> PathBuf {
    path.with_extension("next.new")
}

impl JobIds {
    /// The numbers of the daemon at a socket; `last` is the greatest that the history knows.
    pub fn of(socket: &Path, last: u64) -> JobIds {
        let path = path(socket);
        // Of a daemon that was killed while it wrote.
        let _ = fs::remove_file(new_of(&path));
        let on_file = match read(&path) {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(
                    path = %path.display(),
                    %error,
                    "cannot read which number the next job has; it follows the history"
                );
                1
            }
        };
        // One that is out of bounds was made up.
        let of_history = if last < MAX { last + 1 } else { 1 };
        JobIds { path, next: Mutex::new(on_file.max(of_history)) }
    }

    /// The number of the next job.
    pub fn next(&self) -> u64 {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number was given, and no client has heard of it yet. A disk that fails is logged, and
    /// keeps no client from registering jobs.
    pub fn take(&self, job: JobId) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if job.0 < *next {
            return;
        }
        *next = job.0 + 1;
        let new = new_of(&self.path);
        let text = format!("{next}\n");
        if let Err(error) = own_files::replace(&self.path, &new, text.as_bytes(), 0o600) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "a daemon after this one may give numbers of jobs again");
        }
    }
}

fn read(path: &Path) -> io::Result<u64> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(1),
        text => text?,
    };
    let number = text.trim().parse().ok().filter(|next| (1..=MAX).contains(next));
    number.ok_or_else(|| io::Error::other(format!("{:?} is no number of a job", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_is_not_given_again() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gangd.sock");
        let ids = JobIds::of(&socket, 0);
        assert_eq!(ids.next(), 1);
        // Two clients at once may come here in another order.
        [2, 1, 3].into_iter().for_each(|job| ids.take(JobId(job)));
        assert_eq!(JobIds::of(&socket, 0).next(), 4);
        assert_eq!(JobIds::of(&socket, 2).next(), 4);
        assert_eq!(JobIds::of(&socket, 7).next(), 8, "the history knows of later ones");
        assert_eq!(JobIds::of(&socket, u64::MAX).next(), 4, "a history that was tampered with");
    }

    #[test]
    fn a_number_that_cannot_be_written_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gangd.sock");
        let ids = JobIds::of(&socket, 0);
        // Nothing can be renamed to a directory with something in it.
        fs::create_dir_all(path(&socket).join("taken")).unwrap();
        ids.take(JobId(1));
        assert_eq!(ids.next(), 2);
        assert!(!new_of(&path(&socket)).exists());
        fs::write(new_of(&path(&socket)), "4").unwrap();
        JobIds::of(&socket, 0);
        assert!(!new_of(&path(&socket)).exists(), "of a daemon that was killed");
    }

    #[test]
    fn a_number_is_not_written_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (socket, dear) = (directory.path().join("gangd.sock"), directory.path().join("dear"));
        fs::write(&dear, "dear").unwrap();
        let ids = JobIds::of(&socket, 0);
        for (job, planted) in [(1, new_of(&path(&socket))), (2, path(&socket))] {
            let _ = fs::remove_file(&planted);
            std::os::unix::fs::symlink(&dear, &planted).unwrap();
            ids.take(JobId(job));
            assert_eq!(fs::read_to_string(&dear).unwrap(), "dear");
            assert_eq!(JobIds::of(&socket, 0).next(), job + 1);
        }
    }

    #[test]
    fn a_damaged_file_counts_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gangd.sock");
        for wrong in ["", "-1", "0", "four", "18446744073709551615", "9007199254740993"] {
            fs::write(path(&socket), wrong).unwrap();
            assert_eq!(JobIds::of(&socket, 5).next(), 6, "{wrong:?}");
        }
        JobIds::of(&socket, 5).take(JobId(6));
        assert_eq!(JobIds::of(&socket, 0).next(), 7);
    }
}
