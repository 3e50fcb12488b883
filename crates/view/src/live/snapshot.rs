//! The state of a daemon at one moment.

use std::error::Error;
use std::sync::Arc;

use gang_protocol::error::ClientError;
use gang_protocol::v1;
use serde::Serialize;

use super::{Past, Rates};
use crate::spanning::Spanning;
use crate::values::owner;

/// All that a view shows. Cheap to clone and to keep.
#[derive(Debug, Clone, Serialize)]
pub struct Snapshot {
    /// When the daemon was asked last, UTC.
    pub at_ns: i64,
    /// The name of the machine.
    pub host: Arc<str>,
    pub link: Link,
    /// As it was heard last; absent until the daemon has answered for the first time.
    pub status: Option<Arc<v1::Status>>,
    /// By id; as they were heard last.
    pub jobs: Arc<[JobView]>,
    /// As it was heard last; absent where the daemon is in none.
    pub cluster: Option<Arc<v1::Cluster>>,
    /// Rows that have ended since the snapshot before. A view that missed a snapshot finds them in
    /// `past`.
    pub ended: Arc<[v1::Row]>,
    /// The row under way, and those planned after it.
    pub coming: Arc<[v1::Row]>,
    /// Ended rows of the last seconds, these `ended` included.
    #[serde(skip)]
    pub past: Past,
}

impl Snapshot {
    pub fn job(&self, id: i64) -> Option<&JobView> {
        let at = self.jobs.binary_search_by_key(&id, |view| view.job.id).ok()?;
        Some(&self.jobs[at])
    }

    /// The job of that number, where it spans hosts.
    pub fn spanning(&self, id: i64) -> Option<Spanning<'_>> {
        Spanning::find(self.cluster.as_deref(), id)
    }

    /// The row whose slice is under way at a moment (UTC); absent where no job has one.
    pub fn row_at(&self, moment_ns: i64) -> Option<&v1::Row> {
        self.coming.iter().find(|row| row.start_ns <= moment_ns && moment_ns < row.end_ns)
    }
}

/// A job, and the rates from two looks at it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobView {
    #[serde(flatten)]
    pub job: v1::Job,
    /// The name of its user.
    pub owner: Arc<str>,
    /// Its CPUs by host, where it spans hosts: `a:4,b:4`.
    pub hosts: Option<Arc<str>>,
    pub rates: Rates,
}

impl JobView {
    /// A job that was looked at once, so that no rates are known.
    pub fn alone(job: v1::Job) -> JobView {
        let owner = owner(job.owner_uid).into();
        JobView { owner, job, hosts: None, rates: Rates::default() }
    }
}

/// How it stands between us and the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Link {
    /// Nothing was heard yet.
    Connecting,
    Up {
        socket: String,
    },
    Down {
        trouble: Trouble,
        /// A message for people. It may hold text that comes from elsewhere.
        reason: String,
        /// UTC.
        since_ns: i64,
    },
}

impl Link {
    pub fn is_up(&self) -> bool {
        matches!(self, Link::Up { .. })
    }
}

/// Why there is no daemon to talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// None listens.
    Absent,
    /// It does not answer in time.
    Silent,
    /// It says what this program does not understand, or the other way round.
    OtherVersion,
    /// This user may not, or the socket is not to be trusted.
    Forbidden,
    /// The connection broke, or it refused to answer.
    Broken,
}

impl Trouble {
    pub fn of(error: &ClientError) -> Trouble {
        use ClientError::*;
        match error {
            NoDaemon { .. } => Trouble::Absent,
            TimedOut { .. } => Trouble::Silent,
            Malformed { .. } | Unsupported { .. } => Trouble::OtherVersion,
            ConnectNotPermitted { .. }
            | ForeignSocket { .. }
            | OtherNamespace { .. }
            | NotPermitted { .. } => Trouble::Forbidden,
            _ => Trouble::Broken,
        }
    }
}

/// An error with all of its causes, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
