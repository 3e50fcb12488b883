//! The socket: who may connect, how often, and how long one may take.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufReader, Write},
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use gang_protocol::{
    auto1,
    frame::{FrameError, parse_request, read_message},
    limits::MESSAGE_MAX,
    v1,
};
use listenfd::ListenFd;
use nix::unistd::{User, getgrouplist};
use rustix::{
    fs::{FlockOperation, flock},
    net::sockopt::socket_peercred,
};
use varlink::{ConnectionHandler, VarlinkService};

use crate::{
    conduct::client_priority::ThreadPriority,
    daemon::{Daemon, Peer},
    serve::{
        io_deadline::{DeadlineReader, DeadlineWriter},
        session::{AutoSession, Session},
    },
    settings::Limits,
};

/// A connection without a message for this long is closed.
const SILENCE: Duration = Duration::from_secs(600);

/// What the file of the lock says once a daemon has made it: whoever leaves the place removes what a daemon
/// made, be it one that was killed, and nothing else.
const MADE: &str = "gangd made this file\n";
const MADE_WITH_DIRECTORY: &str = "gangd made this file and its directory\n";

/// How often the directory of a place may be gone again before the lock in it is opened: whoever leaves the place, or
/// throws its directory away, does so once.
const MOMENTS_MAX: u32 = 100;

/// The place of the daemon: nobody else serves this socket while it is held.
#[derive(Debug)]
pub struct SocketLock {
    pub socket: PathBuf,
    lock_path: PathBuf,
    _lock: fs::File,
    /// The socket that a service manager listens on, until it is listened on here.
    given: Option<UnixListener>,
    /// It is the service manager's.
    is_given: bool,
}

impl SocketLock {
    /// Takes the place, or waits a moment for it: the guardian of an earlier daemon may be clearing
    /// up. `None` where another daemon has it.
    pub fn wait_for(socket: &Path) -> anyhow::Result<Option<SocketLock>> {
        // DeadlineWriter at once, so that no program that is started here gets it.
        let mut given = ListenFd::from_env()
            .take_unix_listener(0)
            .context("what the service manager listens on is no Unix socket")?;
        for _ in 0..20 {
            if let Some(mut place) = SocketLock::take(socket)? {
                place.given = given.take();
                return Ok(Some(place));
            }
            // A service manager's socket listens whether there is a daemon or not.
            if given.is_none() && UnixStream::connect(socket).is_ok() {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        Ok(None)
    }

    /// Takes the place; `None` where another daemon has it.
    pub fn take(socket: &Path) -> anyhow::Result<Option<SocketLock>> {
        let lock_path = socket.with_extension("lock");
        let (mut moments, mut makes_directory) = (0, false);
        loop {
            makes_directory |= make_directory(socket)?;
            let (mut lock, is_new) = match open_lock(&lock_path) {
                // Whoever left it removed the directory at this moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound && moments < MOMENTS_MAX => {
                    (moments, makes_directory) = (moments + 1, false);
                    continue;
                }
                opened => opened.with_context(|| format!("cannot open {}", lock_path.display()))?,
            };
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(e) => {
                    return Err(e).with_context(|| format!("cannot lock {}", lock_path.display()));
                }
            }
            // Its last holder may have removed the file after it was opened here.
            let (held, named) = (rustix::fs::fstat(&lock)?, rustix::fs::stat(&lock_path));
            if named.is_ok_and(|named| named.st_ino == held.st_ino) {
                if is_new {
                    let made = if makes_directory { MADE_WITH_DIRECTORY } else { MADE };
                    lock.write_all(made.as_bytes())
                        .with_context(|| format!("cannot write {}", lock_path.display()))?;
                }
                return Ok(Some(SocketLock {
                    socket: socket.into(),
                    lock_path,
                    _lock: lock,
                    given: None,
                    is_given: false,
                }));
            }
        }
    }

    /// Listens: for everybody where root does, for its own user otherwise. A service manager may have
    /// begun to (sd_listen_fds(3)); then the socket stays when the daemon ends.
    pub fn listen(&mut self) -> anyhow::Result<UnixListener> {
        if let Some(listener) = self.given.take() {
            listener.set_nonblocking(true)?;
            self.is_given = true;
            return Ok(listener);
        }
        match is_socket(&self.socket) {
            Some(true) => {
                fs::remove_file(&self.socket).with_context(|| {
                    format!("cannot remove the stale {}", self.socket.display())
                })?;
            }
            Some(false) => bail!("{} is there already, and is no socket", self.socket.display()),
            None => {}
        }
        let listener = UnixListener::bind(&self.socket)
            .with_context(|| format!("cannot listen on {}", self.socket.display()))?;
        let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
        fs::set_permissions(&self.socket, fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot open {} to clients", self.socket.display()))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Leaves no trace of a daemon; what others made stays.
    pub fn leave(self) {
        // What listens while nobody has the place is a service manager's, and stays. One's own is not
        // asked: the service manager would start the daemon again.
        if !self.is_given
            && is_socket(&self.socket) == Some(true)
            && UnixStream::connect(&self.socket).is_err()
        {
            let _ = fs::remove_file(&self.socket);
        }
        let says = fs::read_to_string(&self.lock_path).unwrap_or_default();
        if says == MADE || says == MADE_WITH_DIRECTORY {
            let _ = fs::remove_file(&self.lock_path);
        }
        if says == MADE_WITH_DIRECTORY {
            // Not where something else is in it.
            let _ = fs::remove_dir(gang_protocol::paths::runtime_dir(&self.socket));
        }
    }
}

/// Makes the directory of a socket; true where it was not there.
fn make_directory(socket: &Path) -> anyhow::Result<bool> {
    let directory = gang_protocol::paths::runtime_dir(socket);
    if directory.exists() {
        return Ok(false);
    }
    let mode = if rustix::process::geteuid().is_root() { 0o755 } else { 0o700 };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(true)
}

/// Whether what is at a path is a socket; `None` where nothing is.
fn is_socket(path: &Path) -> Option<bool> {
    use std::os::unix::fs::FileTypeExt;
    Some(fs::symlink_metadata(path).ok()?.file_type().is_socket())
}

/// The file of the lock, and whether it was not there before.
fn open_lock(path: &Path) -> io::Result<(fs::File, bool)> {
    match fs::File::options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let lock = fs::File::options().create(true).truncate(false).write(true).open(path)?;
            Ok((lock, false))
        }
        made => Ok((made?, true)),
    }
}

/// Connections that are open, by user.
#[derive(Debug, Default)]
pub struct Clients {
    by_user: Mutex<BTreeMap<u32, usize>>,
    all: AtomicUsize,
    /// There are no descriptors for more of them, which was told.
    are_kept_out: AtomicBool,
}

/// Which limit keeps another connection out.
#[derive(Debug, PartialEq, Eq)]
struct Full {
    limit: &'static str,
    maximum: usize,
}

/// One open connection.
#[derive(Debug)]
struct Seat(Arc<Clients>, u32);

impl Clients {
    pub fn count(&self) -> usize {
        self.all.load(Ordering::Acquire)
    }

    /// A seat for one more of a user, or the limit that is reached.
    fn seat(self: &Arc<Clients>, uid: u32, limits: &Limits) -> Result<Seat, Full> {
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = by_user.get(&uid).copied().unwrap_or(0);
        if self.count() >= limits.clients {
            return Err(Full { limit: "clients", maximum: limits.clients });
        }
        if uid != 0 && of_user >= limits.clients_per_user {
            return Err(Full { limit: "clients of a user", maximum: limits.clients_per_user });
        }
        by_user.insert(uid, of_user + 1);
        self.all.fetch_add(1, Ordering::AcqRel);
        Ok(Seat(Arc::clone(self), uid))
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

/// How long it is waited for descriptors, where there are none for who connects: the listener would be told
/// as readable all the time.
const WITHOUT_DESCRIPTORS: Duration = Duration::from_millis(50);

/// Takes the connections that wait, each with a thread of its own.
pub fn accept(listener: &UnixListener, daemon: &Arc<Daemon>, clients: &Arc<Clients>) {
    // Those beyond wait until the other sources of the main thread had their turn.
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
        let Ok(credentials) = socket_peercred(&stream) else { continue };
        let uid = credentials.uid.as_raw();
        let pid = credentials.pid.as_raw_nonzero().get() as u32;
        let settings = daemon.settings();
        let limits = &settings.limits;
        let seat = match clients.seat(uid, limits) {
            Ok(seat) => seat,
            Err(full) => {
                refuse(stream, &full);
                continue;
            }
        };
        let daemon = Arc::clone(daemon);
        let spawned = std::thread::Builder::new().name("client".into()).spawn(move || {
            let _seat = seat;
            // A directory of users may be slow.
            let is_of_admins = settings.admin_gid.is_some_and(|group| is_member(uid, group));
            let peer = Peer { uid, pid, is_of_admins };
            serve(stream, daemon, peer);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a client");
        }
    }
}

/// Whether a user is in a group, by the machine's databases of both.
fn is_member(uid: u32, group: u32) -> bool {
    let Ok(Some(user)) = User::from_uid(uid.into()) else { return false };
    let Ok(name) = std::ffi::CString::new(user.name) else { return false };
    getgrouplist(&name, user.gid)
        .is_ok_and(|groups| groups.iter().any(|of_user| of_user.as_raw() == group))
}

/// Tells a client that there are too many; never waits for it.
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
    // An accepted socket does not inherit this on Linux; said all the same.
    stream.set_nonblocking(false)?;
    let io_deadline = daemon.settings().limits.message_timeout;
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
    let mut priority = ThreadPriority::of(&client_priority);
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

/// Whether a gang that arrives, or a person who stops one, waits for it. Views, which ask again and again, do
/// not, and what may take as long as there are jobs or threads is none of it.
fn is_urgent(method: &str) -> bool {
    let name = method.rsplit('.').next().unwrap_or_default();
    ["Register", "AddProcess", "GetSlotPage", "Suspend", "Resume", "Kill"].contains(&name)
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

    #[test]
    fn one_daemon_has_a_place() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/gangd.sock");
        let mut place = SocketLock::take(&socket).unwrap().unwrap();
        assert!(SocketLock::take(&socket).unwrap().is_none());
        drop(place.listen().unwrap());
        place.leave();
        assert!(!socket.exists() && !directory.path().join("run").exists());
        assert!(SocketLock::take(&socket).unwrap().is_some());
    }

    #[test]
    fn a_place_is_taken_while_its_directory_is_thrown_away() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let socket = run.join("gangd.sock");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = fs::remove_dir_all(&run);
                }
            });
            let taken: Vec<_> = (0..2000).map(|_| SocketLock::take(&socket).map(drop)).collect();
            is_over.store(true, Ordering::Relaxed);
            let error = taken.into_iter().find_map(Result::err);
            assert!(error.is_none(), "{error:?}");
        });
    }

    #[test]
    fn a_socket_that_others_listen_on_stays() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gangd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        SocketLock::take(&socket).unwrap().unwrap().leave();
        assert!(socket.exists());
        drop(listener);
        SocketLock::take(&socket).unwrap().unwrap().leave();
        assert!(!socket.exists());
    }

    #[test]
    fn what_no_daemon_made_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (run, socket) = (directory.path().join("run"), directory.path().join("run/gangd.sock"));
        fs::create_dir(&run).unwrap();
        SocketLock::take(&socket).unwrap().unwrap().leave();
        assert_eq!(fs::read_dir(&run).unwrap().count(), 0, "the directory was there before");
        let others = ["gangd.sock", "gangd.lock"].map(|name| run.join(name));
        others.iter().for_each(|path| fs::write(path, "dear").unwrap());
        SocketLock::take(&socket).unwrap().unwrap().leave();
        assert!(others.iter().all(|path| fs::read_to_string(path).unwrap() == "dear"));
    }

    #[test]
    fn what_a_daemon_that_was_killed_made_goes() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/gangd.sock");
        let mut killed = SocketLock::take(&socket).unwrap().unwrap();
        drop((killed.listen().unwrap(), killed));
        SocketLock::take(&socket).unwrap().unwrap().leave();
        assert!(!directory.path().join("run").exists());
    }

    #[test]
    fn what_is_no_socket_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gangd.sock");
        fs::write(&socket, "dear").unwrap();
        let mut place = SocketLock::take(&socket).unwrap().unwrap();
        assert!(place.listen().unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read_to_string(&socket).unwrap(), "dear");
    }

    #[test]
    fn seats_are_counted_by_user() {
        let clients = Arc::<Clients>::default();
        let limits = Limits { clients: 3, clients_per_user: 1, ..Limits::default() };
        let first = clients.seat(7, &limits);
        let of_user = Full { limit: "clients of a user", maximum: 1 };
        assert_eq!((first.is_ok(), clients.seat(7, &limits).unwrap_err()), (true, of_user));
        let (root, other) = (clients.seat(0, &limits), clients.seat(0, &limits));
        let of_all = Full { limit: "clients", maximum: 3 };
        assert!(root.is_ok() && other.is_ok());
        assert_eq!(clients.seat(8, &limits).unwrap_err(), of_all);
        drop((first, root, other));
        assert_eq!(clients.count(), 0);
        assert!(clients.by_user.lock().unwrap().is_empty());
    }
}
