//! Connections: how many there may be, and the thread that serves each of them.
//!
//! Of the connections, no account has more than half of what others leave
//! ([`gang_conductor::quota`]).

use std::{
    collections::BTreeMap,
    io::{self, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use gang_conductor::quota::{Full, Quota};
use gang_protocol::{
    auto1,
    frame::{FrameError, parse_request, read_message},
    limits::{CLIENTS, CLIENTS_OF_USER, MESSAGE_MAX},
    peer, v1,
};
use gang_schedule::UserId;
use varlink::{ConnectionHandler, VarlinkService};

use super::{
    io_deadline::{DeadlineReader, DeadlineWriter},
    session::{AutoSession, Session},
};
use crate::{
    conduct::{client_priority::ThreadPriority, requests},
    daemon::Daemon,
    life::peer::Peer,
    settings::Settings,
};

/// A connection without a message for this long is closed.
const SILENCE: Duration = Duration::from_secs(600);

/// Connections that are open, by user.
#[derive(Debug, Default)]
pub struct Clients {
    by_user: Mutex<BTreeMap<UserId, usize>>,
    all: AtomicUsize,
    /// The log says already that there are no descriptors for more of them.
    are_kept_out: AtomicBool,
}

/// One open connection.
#[derive(Debug)]
struct Seat(Arc<Clients>, UserId);

impl Clients {
    pub fn count(&self) -> usize {
        self.all.load(Ordering::Acquire)
    }

    /// A seat for one more of a user, or the limit that is reached.
    fn seat(self: &Arc<Clients>, user: UserId, settings: &Settings) -> Result<Seat, Full> {
        let Settings { limits, accounts, .. } = settings;
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = by_user.get(&user).copied().unwrap_or(0);
        let quota = Quota {
            maximum: limits.clients,
            of_user: limits.clients_per_user,
            names: [CLIENTS, CLIENTS_OF_USER],
        };
        quota.admit(accounts, user, of_user, self.count())?;
        by_user.insert(user, of_user + 1);
        self.all.fetch_add(1, Ordering::AcqRel);
        Ok(Seat(Arc::clone(self), user))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut by_user = self.0.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_user.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                by_user.remove(&self.1);
            }
        }
        self.0.all.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The wait for descriptors, where there are none for a new connection: epoll would report the
/// listener as readable all the time.
const WITHOUT_DESCRIPTORS: Duration = Duration::from_millis(50);

/// Takes the connections that wait, each with a thread of its own.
pub fn accept(listener: &UnixListener, daemon: &Arc<Daemon>, clients: &Arc<Clients>) {
    // Further connections wait until the other sources of the main thread had their turn.
    for _ in 0..64 {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                clients.are_kept_out.store(false, Ordering::Relaxed);
                break;
            }
            Err(error) => {
                if !clients.are_kept_out.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "cannot take a connection; it is tried again and again");
                }
                std::thread::sleep(WITHOUT_DESCRIPTORS);
                break;
            }
        };
        let Ok(credentials) = peer::credentials(&stream) else { continue };
        let pidfd = peer::pidfd(&stream);
        let settings = daemon.settings();
        let seat = match clients.seat(settings.accounts.of(credentials.uid), &settings) {
            Ok(seat) => seat,
            Err(full) => {
                refuse(stream, &full);
                continue;
            }
        };
        let daemon = Arc::clone(daemon);
        let spawned = std::thread::Builder::new().name("client".into()).spawn(move || {
            let _seat = seat;
            let peer = Peer::of(&credentials, pidfd, settings.admin_gid, &daemon.roots);
            serve(stream, daemon, peer);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a client");
        }
    }
}

/// Answers a client that there are too many; never waits for the client.
fn refuse(mut stream: UnixStream, full: &Full) {
    let _ = stream.set_nonblocking(true);
    let error = serde_json::json!({
        "error": "org.gangd.v1.LimitReached",
        "parameters": { "limit": full.limit, "maximum": full.maximum },
    });
    let _ = stream.write_all(format!("{error}\0").as_bytes());
}

fn serve(stream: UnixStream, daemon: Arc<Daemon>, peer: Peer) {
    if let Err(error) = try_serve(stream, daemon, peer) {
        tracing::debug!(uid = peer.uid, pid = peer.pid, "a client was disconnected: {error:#}");
    }
}

fn try_serve(stream: UnixStream, daemon: Arc<Daemon>, peer: Peer) -> anyhow::Result<()> {
    // An accepted socket does not inherit this on Linux; set all the same.
    stream.set_nonblocking(false)?;
    requests::work_for(peer.uid);
    let settings = daemon.settings();
    let io_deadline = settings.limits.message_timeout;
    let account = settings.accounts.of(peer.uid);
    let client_priority = daemon.client_priority.clone();
    let auto = AutoSession { daemon: daemon.clone(), peer };
    let (session, _starting) = Session::new(daemon, peer, stream.try_clone()?);
    let service = VarlinkService::new(
        "gangd",
        "gang scheduling daemon",
        env!("CARGO_PKG_VERSION"),
        "org.gangd.v1",
        vec![Box::new(v1::new(Box::new(session))), Box::new(auto1::new(Box::new(auto)))],
    );
    let mut priority = ThreadPriority::of(&client_priority, Some(account));
    if settings.accounts.is_unlimited(account) {
        priority = priority.without_line();
    }
    let mut writer = DeadlineWriter::new(stream.try_clone()?, io_deadline);
    let mut reader = BufReader::new(stream);
    loop {
        if reader.buffer().is_empty() && !wait_for_message(reader.get_ref())? {
            return Ok(());
        }
        let message =
            match read_message(&mut DeadlineReader::new(&mut reader, io_deadline), MESSAGE_MAX) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(error @ FrameError::TooLong { .. }) => {
                    complain(&mut writer, "message", &error.to_string());
                    return Err(error.into());
                }
                Err(error) => return Err(error.into()),
            };
        // A thread that is not before the gangs also reads the request in its turn.
        priority.begin();
        match parse_request(&message) {
            Ok(request) if !is_urgent(&request.method) => priority.lower(),
            Ok(_) => {}
            Err(error) => {
                complain(&mut writer, "request", &error.to_string());
                return Err(error.into());
            }
        }
        let framed = [&message[..], b"\0"].concat();
        writer.begin();
        // A method that does not exist, or parameters that do not fit, were answered already.
        if let Err(error) = service.handle(&mut &framed[..], &mut writer, None) {
            tracing::debug!(uid = peer.uid, %error, "a request was refused");
        }
        writer.end().context("the client does not take its answer")?;
        priority.renew();
    }
}

/// Whether a gang that arrives, or a person who stops one, waits for the answer. Requests of views
/// come again and again, and are not urgent. Nor is a request that takes longer with more jobs or
/// threads.
fn is_urgent(method: &str) -> bool {
    let name = method.rsplit('.').next().unwrap_or_default();
    let urgent = [
        "Register",
        "RegisterSpanning",
        "GetHost",
        "AddProcess",
        "AddCaller",
        "GetSlotPage",
        "Suspend",
        "Resume",
        "Kill",
    ];
    urgent.contains(&name)
}

/// Waits for the first byte of a message; false where none came for long, or the client has gone.
fn wait_for_message(stream: &UnixStream) -> anyhow::Result<bool> {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let silence = gang_linux::clock::timespec(SILENCE);
    Ok(rustix::io::retry_on_intr(|| poll(&mut fds, Some(&silence)))? > 0)
}

fn complain(writer: &mut impl Write, parameter: &str, what: &str) {
    let error = serde_json::json!({
        "error": "org.gangd.v1.InvalidValue",
        "parameters": { "parameter": parameter, "value": "", "accepted": what },
    });
    let _ = writer.write_all(format!("{error}\0").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Limits;

    #[test]
    fn seats_are_counted_by_user() {
        let clients = Arc::<Clients>::default();
        let limits = Limits { clients: 3, clients_per_user: 1, ..Limits::default() };
        let settings = Settings { limits, ..Settings::default() };
        let seat = |user| clients.seat(UserId(user), &settings);
        let first = seat(7);
        let of_user = Full { limit: "clients of a user", maximum: 1 };
        assert_eq!((first.is_ok(), seat(7).unwrap_err()), (true, of_user));
        let (root, other) = (seat(0), seat(0));
        let of_all = Full { limit: "clients", maximum: 3 };
        assert!(root.is_ok() && other.is_ok());
        assert_eq!(seat(8).unwrap_err(), of_all);
        drop((first, root, other));
        assert_eq!(clients.count(), 0);
        assert!(clients.by_user.lock().unwrap().is_empty());
    }
}
