//! The parts of jobs outside the conductor: their groups, files and locks.

use std::sync::Arc;

use gang_engine::store::Store;
use gang_linux::{Result, limits::CpuQuota};
use gang_timetable::record::Placement;

use super::{
    admission::Admission, deputies::Deputies, files::JobFiles, job_ids::JobIds, locks::JobLocks,
};
use crate::groups::{
    cgroups::{Address, Cgroups},
    watch::Watch,
};

/// All that a change of a job takes besides the conductor's decision. The methods of
/// [`crate::life`] alone change it, in the order that keeps a job on file while anything is done
/// to it; others look.
pub struct Jobs {
    pub(super) cgroups: Cgroups,
    /// Notices when a group is empty. The main thread waits for that.
    pub(super) watch: Arc<Watch>,
    /// The queue, room and number of a new job.
    pub(super) admission: Admission,
    pub(super) files: JobFiles,
    pub(super) locks: JobLocks,
    /// Processes that stay in the groups which jobs have left.
    pub(super) deputies: Deputies,
}

impl Jobs {
    pub fn new(cgroups: Cgroups, watch: Arc<Watch>, ids: JobIds, store: Store) -> Jobs {
        Jobs {
            cgroups,
            watch,
            admission: Admission::new(ids),
            files: JobFiles::new(store),
            locks: JobLocks::default(),
            deputies: Deputies::default(),
        }
    }

    /// Where files of the daemon are.
    pub fn store(&self) -> &Store {
        &self.files.store
    }

    pub fn processes(&self, at: &Address) -> Result<Vec<u32>> {
        self.cgroups.processes(at)
    }

    /// The memory that a job uses, in bytes.
    pub fn memory_used(&self, placement: &Placement) -> u64 {
        self.cgroups.memory_used(placement)
    }

    /// The limit or setting that keeps a gang in the groups of its caller.
    pub fn kept_by(&self, placement: &Placement) -> Option<String> {
        self.cgroups.kept_by(placement)
    }

    /// The group that somebody has frozen, of that of a job and those above it.
    pub fn frozen_by(&self, placement: &Placement) -> Option<String> {
        self.cgroups.frozen_by(placement)
    }

    /// The quota of CPU time that its caller's groups leave a job.
    pub fn cpu_quota(&self, placement: &Placement) -> Option<CpuQuota> {
        self.cgroups.cpu_quota(placement)
    }

    /// Whether something of jobs that are over waits to be cleared away.
    pub fn has_remains(&self) -> bool {
        self.admission.cleanup.has_remains()
    }

    /// Has [`crate::daemon::Daemon::clear_ended`] return once all that are over are cleared away.
    pub fn close(&self) {
        self.admission.cleanup.close();
    }
}
