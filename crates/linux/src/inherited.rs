//! Descriptors that the parent of this process left open for it.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

/// Takes an inherited descriptor over; it is closed when dropped, and no child inherits it.
///
/// To be called once for a number, before this process has opened anything itself that could have
/// that number: at the start of `main`.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: F_SETFD touches no memory; it fails where the descriptor is not open.
    #[allow(unsafe_code)]
    let result = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nobody else in this process owns it: it was inherited.
    #[allow(unsafe_code)]
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn open_descriptors_are_taken_others_refused() {
        let number = OwnedFd::from(std::fs::File::open("/dev/null").unwrap()).into_raw_fd();
        drop(take(number).unwrap());
        assert!(take(1_000_000).is_err());
        assert!(take(1).is_err());
    }
}
