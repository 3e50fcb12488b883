//! Errors between a client and its daemon.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::frame::FrameError;
use crate::peer::UNSEEN;
use crate::v1;

/// Why a request of [`Client`](crate::client::Client) came to nothing.
///
/// Each message says what was being done and to what; where a cause lies deeper it is the
/// `source`, not part of the text. `doing` reads like "suspending job 3".
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no gangd listens at {}; `gang run` starts one, or an administrator starts gangd",
        Paths(.tried))]
    NoDaemon { tried: Vec<PathBuf> },

    #[error("the socket {} is not ours: it is served by uid {uid}, neither root nor you \
        (uid {own_uid}); set GANG_SOCKET to a socket of your own, or have its owner remove it",
        .socket.display())]
    ForeignSocket { socket: PathBuf, uid: u32, own_uid: u32 },

    #[error("you may not connect to gangd at {}; ask for access to that socket, or set \
        GANG_SOCKET to one of your own", .socket.display())]
    ConnectNotPermitted { socket: PathBuf, source: io::Error },

    #[error("cannot use gangd at {}: {UNSEEN}", .socket.display())]
    OtherNamespace { socket: PathBuf },

    #[error("cannot connect to gangd at {}", .socket.display())]
    Connect { socket: PathBuf, source: io::Error },

    #[error("gangd at {} did not answer within {} s while {doing}; the daemon may be stuck \
        or stopped (its programs run on)", .socket.display(), .waited.as_secs_f64())]
    TimedOut { doing: String, socket: PathBuf, waited: Duration },

    #[error("the connection to gangd at {} broke while {doing}", .socket.display())]
    Lost { doing: String, socket: PathBuf, source: FrameError },

    #[error("gangd at {} closed the connection while {doing}; it has ended or has too many \
        clients, try again", .socket.display())]
    Closed { doing: String, socket: PathBuf },

    #[error("gangd at {} answered what this program does not understand while {doing}; \
        are both of the same version?", .socket.display())]
    Malformed { doing: String, socket: PathBuf, source: serde_json::Error },

    #[error(
        "gangd does not know the request made while {doing}: {error}; \
        are both of the same version?"
    )]
    Unsupported { doing: String, error: String },

    #[error("while {doing}: there is no job {job}; `gang ls` lists them")]
    NoSuchJob { doing: String, job: i64 },

    #[error("while {doing}: there is no process {pid}")]
    NoSuchProcess { doing: String, pid: i64 },

    #[error("while {doing}: there is no thread {tid}, or it is not of the job by itself")]
    NoSuchThread { doing: String, tid: i64 },

    #[error(
        "while {doing}: there is no cgroup {cgroup}; its path counts from the root of the \
        hierarchy, as in /proc/PID/cgroup"
    )]
    NoSuchCgroup { doing: String, cgroup: String },

    // The daemon says itself what was asked.
    #[error("{operation} is not permitted: {reason}{}", Administrators(.reason))]
    NotPermitted { doing: String, operation: String, reason: String },

    #[error("while {doing}: {value} is not accepted for {parameter}, which takes {accepted}")]
    InvalidValue { doing: String, parameter: String, value: String, accepted: String },

    #[error(
        "while {doing}: gangd's limit of {maximum} {limit} is reached; end some{}", Raise(.limit)
    )]
    LimitReached { doing: String, limit: String, maximum: i64 },

    #[error(
        "while {doing}: {} of {resource} are not there: {} are free, {} of them are promised to other \
        jobs, and the machine has {}", Bytes(*.wanted), Bytes(*.free), Bytes(*.promised), Bytes(*.total)
    )]
    NotEnough { doing: String, resource: String, wanted: i64, free: i64, promised: i64, total: i64 },

    #[error("cannot {operation}: {reason}")]
    Failed { doing: String, operation: String, reason: String },
}

impl ClientError {
    /// True where nothing listens, and so a daemon could be started.
    pub fn is_no_daemon(&self) -> bool {
        matches!(self, Self::NoDaemon { .. })
    }

    /// True where nothing more can be asked on the same connection: the request may have been heard
    /// or not, and an answer may come late.
    pub fn breaks_the_connection(&self) -> bool {
        matches!(
            self,
            Self::Closed { .. }
                | Self::Lost { .. }
                | Self::TimedOut { .. }
                | Self::Malformed { .. }
        )
    }

    /// The error of an error reply.
    pub(crate) fn from_reply(doing: String, reply: &varlink::Reply) -> Self {
        use v1::ErrorKind::*;
        // Those of auto1 have the same names and parameters.
        let mut reply = reply.clone();
        if let Some(name) = reply.error.as_ref().and_then(|name| name.strip_prefix(AUTO1)) {
            reply.error = Some(format!("org.gangd.v1.{name}").into());
        }
        match v1::ErrorKind::from(&reply) {
            NoSuchJob(Some(e)) => Self::NoSuchJob { doing, job: e.job },
            NoSuchProcess(Some(e)) => Self::NoSuchProcess { doing, pid: e.pid },
            NoSuchThread(Some(e)) => Self::NoSuchThread { doing, tid: e.tid },
            NoSuchCgroup(Some(e)) => Self::NoSuchCgroup { doing, cgroup: e.cgroup },
            NotPermitted(Some(e)) => {
                Self::NotPermitted { doing, operation: e.operation, reason: e.reason }
            }
            InvalidValue(Some(e)) => Self::InvalidValue {
                doing,
                parameter: e.parameter,
                value: e.value,
                accepted: e.accepted,
            },
            LimitReached(Some(e)) => {
                Self::LimitReached { doing, limit: e.limit, maximum: e.maximum }
            }
            NotEnough(Some(e)) => Self::NotEnough {
                doing,
                resource: e.resource,
                wanted: e.wanted,
                free: e.free,
                promised: e.promised,
                total: e.total,
            },
            Failed(Some(e)) => Self::Failed { doing, operation: e.operation, reason: e.reason },
            _ => {
                let name = reply.error.as_deref().unwrap_or("an error without a name");
                let error = match &reply.parameters {
                    Some(parameters) => format!("{name} {parameters}"),
                    None => name.to_owned(),
                };
                Self::Unsupported { doing, error }
            }
        }
    }
}

/// How names of the second interface begin.
const AUTO1: &str = "org.gangd.auto1.";

/// Limits that an administrator may change: as errors name them, and their keys in `[limits]` of
/// gangd.toml. The others are gangd's own.
pub const LIMITS: [(&str, &str); 5] = [
    ("jobs", "jobs"),
    ("jobs of a user", "jobs_per_user"),
    ("clients", "clients"),
    ("clients of a user", "clients_per_user"),
    ("CPUs of all jobs of a user", "cpus_per_user"),
];

/// How a limit is raised, if it can be.
struct Raise<'a>(&'a str);

impl fmt::Display for Raise<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = LIMITS.iter().find(|(limit, _)| *limit == self.0);
        let Some((_, key)) = key else { return Ok(()) };
        write!(f, ", or have its administrator raise {key} in [limits] of gangd.toml")
    }
}

/// Users that count as administrators, for a reason that names these.
struct Administrators<'a>(&'a str);

impl fmt::Display for Administrators<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.contains("only administrators") || self.0.contains("gangd.toml") {
            return Ok(());
        }
        f.write_str(" (root, and the group that admin_group in gangd.toml names)")
    }
}

/// Bytes as people write them.
struct Bytes(i64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = u64::try_from(self.0).unwrap_or(0);
        bytesize::ByteSize::b(bytes).display().iec().fmt(f)
    }
}

struct Paths<'a>(&'a [PathBuf]);

impl fmt::Display for Paths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, path) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(" or ")?;
            }
            write!(f, "{}", path.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_names_how_to_change_it() {
        let limit = |limit: &str| {
            let error = ClientError::LimitReached {
                doing: "registering a job".into(),
                limit: limit.into(),
                maximum: 4,
            };
            error.to_string()
        };
        assert_eq!(
            limit("jobs of a user"),
            "while registering a job: gangd's limit of 4 jobs of a user is reached; end some, or \
             have its administrator raise jobs_per_user in [limits] of gangd.toml"
        );
        assert!(limit("single threads of a job").ends_with("is reached; end some"));
        let refused = |reason: &str| {
            let (operation, reason) = ("shut the daemon down".into(), reason.into());
            ClientError::NotPermitted { doing: String::new(), operation, reason }.to_string()
        };
        assert!(refused("only administrators may").contains("admin_group in gangd.toml"));
        assert!(!refused("it is another user's").contains("admin_group"));
    }
}
