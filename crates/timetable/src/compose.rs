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

mod parts;

use std::collections::BTreeMap;

use gang_schedule::{Config, CpuSet, JobId, Plan, clock};
use parts::Parts;

use crate::{
    Backend, Control, EdgeActions, InSlot, Members, Signal, Standing, Switchers, Timetable,
    Validity, Weight, Word,
    load::{Load, Recurring, excessive},
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
    /// It comes before all others: an oversubscribed gang is in its slot.
    Highest,
}

impl CommonWeight {
    fn of(in_slot: InSlot) -> CommonWeight {
        match in_slot {
            InSlot::Exclusive | InSlot::Weighed => CommonWeight::None,
            InSlot::Uncontended => CommonWeight::Usual,
            InSlot::Oversubscribed => CommonWeight::Highest,
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
