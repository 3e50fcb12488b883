use std::{fmt::Display, io};

pub type Result<T> = std::result::Result<T, Error>;

/// A request to the kernel that failed: what was being done, and to what.
///
/// The cause is the error's source, and is printed once, where the chain is printed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {subject}")]
pub struct Error {
    pub operation: &'static str,
    pub subject: String,
    pub source: io::Error,
}

impl Error {
    pub fn new(
        operation: &'static str,
        subject: impl Display,
        source: impl Into<io::Error>,
    ) -> Self {
        Error { operation, subject: subject.to_string(), source: source.into() }
    }

    /// True where the thing asked about is gone: a thread that ended, a cgroup that was removed.
    pub fn is_gone(&self) -> bool {
        is_gone(&self.source)
    }

    /// True where descriptors or memory were missing: the same request may succeed later.
    pub fn is_shortage(&self) -> bool {
        let errno = self.source.raw_os_error();
        matches!(errno, Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
    }
}

/// The value; the default where the thing is gone, which is no failure: a process that has ended
/// has no threads, a group that was removed no processes.
pub fn unless_gone<T: Default>(found: Result<T>) -> Result<T> {
    match found {
        Err(error) if error.is_gone() => Ok(T::default()),
        found => found,
    }
}

/// The opened thing; absent where it is not there: a kernel may lack a file.
pub fn if_there<T>(opened: Result<T>) -> Result<Option<T>> {
    unless_gone(opened.map(Some))
}

/// True where the thing asked about is gone: a thread that ended, a cgroup that was removed.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::ENODEV))
}
