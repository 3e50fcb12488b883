//! Threads that leave their job without asking.
//!
//! Problem: a process can leave the group of its job by itself: a manager moves it, or its user
//! does who has the group. Its threads are lost as members while the timetables in force raise
//! them. If nobody lowered them, they would stay raised for ever, in front of everybody.
//!
//! Approach: the groups are looked at now and then. A thread that is lost and lives on is a
//! *stray*. It gets back what it had, again and again until no switcher follows a timetable that
//! has it. So do threads that it has started since it was last read. Meanwhile it stays on file as a
//! member of its job.
//!
//! Properties: a stray is as its owner had it `LOOK_EVERY_NS` and one period later at most,
//! whatever the length of slices. What has come into a job meanwhile is no stray.

use gang_schedule::{CpuSet, JobId};
use gang_timetable::{Action, Attributes, Gone, Standing, record::Placement};

use crate::{Conductor, Job, planning::SURVEY_AHEAD_NS};

/// How often it is looked for strays.
const LOOK_EVERY_NS: u64 = 40_000_000;

/// Looks wait for the end of a gap where periods are no longer: no gang is disturbed then.
const PERIOD_NS_MAX: u64 = 50_000_000;

/// A thread that left its job by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub job: JobId,
    pub tid: u32,
    /// The attributes that it had; absent where nothing is done to those.
    pub normal: Option<Attributes>,
    /// The CPUs that the job's threads might use.
    pub everywhere: CpuSet,
    /// Gives back to it what it had.
    pub actions: Vec<Action>,
    /// Timetables of this generation do not have it any more.
    pub gone_from: u64,
}

impl Conductor {
    /// Threads that a job lost live on. Returns those that left by themselves. Absent while gangd
    /// moves the job's processes to other groups: to be asked again then.
    pub fn lost(&mut self, id: JobId, alive: Vec<Gone>) -> Option<Vec<Stray>> {
        let home = self.jobs.get(&id).and_then(|job| job.home.as_ref());
        let Some(home) = home else { return Some(Vec::new()) };
        match home.placement {
            Placement::Cgroup { other: None, .. } => {}
            Placement::Cgroup { .. } => return None,
            Placement::Tree { .. } | Placement::Threads { .. } => return Some(Vec::new()),
        }
        let everywhere = home.members.everywhere.clone();
        let alive: Vec<Gone> = alive.into_iter().filter(|gone| self.is_stray(gone.tid)).collect();
        if !alive.is_empty() {
            // The timetables in force still have them.
            self.schedule.renew();
        }
        let gone_from = self.generation + 1;
        let stray = |Gone { tid, normal, actions }| {
            let everywhere = everywhere.clone();
            Stray { job: id, tid, normal, everywhere, actions, gone_from }
        };
        Some(alive.into_iter().map(stray).collect())
    }

    /// Whether a stray is one yet: no job has it.
    pub fn is_stray(&self, tid: u32) -> bool {
        let homes = self.jobs.values().filter_map(|job| job.home.as_ref());
        !homes.into_iter().any(|home| home.members.knows(tid))
    }

    /// The jobs whose threads may have something of gangd's. Those of a job that was just released
    /// may have started others out of its group before.
    pub fn that_may_lose(&self) -> impl Iterator<Item = JobId> {
        let may_lose = |job: &&Job| {
            job.standing != Standing::Released || self.just_released.contains_key(&job.id)
        };
        self.jobs.values().filter(may_lose).filter(|job| job.home.is_some()).map(|job| job.id)
    }

    /// It was looked for strays. `is_behind` where a switcher has not taken the last timetable yet.
    pub fn looked_for_strays(&mut self, is_behind: bool) {
        let in_force = if is_behind { 0 } else { self.generation };
        self.just_released.retain(|_, released_by| *released_by > in_force);
    }

    /// When to look for strays next (UTC); never where no job may have lost a thread.
    pub fn next_look_for_strays_ns(&self, now_ns: u64) -> Option<u64> {
        self.that_may_lose().next()?;
        let (due_ns, period_ns) = (now_ns + LOOK_EVERY_NS, self.config().gap.period_ns.max(1));
        if period_ns > PERIOD_NS_MAX {
            return Some(due_ns);
        }
        Some((due_ns + SURVEY_AHEAD_NS).next_multiple_of(period_ns) - SURVEY_AHEAD_NS)
    }
}
