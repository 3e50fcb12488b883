//! Threads that leave their job without asking.
//!
//! Problem: a process can leave the group of its job by itself: a manager moves it, or its user
//! does, where he has the group. Its threads are lost as members while the timetables in force
//! raise them. If nobody lowered them, they would stay raised for ever, in front of everybody.
//!
//! Approach: the groups are looked at now and then. A thread that is lost and lives on is a
//! *stray*. It gets back what it had, again and again until no switcher follows a timetable that
//! has it. So do threads that it has started since it was last read. Meanwhile it stays on file as
//! a member of its job. A look is at the jobs in turn: first at those whose threads may be raised.
//! One that takes [`LOOK_NS`] stops there, and the next one goes on as soon as it has rested.
//!
//! Properties: a rest of `PART` times as long follows each look. Looks that see all jobs are
//! `LOOK_EVERY_NS` and a period apart at most; after one that stopped, the next one comes in 40 ms.
//! Of that one, all but one part in `OTHERS` is for jobs that may be raised, whatever the number of
//! others. So a stray of these is as its owner had it within 100 ms while a look at all of them
//! takes 1.5 ms, whatever the length of slices. A thread that has come into a job meanwhile is no
//! stray. Where no job may lose a thread, no look is due.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gang_schedule::{CpuSet, JobId};
use gang_timetable::{Action, Attributes, Gone, Standing, record::Placement};

use crate::{Conductor, Job, Now, due::SURVEY_AHEAD_NS};

/// How often it is looked for strays (UTC).
const LOOK_EVERY_NS: u64 = 40_000_000;

/// Looks wait for the end of a gap where periods are no longer: no gang is disturbed then. One that
/// goes on waits where they are no longer than it rests.
const PERIOD_NS_MAX: u64 = 50_000_000;

/// One part in so many of the time is spent on looking for strays.
const PART: u64 = 20;

/// A look that has taken so much CPU time stops after the job that it is at.
pub const LOOK_NS: u64 = 1_000_000;

/// One job in so many is none whose threads may be raised, where there are others.
const OTHERS: usize = 4;

/// A thread that left its job by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray<A = Action> {
    pub job: JobId,
    pub tid: u32,
    /// It was a member at that moment, in ticks since boot: a younger one may have its number.
    pub was_there_ticks: u64,
    /// The attributes that it had; absent where nothing is done to those.
    pub normal: Option<Attributes>,
    /// The CPUs that the job's threads might use.
    pub everywhere: CpuSet,
    /// The groups of the job that it left.
    pub placement: Arc<Placement>,
    /// Gives back to it what it had.
    pub actions: Vec<A>,
    /// Timetables of this generation do not have it any more.
    pub gone_from: u64,
}

impl Stray {
    /// The same, with actions that name descriptors.
    pub fn bind<B>(self, bind: impl FnMut(Action) -> Option<B>) -> Stray<B> {
        let Stray { job, tid, was_there_ticks, normal, .. } = self;
        let Stray { everywhere, placement, actions, gone_from, .. } = self;
        let actions = actions.into_iter().filter_map(bind).collect();
        Stray { job, tid, was_there_ticks, normal, everywhere, placement, actions, gone_from }
    }
}

/// A look for strays that was made.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// The jobs that were looked at: the first ones of those that were due.
    pub jobs: Vec<JobId>,
    /// It stopped before the last one that was due.
    pub has_stopped: bool,
    /// Those of them with threads that stand otherwise because of what was found.
    pub astray: BTreeSet<JobId>,
    /// The CPU time that the look took.
    pub spent_ns: u64,
    /// Some switcher had not taken the last timetable yet when the look began.
    pub is_behind: bool,
}

/// When to look for strays, and at which jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Looks {
    /// When to look next (UTC).
    pub at_ns: Option<u64>,
    /// Where the turn is of those whose threads may be raised, and of others.
    next_raised: Turn,
    next_other: Turn,
    /// How many of the former were looked at since one of the latter was.
    since_other: usize,
}

/// The job whose turn is next, in order of number: this one, or the first one after it.
#[derive(Clone, Copy, Debug, Default)]
struct Turn(u64);

impl Turn {
    /// All of them, the next one first.
    fn order(self, mut jobs: Vec<JobId>) -> Vec<JobId> {
        let begin = jobs.partition_point(|id| id.0 < self.0);
        jobs.rotate_left(begin);
        jobs
    }
}

/// All of these jobs, with one in [`OTHERS`] from among the others as long as there are both; the
/// first one of these comes after fewer, where `since` were looked at since the last one.
fn mixed(raised: Vec<JobId>, others: Vec<JobId>, since: usize) -> Vec<JobId> {
    let mut jobs = Vec::with_capacity(raised.len() + others.len());
    let (mut raised, mut others) = (raised.into_iter(), others.into_iter());
    jobs.extend(raised.by_ref().take((OTHERS - 1).saturating_sub(since)));
    while raised.len() > 0 {
        jobs.extend(others.next());
        jobs.extend(raised.by_ref().take(OTHERS - 1));
    }
    jobs.extend(others);
    jobs
}

impl Conductor {
    /// Threads that a job lost live on. Returns those that left by themselves. Absent while gangd
    /// moves the job's processes to other groups: to be asked again then.
    pub fn lost(&mut self, id: JobId, mut alive: Vec<Gone>) -> Option<BTreeMap<u32, Stray>> {
        let home = self.jobs.get(&id).and_then(|job| job.home.as_ref());
        let Some(home) = home else { return Some(BTreeMap::new()) };
        match home.placement {
            Placement::Cgroup { other: None, .. } => {}
            Placement::Cgroup { .. } => return None,
            Placement::Tree { .. } | Placement::Threads { .. } => return Some(BTreeMap::new()),
        }
        let everywhere = home.members.everywhere.clone();
        let placement = Arc::new(home.placement.clone());
        let of_none = self.of_no_job(alive.iter().map(|gone| gone.tid).collect());
        alive.retain(|gone| of_none.contains(&gone.tid));
        if !alive.is_empty() {
            // The timetables in force still have them.
            self.schedule.renew();
        }
        let gone_from = self.generation + 1;
        let stray = |Gone { tid, was_there_ticks, normal, actions }| {
            let (job, everywhere, placement) = (id, everywhere.clone(), placement.clone());
            let stray = Stray {
                job,
                tid,
                was_there_ticks,
                normal,
                everywhere,
                placement,
                actions,
                gone_from,
            };
            (tid, stray)
        };
        Some(alive.into_iter().map(stray).collect())
    }

    /// Of these threads, those that no job has: a stray of which that holds is one yet.
    pub fn of_no_job(&self, mut tids: BTreeSet<u32>) -> BTreeSet<u32> {
        for home in self.jobs.values().filter_map(|job| job.home.as_ref()) {
            if tids.is_empty() {
                break;
            }
            let threads = home.members.threads();
            if threads.len() < tids.len() {
                for thread in threads {
                    tids.remove(&thread.tid);
                }
            } else {
                tids.retain(|&tid| !home.members.knows(tid));
            }
        }
        tids
    }

    /// Whether a thread is of no job.
    pub fn is_of_no_job(&self, tid: u32) -> bool {
        !self.of_no_job([tid].into()).is_empty()
    }

    /// The jobs whose threads may have something of gangd's. Those of a job that was just released
    /// may have started others out of its group before.
    fn that_may_lose(&self) -> impl Iterator<Item = JobId> {
        let may_lose =
            |job: &&Job| job.standing != Standing::Released || self.is_just_released(job.id);
        self.jobs.values().filter(may_lose).filter(|job| job.home.is_some()).map(|job| job.id)
    }

    /// Whether a job was released lately. Its threads are to be read in any case then: what those
    /// that were in a slot have started until they were lowered has what they had.
    pub fn is_just_released(&self, id: JobId) -> bool {
        self.just_released.contains_key(&id)
    }

    /// The jobs to look at for strays now, in this order, until [`LOOK_NS`] are spent; none where
    /// no look is due. After the look, call [`Conductor::looked_for_strays`].
    pub fn strays_due(&mut self, now: Now) -> Vec<JobId> {
        let next_ns = self.look_for_strays_ns(now.utc_ns + LOOK_EVERY_NS, PERIOD_NS_MAX);
        self.looks.at_ns = self.looks.at_ns.or(next_ns).filter(|_| next_ns.is_some());
        if self.looks.at_ns.is_none_or(|at_ns| at_ns > now.utc_ns) {
            return Vec::new();
        }
        let may_be_raised = |id: &JobId| self.may_be_raised(*id);
        let (raised, others): (Vec<_>, Vec<_>) = self.that_may_lose().partition(may_be_raised);
        let Looks { next_raised, next_other, since_other, .. } = self.looks;
        mixed(next_raised.order(raised), next_other.order(others), since_other)
    }

    fn may_be_raised(&self, id: JobId) -> bool {
        self.published.gangs().contains(&id) || self.is_just_released(id)
    }

    /// It was looked for strays.
    pub fn looked_for_strays(&mut self, now: Now, looked: &Looked) {
        for &id in &looked.jobs {
            let next = Turn(id.0 + 1);
            match self.may_be_raised(id) {
                true => {
                    self.looks.next_raised = next;
                    self.looks.since_other = self.looks.since_other.saturating_add(1);
                }
                false => (self.looks.next_other, self.looks.since_other) = (next, 0),
            }
        }
        // The read of the plans that follow finds nothing new any more.
        looked.astray.iter().for_each(|&id| self.found_members(id));
        let in_force = if looked.is_behind { 0 } else { self.generation };
        let seen: BTreeSet<JobId> = looked.jobs.iter().copied().collect();
        let was_looked_at = |id: &JobId| seen.contains(id) || !self.jobs.contains_key(id);
        self.just_released.retain(|id, by| !was_looked_at(id) || *by > in_force);
        let rest_ns = PART * looked.spent_ns;
        let (every_ns, period_max_ns) = match looked.has_stopped {
            true => (0, PART * LOOK_NS),
            false => (LOOK_EVERY_NS, PERIOD_NS_MAX),
        };
        let from_ns = now.utc_ns + rest_ns.max(every_ns);
        self.looks.at_ns = self.look_for_strays_ns(from_ns, period_max_ns);
    }

    /// The time for which the conductor sleeps: `sleep_ns`, or less where the next look for strays
    /// is due before that.
    pub fn sleep_ns(&self, now_ns: u64, sleep_ns: u64) -> u64 {
        let at_ns = self.looks.at_ns.filter(|_| self.that_may_lose().next().is_some());
        at_ns.map_or(sleep_ns, |at_ns| sleep_ns.min(at_ns.saturating_sub(now_ns)))
    }

    /// When to look for strays from a moment on (UTC), at the end of a gap where periods are no
    /// longer than that; never where no job may have lost a thread.
    fn look_for_strays_ns(&self, from_ns: u64, period_max_ns: u64) -> Option<u64> {
        self.that_may_lose().next()?;
        let period_ns = self.config().gap.period_ns.max(1);
        if period_ns > period_max_ns {
            return Some(from_ns);
        }
        Some((from_ns + SURVEY_AHEAD_NS).next_multiple_of(period_ns) - SURVEY_AHEAD_NS)
    }
}
