//! Where the daemon's socket is, and what lies beside it.
//!
//! Pure: the user and the environment are handed in, so a test can be anybody.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Socket of the machine's daemon.
pub const SYSTEM_SOCKET: &str = "/run/gangd/gangd.sock";

/// The user who asks, and the variables that decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Effective user id of the process that asks.
    pub uid: u32,
    /// That of the option `--socket`, else `$GANG_SOCKET`; an empty one counts as absent.
    pub gang_socket: Option<OsString>,
    /// `$XDG_RUNTIME_DIR`; one that is not absolute counts as absent, as its specification says.
    pub xdg_runtime_dir: Option<OsString>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gang_socket: std::env::var_os("GANG_SOCKET"),
            xdg_runtime_dir: std::env::var_os("XDG_RUNTIME_DIR"),
        }
    }

    /// Those of this process, where a socket named on the command line comes before the
    /// environment.
    pub fn with_socket(socket: Option<&Path>) -> Self {
        let own = Self::of_this_process();
        let gang_socket = socket.map(|path| path.as_os_str().to_owned()).or(own.gang_socket);
        Self { gang_socket, ..own }
    }

    /// The sockets to try, in order: only the one that is named where one is, else the machine's,
    /// then the user's own.
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = self.named() {
            return vec![named];
        }
        let mut sockets = vec![PathBuf::from(SYSTEM_SOCKET)];
        let own = self.own_socket();
        if !sockets.contains(&own) {
            sockets.push(own);
        }
        sockets
    }

    /// The socket of a daemon that this user starts: the one that is named, else [`SYSTEM_SOCKET`]
    /// for root, else one in the user's runtime directory.
    ///
    /// Root has none beside the machine's: two daemons with privilege would schedule the same
    /// CPUs, and `$XDG_RUNTIME_DIR` of root under `sudo -E` is another user's.
    pub fn own_socket(&self) -> PathBuf {
        self.named().unwrap_or_else(|| self.own_runtime_dir().join("gangd.sock"))
    }

    fn own_runtime_dir(&self) -> PathBuf {
        if self.uid == 0 {
            return runtime_dir(Path::new(SYSTEM_SOCKET));
        }
        match self.xdg_runtime_dir.as_ref().map(Path::new).filter(|dir| dir.is_absolute()) {
            Some(dir) => dir.join("gangd"),
            None => PathBuf::from(format!("/tmp/gangd-{}", self.uid)),
        }
    }

    fn named(&self) -> Option<PathBuf> {
        self.gang_socket.as_ref().filter(|path| !path.is_empty()).map(PathBuf::from)
    }
}

/// The directory of a socket, in which its daemon keeps what must outlive it.
pub fn runtime_dir(socket: &Path) -> PathBuf {
    match socket.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// One entry for each job that a daemon holds raised, paused or frozen. Entries without a daemon
/// that listens are what a dead one left behind (`gangd --release` clears them).
pub fn jobs_dir(socket: &Path) -> PathBuf {
    socket.with_extension("jobs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings(uid: u32, gang_socket: Option<&str>, xdg: Option<&str>) -> Surroundings {
        Surroundings {
            uid,
            gang_socket: gang_socket.map(OsString::from),
            xdg_runtime_dir: xdg.map(OsString::from),
        }
    }

    fn candidates(surroundings: &Surroundings) -> Vec<String> {
        surroundings.candidates().iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn the_machines_socket_comes_before_the_users_own() {
        assert_eq!(
            candidates(&surroundings(1000, None, Some("/run/user/1000"))),
            ["/run/gangd/gangd.sock", "/run/user/1000/gangd/gangd.sock"]
        );
        assert_eq!(
            candidates(&surroundings(1000, None, None)),
            ["/run/gangd/gangd.sock", "/tmp/gangd-1000/gangd.sock"]
        );
    }

    #[test]
    fn a_relative_or_empty_setting_counts_as_absent() {
        let own = |xdg| surroundings(7, Some(""), Some(xdg)).own_socket();
        assert_eq!(own("run"), Path::new("/tmp/gangd-7/gangd.sock"));
        assert_eq!(own(""), Path::new("/tmp/gangd-7/gangd.sock"));
    }

    #[test]
    fn a_named_socket_is_the_only_one() {
        let named = surroundings(0, Some("/tmp/x/test.sock"), Some("/run/user/0"));
        assert_eq!(candidates(&named), ["/tmp/x/test.sock"]);
        assert_eq!(named.own_socket(), Path::new("/tmp/x/test.sock"));
    }

    #[test]
    fn root_shares_the_machines() {
        let root = surroundings(0, None, Some("/run/user/1000"));
        assert_eq!(candidates(&root), ["/run/gangd/gangd.sock"]);
        assert_eq!(root.own_socket(), Path::new("/run/gangd/gangd.sock"));
    }

    #[test]
    fn jobs_lie_beside_the_socket() {
        assert_eq!(
            jobs_dir(Path::new("/run/gangd/gangd.sock")),
            Path::new("/run/gangd/gangd.jobs")
        );
        assert_eq!(jobs_dir(Path::new("gangd.sock")), Path::new("gangd.jobs"));
    }
}
