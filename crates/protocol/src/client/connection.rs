//! One connection to a daemon: whom it believes, what it sends and how it understands the answers.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::unanswered::Unanswered;
use crate::error::ClientError;
use crate::frame::{FrameError, read_message};
use crate::limits::REPLY_MAX;
use crate::peer;

#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
    server_uid: u32,
    /// Longest wait at each of connecting, writing and reading.
    timeout: Duration,
    unanswered: Unanswered,
    notice: Option<fn(&Path, Duration)>,
}

/// The numbers of processes that answers may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Those of this process's PID namespace.
    Shared,
    /// Those of the daemon's, whichever that is.
    OfDaemon,
}

impl Connection {
    /// Connects to the daemon at `socket` and checks whose it is.
    pub(super) fn open(
        socket: &Path,
        timeout: Duration,
        numbers: Numbers,
    ) -> Result<Connection, ClientError> {
        let stream = connect(socket, timeout).map_err(|errno| match errno {
            Errno::NOENT | Errno::CONNREFUSED => {
                ClientError::NoDaemon { tried: vec![socket.to_owned()] }
            }
            Errno::ACCESS | Errno::PERM => {
                ClientError::ConnectNotPermitted { socket: socket.to_owned(), source: errno.into() }
            }
            Errno::AGAIN => ClientError::TimedOut {
                doing: "connecting".to_owned(),
                socket: socket.to_owned(),
                waited: timeout,
            },
            _ => ClientError::Connect { socket: socket.to_owned(), source: errno.into() },
        })?;
        let server = peer::credentials(&stream)
            .map_err(|source| ClientError::Connect { socket: socket.to_owned(), source })?;
        let own_uid = rustix::process::geteuid().as_raw();
        let server_uid = server.uid;
        if !is_trusted(server_uid, own_uid) {
            return Err(ClientError::ForeignSocket {
                socket: socket.to_owned(),
                uid: server_uid,
                own_uid,
            });
        }
        if server.pid.is_none() && numbers == Numbers::Shared {
            // Numbers of processes in requests and answers would be those of others.
            return Err(ClientError::OtherNamespace { socket: socket.to_owned() });
        }
        Ok(Connection {
            stream: BufReader::new(stream),
            socket: socket.to_owned(),
            server_uid,
            timeout,
            unanswered: Unanswered::default(),
            notice: None,
        })
    }

    pub(super) fn notice_silence(&mut self, notice: fn(&Path, Duration)) {
        self.notice = Some(notice);
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// User id of the daemon: 0 or the caller's.
    pub(super) fn server_uid(&self) -> u32 {
        self.server_uid
    }

    /// Sends a request and waits for its answer. `method` is one of `org.gangd.v1`, or has its
    /// interface before it. `doing` says in errors what for.
    pub(super) fn call<R: DeserializeOwned>(
        &mut self,
        method: &str,
        args: impl Serialize,
        doing: String,
    ) -> Result<R, ClientError> {
        let reply = match self.exchange(method, &args) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Err(ClientError::Closed { doing, socket: self.socket.clone() }),
            Err(error) => return Err(self.broken(doing, error)),
        };
        self.understood(&reply, doing)
    }

    /// As [`call`](Self::call), however long the answer takes.
    pub(super) fn call_patiently<R: DeserializeOwned>(
        &mut self,
        method: &str,
        args: impl Serialize,
        doing: String,
    ) -> Result<R, ClientError> {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(None).map_err(|e| self.broken(doing.clone(), e.into()))?;
        // A long wait is no silence here.
        let notice = self.notice.take();
        let reply = self.call(method, args, doing);
        self.notice = notice;
        let _ = self.stream.get_ref().set_read_timeout(Some(self.timeout));
        reply
    }

    /// Sends a request about a job, and never waits. Returns the latest answer that has come by now
    /// to an earlier request about the same job. Nothing is sent after a refusal, or while too many
    /// requests have no answer.
    pub(super) fn send<R: DeserializeOwned>(
        &mut self,
        method: &str,
        args: impl Serialize,
        job: i64,
        doing: String,
    ) -> Result<Option<R>, ClientError> {
        let answers = self.unanswered.take(self.stream.get_ref());
        let answers = answers.map_err(|error| self.broken(doing.clone(), error))?;
        let latest = answers.into_iter().rfind(|(of, _)| *of == job);
        let latest =
            latest.map(|(_, answer)| self.understood(&answer, doing.clone())).transpose()?;
        if !self.unanswered.is_full() {
            request(method, &args)
                .and_then(|message| self.unanswered.send(self.stream.get_ref(), job, &message))
                .map_err(|error| self.broken(doing, error))?;
        }
        Ok(latest)
    }

    /// The parameters of a reply, or its error.
    fn understood<R: DeserializeOwned>(
        &self,
        reply: &[u8],
        doing: String,
    ) -> Result<R, ClientError> {
        let malformed =
            |doing, source| ClientError::Malformed { doing, socket: self.socket.clone(), source };
        let head: Head = match serde_json::from_slice(reply) {
            Ok(head) => head,
            Err(source) => return Err(malformed(doing, source)),
        };
        if head.error.is_some() {
            return match serde_json::from_slice(reply) {
                Ok(reply) => Err(ClientError::from_reply(doing, &reply)),
                Err(source) => Err(malformed(doing, source)),
            };
        }
        let body: Result<Body<R>, _> = serde_json::from_slice(reply);
        let parameters = body.and_then(|body| match body.parameters {
            Some(parameters) => Ok(parameters),
            // A method without results may leave its parameters out.
            None => serde_json::from_value(serde_json::json!({})),
        });
        parameters.map_err(|source| malformed(doing, source))
    }

    fn exchange(
        &mut self,
        method: &str,
        args: &impl Serialize,
    ) -> Result<Option<Vec<u8>>, FrameError> {
        let message = request(method, args)?;
        self.unanswered.wait(&mut self.stream)?;
        match send_all(self.stream.get_ref(), &message) {
            Ok(()) => self.answer(),
            // A daemon with too many clients says so and closes, without waiting for the request.
            Err(error) if is_closed(&error) => match read_message(&mut self.stream, REPLY_MAX) {
                Ok(Some(reply)) => Ok(Some(reply)),
                _ => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The answer to a request; where it is long in coming, that is noticed.
    fn answer(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let after = self.timeout * 3 / 10;
        let Some(notice) = self.notice.filter(|_| !self.begins_within(after)) else {
            return read_message(&mut self.stream, REPLY_MAX);
        };
        let left = self.timeout - after;
        notice(&self.socket, left);
        self.stream.get_ref().set_read_timeout(Some(left))?;
        let answer = read_message(&mut self.stream, REPLY_MAX);
        self.stream.get_ref().set_read_timeout(Some(self.timeout))?;
        answer
    }

    /// Whether an answer begins to arrive within a time; a wait that fails counts as one.
    fn begins_within(&self, time: Duration) -> bool {
        let stream = self.stream.get_ref();
        let time = Timespec::try_from(time).ok();
        !self.stream.buffer().is_empty()
            || poll(&mut [PollFd::new(stream, PollFlags::IN)], time.as_ref()) != Ok(0)
    }

    fn broken(&self, doing: String, error: FrameError) -> ClientError {
        let socket = self.socket.clone();
        match error {
            FrameError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ClientError::TimedOut { doing, socket, waited: self.timeout }
            }
            FrameError::Io(error) if is_closed(&error) => ClientError::Closed { doing, socket },
            source => ClientError::Lost { doing, socket, source },
        }
    }
}

/// No program is to die by SIGPIPE because a daemon has gone: libgang is in programs that leave
/// that signal as it is.
fn send_all(stream: &UnixStream, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        match net::send(stream, message, SendFlags::NOSIGNAL) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => message = &message[sent..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The other end is not there any more.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// A request as it is sent.
fn request(method: &str, args: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let parameters = serde_json::to_value(args).map_err(io::Error::from)?;
    let method = match method.contains('.') {
        true => method.to_owned(),
        false => format!("org.gangd.v1.{method}"),
    };
    let request = varlink::Request::create(method, Some(parameters));
    let mut message = serde_json::to_vec(&request).map_err(io::Error::from)?;
    message.push(0);
    Ok(message)
}

/// Whether a reply is an error, on which the type of its parameters depends.
#[derive(Deserialize)]
struct Head {
    error: Option<IgnoredAny>,
}

/// A reply that is no error. It is read by its type: by way of any JSON, a frame would cost several
/// times as much.
#[derive(Deserialize)]
#[serde(bound = "R: DeserializeOwned")]
struct Body<R> {
    parameters: Option<R>,
}

/// The machine's administrator and oneself are trusted. Anybody can make a socket at a place like
/// /tmp, and would learn of every program that is run.
fn is_trusted(server_uid: u32, own_uid: u32) -> bool {
    server_uid == 0 || server_uid == own_uid
}

/// The timeouts are set before connecting, because connecting waits too where the daemon's queue
/// is full.
fn connect(socket: &Path, timeout: Duration) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(socket)?;
    let stream =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&stream, Timeout::Recv, Some(timeout))?;
    sockopt::set_socket_timeout(&stream, Timeout::Send, Some(timeout))?;
    loop {
        match net::connect(&stream, &address) {
            Ok(()) => return Ok(UnixStream::from(stream)),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusts_root_and_oneself_only() {
        assert!(is_trusted(0, 1000));
        assert!(is_trusted(1000, 1000));
        assert!(is_trusted(0, 0));
        assert!(!is_trusted(1001, 1000));
        assert!(!is_trusted(1000, 0));
    }
}
