//! The descriptors that the numbers of the decisions stand for.
//!
//! Of each job they are those of the files that its threads are read from, of its processes and of
//! its slot page. Descriptors come before the decision that needs them. They go after the actions
//! that name them were bound.

use std::{collections::BTreeMap, sync::Arc};

use gang_engine::{
    bound::{Bound, ControlFile, ControlFiles, Handles, ProcessHandle},
    listeners::Listeners,
    page::SlotPage,
    roster::Roster,
};
use gang_schedule::JobId;
use gang_timetable::{Action, Control, Group, record::Placement};

/// The descriptors of a job.
#[derive(Debug)]
pub struct Descriptors {
    pub roster: Roster,
    pub listeners: Listeners,
}

/// The descriptors of all jobs.
#[derive(Debug, Default)]
pub struct Registry {
    pub jobs: BTreeMap<JobId, Descriptors>,
    /// Where programs read of the slots of their job.
    pub pages: BTreeMap<JobId, Arc<SlotPage>>,
    /// The controls of the group that all jobs are in, where that gives way.
    pub all: Option<ControlFiles>,
    /// Jobs that are on file, and not restored yet.
    pub on_file: BTreeMap<JobId, Placement>,
}

impl Handles for Registry {
    fn control(&self, group: Group, control: Control) -> Option<Arc<ControlFile>> {
        let files = match group {
            Group::Job(job) => &self.jobs.get(&job)?.roster.control_files,
            Group::All => self.all.as_ref()?,
        };
        files.of(control).cloned()
    }

    fn process(&self, job: JobId, pid: u32) -> Option<Arc<ProcessHandle>> {
        let Descriptors { roster, listeners } = self.jobs.get(&job)?;
        roster.process(pid).or_else(|| listeners.process(pid)).cloned()
    }

    fn page(&self, job: JobId) -> Option<Arc<SlotPage>> {
        self.pages.get(&job).cloned()
    }
}

/// Actions with the descriptors that are there now; those without theirs are left out.
pub fn bind(registry: &Registry, actions: Vec<Action>) -> Vec<Bound> {
    actions.into_iter().filter_map(|action| Bound::new(action, registry)).collect()
}
