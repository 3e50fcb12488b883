//! Jobs that have ended, with what they used: kept in SQLite.
//!
//! Problem: what was used yesterday is asked for tomorrow, by people and by accounting; a disk that is
//! slow, full or broken must not be felt by any gang.
//!
//! Approach: a thread of its own writes. Whoever ends a job hands it over and goes on; what comes faster
//! than it can be written, or after the disk failed, is left out, and that is told once. Readers open
//! the file themselves, read-only; write-ahead logging keeps them and the writer out of each other's way.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, params};

/// A job that has ended. Times are nanoseconds, points in time count from the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub job: u64,
    pub name: String,
    pub owner_uid: u32,
    pub class: String,
    pub policy: String,
    pub weight: u32,
    pub cpus: u32,
    pub registered_at_ns: u64,
    pub ended_at_ns: u64,
    pub cpu_time_ns: u64,
    pub in_slot_ns: u64,
    pub slots: u64,
}

/// How much is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    pub jobs: u64,
    pub days: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { jobs: 1_000_000, days: 365 }
    }
}

/// Which jobs are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    pub limit: u32,
    pub owner_uid: Option<u32>,
    /// Ended since then.
    pub since_ns: u64,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS ended_jobs (
        job INTEGER NOT NULL, name TEXT NOT NULL, owner_uid INTEGER NOT NULL, class TEXT NOT NULL,
        policy TEXT NOT NULL, weight INTEGER NOT NULL, cpus INTEGER NOT NULL,
        registered_at_ns INTEGER NOT NULL, ended_at_ns INTEGER NOT NULL,
        cpu_time_ns INTEGER NOT NULL, in_slot_ns INTEGER NOT NULL, slots INTEGER NOT NULL);
    CREATE INDEX IF NOT EXISTS by_end ON ended_jobs (ended_at_ns);";

/// Jobs that wait to be written.
const WAITING_MAX: usize = 10_000;

/// What is written in one go at most.
const BATCH: usize = 1000;

/// How often what is too old, or too much, is removed: after so many jobs.
const PRUNE_EVERY: usize = 1000;

/// How long a reader waits for the writer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where jobs are handed over.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    sender: Option<SyncSender<Ended>>,
    thread: Option<JoinHandle<()>>,
}

impl History {
    /// Opens the file, or makes it, and starts the writer.
    pub fn open(path: &Path, retention: Retention) -> rusqlite::Result<History> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(SCHEMA)?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("history".into())
            .spawn(move || Writer { connection, retention, has_failed: false }.run(&receiver));
        Ok(History { path: path.into(), sender: Some(sender), thread: thread.ok() })
    }

    /// Hands a job over; never waits.
    pub fn add(&self, ended: Ended) {
        let Some(sender) = &self.sender else { return };
        if let Err(TrySendError::Full(ended)) = sender.try_send(ended) {
            tracing::warn!(job = ended.job, "jobs end faster than their history can be written");
        }
    }

    /// The last jobs that have ended, the latest first.
    pub fn read(&self, query: Query) -> rusqlite::Result<Vec<Ended>> {
        let connection = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(PATIENCE)?;
        let mut statement = connection.prepare(
            "SELECT * FROM ended_jobs WHERE ended_at_ns >= ?1 AND (?2 IS NULL OR owner_uid = ?2)
             ORDER BY ended_at_ns DESC LIMIT ?3",
        )?;
        let rows = statement.query_map(
            params![query.since_ns as i64, query.owner_uid, query.limit],
            |row| {
                let number = |index| row.get::<_, i64>(index).map(|value| value as u64);
                Ok(Ended {
                    job: number(0)?,
                    name: row.get(1)?,
                    owner_uid: row.get(2)?,
                    class: row.get(3)?,
                    policy: row.get(4)?,
                    weight: row.get(5)?,
                    cpus: row.get(6)?,
                    registered_at_ns: number(7)?,
                    ended_at_ns: number(8)?,
                    cpu_time_ns: number(9)?,
                    in_slot_ns: number(10)?,
                    slots: number(11)?,
                })
            },
        )?;
        rows.collect()
    }
}

impl Drop for History {
    /// What was handed over is written before.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Writer {
    connection: Connection,
    retention: Retention,
    has_failed: bool,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Ended>) {
        let mut since_pruned = PRUNE_EVERY;
        while let Ok(first) = jobs.recv() {
            let batch: Vec<Ended> =
                [first].into_iter().chain(jobs.try_iter().take(BATCH)).collect();
            since_pruned += batch.len();
            let mut written = self.write(&batch);
            if since_pruned >= PRUNE_EVERY {
                since_pruned = 0;
                written = written.and_then(|()| self.prune(batch[0].ended_at_ns));
            }
            match written {
                Ok(()) => self.has_failed = false,
                Err(error) if !self.has_failed => {
                    self.has_failed = true;
                    tracing::error!(%error, "the history of jobs cannot be written; jobs go on");
                }
                Err(_) => {}
            }
        }
    }

    fn write(&mut self, batch: &[Ended]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO ended_jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?;
            for ended in batch {
                insert.execute(params![
                    ended.job as i64,
                    ended.name,
                    ended.owner_uid,
                    ended.class,
                    ended.policy,
                    ended.weight,
                    ended.cpus,
                    ended.registered_at_ns as i64,
                    ended.ended_at_ns as i64,
                    ended.cpu_time_ns as i64,
                    ended.in_slot_ns as i64,
                    ended.slots as i64,
                ])?;
            }
        }
        transaction.commit()
    }

    fn prune(&self, now_ns: u64) -> rusqlite::Result<()> {
        const DAY_NS: u64 = 86_400_000_000_000;
        let oldest_ns = now_ns.saturating_sub(self.retention.days.saturating_mul(DAY_NS));
        self.connection
            .execute("DELETE FROM ended_jobs WHERE ended_at_ns < ?1", params![oldest_ns as i64])?;
        self.connection.execute(
            "DELETE FROM ended_jobs WHERE rowid NOT IN
             (SELECT rowid FROM ended_jobs ORDER BY ended_at_ns DESC LIMIT ?1)",
            params![i64::try_from(self.retention.jobs).unwrap_or(i64::MAX)],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(job: u64, owner_uid: u32) -> Ended {
        Ended {
            job,
            name: format!("job {job}"),
            owner_uid,
            class: "batch".into(),
            policy: "local".into(),
            weight: 100,
            cpus: 2,
            registered_at_ns: job,
            ended_at_ns: 86_400_000_000_000 * 400 + job * 1_000_000_000,
            cpu_time_ns: 3,
            in_slot_ns: 4,
            slots: 5,
        }
    }

    fn all(limit: u32) -> Query {
        Query { limit, ..Query::default() }
    }

    #[test]
    fn what_ended_last_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.db");
        let history = History::open(&path, Retention::default()).unwrap();
        (1..=20).for_each(|job| history.add(ended(job, job as u32 % 2)));
        drop(history);
        let history = History::open(&path, Retention::default()).unwrap();
        let read = history.read(all(3)).unwrap();
        assert_eq!(read.iter().map(|job| job.job).collect::<Vec<_>>(), [20, 19, 18]);
        assert_eq!(read[0], ended(20, 0));
        let theirs = history.read(Query { owner_uid: Some(1), ..all(100) }).unwrap();
        assert!(theirs.len() == 10 && theirs.iter().all(|job| job.owner_uid == 1));
        let since = Query { since_ns: ended(19, 1).ended_at_ns, ..all(100) };
        assert_eq!(history.read(since).unwrap().len(), 2);
    }

    #[test]
    fn what_is_too_much_or_too_old_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.db");
        let history = History::open(&path, Retention { jobs: 10, days: 365 }).unwrap();
        history.add(Ended { ended_at_ns: 1, ..ended(1, 0) });
        (2..PRUNE_EVERY as u64 * 3).for_each(|job| history.add(ended(job, 0)));
        drop(history);
        let history = History::open(&path, Retention { jobs: 10, days: 365 }).unwrap();
        history.add(ended(9_999, 0));
        drop(history);
        let history = History::open(&path, Retention::default()).unwrap();
        let read = history.read(all(5000)).unwrap();
        assert!((10..2 * PRUNE_EVERY).contains(&read.len()), "{}", read.len());
        assert!(read.iter().all(|job| job.ended_at_ns > 1));
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "dear diary, this is no database at all").unwrap();
        assert!(History::open(file.path(), Retention::default()).is_err());
    }
}
