//! The power of a user over the processes of a job.
//!
//! Problem: what a job's programs start may become another user's: a program with the set-user-ID
//! bit, `sudo`, a member of a group that was adopted. The daemon may signal and freeze them all,
//! and the job's owner may not.
//!
//! Approach: the rule is the kernel's for signals (kill(2)). A user who is no administrator has
//! power over processes whose real or saved user id is the job owner's. The kernel freezes and
//! kills a group as a whole, so that neither is done to a group with processes of others. Their
//! threads are as without gangd, in a slot and out of it ([`gang_timetable::Thread::is_foreign`]);
//! the weight of a group is that of all who are in it.

use gang_engine::bound::ProcessHandle;
use gang_linux::process;

use super::peer::Peer;
use crate::{daemon::Daemon, error::Error};

/// The power over processes of one user, or of all.
#[derive(Clone, Copy)]
pub struct Power<'a> {
    daemon: &'a Daemon,
    /// Absent where it is everybody's.
    uid: Option<u32>,
}

impl Power<'_> {
    pub fn is_over_all(&self) -> bool {
        self.uid.is_none()
    }

    /// The user to whom a process belongs over which there is no power. One that cannot be looked
    /// at is nobody's: it has ended.
    pub fn foreign_owner(&self, pid: u32) -> Option<u32> {
        let uid = self.uid?;
        let owner = process::owner(&self.daemon.roots.proc, pid).ok()?;
        owner.is_foreign_to(uid).then_some(owner.effective)
    }

    /// Refuses what is to be done to a process over which there is no power.
    pub fn over(
        &self,
        process: &ProcessHandle,
        operation: impl Fn() -> String,
    ) -> Result<(), Error> {
        let Some(owner) = self.foreign_owner(process.pid) else { return Ok(()) };
        let reason =
            format!("process {} in it belongs to user {owner}; an administrator may", process.pid);
        Err(Error::not_permitted(operation(), reason))
    }
}

impl Daemon {
    /// The power of a client over the processes of a job of that owner.
    pub fn power(&self, peer: Peer, owner_uid: u32) -> Power<'_> {
        match peer.is_administrator() {
            true => Power { daemon: self, uid: None },
            false => self.power_of(owner_uid),
        }
    }

    /// The power of a job's owner.
    pub fn power_of(&self, owner_uid: u32) -> Power<'_> {
        Power { daemon: self, uid: Some(owner_uid).filter(|&uid| uid != 0) }
    }
}
