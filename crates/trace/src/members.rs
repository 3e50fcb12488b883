//! Which process is of which job.
//!
//! Problem: the kernel knows processes, and only the daemon knows their jobs. Asked for every job
//! five times a second, the daemon would have to look at all their processes, and the recording
//! would change what it records.
//!
//! Approach: all jobs are listed by one call. The processes of a job are asked for when it is seen
//! first, when their number is another one than it was, and at the end. Those that came and went in
//! between the kernel has on record: a process is of the job of who started it.

use std::collections::BTreeMap;

use gang_linux::switches::Fork;
use gang_protocol::{client::Client, error::ClientError};

#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Names by the numbers of jobs.
    pub jobs: BTreeMap<i64, String>,
    /// Jobs by the numbers of processes.
    pub of: BTreeMap<i32, i64>,
    /// How many processes each job had when it was asked for them.
    pub counted: BTreeMap<i64, i64>,
}

impl Members {
    /// Asks the daemon what it has to be asked; when it is for the last time, for the processes of
    /// all jobs.
    pub fn look(&mut self, client: &mut Client, is_last: bool) -> Result<(), ClientError> {
        for job in client.list_jobs()?.jobs {
            let is_known = self.is_known(job.id, job.processes);
            self.jobs.insert(job.id, job.name);
            if is_known && !is_last {
                continue;
            }
            match client.show_job(job.id) {
                Ok(shown) => {
                    // Those of somebody else are not to be seen.
                    let processes = shown.processes.into_iter().flatten();
                    let pids = processes.map(|process| process.pid as i32);
                    self.add(job.id, shown.details.processes, pids);
                }
                Err(error) if error.breaks_the_connection() => return Err(error),
                // It has ended meanwhile.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn is_known(&self, job: i64, processes: i64) -> bool {
        self.counted.get(&job) == Some(&processes)
    }

    fn add(&mut self, job: i64, count: i64, pids: impl Iterator<Item = i32>) {
        self.counted.insert(job, count);
        self.of.extend(pids.map(|pid| (pid, job)));
    }

    /// Adds who was started by processes of jobs. In the order of time: one may have started
    /// another.
    pub fn add_children(&mut self, forks: &[Fork]) {
        for fork in forks {
            if let Some(&job) = self.of.get(&fork.parent) {
                self.of.entry(fork.child).or_insert(job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_process_count_asks_again() {
        let mut members = Members::default();
        assert!(!members.is_known(3, 0), "not even that it has none");
        members.add(3, 0, [].into_iter());
        assert!(members.is_known(3, 0));
        assert!(!members.is_known(3, 2));
        members.add(3, 2, [30, 31].into_iter());
        assert!(members.is_known(3, 2) && !members.is_known(3, 1));
        assert!(!members.is_known(4, 2));
    }

    #[test]
    fn children_are_of_the_job_of_who_started_them() {
        let fork = |parent: i32, child: i32| Fork { at_ns: 0, parent, child };
        let mut members = Members::default();
        members.add(3, 1, [30].into_iter());
        members.add(4, 1, [40].into_iter());
        // 40 was started by 30, and put into a job of its own.
        members.add_children(&[fork(30, 31), fork(31, 32), fork(30, 40), fork(50, 51)]);
        let expected = [(30, 3), (31, 3), (32, 3), (40, 4)];
        assert_eq!(members.of, BTreeMap::from(expected));
    }
}
