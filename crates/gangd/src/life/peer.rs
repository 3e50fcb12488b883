//! The client that asks, and what it may do to jobs.
//!
//! Problem: a container may map its users to those of the machine, its root to a user, or root to
//! root. By its user id alone a client from there would be that user, with power over all that the
//! user has outside.
//!
//! Approach: a user id stands for the daemon's user of that number where the client is in the
//! daemon's user namespace. Elsewhere it is nobody's: such a client has power over the jobs alone
//! that it is itself in, or has just registered, and may name itself and its children. Whatever
//! cannot be looked at is taken to be elsewhere. A client that has ended while others still have
//! its socket is nobody, too: its number may be another's.

use std::{
    io,
    num::NonZeroU32,
    os::fd::{AsFd, OwnedFd},
};

use gang_linux::{Roots, namespaces, process};
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
    /// When that process started, in clock ticks since boot; absent where it has ended.
    started_ticks: Option<u64>,
    /// The client's numbers of processes are the daemon's.
    shares_numbers: bool,
    /// The client's users are the daemon's.
    is_local: bool,
    /// The user is in the group of administrators.
    is_in_admin_group: bool,
    /// The client is in the job in question itself, or has registered it just now.
    is_on_own_job: bool,
}

impl Peer {
    /// By what the kernel noted of the client, and a handle on its process where the kernel has
    /// such. May take long: the machine's database of users may be on another machine.
    pub fn of(
        credentials: &Credentials,
        pidfd: io::Result<Option<OwnedFd>>,
        admin_gid: Option<u32>,
        roots: &Roots,
    ) -> Peer {
        let uid = credentials.uid;
        let pid = credentials.pid.map(NonZeroU32::get);
        let stat = pid.and_then(|pid| process::stat(&roots.proc, pid).ok());
        let is_inner =
            |pid| namespaces::is_in_inner_pid_namespace(&roots.proc, pid).unwrap_or(true);
        let shares_numbers = pid.is_some_and(|pid| !is_inner(pid));
        // Without a handle where there could be one, the number may be another's by now.
        let (pidfd, has_ended) = match &pidfd {
            Ok(pidfd) => (pidfd.as_ref().map(AsFd::as_fd), false),
            Err(_) => (None, true),
        };
        let is_local = !has_ended
            && namespaces::is_in_own_user_namespace(&roots.proc, pid, pidfd).unwrap_or(false);
        let is_still_there = !has_ended && !pidfd.is_some_and(process::has_ended);
        Peer {
            uid,
            pid,
            started_ticks: stat.map(|stat| stat.start_ticks).filter(|_| is_still_there),
            shares_numbers: shares_numbers && is_still_there,
            is_local,
            is_in_admin_group: admin_gid.is_some_and(|group| is_member(uid, group)),
            is_on_own_job: false,
        }
    }

    pub fn is_administrator(self) -> bool {
        self.is_local && (self.is_in_admin_group || self.is_root_or_daemon())
    }

    /// Whether the client is root of the daemon's user namespace, or the daemon's own user.
    pub fn is_root_or_daemon(self) -> bool {
        let is_daemons = || self.uid == rustix::process::geteuid().as_raw();
        self.is_local && (self.uid == 0 || is_daemons())
    }

    /// Whether the client may do what that user may.
    pub fn may_act_for(self, owner_uid: u32) -> bool {
        self.is_administrator() || (self.is_local && self.uid == owner_uid)
    }

    /// The client, as one that may act for its user id on a job of its own.
    #[must_use]
    pub fn on_own_job(self) -> Peer {
        Peer { is_on_own_job: true, ..self }
    }

    /// Whether the client knows processes by the daemon's numbers.
    pub fn shares_numbers(self) -> bool {
        self.shares_numbers
    }

    /// Refuses numbers of processes and threads from a client of another PID namespace, or of
    /// another user namespace. The number by which the former names itself is another process's
    /// here.
    pub fn permit_numbers(self, operation: &str) -> Result<(), Error> {
        let reason = if self.shares_numbers { ELSEWHERE } else { UNSEEN };
        match self.shares_numbers && self.is_local {
            true => Ok(()),
            false => Err(Error::not_permitted(operation, reason)),
        }
    }

    /// Refuses a client of another user namespace, whose user id is nobody's here.
    pub fn permit_user(self, operation: &str) -> Result<(), Error> {
        match self.is_local {
            true => Ok(()),
            false => Err(Error::not_permitted(operation, ELSEWHERE)),
        }
    }

    /// Refuses numbers of processes from a client of another PID namespace. One of another user
    /// namespace may name its own children.
    pub fn permit_children(self, operation: &str) -> Result<(), Error> {
        match self.shares_numbers {
            true => Ok(()),
            false => Err(Error::not_permitted(operation, UNSEEN)),
        }
    }

    /// Refuses a process of that parent, unless it is the client, or a child of it, where the
    /// client's user id is nobody's. The parent was read before.
    pub fn permit_process(
        self,
        pid: u32,
        parent: u32,
        operation: &str,
        roots: &Roots,
    ) -> Result<(), Error> {
        let is_own = || self.own_pid(roots).is_some_and(|own| [pid, parent].contains(&own));
        match self.is_local || is_own() {
            true => Ok(()),
            false => Err(Error::not_permitted(operation, ELSEWHERE)),
        }
    }

    /// The number of the client itself; refused where the daemon's PID namespace does not have it,
    /// and once the client has ended.
    pub fn seen(self, operation: &str, roots: &Roots) -> Result<u32, Error> {
        let reason = if self.pid.is_some() { ENDED } else { UNSEEN };
        self.own_pid(roots).ok_or_else(|| Error::not_permitted(operation, reason))
    }

    /// The number of the client as long as it is the client's.
    pub fn own_pid(self, roots: &Roots) -> Option<u32> {
        let is_own = |pid: &u32| {
            let stat = process::stat(&roots.proc, *pid).ok();
            stat.is_some_and(|stat| Some(stat.start_ticks) == self.started_ticks)
        };
        self.pid.filter(is_own)
    }

    /// A job that the peer does not see is none to it.
    pub fn permit(
        self,
        job: JobId,
        owner_uid: u32,
        operation: &str,
        sees: Sees,
    ) -> Result<(), Error> {
        if !sees.job(job, owner_uid) && !self.is_on_own_job {
            return Err(Error::NoSuchJob(job));
        }
        let reason = match self.uid == owner_uid {
            _ if self.may_act_for(owner_uid) || (self.is_on_own_job && self.uid == owner_uid) => {
                return Ok(());
            }
            true => ELSEWHERE.to_owned(),
            false => format!("job {job} belongs to user {owner_uid}"),
        };
        Err(Error::not_permitted(operation, reason))
    }
}

/// The jobs that a client sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    All,
    /// Those of a user.
    Of(u32),
    /// The one that the client is in, if any. In another user namespace its user id is nobody's.
    Own(Option<JobId>),
}

impl Sees {
    pub fn job(self, job: JobId, owner_uid: u32) -> bool {
        match self {
            Sees::All => true,
            Sees::Of(uid) => uid == owner_uid,
            Sees::Own(own) => own == Some(job),
        }
    }
}

/// Why a user id of another user namespace is not enough.
const ELSEWHERE: &str = "gangd does not know the users of this user namespace; a program there may \
                         be a job itself, with its children, and act on that job alone";

/// Why a socket is not enough.
const ENDED: &str = "the process that connected to gangd has ended";

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
        let peer = self.peer_of(peer, job)?;
        peer.permit(job, owner_uid, operation, self.seen_by(peer)?).map(|()| owner_uid)
    }

    /// The jobs that the peer sees.
    pub fn seen_by(&self, peer: Peer) -> Result<Sees, Error> {
        if !self.settings().private || peer.is_administrator() {
            return Ok(Sees::All);
        }
        if peer.is_local {
            return Ok(Sees::Of(peer.uid));
        }
        Ok(Sees::Own(self.job_of_peer(peer)?))
    }

    /// The client, as far as a job is in question: one of another user namespace may be in it.
    pub fn peer_of(&self, peer: Peer, job: JobId) -> Result<Peer, Error> {
        if peer.is_local || peer.is_on_own_job {
            return Ok(peer);
        }
        Ok(if self.job_of_peer(peer)? == Some(job) { peer.on_own_job() } else { peer })
    }

    /// The job that the client itself is in.
    pub fn job_of_peer(&self, peer: Peer) -> Result<Option<JobId>, Error> {
        let job = peer.pid.map_or(Ok(None), |pid| self.job_of(pid))?;
        Ok(job.filter(|_| peer.own_pid(&self.roots).is_some()))
    }

    /// Whether the peer may do to a job what its owner may.
    pub fn may_act_on(&self, peer: Peer, job: JobId, owner_uid: u32) -> Result<bool, Error> {
        Ok(self.peer_of(peer, job)?.permit(job, owner_uid, "", Sees::All).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn client_elsewhere_sees_only_its_own_job() {
        let own = Sees::Own(Some(JobId(3)));
        assert!(own.job(JobId(3), 1000) && !own.job(JobId(4), 0));
        assert!(!Sees::Own(None).job(JobId(3), 0));
        assert!(Sees::Of(1000).job(JobId(4), 1000) && !Sees::Of(1000).job(JobId(3), 0));
    }

    #[test]
    fn client_that_cannot_be_looked_at_is_nobody() {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots { proc: root.path().join("proc"), sys: root.path().join("sys") };
        std::fs::create_dir_all(roots.proc.join("self/ns")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(roots.proc.join(file), text).unwrap();
        write("self/ns/user", "");
        let own_uid = rustix::process::geteuid().as_raw();
        let credentials = Credentials { pid: NonZeroU32::new(7), uid: own_uid };
        let peer = || Peer::of(&credentials, Ok(None), None, &roots);
        assert!(!peer().is_administrator() && !peer().may_act_for(own_uid));
        assert!(peer().permit_numbers("").is_err());
        assert!(peer().permit(JobId(1), own_uid, "", Sees::All).is_err());
        assert!(peer().on_own_job().permit(JobId(1), own_uid, "", Sees::All).is_ok());
        assert!(peer().on_own_job().permit(JobId(1), own_uid + 1, "", Sees::All).is_err());
        // Another namespace is another file.
        std::fs::create_dir_all(roots.proc.join("7/ns")).unwrap();
        write("7/ns/user", "");
        write("7/status", "NSpid:\t7\n");
        let stat = |started: u64| {
            let [before, after] = [17, 20].map(|fields| "0 ".repeat(fields));
            format!("7 (client) S 1 {before}{started} {after}\n")
        };
        write("7/stat", &stat(500));
        let permits = |peer: Peer, pid| peer.permit_process(pid, 7, "", &roots).is_ok();
        let elsewhere = peer();
        assert!(permits(elsewhere, 7) && permits(elsewhere, 8), "itself, and a child");
        assert!(elsewhere.permit_process(9, 8, "", &roots).is_err(), "a grandchild");
        assert_eq!(elsewhere.seen("", &roots).unwrap(), 7);
        // Another process has its number.
        write("7/stat", &stat(501));
        assert!(!permits(elsewhere, 7) && !permits(elsewhere, 8));
        let Err(Error::NotPermitted { reason, .. }) = elsewhere.seen("", &roots) else { panic!() };
        assert_eq!(reason, ENDED);
        assert!(permits(peer(), 8));
        assert!(!peer().is_administrator() && peer().permit_numbers("").is_err());
        std::fs::remove_file(roots.proc.join("7/ns/user")).unwrap();
        std::fs::hard_link(roots.proc.join("self/ns/user"), roots.proc.join("7/ns/user")).unwrap();
        assert!(peer().is_administrator() && peer().permit_numbers("").is_ok());
        // It may have ended, and the number be another's.
        let ended = Peer::of(&credentials, Err(Errno::ESRCH.into()), None, &roots);
        assert!(!ended.is_administrator() && ended.permit_numbers("").is_err());
        assert!(!permits(ended, 7) && ended.seen("", &roots).is_err());
        write("7/status", "NSpid:\t7\t1\n");
        assert!(peer().is_administrator() && peer().permit_numbers("").is_err());
    }
}
