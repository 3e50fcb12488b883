//! The socket, and the lock by which one daemon has it.
//!
//! Problem: a daemon that starts must know whether another one serves the socket, or dies, or was
//! killed and left files. A service manager may listen on the socket meanwhile.
//!
//! Approach: a file beside the socket is locked as long as the daemon, or its guardian, cares for
//! the socket. The kernel drops the lock of a process that dies. All that a daemon, a guardian or
//! `gangd --release` does with files begins with this lock, and so does the check that their
//! directory is nobody else's to change ([`own_files`]).

use std::{
    fs,
    io::{self, Write},
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use gang_linux::own_files;
use listenfd::ListenFd;
use rustix::fs::{FlockOperation, flock};

/// The text of the lock's file where a daemon has made it. The daemon that leaves the socket
/// removes what a daemon made, be it one that was killed, and nothing else.
const MADE: &str = "gangd made this file\n";
const MADE_WITH_DIRECTORY: &str = "gangd made this file and its directory\n";

/// How often the directory may be gone again before the lock in it is opened. A daemon that leaves,
/// or a user who throws the directory away, removes it once.
const MOMENTS_MAX: u32 = 100;

/// The lock of a socket: no other daemon serves the socket while it is held.
#[derive(Debug)]
pub struct SocketLock {
    pub socket: PathBuf,
    lock_path: PathBuf,
    _lock: fs::File,
    /// The socket that a service manager listens on, until it is listened on here.
    given: Option<UnixListener>,
    /// The socket is the service manager's.
    is_given: bool,
}

impl SocketLock {
    /// Takes the lock, or waits a moment for it: the guardian of an earlier daemon may be clearing
    /// up. `None` where another daemon has it.
    pub fn wait_for(socket: &Path) -> anyhow::Result<Option<SocketLock>> {
        // DeadlineWriter at once, so that no program that is started here gets it.
        let mut given = ListenFd::from_env()
            .take_unix_listener(0)
            .context("what the service manager listens on is no Unix socket")?;
        for _ in 0..20 {
            if let Some(mut lock) = SocketLock::take(socket)? {
                lock.given = given.take();
                return Ok(Some(lock));
            }
            // A service manager's socket listens whether there is a daemon or not.
            if given.is_none() && UnixStream::connect(socket).is_ok() {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        Ok(None)
    }

    /// Takes the lock; `None` where another daemon has it.
    pub fn take(socket: &Path) -> anyhow::Result<Option<SocketLock>> {
        let lock_path = socket.with_extension("lock");
        let (mut moments, mut makes_directory) = (0, false);
        loop {
            makes_directory |= make_directory(socket)?;
            let directory = gang_protocol::paths::runtime_dir(socket);
            let opened = match own_files::check_directory(&directory) {
                Err(error) if error.source.kind() != io::ErrorKind::NotFound => {
                    return Err(error.into());
                }
                Err(error) => Err(error.source),
                Ok(()) => open_lock(&lock_path),
            };
            let (mut lock, is_new) = match opened {
                // Its last holder removed the directory at this moment.
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
                // Somebody else may have made it anew before the lock was opened. From here on it
                // stays, since nobody but the holder of the lock removes it, unless a user throws
                // it away.
                match own_files::check_directory(&directory) {
                    Err(error) if error.is_gone() && moments < MOMENTS_MAX => {
                        (moments, makes_directory) = (moments + 1, false);
                        continue;
                    }
                    checked => checked?,
                }
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

    /// Listens: for everybody where root runs the daemon, for its own user otherwise. A service
    /// manager may have begun to (sd_listen_fds(3)); then the socket stays when the daemon ends.
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

    /// Leaves no trace of a daemon; files that others made stay.
    pub fn leave(self) {
        // A socket that listens while nobody has the lock is a service manager's, and stays. One's
        // own is not asked: the service manager would start the daemon again.
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
    // A link that leads nowhere is there, too.
    if fs::symlink_metadata(&directory).is_ok() {
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

/// Whether a path is a socket; `None` where nothing is there.
fn is_socket(path: &Path) -> Option<bool> {
    use std::os::unix::fs::FileTypeExt;
    Some(fs::symlink_metadata(path).ok()?.file_type().is_socket())
}

/// The file of the lock, and whether it was not there before.
fn open_lock(path: &Path) -> io::Result<(fs::File, bool)> {
    let mut options = fs::File::options();
    match options.read(true).write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok((own_files::open(path)?, false))
        }
        made => Ok((made?, true)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_daemon_has_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/gangd.sock");
        let mut lock = SocketLock::take(&socket).unwrap().unwrap();
        assert!(SocketLock::take(&socket).unwrap().is_none());
        drop(lock.listen().unwrap());
        lock.leave();
        assert!(!socket.exists() && !directory.path().join("run").exists());
        assert!(SocketLock::take(&socket).unwrap().is_some());
    }

    #[test]
    fn lock_is_taken_while_its_directory_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let socket = run.join("gangd.sock");
        let is_over = AtomicBool::new(false);
        // A directory that is removed all the time keeps everybody out.
        let removals = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    if removals.load(Ordering::Relaxed) > 0 && fs::remove_dir_all(&run).is_ok() {
                        removals.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
            let take = |_| {
                removals.store(MOMENTS_MAX / 5, Ordering::Relaxed);
                SocketLock::take(&socket).map(drop)
            };
            let taken: Vec<_> = (0..2000).map(take).collect();
            is_over.store(true, Ordering::Relaxed);
            let error = taken.into_iter().find_map(Result::err);
            assert!(error.is_none(), "{error:?}");
        });
    }

    #[test]
    fn socket_that_others_listen_on_stays() {
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
    fn files_that_no_daemon_made_stay() {
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
    fn place_of_another_user_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let socket = run.join("gangd.sock");
        let refused = |why: &str| {
            let error = format!("{:#}", SocketLock::take(&socket).unwrap_err());
            assert!(error.contains(why) && error.contains("nobody else may write"), "{error}");
            assert!(!run.join("gangd.lock").exists());
        };
        fs::create_dir(&run).unwrap();
        for mode in [0o1777, 0o775] {
            fs::set_permissions(&run, fs::Permissions::from_mode(mode)).unwrap();
            refused("others may write to it");
        }
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&run, Some(7), None).unwrap();
            refused("it belongs to user 7");
        }
        fs::remove_dir(&run).unwrap();
        for leads_to in [directory.path(), Path::new("/nowhere")] {
            std::os::unix::fs::symlink(leads_to, &run).unwrap();
            refused("it is a link");
            fs::remove_file(&run).unwrap();
        }
        fs::write(&run, "").unwrap();
        refused("no directory");
        fs::remove_file(&run).unwrap();
        SocketLock::take(&socket).unwrap().unwrap().leave();
    }

    #[test]
    fn lock_is_not_opened_through_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (socket, dear) = (directory.path().join("gangd.sock"), directory.path().join("dear"));
        fs::write(&dear, "").unwrap();
        std::os::unix::fs::symlink(&dear, directory.path().join("gangd.lock")).unwrap();
        let error = format!("{:#}", SocketLock::take(&socket).unwrap_err());
        assert!(error.contains("it is a link") && error.contains("remove it"), "{error}");
        assert_eq!(fs::read_to_string(&dear).unwrap(), "");
    }

    #[test]
    fn files_of_a_killed_daemon_go() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("run/gangd.sock");
        let mut killed = SocketLock::take(&socket).unwrap().unwrap();
        drop((killed.listen().unwrap(), killed));
        SocketLock::take(&socket).unwrap().unwrap().leave();
        assert!(!directory.path().join("run").exists());
    }

    #[test]
    fn file_that_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("gangd.sock");
        fs::write(&socket, "dear").unwrap();
        let mut lock = SocketLock::take(&socket).unwrap().unwrap();
        assert!(lock.listen().unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read_to_string(&socket).unwrap(), "dear");
    }
}
