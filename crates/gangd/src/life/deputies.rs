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

use std::{
    collections::BTreeMap,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use gang_linux::{
    Error, Result,
    cgroup::{Group, OpenFile},
    sched,
};
use gang_schedule::JobId;
use gang_timetable::record::Placement;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};

use crate::{daemon::Daemon, groups::watch::Source};

/// The deputies of all jobs that have one.
#[derive(Debug, Default)]
pub struct Deputies(Mutex<BTreeMap<JobId, Deputy>>);

#[derive(Debug)]
struct Deputy {
    child: Child,
    pidfd: OwnedFd,
    group: PathBuf,
    /// The group's state; it is watched as long as this is open.
    events: OpenFile,
    /// Somebody has stopped it, as all processes of the group.
    is_stopped: bool,
    /// The job is suspended because the group is frozen or stopped.
    has_suspended: bool,
}

/// The deputy's own part: it waits for the end of the daemon.
pub fn wait() {
    let _ = sched::set(0, &sched::Attributes::other(0));
    let _ = io::stdin().read(&mut [0]);
}

fn gid_of(uid: u32) -> u32 {
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    user.map_or(NOBODY, |user| user.gid.as_raw())
}

/// The group of users that owns nothing.
const NOBODY: u32 = 65_534;

impl Deputy {
    fn start(group: PathBuf, uid: u32) -> Result<Deputy> {
        let error = |e| Error::new("start a process that stays in", group.display(), e);
        let mut child = Command::new("/proc/self/exe")
            .arg("--deputy")
            .uid(uid)
            .gid(gid_of(uid))
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
        Ok(Deputy { child, pidfd, group, events, is_stopped: false, has_suspended: false })
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
    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<JobId, Deputy>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Daemon {
    /// Has a deputy of a job in the group that it left, where it left one.
    pub fn deputize(&self, job: JobId, placement: &Placement) {
        let left = self.jobs.cgroups.left_group(placement);
        if self.jobs.deputies.all().get(&job).map(|deputy| &deputy.group) == left.as_ref() {
            return;
        }
        self.dismiss_deputy(job);
        let Some(group) = left else { return };
        let owner = self.conductor.ask(move |state| state.job(job).map(|job| job.owner_uid));
        // Without a conductor there are no jobs either.
        let Ok(Ok(owner_uid)) = owner else { return };
        let watched = Deputy::start(group, owner_uid).and_then(|deputy| {
            let error = |e| Error::new("watch", deputy.group.display(), e);
            // It may end at once.
            let mut deputies = self.jobs.deputies.all();
            self.jobs.watch.add(Source::Deputy(job), &deputy.pidfd).map_err(error)?;
            let changes = Source::CallersGroup(job);
            self.jobs.watch.add_changes(changes, &deputy.events).map_err(error)?;
            deputies.insert(job, deputy);
            Ok(())
        });
        if let Err(error) = watched {
            let source = &error.source;
            tracing::warn!(%job, %error, %source, "a kill of its caller's group does not reach it");
        }
        self.callers_group_changed(job);
    }

    pub fn dismiss_deputy(&self, job: JobId) {
        let deputy = self.jobs.deputies.all().remove(&job);
        if let Some(deputy) = &deputy {
            self.jobs.watch.remove(&deputy.pidfd);
            self.jobs.watch.remove(deputy.events.as_fd());
        }
    }

    /// A deputy has ended.
    pub fn deputy_ended(&self, job: JobId) {
        let Some(mut deputy) = self.jobs.deputies.all().remove(&job) else { return };
        self.jobs.watch.remove(&deputy.pidfd);
        self.jobs.watch.remove(deputy.events.as_fd());
        let signal = deputy.child.wait().ok().and_then(|status| status.signal());
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
            self.deputize(job, &address.placement);
        }
    }

    /// Jobs stand still where the processes of the groups that they left were stopped, and go on
    /// with these. The kernel's word for that comes by a signal alone, so that it is asked now and
    /// then.
    pub fn follow_deputies(&self) {
        let mut deputies = self.jobs.deputies.all();
        let has_changed = |(&job, deputy): (&JobId, &mut Deputy)| {
            deputy.was_stopped_or_continued().then_some(job)
        };
        let changed: Vec<JobId> = deputies.iter_mut().filter_map(has_changed).collect();
        drop(deputies);
        changed.into_iter().for_each(|job| self.callers_group_changed(job));
    }

    /// The group that a job has left stands still, or not any more.
    pub fn callers_group_changed(&self, job: JobId) {
        let changed = {
            let mut deputies = self.jobs.deputies.all();
            let Some(deputy) = deputies.get_mut(&job) else { return };
            let is_still = deputy.is_frozen() || deputy.is_stopped;
            let has_suspended = std::mem::replace(&mut deputy.has_suspended, is_still);
            (is_still != has_suspended).then_some(is_still)
        };
        let Some(is_still) = changed else { return };
        if let Err(error) = self.suspend(job, is_still, false) {
            tracing::warn!(%job, ?error, is_still, "a job does not stand as its caller's group");
        }
    }
}
