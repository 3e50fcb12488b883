//! Plans, laid out by the edges of the clock.
//!
//! Problem: what happens at an edge must be nothing but system calls, so all of it has to be worked
//! out before.
//!
//! Terms. A *stretch* is the time that one timetable covers: the slices that are planned in one go. A
//! *part* is the list of calls that takes one job from one standing to another; it is written once and
//! named by the edges that need it. A *switcher* carries out its share of every part: that of the
//! threads whose CPUs it looks after.
//!
//! Algorithm: walk the edges of the stretch; at each, give every gang of the row the standing
//! [`Standing::Raised`] (none in a gap) and every other one its standing out of slot; what changed
//! since the edge before is what the edge has to do, those that leave before those that enter.
//!
//! Properties: after each edge exactly the gangs of that slice's row are raised, none in a gap; the
//! deadline of a timetable leaves none raised.

use std::{collections::BTreeMap, sync::Arc};

use gang_schedule::{Config, CpuSet, JobId, Plan, clock};
use rustix::{process::Signal, thread};

use crate::{
    InSlot, Standing,
    action::Action,
    backend::Backend,
    listeners::{CONTINUE, Listeners, PAUSE},
    members::Members,
    page::{SlotPage, Validity, Word},
};

/// One moment at which somebody enters or leaves a slot. Parts are named by their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// UTC, nanoseconds.
    pub at_ns: u64,
    pub lower: Vec<usize>,
    pub raise: Vec<usize>,
    /// What programs are told of it: those that leave their slot before, those that enter it after.
    pub tell_before: Vec<usize>,
    pub tell_after: Vec<usize>,
}

impl Edge {
    fn parts(&self) -> impl Iterator<Item = usize> {
        [&self.tell_before, &self.lower, &self.raise, &self.tell_after]
            .into_iter()
            .flatten()
            .copied()
    }
}

/// What one switcher does in one stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Timetable {
    /// Timetables are numbered from 1; 0 is that of a switcher that got none yet.
    pub generation: u64,
    /// The stretch, UTC. Until `from_ns` the timetable before this one holds; at `until_ns` switchers
    /// look for the next one.
    pub from_ns: u64,
    pub until_ns: u64,
    /// When it was handed over, UTC; 0 until then.
    pub ready_ns: u64,
    /// Of timetables up to this generation, those that were never in force have edges that this one does not
    /// have: 0 where none is lost.
    pub loses_up_to: u64,
    /// Calls to be made as soon as it is in force, for what changed outside the clock; with the
    /// generation that brought them, since those of a timetable that never was go on with the next one.
    pub immediate: Vec<(u64, Action)>,
    pub parts: Vec<Vec<Action>>,
    /// In order of time.
    pub edges: Vec<Edge>,
    /// Without another timetable by then, every gang leaves its slot.
    pub deadline_ns: u64,
    pub at_deadline: Vec<usize>,
}

/// A job, as far as a switch is concerned.
#[derive(Debug)]
pub struct Gang<'a> {
    pub members: &'a Members,
    /// At the beginning of the stretch.
    pub standing: Standing,
    /// While it is in no row.
    pub out_of_row: Standing,
    /// It has threads that do not stand as it does yet: they get there at the first edge.
    pub has_newcomers: bool,
    pub in_slot: InSlot,
    /// Where its programs read of its slot.
    pub page: Option<&'a Arc<SlotPage>>,
    /// What that says out of its slot: one that takes no turns any more may have a slot yet.
    pub validity: Validity,
    /// Processes that hear of its slots by signals.
    pub listeners: &'a Listeners,
}

/// Which switcher looks after which CPUs.
///
/// One for each CPU, so that every CPU switches its own threads at the same instant (X2) and no
/// interrupt has to travel; on machines with more CPUs than
/// [`SWITCHERS_MAX`], neighbours share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    groups: Vec<CpuSet>,
}

/// The most switchers: each costs the conductor some work for every timetable.
pub const SWITCHERS_MAX: usize = 64;

impl Groups {
    /// CPUs near each other are looked after together.
    pub fn new(topology: &gang_schedule::Topology) -> Groups {
        let mut cpus: Vec<_> = topology.cpus().to_vec();
        cpus.sort_unstable_by_key(|cpu| (cpu.node, cpu.cache, cpu.core, cpu.id));
        let size = cpus.len().div_ceil(SWITCHERS_MAX).max(1);
        let groups = cpus.chunks(size).map(|cpus| cpus.iter().map(|cpu| cpu.id).collect());
        Groups { groups: groups.collect() }
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn cpus(&self) -> &[CpuSet] {
        &self.groups
    }

    /// The switcher of a CPU; of one that came later, the first.
    fn of_cpu(&self, cpu: u32) -> usize {
        self.groups.iter().position(|group| group.contains(cpu)).unwrap_or(0)
    }
}

impl FromIterator<CpuSet> for Groups {
    /// Groups of CPUs as they are told, one for each switcher.
    fn from_iter<I: IntoIterator<Item = CpuSet>>(groups: I) -> Groups {
        Groups { groups: groups.into_iter().collect() }
    }
}

/// All that [`compose`] looks at.
pub struct Stretch<'a> {
    pub generation: u64,
    pub config: &'a Config,
    pub backend: Backend,
    pub groups: &'a Groups,
    /// Number of CPUs of the machine: a gang that has all of them is not restricted to any.
    pub machine: &'a CpuSet,
    pub from_ns: u64,
    pub until_ns: u64,
    pub deadline_ns: u64,
    /// One for each slice that the stretch touches, in order.
    pub plans: &'a [Plan],
    /// Those that are in a row of the stretch, come into it raised, or filling where others pause, or
    /// have newcomers or listeners.
    pub gangs: &'a BTreeMap<JobId, Gang<'a>>,
    /// What pages of other jobs say from now on: what was told before may write them until then.
    pub pages: &'a [(Arc<SlotPage>, Word)],
    /// The stretch before ends in a gap, in which the group of all gangs gives way.
    pub follows_gap: bool,
    pub lift: Option<&'a Lift>,
}

/// Calls that change what the cpu cgroup of all gangs has beside the rest of the machine.
#[derive(Clone, Debug)]
pub struct Lift {
    /// It comes before all others: a wide gang is in its slot.
    pub highest: Vec<Action>,
    /// It is a group like any other: a gang is alone. Its threads would otherwise gather on few CPUs, since the
    /// kernel takes one on which only idle groups run for as good as idle when it places a thread that wakes.
    pub usual: Vec<Action>,
    /// It gives way.
    pub none: Vec<Action>,
}

impl Lift {
    fn calls(&self, level: Level) -> &[Action] {
        match level {
            Level::Highest => &self.highest,
            Level::Usual => &self.usual,
            Level::None => &self.none,
        }
    }
}

/// What the cpu cgroup of all gangs has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    None,
    Usual,
    Highest,
}

impl Level {
    fn of(in_slot: InSlot) -> Level {
        match in_slot {
            InSlot::Exclusive => Level::None,
            InSlot::Alone => Level::Usual,
            InSlot::Wide => Level::Highest,
        }
    }
}

/// What the switchers do in a stretch, and how it leaves the gangs.
#[derive(Debug, Default)]
pub struct Composition {
    /// One for each group of CPUs.
    pub timetables: Vec<Timetable>,
    /// Standings at the end of the stretch, of those that are not as they were.
    pub standings: BTreeMap<JobId, Standing>,
    /// When the threads of which job are restricted to which CPUs, in order of time.
    pub pins: Vec<Pin>,
}

/// From then on, the threads of a job are restricted to these CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub at_ns: u64,
    pub job: JobId,
    pub cpus: thread::CpuSet,
}

/// Lays a stretch of time out.
pub fn compose(stretch: &Stretch<'_>) -> Composition {
    let mut parts = Parts::new(stretch);
    let mut standings: BTreeMap<JobId, (Standing, Option<&CpuSet>)> =
        stretch.gangs.iter().map(|(&job, gang)| (job, (gang.standing, None))).collect();
    // Without a gap before it, nobody knows how the stretch before has left them.
    let mut lifted = stretch.follows_gap.then_some(Level::None);
    // What the stretch before has told may not come about any more.
    let mut told = BTreeMap::new();
    let mut signalled = BTreeMap::<JobId, (bool, u64)>::new();
    let mut edges = BTreeMap::<u64, Edge>::new();
    let mut at_ns = stretch.from_ns;
    while at_ns < stretch.until_ns {
        let slice = clock::slice_at(stretch.config, at_ns);
        let row = wanted(stretch, slice, clock::in_gap(stretch.config, at_ns));
        let mut edge = Edge { at_ns, ..Edge::default() };
        parts.at_ns = at_ns;
        if at_ns == stretch.from_ns {
            edge.tell_before.extend(parts.pages());
        }
        let in_row = row.keys().filter_map(|job| stretch.gangs.get(job));
        let level = in_row.map(|gang| Level::of(gang.in_slot)).max().unwrap_or(Level::None);
        if lifted != Some(level) {
            let list = if level > Level::None { &mut edge.raise } else { &mut edge.lower };
            list.extend(parts.lift(level));
        }
        lifted = Some(level);
        for (&job, state) in &mut standings {
            let (to, cpus) = match row.get(&job) {
                Some(cpus) => (Standing::Raised, Some(*cpus)),
                None => (out_of_slot(stretch, slice, job), state.1),
            };
            let moves = cpus.is_some() && cpus != state.1;
            let newcomers = at_ns == stretch.from_ns && stretch.gangs[&job].has_newcomers;
            if to != state.0 || moves || newcomers {
                let list = if to == Standing::Raised { &mut edge.raise } else { &mut edge.lower };
                list.push(parts.part(job, state.0, to, cpus, newcomers));
                *state = (to, cpus);
            }
        }
        let next_ns = clock::next_edge(stretch.config, at_ns).at_ns;
        for (&job, &(standing, cpus)) in &standings {
            let cpus = cpus.filter(|_| standing == Standing::Raised);
            let Some(word) = word(stretch, job, cpus, next_ns) else { continue };
            if told.insert(job, word) != Some(word) {
                let list = if word.running { &mut edge.tell_after } else { &mut edge.tell_before };
                list.extend(parts.page(job, word));
            }
        }
        for (&job, &(standing, _)) in &standings {
            if stretch.gangs[&job].listeners.is_empty() {
                continue;
            }
            let told = signalled.get(&job).copied();
            let goes_on = standing == Standing::Raised
                || told.is_some_and(|told| told.0) && goes_on(stretch, job, at_ns);
            if told.is_some_and(|told| told.0 == goes_on) {
                continue;
            }
            signalled.insert(job, (goes_on, at_ns));
            if goes_on {
                edge.tell_after.push(parts.signal(job, CONTINUE));
            } else {
                // Early enough to be heard: nobody answers, and nobody is waited for any longer.
                let notice_ns = at_ns.saturating_sub(notice_ns(stretch.config));
                let notice = match told {
                    Some((_, since_ns)) if since_ns < notice_ns => edges
                        .entry(notice_ns)
                        .or_insert(Edge { at_ns: notice_ns, ..Edge::default() }),
                    _ => &mut edge,
                };
                notice.tell_before.push(parts.signal(job, PAUSE));
            }
        }
        if edge.parts().next().is_some() {
            edges.insert(at_ns, edge);
        }
        at_ns = next_ns;
    }
    let raised_at_end = standings.iter().filter(|(_, state)| state.0 == Standing::Raised);
    let mut at_deadline: Vec<usize> = raised_at_end
        .map(|(&job, state)| parts.part(job, Standing::Raised, Standing::Filling, state.1, false))
        .collect();
    for (&job, told) in told.iter().filter(|(_, word)| word.running) {
        let validity = stretch.gangs[&job].validity;
        let word = Word { slice_ns: told.slice_ns, validity, ..Word::default() };
        at_deadline.extend(parts.page(job, word));
    }
    if lifted > Some(Level::None) {
        at_deadline.extend(parts.lift(Level::None));
    }
    let pins = std::mem::take(&mut parts.pins);
    let timetables = parts.into_shares().map(|parts| {
        // A switcher sleeps through an edge at which it has nothing to do.
        let has_work = |edge: &&Edge| edge.parts().any(|part| !parts[part].is_empty());
        Timetable {
            generation: stretch.generation,
            from_ns: stretch.from_ns,
            until_ns: stretch.until_ns,
            ready_ns: 0,
            loses_up_to: 0,
            immediate: Vec::new(),
            edges: edges.values().filter(has_work).cloned().collect(),
            deadline_ns: stretch.deadline_ns,
            at_deadline: at_deadline.clone(),
            parts,
        }
    });
    Composition {
        timetables: timetables.collect(),
        standings: standings
            .iter()
            .filter(|(job, state)| stretch.gangs[job].standing != state.0)
            .map(|(&job, state)| (job, state.0))
            .collect(),
        pins,
    }
}

/// The gangs that are to be raised, with their CPUs.
fn wanted<'a>(stretch: &Stretch<'a>, slice: u64, in_gap: bool) -> BTreeMap<JobId, &'a CpuSet> {
    if in_gap {
        return BTreeMap::new();
    }
    let plan = stretch.plans.iter().find(|plan| plan.slice == slice);
    plan.into_iter().flat_map(|plan| &plan.row).map(|slot| (slot.job, &slot.cpus)).collect()
}

/// What the page of a job says, if it has one, until the next edge; `cpus` are those of its slot.
fn word(stretch: &Stretch<'_>, job: JobId, cpus: Option<&CpuSet>, next_ns: u64) -> Option<Word> {
    let Gang { members, page, validity, .. } = &stretch.gangs[&job];
    page.as_ref()?;
    let slice_ns = stretch.config.slice_ns;
    let out_of_slot = Word { slice_ns, validity: *validity, ..Word::default() };
    Some(cpus.map_or(out_of_slot, |cpus| Word {
        running: true,
        on_cpus: members.threads().len().min(cpus.len()) as u32,
        until_ns: next_ns,
        slice_ns,
        cpus: cpus.len() as u32,
        ..Word::default()
    }))
}

/// How long before the end of its slot a job is told by a signal that it ends.
fn notice_ns(config: &Config) -> u64 {
    (config.slice_ns / 20).min(1_000_000)
}

/// Whether a gap only interrupts the slot of a job. As long as it is not planned what comes after it, it
/// does.
fn goes_on(stretch: &Stretch<'_>, job: JobId, at_ns: u64) -> bool {
    if !clock::in_gap(stretch.config, at_ns) {
        return false;
    }
    let after_ns = clock::next_edge(stretch.config, at_ns).at_ns;
    let slice = clock::slice_at(stretch.config, after_ns);
    let plan = stretch.plans.iter().find(|plan| plan.slice == slice);
    plan.is_none_or(|plan| plan.slot(job).is_some())
}

/// How a gang stands while it is not raised: one that a gap took out of its slot fills, as others
/// do where the policy lets them.
fn out_of_slot(stretch: &Stretch<'_>, slice: u64, job: JobId) -> Standing {
    let mut plans = stretch.plans.iter();
    if plans.any(|plan| plan.slice == slice && plan.slot(job).is_some()) {
        Standing::Filling
    } else {
        stretch.gangs[&job].out_of_row
    }
}

/// What tells parts apart: the job, from where it goes to where, and the CPUs it is restricted to; whether
/// newcomers are restricted to those that the others have.
type Way = (JobId, Standing, Standing, Option<CpuSet>, bool);

/// The parts of a stretch, each written once, in a share for each switcher.
struct Parts<'a> {
    stretch: &'a Stretch<'a>,
    shares: Vec<Vec<Vec<Action>>>,
    numbers: BTreeMap<Way, usize>,
    pins: Vec<Pin>,
    /// The edge that is walked.
    at_ns: u64,
}

impl<'a> Parts<'a> {
    fn new(stretch: &'a Stretch<'a>) -> Parts<'a> {
        let shares = vec![Vec::new(); stretch.groups.len()];
        Parts { stretch, shares, numbers: BTreeMap::new(), pins: Vec::new(), at_ns: 0 }
    }

    fn part(
        &mut self,
        job: JobId,
        from: Standing,
        to: Standing,
        cpus: Option<&CpuSet>,
        newcomers: bool,
    ) -> usize {
        let members = self.stretch.gangs[&job].members;
        let cpus = cpus.filter(|cpus| to == Standing::Raised && self.moves(job, members, cpus));
        if let Some(cpus) = cpus {
            self.pins.push(Pin { at_ns: self.at_ns, job, cpus: affinity(cpus) });
        }
        // Who came from elsewhere may run anywhere yet.
        let kept = self.pinned(job, members).filter(|_| newcomers && cpus.is_none());
        let kept = kept.filter(|_| self.stretch.backend.can_fill());
        let way = (job, from, to, cpus.cloned(), kept.is_some());
        if let Some(&number) = self.numbers.get(&way) {
            return number;
        }
        let mut actions = Vec::new();
        if let Some(cpus) = cpus {
            actions.extend(members.pinning(affinity(cpus)));
        }
        actions.extend(kept.into_iter().flat_map(|cpus| members.pinning(cpus)));
        let in_slot = self.stretch.gangs[&job].in_slot;
        self.stretch.backend.actions(members, from, to, in_slot, &mut actions);
        let owners = self.owners(job);
        let groups = self.stretch.groups;
        let number = self.add(actions, |action| match action {
            Action::Attributes { tid, .. } | Action::Affinity { tid, .. } => {
                let index = members.threads().binary_search_by_key(tid, |thread| thread.tid);
                let of_cpu = |cpu: Option<u32>| {
                    cpu.map(|cpu| groups.of_cpu(cpu)).filter(|owner| owners.contains(owner))
                };
                index.map_or(0, |index| {
                    of_cpu(members.threads()[index].cpu)
                        .unwrap_or_else(|| owners[index % owners.len()])
                })
            }
            Action::Write { .. } | Action::Signal { .. } | Action::Page { .. } => 0,
        });
        self.numbers.insert(way, number);
        number
    }

    /// The switchers that look after a gang: those of the CPUs of its first slot. A thread belongs to
    /// that of the CPU it ran on last; threads of which that is not known are spread over them.
    ///
    /// A thread has the same one all the time: of two, the one that raises it could be late, and
    /// come after the one that lowers it.
    fn owners(&self, job: JobId) -> Vec<usize> {
        let groups = self.stretch.groups;
        let slot = self.stretch.plans.iter().find_map(|plan| plan.slot(job));
        let owners: Vec<usize> = match slot {
            Some(slot) => slot.cpus.iter().map(|cpu| groups.of_cpu(cpu)).collect(),
            None => (0..groups.len()).collect(),
        };
        debug_assert!(!owners.is_empty(), "a slot has a CPU, and a machine a group");
        if owners.is_empty() { vec![0] } else { owners }
    }

    /// Whether a gang has to be restricted to its CPUs: not where it has the whole machine and always
    /// had.
    fn moves(&self, job: JobId, members: &Members, cpus: &CpuSet) -> bool {
        let everywhere = cpus == self.stretch.machine;
        let pinned = self.pinned(job, members);
        let is_there = pinned.map_or(everywhere, |pinned| pinned == affinity(cpus));
        // Gangs that are only paused share CPUs with the rest of the machine as Linux likes.
        !is_there && self.stretch.backend.can_fill()
    }

    /// The CPUs to which the threads of a gang are restricted at the edge that is walked.
    fn pinned(&self, job: JobId, members: &Members) -> Option<thread::CpuSet> {
        let last = self.pins.iter().rev().find(|pin| pin.job == job);
        last.map(|pin| pin.cpus).or(members.pinned)
    }

    fn page(&mut self, job: JobId, word: Word) -> Option<usize> {
        let page = self.stretch.gangs[&job].page?.clone();
        let owner = self.owners(job)[0];
        Some(self.add(vec![Action::Page { page, word }], |_| owner))
    }

    fn pages(&mut self) -> Option<usize> {
        let write =
            |(page, word): &(Arc<SlotPage>, Word)| Action::Page { page: page.clone(), word: *word };
        let actions: Vec<Action> = self.stretch.pages.iter().map(write).collect();
        (!actions.is_empty()).then(|| self.add(actions, |_| 0))
    }

    fn signal(&mut self, job: JobId, signal: Signal) -> usize {
        let mut actions = Vec::new();
        self.stretch.gangs[&job].listeners.tell(signal, &mut actions);
        let owner = self.owners(job)[0];
        self.add(actions, |_| owner)
    }

    fn lift(&mut self, level: Level) -> Option<usize> {
        let actions = self.stretch.lift?.calls(level).to_vec();
        Some(self.add(actions, |_| 0))
    }

    fn add(&mut self, actions: Vec<Action>, owner: impl Fn(&Action) -> usize) -> usize {
        let number = self.shares.first().map_or(0, Vec::len);
        for share in &mut self.shares {
            share.push(Vec::new());
        }
        for action in actions {
            let owner = owner(&action);
            self.shares[owner][number].push(action);
        }
        number
    }

    fn into_shares(self) -> impl Iterator<Item = Vec<Vec<Action>>> {
        self.shares.into_iter()
    }
}

/// A set of CPUs as the kernel wants it.
pub fn affinity(cpus: &CpuSet) -> thread::CpuSet {
    let mut set = thread::CpuSet::new();
    for cpu in cpus.iter().filter(|&cpu| (cpu as usize) < thread::CpuSet::MAX_CPU) {
        set.set(cpu as usize);
    }
    set
}
