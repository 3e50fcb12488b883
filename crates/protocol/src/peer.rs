//! The process at the other end of a socket, by the kernel's word (SO_PEERCRED, unix(7)).
//!
//! Not by `rustix`, whose type has no room for an absent process: the kernel answers 0 for a
//! process that the asking one's PID namespace does not have.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};

use nix::{
    errno::Errno,
    sys::socket::{getsockopt, sockopt},
};

/// The sentence of either side where the other one has no numbers in its PID namespace.
pub const UNSEEN: &str = "gangd does not see the processes of this PID namespace; give the \
                          container a daemon of its own (GANG_SOCKET)";

/// The peer, as the kernel noted it when the connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    /// Number of the process, absent for one outside of this process's PID namespace.
    pub pid: Option<NonZeroU32>,
    /// Effective user id, as this process's user namespace has it.
    pub uid: u32,
}

/// The process that connected, or that listened.
pub fn credentials(socket: &impl AsFd) -> io::Result<Credentials> {
    let found = getsockopt(socket, sockopt::PeerCredentials)?;
    let pid = u32::try_from(found.pid()).ok().and_then(NonZeroU32::new);
    Ok(Credentials { pid, uid: found.uid() })
}

/// A handle on that process, which is no other's where its number is (SO_PEERPIDFD, Linux 6.5);
/// absent on kernels that have none. An error where the process has ended, too.
pub fn pidfd(socket: &impl AsFd) -> io::Result<Option<OwnedFd>> {
    match getsockopt(socket, sockopt::PeerPidfd) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(Errno::ENOPROTOOPT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pair_of_sockets_is_of_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let found = credentials(&one).unwrap();
        assert_eq!(found.pid.map(NonZeroU32::get), Some(std::process::id()));
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        let none = std::fs::File::open("/dev/null").unwrap();
        assert!(credentials(&none).is_err() && pidfd(&none).is_err());
        assert!(pidfd(&one).is_ok());
    }
}
