//! Keeping the daemon's pages in memory, so that a switch never waits for a disk.

use crate::{Error, Result};

/// Locks all present and future pages of this process; pages are locked as they are first used.
pub fn lock_all() -> Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|e| Error::new("lock", "the pages of this process", e))
}
