//! Random plans laid out and carried out, period after period, as the conductor does it.

use std::collections::{BTreeMap, BTreeSet};

use gang_engine::{
    bound::{Bound, Kernel},
    recording::Recording,
    switcher::Calls,
    timing::Timings,
};
use gang_schedule::{
    Config, CpuSet, Event, Gap, JobId, Plan, Schedule, Spec, Topology, clock as slices,
};
use gang_timetable::{
    Action, Attributes, Backend, Composition, Controls, Gang, Group, InSlot, Known, Members, Seen,
    Signal, Standing, Stretch, Switchers, Thread, Timetable, Validity, Weight, Word, compose,
    follower::Cursor, model::Model,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// How long a timetable goes on that is not replaced.
const GRACE_NS: u64 = 5 * MS;

/// A job to come.
#[derive(Clone, Debug)]
struct Draft {
    cpus: u32,
    /// Of each thread: exempt, user_pinned, the CPU it was seen on.
    threads: Vec<(bool, bool, Option<u32>)>,
    tree: bool,
    page: bool,
}

/// A change before a period.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Sleeps(usize),
    Wakes(usize),
    InSlot(usize, InSlot),
    Load(u32),
    /// The length of the gaps, in thousandths of what they may be.
    Gap(u64),
    Comes(usize),
}

#[derive(Clone, Debug)]
struct Scene {
    backend: Backend,
    config: Config,
    cpus: u32,
    jobs: Vec<Draft>,
    has_common_group: bool,
    start_ns: u64,
    turns: Vec<Vec<Turn>>,
}

fn settings() -> impl Strategy<Value = Config> {
    let slice_ns = prop_oneof![
        Just(MS / 5),
        Just(MS),
        Just(3_300_000),
        Just(10 * MS),
        Just(60_000 * MS),
        200_000..40 * MS,
    ];
    let gap = prop_oneof![
        2 => Just(Gap::NONE),
        2 => Just(Gap::default()),
        1 => Just(Gap { period_ns: 25 * MS, length_ns: 10 * MS }),
        2 => (MS..30 * MS, 1u64..=500)
            .prop_map(|(period_ns, part)| Gap { period_ns, length_ns: period_ns * part / 1000 }),
    ];
    (slice_ns, gap, any::<bool>()).prop_map(|(slice_ns, gap, fill)| Config {
        slice_ns,
        gap,
        fill,
        ..Config::default()
    })
}

fn draft() -> impl Strategy<Value = Draft> {
    let cpu = proptest::option::of(0u32..8);
    let one = (proptest::bool::weighted(0.1), proptest::bool::weighted(0.1), cpu);
    let threads = proptest::collection::vec(one, 0..6);
    (1u32..=6, threads, any::<bool>(), any::<bool>())
        .prop_map(|(cpus, threads, tree, page)| Draft { cpus, threads, tree, page })
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        (0usize..6).prop_map(Turn::Sleeps),
        (0usize..6).prop_map(Turn::Wakes),
        (0usize..6, proptest::sample::select(InSlot::ALL.to_vec()))
            .prop_map(|(job, in_slot)| Turn::InSlot(job, in_slot)),
        (0usize..6).prop_map(Turn::Comes),
        (0u32..6).prop_map(Turn::Load),
        (1u64..=500).prop_map(Turn::Gap),
    ]
}

fn scene() -> impl Strategy<Value = Scene> {
    let turns = proptest::collection::vec(proptest::collection::vec(turn(), 0..3), 1..8);
    (
        proptest::sample::select(Backend::ALL.to_vec()),
        settings(),
        1u32..=8,
        proptest::collection::vec(draft(), 1..6),
        any::<bool>(),
        1_000 * MS..1_000_000_000 * MS,
        turns,
    )
        .prop_map(|(backend, config, cpus, jobs, has_common_group, start_ns, turns)| Scene {
            backend,
            config,
            cpus,
            jobs,
            has_common_group,
            start_ns,
            turns,
        })
}

struct Job {
    members: Members,
    has_page: bool,
    awake: bool,
    in_slot: InSlot,
    has_new_threads: bool,
    standing: Standing,
}

/// A conductor without clock and threads, on a machine that only remembers.
struct Stage {
    backend: Backend,
    config: Config,
    schedule: Schedule,
    machine: CpuSet,
    jobs: BTreeMap<JobId, Job>,
    plans: Vec<Plan>,
    has_common_group: bool,
    /// The period before ended in a gap.
    follows_gap: bool,
    generation: u64,
    cursors: Vec<Cursor>,
    kernel: Recording,
    timings: Timings,
}

impl Stage {
    fn set(scene: &Scene) -> Stage {
        let topology = Topology::flat(scene.cpus);
        let machine = topology.set().clone();
        let mut schedule = Schedule::new(scene.config.clone(), topology).unwrap();
        let (mut jobs, mut model) = (BTreeMap::new(), Model::default());
        for (number, draft) in scene.jobs.iter().enumerate() {
            let id = JobId(number as u64 + 1);
            let cpus = draft.cpus.min(scene.cpus);
            schedule.apply(Event::Arrived { job: id, spec: Spec::new(cpus) }).unwrap();
            let threads = draft.threads.iter().zip(100 * (number as u32 + 1)..);
            let threads: Vec<_> = threads
                .map(|(&(exempt, user_pinned, cpu), tid)| {
                    let own = if exempt { Attributes::fifo(9) } else { Attributes::other(4) };
                    Thread { user_pinned, cpu, ..Thread::new(tid, own) }
                })
                .collect();
            model.begin(&threads);
            // Every other one of several jobs is in a group that is idle as a whole.
            let controls = match draft.tree {
                true => Controls::default(),
                false => Controls {
                    freezer: true,
                    idle: true,
                    weight: true,
                    in_idle_group: number % 2 == 1,
                    ..Controls::default()
                },
            };
            let everywhere = (0..64).collect();
            let mut members = Members::new(controls, Attributes::other(0), everywhere);
            if draft.tree {
                members.processes = threads.iter().map(|thread| thread.tid).collect();
            }
            let members = members.with_threads(threads);
            let standing = Standing::Released;
            let has_new_threads = false;
            let job = Job {
                members,
                has_page: draft.page,
                awake: true,
                in_slot: InSlot::default(),
                has_new_threads,
                standing,
            };
            jobs.insert(id, job);
        }
        Stage {
            backend: scene.backend,
            config: scene.config.clone(),
            schedule,
            machine,
            jobs,
            plans: Vec::new(),
            has_common_group: scene.has_common_group,
            follows_gap: false,
            generation: 0,
            cursors: Vec::new(),
            kernel: Recording::from_model(model),
            timings: Timings::default(),
        }
    }

    fn turn(&mut self, turn: Turn) {
        let of = |job: usize| JobId(job as u64 + 1);
        match turn {
            Turn::Sleeps(job) | Turn::Wakes(job) => {
                let (awake, job) = (matches!(turn, Turn::Wakes(_)), of(job));
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.awake = awake;
                    let event = if awake { Event::Woke { job } } else { Event::Slept { job } };
                    self.schedule.apply(event).unwrap();
                }
            }
            Turn::InSlot(job, in_slot) => {
                if let Some(known) = self.jobs.get_mut(&of(job)) {
                    known.has_new_threads |= known.in_slot != in_slot;
                    known.in_slot = in_slot;
                }
            }
            // As another process does that is put into the job.
            Turn::Comes(job) => {
                if let Some(known) = self.jobs.get_mut(&of(job)) {
                    let last = known.members.threads().last().map(|thread| thread.tid);
                    let tid = last.unwrap_or(100 * (job as u32 + 1)) + 1;
                    let attributes = Attributes::other(4);
                    let new = Bound::to_nothing(Action::Attributes {
                        tid,
                        attributes,
                        known: Known::of(attributes),
                    });
                    self.kernel.perform(&new).unwrap();
                    known.members.remember(&Seen {
                        tid,
                        now: attributes,
                        cpus: known.members.everywhere.clone(),
                        were_given: false,
                        original: None,
                        started_by: None,
                    });
                    known.has_new_threads = true;
                }
            }
            Turn::Load(threads) => self.schedule.apply(Event::load(threads)).unwrap(),
            Turn::Gap(part) if self.config.gap.length_ns > 0 => {
                self.config.gap.length_ns = self.config.gap.period_ns * part / 1000;
            }
            Turn::Gap(_) => {}
        }
    }

    /// Where those belong that no row holds: sleepers, and those that woke.
    fn stand_out_of_row(&mut self) -> Vec<Action> {
        let fill = self.config.fill;
        let mut calls = Vec::new();
        for (&id, job) in &mut self.jobs {
            let to = match (job.awake, fill) {
                (false, _) => Standing::Released,
                (true, true) => Standing::Filling,
                (true, false) => Standing::Paused,
            };
            let by_clock = matches!(job.standing, Standing::Filling | Standing::Paused);
            if job.standing == Standing::Raised || (!fill && job.awake && by_clock) {
                continue;
            }
            self.backend.actions(id, &job.members, job.standing, to, job.in_slot, &mut calls);
            if to == Standing::Released {
                job.members.unpin(&mut calls);
            }
            job.standing = to;
        }
        calls
    }

    /// Plans as the conductor does: what is under way is amended.
    fn plan(&mut self, from_ns: u64, until_ns: u64) {
        let first = slices::slice_at(&self.config, from_ns);
        let last = slices::slice_at(&self.config, until_ns - 1);
        self.plans = (first..=last)
            .map(|slice| match self.plans.iter().find(|plan| plan.slice == slice) {
                Some(plan) => self.schedule.amend(plan).unwrap_or_else(|| plan.clone()),
                None => self.schedule.plan(slice),
            })
            .collect();
    }

    fn gangs(&self) -> BTreeMap<JobId, Gang<'_>> {
        let rows = self.plans.iter().flat_map(|plan| &plan.row);
        let in_rows: BTreeSet<JobId> = rows.map(|slot| slot.job).collect();
        let is_concerned = |id: &JobId, job: &Job| {
            let left_over = !self.config.fill && job.standing == Standing::Filling && job.awake;
            let listens = job.awake && !job.members.processes.is_empty();
            let new_threads = job.awake && job.has_new_threads;
            in_rows.contains(id)
                || job.standing == Standing::Raised
                || left_over
                || listens
                || new_threads
        };
        let concerned = self.jobs.iter().filter(|(id, job)| is_concerned(id, job));
        concerned
            .map(|(&id, job)| {
                let out_of_row =
                    if self.config.fill { Standing::Filling } else { Standing::Paused };
                let gang = Gang {
                    members: &job.members,
                    standing: job.standing,
                    out_of_row,
                    has_new_threads: job.has_new_threads,
                    in_slot: job.in_slot,
                    has_page: job.has_page,
                    validity: validity(job),
                    listeners: job.members.processes.clone(),
                };
                (id, gang)
            })
            .collect()
    }

    /// The words of jobs that no row holds.
    fn pages(&self) -> Vec<(JobId, Word)> {
        let gangs = self.gangs();
        let is_other = |(id, job): &(&JobId, &Job)| job.has_page && !gangs.contains_key(id);
        let word = |job: &Job| Word { validity: validity(job), ..Word::default() };
        self.jobs.iter().filter(is_other).map(|(&id, job)| (id, word(job))).collect()
    }

    fn compose(&self, switchers: &Switchers, from_ns: u64, until_ns: u64) -> Composition {
        compose(&Stretch {
            generation: self.generation,
            config: &self.config,
            backend: self.backend,
            switchers,
            machine: &self.machine,
            from_ns,
            until_ns,
            deadline_ns: until_ns + GRACE_NS,
            plans: &self.plans,
            gangs: &self.gangs(),
            pages: &self.pages(),
            follows_gap: self.follows_gap,
            has_common_group: self.has_common_group,
            actions_max: usize::MAX,
        })
    }

    /// Lets every switcher do what is due.
    fn advance(&mut self, timetables: &[Timetable<Bound>], now_ns: u64) {
        self.cursors.resize_with(timetables.len(), Cursor::default);
        for (cursor, timetable) in self.cursors.iter_mut().zip(timetables) {
            let (kernel, clock) = (&self.kernel, &|| now_ns);
            let calls = Calls { kernel, clock, timings: &self.timings };
            cursor.advance(timetable, now_ns, &calls);
        }
        assert_eq!(self.timings.failures(), (0, 0));
    }

    /// Everybody stands at `now_ns` as the plans say.
    fn check(&self, now_ns: u64) {
        let slice = slices::slice_at(&self.config, now_ns);
        let plan = self.plans.iter().find(|plan| plan.slice == slice).unwrap();
        let in_gap = slices::in_gap(&self.config, now_ns);
        for (&id, job) in &self.jobs {
            let slot = plan.slot(id);
            let to = match slot {
                Some(_) if !in_gap => Standing::Raised,
                // It is going to be raised again as soon as the gap is over.
                Some(_) => Standing::Filling,
                None if job.standing == Standing::Released => Standing::Released,
                None if self.config.fill => Standing::Filling,
                None => Standing::Paused,
            };
            self.kernel.with_model(|model| {
                let checked = model.check(self.backend, (id, &job.members), to, job.in_slot);
                assert_eq!(checked, Ok(()), "job {id}, in the gap: {in_gap}, slot {slot:?}");
                if let (Standing::Raised, Some(slot)) = (to, slot) {
                    self.check_cpus(model, &job.members, &slot.cpus);
                }
                for pid in &job.members.processes {
                    let signalled = model.signalled.get(pid).copied();
                    match to {
                        Standing::Raised if self.is_about_to_end(id, now_ns) => {}
                        Standing::Raised => assert_eq!(signalled, Some(Signal::SlotBegins)),
                        _ if in_gap || !job.awake => {}
                        _ => assert_ne!(signalled, Some(Signal::SlotBegins)),
                    }
                }
                if job.has_page {
                    let word = model.pages.get(&id).copied().unwrap_or_default();
                    let until_ns = slices::next_edge(&self.config, now_ns).at_ns;
                    let cpus = slot.filter(|_| to == Standing::Raised).map_or(0, |s| s.cpus.len());
                    let running = to == Standing::Raised;
                    assert_eq!((word.running, word.cpus as usize), (running, cpus), "job {id}");
                    assert_eq!(word.until_ns, if running { until_ns } else { 0 });
                    let says = if running { Validity::Scheduled } else { validity(job) };
                    assert_eq!(word.validity, says, "job {id}");
                }
            });
        }
        let row = plan.row.iter().filter(|_| !in_gap).map(|slot| &self.jobs[&slot.job]);
        let row = row.filter(|job| job.members.controls.in_idle_group);
        let row: Vec<InSlot> = row.map(|job| job.in_slot).collect();
        self.check_common_group(&row);
    }

    /// The slot of a job ends so soon that its processes have their signal already. A gap only
    /// interrupts it where it has the slice after the next edge, too.
    fn is_about_to_end(&self, id: JobId, now_ns: u64) -> bool {
        let has = |at_ns| {
            let slice = slices::slice_at(&self.config, at_ns);
            let plan = self.plans.iter().find(|plan| plan.slice == slice);
            plan.is_none_or(|plan| plan.slot(id).is_some())
        };
        let next = |at_ns| slices::next_edge(&self.config, at_ns).at_ns;
        let goes_on = |at_ns| match slices::in_gap(&self.config, at_ns) {
            true => has(next(at_ns)),
            false => has(at_ns),
        };
        let notice_ns = (self.config.slice_ns / 20).min(MS);
        let mut edges = std::iter::successors(Some(next(now_ns)), |&at_ns| Some(next(at_ns)))
            .take_while(|at_ns| *at_ns <= now_ns + notice_ns);
        edges.any(|at_ns| !goes_on(at_ns))
    }

    /// Those that have not chosen their own CPUs may run on those of the slot.
    fn check_cpus(&self, model: &Model, members: &Members, cpus: &CpuSet) {
        for thread in members.threads() {
            let may = model.affinity.get(&thread.tid);
            if thread.is_exempt() || thread.user_pinned || !self.backend.can_fill() {
                assert_eq!(may, None);
            } else {
                let anywhere = cpus == &self.machine && may.is_none();
                assert!(anywhere || may == Some(cpus), "{may:?}, not {cpus}");
            }
        }
    }

    /// The group of all gangs is idle unless one of the row that is in it needs another weight, the
    /// highest of those.
    fn check_common_group(&self, row: &[InSlot]) {
        if !self.has_common_group {
            return;
        }
        let group = self.kernel.with_model(|model| model.group(Group::All));
        let expected = match row {
            _ if row.contains(&InSlot::Oversubscribed) => Some(Weight::Highest),
            _ if row.contains(&InSlot::Uncontended) => Some(Weight::Usual),
            _ => None,
        };
        assert_eq!(group.idle == Some(false), expected.is_some(), "the common group gives way");
        if expected.is_some() {
            assert_eq!(group.weight, expected);
        }
    }

    /// Standings and CPUs at the end of the period are those at the beginning of the next.
    fn carry_over(&mut self, composition: Composition) {
        for (id, standing) in composition.standings {
            self.jobs.get_mut(&id).unwrap().standing = standing;
        }
        self.jobs.values_mut().for_each(|job| job.has_new_threads = false);
        for pin in composition.pins {
            self.jobs.get_mut(&pin.job).unwrap().members.pinned = Some(pin.cpus);
        }
    }
}

/// The validity that the page of a job has out of its slot.
fn validity(job: &Job) -> Validity {
    if job.awake { Validity::Scheduled } else { Validity::NotScheduled }
}

fn edges(config: &Config, from_ns: u64, until_ns: u64) -> Vec<u64> {
    std::iter::successors(Some(from_ns), |&at| Some(slices::next_edge(config, at).at_ns))
        .take_while(|&at| at < until_ns)
        .collect()
}

fn assert_in_order(timetable: &Timetable<Bound>) {
    let at: Vec<u64> = timetable.edges.iter().map(|edge| edge.at_ns).collect();
    assert!(at.is_sorted_by(|a, b| a < b), "{at:?}");
    assert!(at.iter().all(|at| (timetable.from_ns..timetable.until_ns).contains(at)), "{at:?}");
}

/// Without a further timetable, nobody is raised at the deadline; nor where the switchers wake only
/// then.
fn assert_deadline_lowers(stage: &Stage, before: &Model, timetables: &[Timetable<Bound>]) {
    let kernel = Recording::from_model(before.clone());
    for timetable in timetables {
        let now_ns = timetable.deadline_ns;
        let calls = Calls { kernel: &kernel, clock: &|| now_ns, timings: &stage.timings };
        let next = Cursor::default().advance(timetable, now_ns, &calls);
        assert_eq!(next, None);
    }
    let model = kernel.model();
    assert!(!model.pages.values().any(|word| word.running), "a page outlives its slot");
    for (&id, job) in &stage.jobs {
        for thread in job.members.threads().iter().filter(|thread| !thread.is_exempt()) {
            let now = model.attributes[&thread.tid];
            assert!(!now.policy.is_realtime() && now.nice != -20, "{now:?}");
        }
        let is_weighed = stage.backend == Backend::Rt && job.in_slot == InSlot::Weighed;
        if stage.backend == Backend::Weight || is_weighed {
            assert_ne!(model.group(Group::Job(id)).weight, Some(Weight::Highest));
        }
    }
    assert_ne!(
        model.group(Group::All).idle,
        Some(false),
        "the gangs are still raised by their group"
    );
}

/// Plays a scene, with switchers for as many CPUs each.
fn run(scene: &Scene, cpus_each: usize) -> (Model, Vec<(u64, Vec<Action>)>) {
    let mut stage = Stage::set(scene);
    let cpus: Vec<u32> = stage.machine.iter().collect();
    let switchers: Switchers =
        cpus.chunks(cpus_each).map(|cpus| cpus.iter().copied().collect()).collect();
    let period_ns = stage.config.gap.period_ns;
    let mut history = Vec::new();
    let mut from_ns = scene.start_ns - scene.start_ns % period_ns;
    for turns in &scene.turns {
        turns.iter().for_each(|&turn| stage.turn(turn));
        let until_ns = from_ns + period_ns;
        let immediate = stage.stand_out_of_row();
        stage.plan(from_ns, until_ns);
        stage.generation += 1;
        let mut composition = stage.compose(&switchers, from_ns, until_ns);
        let generation = stage.generation;
        composition.timetables[0].immediate =
            immediate.into_iter().map(|action| (generation, action)).collect();
        let timetables: Vec<_> = std::mem::take(&mut composition.timetables)
            .into_iter()
            .map(|timetable| timetable.bind(|action| Some(Bound::to_nothing(action))))
            .collect();
        timetables.iter().for_each(assert_in_order);
        assert_deadline_lowers(&stage, &stage.kernel.model(), &timetables);
        stage.kernel.take_actions();
        for at_ns in edges(&stage.config, from_ns, until_ns) {
            stage.advance(&timetables, at_ns);
            stage.check(at_ns);
            let mut actions = stage.kernel.take_actions();
            actions.sort_by_key(|action| format!("{action:?}"));
            // Each switcher of a gang sets what weighs the gang as a whole.
            actions.dedup_by(|a, b| a == b && matches!(a, Action::Control { .. }));
            history.push((at_ns, actions));
        }
        stage.carry_over(composition);
        stage.follows_gap = slices::in_gap(&stage.config, until_ns - 1);
        from_ns = until_ns;
    }
    (stage.kernel.model(), history)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn after_each_edge_exactly_the_row_is_raised(scene in scene(), cpus_each in 1usize..=8) {
        run(&scene, cpus_each);
    }

    #[test]
    fn many_switchers_do_what_one_would(scene in scene()) {
        prop_assert_eq!(run(&scene, 8).1, run(&scene, 1).1);
    }
}
