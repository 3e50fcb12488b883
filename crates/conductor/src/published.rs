//! From when a change shows, and what switchers do that have an older timetable.
//!
//! Problem: plans are taken back while the switchers follow them. The timetable that replaces them
//! begins with gangs that stand as the one before left them, and on the CPUs that it gave them. A
//! switcher that was late, or lost a timetable, did only part of its actions.
//!
//! Approach. Of the last timetable, enough is kept to say how gangs stand at any moment of it.
//! Where the next one begins, the jobs are rewound (`Conductor::rewind`) to that moment. After a
//! switcher missed an edge, nothing is assumed of any gang in a timetable that it may have followed
//! (`Conductor::assume_nothing_of`): the next timetable states how each of them stands.
//!
//! A change shows from the next boundary on ([`crate::forecast`]). A timetable holds from `from_ns`
//! on, and until then the one before it. A timetable that some switcher has not taken yet is
//! replaced as a whole: the new one begins where that one began, so that no switcher needs both. A
//! gang that is stated anew is stated by each timetable until one of them is in force, since a
//! superseded one may state nothing. Where some of these statements were due by then, all of its
//! gangs are stated anew.
//!
//! Properties: either a gang stands as is assumed of it, or the next timetable states all of it. So
//! a switcher that was late or lost a timetable leaves no gang otherwise than the next timetable
//! takes for granted.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{Config, CpuSet, JobId, clock as slices};
use gang_timetable::{Pin, Standing};

use crate::Conductor;

/// The last timetable, as far as it must be known to replace it.
#[derive(Debug, Default)]
pub(crate) struct Published {
    /// The time that it covers (UTC).
    pub from_ns: u64,
    pub until_ns: u64,
    /// With the gaps in force.
    config: Config,
    /// The gangs in it.
    gangs: BTreeSet<JobId>,
    /// The gangs among them that fill while no row has them.
    fillers: BTreeSet<JobId>,
    /// How they stood before it.
    before: BTreeMap<JobId, Standing>,
    /// The gangs of all timetables that a switcher may still follow.
    recent: BTreeSet<JobId>,
    /// The CPUs to which gangs were restricted before, and when that changes.
    pinned: BTreeMap<JobId, Option<CpuSet>>,
    pins: Vec<Pin>,
    /// How many edges the switchers have missed, as last seen; absent where gangs may stand
    /// otherwise for another reason.
    missed: Option<u64>,
}

/// How a gang stands before a timetable, and in it while no row has the gang.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stands {
    pub before: Standing,
    pub out_of_row: Standing,
}

impl Published {
    pub fn gangs(&self) -> &BTreeSet<JobId> {
        &self.gangs
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The gangs whose standing is unknown, because switchers missed an edge since the last call.
    /// `missed` is how many edges they have missed in all.
    pub fn unknown(&mut self, missed: u64) -> BTreeSet<JobId> {
        let is_same = self.missed.replace(missed) == Some(missed);
        if is_same { BTreeSet::new() } else { self.recent.clone() }
    }

    pub fn has_seen(&self, missed: u64) -> bool {
        self.missed == Some(missed)
    }

    /// The standing of every gang is unknown.
    pub fn forget(&mut self) {
        self.missed = None;
    }

    /// A job of this number is over, and the last timetable has none.
    pub fn forget_ended(&mut self, job: JobId) {
        self.recent.remove(&job);
    }

    /// All switchers follow the last timetable: those before are over.
    pub fn all_follow(&mut self) {
        self.recent.clone_from(&self.gangs);
    }

    /// Begins the next timetable, of these gangs.
    fn begin(&mut self, gangs: BTreeMap<JobId, Stands>, config: Config) {
        let fillers = gangs.iter().filter(|(_, it)| it.out_of_row == Standing::Filling);
        self.fillers = fillers.map(|(&job, _)| job).collect();
        self.before = gangs.iter().map(|(&job, it)| (job, it.before)).collect();
        self.gangs = gangs.into_keys().collect();
        self.recent.extend(&self.gangs);
        self.config = config;
    }
}

impl Conductor {
    /// Takes standings and CPUs of jobs back to where they are at a moment.
    pub(crate) fn rewind(&mut self, to_ns: u64) {
        let before_ns = to_ns - 1;
        let published = &self.published;
        let plan = self.schedule.plan_of(slices::slice_at(&published.config, before_ns));
        let in_gap = slices::in_gap(&published.config, before_ns);
        let ended = before_ns >= published.until_ns;
        for &id in &published.gangs {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if to_ns <= published.from_ns {
                job.standing = published.before.get(&id).copied().unwrap_or(job.standing);
                continue;
            }
            let in_row = plan.is_some_and(|plan| plan.slot(id).is_some()) && !ended;
            job.standing = match job.standing {
                _ if in_row && !in_gap => Standing::Raised,
                _ if in_row => Standing::Filling,
                Standing::Raised | Standing::Filling if !published.fillers.contains(&id) => {
                    Standing::Paused
                }
                Standing::Raised => Standing::Filling,
                standing => standing,
            };
        }
        for (job, first) in &published.pinned {
            let Some(home) = self.jobs.get_mut(job).and_then(|job| job.home.as_mut()) else {
                continue;
            };
            let mut moves = published.pins.iter().rev().filter(|pin| pin.job == *job);
            let last = moves.find(|pin| pin.at_ns <= before_ns);
            // Where a switcher missed it, `assume_nothing_of` follows.
            home.members.pins_are_unknown &= last.is_none();
            home.members.pinned = last.map_or_else(|| first.clone(), |pin| Some(pin.cpus.clone()));
        }
    }

    /// Gives gangs a standing from which every other one is stated in full. The actions that bring
    /// a job somewhere take back a pause only where it was paused, and a switcher may have missed a
    /// pause.
    pub(crate) fn assume_nothing_of(&mut self, gangs: &BTreeSet<JobId>) {
        if !gangs.is_empty() {
            self.jobs.values_mut().for_each(|job| job.page_says = None);
        }
        for id in gangs {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            job.standing = if job.suspended { Standing::Filling } else { Standing::Paused };
            let members = job.home.as_mut().map(|home| &mut home.members);
            members.into_iter().for_each(|members| members.pins_are_unknown = true);
        }
        self.published.gangs.extend(gangs);
    }

    /// Begins the next timetable, of these gangs.
    pub(crate) fn begin_timetable(&mut self, gangs: BTreeMap<JobId, Stands>, config: Config) {
        self.published.begin(gangs, config);
    }

    /// Where the timetable that the switchers have now leaves the gangs.
    pub(crate) fn end_timetable(
        &mut self,
        pins: Vec<Pin>,
        standings: BTreeMap<JobId, Standing>,
        (from_ns, until_ns): (u64, u64),
    ) {
        let pinned = |jobs: &BTreeMap<JobId, crate::Job>, id: &JobId| {
            jobs.get(id)?.home.as_ref()?.members.pinned.clone()
        };
        self.published.pinned =
            pins.iter().map(|pin| (pin.job, pinned(&self.jobs, &pin.job))).collect();
        for (id, job) in &mut self.jobs {
            let Some(home) = &mut job.home else { continue };
            let of_job = pins.iter().filter(|pin| pin.job == *id);
            home.members.begin_pins(of_job.map(|pin| pin.cpus.clone()).collect());
        }
        for pin in &pins {
            if let Some(home) = self.jobs.get_mut(&pin.job).and_then(|job| job.home.as_mut()) {
                home.members.pinned = Some(pin.cpus.clone());
            }
        }
        for (id, standing) in standings {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.standing = standing;
            }
        }
        self.published.pins = pins;
        (self.published.from_ns, self.published.until_ns) = (from_ns, until_ns);
    }
}
