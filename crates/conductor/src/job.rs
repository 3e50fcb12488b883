//! A job, as far as it is decided about.

use gang_schedule::{CpuSet, JobId, Policy, Spec, Unplaceable};
use gang_timetable::{
    Attributes, InSlot, Members, Standing, Validity, Word,
    record::{JoinedProcess, Placement, Record, Single},
};

use crate::{
    Activity, Crowded, Eligibility, Facts, Oversubscription, Refused, Regroup, ShortLived, Window,
    admission::Resources,
    life::{STANDS_STILL, State},
};

/// A registered job.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: JobId,
    pub name: String,
    pub owner_uid: u32,
    pub spec: Spec,
    /// UTC.
    pub registered_at_ns: u64,
    /// When this daemon took it (CLOCK_MONOTONIC).
    pub entered_at_ns: u64,
    pub suspended: bool,
    /// It is, because the group in which it was called stands still.
    pub suspended_by_group: bool,
    /// Why it can have no slot on the CPUs that are online, if so.
    pub unplaceable: Option<Unplaceable>,
    /// When the CPUs that its threads may use last changed (CLOCK_MONOTONIC).
    pub confined_at_ns: u64,
    /// When the quota of CPU time that binds it last changed (CLOCK_MONOTONIC).
    pub limited_at_ns: u64,
    /// Absent until its first process came.
    pub home: Option<Home>,
    /// As planned up to the end of the timetable under way.
    pub standing: Standing,
    pub activity: Activity,
    /// Seen with more runnable threads than CPUs, again and again.
    pub oversubscription: Oversubscription,
    /// Seen with threads that ended soon after they had begun, again and again.
    pub short_lived: ShortLived,
    /// Its threads take more time to switch than an edge has.
    pub crowded: Option<Crowded>,
    /// The move between groups that it is to make, or makes.
    pub regroup: Option<Regroup>,
    /// The move that the limits where it was called ask for.
    pub way_by_limits: Option<Regroup>,
    /// When the last one failed (CLOCK_MONOTONIC), where it did.
    pub regroup_failed_ns: Option<u64>,
    /// The mode of its slots, by the last timetable.
    pub in_slot: InSlot,
    /// CPUs of its last slot.
    pub cpus: CpuSet,
    pub slots: u64,
    pub in_slot_ns: u64,
    /// Time in which it took turns, and others had the slot.
    pub out_of_slot_ns: u64,
    pub share: Window,
    /// Its programs read of its slots there.
    pub has_page: bool,
    /// The page's text while the job is out of its slots, by the last timetable.
    pub page_says: Option<Validity>,
    /// Its processes hear of its slots by signals.
    pub signals: bool,
    /// Of policy `auto`: the decision so far.
    pub auto: Option<Auto>,
    /// The memory and disk that it was promised.
    pub resources: Resources,
    /// The kernel lets it have no more memory than that.
    pub mem_is_enforced: bool,
    /// Of a part of a spanning job ([`crate::Part`]).
    pub nonce: Option<String>,
    /// The job of Slurm that it is of, as root said: such as 12, or 12_3 in an array.
    pub slurm_job: Option<String>,
    /// As its program last reported; a daemon that takes the job over hears it anew.
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

/// The decision on a job of policy `auto` so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auto {
    pub decided: Option<Policy>,
    pub gain: Option<Gain>,
    /// Why it was decided so, or why nothing is; empty while nobody has looked.
    pub because: String,
}

impl Auto {
    /// The policy of the job while nobody compares.
    pub fn usual(&self) -> Policy {
        self.decided.unwrap_or(Policy::Gang)
    }
}

/// How many times as fast a program is as a gang.
#[derive(Clone, Debug, PartialEq)]
pub struct Gain {
    pub gain: f64,
    /// Its lower and its upper end.
    pub interval: Option<[f64; 2]>,
}

/// Where the processes of a job are, and which.
#[derive(Clone, Debug)]
pub struct Home {
    pub placement: Placement,
    pub members: Members,
    pub normal: Attributes,
    pub affinity: Vec<u32>,
    /// The CPUs of the cpuset in which it was called, where its first process might use all of
    /// them.
    pub cpuset: Option<CpuSet>,
    /// Processes that hear of slots by signals, as last seen.
    pub listeners: Vec<u32>,
    /// Its processes that came from elsewhere than the first one.
    pub joined: Vec<JoinedProcess>,
    /// The first process, with its start time, while it is on its way into the job's groups.
    pub coming: Option<(u32, u64)>,
    /// Processes, or single threads, that were detached and have not left yet: timetables may still
    /// have them, so they are on file, and the job is not over.
    pub leaving: Vec<u32>,
}

/// A job, as its processes are read: what it depends on which they are, and what is seen of them.
#[derive(Debug)]
pub struct Reading<'a> {
    pub owner_uid: u32,
    /// Its processes hear of its slots by signals.
    pub signals: bool,
    pub placement: &'a Placement,
    /// Processes that were detached and have not left yet.
    pub leaving: &'a [u32],
    pub members: &'a mut Members,
    /// Processes that hear of slots by signals.
    pub listeners: &'a mut Vec<u32>,
}

impl Home {
    pub fn new(
        placement: Placement,
        members: Members,
        normal: Attributes,
        affinity: Vec<u32>,
    ) -> Home {
        Home {
            placement,
            members,
            normal,
            affinity,
            cpuset: None,
            listeners: Vec::new(),
            joined: Vec::new(),
            coming: None,
            leaving: Vec::new(),
        }
    }

    pub fn is_of_threads(&self) -> bool {
        matches!(self.placement, Placement::Threads { .. })
    }

    /// The job lives there, or is going to. A tree has its members in its processes, and a job of
    /// single threads in these, wherever they are: some came, and others began to leave, since it
    /// was decided where the job is to live.
    pub(crate) fn live_at(&mut self, placement: Placement) {
        if let Placement::Cgroup { .. } = self.placement {
            self.placement = placement;
        }
    }

    /// The members of a job of single threads that are on file.
    pub fn singles(&self) -> &[Single] {
        match &self.placement {
            Placement::Threads { threads } => threads,
            Placement::Cgroup { .. } | Placement::Tree { .. } => &[],
        }
    }
}

impl Job {
    /// Whether it takes turns on a machine of so many CPUs. All that depends on it asks here.
    pub fn eligibility(&self, machine: u32) -> Eligibility {
        let home = self.home.as_ref();
        Eligibility::of(&Facts {
            is_suspended: self.suspended,
            has_processes: home.is_some(),
            has_too_many_threads: self.crowded.is_some()
                || home.is_some_and(|home| home.members.has_too_many_threads()),
            is_awake: self.activity.awake,
            policy: self.spec.policy,
            min_cpus: self.spec.min_cpus,
            online: machine,
            is_unplaceable: self.unplaceable.is_some(),
        })
    }

    /// It has its time with the rest of the machine (L18): no slot is its own, and it does not wait
    /// for any.
    pub fn is_with_rest(&self, fill: bool, machine: u32) -> bool {
        match self.eligibility(machine) {
            Eligibility::TooManyThreads => !fill,
            Eligibility::Unplaceable => true,
            Eligibility::Suspended
            | Eligibility::Starting
            | Eligibility::Asleep
            | Eligibility::NotScheduled
            | Eligibility::TooFewCpus
            | Eligibility::TakesTurns => self.spec.policy != Policy::Gang,
        }
    }

    /// How the job stands while it is in no row.
    pub fn standing_out_of_row(&self, fill: bool, machine: u32) -> Standing {
        let filling_or = |standing| if fill { Standing::Filling } else { standing };
        match self.eligibility(machine) {
            Eligibility::Suspended => Standing::Paused,
            // A job that stands still cannot end threads.
            Eligibility::TooManyThreads => filling_or(Standing::Released),
            Eligibility::Starting
            | Eligibility::Asleep
            | Eligibility::NotScheduled
            | Eligibility::Unplaceable => Standing::Released,
            Eligibility::TakesTurns | Eligibility::TooFewCpus => filling_or(Standing::Paused),
        }
    }

    /// Whether its page can be relied on for when it has its slots.
    pub fn validity(&self, machine: u32) -> Validity {
        match self.eligibility(machine).is_gang() {
            true => Validity::Scheduled,
            false => Validity::NotScheduled,
        }
    }

    /// The word on the page of a job in no row.
    pub fn word(&self, slice_ns: u64, machine: u32) -> Word {
        Word { slice_ns, validity: self.validity(machine), ..Word::default() }
    }

    /// Refuses, where it is `wanted`, what cannot be done to single threads.
    pub fn permit_on_processes(
        &self,
        wanted: bool,
        operation: &str,
        reason: &str,
    ) -> Result<(), Refused> {
        if !wanted || !self.home.as_ref().is_some_and(Home::is_of_threads) {
            return Ok(());
        }
        let reason = format!("it is of single threads, and {reason}");
        Err(Refused::not_permitted(format!("{operation} job {}", self.id), reason))
    }

    /// Refuses single threads in a job that does what is done to whole processes.
    pub fn permit_threads(&self, operation: &str) -> Result<(), Refused> {
        let reason = match (self.suspended, self.signals) {
            (true, _) => State::Stopped.refusal(STANDS_STILL),
            (_, true) => {
                "it asks for signals, which go to whole processes: switch them off first".to_owned()
            }
            (false, false) => return Ok(()),
        };
        Err(Refused::not_permitted(operation, reason))
    }

    /// The record that must be on file; `None` for a job without processes.
    pub fn record(&self) -> Option<Record> {
        self.home.as_ref().map(|home| self.record_at(home))
    }

    /// The record that must be on file of a job that is going to be there.
    pub fn record_at(&self, home: &Home) -> Record {
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
            suspended_by_group: self.suspended_by_group,
            stops_foreign: home.members.stops_foreign,
            placement: home.placement.clone(),
            normal: home.normal.into(),
            keeps_attributes: home.members.keeps_attributes,
            affinity: home.affinity.clone(),
            signals: self.signals,
            auto: self.auto.is_some(),
            mem_bytes: self.resources.mem_bytes,
            disk_bytes: self.resources.disk_bytes,
            joined: home.joined.clone(),
            coming: home.coming,
            nonce: self.nonce.clone(),
            slurm_job: self.slurm_job.clone(),
        }
    }
}
