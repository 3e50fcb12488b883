//! A machine with a daemon on it, under a virtual clock.
//!
//! The daemon is the real conductor, with real timetables and the rules by which switchers follow
//! them. What surrounds these in gangd, reading and carrying out, is done here as it is done there,
//! step by step, so that the daemon may die between any two of them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use gang_conductor::{
    Candidate, Conductor, Counted, Due, Eligibility, Followed, Gaps, Home, JobSeen, Limits,
    NewThreads, Now, Settings, Setup, Terms,
    admission::Resources,
    life::{Leaver, Moment, State},
};
use gang_schedule::{
    Config, CpuSet, Gap, JobId, Policy, Schedule, Spec, Topology, clock as slices,
};
use gang_timetable::{
    Action, Attributes, Backend, Controls, InSlot, Members, Runnable, Seen, Standing, Switchers,
    Timetable, before_gangd,
    follower::{Follower, Hands, Switch},
    record::{JoinedProcess, Placement, Record},
};

use crate::{
    machine::{CROWD, Machine, Roster},
    script::{Event, Kind},
};

const MS: u64 = 1_000_000;
/// The owners of processes and jobs: root among them.
const USERS: [u32; 4] = [0, 1000, 1001, 1002];
/// For how long a step of the clock may show: plans reach that far, and switchers sleep as long.
const STEP_SHOWS_NS: u64 = 600 * MS;
/// For so long the shares of gangs are looked at.
const FRAME_SLICES: u64 = 200;
/// A number is given again after that long.
const REUSED_AFTER_NS: u64 = 1_000 * MS;

type Line = Follower<Rc<Timetable<Action>>>;

/// A switcher.
struct Lane {
    line: Line,
    last: Rc<Timetable<Action>>,
    /// When it wakes (UTC); never where that is absent.
    wakes_ns: Option<u64>,
    /// It does not run before then (UTC).
    stalled_until_ns: u64,
    missed: u64,
}

impl Lane {
    /// A switcher that is awake follows its timetable.
    fn switch(&mut self, now_ns: u64, machine: &RefCell<Machine>) {
        let is_awake = self.wakes_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if !is_awake || self.stalled_until_ns > now_ns {
            return;
        }
        let missed = RefCell::new(0);
        let arms = Arms { machine, now_ns, missed: &missed };
        self.wakes_ns = self.line.follow(&self.last, now_ns, &arms);
        self.missed += missed.into_inner();
    }
}

/// The rest of a client's request.
enum Pending {
    Arriving { job: JobId, pid: u32 },
    Leaving { job: JobId, pid: u32, leaver: Leaver },
    ThreadLeaving { job: JobId, leaver: Leaver },
    Moving { job: JobId, policy: Policy },
}

struct Daemon {
    core: Conductor,
    rosters: BTreeMap<JobId, Roster>,
    lanes: Vec<Lane>,
    orders: Vec<Action>,
    pending: Vec<Pending>,
    /// When the conductor wakes (UTC).
    wakes_ns: u64,
    look_at_ns: u64,
    /// Threads of others that want to run.
    load: u32,
    uses: BTreeMap<JobId, u64>,
}

/// Which cells of states × moments were hit.
pub type Cells = BTreeMap<(State, Moment), u64>;

pub struct World {
    machine: Rc<RefCell<Machine>>,
    daemon: Option<Daemon>,
    /// UTC and monotonic.
    now: Now,
    backend: Backend,
    in_idle_group: bool,
    config: Config,
    topology: Topology,
    offline: BTreeSet<u32>,
    /// The number of the next job, which is on file.
    next_job: u64,
    /// Jobs with too many threads, until they are released or take turns again.
    crowded: BTreeSet<JobId>,
    /// Until then (monotonic) a step of the clock may show.
    stepped_until_ns: u64,
    /// The daemon dies after so many more effects.
    dies_after: Option<u32>,
    pub cells: Cells,
    pub steps: u64,
    seed: u64,
}

struct Arms<'a> {
    machine: &'a RefCell<Machine>,
    now_ns: u64,
    missed: &'a RefCell<u64>,
}

impl Hands<Action> for Arms<'_> {
    fn perform(&self, action: &Action) {
        self.machine.borrow_mut().perform(action);
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn switched(&self, _: &Switch) {}

    fn out_of_step(&self) {
        *self.missed.borrow_mut() += 1;
    }
}

/// The daemon has died.
struct Died;

/// The backend that a seed chooses.
pub fn backend_of(seed: u64) -> Backend {
    match seed % 10 {
        0 => Backend::Weight,
        1 => Backend::Freeze,
        2 | 3 => Backend::Signal,
        _ => Backend::Rt,
    }
}

impl World {
    pub fn new(seed: u64) -> World {
        let cpus = [2, 4, 8][seed as usize % 3];
        let backend = backend_of(seed);
        let slice_ns = [5, 10, 20, 50][seed as usize / 3 % 4] * MS;
        let gap = match backend.can_fill() {
            true => Gap { period_ns: slice_ns.max(10 * MS), length_ns: slice_ns.max(10 * MS) / 20 },
            false => Gap { period_ns: slice_ns, length_ns: 0 },
        };
        let fill = backend.can_fill() && seed % 7 != 0;
        let config = Config { slice_ns, gap, fill, ..Config::default() };
        let mut machine = Machine::default();
        machine.backend = Some(backend);
        machine.all = (0..cpus).collect();
        let now = Now { utc_ns: 1_700_000_000_000 * MS + seed % 1_000, monotonic_ns: 50_000 * MS };
        let mut world = World {
            machine: Rc::new(RefCell::new(machine)),
            daemon: None,
            now,
            backend,
            in_idle_group: seed % 2 == 0 && backend == Backend::Rt,
            config,
            topology: Topology::flat(cpus),
            offline: BTreeSet::new(),
            next_job: 1,
            crowded: BTreeSet::new(),
            stepped_until_ns: 0,
            dies_after: None,
            cells: Cells::new(),
            steps: 0,
            seed,
        };
        world.start();
        world
    }

    /// Runs a script; the first violations that there are.
    pub fn run(&mut self, events: &[Event]) -> Vec<String> {
        for event in events {
            self.steps += 1;
            self.happen(*event);
            self.check();
            let violations = std::mem::take(&mut self.machine.borrow_mut().violations);
            if !violations.is_empty() {
                return violations;
            }
        }
        self.check_shares();
        let violations = std::mem::take(&mut self.machine.borrow_mut().violations);
        if !violations.is_empty() {
            return violations;
        }
        // In the end the daemon is gone, and everybody is as before.
        if self.daemon.take().is_some() {
            self.machine.borrow_mut().release_all();
        }
        let mut machine = self.machine.borrow_mut();
        machine.release_all();
        machine.check_released(true);
        std::mem::take(&mut machine.violations)
    }

    /// Starts a daemon, which takes over the jobs on file.
    fn start(&mut self) {
        let online: Vec<_> = self.topology.cpus().to_vec();
        let online = online.into_iter().filter(|cpu| !self.offline.contains(&cpu.id)).collect();
        let Ok(topology) = Topology::new(online) else { return };
        let Ok(schedule) = Schedule::new(self.config.clone(), topology) else { return };
        let switchers = Switchers::new(schedule.topology());
        let setup = Setup {
            backend: self.backend,
            switchers: switchers.clone(),
            has_common_group: self.in_idle_group,
            passthrough: self.seed % 5 != 0,
            gaps: Gaps::new(0.05, self.config.gap, self.config.gap.length_ns > 0),
        };
        let limits = Limits { jobs: 40, jobs_per_user: 12, cpus_per_user: 64 };
        let settings =
            Settings { limits, idle_after_ns: 1_000 * MS, inside: Terms::default(), outside: None };
        let first = Rc::<Timetable<Action>>::default();
        let lane = || Lane {
            line: Follower::new(first.clone()),
            last: first.clone(),
            wakes_ns: None,
            stalled_until_ns: 0,
            missed: 0,
        };
        let mut daemon = Daemon {
            core: Conductor::new(setup, settings, schedule),
            rosters: BTreeMap::new(),
            lanes: (0..switchers.len()).map(|_| lane()).collect(),
            orders: Vec::new(),
            pending: Vec::new(),
            wakes_ns: self.now.utc_ns,
            look_at_ns: 0,
            load: 0,
            uses: BTreeMap::new(),
        };
        daemon.core.number_from(self.next_job);
        self.restore(&mut daemon);
        self.daemon = Some(daemon);
    }

    fn restore(&mut self, daemon: &mut Daemon) {
        let mut machine = self.machine.borrow_mut();
        let records: Vec<_> = machine.records.values().cloned().collect();
        for mut record in records {
            let job = JobId(record.id);
            machine.release(&record);
            let mut roster = Roster::default();
            match &record.placement {
                // The group of a job whose first process did not get there is empty.
                Placement::Cgroup { .. } => {}
                Placement::Tree { processes } => roster.tree.extend(
                    processes
                        .iter()
                        .filter(|(pid, started)| {
                            machine.processes.get(pid).is_some_and(|of| of.started == *started)
                        })
                        .map(|(pid, _)| *pid),
                ),
                Placement::Threads { threads } => roster.singles.clone_from(threads),
            }
            record.coming = None;
            let members = self.members(record.normal.into(), &record.affinity, &record.placement);
            let home = Home::new(
                record.placement.clone(),
                members.clone(),
                record.normal.into(),
                record.affinity.clone(),
            );
            if machine.is_over(job, &home, &roster)
                || daemon.core.restore(self.now, &record, members).is_err()
            {
                machine.clear_away(&record);
                continue;
            }
            let restored = daemon.core.jobs.get(&job).and_then(|job| job.record());
            if restored.as_ref() != Some(&record) {
                let what = format!("a job is taken over as on file: {record:?}, now {restored:?}");
                machine.violations.push(what);
            }
            machine.pins.remove(&job);
            daemon.rosters.insert(job, roster);
        }
        // Once it is known of all whose they are.
        for job in daemon.rosters.keys().copied().collect::<Vec<JobId>>() {
            daemon.read(&mut machine, job);
            if let Some(record) = daemon.core.jobs.get(&job).and_then(|job| job.record()) {
                machine.records.insert(job, record);
            }
        }
    }

    fn members(&self, normal: Attributes, affinity: &[u32], at: &Placement) -> Members {
        let is_group = matches!(at, Placement::Cgroup { .. });
        let controls = Controls {
            freezer: is_group,
            idle: is_group && self.backend == Backend::Weight,
            weight: is_group && self.backend == Backend::Weight,
            in_idle_group: is_group && self.in_idle_group,
        };
        let mut members = Members::new(controls, normal, affinity.iter().copied().collect());
        members.keeps_attributes = self.backend != Backend::Rt;
        members
    }

    /// Whether the daemon lives on after one more effect.
    fn effect(&mut self) -> Result<(), Died> {
        match &mut self.dies_after {
            None => Ok(()),
            Some(0) => {
                self.dies_after = None;
                self.daemon = None;
                Err(Died)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn hit(&mut self, job: JobId, moment: Moment) {
        let job = self.daemon.as_ref().and_then(|daemon| daemon.core.jobs.get(&job));
        if let Some(job) = job {
            *self.cells.entry((State::of(job), moment)).or_default() += 1;
        }
    }

    fn happen(&mut self, Event { kind, a, b }: Event) {
        match kind {
            Kind::Pass => {
                let lengths = [100_000, MS, 3 * MS, 7 * MS, 20 * MS, 60 * MS, 150 * MS, 400 * MS];
                let length_ns = lengths[usize::from(a) % lengths.len()];
                self.pass(length_ns + u64::from(b), false);
            }
            Kind::Hang => {
                let length_ns = u64::from(b % 800) * MS;
                // Nobody plans anew after a step meanwhile.
                if self.now.monotonic_ns <= self.stepped_until_ns {
                    self.stepped_until_ns += length_ns;
                }
                self.pass(length_ns, true);
                self.check_expired();
                self.ring();
            }
            Kind::Stall => {
                let until_ns = self.now.utc_ns + u64::from(b % 800) * MS / 4;
                if let Some(daemon) = &mut self.daemon {
                    let lanes = daemon.lanes.len();
                    let lane = &mut daemon.lanes[usize::from(a) % lanes];
                    lane.stalled_until_ns = until_ns;
                }
            }
            Kind::StepClock => {
                let step_ns = u64::from(b % 2_000) * MS;
                let step = |at_ns: u64| {
                    if a % 2 == 0 { at_ns + step_ns } else { at_ns.saturating_sub(step_ns) }
                };
                let before_ns = self.now.utc_ns;
                self.now.utc_ns = step(before_ns);
                for lane in self.daemon.iter_mut().flat_map(|it| &mut it.lanes) {
                    // It does not run for as long as without the step, and who is awake stays so.
                    lane.stalled_until_ns = step(lane.stalled_until_ns);
                    let is_awake = lane.wakes_ns.is_some_and(|at_ns| at_ns <= before_ns);
                    lane.wakes_ns = if is_awake { Some(self.now.utc_ns) } else { lane.wakes_ns };
                }
                self.stepped_until_ns = self.now.monotonic_ns + STEP_SHOWS_NS;
                self.ring();
            }
            Kind::TakeCpu | Kind::BringCpu => self.change_cpus(kind == Kind::TakeCpu, a),
            Kind::Load => {
                self.daemon.iter_mut().for_each(|daemon| daemon.load = u32::from(a % 4));
            }
            Kind::Spawn => {
                let (uid, nice) = (USERS[usize::from(a) % USERS.len()], i32::from(b % 6) * 3 - 6);
                self.machine.borrow_mut().spawn(uid, nice, None);
            }
            Kind::Reuse => {
                let mut machine = self.machine.borrow_mut();
                let now_ns = self.now.monotonic_ns;
                // Without a daemon nobody looks in between, however long that takes.
                let is_unseen = self.daemon.is_none();
                let is_free =
                    |&(_, at_ns): &(u32, u64)| is_unseen || at_ns + REUSED_AFTER_NS < now_ns;
                if let Some(at) = machine.ended.iter().position(is_free) {
                    let (number, _) = machine.ended.remove(at);
                    let uid = USERS[usize::from(a) % USERS.len()];
                    machine.spawn(uid, i32::from(b % 5), Some(number));
                    // The daemon holds descriptors: it takes none for another.
                    if let Some(daemon) = &mut self.daemon {
                        for roster in daemon.rosters.values_mut() {
                            roster.tree.retain(|&pid| pid != number);
                            roster.removed.remove(&number);
                        }
                        for home in daemon.core.jobs.values_mut().flat_map(|job| &mut job.home) {
                            home.members.processes.retain(|&pid| pid != number);
                        }
                    }
                }
            }
            Kind::StartThread | Kind::Fork | Kind::EndThread => {
                let mut machine = self.machine.borrow_mut();
                let tid = nth(machine.threads.keys(), a);
                if let Some(tid) = tid.filter(|&tid| !machine.stands_still(tid)) {
                    match kind {
                        Kind::StartThread => machine.start_thread(tid),
                        Kind::Fork => machine.fork(tid),
                        _ => machine.end_thread(tid),
                    }
                }
                drop(machine);
                // A switcher notices that there are new ones.
                if b % 3 > 0 && kind != Kind::EndThread {
                    self.look_for_new_threads();
                }
            }
            Kind::Exit => {
                let mut machine = self.machine.borrow_mut();
                // A job without a cgroup has those whose parents have ended if the daemon looked
                // before.
                let mut came = BTreeSet::new();
                if let (Backend::Signal, Some(daemon)) = (self.backend, &mut self.daemon) {
                    let jobs: Vec<JobId> = daemon.rosters.keys().copied().collect();
                    came.extend(jobs.into_iter().filter(|&job| daemon.read(&mut machine, job)));
                }
                // One that ends on its way into a job, or of which one thread is a member, leaves
                // children that nobody finds again.
                let leaves_strays = |pid: u32| {
                    let line = machine.ancestors(pid);
                    let mut records = machine.records.values();
                    let is_of = |it: &Record| {
                        it.coming.is_some_and(|first| line.contains(&first))
                            || line.iter().any(|&(pid, _)| has_single(it, pid))
                    };
                    records.any(is_of)
                        && machine.processes.values().any(|child| child.parent == pid)
                };
                let pid = nth(machine.processes.keys(), a).filter(|&pid| !leaves_strays(pid));
                if let Some(pid) = pid {
                    machine.exit(pid, self.now.monotonic_ns);
                }
                drop(machine);
                // The thread that moves it into its job hears of it at once.
                let is_it = |it: &Pending| matches!(it, Pending::Arriving { pid: other, .. } if Some(*other) == pid);
                let at = self.daemon.as_ref().and_then(|it| it.pending.iter().position(is_it));
                if let Some(at) = at {
                    let _ = self.go_on(at as u16);
                    self.follow_orders();
                }
                self.end_those_over();
                if !came.is_empty() {
                    let _ = self.conduct(NewThreads::Of(came));
                }
            }
            Kind::SetNice | Kind::SetAffinity => self.choose(kind, a, b),
            Kind::Crowd => {
                if let Some(daemon) = &mut self.daemon {
                    if let Some(job) = nth(daemon.rosters.keys(), a) {
                        let beside = if b % 2 == 0 { CROWD } else { 0 };
                        daemon.rosters.entry(job).or_default().beside = beside;
                    }
                }
            }
            Kind::Use | Kind::Idle | Kind::Widen => self.see(kind, a),
            Kind::Kill => match b % 3 {
                0 => self.daemon = None,
                _ => self.dies_after = Some(u32::from(a % 40)),
            },
            Kind::Guard => {
                self.machine.borrow_mut().release_all();
                // A daemon that goes on hears of it.
                if let Some(daemon) = &mut self.daemon {
                    daemon.core.were_released();
                }
                let everybody = self.daemon.is_none();
                self.machine.borrow_mut().check_released(everybody);
                self.ring();
            }
            Kind::Restart => {
                if self.daemon.is_none() {
                    self.dies_after = None;
                    self.machine.borrow_mut().release_all();
                    self.machine.borrow_mut().check_released(true);
                    self.start();
                }
            }
            _ => {
                let _ = self.request(kind, a, b);
            }
        }
    }

    fn change_cpus(&mut self, take: bool, a: u16) {
        let all = self.topology.cpus().len() as u32;
        let cpu = u32::from(a) % all;
        match take {
            true if self.offline.len() as u32 + 1 < all => drop(self.offline.insert(cpu)),
            true => return,
            false => drop(self.offline.remove(&cpu)),
        }
        let online = self.topology.cpus().iter().filter(|cpu| !self.offline.contains(&cpu.id));
        if let (Some(daemon), Ok(topology)) =
            (&mut self.daemon, Topology::new(online.copied().collect()))
        {
            let _ = daemon.core.change_topology(topology);
        }
        self.ring();
    }

    /// An owner changes what no job has.
    fn choose(&mut self, kind: Kind, a: u16, b: u16) {
        let mut machine = self.machine.borrow_mut();
        let Some(tid) = nth(machine.threads.keys(), a) else { return };
        let pid = machine.threads[&tid].pid;
        let is_free = machine.processes[&pid].group.is_none()
            && self.daemon.as_ref().is_none_or(|daemon| {
                daemon.rosters.values().all(|roster| {
                    !roster.expected.contains(&tid)
                        && !roster.tree.contains(&pid)
                        && !roster.removed.contains(&pid)
                        && roster.singles.iter().all(|single| single.pid != pid)
                })
            })
            && machine.records.values().all(|record| {
                // Of what a process on its way has started, exactly the CPUs of a slot are taken
                // for those of the slot.
                let line = machine.ancestors(pid);
                record.coming.is_none_or(|first| !line.contains(&first))
                    && !matches!(
                        record.placement,
                        Placement::Tree { .. } | Placement::Threads { .. }
                    )
            });
        if !is_free {
            return;
        }
        let all = machine.all.clone();
        if kind == Kind::SetNice {
            let own = Attributes::other(i32::from(b % 6) * 3 - 6);
            let thread = machine.threads.get_mut(&tid);
            thread.into_iter().for_each(|it| (it.own, it.lost_nice) = (own, false));
            machine.model.attributes.insert(tid, own);
        } else {
            let mut cpus: CpuSet = all.iter().filter(|cpu| (b >> cpu) & 1 == 1).collect();
            if cpus.is_empty() {
                cpus = all;
            }
            machine.threads.get_mut(&tid).into_iter().for_each(|it| it.own_cpus = cpus.clone());
            machine.model.affinity.insert(tid, cpus);
        }
    }

    /// The survey sees a job.
    fn see(&mut self, kind: Kind, a: u16) {
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return };
        let Some(job) = nth(daemon.core.jobs.keys(), a) else { return };
        let of = daemon.uses.entry(job).or_default();
        match kind {
            Kind::Use => *of += 5 * MS,
            Kind::Widen => {
                let cpus = daemon.core.jobs[&job].spec.cpus;
                let of_jobs = vec![(job, Runnable::exactly(cpus + 1))];
                for _ in 0..3 {
                    let of_jobs = of_jobs.clone();
                    daemon.core.count(&Counted { all: cpus + 2, of_daemon: 1, of_jobs });
                }
                return self.ring();
            }
            _ => {}
        }
        let seen = JobSeen { id: job, cpu_time_ns: *of, waited_us: None };
        let state = State::of(&daemon.core.jobs[&job]);
        let was_awake = daemon.core.jobs[&job].activity.awake;
        let has_home = daemon.core.jobs[&job].home.is_some();
        if has_home && daemon.core.looked_at(now, seen) {
            let _ = daemon.core.fall_asleep(now, job, 0);
            *self.cells.entry((state, Moment::Sleep)).or_default() += 1;
        } else if !was_awake && daemon.core.jobs[&job].activity.awake {
            *self.cells.entry((state, Moment::Wake)).or_default() += 1;
        } else if kind == Kind::Idle {
            // Nothing says when the kernel reports a job that wakes.
            let _ = if was_awake { daemon.core.sleep(job) } else { daemon.core.wake(job) };
            let moment = if was_awake { Moment::Sleep } else { Moment::Wake };
            *self.cells.entry((state, moment)).or_default() += 1;
        }
        self.ring();
    }

    /// A request of a client, or its next step.
    fn request(&mut self, kind: Kind, a: u16, b: u16) -> Result<(), Died> {
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let job = nth(daemon.core.jobs.keys(), a);
        match (kind, job) {
            (Kind::Register, _) => {
                let cpus = u32::from(b % 5) + 1;
                let policy = if b % 11 == 0 { Policy::None } else { Policy::Gang };
                let candidate = Candidate {
                    name: "job".into(),
                    owner_uid: USERS[usize::from(a) % USERS.len()],
                    spec: Spec { policy, min_cpus: cpus.min(2), ..Spec::new(cpus) },
                    resources: Resources::default(),
                    signals: b % 13 == 0,
                    auto: b % 17 == 0,
                };
                if let Ok(JobId(job)) = daemon.core.register(now, candidate) {
                    self.next_job = self.next_job.max(job + 1);
                }
            }
            (Kind::Attach, Some(job)) => self.attach(job, b)?,
            (Kind::Arrive, _) => self.go_on(a)?,
            (Kind::Join, Some(job)) => self.join(job, b)?,
            (Kind::Follow, Some(job)) => self.follow(job, b)?,
            (Kind::AddThread, Some(job)) => self.add_thread(job, b)?,
            (Kind::Detach, Some(job)) => self.detach(job, b),
            (Kind::DetachThread, Some(job)) => self.detach_thread(job, b),
            (Kind::Suspend | Kind::Resume, Some(job)) => {
                let suspended = kind == Kind::Suspend;
                self.hit(job, if suspended { Moment::Suspend } else { Moment::Resume });
                self.file(job, |core| core.suspend(now, job, suspended))?;
            }
            (Kind::Signals, Some(job)) => {
                self.hit(job, Moment::SetSignals);
                self.file(job, |core| core.set_signals(job, b % 2 == 0))?;
            }
            (Kind::Change, Some(job)) => {
                self.hit(job, Moment::Change);
                self.file(job, |core| {
                    core.change(job, |spec, _| {
                        spec.cpus = u32::from(b % 6) + 1;
                        spec.min_cpus = spec.min_cpus.min(spec.cpus);
                        spec.weight = u32::from(b % 400) + 1;
                    })
                })?;
            }
            (Kind::Confine, Some(job)) => {
                self.hit(job, Moment::Confine);
                self.file(job, |core| core.confine(job, None, b % 2 == 0))?;
            }
            (Kind::Page, Some(job)) => {
                self.hit(job, Moment::OpenPage);
                let core = &mut self.daemon.as_mut().ok_or(Died)?.core;
                let _ = core.open_page(job);
            }
            (Kind::Policy, Some(job)) => self.change_policy(job, b)?,
            (Kind::End, Some(job)) => self.end_unused(job),
            _ => {}
        }
        self.follow_orders();
        self.ring();
        Ok(())
    }

    /// A change of the conductor's that is on file afterwards.
    fn file(
        &mut self,
        job: JobId,
        change: impl FnOnce(&mut Conductor) -> gang_conductor::life::Filed,
    ) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let Ok(record) = change(&mut daemon.core) else { return Ok(()) };
        self.follow_orders();
        self.effect()?;
        if let Some(record) = record {
            self.machine.borrow_mut().records.insert(job, record);
        }
        Ok(())
    }

    fn placement(&self, pid: u32) -> Placement {
        match self.backend {
            Backend::Signal => {
                let started = self.machine.borrow().processes[&pid].started;
                Placement::Tree { processes: vec![(pid, started)] }
            }
            _ => Placement::Cgroup {
                group: "group".into(),
                origin: "origin".into(),
                cpu_group: None,
                cpu_origin: None,
                cpu_group_is_shared: false,
                adopted: false,
                memory: None,
            },
        }
    }

    /// A process that no job has, of the owner of a job.
    fn free_process(&self, job: JobId, b: u16) -> Option<u32> {
        let daemon = self.daemon.as_ref()?;
        let owner = daemon.core.jobs.get(&job)?.owner_uid;
        let machine = self.machine.borrow();
        let is_taken = |pid: u32| {
            machine.processes[&pid].group.is_some()
                || daemon.rosters.values().any(|roster| {
                    roster.tree.contains(&pid)
                        || roster.singles.iter().any(|it| it.pid == pid)
                        || roster.expected.contains(&pid)
                })
                || machine.records.values().any(|it| it.coming.is_some_and(|it| it.0 == pid))
                || machine.records.values().any(|it| has_single(it, pid))
                || daemon.pending.iter().any(|it| match it {
                    Pending::Arriving { pid: other, .. } | Pending::Leaving { pid: other, .. } => {
                        *other == pid
                    }
                    Pending::ThreadLeaving { .. } | Pending::Moving { .. } => false,
                })
        };
        // A job without a cgroup has the children of its processes as well.
        let ancestors_are_free = |pid: u32| {
            let mut next = machine.processes.get(&pid).map(|of| of.parent);
            while let Some(at) = next.filter(|at| machine.processes.contains_key(at)) {
                if is_taken(at) {
                    return false;
                }
                next = machine.processes.get(&at).map(|of| of.parent);
            }
            true
        };
        let free = machine.processes.iter().filter(|(pid, of)| {
            // One that a single member has started may have what that one had in its slot.
            let is_its_own = machine.tids(**pid).iter().all(|tid| machine.is_its_own(*tid));
            let is_free = !is_taken(**pid) && ancestors_are_free(**pid) && is_its_own;
            (of.uid == owner || owner == 0) && is_free
        });
        let free: Vec<u32> = free.map(|(&pid, _)| pid).collect();
        nth(free.iter(), b)
    }

    fn attach(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(pid) = self.free_process(job, b) else { return Ok(()) };
        // What is on file does not tell the children that one had before from those of its way.
        if self.machine.borrow().processes.values().any(|child| child.parent == pid) {
            return Ok(());
        }
        let Some(daemon) = &self.daemon else { return Ok(()) };
        // One that comes while the first one is on its way is a further one.
        if daemon.core.jobs[&job].home.is_some() {
            return self.follow(job, b);
        }
        let placement = self.placement(pid);
        let (normal, affinity, started) = {
            let machine = self.machine.borrow();
            let normal = machine.model.attributes[&pid];
            let affinity: Vec<u32> = machine.model.affinity[&pid].iter().collect();
            (normal, affinity, machine.processes[&pid].started)
        };
        let members = self.members(normal, &affinity, &placement);
        let mut home = Home::new(placement, members, normal, affinity);
        home.coming = Some((pid, started));
        let record = self.daemon.as_ref().map(|it| it.core.jobs[&job].record_at(&home));
        self.effect()?;
        self.machine.borrow_mut().records.extend(record.map(|record| (job, record)));
        self.effect()?;
        self.machine.borrow_mut().pins.remove(&job);
        self.hit(job, Moment::Attach);
        let now = self.now;
        let tids = self.machine.borrow().tids(pid);
        // Of its threads the first one's is on file; see where a process follows.
        for tid in &tids {
            let mut machine = self.machine.borrow_mut();
            machine.threads.get_mut(tid).into_iter().for_each(|it| it.normal.push(normal));
        }
        let is_tree = self.backend == Backend::Signal;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if daemon.core.attach(now, job, home, (pid, started)).is_ok() {
            let tree = if is_tree { vec![pid] } else { Vec::new() };
            let expected = if is_tree { Vec::new() } else { tids };
            daemon.rosters.insert(job, Roster { expected, tree, ..Roster::default() });
            daemon.read(&mut self.machine.borrow_mut(), job);
            daemon.pending.push(Pending::Arriving { job, pid });
        }
        Ok(())
    }

    /// Threads or processes that are there become the members of a job.
    fn join(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(pid) = self.free_process(job, b) else { return Ok(()) };
        let single = self.machine.borrow_mut().single(pid);
        let Some(single) = single.filter(|_| self.backend == Backend::Rt && self.config.fill)
        else {
            return Ok(());
        };
        let affinity: Vec<u32> = self.machine.borrow().model.affinity[&pid].iter().collect();
        let placement = Placement::Threads { threads: vec![single] };
        let normal = single.normal.into();
        let members = self.members(normal, &affinity, &placement);
        let home = Home::new(placement, members, normal, affinity);
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let is_first = daemon.core.jobs[&job].home.is_none();
        if is_first {
            let record = daemon.core.jobs[&job].record_at(&home);
            self.effect()?;
            self.machine.borrow_mut().records.insert(job, record);
            self.effect()?;
            self.machine.borrow_mut().pins.remove(&job);
        }
        self.hit(job, Moment::Join);
        let now = self.now;
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let joined = daemon.core.join(now, job, home);
        if joined.is_ok() && is_first {
            let singles = vec![single];
            daemon.rosters.insert(job, Roster { singles, ..Roster::default() });
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        Ok(())
    }

    fn add_thread(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(pid) = self.free_process(job, b) else { return Ok(()) };
        let single = self.machine.borrow_mut().single(pid);
        let (Some(single), Some(daemon)) = (single, &self.daemon) else { return Ok(()) };
        let record = daemon.core.with_thread(job, single);
        self.hit(job, Moment::AddThread);
        let Ok(Some(record)) = record else { return Ok(()) };
        self.effect()?;
        let cpus = self.machine.borrow().model.affinity[&single.tid].clone();
        let has_own_cpus = !record.affinity.iter().copied().eq(cpus.iter());
        self.machine.borrow_mut().records.insert(job, record);
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if daemon.core.add_thread(job, single).is_ok() {
            let own = has_own_cpus.then_some(single.tid);
            self.machine.borrow_mut().expect_user_pinned(job, own.into_iter());
            daemon.rosters.entry(job).or_default().singles.push(single);
            let now = single.normal.into();
            let seen = Seen { tid: single.tid, now, cpus, were_given: false, original: Some(now) };
            let _ = daemon.core.members_came(job, &[seen]);
        }
        Ok(())
    }

    fn detach_thread(&mut self, job: JobId, b: u16) {
        self.hit(job, Moment::DetachThread);
        let Some(daemon) = &mut self.daemon else { return };
        let singles = daemon.rosters.get(&job).map(|of| of.singles.clone()).unwrap_or_default();
        let tid = nth(singles.iter(), b).map_or(1, |single| single.tid);
        if let Ok(leaver) = daemon.core.detach_thread(job, tid) {
            let roster = daemon.rosters.entry(job).or_default();
            roster.singles.retain(|it| it.tid != tid);
            roster.leaving.insert(tid);
            daemon.pending.push(Pending::ThreadLeaving { job, leaver });
        }
    }

    /// A further process comes.
    fn follow(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        self.hit(job, Moment::Follow);
        let Some(pid) = self.free_process(job, b) else { return Ok(()) };
        let Some(home) = self.daemon.as_ref().and_then(|it| it.core.jobs[&job].home.as_ref())
        else {
            return Ok(());
        };
        let (normal, started) = (home.normal, self.machine.borrow().processes[&pid].started);
        let is_tree = match home.placement {
            Placement::Threads { .. } => return Ok(()),
            Placement::Tree { .. } => true,
            Placement::Cgroup { .. } => false,
        };
        let everywhere = home.members.everywhere.clone();
        // Numbers of threads that have ended may be those of this process.
        if let Some(daemon) = &mut self.daemon {
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        let before: Vec<Seen> = {
            let machine = self.machine.borrow();
            let seen = |tid: u32| {
                let now = *machine.model.attributes.get(&tid)?;
                let cpus = machine.model.affinity.get(&tid)?.clone();
                let original = Some(before_gangd(now, normal, false));
                Some(Seen { tid, now, cpus, were_given: false, original })
            };
            let all = machine.tids(pid).into_iter().filter_map(seen);
            all.filter(|it| it.original != Some(normal) || it.cpus != everywhere).collect()
        };
        // Where the daemon dies in the slot of a wide gang, one that follows gets the nice value of
        // the first: that is all that is on file.
        let mut machine = self.machine.borrow_mut();
        for Seen { tid, .. } in &before {
            machine.threads.get_mut(tid).into_iter().for_each(|it| it.normal.push(normal));
        }
        drop(machine);
        if is_tree {
            self.file(job, |core| core.follow_in_tree(job, (pid, started)))?;
            let Some(daemon) = &mut self.daemon else { return Ok(()) };
            let roster = daemon.rosters.entry(job).or_default();
            roster.removed.remove(&pid);
            roster.tree.retain(|&other| other != pid);
            roster.tree.push(pid);
        } else {
            let members = self.machine.borrow().in_group(job);
            let joined = JoinedProcess {
                pid,
                origin: "other".into(),
                cpu_origin: None,
                memory_origin: None,
            };
            self.file(job, |core| core.expect(job, joined, &members))?;
            self.effect()?;
            let own_cpus = before.iter().filter(|it| it.cpus != everywhere).map(|it| it.tid);
            self.machine.borrow_mut().expect_user_pinned(job, own_cpus);
            self.effect()?;
            let mut machine = self.machine.borrow_mut();
            machine.processes.get_mut(&pid).into_iter().for_each(|it| it.group = Some(job));
        }
        self.effect()?;
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.core.members_came(job, &before);
        }
        Ok(())
    }

    fn detach(&mut self, job: JobId, b: u16) {
        self.hit(job, Moment::Detach);
        let Some(daemon) = &mut self.daemon else { return };
        let Some(roster) = daemon.rosters.get(&job) else { return };
        let mut machine = self.machine.borrow_mut();
        let mut all = machine.in_group(job);
        all.extend(&roster.tree);
        let Some(pid) = nth(all.iter(), b) else { return };
        let is_known = |it: &Pending| match it {
            Pending::Arriving { pid: other, .. } | Pending::Leaving { pid: other, .. } => {
                *other == pid
            }
            Pending::ThreadLeaving { .. } | Pending::Moving { .. } => false,
        };
        if daemon.pending.iter().any(is_known) || !machine.processes.contains_key(&pid) {
            return;
        }
        daemon.read(&mut machine, job);
        let tids = machine.tids(pid);
        let started = machine.processes[&pid].started;
        if let Ok(leaver) = daemon.core.detach(job, (pid, started), &tids) {
            machine.records.extend(leaver.record.clone().map(|record| (job, record)));
            let roster = daemon.rosters.entry(job).or_default();
            match self.backend {
                Backend::Signal => {
                    roster.tree.retain(|&other| other != pid);
                    roster.removed.insert(pid);
                    let home = daemon.core.jobs.get_mut(&job).and_then(|job| job.home.as_mut());
                    home.into_iter().for_each(|it| it.members.processes.clone_from(&roster.tree));
                }
                _ => drop(roster.leaving.insert(pid)),
            }
            daemon.pending.push(Pending::Leaving { job, pid, leaver });
        }
    }

    /// The next step of a request that waits.
    fn go_on(&mut self, a: u16) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        if daemon.pending.is_empty() {
            return Ok(());
        }
        let at = usize::from(a) % daemon.pending.len();
        let in_force = daemon.lanes.iter().map(|lane| lane.line.current().generation).min();
        let is_gone = |leaver: &Leaver| in_force.is_none_or(|it| it >= leaver.gone_from);
        match daemon.pending.swap_remove(at) {
            Pending::Arriving { job, pid } => {
                self.effect()?;
                // Its handle says whether it is the same process.
                let home = self.daemon.as_ref().and_then(|it| it.core.jobs.get(&job));
                let first = home.and_then(|job| job.home.as_ref()?.coming);
                let now = self.machine.borrow().processes.get(&pid).map(|it| (pid, it.started));
                if first.is_none() || first != now {
                    // Others may have followed it.
                    let roster = self.daemon.as_ref().and_then(|it| it.rosters.get(&job));
                    let has_others = roster.is_some_and(|roster| {
                        let machine = self.machine.borrow();
                        let lives = |pid: &u32| machine.processes.contains_key(pid);
                        roster.tree.iter().chain(&roster.removed).any(lives)
                            || !machine.in_group(job).is_empty()
                    });
                    if !has_others {
                        self.end(job);
                        return Ok(());
                    }
                    if let Some(of) = self.daemon.as_mut().and_then(|it| it.rosters.get_mut(&job)) {
                        of.expected.clear();
                    }
                    return self.file(job, |core| core.arrive(job));
                }
                let mut machine = self.machine.borrow_mut();
                if let Some(process) = machine.processes.get_mut(&pid) {
                    process.group = Some(job).filter(|_| self.backend != Backend::Signal);
                }
                drop(machine);
                let home = self.daemon.as_ref().and_then(|it| it.core.jobs.get(&job));
                if let Some(home) = home.and_then(|job| job.home.as_ref()) {
                    let (normal, cpus) = (home.normal, &home.members.everywhere);
                    if self.backend != Backend::Signal {
                        self.machine.borrow_mut().let_strays_go(job, pid, normal, cpus);
                    }
                }
                self.hit(job, Moment::Arrive);
                if let Some(of) = self.daemon.as_mut().and_then(|it| it.rosters.get_mut(&job)) {
                    of.expected.clear();
                }
                self.file(job, |core| core.arrive(job))?;
                self.end_those_over();
            }
            Pending::Leaving { job, pid, leaver } if is_gone(&leaver) => {
                let mut machine = self.machine.borrow_mut();
                // The numbers of one that has ended may be another's.
                let is_there = machine.is_left(job, pid);
                if is_there {
                    leaver.actions.iter().for_each(|action| machine.perform(action));
                }
                // Those that the job did not know yet.
                let tids = if is_there { machine.tids(pid) } else { Vec::new() };
                for tid in tids {
                    if leaver.known.contains(&tid) {
                        continue;
                    }
                    if let Some(&now) = machine.model.attributes.get(&tid) {
                        let before = before_gangd(now, leaver.normal, true);
                        machine.perform(&Action::Attributes { tid, attributes: before });
                    }
                    let home = self.daemon.as_ref().and_then(|it| it.core.jobs.get(&job));
                    let home = home.and_then(|job| job.home.as_ref());
                    let pins = machine.pins.get(&job).cloned().unwrap_or_default();
                    if let Some(home) = home {
                        let cpus = machine.model.affinity.get(&tid).cloned().unwrap_or_default();
                        // CPUs that it chose may be those of a slot: then nobody can tell.
                        let is_own =
                            machine.threads.get(&tid).map(|it| &it.own_cpus) == Some(&cpus);
                        if pins.has_given(&cpus) && !is_own {
                            let cpus = home.members.everywhere.clone();
                            machine.perform(&Action::Affinity { tid, cpus });
                        }
                    }
                }
                drop(machine);
                self.effect()?;
                self.machine.borrow_mut().leave_group(pid);
                if let Some(daemon) = &mut self.daemon {
                    daemon.rosters.entry(job).or_default().leaving.remove(&pid);
                }
                self.hit(job, Moment::Left);
                self.file(job, |core| core.has_left(job, pid, true))?;
                self.end_those_over();
            }
            Pending::ThreadLeaving { job, leaver } if is_gone(&leaver) => {
                // The number of one that has ended may be another's.
                let mut machine = self.machine.borrow_mut();
                if leaver.known.iter().all(|&tid| machine.is_single_left(job, tid)) {
                    leaver.actions.iter().for_each(|action| machine.perform(action));
                }
                drop(machine);
                // What it has started is no member either.
                self.machine.borrow_mut().release_inheritors_of(job);
                let Some(daemon) = &mut self.daemon else { return Ok(()) };
                let roster = daemon.rosters.entry(job).or_default();
                let there = roster.singles.clone();
                for tid in leaver.known {
                    daemon.core.thread_has_left(job, tid);
                    roster.leaving.remove(&tid);
                }
                self.file(job, |core| Ok(core.set_threads(job, &there)))?;
                self.end_those_over();
            }
            Pending::Moving { job, policy } => self.move_over(job, policy)?,
            // It waits on.
            waiting => daemon.pending.push(waiting),
        }
        Ok(())
    }

    fn change_policy(&mut self, job: JobId, b: u16) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let policy = if b % 2 == 0 { Policy::None } else { Policy::Gang };
        let of = &daemon.core.jobs[&job];
        let is_moving = |it: &Pending| matches!(it, Pending::Moving { .. });
        if of.spec.policy == policy || daemon.pending.iter().any(is_moving) {
            return Ok(());
        }
        let Some(home) = &of.home else {
            return self.file(job, |core| core.change(job, |spec, _| spec.policy = policy));
        };
        let to = home.placement.clone();
        match policy {
            Policy::None => {
                let _ = daemon.core.change(job, |spec, _| spec.policy = policy);
            }
            Policy::Gang => {
                self.hit(job, Moment::Move);
                self.file(job, |core| core.expect_at(job, to))?;
            }
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.pending.push(Pending::Moving { job, policy });
        }
        Ok(())
    }

    /// Processes are in the groups of the other policy, once the threads of a gang have back what
    /// they had.
    fn move_over(&mut self, job: JobId, policy: Policy) -> Result<(), Died> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let generation = daemon.core.generation;
        let is_in_force =
            daemon.lanes.iter().all(|lane| lane.line.current().generation >= generation);
        let Some(of) = daemon.core.jobs.get(&job) else { return Ok(()) };
        let Some(home) = &of.home else { return Ok(()) };
        let (normal, affinity, to) = (home.normal, home.affinity.clone(), home.placement.clone());
        let members = self.members(normal, &affinity, &to);
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        let Some(of) = daemon.core.jobs.get(&job) else { return Ok(()) };
        if policy == Policy::None && !(of.standing == Standing::Released && is_in_force) {
            daemon.pending.push(Pending::Moving { job, policy });
            return Ok(());
        }
        if policy == Policy::None {
            // Numbers of those that have ended may be others'.
            daemon.read(&mut self.machine.borrow_mut(), job);
            let Some(home) = daemon.core.jobs.get(&job).and_then(|of| of.home.as_ref()) else {
                return Ok(());
            };
            let mut actions = Vec::new();
            let (from, to) = (Standing::Filling, Standing::Released);
            self.backend.actions(job, &home.members, from, to, InSlot::default(), &mut actions);
            actions.iter().for_each(|action| self.machine.borrow_mut().perform(action));
        }
        self.hit(job, Moment::Moved);
        self.file(job, |core| core.moved(job, policy, to, members.controls))?;
        if let Some(daemon) = &mut self.daemon {
            daemon.read(&mut self.machine.borrow_mut(), job);
        }
        Ok(())
    }

    /// Ends the jobs whose members have all ended.
    fn end_those_over(&mut self) {
        let Some(daemon) = &self.daemon else { return };
        let machine = self.machine.borrow();
        let is_over = |(id, job): (&JobId, &gang_conductor::Job)| {
            let (home, roster) = (job.home.as_ref()?, daemon.rosters.get(id)?);
            machine.is_over(*id, home, roster).then_some(*id)
        };
        let over: Vec<JobId> = daemon.core.jobs.iter().filter_map(is_over).collect();
        drop(machine);
        over.into_iter().for_each(|job| self.end(job));
    }

    /// A job that has slept for long leaves; its processes go on.
    fn end_unused(&mut self, job: JobId) {
        let Some(daemon) = &self.daemon else { return };
        let of = &daemon.core.jobs[&job];
        let is_unused = daemon.core.eligibility(of) == Eligibility::Asleep
            && of.standing == Standing::Released
            && !daemon.core.planned_gangs().contains(&job);
        let generation = daemon.core.generation;
        let is_in_force =
            daemon.lanes.iter().all(|lane| lane.line.current().generation >= generation);
        let is_busy = !daemon.pending.is_empty() || !daemon.orders.is_empty();
        if of.home.is_none() || (is_unused && is_in_force && !is_busy) {
            self.end(job);
        }
    }

    fn end(&mut self, job: JobId) {
        self.hit(job, Moment::End);
        let Some(daemon) = &mut self.daemon else { return };
        let Some(ended) = daemon.core.end(job) else { return };
        daemon.rosters.remove(&job);
        daemon.uses.remove(&job);
        daemon.pending.retain(|it| match it {
            Pending::Arriving { job: of, .. }
            | Pending::Leaving { job: of, .. }
            | Pending::ThreadLeaving { job: of, .. }
            | Pending::Moving { job: of, .. } => *of != job,
        });
        self.follow_orders();
        if self.effect().is_err() {
            return;
        }
        if let Some(record) = ended.record() {
            self.machine.borrow_mut().clear_away(&record);
        }
    }

    fn follow_orders(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.orders.extend(daemon.core.take_orders());
            daemon.core.take_measures();
        }
    }

    fn ring(&mut self) {
        let now_ns = self.now.utc_ns;
        if let Some(daemon) = &mut self.daemon {
            daemon.wakes_ns = now_ns;
        }
    }

    fn look_for_new_threads(&mut self) {
        let mut machine = self.machine.borrow_mut();
        let Some(daemon) = &mut self.daemon else { return };
        let gangs: Vec<JobId> = daemon.core.planned_gangs().iter().copied().collect();
        let came: BTreeSet<JobId> =
            gangs.into_iter().filter(|&job| daemon.read_planned(&mut machine, job)).collect();
        drop(machine);
        if !came.is_empty() {
            let _ = self.conduct(NewThreads::Of(came));
        }
    }

    /// Time passes: switchers run when they wake, and so does the conductor unless it hangs.
    fn pass(&mut self, length_ns: u64, hangs: bool) {
        let end_ns = self.now.utc_ns + length_ns;
        let mut turns = 0;
        while self.now.utc_ns < end_ns {
            turns += 1;
            let at_ns = self.next_ns(hangs).clamp(self.now.utc_ns, end_ns);
            // A step that comes at once makes some progress, as on every machine.
            let at_ns = if turns > 20_000 { end_ns } else { at_ns };
            let step_ns = at_ns - self.now.utc_ns;
            self.now.utc_ns = at_ns;
            self.now.monotonic_ns += step_ns;
            self.switch();
            let is_due = self.daemon.as_ref().is_some_and(|it| it.wakes_ns <= self.now.utc_ns);
            if is_due && !hangs && self.conduct(NewThreads::None).is_err() {
                return;
            }
            if at_ns == end_ns {
                break;
            }
        }
    }

    /// When somebody wakes next.
    fn next_ns(&self, hangs: bool) -> u64 {
        let Some(daemon) = &self.daemon else { return u64::MAX };
        let lanes = daemon.lanes.iter();
        let lanes = lanes.filter_map(|lane| Some(lane.wakes_ns?.max(lane.stalled_until_ns)));
        let conductor = Some(daemon.wakes_ns).filter(|_| !hangs);
        lanes.chain(conductor).min().unwrap_or(u64::MAX)
    }

    /// Every switcher that wakes follows its timetable.
    fn switch(&mut self) {
        let now_ns = self.now.utc_ns;
        let machine = Rc::clone(&self.machine);
        let Some(daemon) = &mut self.daemon else { return };
        daemon.lanes.iter_mut().for_each(|lane| lane.switch(now_ns, &machine));
    }

    /// Where the conductor hangs, the switchers take every gang out of its slot by the deadline.
    fn check_expired(&mut self) {
        let now_ns = self.now.utc_ns;
        let is_steady = self.now.monotonic_ns > self.stepped_until_ns;
        let has_expired = |lane: &Lane| {
            lane.last.generation == lane.line.current().generation
                && lane.last.deadline_ns <= now_ns
                && lane.stalled_until_ns <= now_ns
        };
        if is_steady && self.daemon.as_ref().is_some_and(|it| it.lanes.iter().all(has_expired)) {
            self.machine.borrow_mut().check_lowered();
        }
    }

    /// The conductor runs until it sleeps.
    fn conduct(&mut self, mut new_threads: NewThreads) -> Result<(), Died> {
        for _ in 0..8 {
            let now = self.now;
            let Some(daemon) = &mut self.daemon else { return Err(Died) };
            daemon.core.begin_step(now);
            daemon.core.leave_out_over_thread_limit();
            let is_behind = daemon.followed().is_behind;
            let is_settled = daemon.core.is_settled(!daemon.orders.is_empty(), is_behind);
            if is_settled {
                daemon.wakes_ns = now.utc_ns + 200 * MS;
                return Ok(());
            }
            let look_in_ns = daemon.look_at_ns.saturating_sub(now.monotonic_ns);
            let came = std::mem::replace(&mut new_threads, NewThreads::None);
            match daemon.core.due(now, look_in_ns, 200 * MS, came) {
                Due::Sleep(0) => {}
                Due::Sleep(sleep_ns) => {
                    daemon.wakes_ns = now.utc_ns + sleep_ns;
                    return Ok(());
                }
                Due::Look => daemon.look(now),
                Due::Plan { look, resume_ns, new_threads } => {
                    if look {
                        daemon.look(now);
                    }
                    self.plan(resume_ns, new_threads)?;
                }
            }
            self.follow_orders();
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.wakes_ns = self.now.utc_ns + 10_000;
        }
        Ok(())
    }

    fn plan(&mut self, resume_ns: u64, new_threads: NewThreads) -> Result<(), Died> {
        let now = self.now;
        let machine = Rc::clone(&self.machine);
        let Some(daemon) = &mut self.daemon else { return Err(Died) };
        let followed = daemon.followed();
        let (mut planning, moving) = daemon.core.begin(now, resume_ns, new_threads, followed);
        for job in moving {
            daemon.read(&mut machine.borrow_mut(), job);
        }
        let planned = daemon.core.plan(&mut planning);
        daemon.orders.extend(daemon.core.take_orders());
        let read = |&job: &JobId| daemon.read_planned(&mut machine.borrow_mut(), job);
        let came = planned.iter().copied().filter(read).collect();
        let measured = planned.into_iter().filter(|job| job.0 % 2 == 0).collect();
        let effects = daemon.core.publish(planning, &came, &measured, 0.01, || 40_000);
        let mut orders: Vec<(u64, Action)> = std::mem::take(&mut daemon.orders)
            .into_iter()
            .map(|action| (daemon.core.generation, action))
            .collect();
        if std::env::var_os("STORM_TRACE").is_some() {
            self.trace(&effects);
        }
        self.check_plans(&effects.planned.plans, resume_ns);
        self.effect()?;
        for (job, cpus) in &effects.pins {
            self.machine.borrow_mut().give(*job, cpus);
            self.effect()?;
        }
        for (at, mut timetable) in effects.timetables.into_iter().enumerate() {
            self.effect()?;
            let Some(daemon) = &mut self.daemon else { return Err(Died) };
            timetable.immediate = std::mem::take(&mut orders);
            timetable.ready_ns = now.utc_ns;
            let lane = &mut daemon.lanes[at];
            if lane.last.generation != lane.line.current().generation {
                timetable.supersede(&lane.last);
            }
            lane.last = Rc::new(timetable);
            lane.wakes_ns = Some(now.utc_ns);
            // Some switchers come for it before the next effect.
            if (lane.last.generation + at as u64) % 2 == 0 {
                lane.switch(now.utc_ns, &machine);
            }
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.core.planned_within(50_000);
        }
        Ok(())
    }

    /// Prints a plan, to look for a mistake.
    fn trace(&self, effects: &gang_conductor::Effects) {
        let Some(daemon) = &self.daemon else { return };
        eprintln!("{:?}: plan from {}", self.now, effects.from_ns);
        for (id, job) in &daemon.core.jobs {
            let eligibility = daemon.core.eligibility(job);
            eprintln!("  job {id}: {eligibility:?} {:?} {:?}", job.standing, job.in_slot);
        }
        for timetable in &effects.timetables {
            for edge in &timetable.edges {
                eprintln!("  at {}: {edge:?}", edge.at_ns);
            }
            eprintln!("  {:?}", timetable.parts);
        }
    }

    /// In one slice no CPU belongs to two gangs, and a gang has slots only where it takes turns.
    /// Plans that begin before `resume_ns` are from before the last events.
    fn check_plans(&self, plans: &[gang_schedule::Plan], resume_ns: u64) {
        let mut machine = self.machine.borrow_mut();
        let Some(daemon) = &self.daemon else { return };
        for plan in plans {
            let mut owned = CpuSet::new();
            for slot in &plan.row {
                if !owned.is_disjoint(&slot.cpus) {
                    let what = format!("in one slice no CPU belongs to two gangs: {}", plan.slice);
                    machine.violations.push(what);
                }
                owned = owned.union(&slot.cpus);
            }
        }
        let made = slices::slice_at(daemon.core.schedule.config(), resume_ns);
        for plan in plans.iter().filter(|plan| plan.slice >= made) {
            let wrong = gang_schedule::check::plan(&daemon.core.schedule, plan);
            machine.violations.extend(wrong.iter().map(ToString::to_string));
        }
    }

    /// Were nothing to happen any more, every gang would have its slots.
    fn check_shares(&self) {
        let Some(daemon) = &self.daemon else { return };
        // Where slices differ in their gaps, shares are of time and not of slices.
        if self.config.slice_ns % self.config.gap.period_ns != 0 {
            return;
        }
        let mut schedule = Schedule::clone(&daemon.core.schedule);
        let last = daemon.core.schedule.plans().last().map_or(0, |plan| plan.slice);
        let mut frame = gang_schedule::check::Frame::new();
        for slice in last + 1..last + FRAME_SLICES {
            let plan = schedule.plan(slice);
            let wrong = frame.observe(&schedule, &plan);
            if !wrong.is_empty() {
                let wrong = wrong.iter().map(ToString::to_string);
                return self.machine.borrow_mut().violations.extend(wrong);
            }
        }
    }

    /// All that must hold now.
    fn check(&mut self) {
        let mut machine = self.machine.borrow_mut();
        machine.check_raised();
        let now_ns = self.now.utc_ns;
        let Some(daemon) = &self.daemon else { return };
        let (core, config) = (&daemon.core, daemon.core.published_config());
        let is_followed = daemon.lanes.iter().all(|lane| {
            let wakes = lane.wakes_ns.is_none_or(|at_ns| at_ns > now_ns);
            lane.last.generation == lane.line.current().generation
                && wakes
                && lane.stalled_until_ns <= now_ns
                && lane.last.from_ns <= now_ns
        });
        let is_over = daemon.lanes.iter().all(|lane| lane.last.deadline_ns <= now_ns);
        let is_covered = daemon.lanes.iter().all(|lane| now_ns < lane.last.until_ns);
        let is_steady = self.now.monotonic_ns > self.stepped_until_ns;
        let is_told = is_steady && daemon.orders.is_empty() && !core.schedule.is_changed();
        let missed = daemon.followed().missed;
        if !is_followed || !is_told || !core.has_seen(missed) || !(is_covered || is_over) {
            return;
        }
        let slice = slices::slice_at(config, now_ns);
        let in_gap = slices::in_gap(config, now_ns);
        let plan = core.schedule.plan_of(slice).filter(|_| is_covered);
        if plan.is_none() && !is_over {
            return;
        }
        let slot_of = |job| plan.and_then(|plan| plan.slot(job));
        let online = core.schedule.topology().set();
        let mut wrong = Vec::new();
        for (id, job) in &core.jobs {
            let Some(home) = &job.home else { continue };
            // One that has just fallen asleep has its slot to the end.
            let has_slot = slot_of(*id).is_some() && !job.suspended;
            let standing = match core.eligibility(job).is_gang() {
                // The deadline has lowered those that the end of the timetable left raised.
                _ if is_over && job.standing == Standing::Raised => Standing::Filling,
                _ if is_over => job.standing,
                _ if has_slot && in_gap => Standing::Filling,
                _ if has_slot => Standing::Raised,
                true => job.standing_out_of_row(config.fill, core.machine()),
                // One that was in its slot stays filling until the next plans.
                false => job.standing,
            };
            // The daemon lowers those besides that no timetable has, now and then.
            match core.eligibility(job) {
                Eligibility::TooManyThreads => drop(self.crowded.insert(*id)),
                Eligibility::Asleep if job.standing == Standing::Filling => {}
                _ => drop(self.crowded.remove(id)),
            }
            if self.crowded.contains(id) {
                continue;
            }
            // A process that was about to stop may start another one.
            if core.is_stopping(*id) && !core.eligibility(job).is_gang() {
                continue;
            }
            let members = machine.living(*id, &home.members);
            let stands = machine.model.check(self.backend, (*id, &members), standing, job.in_slot);
            let cpus = match standing {
                Standing::Raised => Some(slot_of(*id).map(|slot| &slot.cpus)),
                Standing::Released => Some(None),
                Standing::Filling | Standing::Paused => None,
            };
            let cpus = cpus.filter(|slot| slot.is_none() || self.backend.can_fill());
            let stands = stands.and_then(|()| {
                cpus.map_or(Ok(()), |slot| machine.check_cpus(&members, slot, online))
            });
            if let Err(what) = stands {
                wrong.push(format!(
                    "each job is in its standing: job {id} ({:?}) at slice {slice}: {what}",
                    core.eligibility(job)
                ));
            }
        }
        machine.violations.extend(wrong.into_iter().take(4));
    }
}

impl Daemon {
    fn followed(&self) -> Followed {
        let in_force = |lane: &Lane| lane.last.generation == lane.line.current().generation;
        Followed {
            is_behind: !self.lanes.iter().all(in_force),
            missed: self.lanes.iter().map(|lane| lane.missed).sum(),
        }
    }

    fn read(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let came = self.refresh(machine, job);
        if came {
            self.core.found_members(job);
        }
        came
    }

    fn refresh(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let others = self.rosters.iter().filter(|(other, _)| **other != job);
        let others = others.flat_map(|(_, of)| of.tree.iter().copied());
        // Those that leave are on file of their old job until they have left.
        let homes = self.core.jobs.values().filter(|other| other.id != job);
        let homes = homes.filter_map(|other| other.home.as_ref());
        let others = others.chain(homes.flat_map(|home| home.leaving.iter().copied())).collect();
        let Some(home) = self.core.jobs.get_mut(&job).and_then(|job| job.home.as_mut()) else {
            return false;
        };
        let roster = self.rosters.entry(job).or_default();
        roster.others = others;
        let came = machine.read(job, home, roster);
        if let Placement::Tree { .. } = home.placement {
            let started = |pid: &u32| Some((*pid, machine.processes.get(pid)?.started));
            let tree = roster.tree.iter().filter_map(started).collect();
            // At once, which the daemon does now and then.
            if let Ok(Some(record)) = self.core.set_tree(job, tree) {
                machine.records.insert(job, record);
            }
        }
        came
    }

    fn read_planned(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let came = self.refresh(machine, job);
        self.core.was_read(job);
        came
    }

    fn look(&mut self, now: Now) {
        self.look_at_ns = now.monotonic_ns + 100 * MS;
        let mut of_jobs = Vec::new();
        for job in self.core.to_count() {
            let threads = self.core.jobs[&job]
                .home
                .as_ref()
                .map_or(0, |home| home.members.threads().len() as u32);
            of_jobs.push((job, Runnable::exactly(threads.min(2))));
        }
        let all: u32 = of_jobs.iter().map(|(_, it)| it.threads).sum::<u32>() + 1 + self.load;
        self.core.count(&Counted { all, of_daemon: 1, of_jobs });
        self.core.saw_short_tasks(Some(now.monotonic_ns / (7 * MS)));
        self.core.take_notes();
    }
}

/// Whether a thread of a process is a member of a job by itself.
fn has_single(record: &Record, pid: u32) -> bool {
    match &record.placement {
        Placement::Threads { threads } => threads.iter().any(|single| single.pid == pid),
        Placement::Cgroup { .. } | Placement::Tree { .. } => false,
    }
}

/// The one of some that a number chooses.
fn nth<'a, T: Copy + 'a>(of: impl Iterator<Item = &'a T>, number: u16) -> Option<T> {
    let all: Vec<T> = of.copied().collect();
    (!all.is_empty()).then(|| all[usize::from(number) % all.len()])
}
