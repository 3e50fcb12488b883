//! The client that asks, and what it may do to jobs.

use std::num::NonZeroU32;

use gang_linux::{Roots, process};
use gang_protocol::peer::{Credentials, UNSEEN};
use gang_schedule::JobId;
use nix::unistd::{User, getgrouplist};

use crate::{daemon::Daemon, error::Error};

/// A client, by the kernel's word (SO_PEERCRED): no message names its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    /// Number of the process; absent for one that the daemon's PID namespace does not have.
    pub pid: Option<u32>,
    /// The client's numbers of processes are the daemon's.
    shares_numbers: bool,
    /// The user is in the group of administrators.
    is_in_admin_group: bool,
}

impl Peer {
    /// May take long: the machine's database of users may be on another machine.
    pub fn of(credentials: &Credentials, admin_gid: Option<u32>, roots: &Roots) -> Peer {
        let uid = credentials.uid;
        let pid = credentials.pid.map(NonZeroU32::get);
        let is_inner = |pid| process::is_in_inner_pid_namespace(&roots.proc, pid).unwrap_or(false);
        Peer {
            uid,
            pid,
            shares_numbers: pid.is_some_and(|pid| !is_inner(pid)),
            is_in_admin_group: admin_gid.is_some_and(|group| is_member(uid, group)),
        }
    }

    pub fn is_administrator(self) -> bool {
        self.is_in_admin_group || self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    pub fn may_act_for(self, owner_uid: u32) -> bool {
        self.is_administrator() || self.uid == owner_uid
    }

    /// Refuses numbers of processes and threads from a client of another PID namespace. The number
    /// by which such a client names itself is a stranger's here.
    pub fn permit_numbers(self, operation: &str) -> Result<(), Error> {
        if self.shares_numbers { Ok(()) } else { Err(Error::not_permitted(operation, UNSEEN)) }
    }

    /// The number of the client itself; refused where the daemon's PID namespace does not have it.
    pub fn seen(self, operation: &str) -> Result<u32, Error> {
        self.pid.ok_or_else(|| Error::not_permitted(operation, UNSEEN))
    }

    /// `seen_alone`: see [`Daemon::seen_alone`]. A job that the peer does not see is none to him.
    pub fn permit(
        self,
        job: JobId,
        owner_uid: u32,
        operation: &str,
        seen_alone: Option<u32>,
    ) -> Result<(), Error> {
        if seen_alone.is_some_and(|uid| uid != owner_uid) {
            return Err(Error::NoSuchJob(job));
        }
        if self.may_act_for(owner_uid) {
            return Ok(());
        }
        Err(Error::not_permitted(operation, format!("job {job} belongs to user {owner_uid}")))
    }
}

/// Whether a user is in a group, by the machine's databases of both.
fn is_member(uid: u32, group: u32) -> bool {
    let Ok(Some(user)) = User::from_uid(uid.into()) else { return false };
    let Ok(name) = std::ffi::CString::new(user.name) else { return false };
    getgrouplist(&name, user.gid)
        .is_ok_and(|groups| groups.iter().any(|of_user| of_user.as_raw() == group))
}

impl Daemon {
    /// The job's owner, where the peer may act on the job.
    pub fn permit(&self, peer: Peer, job: JobId, operation: &str) -> Result<u32, Error> {
        let owner_uid =
            self.conductor.ask(move |state| state.job(job).map(|job| job.owner_uid))??;
        peer.permit(job, owner_uid, operation, self.seen_alone(peer)).map(|()| owner_uid)
    }

    /// The user whose jobs are all that the peer sees; absent for a peer that sees the jobs of all
    /// users.
    pub fn seen_alone(&self, peer: Peer) -> Option<u32> {
        (self.settings().private && !peer.is_administrator()).then_some(peer.uid)
    }
}
