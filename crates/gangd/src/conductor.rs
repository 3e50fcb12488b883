//! The thread that plans.
//!
//! Problem: timetables must be ready before they begin, whatever clients ask meanwhile and however many
//! jobs there are; what changes must show in the next slice; and waking this thread costs more than what
//! it then does.
//!
//! Approach: one thread owns the state and takes all decisions. Ten times a second, at the end of a gap where there
//! are gaps, it looks at the machine; where plans run out, it plans the slices of the next quarter of a second and
//! hands the timetables to the switchers. Clients' questions are functions that it runs in between; what takes the
//! kernel long was done before they are asked. Where one changes the schedule, or a gang has new threads, what was
//! planned is taken back from the next slice or gap on ([`gang_conductor::forecast`]). From where on they are told
//! something else, [`crate::told`] knows.
//!
//! Properties: after a stop, or a panic, no gang is raised: the switchers see to it as they end. A step
//! of the clock costs one period at most.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, mpsc::Receiver},
    thread::JoinHandle,
    time::Duration,
};

use gang_conductor::{Eligibility, Measured, Uncontended};
use gang_engine::{
    bound::{Bound, ControlFiles, Linux},
    guardian,
    switcher::{Lookout, Switcher},
};
use gang_linux::{clock, clock::Alarm, process::Census, sched};
use gang_schedule::{Config, CpuSet, JobId, Plan, clock as slices};
use gang_timetable::{
    Backend, Composition, Gang, InSlot, Standing, Stretch, Switchers, Timetable, compose, priority,
};

use crate::{
    errands::{self, Errand, Handle},
    job::{Bindings, Job},
    newcomers::{Arrivals, Newcomers},
    precedence::Precedence,
    state::State,
    survey::Survey,
    told::Told,
    ward::Pulse,
};

/// Errands that are run in a row, before the conductor looks at its clock again.
const ERRANDS_AT_A_TIME: usize = 32;

/// What the conductor needs besides its state.
pub struct Setup {
    pub state: State,
    /// The controls of the group that all jobs are in, where that gives way.
    pub all: Option<ControlFiles>,
    /// Gangs are left to Linux in their slots while nobody else wants a CPU.
    pub passthrough: bool,
    /// Shows the guardian that the conductor lives.
    pub pulse: Arc<Pulse>,
    pub realtime: bool,
    pub precedence: Arc<Precedence>,
}

/// Starts the conductor and its switchers.
pub fn start(setup: Setup) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let groups = Switchers::new(setup.state.schedule.topology());
    let kernel = Arc::new(Linux);
    let alarm = Arc::<Alarm>::default();
    let arrivals = Arrivals::default();
    let census = Census::open(&setup.state.roots.proc).map_err(std::io::Error::other)?;
    let mut lookout = Some(Lookout::new(census, arrivals.sign(), alarm.clone()));
    let switchers = groups
        .cpus()
        .iter()
        .map(|cpus| {
            let cpus = cpus.iter().collect();
            Switcher::start(cpus, setup.realtime, kernel.clone(), lookout.take())
        })
        .collect::<std::io::Result<Vec<_>>>()?;
    let timings = switchers.iter().map(|switcher| switcher.timings.clone());
    let timings = groups.cpus().iter().cloned().zip(timings).collect();
    let (handle, errands) = errands::open(alarm.clone(), timings);
    let realtime = setup.realtime;
    let conductor = Conductor {
        survey: Survey::new(&setup.state.roots, setup.realtime)?,
        state: setup.state,
        all: setup.all,
        uncontended: Uncontended::new(setup.passthrough),
        told_anew: BTreeSet::new(),
        pulse: setup.pulse,
        precedence: setup.precedence,
        switchers,
        groups,
        errands,
        alarm,
        arrivals,
        crowded: BTreeSet::new(),
        told: Told::default(),
        lead_ns: LEAD_NS_MIN,
        reach: AHEAD_SLICES,
        look_ns: None,
        failures: 0,
        failures_told_ns: 0,
    };
    let thread = std::thread::Builder::new().name("conductor".into()).spawn(move || {
        if realtime {
            lift_conductor();
        }
        conductor.run();
    })?;
    Ok((handle, thread))
}

/// Puts the conductor before the gangs: by a reservation, which takes nothing of what the kernel
/// gives to real-time threads; where it has none to give, as one of those.
fn lift_conductor() {
    let reserved = sched::become_deadline(RESERVED, RESERVED_PERIOD)
        .or_else(|_| sched::become_fifo(priority::CONDUCTOR));
    if let Err(error) = reserved {
        tracing::warn!(%error, source = %error.source, "the conductor runs at ordinary priority");
    }
}

/// What the conductor may use of one CPU: a fifth, of which it needs a hundredth. More would keep a CPU
/// from going offline where several daemons run: the kernel keeps to what it has promised.
const RESERVED: Duration = Duration::from_millis(2);
const RESERVED_PERIOD: Duration = Duration::from_millis(10);

/// The least time that planning is given.
const LEAD_NS_MIN: u64 = 150_000;

/// And the most.
const LEAD_NS_MAX: u64 = 5_000_000;

/// How far plans are made ahead.
const AHEAD_NS: u64 = 250_000_000;

/// Slices that are planned ahead at least.
const REACH_MIN: u64 = 2;

/// How many slices: with short ones, planning them all at once would take a gang's CPU for too long.
const AHEAD_SLICES: u64 = 32;

/// The time before the end of a gap at which the machine is looked at.
const SURVEY_AHEAD_NS: u64 = 120_000;

/// How long the switchers keep a gang raised whose timetable is not replaced.
const GRACE_NS: u64 = 5_000_000;

/// How often the machine is looked at while no job takes part in the schedule.
const QUIET_NS: u64 = 50_000_000;

/// Failures of calls are logged at most this often.
const FAILURES_EVERY_NS: u64 = 10_000_000_000;

struct Conductor {
    state: State,
    survey: Survey,
    all: Option<ControlFiles>,
    uncontended: Uncontended,
    /// Gangs that are to be told everything.
    told_anew: BTreeSet<JobId>,
    pulse: Arc<Pulse>,
    precedence: Arc<Precedence>,
    switchers: Vec<Switcher>,
    groups: Switchers,
    errands: Receiver<Errand>,
    alarm: Arc<Alarm>,
    arrivals: Arrivals,
    /// Have more threads than are switched, which was found while there was a plan of them: they have no slots
    /// from the next one on.
    crowded: BTreeSet<JobId>,
    told: Told,
    lead_ns: u64,
    /// Slices that are planned ahead.
    reach: u64,
    /// When to look next.
    look_ns: Option<u64>,
    /// Calls of the switchers that failed, as last logged.
    failures: u64,
    /// When they were logged (CLOCK_MONOTONIC).
    failures_told_ns: u64,
}

impl Conductor {
    fn run(mut self) {
        loop {
            let seen = self.alarm.seen();
            let now_ns = clock::utc_ns();
            self.state.account(now_ns);
            self.state.schedule.stand_until(self.boundary(now_ns + self.lead_ns));
            for errand in self.errands.try_iter().take(ERRANDS_AT_A_TIME) {
                errand(&mut self.state);
            }
            if self.state.stopped {
                break;
            }
            for job in std::mem::take(&mut self.crowded) {
                let _ = self.state.wake(job, false);
            }
            self.pulse.beat();
            if self.pulse.take_released() {
                self.state.suspend_again();
            }
            let mut sleep_ns = self.plan_what_is_due(now_ns);
            if let Some(due_in_ns) = self.arrivals.due_in_ns(clock::monotonic_ns()) {
                sleep_ns = sleep_ns.min(due_in_ns);
            }
            if sleep_ns > 0 {
                self.alarm.sleep(seen, Some(Duration::from_nanos(sleep_ns)));
            }
        }
        // The switchers end now, and take whoever is still raised out of its slot.
    }

    /// Looks and plans where it is time to; says how long to sleep.
    fn plan_what_is_due(&mut self, now_ns: u64) -> u64 {
        // The guardian is not to think that the conductor is stuck.
        let beat_ns = guardian::SILENCE.as_nanos() as u64 / 10;
        // What the last job leaves behind is done first: its processes may live on.
        let is_settled = self.told.gangs().is_empty() && self.state.pending.is_empty();
        if is_settled && self.state.jobs.values().all(|job| job.home.is_none()) {
            // Whoever it was is of no gang.
            self.arrivals.forget();
            return beat_ns;
        }
        let machine = self.state.machine();
        let is_gang = |job: &Job| job.eligibility(machine).is_gang();
        let quiet = !self.state.jobs.values().any(is_gang);
        if quiet && self.survey.is_due() {
            self.survey.look(&mut self.state);
        }
        let before_ns = clock::thread_cpu_ns();
        let newcomers = self.newcomers();
        // The end was not reached, or the clock was set back, or far ahead.
        let is_planned = (now_ns..=now_ns + 2 * self.most_ahead_ns()).contains(&self.told.until_ns);
        if !is_planned {
            let period_ns = self.state.schedule.config().gap.period_ns;
            let under_way_ns = now_ns - now_ns % period_ns;
            self.plan(now_ns, under_way_ns, Newcomers::Anywhere);
            return 0;
        }
        let stands_until_ns = self.state.schedule.stands_until_ns();
        if self.state.schedule.is_changed() || !newcomers.is_none() {
            let due_ns = stands_until_ns.saturating_sub(self.lead_ns);
            if now_ns >= due_ns || !newcomers.is_none() {
                let is_for_newcomers = !newcomers.is_none();
                self.plan(now_ns, stands_until_ns, newcomers);
                if is_for_newcomers {
                    self.looked_for_newcomers(before_ns);
                }
                return 0;
            }
            return due_ns - now_ns;
        }
        if quiet {
            return QUIET_NS.min(beat_ns);
        }
        // Short tasks have been served at the end of a gap: who is runnable then will stay so.
        let look_ns = self.look_ns.filter(|&at_ns| at_ns <= self.told.until_ns);
        let look_ns = look_ns.unwrap_or_else(|| self.next_look_ns(now_ns));
        self.look_ns = Some(look_ns).filter(|&at_ns| now_ns < at_ns);
        if now_ns < look_ns {
            return look_ns - now_ns;
        }
        if self.survey.is_due() {
            self.survey.look(&mut self.state);
            self.look_who_is_alone();
        }
        if self.runs_out_ns() <= look_ns + SURVEY_AHEAD_NS {
            self.plan(now_ns, self.state.schedule.stands_until_ns(), Newcomers::None);
        }
        0
    }

    /// The next moment at which plans can change: a slice begins, or a gap has ended.
    fn boundary(&self, at_ns: u64) -> u64 {
        let config = self.state.schedule.config();
        let begins = |length_ns: u64| at_ns.next_multiple_of(length_ns.max(1));
        begins(config.slice_ns).min(begins(config.gap.period_ns))
    }

    /// How far plans are made ahead at most, beyond the next boundary.
    fn most_ahead_ns(&self) -> u64 {
        self.ahead_of(AHEAD_SLICES)
    }

    fn ahead_of(&self, slices: u64) -> u64 {
        let config = self.state.schedule.config();
        let slices_ns = config.slice_ns.saturating_mul(slices);
        AHEAD_NS.min(slices_ns).next_multiple_of(config.gap.period_ns) + 2 * config.gap.period_ns
    }

    /// The end of the next gap at which it is time to look, or to plan on.
    fn next_look_ns(&self, now_ns: u64) -> u64 {
        let period_ns = self.state.schedule.config().gap.period_ns;
        let due_ns = (now_ns + self.survey.due_in_ns()).min(self.runs_out_ns()).max(now_ns);
        (due_ns + SURVEY_AHEAD_NS).next_multiple_of(period_ns) - SURVEY_AHEAD_NS
    }

    /// When to plan on, so that another timetable is there in time.
    fn runs_out_ns(&self) -> u64 {
        self.told.until_ns - 2 * self.state.schedule.config().gap.period_ns
    }

    /// Plans from a boundary on, and hands the timetables to the switchers.
    fn plan(&mut self, now_ns: u64, resume_ns: u64, newcomers: Newcomers) {
        // A timetable that is not in force everywhere yet is replaced as a whole; who does not come for it loses
        // it, rather than that the others go through all of it again.
        let is_waiting = self.switchers.iter().any(Switcher::is_behind);
        let out_of_step =
            self.switchers.iter().map(|switcher| switcher.timings.out_of_step()).sum();
        let astray = self.told.gone_astray(out_of_step);
        if !is_waiting {
            self.told.all_follow();
        }
        let last_ns = self.told.from_ns;
        let period_ns = self.state.schedule.config().gap.period_ns;
        let is_recent = last_ns + period_ns > now_ns;
        let from_ns = if is_waiting && is_recent { resume_ns.min(last_ns) } else { resume_ns };
        // What is soon taken back was planned in vain: where changes come one after the other, plans reach
        // less far, and farther again when they have ended.
        let is_taken_back = self.state.schedule.is_changed() && self.told.until_ns > resume_ns;
        self.reach = match is_taken_back {
            true => (self.reach / 2).max(REACH_MIN),
            false => (self.reach * 2).min(AHEAD_SLICES),
        };
        let until_ns = (resume_ns + self.ahead_of(self.reach)).next_multiple_of(period_ns);
        self.told.rewind(&mut self.state, from_ns);
        self.told.assume_nothing_of(&astray, &mut self.state);
        self.state.settle();
        self.state.schedule.extend(resume_ns, until_ns);
        let config = self.state.schedule.config();
        let slices = slices::slice_at(config, from_ns)..=slices::slice_at(config, until_ns - 1);
        let plans = self.state.schedule.plans().iter().filter(|plan| slices.contains(&plan.slice));
        let plans: Vec<Plan> = plans.map(|plan| Plan::clone(plan)).collect();
        let came = self.read_members(&plans);
        self.look_who_has_which_slot(&plans, is_waiting);
        let told_anew = self.told_anew.clone();
        // What the group of all gangs was given last, it may not have yet, or not have got.
        let is_followed = !is_waiting && astray.is_empty() && !newcomers.is_anywhere();
        let composition = self.compose(from_ns, until_ns, &plans, is_followed, |job| {
            newcomers.are_of(job)
                || [&came, &told_anew, &astray].iter().any(|jobs| jobs.contains(&job))
        });
        // On file before a switcher may hear of it.
        for pin in &composition.pins {
            if let Some(home) = self.state.jobs.get_mut(&pin.job).and_then(|job| job.home.as_mut())
            {
                home.members.give(&pin.cpus);
            }
        }
        self.publish(now_ns, from_ns, composition.timetables);
        self.told.end(&mut self.state, composition.pins, composition.standings);
        for job in self.state.jobs.values() {
            job.page.iter().for_each(|page| drop(page.write_slots(job.slots)));
        }
        self.state.gauge.plan(self.told.config(), from_ns, until_ns, &plans);
        (self.told.from_ns, self.told.until_ns) = (from_ns, until_ns);
        self.log_failures();
        let took_ns = clock::utc_ns().saturating_sub(now_ns);
        // Rises at once, falls slowly.
        let lead_ns = (took_ns + took_ns / 2).max(self.lead_ns - self.lead_ns / 64);
        self.lead_ns = lead_ns.clamp(LEAD_NS_MIN, LEAD_NS_MAX);
    }

    /// What gangs have in their slots of these plans. Those that are to have something else than before are told
    /// everything, in each timetable until one of these is in force: what is assumed of them is taken from the last
    /// one that was made, which has other gaps than the one that they follow yet.
    fn look_who_has_which_slot(&mut self, plans: &[Plan], is_waiting: bool) {
        let now_ns = clock::monotonic_ns();
        let alone = self.who_is_alone(now_ns, plans);
        self.state.gaps.leave_out(!alone.is_empty());
        if !is_waiting {
            self.told_anew.clear();
        }
        let mut is_changed = false;
        for job in self.state.jobs.values_mut() {
            let in_slot = match job.width.wide {
                true => InSlot::Wide,
                false if alone.contains(&job.id) => InSlot::Alone,
                false => InSlot::Exclusive,
            };
            if std::mem::replace(&mut job.in_slot, in_slot) != in_slot {
                tracing::debug!(job = %job.id, ?in_slot, "a gang has something else in its slots");
                self.told_anew.insert(job.id);
                is_changed = true;
            }
        }
        if is_changed {
            self.uncontended.begin_anew(now_ns);
        }
    }

    /// The gangs that are left to Linux in their slots of these plans.
    fn who_is_alone(&mut self, now_ns: u64, plans: &[Plan]) -> BTreeSet<JobId> {
        let state = &self.state;
        let machine = state.machine();
        let is_possible = state.backend == Backend::Rt && state.schedule.config().fill;
        // One with too many threads for slots of its own is no load either.
        let is_crowd = |job: &Job| job.eligibility(machine) == Eligibility::TooManyThreads;
        let has_crowd = state.jobs.values().any(is_crowd);
        let can_be = |job: JobId| {
            let is_wide = state.jobs.get(&job).is_none_or(|job| job.width.wide);
            !has_crowd && !is_wide && state.gauge.figures(job).is_some()
        };
        self.uncontended.alone(now_ns, is_possible, &state.load, plans, can_be)
    }

    /// Has gangs raised that are left to Linux, and disturbed.
    fn look_who_is_alone(&mut self) {
        let state = &mut self.state;
        let alone = state.jobs.values().filter(|job| job.in_slot == InSlot::Alone);
        let measured = alone.filter_map(|job| {
            let figures = state.gauge.figures(job.id)?;
            let (wanted_ns, together_ns) = (figures.wanted_ns, figures.together_ns);
            Some(Measured { job: job.id, wanted_ns, together_ns })
        });
        if self.uncontended.is_disturbed(clock::monotonic_ns(), measured) {
            tracing::debug!("gangs that had the machine for themselves are disturbed");
            state.schedule.renew();
        }
    }

    fn compose(
        &mut self,
        from_ns: u64,
        until_ns: u64,
        plans: &[Plan],
        is_followed: bool,
        has_newcomers: impl Fn(JobId) -> bool,
    ) -> Composition {
        let state = &mut self.state;
        let switchers = self.switchers.iter();
        let lower_ns = || switchers.map(|it| it.timings.mean_lower_ns()).max().unwrap_or(0);
        let used = self.precedence.used() + self.survey.used();
        state.gaps.adapt(clock::monotonic_ns(), lower_ns, used);
        let in_rows: BTreeSet<JobId> =
            plans.iter().flat_map(|plan| &plan.row).map(|slot| slot.job).collect();
        let (fill, machine_len) = (state.schedule.config().fill, state.machine());
        let gangs: BTreeMap<JobId, Gang<'_>> = state
            .jobs
            .values()
            .filter(|job| {
                let is_gang = job.eligibility(machine_len).is_gang();
                let left_over = !fill && job.standing == Standing::Filling && is_gang;
                let is_known = self.told.gangs().contains(&job.id) && is_gang;
                let listens = job.home.as_ref().is_some_and(|home| !home.listeners.is_empty());
                in_rows.contains(&job.id)
                    || (listens && is_gang)
                    || job.standing == Standing::Raised
                    || left_over
                    || (is_known && has_newcomers(job.id))
            })
            .filter_map(|job| {
                let out_of_row = match job.standing_out_of_row(fill, machine_len) {
                    // The next time that it is settled.
                    Standing::Released | Standing::Raised => Standing::Filling,
                    standing => standing,
                };
                let home = job.home.as_ref()?;
                let gang = Gang {
                    members: &home.members,
                    standing: job.standing,
                    out_of_row,
                    has_newcomers: has_newcomers(job.id),
                    in_slot: job.in_slot,
                    has_page: job.page.is_some(),
                    validity: job.validity(machine_len),
                    listeners: home.listeners.pids(),
                };
                Some((job.id, gang))
            })
            .collect();
        let slice_ns = state.schedule.config().slice_ns;
        let is_told = |job: &&Job| {
            let says = Some(job.validity(machine_len));
            gangs.contains_key(&job.id) || job.page_says == says
        };
        let others = state.jobs.values().filter(|job| job.page.is_some() && !is_told(job));
        let pages: Vec<_> = others.map(|job| (job.id, job.word(slice_ns, machine_len))).collect();
        state.generation += 1;
        let machine: CpuSet = state.schedule.topology().cpus().iter().map(|cpu| cpu.id).collect();
        let config = Config { gap: state.gaps.gap(), ..state.schedule.config().clone() };
        let before_ns = from_ns.saturating_sub(1);
        let follows_gap = [self.told.config(), &config]
            .into_iter()
            .all(|config| slices::in_gap(config, before_ns))
            && is_followed;
        let composition = compose(&Stretch {
            generation: state.generation,
            config: &config,
            backend: state.backend,
            switchers: &self.groups,
            machine: &machine,
            from_ns,
            until_ns,
            deadline_ns: until_ns + GRACE_NS,
            plans,
            gangs: &gangs,
            pages: &pages,
            follows_gap,
            can_lift: self.all.is_some(),
        });
        state.gaps.tell(from_ns, config.gap);
        self.told.begin(gangs.into_keys().collect(), config);
        for job in state.jobs.values_mut() {
            job.page_says = job.page.is_some().then(|| job.validity(machine_len));
        }
        composition
    }

    fn publish(&mut self, now_ns: u64, from_ns: u64, timetables: Vec<Timetable>) {
        let pending = std::mem::take(&mut self.state.pending);
        let mut immediate: Vec<_> =
            pending.into_iter().map(|action| (self.state.generation, action)).collect();
        let bindings = Bindings { jobs: &self.state.jobs, all: self.all.as_ref() };
        for (switcher, timetable) in self.switchers.iter_mut().zip(timetables) {
            // Woken in time, they find it by themselves.
            let sleeps_on = !switcher.wakes_between(clock::utc_ns(), from_ns);
            let mut timetable = timetable.bind(|action| Bound::new(action, &bindings));
            timetable.immediate = std::mem::take(&mut immediate);
            switcher.publish(timetable);
            if sleeps_on || now_ns >= from_ns {
                switcher.ring();
            }
        }
    }

    /// Reads the threads of those in the rows, and of those that were; says whose are not all known.
    fn read_members(&mut self, plans: &[Plan]) -> BTreeSet<JobId> {
        let in_rows = plans.iter().flat_map(|plan| &plan.row).map(|slot| slot.job);
        let ids: BTreeSet<JobId> = in_rows.chain(self.told.gangs().iter().copied()).collect();
        ids.into_iter().filter(|&id| self.read_members_of(id)).collect()
    }

    /// True where one came that was not known.
    fn read_members_of(&mut self, id: JobId) -> bool {
        let state = &mut self.state;
        let machine = state.machine();
        let Some(job) = state.jobs.get_mut(&id) else { return false };
        let Some(home) = &mut job.home else { return false };
        let came = home.members.refresh(&state.roots.proc).unwrap_or(false);
        if job.signals {
            let threads = home.members.threads().iter().map(|thread| thread.tid);
            home.listeners.refresh(&state.roots.proc, threads);
        }
        let is_crowd = job.eligibility(machine) == Eligibility::TooManyThreads;
        if is_crowd && job.activity.awake && self.crowded.insert(id) {
            tracing::warn!(job = %id, "more threads than gangd switches: no slots until it has fewer");
        }
        came
    }

    /// The gangs that have threads which are in no timetable: where one was started somewhere, and it is time to
    /// look where, those in their slots are read again.
    fn newcomers(&mut self) -> Newcomers {
        if !self.arrivals.take(clock::monotonic_ns()) {
            return Newcomers::None;
        }
        let before_ns = clock::thread_cpu_ns();
        let gangs: Vec<JobId> = self.told.gangs().iter().copied().collect();
        let came: BTreeSet<JobId> =
            gangs.into_iter().filter(|&id| self.read_members_of(id)).collect();
        self.looked_for_newcomers(before_ns);
        if came.is_empty() { Newcomers::None } else { Newcomers::Of(came) }
    }

    /// What this cost is counted since a moment of the thread's CPU time.
    fn looked_for_newcomers(&mut self, before_ns: u64) {
        self.arrivals.looked(clock::monotonic_ns(), clock::thread_cpu_ns() - before_ns);
    }

    fn log_failures(&mut self) {
        let failures = self.switchers.iter().map(|switcher| switcher.timings.failures());
        let (count, errno) =
            failures.fold((0, 0), |(sum, last), (count, errno)| (sum + count, errno.max(last)));
        let now_ns = clock::monotonic_ns();
        if count > self.failures && now_ns >= self.failures_told_ns + FAILURES_EVERY_NS {
            self.failures_told_ns = now_ns;
            let error = std::io::Error::from_raw_os_error(errno);
            tracing::warn!(count = count - self.failures, %error, "calls of a switch failed");
            self.failures = count;
        }
    }
}
