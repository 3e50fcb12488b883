//! A machine with a daemon on it, under a virtual clock.
//!
//! The daemon is the real conductor, with real timetables and the rules by which switchers follow
//! them. Their surroundings in gangd, reading and carrying out, are done here as there,
//! step by step, so that the daemon may die between any two of them.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    rc::Rc,
};

use gang_conductor::{
    AgreedEntries, Conductor, Now, Stray,
    life::{Leaver, Moment, State},
};
use gang_schedule::{Config, Gap, JobId, Policy, Sharing, Topology, UserId};
use gang_timetable::{
    Action, Attributes, Backend, Timetable,
    follower::{Follower, Hands, OfThread, Switch},
    record::{Placement, Record},
};

use crate::{
    machine::{CROWD, Machine, Roster},
    script::{Event, Kind},
};

mod carrier;
mod check;
mod daemon;
mod owners;
mod requests;
mod spanning;
mod start;
mod time;
mod waiting;

use carrier::HandedOn;

const MS: u64 = 1_000_000;
/// The owners of processes and jobs: root among them.
const USERS: [u32; 4] = [0, 1000, 1001, 1002];

/// Users of the last one's user namespaces, who is hostile.
const SUBORDINATE: RangeInclusive<u32> = 100_000..=165_535;

/// Jobs at a time.
const JOBS_MAX: usize = 40;

type Line = Follower<Rc<Timetable<Action>>>;

/// A switcher.
struct Lane {
    line: Line,
    last: Rc<Timetable<Action>>,
    /// When it wakes (UTC); never where that is absent.
    wakes_ns: Option<u64>,
    /// It does not run before then (UTC).
    stalled_until_ns: u64,
    /// A thread that gives way, and is lowered until the switcher runs again; what it gets then.
    gives_way: Option<(u32, Attributes)>,
    missed: u64,
}

impl Lane {
    /// A switcher that is awake follows its timetable.
    fn switch(&mut self, now_ns: u64, machine: &RefCell<Machine>) {
        let is_awake = self.wakes_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if !is_awake || self.stalled_until_ns > now_ns {
            return;
        }
        if let Some((tid, raised)) = self.gives_way.take() {
            machine.borrow_mut().raise_again(tid, raised);
        }
        let arms = Arms::new(machine, now_ns);
        self.wakes_ns = self.line.follow(&self.last, now_ns, &arms);
        self.missed += arms.missed.into_inner();
    }

    /// A switcher is asked to have a thread give way. It follows its timetable before, and makes
    /// its second call some time after the first.
    fn give_way(&mut self, tid: u32, now_ns: u64, takes_ns: u64, machine: &RefCell<Machine>) {
        if self.stalled_until_ns > now_ns {
            return;
        }
        self.wakes_ns = Some(now_ns);
        self.switch(now_ns, machine);
        let arms = Arms { done_ns: now_ns + takes_ns, ..Arms::new(machine, now_ns) };
        self.line.give_way(tid, now_ns, &arms);
        self.gives_way = arms.gives_way.into_inner();
        if self.gives_way.is_some() {
            self.stalled_until_ns = now_ns + takes_ns;
            self.wakes_ns = Some(self.stalled_until_ns);
        }
    }
}

/// The rest of a client's request.
enum Pending {
    Arriving {
        job: JobId,
        pid: u32,
    },
    Leaving {
        job: JobId,
        pid: u32,
        leaver: Leaver,
    },
    ThreadLeaving {
        job: JobId,
        leaver: Leaver,
    },
    Moving {
        job: JobId,
        policy: Policy,
        from: Placement,
    },
    /// Between groups of the cpu controller, once a timetable of that generation is in force.
    Regrouping {
        job: JobId,
        from: Option<u64>,
    },
}

impl Pending {
    fn leaver(&self) -> Option<&Leaver> {
        match self {
            Pending::Leaving { leaver, .. } | Pending::ThreadLeaving { leaver, .. } => Some(leaver),
            Pending::Arriving { .. } | Pending::Moving { .. } | Pending::Regrouping { .. } => None,
        }
    }
}

struct Daemon {
    core: Conductor,
    rosters: BTreeMap<JobId, Roster>,
    lanes: Vec<Lane>,
    orders: Vec<Action>,
    handed_on: HandedOn,
    pending: Vec<Pending>,
    /// When the conductor wakes (UTC).
    wakes_ns: u64,
    look_at_ns: u64,
    /// Threads that left their jobs by themselves, and may be raised yet.
    strays: Vec<Stray>,
    /// Jobs that are over and had strays, each with the generation of the first timetable without
    /// it.
    remains: Vec<(u64, Record)>,
    /// Threads of others that want to run.
    load: u32,
    uses: BTreeMap<JobId, u64>,
    /// The entries that hosts last agreed on.
    given: Vec<AgreedEntries>,
    /// Jobs that were on file, and spanning jobs that have or had a part here.
    had_parts: BTreeSet<JobId>,
    /// The clock was set since the last plans, which are replaced at once, or once somebody has
    /// slots.
    has_old_plans: bool,
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
    /// Jobs with too many threads, until they are released or take turns again; and when the
    /// timetables begin that have them as such.
    crowded: BTreeMap<JobId, u64>,
    /// Jobs that stand still and keep themselves out of the rows, since when.
    still: BTreeMap<JobId, u64>,
    /// Parts without entries that are not left to Linux yet, since when.
    unnamed: BTreeMap<JobId, u64>,
    /// Until then (monotonic) a step of the clock may show.
    stepped_until_ns: u64,
    /// Until then (monotonic) somebody of the daemon did not run.
    held_up_until_ns: u64,
    /// The daemon dies after so many more effects.
    dies_after: Option<u32>,
    pub cells: Cells,
    pub steps: u64,
    /// How often a daemon has died.
    pub deaths: usize,
    /// Users that had a job.
    pub users: BTreeSet<UserId>,
    seed: u64,
}

struct Arms<'a> {
    machine: &'a RefCell<Machine>,
    /// When the calls are done.
    done_ns: u64,
    missed: Cell<u64>,
    gives_way: Cell<Option<(u32, Attributes)>>,
}

impl Arms<'_> {
    fn new(machine: &RefCell<Machine>, now_ns: u64) -> Arms<'_> {
        Arms { machine, done_ns: now_ns, missed: Cell::default(), gives_way: Cell::default() }
    }
}

impl Hands<Action> for Arms<'_> {
    fn perform(&self, action: &Action) {
        self.machine.borrow_mut().perform(action);
    }

    fn give_way(&self, action: &Action) {
        self.gives_way.set(self.machine.borrow_mut().lower_for_a_moment(action));
    }

    fn lower_if_raised(&self, action: &Action) {
        let tid = action.of_thread().map(|(tid, _)| tid);
        let is_raised = tid.is_some_and(|tid| self.machine.borrow().is_raised(tid));
        if is_raised {
            self.perform(action);
        }
    }

    fn now_ns(&self) -> u64 {
        self.done_ns
    }

    fn switched(&self, _: &Switch) {}

    fn out_of_step(&self) {
        self.missed.set(self.missed.get() + 1);
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
        // Users share, one of them with twice the share of others; or programs do.
        let sharing = match seed % 3 {
            1 => Sharing::ByUser([(UserId(USERS[0]), 200)].into()),
            _ => Sharing::ByProgram,
        };
        // One user has no more than a part.
        let caps = if seed % 5 == 1 { [(UserId(USERS[1]), 400)].into() } else { [].into() };
        let config = Config { slice_ns, gap, fill, sharing, caps, ..Config::default() };
        let mut machine = Machine::default();
        machine.backend = Some(backend);
        machine.all = (0..cpus).collect();
        machine.online = machine.all.clone();
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
            crowded: BTreeMap::new(),
            still: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            stepped_until_ns: 0,
            held_up_until_ns: 0,
            dies_after: None,
            cells: Cells::new(),
            steps: 0,
            deaths: 0,
            users: BTreeSet::new(),
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
            self.carry_out();
            self.check();
            self.check_parts();
            let violations = std::mem::take(&mut self.machine.borrow_mut().violations);
            if !violations.is_empty() {
                return violations;
            }
        }
        self.check_shares();
        // The last arrivals are planned with.
        self.pass(check::SETTLED_NS, false);
        self.check_quotas();
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

    /// Whether the daemon lives on after one more effect.
    fn effect(&mut self) -> Result<(), Died> {
        match &mut self.dies_after {
            None => Ok(()),
            Some(0) => {
                self.dies_after = None;
                self.die();
                Err(Died)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn die(&mut self) {
        self.deaths += usize::from(self.daemon.take().is_some());
    }

    /// The conductor is asked for a moment of a job.
    fn hit(&mut self, job: JobId, moment: Moment) {
        if let Some(daemon) = &self.daemon {
            let state = daemon.core.jobs().get(&job).map_or(State::Absent, State::of);
            *self.cells.entry((state, moment)).or_default() += 1;
        }
    }

    fn happen(&mut self, Event { kind, a, b }: Event) {
        match kind {
            Kind::Pass => {
                let lengths = [100_000, MS, 3 * MS, 7 * MS, 20 * MS, 60 * MS, 150 * MS, 400 * MS];
                let length_ns = lengths[usize::from(a) % lengths.len()];
                self.pass(length_ns + u64::from(b), false);
            }
            Kind::Hang => self.hang(b),
            Kind::Stall => self.stall(a, b),
            Kind::StepClock => self.step_clock(a, b),
            Kind::TakeCpu | Kind::BringCpu => self.change_cpus(kind == Kind::TakeCpu, a),
            Kind::Load => {
                self.daemon.iter_mut().for_each(|daemon| daemon.load = u32::from(a % 4));
            }
            Kind::Rival => self.rival(a, b),
            Kind::Spawn => {
                let (uid, nice) = (USERS[usize::from(a) % USERS.len()], i32::from(b % 6) * 3 - 6);
                self.machine.borrow_mut().spawn(uid, nice, None);
            }
            Kind::Reuse => self.reuse(a, b),
            Kind::StartThread | Kind::Fork | Kind::EndThread => self.work(kind, a, b),
            Kind::Exit => self.exit(a),
            Kind::Leave => self.leave(a),
            Kind::SetNice | Kind::SetPolicy => self.choose_attributes(kind, a, b),
            Kind::SetAffinity => self.choose_cpus(a, b),
            Kind::Bind => self.bind(a, b),
            Kind::Crowd => {
                if let Some(daemon) = &mut self.daemon {
                    if let Some(job) = nth(daemon.rosters.keys(), a) {
                        let beside = if b % 2 == 0 { CROWD } else { 0 };
                        daemon.rosters.entry(job).or_default().beside = beside;
                    }
                }
            }
            Kind::Become => {
                let mut machine = self.machine.borrow_mut();
                let pid = nth(machine.processes.keys(), a);
                if let Some(pid) = pid.filter(|&pid| !machine.stands_still(pid)) {
                    let uid = USERS[usize::from(b) % USERS.len()];
                    machine.become_other(pid, uid, self.now.monotonic_ns);
                }
            }
            Kind::Use | Kind::Idle | Kind::Oversubscribe => self.see(kind, a),
            Kind::Bustle => self.bustle(a, b),
            Kind::Kill => match b % 3 {
                0 => self.die(),
                _ => self.dies_after = Some(u32::from(a % 40)),
            },
            Kind::Guard => {
                self.machine.borrow_mut().release_all();
                // A daemon that goes on hears of it.
                let jobs = self.daemon.iter().flat_map(|daemon| daemon.core.jobs().keys());
                let jobs: Vec<JobId> = jobs.copied().chain([JobId(self.next_job)]).collect();
                jobs.into_iter().for_each(|job| self.hit(job, Moment::Release));
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
