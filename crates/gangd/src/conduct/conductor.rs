//! The loop of the thread that plans.
//!
//! Problem: timetables must be ready before they begin, and waking this thread costs more than its
//! work.
//!
//! Approach: one thread owns the state. [`gang_conductor`] decides; this thread reads what a
//! decision needs, and carries the [effects](gang_conductor::Effects) out in their order. Clients'
//! questions are functions that it runs in between. A client makes its slow calls to the kernel
//! before it asks.
//!
//! Properties: after a stop, or a panic, no gang is raised: the switchers lower all gangs as they
//! end.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc::Receiver},
    thread::JoinHandle,
    time::Duration,
};

use gang_conductor::{
    Due, Followed, Looked, Measured, NewThreads, Now, crowding, strays::LOOK_NS, turns::Turns,
};
use gang_engine::{
    bound::Linux,
    guardian,
    switcher::{Lookout, Switcher},
    timing,
};
use gang_linux::{census::Census, clock, clock::Alarm, sched};
use gang_schedule::JobId;
use gang_timetable::{Switchers, priority};

use crate::{
    conduct::{
        carrier::Planner,
        client_priority::ClientPriority,
        new_threads::ThreadStarts,
        readers::SingleReader,
        requests::{self, Handle, Request},
        state::{State, now},
        survey::Survey,
    },
    guardian_keeper::Pulse,
};

/// For so long requests are run in a row, and one in any case, before the conductor looks at what
/// is due.
const REQUESTS_NS: u64 = 200_000;

/// The parts that the conductor needs besides its state.
pub struct Setup {
    pub state: State,
    /// The CPUs that each switcher looks after.
    pub switchers: Switchers,
    /// Shows the guardian that the conductor lives.
    pub pulse: Arc<Pulse>,
    pub realtime: bool,
    pub client_priority: Arc<ClientPriority>,
}

/// Starts the conductor and its switchers.
pub fn start(setup: Setup) -> std::io::Result<(Handle, JoinHandle<()>)> {
    let groups = setup.switchers;
    let kernel = Arc::new(Linux);
    let alarm = Arc::<Alarm>::default();
    let thread_starts = ThreadStarts::default();
    let census = Census::open(&setup.state.roots.proc).map_err(std::io::Error::other)?;
    let mut lookout = Some(Lookout::new(census, thread_starts.sign(), alarm.clone()));
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
    let handles = groups.cpus().iter().cloned().zip(switchers.iter().map(Switcher::handle));
    let (handle, requests) = requests::open(alarm.clone(), timings, handles.collect());
    let realtime = setup.realtime;
    let mut state = setup.state;
    state.single_reader = Some(SingleReader::of_singles(state.roots.proc.clone(), realtime)?);
    let conductor = Conductor {
        survey: Survey::new(&state.roots, realtime)?,
        state,
        pulse: setup.pulse,
        client_priority: setup.client_priority,
        switchers,
        requests,
        turns: Turns::default(),
        alarm,
        thread_starts,
        failures: 0,
        failures_logged_ns: 0,
        looks_ns: 0,
    };
    let thread = std::thread::Builder::new().name("conductor".into()).spawn(move || {
        if realtime {
            put_before_gangs();
        }
        conductor.run();
    })?;
    Ok((handle, thread))
}

/// Puts the conductor before the gangs: by a reservation, which takes nothing of what the kernel
/// gives to real-time threads; where it has none to give, as one of those.
fn put_before_gangs() {
    let reserved = sched::become_deadline(RESERVED, RESERVED_PERIOD)
        .or_else(|_| sched::become_fifo(priority::CONDUCTOR));
    if let Err(error) = reserved {
        tracing::warn!(%error, source = %error.source, "the conductor runs at ordinary priority");
    }
}

/// The conductor's share of one CPU: a fifth, of which it needs a hundredth. A larger reservation
/// would keep a CPU from going offline where several daemons run: the kernel keeps its promises.
const RESERVED: Duration = Duration::from_millis(2);
const RESERVED_PERIOD: Duration = Duration::from_millis(10);

/// Failures of calls are logged at most this often.
const FAILURES_EVERY_NS: u64 = 10_000_000_000;

struct Conductor {
    state: State,
    survey: Survey,
    pulse: Arc<Pulse>,
    client_priority: Arc<ClientPriority>,
    switchers: Vec<Switcher>,
    requests: Receiver<Request>,
    /// Those that have come, and wait.
    turns: Turns<Request>,
    alarm: Arc<Alarm>,
    thread_starts: ThreadStarts,
    /// Calls of the switchers that failed, as last logged.
    failures: u64,
    /// When they were logged (CLOCK_MONOTONIC).
    failures_logged_ns: u64,
    /// CPU time that this step took to look for threads that left, or were started.
    looks_ns: u64,
}

impl Conductor {
    fn run(mut self) {
        loop {
            let seen = self.alarm.seen();
            let (now, before_ns) = (now(), clock::thread_cpu_ns());
            self.state.core.begin_step(now);
            (self.state.requests_ns, self.looks_ns) = (0, 0);
            let requests = self.run_requests();
            if self.state.stopped {
                break;
            }
            self.state.core.follow_thread_limit();
            self.pulse.beat();
            if self.pulse.take_released() {
                self.state.core.were_released();
            }
            self.state.carry_out();
            let mut sleep_ns = self.do_what_is_due(now);
            self.client_priority.gangs.follow(self.state.core.gap_of_raised());
            if requests > 0 && sleep_ns > 0 {
                let took_ns = (clock::thread_cpu_ns() - before_ns).saturating_sub(self.looks_ns);
                let State { request_overhead, requests_ns, .. } = &mut self.state;
                request_overhead.saw(requests, took_ns, *requests_ns);
            }
            if let Some(due_in_ns) = self.thread_starts.due_in_ns(clock::monotonic_ns()) {
                sleep_ns = sleep_ns.min(due_in_ns);
            }
            let sleep_ns = self.state.core.sleep_ns(clock::utc_ns(), sleep_ns);
            if sleep_ns > 0 && self.turns.is_empty() {
                self.alarm.sleep(seen, Some(Duration::from_nanos(sleep_ns)));
            }
        }
        // The switchers end now, and take every gang that is still raised out of its slot.
    }

    /// Runs requests by turns among users, for a while; returns how many.
    fn run_requests(&mut self) -> u32 {
        let mut count = 0;
        let until_ns = clock::monotonic_ns() + REQUESTS_NS;
        loop {
            for request in self.requests.try_iter() {
                let payer = request.uid.map(|uid| self.state.core.account_of(uid));
                self.turns.push(payer, request);
            }
            let Some(request) = self.turns.pop() else { return count };
            (request.run)(&mut self.state);
            self.state.carry_out();
            count += 1;
            if self.state.stopped || clock::monotonic_ns() >= until_ns {
                return count;
            }
        }
    }

    /// Looks and plans where it is time to; says how long to sleep.
    fn do_what_is_due(&mut self, now: Now) -> u64 {
        // The guardian is not to think that the conductor is stuck.
        let beat_ns = guardian::SILENCE.as_nanos() as u64 / 10;
        let has_orders = !self.state.orders.is_empty();
        if self.state.core.is_settled(has_orders, self.followed().is_behind) {
            // A thread that was started is of no gang.
            self.thread_starts.forget();
            return beat_ns;
        }
        let began_ns = clock::thread_cpu_ns();
        let astray = self.look_for_strays(now);
        let before_ns = clock::thread_cpu_ns();
        let new_threads = self.new_threads().and(astray);
        self.looks_ns = clock::thread_cpu_ns() - began_ns;
        let has_new_threads = !new_threads.is_none();
        match self.state.core.due(now, self.survey.due_in_ns(), beat_ns, new_threads) {
            Due::Sleep(sleep_ns) => return sleep_ns,
            Due::Look => self.look(),
            Due::Plan { look, resume_ns, new_threads } => {
                if look {
                    self.look();
                }
                self.plan(now, resume_ns, new_threads);
                if has_new_threads {
                    self.looked_for_new_threads(before_ns);
                }
            }
        }
        0
    }

    /// Looks at the machine.
    fn look(&mut self) {
        self.survey.look(&mut self.state, &self.client_priority.workers);
        let State { core, measured, .. } = &mut self.state;
        let uncontended: Vec<JobId> = core.uncontended_jobs().collect();
        let sums = uncontended.into_iter().filter_map(|job| {
            let sums = measured.sums(job)?;
            let (wanted_ns, coscheduled_ns) = (sums.wanted_ns, sums.coscheduled_ns);
            Some(Measured { job, wanted_ns, coscheduled_ns })
        });
        core.measured_uncontended(now(), sums);
        self.state.carry_out();
    }

    /// Plans from a boundary on, and hands the timetables to the switchers.
    fn plan(&mut self, now: Now, resume_ns: u64, new_threads: NewThreads) {
        let followed = self.followed();
        let state = &mut self.state;
        let (mut planning, moving) = state.core.begin(now, resume_ns, new_threads, followed);
        for id in moving {
            state.read(id);
        }
        let planned = state.core.plan(&mut planning);
        let came = planned.iter().copied().filter(|&id| self.read_planned(id)).collect();
        let state = &mut self.state;
        let is_measured = |id: &JobId| state.measured.sums(*id).is_some();
        let measured = planned.into_iter().filter(is_measured).collect();
        let singles = state.single_reader.as_ref().map_or(0.0, SingleReader::used);
        let used = self.client_priority.used() + self.survey.used() + singles;
        let timings = || self.switchers.iter().map(|switcher| &*switcher.timings);
        // Switchers remember switches of any age.
        let since_ns = now.utc_ns.saturating_sub(crowding::EVERY_NS);
        state.core.saw_cost(now.monotonic_ns, || timing::action_ns(timings(), since_ns));
        let timings = timings();
        let lower_ns = || timings.map(|timings| timings.mean_lower_ns()).max().unwrap_or(0);
        let effects = state.core.publish(planning, &came, &measured, used, lower_ns);
        let (state, switchers) = (&mut self.state, &mut self.switchers[..]);
        effects.carry_out(&mut Planner { state, switchers, began_ns: now.utc_ns });
        self.log_failures();
        let took_ns = clock::utc_ns().saturating_sub(now.utc_ns);
        self.state.core.planned_within(took_ns);
    }

    /// Reads the jobs again that threads left by themselves, or whose threads went to other CPUs,
    /// where it is time to look. Returns those with threads that stand otherwise because of that.
    fn look_for_strays(&mut self, now: Now) -> BTreeSet<JobId> {
        let due = self.state.core.strays_due(now);
        if due.is_empty() {
            return BTreeSet::new();
        }
        let began_ns = clock::thread_cpu_ns();
        let spent_ns = || clock::thread_cpu_ns() - began_ns;
        let is_behind = self.followed().is_behind;
        let (mut jobs, mut astray) = (Vec::new(), BTreeSet::new());
        for &id in &due {
            if spent_ns() >= LOOK_NS {
                break;
            }
            jobs.push(id);
            let state = &mut self.state;
            if (state.core.is_just_released(id) || state.may_be_astray(id)) && self.read_planned(id)
            {
                astray.insert(id);
            }
        }
        let has_stopped = jobs.len() < due.len();
        let looked = Looked { jobs, has_stopped, astray, spent_ns: spent_ns(), is_behind };
        self.state.core.looked_for_strays(now, &looked);
        looked.astray
    }

    fn followed(&self) -> Followed {
        let timings = self.switchers.iter().map(|switcher| &switcher.timings);
        Followed {
            is_behind: self.switchers.iter().any(Switcher::is_behind),
            missed: timings.map(|timings| timings.out_of_step()).sum(),
        }
    }

    /// Reads the threads of a gang in the plans; true where one came that was not known.
    fn read_planned(&mut self, id: JobId) -> bool {
        let came = self.state.refresh(id);
        self.state.core.was_read(id);
        came
    }

    /// The gangs with threads that no timetable has. Where a thread was started somewhere, and a
    /// look is due, the gangs in their slots are read again.
    fn new_threads(&mut self) -> NewThreads {
        if !self.thread_starts.take(clock::monotonic_ns()) {
            return NewThreads::None;
        }
        let before_ns = clock::thread_cpu_ns();
        let gangs: Vec<JobId> = self.state.core.planned_gangs().iter().copied().collect();
        // Threads that a gang starts which is weighed as a whole stand as the gang does.
        let core = &self.state.core;
        let switched: BTreeSet<JobId> =
            gangs.iter().copied().filter(|&id| core.is_switched_by_thread(id)).collect();
        let came = gangs.into_iter().filter(|&id| self.read_planned(id));
        let came: BTreeSet<JobId> = came.filter(|id| switched.contains(id)).collect();
        self.looked_for_new_threads(before_ns);
        if came.is_empty() { NewThreads::None } else { NewThreads::Of(came) }
    }

    /// Charges the look for new threads, with the thread's CPU time since a moment.
    fn looked_for_new_threads(&mut self, before_ns: u64) {
        self.thread_starts.looked(clock::monotonic_ns(), clock::thread_cpu_ns() - before_ns);
    }

    fn log_failures(&mut self) {
        let failures = self.switchers.iter().map(|switcher| switcher.timings.failures());
        let (count, errno) =
            failures.fold((0, 0), |(sum, last), (count, errno)| (sum + count, errno.max(last)));
        let now_ns = clock::monotonic_ns();
        if count > self.failures && now_ns >= self.failures_logged_ns + FAILURES_EVERY_NS {
            self.failures_logged_ns = now_ns;
            let error = std::io::Error::from_raw_os_error(errno);
            tracing::warn!(count = count - self.failures, %error, "calls of a switch failed");
            self.failures = count;
        }
    }
}
