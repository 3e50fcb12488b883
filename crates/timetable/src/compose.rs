//! Plans, laid out by the edges of the clock.
//!
//! Problem: what happens at an edge must be nothing but system calls, so all of it has to be worked
//! out before.
//!
//! Terms. A *stretch* is the time that one timetable covers: the slices that are planned in one go.
//! A *part* is the list of actions that takes one job from one standing to another; it is written
//! once and named by the edges that need it. A *switcher* carries out its share of every part: that
//! of the threads whose CPUs it looks after.
//!
//! Algorithm: walk the edges of the stretch; at each, give every gang of the row the standing
//! [`Standing::Raised`] (none in a gap) and every other one its standing out of slot; what changed
//! since the edge before is what the edge has to do, those that leave before those that enter.
//!
//! Properties: after each edge exactly the gangs of that slice's row are raised, none in a gap; the
//! deadline of a timetable leaves none raised. A thread that chose its CPUs itself is raised only
//! in slots that have all of these: elsewhere it fills.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{Config, CpuSet, JobId, Plan, clock};

use crate::{
    Action, Backend, Control, EdgeActions, Group, InSlot, Members, Signal, Standing, Switchers,
    Timetable, Validity, Weight, Word,
    load::{Load, Recurring, excessive},
    lowered,
};

/// A job, as far as a switch is concerned.
#[derive(Debug)]
pub struct Gang<'a> {
    pub members: &'a Members,
    /// At the beginning of the stretch.
    pub standing: Standing,
    /// While it is in no row.
    pub out_of_row: Standing,
    /// It has threads that do not stand as it does yet: they get there at the first edge.
    pub has_new_threads: bool,
    pub in_slot: InSlot,
    /// Its programs read of its slot there.
    pub has_page: bool,
    /// The validity that the page has out of its slot: a job that takes no turns any more may have
    /// a slot yet.
    pub validity: Validity,
    /// Processes that hear of its slots by signals.
    pub listeners: Vec<u32>,
}

/// All that [`compose`] looks at.
pub struct Stretch<'a> {
    pub generation: u64,
    pub config: &'a Config,
    pub backend: Backend,
    pub switchers: &'a Switchers,
    /// CPUs of the machine: a gang that has all of them is not restricted to any.
    pub machine: &'a CpuSet,
    pub from_ns: u64,
    pub until_ns: u64,
    pub deadline_ns: u64,
    /// One for each slice that the stretch touches, in order.
    pub plans: &'a [Plan],
    /// Those that are in a row of the stretch, come into it raised, or filling where others pause,
    /// or have new threads or listeners.
    pub gangs: &'a BTreeMap<JobId, Gang<'a>>,
    /// The words of other jobs' pages from now on. The timetable before may write these pages until
    /// then.
    pub pages: &'a [(JobId, Word)],
    /// The stretch before ends in a gap, in which the group of all gangs gives way.
    pub follows_gap: bool,
    /// All gangs are in one cpu cgroup, whose controls can be set.
    pub has_common_group: bool,
    /// A switcher has time for so many actions of gangs at an edge.
    pub actions_max: usize,
}

/// The weight of the cpu cgroup that all gangs have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CommonWeight {
    /// It gives way.
    None,
    /// It is a group like any other: nobody competes with the gang. Its threads would otherwise
    /// gather on few CPUs. When the kernel places a thread that wakes, it takes a CPU on which only
    /// idle groups run for as good as idle.
    Usual,
    /// It comes before all others: a wide gang is in its slot.
    Highest,
}

impl CommonWeight {
    fn of(in_slot: InSlot) -> CommonWeight {
        match in_slot {
            InSlot::Exclusive | InSlot::Weighed => CommonWeight::None,
            InSlot::Uncontended => CommonWeight::Usual,
            InSlot::Wide => CommonWeight::Highest,
        }
    }

    fn controls(self) -> Vec<Control> {
        match self {
            CommonWeight::None => vec![Control::Idle(true)],
            CommonWeight::Usual => vec![Control::Idle(false), Control::Weight(Weight::Usual)],
            CommonWeight::Highest => vec![Control::Idle(false), Control::Weight(Weight::Highest)],
        }
    }
}

/// The timetables of a stretch, and the standings at its end.
#[derive(Debug, Default)]
pub struct Composition {
    /// One for each group of CPUs.
    pub timetables: Vec<Timetable>,
    /// Standings at the end of the stretch, of those that are not as they were.
    pub standings: BTreeMap<JobId, Standing>,
    /// When the threads of which job are restricted to which CPUs, in order of time.
    pub pins: Vec<Pin>,
    /// Where switchers have no time for what the gangs ask of them.
    pub excessive: Vec<Load>,
}

/// From then on, the threads of a job are restricted to these CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    pub at_ns: u64,
    pub job: JobId,
    pub cpus: CpuSet,
}

/// Lays a stretch of time out.
pub fn compose(stretch: &Stretch<'_>) -> Composition {
    let mut parts = Parts::new(stretch);
    let mut standings: BTreeMap<JobId, (Standing, Option<&CpuSet>)> =
        stretch.gangs.iter().map(|(&job, gang)| (job, (gang.standing, None))).collect();
    // Without a gap before it, nobody knows how the stretch before has left them.
    let mut common = stretch.follows_gap.then_some(CommonWeight::None);
    // Words that the stretch before wrote may not come about any more.
    let mut written = BTreeMap::new();
    let mut signalled = BTreeMap::<JobId, (bool, u64)>::new();
    let mut edges = BTreeMap::<u64, EdgeActions>::new();
    let mut recurring = BTreeMap::<u64, Vec<Recurring>>::new();
    let mut at_ns = stretch.from_ns;
    while at_ns < stretch.until_ns {
        let slice = clock::slice_at(stretch.config, at_ns);
        let row = wanted(stretch, slice, clock::in_gap(stretch.config, at_ns));
        let mut edge = EdgeActions { at_ns, ..EdgeActions::default() };
        parts.at_ns = at_ns;
        if at_ns == stretch.from_ns {
            edge.notify_before.extend(parts.pages());
        }
        let in_row = row.keys().filter_map(|job| stretch.gangs.get(job));
        // Those that stay in groups of their own have no part in it.
        let in_row = in_row.filter(|gang| gang.members.controls.in_idle_group);
        let weight =
            in_row.map(|gang| CommonWeight::of(gang.in_slot)).max().unwrap_or(CommonWeight::None);
        if common != Some(weight) {
            let list = if weight > CommonWeight::None { &mut edge.raise } else { &mut edge.lower };
            list.extend(parts.set_common_group(weight));
        }
        common = Some(weight);
        for (&job, state) in &mut standings {
            let (to, cpus) = match row.get(&job) {
                Some(cpus) => (Standing::Raised, Some(*cpus)),
                None => (out_of_slot(stretch, slice, job), state.1),
            };
            let moves = cpus.is_some() && cpus != state.1;
            let new_threads = at_ns == stretch.from_ns && stretch.gangs[&job].has_new_threads;
            if to != state.0 || moves || new_threads {
                let list = if to == Standing::Raised { &mut edge.raise } else { &mut edge.lower };
                let has_pins = moves && parts.pins.iter().any(|pin| pin.job == job);
                let part = parts.part(job, state.0, to, cpus, new_threads);
                list.push(part);
                if to != state.0 || has_pins {
                    recurring.entry(at_ns).or_default().push(Recurring { job, part, has_pins });
                }
                *state = (to, cpus);
            }
        }
        let next_ns = clock::next_edge(stretch.config, at_ns).at_ns;
        for (&job, &(standing, cpus)) in &standings {
            let cpus = cpus.filter(|_| standing == Standing::Raised);
            let Some(word) = word(stretch, job, cpus, next_ns) else { continue };
            if written.insert(job, word) != Some(word) {
                let list =
                    if word.running { &mut edge.notify_after } else { &mut edge.notify_before };
                list.extend(parts.page(job, word));
            }
        }
        for (&job, &(standing, _)) in &standings {
            if stretch.gangs[&job].listeners.is_empty() {
                continue;
            }
            let last = signalled.get(&job).copied();
            let goes_on = standing == Standing::Raised
                || last.is_some_and(|last| last.0) && goes_on(stretch, job, at_ns);
            if last.is_some_and(|last| last.0 == goes_on) {
                continue;
            }
            signalled.insert(job, (goes_on, at_ns));
            let mut recurs = |at_ns, part| {
                let it = Recurring { job, part, has_pins: false };
                recurring.entry(at_ns).or_default().push(it);
                part
            };
            if goes_on {
                let part = parts.signal(job, Signal::SlotBegins);
                edge.notify_after.push(recurs(at_ns, part));
            } else {
                // Early enough to be heard: nobody answers, and nobody is waited for any longer.
                let notice_ns = at_ns.saturating_sub(notice_ns(stretch.config));
                let notice = match last {
                    Some((_, since_ns)) if since_ns < notice_ns => edges
                        .entry(notice_ns)
                        .or_insert(EdgeActions { at_ns: notice_ns, ..EdgeActions::default() }),
                    _ => &mut edge,
                };
                let part = parts.signal(job, Signal::SlotEnds);
                notice.notify_before.push(recurs(notice.at_ns, part));
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
    for (&job, last) in written.iter().filter(|(_, word)| word.running) {
        let validity = stretch.gangs[&job].validity;
        let word = Word { slice_ns: last.slice_ns, validity, ..Word::default() };
        at_deadline.extend(parts.page(job, word));
    }
    if common > Some(CommonWeight::None) {
        at_deadline.extend(parts.set_common_group(CommonWeight::None));
    }
    let pins = std::mem::take(&mut parts.pins);
    let excessive = excessive(recurring.into_values(), &parts.shares, stretch.actions_max);
    let timetables = parts.into_shares().map(|parts| {
        // A switcher sleeps through an edge at which it has nothing to do.
        let has_work = |edge: &&EdgeActions| edge.parts().any(|part| !parts[part].is_empty());
        Timetable {
            generation: stretch.generation,
            from_ns: stretch.from_ns,
            until_ns: stretch.until_ns,
            ready_ns: 0,
            loses_up_to: 0,
            superseded: Vec::new(),
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
        excessive,
    }
}

/// Has an action leave its thread out of the slot, if the thread is one of these, in order of
/// number.
fn fill(action: &mut Action, threads: &[u32], in_idle_group: bool) {
    if let Action::Attributes { tid, attributes, known } = action {
        if threads.binary_search(tid).is_ok() {
            *attributes = lowered(&known.own, in_idle_group);
        }
    }
}

/// Whether an action that raises a gang depends on the CPUs of its slot.
fn differs_by_slot(action: &Action, members: &Members, in_slot: InSlot) -> bool {
    match action {
        Action::Affinity { .. } => true,
        Action::Attributes { tid, .. } => {
            let threads = members.threads();
            let found = threads.binary_search_by_key(tid, |thread| thread.tid);
            in_slot.raises_threads() && found.is_ok_and(|at| threads[at].user_pinned)
        }
        Action::Control { .. } | Action::Signal { .. } | Action::Page { .. } => false,
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

/// The word of a job's page until the next edge, if it has a page; `cpus` are those of its slot.
fn word(stretch: &Stretch<'_>, job: JobId, cpus: Option<&CpuSet>, next_ns: u64) -> Option<Word> {
    let Gang { members, has_page, validity, .. } = &stretch.gangs[&job];
    if !has_page {
        return None;
    }
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

/// A job gets the signal that its slot ends so long before the end.
fn notice_ns(config: &Config) -> u64 {
    (config.slice_ns / 20).min(1_000_000)
}

/// Whether a gap only interrupts the slot of a job. As long as it is not planned what comes after
/// it, it does.
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

/// The threads of a gang that a part restricts to CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Restricts {
    Nobody,
    /// To those that the others have.
    New,
    /// To those of the slot.
    All,
}

/// What a part follows from.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    job: JobId,
    from: Standing,
    to: Standing,
    /// The CPUs of the slot that begins: threads that chose others fill there.
    slot: Option<CpuSet>,
    restricts: Restricts,
    /// Its slot goes on, on other CPUs.
    moves_on: bool,
}

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
        let shares = vec![Vec::new(); stretch.switchers.len()];
        Parts { stretch, shares, numbers: BTreeMap::new(), pins: Vec::new(), at_ns: 0 }
    }

    fn part(
        &mut self,
        job: JobId,
        from: Standing,
        to: Standing,
        cpus: Option<&CpuSet>,
        new_threads: bool,
    ) -> usize {
        let (members, machine) = (self.stretch.gangs[&job].members, self.stretch.machine);
        let slot = cpus.filter(|_| to == Standing::Raised);
        let cpus = slot.filter(|cpus| self.moves(job, members, cpus));
        if let Some(cpus) = cpus {
            self.pins.push(Pin { at_ns: self.at_ns, job, cpus: cpus.clone() });
        }
        // Threads that came from elsewhere may run anywhere yet.
        let kept = self.pinned(job, members).filter(|_| new_threads && cpus.is_none());
        let kept = kept.filter(|_| self.stretch.backend.can_fill());
        let restricts = if cpus.is_some() {
            Restricts::All
        } else if kept.is_some() {
            Restricts::New
        } else {
            Restricts::Nobody
        };
        let moves_on = from == Standing::Raised && to == Standing::Raised && !new_threads;
        let way = Way { job, from, to, slot: slot.cloned(), restricts, moves_on };
        if let Some(&number) = self.numbers.get(&way) {
            return number;
        }
        let outside = slot.map_or_else(Vec::new, |slot| members.outside(slot, machine));
        let mut actions = Vec::new();
        if let Some(cpus) = cpus {
            actions.extend(members.pinning(cpus));
        }
        actions.extend(kept.iter().flat_map(|cpus| members.pinning(cpus)));
        let in_slot = self.stretch.gangs[&job].in_slot;
        self.stretch.backend.actions(job, members, from, to, in_slot, &mut actions);
        if in_slot.raises_threads() {
            let in_idle_group = members.controls.in_idle_group;
            actions.iter_mut().for_each(|action| fill(action, &outside, in_idle_group));
        }
        if moves_on {
            actions.retain(|action| differs_by_slot(action, members, in_slot));
        }
        let owners = self.owners(job);
        let switchers = self.stretch.switchers;
        let number = self.add(actions, |action| match action {
            Action::Attributes { tid, .. } | Action::Affinity { tid, .. } => {
                let index = members.threads().binary_search_by_key(tid, |thread| thread.tid);
                let of_cpu = |cpu: Option<u32>| {
                    cpu.map(|cpu| switchers.of_cpu(cpu)).filter(|owner| owners.contains(owner))
                };
                index.map_or(0, |index| {
                    of_cpu(members.threads()[index].cpu)
                        .unwrap_or_else(|| owners[index % owners.len()])
                })
            }
            Action::Control { .. } | Action::Signal { .. } | Action::Page { .. } => 0,
        });
        if in_slot == InSlot::Weighed {
            self.repeat_controls(number, owners);
        }
        self.numbers.insert(way, number);
        number
    }

    /// The switchers that look after a gang: those of the CPUs of its first slot. A thread belongs
    /// to that of the CPU it ran on last; threads of which that is not known are spread over them.
    ///
    /// A thread has the same one all the time: of two, the one that raises it could be late, and
    /// come after the one that lowers it.
    fn owners(&self, job: JobId) -> Vec<usize> {
        let switchers = self.stretch.switchers;
        let slot = self.stretch.plans.iter().find_map(|plan| plan.slot(job));
        let owners: Vec<usize> = match slot {
            Some(slot) => slot.cpus.iter().map(|cpu| switchers.of_cpu(cpu)).collect(),
            None => (0..switchers.len()).collect(),
        };
        debug_assert!(!owners.is_empty(), "a slot has a CPU, and a machine a group");
        if owners.is_empty() { vec![0] } else { owners }
    }

    /// Whether a gang has to be restricted to its CPUs: not where it has the whole machine and
    /// always had.
    fn moves(&self, job: JobId, members: &Members, cpus: &CpuSet) -> bool {
        if members.pins_are_unknown && !self.pins.iter().any(|pin| pin.job == job) {
            return self.stretch.backend.can_fill();
        }
        let everywhere = cpus == self.stretch.machine;
        let pinned = self.pinned(job, members);
        let is_there = pinned.map_or(everywhere, |pinned| pinned == *cpus);
        // Gangs that are only paused share CPUs with the rest of the machine as Linux likes.
        !is_there && self.stretch.backend.can_fill()
    }

    /// The CPUs to which the threads of a gang are restricted at the edge that is walked.
    fn pinned(&self, job: JobId, members: &Members) -> Option<CpuSet> {
        let last = self.pins.iter().rev().find(|pin| pin.job == job);
        last.map(|pin| pin.cpus.clone()).or_else(|| members.pinned.clone())
    }

    fn page(&mut self, job: JobId, word: Word) -> Option<usize> {
        if !self.stretch.gangs[&job].has_page {
            return None;
        }
        let owner = self.owners(job)[0];
        Some(self.add(vec![Action::Page { job, word }], |_| owner))
    }

    fn pages(&mut self) -> Option<usize> {
        let write = |&(job, word): &(JobId, Word)| Action::Page { job, word };
        let actions: Vec<Action> = self.stretch.pages.iter().map(write).collect();
        (!actions.is_empty()).then(|| self.add(actions, |_| 0))
    }

    fn signal(&mut self, job: JobId, signal: Signal) -> usize {
        let listeners = self.stretch.gangs[&job].listeners.iter();
        let actions = listeners.map(|&pid| Action::Signal { job, pid, signal }).collect();
        let owner = self.owners(job)[0];
        self.add(actions, |_| owner)
    }

    fn set_common_group(&mut self, weight: CommonWeight) -> Option<usize> {
        let set = |control| Action::Control { group: Group::All, control };
        let actions = weight.controls().into_iter().map(set).collect();
        self.stretch.has_common_group.then(|| self.add(actions, |_| 0))
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

    /// Has each switcher of a gang set what weighs the gang as a whole.
    ///
    /// A CPU notices what a group weighs from now on when it next chooses a thread: the kernel has
    /// nobody choose anew (`sched_group_set_shares`, `sched_group_set_idle`), and the next tick may
    /// be 10 ms away. Each CPU chooses as its own switcher goes to sleep, which may be before
    /// another switcher has set the weight.
    fn repeat_controls(&mut self, number: usize, owners: Vec<usize>) {
        let is_control = |action: &&Action| matches!(action, Action::Control { .. });
        let first = self.shares[0][number].iter();
        let controls: Vec<Action> = first.filter(is_control).cloned().collect();
        for owner in BTreeSet::from_iter(owners).into_iter().filter(|&owner| owner != 0) {
            self.shares[owner][number].extend(controls.iter().cloned());
        }
    }

    fn into_shares(self) -> impl Iterator<Item = Vec<Vec<Action>>> {
        self.shares.into_iter()
    }
}
