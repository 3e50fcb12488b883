//! Ports of gangs: the daemon flushes them around the ends of slots, and sees how programs stand.
//!
//! Problem: before a gang gives its CPUs up, nothing of it may be on its way. Its programs may
//! compute for seconds, and answer nothing meanwhile.
//!
//! Approach: a port shares a page with the daemon ([`gang_net::port`]), which also takes copies of
//! the descriptors of its queue and its socket. A thread of the daemon ([`flusher`]) holds back the
//! frames of a gang, reads its sockets in its place, puts what came into rings of its pages, and
//! tells the senders' hosts by receipts ([`port`], [`gang`]). Packets in a queue in shared
//! memory are held already.
//!
//! Pages are copied by read(2) and write(2), and never mapped: a page that is cut short or lies
//! harms its own job alone. Sockets are the program's, so the daemon sends nothing that the program
//! could not.
//!
//! Properties: the conductor waits for no flush. A flush takes its time at most, and a port that
//! fails harms no other gang. Without the daemon, frames that were held back go on by themselves.

mod contents;
pub mod flusher;
mod gang;
mod port;
mod requests;

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gang_conductor::{Accounts, quota::Quota};
use gang_net::{Key, Stands, Sums};
use gang_schedule::{JobId, UserId};

use self::gang::Gang;
use crate::error::Error;

/// Ports of one job. Each takes up to four descriptors of the daemon.
const OF_JOB_MAX: usize = 1_024;

/// Ports of all jobs, of which no user has more than half of what others leave.
const QUOTA: Quota =
    Quota { maximum: 4_096, of_user: 4_096, names: ["ports of all jobs", "ports of a user"] };

/// The ports of all jobs.
#[derive(Default)]
pub struct Ports {
    jobs: Mutex<Jobs>,
    /// A port came, or the daemon ends.
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    all: BTreeMap<JobId, Arc<OfJob>>,
    /// Of jobs that are over.
    sums: Sums,
    is_closed: bool,
    /// Grows with each port that comes.
    came: u64,
}

/// The ports of a job.
struct OfJob {
    key: Key,
    user: UserId,
    gang: Mutex<Gang>,
    /// The last that is known, for those who only look.
    shown: Mutex<Shown>,
}

/// The figures of a job's ports.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// That are open.
    pub ports: usize,
    /// That were ever there.
    pub all: usize,
    /// That held something for their programs at the last flush.
    pub holding: usize,
    pub sums: Sums,
    pub stands: Stands,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn drawn() -> io::Result<Key> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(Key(bytes))
}

impl Ports {
    /// The key of the ports of a user's job; the first call draws it.
    fn key(&self, job: JobId, user: UserId) -> Result<Key, Error> {
        if let Some(of) = self.of(job) {
            return Ok(of.key);
        }
        let key = drawn().map_err(|error| Error::Failed {
            operation: "draw a key".into(),
            reason: error.to_string(),
        })?;
        let mut jobs = locked(&self.jobs);
        Ok(jobs.all.entry(job).or_insert_with(|| Arc::new(OfJob::new(key, user))).key)
    }

    fn of(&self, job: JobId) -> Option<Arc<OfJob>> {
        locked(&self.jobs).all.get(&job).cloned()
    }

    /// Takes a port, unless there are as many as may be.
    fn add(
        &self,
        job: JobId,
        of: &OfJob,
        port: port::Port,
        accounts: &Accounts,
    ) -> Result<(), Error> {
        let (mut his, mut all) = (0, 0);
        for (_, other) in self.each() {
            let ports = locked(&other.shown).ports;
            all += ports;
            his += if other.user == of.user { ports } else { 0 };
        }
        QUOTA.admit(accounts, of.user, his, all)?;
        let mut gang = locked(&of.gang);
        gang.forget_closed();
        if gang.open() >= OF_JOB_MAX {
            return Err(Error::LimitReached { limit: "ports of a job", maximum: OF_JOB_MAX });
        }
        gang.add(port);
        *locked(&of.shown) = gang.shown();
        drop(gang);
        let mut jobs = locked(&self.jobs);
        // The job may be over by now.
        if jobs.all.contains_key(&job) {
            jobs.came += 1;
            self.changed.notify_all();
        }
        Ok(())
    }

    /// A job is over.
    pub fn end(&self, job: JobId) {
        let mut jobs = locked(&self.jobs);
        if let Some(of) = jobs.all.remove(&job) {
            let sums = locked(&of.shown).sums;
            jobs.sums.join(&sums);
        }
    }

    /// The figures of a job's ports; none where it has opened none.
    pub fn shown(&self, job: JobId) -> Option<Shown> {
        let of = self.of(job)?;
        let shown = locked(&of.shown).clone();
        (shown.all > 0).then_some(shown)
    }

    /// Of all jobs since the daemon began: open ports, and sums; none where there was no port.
    pub fn total(&self) -> Option<(usize, Sums)> {
        let (mut ports, mut sums) = (0, locked(&self.jobs).sums);
        let mut has_any = sums.flushes > 0;
        for (_, of) in self.each() {
            let shown = locked(&of.shown);
            has_any |= shown.all > 0;
            ports += shown.ports;
            sums.join(&shown.sums);
        }
        has_any.then_some((ports, sums))
    }

    fn each(&self) -> Vec<(JobId, Arc<OfJob>)> {
        locked(&self.jobs).all.iter().map(|(&job, of)| (job, of.clone())).collect()
    }

    /// Jobs with ports that are open.
    fn open(&self) -> Vec<(JobId, Arc<OfJob>)> {
        let mut all = self.each();
        all.retain(|(_, of)| locked(&of.shown).ports > 0);
        all
    }

    /// The thread that flushes ends.
    pub fn close(&self) {
        locked(&self.jobs).is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for a port that came after `came` were there, or for a time; none once it is closed.
    fn wait(&self, came: u64, at_most: Option<Duration>) -> Option<u64> {
        let mut jobs = locked(&self.jobs);
        if !jobs.is_closed && jobs.came == came {
            jobs = match at_most {
                Some(at_most) => {
                    let waited = self.changed.wait_timeout(jobs, at_most);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            };
        }
        (!jobs.is_closed).then_some(jobs.came)
    }
}

impl OfJob {
    fn new(key: Key, user: UserId) -> OfJob {
        OfJob { key, user, gang: Mutex::default(), shown: Mutex::default() }
    }
}
