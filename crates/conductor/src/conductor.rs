//! All that is decided about jobs, and the state that it depends on.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{
    Allowed, Config, Event, JobId, Schedule, Slot, Spec, Topology, UserId, clock as slices,
};
use gang_timetable::{Backend, InSlot, Standing, Switchers, record::Placement};

use crate::{
    Activity, Auto, Effects, Eligibility, Forecast, Gaps, Home, Job, Limits, Load, Note,
    Oversubscription, Progress, Reading, Refused, Setup, ShortLived, Tunables, Uncontended, Window,
    admission::{Claim, LAPSES_AFTER_NS, Resources},
    crowding::Cost,
    life::{self, Moment},
    published::Published,
    quota::Quota,
    spanning::AgreedEntries,
    strays::Looks,
    survey::Round,
};

/// When something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since the Unix epoch. Slices follow it; it may be set.
    pub utc_ns: u64,
    /// CLOCK_MONOTONIC: it never goes back.
    pub monotonic_ns: u64,
}

/// A job to be.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    pub owner_uid: u32,
    pub spec: Spec,
    pub resources: Resources,
    pub signals: bool,
    /// Its policy is `auto`.
    pub auto: bool,
}

/// Everything that decisions depend on, and what came of them.
pub struct Conductor {
    pub(crate) backend: Backend,
    pub(crate) settings: Tunables,
    pub(crate) schedule: Forecast,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    next_id: u64,
    /// There was a job, however short it was.
    had_jobs: bool,
    pub(crate) load: Load,
    pub(crate) gaps: Gaps,
    /// Of the timetables that were made last.
    pub(crate) generation: u64,
    pub(crate) uncontended: Uncontended,
    pub(crate) cost: Cost,
    pub(crate) published: Published,
    /// Threads that are left alone, each with the generation of the last timetable that has them.
    pub(crate) left_alone: Vec<(u64, JobId, Vec<u32>)>,
    pub(crate) switchers: Switchers,
    pub(crate) has_common_group: bool,
    /// Gangs whose standing is stated anew, until a timetable that does so is in force.
    pub(crate) restated: BTreeSet<JobId>,
    /// The same, of those of which nothing is assumed.
    pub(crate) unknown: BTreeSet<JobId>,
    /// The last timetable was made while some switcher had not taken the one before it.
    pub(crate) is_made_behind: bool,
    /// Found with too many threads while there was a plan of them: no slots from the next one on.
    pub(crate) over_thread_limit: BTreeSet<JobId>,
    /// Jobs that members came into, which no timetable has.
    pub(crate) has_new_members: BTreeSet<JobId>,
    /// Jobs without a cgroup that were just stopped: they are read before the next plans, for what
    /// their processes started before that reached them.
    pub(crate) stopped: BTreeSet<JobId>,
    /// Jobs that were released, each with the generation of the timetable that came with the orders
    /// to do so, until it was looked for strays after that.
    pub(crate) just_released: BTreeMap<JobId, u64>,
    pub(crate) looks: Looks,
    /// When the last step began.
    pub(crate) step_began: Now,
    /// The clock was set back after the last timetable was made.
    pub(crate) was_set_back: bool,
    /// The entries of spanning jobs, also of those that have no part here yet.
    pub(crate) agreed: Vec<AgreedEntries>,
    /// So many lists of them are over: the schedule has the others.
    pub(crate) entries_over: usize,
    /// Jobs whose threads may use other CPUs than the schedule knows of.
    pub(crate) confined: BTreeMap<JobId, Allowed>,
    /// The slots that were last written on pages. Of other pages it is not known what they say.
    pub(crate) slots_on_pages: BTreeMap<JobId, u64>,
    pub(crate) lead_ns: u64,
    /// Slices that are planned ahead.
    pub(crate) reach: u64,
    /// When to look at the machine next (UTC).
    pub(crate) look_ns: Option<u64>,
    pub(crate) round: Round,
    /// Up to this moment (UTC) jobs have been credited with their slots.
    accounted_until_ns: u64,
    /// Whether these are working hours, as the policy knows it.
    are_working: Option<bool>,
    /// Those of decisions since they were last taken.
    pub(crate) effects: Effects,
    /// The threads whose CPUs orders set, since the last timetable was made.
    pub(crate) ordered_cpus: BTreeSet<u32>,
}

impl Conductor {
    pub fn new(setup: Setup, settings: Tunables, schedule: Schedule) -> Conductor {
        Conductor {
            backend: setup.backend,
            settings,
            schedule: Forecast::new(schedule),
            jobs: BTreeMap::new(),
            next_id: 1,
            had_jobs: false,
            load: Load::default(),
            gaps: setup.gaps,
            generation: 0,
            uncontended: Uncontended::new(setup.passthrough),
            cost: Cost::default(),
            published: Published::default(),
            slots_on_pages: BTreeMap::new(),
            left_alone: Vec::new(),
            switchers: setup.switchers,
            has_common_group: setup.has_common_group,
            restated: BTreeSet::new(),
            unknown: BTreeSet::new(),
            is_made_behind: false,
            over_thread_limit: BTreeSet::new(),
            has_new_members: BTreeSet::new(),
            stopped: BTreeSet::new(),
            just_released: BTreeMap::new(),
            looks: Looks::default(),
            step_began: Now::default(),
            was_set_back: false,
            agreed: Vec::new(),
            entries_over: 0,
            confined: BTreeMap::new(),
            lead_ns: crate::due::LEAD_NS_MIN,
            reach: crate::planning::AHEAD_SLICES,
            look_ns: None,
            round: Round::new(),
            accounted_until_ns: 0,
            are_working: None,
            effects: Effects::default(),
            ordered_cpus: BTreeSet::new(),
        }
    }

    /// The next job has this number at least.
    pub fn number_from(&mut self, first: u64) {
        self.next_id = self.next_id.max(first);
    }

    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The settings in force.
    pub fn settings(&self) -> &Tunables {
        &self.settings
    }

    /// The policy's state, and the plans that were made.
    pub fn schedule(&self) -> &Forecast {
        &self.schedule
    }

    pub fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }

    /// Whether there was a job, however short it was.
    pub fn had_jobs(&self) -> bool {
        self.had_jobs
    }

    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// The generation of the timetables that were made last.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether these are working hours, as the policy knows it; absent where there are none.
    pub fn are_working(&self) -> Option<bool> {
        self.are_working
    }

    /// Plans come at once, and anew.
    pub fn renew_plans(&mut self) {
        self.schedule.renew();
    }

    /// The look at the machine that was due did not come in time.
    pub fn looked_late(&mut self) {
        self.load.pauses();
    }

    /// CPUs that are online.
    pub fn machine(&self) -> u32 {
        self.schedule.topology().len()
    }

    pub fn job(&self, job: JobId) -> Result<&Job, Refused> {
        self.jobs.get(&job).ok_or(Refused::NoSuchJob(job))
    }

    pub(crate) fn job_mut(&mut self, job: JobId) -> Result<&mut Job, Refused> {
        self.jobs.get_mut(&job).ok_or(Refused::NoSuchJob(job))
    }

    /// A job that a test puts into a state by hand.
    #[cfg(feature = "model")]
    pub fn job_by_hand(&mut self, job: JobId) -> &mut Job {
        self.jobs.get_mut(&job).expect("the test has registered it")
    }

    /// The members that a look at the processes of a job reads and writes; absent where it has
    /// none.
    pub fn reading(&mut self, job: JobId) -> Option<Reading<'_>> {
        let job = self.jobs.get_mut(&job)?;
        let Home { placement, members, listeners, leaving, .. } = job.home.as_mut()?;
        let (owner_uid, signals) = (job.owner_uid, job.signals);
        Some(Reading { owner_uid, signals, placement, leaving, members, listeners })
    }

    /// The decision on a job of policy `auto`, to be noted; absent where the policy is another.
    pub fn auto_mut(&mut self, job: JobId) -> Option<&mut Auto> {
        self.jobs.get_mut(&job)?.auto.as_mut()
    }

    pub fn eligibility(&self, job: &Job) -> Eligibility {
        job.eligibility(self.machine())
    }

    /// On whose account a user's jobs are.
    pub fn account_of(&self, uid: u32) -> UserId {
        self.settings.accounts.of(uid)
    }

    /// A new job without processes.
    pub fn register(&mut self, now: Now, wanted: Candidate) -> Result<JobId, Refused> {
        let Candidate { name, owner_uid, spec, resources, signals, auto } = wanted;
        self.admit(owner_uid)?;
        self.permit_cpus(self.account_of(owner_uid), spec.cpus, None)?;
        let id = JobId(self.next_id);
        if id >= JobId::FIRST_SPANNING {
            let maximum = JobId::FIRST_SPANNING.0 as usize;
            return Err(Refused::LimitReached { limit: "numbers of jobs", maximum });
        }
        self.enter(now, id, name, owner_uid, spec)?;
        let job = self.job_mut(id)?;
        (job.resources, job.signals) = (resources, signals);
        job.auto = auto.then(Auto::default);
        Ok(id)
    }

    /// Whether a user may have one more job.
    pub fn admit(&self, owner_uid: u32) -> Result<(), Refused> {
        let Limits { jobs, jobs_per_user, .. } = self.settings.limits;
        let user = self.account_of(owner_uid);
        let his = self.jobs.values().filter(|job| job.spec.user == user).count();
        let names = ["jobs", "jobs of a user"];
        let quota = Quota { maximum: jobs, of_user: jobs_per_user, names };
        Ok(quota.admit(&self.settings.accounts, user, his, self.jobs.len())?)
    }

    /// The claims of jobs that were promised something, each with where the kernel says what it
    /// uses. A job that got no process in time has none.
    pub fn promises(&self, now: Now) -> impl Iterator<Item = (JobId, Claim, Option<&Placement>)> {
        let promised = self.jobs.values().filter(|job| !job.resources.is_none());
        promised.filter_map(move |job| {
            let waited_ns = now.monotonic_ns.saturating_sub(job.entered_at_ns);
            let has_lapsed = job.home.is_none() && waited_ns > LAPSES_AFTER_NS;
            let claim = Claim { user: job.spec.user, unused: job.resources };
            let placement = job.home.as_ref().map(|home| &home.placement);
            (!has_lapsed).then_some((job.id, claim, placement))
        })
    }

    /// Refuses a user more CPUs over all jobs than the limit; `of` is the job that is to change.
    pub fn permit_cpus(&self, user: UserId, cpus: u32, of: Option<JobId>) -> Result<(), Refused> {
        let theirs = self.jobs.values().filter(|job| job.spec.user == user && Some(job.id) != of);
        let sum = theirs.map(|job| u64::from(job.spec.cpus)).sum::<u64>() + u64::from(cpus);
        let maximum = self.settings.limits.cpus_per_user;
        if sum > maximum as u64 && !self.settings.accounts.is_unlimited(user) {
            return Err(Refused::LimitReached { limit: "CPUs of all jobs of a user", maximum });
        }
        Ok(())
    }

    /// The spec and resources of a job after a change, if it may change so.
    pub fn changed(
        &self,
        id: JobId,
        change: impl FnOnce(&mut Spec, &mut Resources),
    ) -> Result<(Spec, Resources), Refused> {
        let job = self.job(id)?;
        life::permit(job, Moment::Change)?;
        let (mut spec, mut resources) = (job.spec.clone(), job.resources);
        change(&mut spec, &mut resources);
        if spec != job.spec {
            spec.validate(self.machine())?;
        }
        if spec.cpus > job.spec.cpus {
            self.permit_cpus(job.spec.user, spec.cpus, Some(id))?;
        }
        Ok((spec, resources))
    }

    /// A job is to ask for something else from now on.
    pub fn change(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Spec, &mut Resources),
    ) -> life::Filed {
        let (spec, resources) = self.changed(id, change)?;
        if spec != self.job(id)?.spec {
            self.schedule.apply(Event::Changed { job: id, spec: spec.clone() })?;
        }
        let job = self.job_mut(id)?;
        (job.spec, job.resources) = (spec, resources);
        self.note_places();
        Ok(self.job(id)?.record())
    }

    pub(crate) fn enter(
        &mut self,
        now: Now,
        id: JobId,
        name: String,
        owner_uid: u32,
        mut spec: Spec,
    ) -> Result<(), Refused> {
        spec.user = self.account_of(owner_uid);
        self.schedule.apply(Event::Arrived { job: id, spec: spec.clone() })?;
        self.schedule.apply(Event::Slept { job: id })?;
        if id < JobId::FIRST_SPANNING {
            self.next_id = self.next_id.max(id.0 + 1);
        }
        self.had_jobs = true;
        let job = Job {
            id,
            name,
            owner_uid,
            spec,
            registered_at_ns: now.utc_ns,
            entered_at_ns: now.monotonic_ns,
            suspended: false,
            suspended_by_group: false,
            unplaceable: None,
            confined_at_ns: 0,
            limited_at_ns: 0,
            home: None,
            standing: Standing::Released,
            activity: Activity::default(),
            oversubscription: Oversubscription::default(),
            short_lived: ShortLived::default(),
            crowded: None,
            regroup: None,
            way_by_limits: None,
            regroup_failed_ns: None,
            in_slot: InSlot::default(),
            cpus: Default::default(),
            slots: 0,
            in_slot_ns: 0,
            out_of_slot_ns: 0,
            share: Window::default(),
            has_page: false,
            page_says: None,
            signals: false,
            auto: None,
            resources: Resources::default(),
            mem_is_enforced: false,
            nonce: None,
            slurm_job: None,
            progress: None,
        };
        self.jobs.insert(id, job);
        Ok(())
    }

    /// A program reports how far its job is.
    pub fn report_progress(&mut self, id: JobId, progress: Progress) -> Result<(), Refused> {
        self.job_mut(id)?.progress = Some(progress);
        Ok(())
    }

    /// The configuration was read again; `are_working` where there are working hours.
    pub fn reconfigure(&mut self, settings: Tunables, are_working: Option<bool>) {
        self.are_working = None;
        let mut events =
            vec![Event::Sharing(settings.sharing.clone()), Event::Caps(settings.caps.clone())];
        // Not first those of hours that these are not: gangs would be ahead by them, or behind.
        if settings.outside.is_none() {
            events.push(settings.inside.event());
        }
        self.settings = settings;
        for event in events {
            let accepted = self.schedule.apply(event);
            debug_assert!(accepted.is_ok(), "settings were checked as they were read");
        }
        self.work(are_working);
    }

    /// Whether these are working hours; absent where there are none.
    pub fn work(&mut self, are_working: Option<bool>) {
        let (Some(are_working), Some(outside)) = (are_working, self.settings.outside) else {
            return;
        };
        if self.are_working.replace(are_working) == Some(are_working) {
            return;
        }
        let terms = if are_working { self.settings.inside } else { outside };
        self.note(Note::WorkingHours(are_working));
        let accepted = self.schedule.apply(terms.event());
        debug_assert!(accepted.is_ok(), "settings were checked as they were read");
    }

    /// CPUs went or came.
    pub fn change_topology(&mut self, topology: Topology) -> Result<(), Refused> {
        self.schedule.apply(Event::Topology(topology))?;
        self.note_places();
        Ok(())
    }

    /// Jobs that have used no CPU for a time: they leave (L20). The part of a job that spans hosts
    /// does not leave alone: the job may be busy on others.
    pub fn unused_for(&self, now: Now, time_ns: u64) -> Vec<JobId> {
        let before_ns = now.monotonic_ns.saturating_sub(time_ns);
        // One that is awake and used none waits for a slot.
        let unused = |job: &&Job| {
            job.nonce.is_none()
                && job.activity.last_used_ns < before_ns
                && match self.eligibility(job) {
                    Eligibility::Asleep => true,
                    Eligibility::TooManyThreads => !job.activity.awake,
                    Eligibility::Suspended
                    | Eligibility::Starting
                    | Eligibility::NotScheduled
                    | Eligibility::TooFewCpus
                    | Eligibility::Unplaceable
                    | Eligibility::TakesTurns => false,
                }
        };
        self.jobs.values().filter(unused).map(|job| job.id).collect()
    }

    /// Whether a job has used no CPU for so long that it counts as idle.
    pub fn is_idle(&self, job: &Job, now: Now) -> bool {
        let unused_ns = now.monotonic_ns.saturating_sub(job.activity.last_used_ns);
        unused_ns >= self.settings.idle_after_ns
    }

    /// Whether a job has a slot in the slice under way.
    pub fn has_slot(&self, job: JobId, now: Now) -> bool {
        let slice = slices::slice_at(self.schedule.config(), now.utc_ns);
        self.schedule.plan_of(slice).is_some_and(|plan| plan.slot(job).is_some())
    }

    /// Credits the jobs with what the plans gave them up to now, and with the time in which they
    /// waited. A job that stands still, sleeps or cannot be placed does not wait for its turn.
    pub fn account(&mut self, now: Now) {
        let machine = self.machine();
        let from_ns = std::mem::replace(&mut self.accounted_until_ns, now.utc_ns);
        for plan in self.schedule.plans() {
            let (from_ns, until_ns) = (plan.start_ns.max(from_ns), plan.end_ns.min(now.utc_ns));
            if from_ns >= until_ns {
                continue;
            }
            let in_slot_ns = until_ns - from_ns;
            for slot in &plan.row {
                let Some(job) = self.jobs.get_mut(&slot.job) else { continue };
                job.slots += u64::from(from_ns == plan.start_ns);
                job.in_slot_ns += in_slot_ns;
                job.share.add(now.monotonic_ns, in_slot_ns);
                if job.cpus != slot.cpus {
                    job.cpus.clone_from(&slot.cpus);
                }
            }
            let waits = |job: &&Job| {
                job.eligibility(machine) == Eligibility::TakesTurns
                    && waits_for_others(&self.jobs, job, &plan.row)
            };
            let out_of_row = plan.fillers.iter().chain(&plan.paused);
            let waiting = out_of_row.filter_map(|id| self.jobs.get(id)).filter(waits);
            for id in waiting.map(|job| job.id).collect::<Vec<JobId>>() {
                self.jobs.entry(id).and_modify(|job| job.out_of_slot_ns += in_slot_ns);
            }
        }
    }

    pub fn config(&self) -> &Config {
        self.schedule.config()
    }
}

/// Whether a job waits for anybody but its owner while there is this row. Of a job of Slurm, the
/// time limit follows the wait, so nobody is to lengthen it by gangs that have no limit or the same
/// one.
fn waits_for_others(jobs: &BTreeMap<JobId, Job>, job: &Job, row: &[Slot]) -> bool {
    let Some(of_slurm) = &job.slurm_job else { return true };
    let is_another = |other: &Job| {
        let is_limited = other.slurm_job.as_ref().is_some_and(|it| it != of_slurm);
        other.spec.user != job.spec.user || is_limited
    };
    row.is_empty() || row.iter().filter_map(|slot| jobs.get(&slot.job)).any(is_another)
}
