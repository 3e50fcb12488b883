//! The client that asks, and what it may do to jobs.

use gang_schedule::JobId;
use nix::unistd::{User, getgrouplist};
use rustix::net::UCred;

use crate::{daemon::Daemon, error::Error};

/// A client, by the kernel's word (SO_PEERCRED): no message names its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub uid: u32,
    pub pid: u32,
    /// The user is in the group of administrators.
    is_in_admin_group: bool,
}

impl Peer {
    /// May take long: the machine's database of users may be on another machine.
    pub fn of(credentials: &UCred, admin_gid: Option<u32>) -> Peer {
        let uid = credentials.uid.as_raw();
        Peer {
            uid,
            pid: credentials.pid.as_raw_nonzero().get() as u32,
            is_in_admin_group: admin_gid.is_some_and(|group| is_member(uid, group)),
        }
    }

    pub fn is_administrator(self) -> bool {
        self.is_in_admin_group || self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    pub fn may_act_for(self, owner_uid: u32) -> bool {
        self.is_administrator() || self.uid == owner_uid
    }

    pub fn permit(self, job: JobId, owner_uid: u32, operation: &str) -> Result<(), Error> {
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
        peer.permit(job, owner_uid, operation).map(|()| owner_uid)
    }
}
