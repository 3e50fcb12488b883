//! Processes that stay in the groups which jobs have left.
//!
//! Problem: a gang may have to leave its caller's group to give way to the rest of the machine
//! ([`crate::groups::location`]). A service manager, a batch system or a container's runtime that
//! freezes or kills that group means the job, too. The kernel tells nobody that a group
//! was killed.
//!
//! Approach: for each such job a process stays there and does nothing. Its end is passed on: a
//! kill kills the job, and any other signal is sent to all processes of the job, for which another
//! deputy comes. Where the group is frozen, or its processes are stopped as batch systems do, the
//! job is suspended. A signal that ends nobody by default is lost. The deputy is a process of the
//! job's owner, so that its group accounts for it and its owner may signal it, and ends with the
//! daemon. Nobody can tell who signalled it, so that no signal is passed on to processes of others
//! than the owner.
//!
//! Properties: a deputy has no right that its owner has not, and its owner cannot take it over: it
//! drops the daemon's limits, and becomes the owner's without executing anything, so that the
//! kernel lets nobody trace it (ptrace(2)). For a user who ends deputies again and again they come
//! back later, [`AT_ONCE`] a second.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use gang_linux::{
    Error, Result,
    cgroup::{Group, OpenFile},
    sched,
};
use gang_schedule::JobId;
use gang_timetable::record::Placement;
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, pidfd_open,
    set_dumpable_behavior, setrlimit, waitid,
};

use crate::{daemon::Daemon, groups::watch::Source};

/// The deputies of all jobs that have one.
#[derive(Debug, Default)]
pub struct Deputies(Mutex<Roll>);

#[derive(Debug, Default)]
struct Roll {
    deputies: BTreeMap<JobId, Deputy>,
    /// Jobs whose deputies have ended, and come back later.
    absent: BTreeMap<JobId, Placement>,
    /// When a second of a user began, and how many deputies of his have come back in it.
    came_back: BTreeMap<u32, (Instant, u32)>,
}

/// Deputies of a user that come back in a second: each costs the main thread a fork.
const AT_ONCE: u32 = 8;

#[derive(Debug)]
struct Deputy {
    child: Child,
    pidfd: OwnedFd,
    group: PathBuf,
    /// The group's state; it is watched as long as this is open.
    events: OpenFile,
    /// Somebody has stopped it, as all processes of the group.
    is_stopped: bool,
}

/// The user and the group that a deputy becomes, written as on its command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
}

impl Identity {
    fn of(uid: u32) -> Identity {
        /// The group of users that owns nothing.
        const NOBODY: u32 = 65_534;
        let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
        Identity { uid, gid: user.map_or(NOBODY, |user| user.gid.as_raw()) }
    }

    /// Becomes that user for good. Nobody but root may trace a process that root has executed, and
    /// that stays so.
    fn become_it(self) -> nix::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        if geteuid().is_root() {
            setgroups(&[])?;
            setresgid(gid, gid, gid)?;
        }
        setresuid(uid, uid, uid)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Identity, String> {
        let ids = text
            .split_once(':')
            .and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        let (uid, gid) = ids.ok_or("needs UID:GID")?;
        Ok(Identity { uid, gid })
    }
}

/// The deputy's own part: it becomes its owner's, and waits for the end of the daemon.
///
/// # Errors
/// It cannot become that user, or keeps a right of the daemon's.
pub fn serve(identity: Identity) -> io::Result<()> {
    for resource in [Resource::Rtprio, Resource::Nice, Resource::Memlock, Resource::Core] {
        setrlimit(resource, Rlimit { current: Some(0), maximum: Some(0) })?;
    }
    identity.become_it()?;
    // As a change of user leaves it, unless fs.suid_dumpable says otherwise.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = io::stdin().read(&mut [0]);
    Ok(())
}

impl Deputy {
    fn start(group: PathBuf, uid: u32) -> Result<Deputy> {
        let error = |e| Error::new("start a process that stays in", group.display(), e);
        let mut child = Command::new("/proc/self/exe")
            .arg(format!("--deputy={}", Identity::of(uid)))
            .env_clear()
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(error)?;
        let attached = Deputy::attach(&child, &group);
        let (pidfd, events) = attached.inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Deputy { child, pidfd, group, events, is_stopped: false })
    }

    fn attach(child: &Child, group: &PathBuf) -> Result<(OwnedFd, OpenFile)> {
        let pid = child.id();
        let error = |e| Error::new("watch process", pid, e);
        let number = Pid::from_raw(pid as i32).ok_or_else(|| error(io::ErrorKind::NotFound.into()));
        let pidfd = pidfd_open(number?, PidfdFlags::empty()).map_err(|e| error(e.into()))?;
        // A group may take no real-time processes, and the thread that starts it may be one.
        sched::set(pid, &sched::Attributes::other(0)).map_err(error)?;
        let group = Group::at(group);
        group.add(pid)?;
        Ok((pidfd, OpenFile::open(&group, "cgroup.events")?))
    }

    fn is_frozen(&self) -> bool {
        self.events.keyed("frozen", &mut Vec::new()).is_ok_and(|frozen| frozen == Some(1))
    }

    /// Whether that has changed.
    fn was_stopped_or_continued(&mut self) -> bool {
        let changes = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        let before = self.is_stopped;
        // Each call has one change; several may have come.
        while let Ok(Some(status)) = waitid(WaitId::PidFd(self.pidfd.as_fd()), changes) {
            self.is_stopped = status.stopped();
        }
        self.is_stopped != before
    }
}

impl Drop for Deputy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Deputies {
    fn roll(&self) -> std::sync::MutexGuard<'_, Roll> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Roll {
    /// Whether one more deputy of a user may come back now.
    fn may_come_back(&mut self, uid: u32, now: Instant) -> bool {
        const SECOND: Duration = Duration::from_secs(1);
        self.came_back.retain(|_, (began, _)| now.duration_since(*began) < SECOND);
        let (_, count) = self.came_back.entry(uid).or_insert((now, 0));
        *count += 1;
        *count <= AT_ONCE
    }
}

impl Daemon {
    /// Has a deputy of a job in the group that it left, where it left one.
    pub fn deputize(&self, job: JobId, placement: &Placement) {
        let left = self.jobs.cgroups.left_group(placement);
        let deputies = self.jobs.deputies.roll();
        if deputies.deputies.get(&job).map(|deputy| &deputy.group) == left.as_ref() {
            return;
        }
        drop(deputies);
        self.dismiss_deputy(job);
        let Some(group) = left else { return };
        let owner = self.conductor.ask(move |state| state.job(job).map(|job| job.owner_uid));
        // Without a conductor there are no jobs either.
        let Ok(Ok(owner_uid)) = owner else { return };
        let watched = Deputy::start(group, owner_uid).and_then(|deputy| {
            let error = |e| Error::new("watch", deputy.group.display(), e);
            // It may end at once.
            let mut roll = self.jobs.deputies.roll();
            self.jobs.watch.add(Source::Deputy(job), &deputy.pidfd).map_err(error)?;
            let changes = Source::CallersGroup(job);
            self.jobs.watch.add_changes(changes, &deputy.events).map_err(error)?;
            roll.deputies.insert(job, deputy);
            Ok(())
        });
        if let Err(error) = watched {
            let source = &error.source;
            tracing::warn!(%job, %error, %source, "a kill of its caller's group does not reach it");
        }
        self.callers_group_changed(job);
    }

    pub fn dismiss_deputy(&self, job: JobId) {
        let mut roll = self.jobs.deputies.roll();
        roll.absent.remove(&job);
        let deputy = roll.deputies.remove(&job);
        drop(roll);
        if let Some(deputy) = &deputy {
            self.jobs.watch.remove(&deputy.pidfd);
            self.jobs.watch.remove(deputy.events.as_fd());
        }
    }

    /// A deputy has ended.
    pub fn deputy_ended(&self, job: JobId) {
        let Some(mut deputy) = self.jobs.deputies.roll().deputies.remove(&job) else { return };
        self.jobs.watch.remove(&deputy.pidfd);
        self.jobs.watch.remove(deputy.events.as_fd());
        let ended = deputy.child.wait();
        if let Some(code) = ended.as_ref().ok().and_then(|status| status.code()) {
            // It could not become its owner's, as in a user namespace without that user.
            tracing::warn!(%job, code, "a kill of its caller's group does not reach it");
            return;
        }
        let signal = ended.ok().and_then(|status| status.signal());
        let signal = signal.and_then(Signal::from_named_raw).unwrap_or(Signal::KILL);
        let Ok(Some(address)) = self.address(job) else { return };
        let owner = self.conductor.ask(move |state| state.job(job).map(|job| job.owner_uid));
        let Ok(Ok(owner_uid)) = owner else { return };
        let power = self.power_of(owner_uid);
        let mut is_over_all = true;
        tracing::info!(%job, ?signal, "a signal to the group in which a job was called");
        let sent = self.jobs.cgroups.each_process(&address, |process| {
            match power.foreign_owner(process.pid) {
                None => drop(process.signal(signal)),
                Some(_) => is_over_all = false,
            }
        });
        if let Err(error) = sent {
            tracing::warn!(%job, %error, source = %error.source, "not all of a job got a signal");
        }
        if signal == Signal::KILL && is_over_all {
            self.jobs.cgroups.kill(&address.placement);
        } else {
            self.have_deputy_back(job, owner_uid, address.placement);
        }
    }

    /// Has another deputy of a job, now or later.
    fn have_deputy_back(&self, job: JobId, owner_uid: u32, placement: Placement) {
        let mut roll = self.jobs.deputies.roll();
        if roll.may_come_back(owner_uid, Instant::now()) {
            drop(roll);
            self.deputize(job, &placement);
        } else {
            roll.absent.insert(job, placement);
        }
    }

    /// Jobs stand still where the processes of the groups that they left were stopped, and go on
    /// with these. The kernel's word for that comes by a signal alone, so that it is asked now and
    /// then.
    pub fn follow_deputies(&self) {
        let mut roll = self.jobs.deputies.roll();
        let has_changed = |(&job, deputy): (&JobId, &mut Deputy)| {
            deputy.was_stopped_or_continued().then_some(job)
        };
        let changed: Vec<JobId> = roll.deputies.iter_mut().filter_map(has_changed).collect();
        let absent = std::mem::take(&mut roll.absent);
        drop(roll);
        changed.into_iter().for_each(|job| self.callers_group_changed(job));
        for (job, placement) in absent {
            let owner = self.conductor.ask(move |state| state.job(job).map(|job| job.owner_uid));
            let Ok(Ok(owner_uid)) = owner else { continue };
            self.have_deputy_back(job, owner_uid, placement);
        }
    }

    /// The group that a job has left stands still, or not any more.
    pub fn callers_group_changed(&self, job: JobId) {
        let is_still = {
            let roll = self.jobs.deputies.roll();
            let Some(deputy) = roll.deputies.get(&job) else { return };
            deputy.is_frozen() || deputy.is_stopped
        };
        if let Err(error) = self.follow_group(job, is_still) {
            tracing::warn!(%job, ?error, is_still, "a job does not stand as its caller's group");
        }
    }
}
