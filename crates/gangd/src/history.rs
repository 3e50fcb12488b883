//! Jobs that have ended, with what they used: kept in SQLite.
//!
//! Problem: people and accounting ask tomorrow for what was used yesterday. But no gang may feel a
//! disk that is slow, full or broken.
//!
//! Approach: a thread of its own writes. The thread that ends a job hands the job over and goes on.
//! Jobs that come faster than they can be written, or after the disk failed, are left out, and the
//! log says so once. Readers open the file anew, read-only. Write-ahead logging keeps readers and
//! the writer out of each other's way.

use std::{
    fs::Permissions,
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use gang_linux::own_files;
use gang_schedule::JobId;
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
    pub out_of_slot_ns: u64,
    /// The job of Slurm that it was of.
    pub slurm_job: Option<String>,
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

/// A choice of jobs.
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
        cpu_time_ns INTEGER NOT NULL, in_slot_ns INTEGER NOT NULL, slots INTEGER NOT NULL,
        out_of_slot_ns INTEGER NOT NULL, slurm_job TEXT);
    CREATE INDEX IF NOT EXISTS by_end ON ended_jobs (ended_at_ns);
    CREATE INDEX IF NOT EXISTS by_owner ON ended_jobs (owner_uid, ended_at_ns);
    CREATE INDEX IF NOT EXISTS by_job ON ended_jobs (job);";

/// The columns of a job, in the order in which they are read.
const COLUMNS: &str = "job, name, owner_uid, class, policy, weight, cpus, registered_at_ns, \
                       ended_at_ns, cpu_time_ns, in_slot_ns, slots, out_of_slot_ns, slurm_job";

/// Jobs that wait to be written.
const WAITING_MAX: usize = 10_000;

/// The most jobs that are written in one go.
const BATCH: usize = 1000;

/// How often what is too old, or too much, is removed: after so many jobs.
const PRUNE_EVERY: usize = 1000;

/// How long a reader waits for the writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Where jobs are handed over.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    /// Absent once it is closed.
    writer: Mutex<Option<(SyncSender<Ended>, JoinHandle<()>)>>,
    /// The log says already that jobs are left out.
    is_logged: AtomicBool,
}

impl History {
    /// Opens the file, or makes it, and starts the writer.
    pub fn open(path: &Path, retention: Retention) -> anyhow::Result<History> {
        close_to_others(path)?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(SCHEMA)?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("history".into())
            .spawn(move || Writer { connection, retention, has_failed: false }.run(&receiver))?;
        Ok(History {
            path: path.into(),
            writer: Mutex::new(Some((sender, thread))),
            is_logged: AtomicBool::new(false),
        })
    }

    /// Hands a job over; never waits.
    pub fn add(&self, ended: Ended) {
        let job = ended.job;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = writer.as_ref().is_some_and(|(sender, _)| sender.try_send(ended).is_ok());
        drop(writer);
        if is_taken {
            self.is_logged.store(false, Ordering::Relaxed);
        } else if !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                job,
                "jobs end faster than their history can be written; some are left out"
            );
        }
    }

    /// The greatest number of a job that has ended; 0 where none has, or it cannot be read.
    pub fn last_number(&self) -> u64 {
        let read = || {
            let connection =
                Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            // Those of hosts together have greater numbers, which no host gives.
            let of_host = "SELECT max(job) FROM ended_jobs WHERE job < ?1";
            let first_spanning = JobId::FIRST_SPANNING.0 as i64;
            connection.query_row(of_host, [first_spanning], |row| row.get::<_, Option<i64>>(0))
        };
        let last = read().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the numbers of the jobs in the history");
            None
        });
        last.and_then(|job| u64::try_from(job).ok()).unwrap_or(0)
    }

    /// Returns when all that was handed over is written; nothing is taken any more.
    pub fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = writer {
            drop(sender);
            let _ = thread.join();
        }
    }

    /// The last jobs that have ended, the latest first.
    pub fn read(&self, query: Query) -> rusqlite::Result<Vec<Ended>> {
        let connection = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Each by an index of its own: nobody reads through a million jobs of others.
        let of_owner = if query.owner_uid.is_some() { "owner_uid = ?2" } else { "?2 IS NULL" };
        let mut statement = connection.prepare(&format!(
            "SELECT {COLUMNS} FROM ended_jobs WHERE ended_at_ns >= ?1 AND {of_owner}
             ORDER BY ended_at_ns DESC LIMIT ?3",
        ))?;
        let since_ns = i64::try_from(query.since_ns).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![since_ns, query.owner_uid, query.limit], |row| {
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
                out_of_slot_ns: number(12)?,
                slurm_job: row.get(13)?,
            })
        })?;
        rows.collect()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes the file where it is not there, and keeps users out who are not of its group: they ask the
/// daemon, which knows what each may see. The files beside it get the permissions of the first one,
/// unless they were there before.
fn close_to_others(path: &Path) -> io::Result<()> {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let file = match own_files::open(Path::new(&name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if end.is_empty() => own_files::create(path, 0o600)?,
            Err(_) => continue,
            Ok(file) => file,
        };
        let mode = file.metadata()?.mode();
        file.set_permissions(Permissions::from_mode(mode & 0o770))?;
    }
    Ok(())
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
                [first].into_iter().chain(jobs.try_iter()).take(BATCH).collect();
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
            let mut insert = transaction.prepare_cached(&format!(
                "INSERT INTO ended_jobs ({COLUMNS})
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
            ))?;
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
                    ended.out_of_slot_ns as i64,
                    ended.slurm_job,
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
        // The end of the first one that is too much; there is none where there are fewer.
        self.connection.execute(
            "DELETE FROM ended_jobs WHERE ended_at_ns <=
             (SELECT ended_at_ns FROM ended_jobs ORDER BY ended_at_ns DESC LIMIT 1 OFFSET ?1)",
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
            policy: "gang".into(),
            weight: 100,
            cpus: 2,
            registered_at_ns: job,
            ended_at_ns: 86_400_000_000_000 * 400 + job * 1_000_000_000,
            cpu_time_ns: 3,
            in_slot_ns: 4,
            slots: 5,
            out_of_slot_ns: 6,
            slurm_job: Some("12_3".into()),
        }
    }

    fn all(limit: u32) -> Query {
        Query { limit, ..Query::default() }
    }

    #[test]
    fn a_name_is_no_statement() {
        let directory = tempfile::tempdir().unwrap();
        let history =
            History::open(&directory.path().join("history.db"), Retention::default()).unwrap();
        let name = "'); DROP TABLE jobs; --";
        history.add(Ended { name: name.into(), ..ended(1, 1) });
        history.add(ended(2, 1));
        drop(history);
        let history =
            History::open(&directory.path().join("history.db"), Retention::default()).unwrap();
        let names: Vec<String> =
            history.read(all(3)).unwrap().into_iter().map(|job| job.name).collect();
        assert_eq!(names, ["job 2", name]);
    }

    #[test]
    fn latest_jobs_come_first() {
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
        assert_eq!(history.last_number(), 20);
    }

    #[test]
    fn jobs_too_many_or_too_old_are_removed() {
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
    fn jobs_handed_over_are_written_before_closing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.db");
        let history = History::open(&path, Retention::default()).unwrap();
        (1..=3000).for_each(|job| history.add(ended(job, 0)));
        history.close();
        assert_eq!(history.read(all(5000)).unwrap().len(), 3000);
        history.add(ended(3001, 0));
        history.close();
        assert_eq!(history.read(all(5000)).unwrap().len(), 3000);
    }

    #[test]
    fn questions_are_answered_by_an_index() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.db");
        drop(History::open(&path, Retention::default()).unwrap());
        let connection = Connection::open(&path).unwrap();
        for (of_owner, index) in [("owner_uid = ?2", "by_owner"), ("?2 IS NULL", "by_end")] {
            let plan: String = connection
                .query_row(
                    &format!(
                        "EXPLAIN QUERY PLAN SELECT {COLUMNS} FROM ended_jobs
                         WHERE ended_at_ns >= ?1 AND {of_owner} ORDER BY ended_at_ns DESC LIMIT ?3"
                    ),
                    params![0, 7, 10],
                    |row| row.get(3),
                )
                .unwrap();
            assert!(plan.contains(index), "{plan}");
        }
    }

    #[test]
    fn file_is_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.db");
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
        let history = History::open(&path, Retention::default()).unwrap();
        history.add(ended(1, 0));
        history.close();
        assert_eq!(mode(), 0o600);
        // Of a daemon that let everybody read it, and of an administrator who lets a group.
        for (before, after) in [(0o644, 0o640), (0o660, 0o660)] {
            std::fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            assert_eq!(History::open(&path, Retention::default()).unwrap().last_number(), 1);
            assert_eq!(mode(), after);
        }
        let link = directory.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let refused = History::open(&link, Retention::default()).unwrap_err();
        assert!(refused.to_string().contains("it is a link"), "{refused}");
    }

    #[test]
    fn a_file_that_is_no_database_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "dear diary, this is no database at all").unwrap();
        assert!(History::open(file.path(), Retention::default()).is_err());
    }
}
