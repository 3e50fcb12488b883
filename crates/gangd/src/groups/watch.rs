//! Noticing that the last process of a job has ended.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use gang_linux::cgroup::{Group, OpenFile};
use gang_schedule::JobId;
use gang_timetable::record::Placement;
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    fd::{AsFd, OwnedFd},
};

/// The sources that the main thread waits for. Data of an epoll event; jobs come after the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Listener,
    Signal,
    /// The configuration file is to be read again.
    Reload,
    Job(JobId),
    /// The process that stays in the group which a job has left.
    Deputy(JobId),
    /// That group.
    CallersGroup(JobId),
}

const JOBS_FROM: u64 = 16;
/// Above the numbers of jobs.
const DEPUTY: u64 = 1 << 62;
const CALLERS_GROUP: u64 = 1 << 61;

impl Source {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Source::Listener => 0,
            Source::Signal => 1,
            Source::Reload => 2,
            Source::Job(JobId(id)) => JOBS_FROM + id,
            Source::Deputy(JobId(id)) => DEPUTY | id,
            Source::CallersGroup(JobId(id)) => CALLERS_GROUP | id,
        })
    }

    pub fn of(data: EventData) -> Source {
        match data.u64() {
            0 => Source::Listener,
            1 => Source::Signal,
            2 => Source::Reload,
            id if id & DEPUTY != 0 => Source::Deputy(JobId(id ^ DEPUTY)),
            id if id & CALLERS_GROUP != 0 => Source::CallersGroup(JobId(id ^ CALLERS_GROUP)),
            id => Source::Job(JobId(id - JOBS_FROM)),
        }
    }
}

/// One place to wait for everything; any thread may add a job.
pub struct Watch {
    epoll: OwnedFd,
    jobs: Mutex<BTreeMap<JobId, OpenFile>>,
}

impl Watch {
    pub fn new() -> std::io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Watch { epoll, jobs: Mutex::default() })
    }

    pub fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Waits for something to become readable.
    pub fn add(&self, source: Source, fd: impl AsFd) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), EventFlags::IN)?)
    }

    /// Waits for a group's state to change.
    pub fn add_changes(&self, source: Source, events: &OpenFile) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll, events.as_fd(), source.data(), EventFlags::PRI)?)
    }

    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits for the end of a job that has a cgroup.
    pub fn add_job(&self, job: JobId, placement: &Placement) -> gang_linux::Result<()> {
        self.add_events(job, Watch::events_of(placement)?)
    }

    /// The file that says whether a job has processes, where the job has a cgroup.
    pub fn events_of(placement: &Placement) -> gang_linux::Result<Option<OpenFile>> {
        let Placement::Cgroup { group, .. } = placement else { return Ok(None) };
        OpenFile::open(&Group::at(group), "cgroup.events").map(Some)
    }

    /// Waits for the end of a job that has such a file.
    pub fn add_events(&self, job: JobId, events: Option<OpenFile>) -> gang_linux::Result<()> {
        let Some(events) = events else { return Ok(()) };
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        epoll::add(&self.epoll, events.as_fd(), Source::Job(job).data(), EventFlags::PRI)
            .map_err(|e| gang_linux::Error::new("watch", format!("job {job}"), e))?;
        jobs.insert(job, events);
        Ok(())
    }

    /// True where a job has no process any more. Reading also makes the kernel report the next
    /// change.
    pub fn is_over(&self, job: JobId) -> bool {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(events) = jobs.get(&job) else { return false };
        match events.keyed("populated", &mut Vec::new()) {
            Ok(populated) => populated == Some(0),
            Err(error) => error.is_gone(),
        }
    }

    /// Forgets a job; returns its file.
    pub fn remove_job(&self, job: JobId) -> Option<OpenFile> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let events = jobs.remove(&job)?;
        let _ = epoll::delete(&self.epoll, events.as_fd());
        Some(events)
    }
}
