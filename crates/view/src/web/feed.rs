//! One look at the daemon for all readers, and the messages to each reader.
//!
//! A *shot* is a snapshot with its number. A reader that has the shot before gets the changes
//! since. A reader that is new or slow gets the whole. Each text is written once, for the first
//! reader that wants it. There is one shot at a time: a reader that has not taken a shot when the
//! next one comes misses it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use gang_protocol::paths::Surroundings;
use gang_protocol::v1;
use serde::Serialize;
use tokio::sync::watch;

use super::minutes::{Minutes, Past};
use super::wire::{Cluster, Frame, Gone, Job, Row, Status};
use crate::live::{Link, Pace, Poller, SPAN_NS, Snapshot};
use crate::values;

/// How often is looked while somebody reads, and while nobody does.
const READ: Duration = Duration::from_millis(100);
const UNREAD: Duration = Duration::from_secs(1);

/// A snapshot, and what is sent of it.
pub struct Shot {
    pub number: u64,
    pub snapshot: Snapshot,
    has_new_status: bool,
    has_new_jobs: bool,
    has_new_cluster: bool,
    next: OnceLock<Bytes>,
    whole: OnceLock<Bytes>,
}

impl Shot {
    fn new(snapshot: Snapshot, before: Option<&Shot>) -> Shot {
        let pointer = |status: &Option<Arc<v1::Status>>| status.as_ref().map(Arc::as_ptr);
        let has_new_status = before
            .is_none_or(|before| pointer(&before.snapshot.status) != pointer(&snapshot.status));
        let has_new_jobs =
            before.is_none_or(|before| !Arc::ptr_eq(&before.snapshot.jobs, &snapshot.jobs));
        let cluster = |of: &Option<Arc<v1::Cluster>>| of.as_ref().map(Arc::as_ptr);
        let has_new_cluster = before
            .is_none_or(|before| cluster(&before.snapshot.cluster) != cluster(&snapshot.cluster));
        Shot {
            number: before.map_or(0, |before| before.number + 1),
            snapshot,
            has_new_status,
            has_new_jobs,
            has_new_cluster,
            next: OnceLock::new(),
            whole: OnceLock::new(),
        }
    }

    pub fn is_up(&self) -> bool {
        self.snapshot.link.is_up()
    }

    /// An event for a reader that has the shot with this number; `None`: it has none.
    pub fn event(&self, had: Option<u64>) -> Bytes {
        if let Link::Down { trouble, reason, .. } = &self.snapshot.link {
            let (at_ns, code) = (self.snapshot.at_ns, values::word(trouble));
            return event("gone", &Gone { at_ns, code, message: reason });
        }
        if had.is_some_and(|had| had + 1 == self.number) {
            self.next.get_or_init(|| {
                let ended = self.snapshot.ended.iter();
                event("frame", &self.frame(false, ended))
            })
        } else {
            self.whole.get_or_init(|| {
                let past = self.snapshot.past.since(self.snapshot.at_ns - SPAN_NS);
                event("begin", &self.frame(true, past))
            })
        }
        .clone()
    }

    /// The news since the shot before, or all of it.
    fn frame<'a>(&'a self, is_whole: bool, ended: impl Iterator<Item = &'a v1::Row>) -> Frame<'a> {
        let Snapshot { at_ns, status, jobs, cluster, coming, .. } = &self.snapshot;
        let with_status = is_whole || self.has_new_status;
        let with_jobs = is_whole || self.has_new_jobs;
        let with_cluster = is_whole || self.has_new_cluster;
        let mut rows: Vec<Row> = ended.map(Row::from).collect();
        let ended = rows.len();
        rows.extend(coming.iter().map(Row::from));
        Frame {
            at_ns: *at_ns,
            status: status.as_deref().filter(|_| with_status).map(Status::from),
            jobs: with_jobs.then(|| jobs.iter().map(Job::from).collect()),
            cluster: cluster.as_deref().filter(|_| with_cluster).map(Cluster::from),
            rows,
            ended,
        }
    }
}

/// A server-sent event. JSON on one line has no line break in it.
pub fn event(name: &str, data: &impl Serialize) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    // Plain data without maps whose keys could fail.
    let written = serde_json::to_writer(&mut text, data);
    debug_assert!(written.is_ok(), "{written:?}");
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// The last shot of the daemon, for any number of readers.
pub struct Feed {
    poller: Poller,
    shots: watch::Receiver<Option<Arc<Shot>>>,
    minutes: Arc<Mutex<Minutes>>,
    readers: AtomicU64,
}

impl Feed {
    pub fn start(surroundings: Surroundings) -> io::Result<Arc<Feed>> {
        let (sender, shots) = watch::channel::<Option<Arc<Shot>>>(None);
        let minutes = Arc::new(Mutex::new(Minutes::default()));
        let notes = minutes.clone();
        let mut last: Option<Arc<Shot>> = None;
        let poller = Poller::start(surroundings, Pace::every(UNREAD), move |snapshot| {
            let shot = Arc::new(Shot::new(snapshot, last.as_deref()));
            if shot.is_up() && shot.has_new_jobs {
                let mut minutes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                minutes.note(&shot.snapshot.jobs, shot.snapshot.at_ns);
            }
            last = Some(shot.clone());
            sender.send_replace(Some(shot));
        })?;
        Ok(Arc::new(Feed { poller, shots, minutes, readers: AtomicU64::new(0) }))
    }

    /// A reader until it is dropped.
    pub fn read(self: &Arc<Feed>) -> Reader {
        if self.readers.fetch_add(1, Ordering::AcqRel) == 0 {
            self.poller.set_pace(Some(Pace::every(READ)));
            self.poller.refresh();
        }
        Reader { feed: self.clone(), shots: self.shots.clone() }
    }

    /// The last shot.
    pub fn now(&self) -> Option<Arc<Shot>> {
        self.shots.borrow().clone()
    }

    /// The last shot; where there is none yet, the first.
    pub async fn latest(&self) -> Option<Arc<Shot>> {
        let mut shots = self.shots.clone();
        shots.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Has everybody see at once what was just changed.
    pub fn refresh(&self) {
        self.poller.refresh();
    }

    /// The last minutes of a job.
    pub fn minutes(&self, job: i64) -> Past {
        self.minutes.lock().unwrap_or_else(PoisonError::into_inner).of(job)
    }
}

/// A reader. It has at most one shot, the last.
pub struct Reader {
    feed: Arc<Feed>,
    shots: watch::Receiver<Option<Arc<Shot>>>,
}

impl Reader {
    /// The shot that there is.
    pub fn now(&mut self) -> Option<Arc<Shot>> {
        self.shots.borrow_and_update().clone()
    }

    /// The next shot; `None` where there will be none.
    pub async fn next(&mut self) -> Option<Arc<Shot>> {
        loop {
            self.shots.changed().await.ok()?;
            if let Some(shot) = self.now() {
                return Some(shot);
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.feed.readers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.feed.poller.set_pace(Some(Pace::every(UNREAD)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Instant;

    use gang_protocol::error::ClientError;

    use super::*;
    use crate::fixture;
    use crate::live::{Model, Moment};

    const MS: i64 = 1_000_000;

    fn at(ms: i64) -> Moment {
        Moment { utc_ns: ms * MS, instant: Instant::now() }
    }

    fn json(event: &Bytes) -> (String, serde_json::Value) {
        let text = std::str::from_utf8(event).unwrap();
        let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        (name.to_owned(), serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap())
    }

    fn slices(value: &serde_json::Value) -> Vec<i64> {
        value["rows"].as_array().unwrap().iter().map(|row| row[0].as_i64().unwrap()).collect()
    }

    #[test]
    fn a_reader_that_missed_a_shot_gets_the_whole() {
        let mut model = Model::new("host");
        model.connected(Path::new("/x"));
        model.status(fixture::status());
        model.jobs(vec![fixture::job(1, "a"), fixture::job(2, "b\n\nevent: evil")], at(0));
        let rows = |slices: std::ops::Range<i64>| {
            slices.map(|slice| fixture::row(slice, 10 * MS, &[(1, &[0, 1])])).collect::<Vec<_>>()
        };
        model.cluster(Some(fixture::cluster()));
        model.frame(rows(0..6), at(40));
        let first = Shot::new(model.snapshot(at(40)), None);
        model.frame(rows(4..9), at(70));
        let second = Shot::new(model.snapshot(at(70)), Some(&first));
        model.frame(rows(7..12), at(100));
        let third = Shot::new(model.snapshot(at(100)), Some(&second));

        let (name, whole) = json(&first.event(None));
        assert_eq!((name.as_str(), slices(&whole)), ("begin", vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(whole["jobs"][1]["name"], "b\n\nevent: evil");
        assert_eq!(whole["status"]["slice_ns"], 10_000_000);
        let (name, next) = json(&second.event(Some(first.number)));
        assert_eq!((name.as_str(), slices(&next)), ("frame", vec![4, 5, 6, 7, 8]));
        assert_eq!((whole["ended"].as_i64(), next["ended"].as_i64()), (Some(4), Some(3)));
        assert!(next.get("jobs").is_none() && next.get("status").is_none());
        assert_eq!(whole["cluster"]["jobs"][0]["rows"], "0-7");
        assert!(next.get("cluster").is_none());
        let (name, missed) = json(&third.event(Some(first.number)));
        assert_eq!((name.as_str(), slices(&missed)), ("begin", (0..12).collect()));
    }

    #[test]
    fn a_daemon_that_is_gone_is_reported_with_the_reason() {
        let mut model = Model::new("host");
        let gone = ClientError::NoDaemon { tried: vec![PathBuf::from("/x")] };
        model.lost(&gone, at(5));
        let (name, said) = json(&Shot::new(model.snapshot(at(5)), None).event(None));
        assert_eq!((name.as_str(), said["code"].as_str()), ("gone", Some("absent")));
        assert!(said["message"].as_str().unwrap().starts_with("no gangd listens at /x"));
    }
}
