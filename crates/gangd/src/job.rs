//! A job as the daemon keeps it.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use gang_conductor::{Activity, Eligibility, Facts, Width, Window, admission::Resources};
use gang_engine::{
    bound::{Bound, ControlFile, ControlFiles, Handles, ProcessHandle},
    listeners::Listeners,
    members::Members,
    page::SlotPage,
    store::{JoinedProcess, Placement, Record},
    thread::Normal,
};
use gang_schedule::{CpuSet, JobId, Spec};
use gang_timetable::{Attributes, Control, Group, InSlot, Standing, Validity, Word};

use crate::{auto::Auto, denied::Denied};

/// A registered job.
#[derive(Debug)]
pub struct Job {
    pub id: JobId,
    pub name: String,
    pub owner_uid: u32,
    pub spec: Spec,
    pub registered_at_ns: u64,
    pub suspended: bool,
    /// Absent until its first process came.
    pub home: Option<Home>,
    /// As planned up to the end of the timetable under way.
    pub standing: Standing,
    pub activity: Activity,
    /// Seen with more runnable threads than CPUs, again and again.
    pub width: Width,
    /// What it was last told to have in its slots.
    pub in_slot: InSlot,
    /// CPUs of its last slot.
    pub cpus: CpuSet,
    pub slots: u64,
    pub in_slot_ns: u64,
    pub share: Window,
    /// Where its programs read of its slot, once one has asked.
    pub page: Option<Arc<SlotPage>>,
    /// What the switchers were told that it says of the job out of its slots.
    pub page_says: Option<Validity>,
    /// Its processes hear of its slots by signals.
    pub signals: bool,
    /// Of policy `auto`: what came of it.
    pub auto: Option<Auto>,
    /// What it was promised.
    pub resources: Resources,
    /// The kernel lets it have no more memory than that.
    pub mem_is_enforced: bool,
    /// As its program last told; a daemon that takes the job over hears it anew.
    pub progress: Option<Progress>,
}

/// How far a job is, in the unit of its program.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub done: f64,
    pub total: f64,
    /// When it said so (UTC).
    pub at_ns: u64,
}

/// Where the processes of a job are.
#[derive(Debug)]
pub struct Home {
    pub placement: Placement,
    pub members: Members,
    pub normal: Attributes,
    pub affinity: Vec<u32>,
    pub listeners: Listeners,
    /// Those of its processes that came from elsewhere than the first one.
    pub joined: Vec<JoinedProcess>,
    /// The first process, with its start time, while it is on its way into the job's groups.
    pub coming: Option<(u32, u64)>,
}

/// What must be known of a process that leaves its job.
#[derive(Clone, Debug)]
pub struct Leaver {
    /// Its threads, of those that the job knew, in order of number.
    pub known: Vec<u32>,
    /// Gives back to them what they had.
    pub actions: Vec<Bound>,
    /// What the others have by default.
    pub normal: Attributes,
    /// Where it came from, if not from where the first one of the job did.
    pub joined: Option<JoinedProcess>,
    /// Timetables of this generation do not have it any more.
    pub gone_from: u64,
}

/// Where to find the processes of a job, for those who do not own the state.
#[derive(Clone, Debug)]
pub struct Address {
    pub placement: Placement,
    /// Of a job without a cgroup: those of its processes that are known.
    pub tree: Vec<Arc<ProcessHandle>>,
}

impl Home {
    pub fn address(&self) -> Address {
        Address { placement: self.placement.clone(), tree: self.members.tree().to_vec() }
    }
}

/// What the numbers in the actions of jobs stand for.
#[derive(Clone, Copy)]
pub struct Bindings<'a> {
    pub jobs: &'a BTreeMap<JobId, Job>,
    /// The controls of the group that all jobs are in.
    pub all: Option<&'a ControlFiles>,
}

impl Bindings<'_> {
    fn home(&self, job: JobId) -> Option<&Home> {
        self.jobs.get(&job)?.home.as_ref()
    }
}

impl Handles for Bindings<'_> {
    fn control(&self, group: Group, control: Control) -> Option<Arc<ControlFile>> {
        let files = match group {
            Group::Job(job) => &self.home(job)?.members.control_files,
            Group::All => self.all?,
        };
        files.of(control).cloned()
    }

    fn process(&self, job: JobId, pid: u32) -> Option<Arc<ProcessHandle>> {
        let home = self.home(job)?;
        home.members.process(pid).or_else(|| home.listeners.process(pid)).cloned()
    }

    fn page(&self, job: JobId) -> Option<Arc<SlotPage>> {
        self.jobs.get(&job)?.page.clone()
    }
}

impl Job {
    /// Whether it takes turns on a machine of so many CPUs. All that depends on it asks here.
    pub fn eligibility(&self, machine: u32) -> Eligibility {
        let home = self.home.as_ref();
        Eligibility::of(&Facts {
            is_suspended: self.suspended,
            has_processes: home.is_some(),
            is_crowded: home.is_some_and(|home| home.members.has_too_many_threads()),
            is_awake: self.activity.awake,
            policy: self.spec.policy,
            min_cpus: self.spec.min_cpus,
            online: machine,
        })
    }

    /// How the job stands while it is in no row.
    pub fn standing_out_of_row(&self, fill: bool, machine: u32) -> Standing {
        match self.eligibility(machine) {
            Eligibility::Suspended => Standing::Paused,
            Eligibility::TooManyThreads => Standing::Filling,
            Eligibility::Starting | Eligibility::Asleep | Eligibility::NotScheduled => {
                Standing::Released
            }
            Eligibility::TakesTurns | Eligibility::TooFewCpus if fill => Standing::Filling,
            Eligibility::TakesTurns | Eligibility::TooFewCpus => Standing::Paused,
        }
    }

    /// Whether its page can be relied on for when it has its slots.
    pub fn validity(&self, machine: u32) -> Validity {
        match self.eligibility(machine).is_gang() {
            true => Validity::Scheduled,
            false => Validity::NotScheduled,
        }
    }

    /// What the page says of a job in no row.
    pub fn word(&self, slice_ns: u64, machine: u32) -> Word {
        Word { slice_ns, validity: self.validity(machine), ..Word::default() }
    }

    /// Whether its members have all ended, where that is to be looked at.
    pub fn is_over(&self, proc_root: &Path) -> bool {
        self.home.as_ref().is_some_and(|home| home.members.is_over(proc_root))
    }

    /// Of a job of single threads, where one of them has ended: whether all have.
    pub fn singles_due(&self, proc_root: &Path) -> Option<(JobId, bool)> {
        let home = self.home.as_ref()?;
        let Placement::Threads { threads } = &home.placement else { return None };
        let left = home.members.singles().iter().filter(|single| single.is_there(proc_root));
        let left = left.count();
        (left < threads.len()).then_some((self.id, left == 0))
    }

    /// Refuses, where it is `wanted`, what cannot be done to single threads.
    pub fn permit_on_processes(
        &self,
        wanted: bool,
        operation: &str,
        reason: &str,
    ) -> Result<(), Denied> {
        let placement = self.home.as_ref().map(|home| &home.placement);
        if !wanted || !matches!(placement, Some(Placement::Threads { .. })) {
            return Ok(());
        }
        let reason = format!("it is of single threads, and {reason}");
        Err(Denied::not_permitted(format!("{operation} job {}", self.id), reason))
    }

    /// What must be on file; `None` for a job without processes.
    pub fn record(&self) -> Option<Record> {
        let home = self.home.as_ref()?;
        let at = (home.placement.clone(), home.normal.into(), home.affinity.clone());
        Some(Record {
            joined: home.joined.clone(),
            coming: home.coming,
            ..self.record_at(at.0, at.1, at.2)
        })
    }

    /// What must be on file of it as soon as its members are there.
    pub fn record_at(&self, placement: Placement, normal: Normal, affinity: Vec<u32>) -> Record {
        Record {
            id: self.id.0,
            name: self.name.clone(),
            owner_uid: self.owner_uid,
            class: self.spec.class.to_string(),
            policy: self.spec.policy.to_string(),
            weight: self.spec.weight,
            cpus: self.spec.cpus,
            min_cpus: self.spec.min_cpus,
            registered_at_ns: self.registered_at_ns,
            suspended: self.suspended,
            placement,
            normal,
            affinity,
            signals: self.signals,
            auto: self.auto.is_some(),
            mem_bytes: self.resources.mem_bytes,
            disk_bytes: self.resources.disk_bytes,
            joined: Vec::new(),
            coming: None,
        }
    }
}
