//! The thread that plans.
//!
//! Problem: the timetable of the next period must be ready before it begins, whatever clients ask
//! meanwhile and however many jobs there are.
//!
//! Approach: one thread owns the state and takes all decisions. Shortly before each gap it plans the
//! slices from the end of that gap to the next one, and hands the timetables to the switchers. Now and
//! then, at the end of a gap, it looks at the machine. Clients' questions are functions that it runs in
//! between; what takes the kernel long was done before they are asked.
//!
//! Properties: after a stop, or a panic, no gang is raised: the switchers see to it as they end. A step
//! of the clock costs one period at most.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use gang_engine::{
    Standing,
    action::{Action, Linux},
    guardian, priority,
    switcher::Switcher,
    timetable::{self, Gang, Groups, Period},
    timing::{self, Summary, Timings},
};
use gang_linux::{clock, clock::Alarm, sched};
use gang_schedule::{Config, CpuSet, Event, JobId, Plan, clock as slices};

use crate::{state::State, survey::Survey, ward::Pulse};

/// A question or an order of a client.
type Errand = Box<dyn FnOnce(&mut State) + Send>;

/// Errands that may wait at a time; a client that comes when they do is told to come again.
const ERRANDS_MAX: usize = 1024;

/// Errands that are run in a row, before the conductor looks at its clock again.
const ERRANDS_AT_A_TIME: usize = 32;

/// How clients reach the conductor.
#[derive(Clone)]
pub struct Handle {
    errands: SyncSender<Errand>,
    alarm: Arc<Alarm>,
    timings: Arc<[Arc<Timings>]>,
}

/// The conductor has ended, or has too much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

impl Handle {
    /// Runs a function on the conductor's thread and returns what it returns. It must not wait for
    /// anything, nor take longer than some microseconds.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = sync_channel(1);
        let errand = Box::new(move |state: &mut State| {
            // Who asked may have gone away meanwhile.
            let _ = reply.try_send(question(state));
        });
        match self.errands.try_send(errand) {
            Ok(()) => self.alarm.ring(),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return Err(Unavailable),
        }
        answer.recv().map_err(|_| Unavailable)
    }

    /// The phases of the last switches.
    pub fn switches(&self) -> (u64, Summary) {
        let timings: Vec<&Timings> = self.timings.iter().map(|timings| &**timings).collect();
        let count = timings.iter().map(|timings| timings.count()).max().unwrap_or(0);
        (count, timing::summarise(&timings))
    }

    /// Ends the conductor: nobody is raised any more.
    pub fn stop(&self) {
        let _ = self.ask(|state| state.stopped = true);
    }
}

/// What the conductor needs besides its state.
pub struct Setup {
    pub state: State,
    /// Calls that lift all gangs at once (see [`crate::lodging::Lodging::lift`]).
    pub lift: Option<(Vec<Action>, Vec<Action>)>,
    /// Shows the guardian that the conductor lives.
    pub pulse: Pulse,
    pub realtime: bool,
}

/// Starts the conductor and its switchers.
pub fn start(setup: Setup) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let groups = Groups::new(setup.state.schedule.topology());
    let kernel = Arc::new(Linux);
    let switchers = groups
        .cpus()
        .iter()
        .map(|cpus| Switcher::start(cpus.iter().collect(), setup.realtime, kernel.clone()))
        .collect::<std::io::Result<Vec<_>>>()?;
    let alarm = Arc::<Alarm>::default();
    let (sender, errands) = sync_channel(ERRANDS_MAX);
    let timings = switchers.iter().map(|switcher| switcher.timings.clone()).collect();
    let handle = Handle { errands: sender, alarm: alarm.clone(), timings };
    let realtime = setup.realtime;
    let conductor = Conductor {
        survey: Survey::new(&setup.state.roots)?,
        state: setup.state,
        lift: setup.lift,
        pulse: setup.pulse,
        switchers,
        groups,
        errands,
        alarm,
        composed_until_ns: 0,
        generation: 0,
        lead_ns: LEAD_NS_MIN,
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

/// What the conductor may use of one CPU: less than half, of which it needs a hundredth.
const RESERVED: Duration = Duration::from_millis(4);
const RESERVED_PERIOD: Duration = Duration::from_millis(10);

/// The least time that planning a period is given.
const LEAD_NS_MIN: u64 = 150_000;

/// The time before the end of a gap at which the machine is looked at.
const SURVEY_AHEAD_NS: u64 = 120_000;

/// How long the switchers go on with a timetable that is not replaced.
const GRACE_NS: u64 = 5_000_000;

/// How often the machine is looked at while no job takes part in the schedule.
const QUIET_NS: u64 = 50_000_000;

/// Failures of calls are logged at most this often.
const FAILURES_EVERY_NS: u64 = 10_000_000_000;

struct Conductor {
    state: State,
    survey: Survey,
    lift: Option<(Vec<Action>, Vec<Action>)>,
    pulse: Pulse,
    switchers: Vec<Switcher>,
    groups: Groups,
    errands: Receiver<Errand>,
    alarm: Arc<Alarm>,
    composed_until_ns: u64,
    generation: u64,
    lead_ns: u64,
    /// Calls of the switchers that failed, as last logged.
    failures: u64,
    /// When they were logged (CLOCK_MONOTONIC).
    failures_told_ns: u64,
}

impl Conductor {
    fn run(mut self) {
        loop {
            let seen = self.alarm.seen();
            for errand in self.errands.try_iter().take(ERRANDS_AT_A_TIME) {
                errand(&mut self.state);
            }
            if self.state.stopped {
                break;
            }
            self.pulse.fetch_add(1, Ordering::Relaxed);
            let sleep_ns = self.period_due(clock::utc_ns());
            if sleep_ns > 0 {
                self.alarm.sleep(seen, Some(Duration::from_nanos(sleep_ns)));
            }
        }
        // The switchers end now, and take whoever is still raised out of its slot.
    }

    /// Plans the next period where it is time to; says how long to sleep.
    fn period_due(&mut self, now_ns: u64) -> u64 {
        let period_ns = self.state.schedule.config().gap.period_ns;
        // The guardian is not to think that the conductor is stuck.
        let beat_ns = guardian::SILENCE.as_nanos() as u64 / 10;
        if self.state.jobs.values().all(|job| job.home.is_none()) {
            return beat_ns;
        }
        let quiet = !self.state.jobs.values().any(|job| job.is_scheduled());
        if quiet && self.survey.is_due() {
            self.survey.look(&mut self.state);
        }
        // The period under way, unless it was planned already: then the one after it.
        let under_way = now_ns - now_ns % period_ns;
        let planned =
            self.composed_until_ns > now_ns && self.composed_until_ns <= under_way + 2 * period_ns;
        let from_ns = if planned { self.composed_until_ns } else { under_way };
        let plan_ns = from_ns.saturating_sub(self.plan_ahead_ns(period_ns));
        if now_ns >= plan_ns {
            self.plan_period(from_ns, from_ns + period_ns);
            let took_ns = clock::utc_ns().saturating_sub(now_ns);
            // Rises at once, falls slowly.
            self.lead_ns = (took_ns + took_ns / 2).max(self.lead_ns - self.lead_ns / 64);
            let idle = quiet && self.state.pending.is_empty();
            return if idle { QUIET_NS.min(beat_ns) } else { 0 };
        }
        // Short tasks have been served at the end of a gap: who is runnable then will stay so.
        let survey_ns = (under_way + period_ns).saturating_sub(SURVEY_AHEAD_NS);
        if !self.survey.is_due() {
            return plan_ns - now_ns;
        }
        if now_ns < survey_ns {
            return plan_ns.min(survey_ns) - now_ns;
        }
        self.survey.look(&mut self.state);
        0
    }

    /// How long before its beginning a period is planned: just before the gap before it, which then
    /// belongs to others undivided.
    fn plan_ahead_ns(&self, period_ns: u64) -> u64 {
        let gap_ns = self.state.gap.gap().length_ns;
        gap_ns + self.lead_ns.clamp(LEAD_NS_MIN, period_ns / 2)
    }

    fn plan_period(&mut self, from_ns: u64, until_ns: u64) {
        self.state.settle();
        let plans = self.plans(from_ns, until_ns);
        let in_rows: BTreeSet<JobId> =
            plans.iter().flat_map(|plan| &plan.row).map(|slot| slot.job).collect();
        self.read_members(&in_rows);
        let state = &mut self.state;
        let strict = !state.schedule.config().fill;
        let gangs: BTreeMap<JobId, Gang<'_>> = state
            .jobs
            .values()
            .filter(|job| {
                let left_over = strict && job.standing == Standing::Filling && job.is_scheduled();
                in_rows.contains(&job.id) || job.standing == Standing::Raised || left_over
            })
            .filter_map(|job| {
                let members = &job.home.as_ref()?.members;
                let gang = Gang { members, standing: job.standing, wide: job.width.wide };
                Some((job.id, gang))
            })
            .collect();
        self.generation += 1;
        let machine: CpuSet = state.schedule.topology().cpus().iter().map(|cpu| cpu.id).collect();
        let timings = self.switchers.iter().map(|switcher| &*switcher.timings);
        state.gap.adapt(clock::monotonic_ns(), timings);
        let config = Config { gap: state.gap.gap(), ..state.schedule.config().clone() };
        let composition = timetable::compose(&Period {
            generation: self.generation,
            config: &config,
            backend: state.backend,
            groups: &self.groups,
            machine: &machine,
            from_ns,
            until_ns,
            deadline_ns: until_ns + GRACE_NS,
            plans: &plans,
            gangs: &gangs,
            lift: self.lift.as_ref(),
        });
        drop(gangs);
        let mut immediate = std::mem::take(&mut state.pending);
        for (switcher, mut timetable) in self.switchers.iter_mut().zip(composition.timetables) {
            timetable.immediate = std::mem::take(&mut immediate);
            switcher.publish(timetable);
        }
        // Woken in time, they find it by themselves.
        if from_ns != self.composed_until_ns || clock::utc_ns() >= from_ns {
            self.switchers.iter().for_each(Switcher::ring);
        }
        for (id, standing) in composition.standings {
            if let Some(job) = state.jobs.get_mut(&id) {
                job.standing = standing;
            }
        }
        for (id, cpus) in composition.pinned {
            if let Some(home) = state.jobs.get_mut(&id).and_then(|job| job.home.as_mut()) {
                home.members.pinned = Some(cpus);
            }
        }
        self.composed_until_ns = until_ns;
        state.account(&plans, from_ns, until_ns);
        state.remember(plans);
        self.log_failures();
    }

    /// The plans of the slices that a period touches.
    fn plans(&mut self, from_ns: u64, until_ns: u64) -> Vec<Plan> {
        let state = &mut self.state;
        let first = slices::slice_at(state.schedule.config(), from_ns);
        let last = slices::slice_at(state.schedule.config(), until_ns - 1);
        (first..=last)
            .map(|slice| match state.plans.iter().rev().find(|plan| plan.slice == slice) {
                Some(plan) => state.schedule.amend(plan).unwrap_or_else(|| plan.clone()),
                None => state.schedule.plan(slice),
            })
            .collect()
    }

    /// Reads the threads of those that are to be switched, and of those that just were: what they
    /// started in their slot does not have their standing.
    fn read_members(&mut self, in_rows: &BTreeSet<JobId>) {
        let state = &mut self.state;
        let before: BTreeSet<JobId> = std::mem::take(&mut self.survey.in_rows);
        for id in in_rows.union(&before) {
            let Some(job) = state.jobs.get_mut(id) else { continue };
            let Some(home) = &mut job.home else { continue };
            if !job.reading.is_due() {
                continue;
            }
            let count = home.members.threads().len();
            let came = home.members.refresh(&state.roots.proc).unwrap_or(false);
            job.reading.saw(came || home.members.threads().len() != count);
            if came && job.standing != Standing::Raised {
                let (at, wide) = (job.standing, job.width.wide);
                state.backend.actions(&home.members, at, at, wide, &mut state.pending);
            }
            if home.members.is_crowded() && job.activity.awake {
                job.activity.awake = false;
                let _ = state.schedule.apply(Event::Slept { job: *id });
                tracing::warn!(job = %id, "more threads than gangd switches: no slots until it has fewer");
            }
        }
        self.survey.in_rows = in_rows.clone();
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
