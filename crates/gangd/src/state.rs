//! What the daemon knows: the jobs, and the state of the policy.
//!
//! One thread owns it, the conductor; nothing here waits for anybody. What a client asks is a
//! function that runs on that thread ([`crate::errands::Handle`]).

mod membership;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use gang_bpf::Meter;
use gang_conductor::{
    Activity, Eligibility, Forecast, Gaps, Load, Width, Window, admission::Resources,
};
use gang_engine::{
    bound::Bound,
    listeners::Listeners,
    members::Members,
    page::SlotPage,
    store::{Record, Whereabouts},
};
use gang_linux::{Roots, clock, sched};
use gang_schedule::{Config, Event, JobId, Schedule, Spec};
use gang_timetable::{Action, Backend, InSlot, Signal, Standing};

use crate::{
    auto::Auto,
    classes::Terms,
    denied::Denied,
    gauge::Gauge,
    history::Ended,
    hours::WorkingHours,
    job::{Bindings, Job},
    settings::{Limits, Settings},
};

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

/// What classes weigh and ask for, and when.
#[derive(Clone, Debug)]
pub struct ClassTimes {
    pub hours: Option<WorkingHours>,
    pub inside: Terms,
    pub outside: Terms,
    /// Whether these are working hours, as last told to the policy.
    pub are_working: Option<bool>,
}

impl ClassTimes {
    /// For slices of `slice_ns`, whatever the settings say of them.
    fn new(settings: &Settings, slice_ns: u64) -> ClassTimes {
        let Config { slice_ns: of_settings, class_weights, class_slices, .. } = settings.schedule;
        let inside = Terms { weights: class_weights, slices: class_slices };
        ClassTimes {
            hours: settings.working_hours.clone(),
            inside: inside.in_slices_of(of_settings, slice_ns),
            outside: settings.outside.in_slices_of(of_settings, slice_ns),
            are_working: None,
        }
    }
}

/// Everything that plans depend on, and what came of them.
pub struct State {
    pub roots: Roots,
    pub backend: Backend,
    pub limits: Limits,
    /// A job that used no CPU for this long counts as idle (L19).
    pub idle_after: Duration,
    pub schedule: Forecast,
    pub classes: ClassTimes,
    pub jobs: BTreeMap<JobId, Job>,
    next_id: u64,
    /// There was a job, however short it was.
    pub had_jobs: bool,
    pub load: Load,
    pub gauge: Gauge,
    pub gaps: Gaps,
    /// Up to this moment (UTC) jobs have been credited with their slots.
    accounted_until_ns: u64,
    /// Calls for what changed outside the clock; they go with the next timetable.
    pub pending: Vec<Bound>,
    /// Of the timetables that were made last.
    pub generation: u64,
    /// Where the round of looks at the jobs' CPU time stands.
    pub next_look: JobId,
    /// The conductor is to end.
    pub stopped: bool,
}

impl State {
    pub fn new(roots: Roots, backend: Backend, settings: &Settings, schedule: Schedule) -> State {
        let asked = schedule.config().gap;
        let kept = sched::kept_for_ordinary(&roots);
        let gaps = Gaps::new(kept, asked, settings.adapt_gaps && asked.length_ns > 0);
        State {
            roots,
            backend,
            limits: settings.limits.clone(),
            classes: ClassTimes::new(settings, schedule.config().slice_ns),
            idle_after: settings.idle_after,
            schedule: Forecast::new(schedule),
            jobs: BTreeMap::new(),
            next_id: 1,
            had_jobs: false,
            load: Load::default(),
            gauge: Gauge::default(),
            gaps,
            accounted_until_ns: 0,
            pending: Vec::new(),
            generation: 0,
            next_look: JobId(0),
            stopped: false,
        }
    }

    /// Has actions for what changed outside the clock go with the next timetable. They name what is there
    /// now; what they are bound to is returned.
    fn order(&mut self, actions: Vec<Action>) -> Vec<Bound> {
        let bound = self.bind(actions);
        self.pending.extend_from_slice(&bound);
        bound
    }

    /// Actions of jobs, bound to what is there now.
    pub fn bind(&self, actions: Vec<Action>) -> Vec<Bound> {
        let bindings = Bindings { jobs: &self.jobs, all: None };
        actions.into_iter().filter_map(|action| Bound::new(action, &bindings)).collect()
    }

    /// Measures the jobs from the next plans on, which come at once.
    pub fn begin_measuring(&mut self, meter: Arc<Meter>) {
        self.gauge.begin(meter, self.jobs.values());
        self.schedule.renew();
    }

    /// The next job has this number at least.
    pub fn number_from(&mut self, first: u64) {
        self.next_id = self.next_id.max(first);
    }

    /// CPUs that are online.
    pub fn machine(&self) -> u32 {
        self.schedule.topology().len()
    }

    pub fn job(&self, job: JobId) -> Result<&Job, Denied> {
        self.jobs.get(&job).ok_or(Denied::NoSuchJob(job))
    }

    /// The job that lives in a group.
    pub fn lives_in(&self, group: &Path) -> Option<JobId> {
        let is_there = |job: &&Job| {
            let home = job.home.as_ref().map(|home| &home.whereabouts);
            matches!(home, Some(Whereabouts::Cgroup { group: own, .. }) if own == group)
        };
        self.jobs.values().find(is_there).map(|job| job.id)
    }

    /// A new job without processes.
    pub fn register(&mut self, wanted: Candidate) -> Result<JobId, Denied> {
        let Candidate { name, owner_uid, spec, resources, signals, auto } = wanted;
        if self.jobs.len() >= self.limits.jobs {
            return Err(Denied::LimitReached { limit: "jobs", maximum: self.limits.jobs });
        }
        let of_user = self.jobs.values().filter(|job| job.owner_uid == owner_uid).count();
        if owner_uid != 0 && of_user >= self.limits.jobs_per_user {
            let maximum = self.limits.jobs_per_user;
            return Err(Denied::LimitReached { limit: "jobs of a user", maximum });
        }
        self.permit_cpus(owner_uid, spec.cpus, None)?;
        let id = JobId(self.next_id);
        self.enter(id, name, owner_uid, spec, clock::utc_ns())?;
        if let Some(job) = self.jobs.get_mut(&id) {
            (job.resources, job.signals) = (resources, signals);
            job.auto = auto.then(Auto::default);
        }
        Ok(id)
    }

    /// Refuses a user more CPUs over all jobs than the limit; `of` is the job that is to change.
    fn permit_cpus(&self, owner_uid: u32, cpus: u32, of: Option<JobId>) -> Result<(), Denied> {
        let theirs =
            self.jobs.values().filter(|job| job.owner_uid == owner_uid && Some(job.id) != of);
        let sum = theirs.map(|job| u64::from(job.spec.cpus)).sum::<u64>() + u64::from(cpus);
        let maximum = self.limits.cpus_per_user;
        if owner_uid != 0 && sum > maximum as u64 {
            return Err(Denied::LimitReached { limit: "CPUs of all jobs of a user", maximum });
        }
        Ok(())
    }

    /// What a job would ask for after a change, if it may.
    pub fn changed(
        &self,
        id: JobId,
        change: impl FnOnce(&mut Spec, &mut Resources),
    ) -> Result<(Spec, Resources), Denied> {
        let job = self.job(id)?;
        let (mut spec, mut resources) = (job.spec.clone(), job.resources);
        change(&mut spec, &mut resources);
        if spec != job.spec {
            spec.validate(self.machine())?;
        }
        if spec.cpus > job.spec.cpus {
            self.permit_cpus(job.owner_uid, spec.cpus, Some(id))?;
        }
        Ok((spec, resources))
    }

    /// A job is to ask for something else from now on.
    pub fn change(
        &mut self,
        id: JobId,
        change: impl FnOnce(&mut Spec, &mut Resources),
    ) -> Result<Option<Record>, Denied> {
        let (spec, resources) = self.changed(id, change)?;
        if spec != self.job(id)?.spec {
            self.schedule.apply(Event::Changed { job: id, spec: spec.clone() })?;
        }
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        (job.spec, job.resources) = (spec, resources);
        Ok(job.record())
    }

    fn enter(
        &mut self,
        id: JobId,
        name: String,
        owner_uid: u32,
        spec: Spec,
        registered_at_ns: u64,
    ) -> Result<(), Denied> {
        self.schedule.apply(Event::Arrived { job: id, spec: spec.clone() })?;
        self.schedule.apply(Event::Slept { job: id })?;
        self.next_id = self.next_id.max(id.0 + 1);
        self.had_jobs = true;
        let job = Job {
            id,
            name,
            owner_uid,
            spec,
            registered_at_ns,
            suspended: false,
            home: None,
            standing: Standing::Released,
            activity: Activity::default(),
            width: Width::default(),
            in_slot: InSlot::default(),
            cpus: Default::default(),
            slots: 0,
            in_slot_ns: 0,
            share: Window::default(),
            page: None,
            page_says: None,
            signals: false,
            auto: None,
            resources: Resources::default(),
            mem_is_enforced: false,
            progress: None,
        };
        self.jobs.insert(id, job);
        Ok(())
    }

    /// A job that an earlier daemon left.
    pub fn restore(&mut self, record: &Record, members: Members) -> Result<(), Denied> {
        let unreadable = |field: &'static str| Denied::Failed {
            operation: format!("restore job {}", record.id),
            reason: format!("its {field} is unknown here"),
        };
        let spec = Spec {
            class: record.class.parse().map_err(|_| unreadable("class"))?,
            policy: record.policy.parse().map_err(|_| unreadable("policy"))?,
            weight: record.weight,
            cpus: record.cpus,
            min_cpus: record.min_cpus,
        };
        let id = JobId(record.id);
        let (name, at_ns) = (record.name.clone(), record.registered_at_ns);
        self.enter(id, name, record.owner_uid, spec, at_ns)?;
        let normal = record.normal.into();
        self.join(id, record.whereabouts.clone(), members, normal, record.affinity.clone())?;
        if record.suspended {
            self.suspend(id, true)?;
        }
        self.set_signals(id, record.signals)?;
        if let Some(job) = self.jobs.get_mut(&id) {
            let Record { mem_bytes, disk_bytes, .. } = *record;
            job.resources = Resources { mem_bytes, disk_bytes };
            job.auto = record.auto.then(Auto::default);
            if let Some(home) = &mut job.home {
                home.newcomers.clone_from(&record.newcomers);
            }
        }
        Ok(())
    }

    /// The job is over; what is on file of it is returned, to be cleared away, and what it used.
    pub fn end(&mut self, id: JobId) -> Option<(Record, Ended)> {
        let mut job = self.jobs.remove(&id)?;
        self.gauge.forget(id);
        let known = self.schedule.apply(Event::Departed { job: id });
        debug_assert!(known.is_ok(), "jobs here and in the schedule are the same");
        let record = job.record()?;
        let last = job.home.as_mut().and_then(|home| home.members.cpu_time_ns(&self.roots.proc));
        let ended = Ended {
            job: id.0,
            name: job.name,
            owner_uid: job.owner_uid,
            class: record.class.clone(),
            policy: record.policy.clone(),
            weight: record.weight,
            cpus: record.cpus,
            registered_at_ns: job.registered_at_ns,
            ended_at_ns: clock::utc_ns(),
            // The processes of one without a cgroup are not counted any more.
            cpu_time_ns: last.unwrap_or(0).max(job.activity.cpu_time_ns),
            in_slot_ns: job.in_slot_ns,
            slots: job.slots,
        };
        Some((record, ended))
    }

    /// Lets a job take part in the schedule, or not.
    pub fn wake(&mut self, id: JobId, awake: bool) -> Result<(), Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        job.activity.awake = awake;
        self.schedule.apply(if awake {
            Event::Woke { job: id }
        } else {
            Event::Slept { job: id }
        })?;
        if let Some(job) = self.jobs.get(&id) {
            self.gauge.await_waking(job);
        }
        Ok(())
    }

    /// The kernel saw threads in these groups that want to run, of jobs that slept.
    pub fn woke(&mut self, groups: &[u64]) {
        // Who stands still out of its slots is let go on as it falls asleep: that was it.
        if !self.schedule.config().fill {
            return;
        }
        let (now_ns, machine) = (clock::monotonic_ns(), self.machine());
        for id in groups.iter().filter_map(|&group| self.gauge.job_of(group)).collect::<Vec<_>>() {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            if job.eligibility(machine) != Eligibility::Asleep {
                continue;
            }
            job.activity.is_wanted(now_ns, job.in_slot_ns);
            let _ = self.wake(id, true);
        }
    }

    pub fn suspend(&mut self, id: JobId, suspended: bool) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        job.permit_on_processes(suspended, "suspend", "only whole processes can stand still")?;
        job.suspended = suspended;
        // Nobody can use CPU while it stands still: that is not to be held against it.
        job.activity.last_used_ns = clock::monotonic_ns();
        let record = job.record();
        self.schedule.apply(if suspended {
            Event::Suspended { job: id }
        } else {
            Event::Resumed { job: id }
        })?;
        Ok(record)
    }

    /// Somebody else has released all jobs. Gangs have their next slots all the same; but those that are suspended
    /// run, and would go on.
    pub fn suspend_again(&mut self) {
        let is_still = |job: &&mut Job| job.suspended && job.standing == Standing::Paused;
        for job in self.jobs.values_mut().filter(is_still) {
            job.standing = Standing::Released;
        }
        self.schedule.renew();
    }

    /// Whether the policy of a job is `auto`, and what came of it.
    pub fn set_auto(&mut self, id: JobId, auto: Option<Auto>) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        job.auto = auto;
        Ok(job.record())
    }

    /// Whether the processes of a job hear of its slots by signals.
    pub fn set_signals(&mut self, id: JobId, signals: bool) -> Result<Option<Record>, Denied> {
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        job.permit_on_processes(
            signals,
            "tell of slots by signals",
            "signals go to whole processes",
        )?;
        job.signals = signals;
        if let Some(home) = job.home.as_ref().filter(|_| !signals) {
            let mut actions = Vec::new();
            home.listeners.tell(id, Signal::SlotBegins, &mut actions);
            self.order(actions);
        }
        let home = self.jobs.get_mut(&id).and_then(|job| job.home.as_mut());
        if let Some(home) = home.filter(|_| !signals) {
            home.listeners = Listeners::default();
        }
        self.schedule.renew();
        Ok(self.job(id)?.record())
    }

    /// Brings the jobs that no row holds where they belong now: those that came, woke, fell asleep,
    /// were suspended or resumed.
    pub fn settle(&mut self) {
        let (fill, slice_ns) = (self.schedule.config().fill, self.schedule.config().slice_ns);
        let machine = self.machine();
        let mut actions = Vec::new();
        for (&id, job) in &mut self.jobs {
            let to = job.standing_out_of_row(fill, machine);
            if job.standing == to || job.standing == Standing::Raised {
                continue;
            }
            // Between filling and paused a row's gangs go back and forth by the clock.
            let by_clock = |standing| matches!(standing, Standing::Filling | Standing::Paused);
            if !fill && job.eligibility(machine).is_gang() && by_clock(job.standing) {
                continue;
            }
            if let Some(home) = &mut job.home {
                let _ = home.members.refresh(&self.roots.proc);
                if to == Standing::Paused {
                    home.listeners.tell(id, Signal::SlotEnds, &mut actions);
                }
                let in_slot = InSlot::default();
                self.backend.actions(id, &home.members, job.standing, to, in_slot, &mut actions);
                if to == Standing::Released {
                    home.listeners.tell(id, Signal::SlotBegins, &mut actions);
                    home.members.unpin(&mut actions);
                }
                job.standing = to;
                if job.page.is_some() {
                    actions.push(Action::Page { job: id, word: job.word(slice_ns, machine) });
                }
            }
        }
        self.order(actions);
    }

    /// The page of a job, from now on written at its slots; `page` is a new one.
    pub fn page(&mut self, id: JobId, page: Arc<SlotPage>) -> Result<(), Denied> {
        let (slice_ns, machine) = (self.schedule.config().slice_ns, self.machine());
        let job = self.jobs.get_mut(&id).ok_or(Denied::NoSuchJob(id))?;
        let _ = page.write_slots(job.slots);
        job.page = Some(page);
        let word = job.word(slice_ns, machine);
        self.order(vec![Action::Page { job: id, word }]);
        self.schedule.renew();
        Ok(())
    }

    /// The configuration file was read again.
    pub fn reconfigure(&mut self, settings: &Settings) {
        self.limits = settings.limits.clone();
        self.idle_after = settings.idle_after;
        self.classes = ClassTimes::new(settings, self.schedule.config().slice_ns);
        // Not first those of hours that these are not: gangs would be ahead by them, or behind.
        if self.classes.hours.is_none() {
            let accepted = self.schedule.apply(self.classes.inside.event());
            debug_assert!(accepted.is_ok(), "settings were checked as they were read");
        }
        self.look_at_hours(clock::utc_ns());
    }

    /// Working hours begin and end (UTC).
    pub fn look_at_hours(&mut self, utc_ns: u64) {
        let Some(hours) = &self.classes.hours else { return };
        let are_working = hours.contain(utc_ns);
        if self.classes.are_working.replace(are_working) == Some(are_working) {
            return;
        }
        let terms = if are_working { self.classes.inside } else { self.classes.outside };
        tracing::info!(are_working, ?terms, "other terms for the classes from now on");
        let accepted = self.schedule.apply(terms.event());
        debug_assert!(accepted.is_ok(), "settings were checked as they were read");
    }

    /// Jobs that have used no CPU for a time: they leave (L20).
    pub fn unused_for(&self, time: Duration) -> Vec<JobId> {
        let before_ns = clock::monotonic_ns().saturating_sub(time.as_nanos() as u64);
        // Who is awake and used none waits for a slot.
        let unused = |job: &&Job| {
            job.activity.last_used_ns < before_ns
                && match job.eligibility(self.machine()) {
                    Eligibility::Asleep => true,
                    Eligibility::TooManyThreads => !job.activity.awake,
                    _ => false,
                }
        };
        self.jobs.values().filter(unused).map(|job| job.id).collect()
    }

    /// Notes what the plans gave the jobs up to now (UTC).
    pub fn account(&mut self, until_ns: u64) {
        let from_ns = std::mem::replace(&mut self.accounted_until_ns, until_ns);
        let now_ns = clock::monotonic_ns();
        for plan in self.schedule.plans() {
            let (from_ns, until_ns) = (plan.start_ns.max(from_ns), plan.end_ns.min(until_ns));
            if from_ns >= until_ns {
                continue;
            }
            let in_slot_ns = until_ns - from_ns;
            for slot in &plan.row {
                let Some(job) = self.jobs.get_mut(&slot.job) else { continue };
                job.slots += u64::from(from_ns == plan.start_ns);
                job.in_slot_ns += in_slot_ns;
                job.share.add(now_ns, in_slot_ns);
                if job.cpus != slot.cpus {
                    job.cpus.clone_from(&slot.cpus);
                }
            }
        }
    }

    /// The state of a job in the terms of the interface.
    pub fn phase(&self, job: &Job, now_ns: u64) -> gang_protocol::v1::JobState {
        use gang_protocol::v1::JobState;
        let slice = gang_schedule::clock::slice_at(self.schedule.config(), now_ns);
        let plan = self.schedule.plan_of(slice);
        match job.eligibility(self.machine()) {
            Eligibility::Suspended => JobState::suspended,
            Eligibility::Starting => JobState::starting,
            Eligibility::TooManyThreads => JobState::too_many_threads,
            Eligibility::Asleep => {
                let unused_ns = clock::monotonic_ns().saturating_sub(job.activity.last_used_ns);
                let is_idle = u128::from(unused_ns) >= self.idle_after.as_nanos();
                if is_idle { JobState::idle } else { JobState::sleeping }
            }
            Eligibility::NotScheduled => JobState::not_scheduled,
            Eligibility::TooFewCpus => JobState::too_few_cpus,
            Eligibility::TakesTurns => {
                let has_slot = plan.is_some_and(|plan| plan.slot(job.id).is_some());
                if has_slot { JobState::running } else { JobState::waiting }
            }
        }
    }
}
