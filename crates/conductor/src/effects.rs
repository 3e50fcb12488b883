//! The effects of decisions.

use std::collections::BTreeSet;

use gang_schedule::{Config, CpuSet, Gap, JobId, Plan};
use gang_timetable::{Action, InSlot, Timetable};

use crate::Conductor;

/// The effects of decisions, [carried out](Effects::carry_out) in this order.
///
/// 1. `orders` are bound to what they name, and wait for the next timetables. They come first: the
///    descriptors of a job or a process that is over go after this.
/// 2. `measures` begin or end measuring. `planned` gives slots to those gangs that are measured.
/// 3. `pins` are on file before a switcher gets them: a release must distinguish CPUs that were
///    given from CPUs that a program chose.
/// 4. `overtaken` orders are dropped, before the timetables take the others along.
/// 5. `timetables` go to the switchers, the first of them with all orders that wait. They come
///    before all that can wait. And all that a page or a figure says of them later holds.
/// 6. `slots` go to the pages, which count those that have begun.
/// 7. `planned` goes to the kernel's programs, which take it for the slots of the time to come.
/// 8. `regroups` go to the thread that moves gangs. The thread waits for timetables that were made
///    with the decision to move, or later.
/// 9. `notes` go to the log, where nothing waits for them.
///
/// Of decisions outside of plans, there are orders, measures, regroups and notes alone.
///
/// The answers to requests and looks are apart: the record that is to be on file
/// ([`crate::life::Filed`]), processes that leave ([`crate::life::Leaver`]), strays
/// ([`crate::Stray`]). The thread of a client writes files and waits for switchers, in an order of
/// its own; the thread that plans must do neither.
#[derive(Debug, Default)]
pub struct Effects {
    /// Actions for what changed outside the clock. They name what is there now.
    pub orders: Vec<Action>,
    /// Changes of what is measured, in order.
    pub measures: Vec<Measure>,
    /// CPUs that threads of a job are going to be restricted to.
    pub pins: Vec<(JobId, CpuSet)>,
    pub overtaken: Overtaken,
    /// One for each switcher.
    pub timetables: Vec<Timetable>,
    /// How many slots jobs have had, where their pages do not say so yet.
    pub slots: Vec<(JobId, u64)>,
    /// Absent outside of plans.
    pub planned: Option<Planned>,
    /// The gangs that are to move between groups from now on.
    pub regroups: Vec<JobId>,
    pub notes: Vec<Note>,
}

impl Effects {
    pub fn carry_out(self, carrier: &mut impl Carrier) {
        carrier.order(self.orders);
        self.measures.into_iter().for_each(|change| carrier.measure(change));
        self.pins.iter().for_each(|(job, cpus)| carrier.give(*job, cpus));
        carrier.drop_overtaken(&self.overtaken);
        let timetables = self.timetables.into_iter().enumerate();
        timetables.for_each(|(at, timetable)| carrier.publish(at, timetable));
        self.slots.into_iter().for_each(|(job, slots)| carrier.count_slots(job, slots));
        self.planned.iter().for_each(|planned| carrier.plan(planned));
        self.regroups.into_iter().for_each(|job| carrier.regroup(job));
        self.notes.into_iter().for_each(|note| carrier.note(note));
    }
}

/// The kinds of effects, as a daemon carries them out.
pub trait Carrier {
    /// Binds orders to what they name now. They wait for the next timetable.
    fn order(&mut self, orders: Vec<Action>);
    fn measure(&mut self, change: Measure);
    /// Puts on file that these CPUs are given to threads of a job.
    fn give(&mut self, job: JobId, cpus: &CpuSet);
    /// Drops the orders among those that wait.
    fn drop_overtaken(&mut self, overtaken: &Overtaken);
    /// Hands a switcher its timetable, with the orders that wait.
    fn publish(&mut self, switcher: usize, timetable: Timetable);
    /// Writes on the page of a job how many slots the job has had.
    fn count_slots(&mut self, job: JobId, slots: u64);
    fn plan(&mut self, planned: &Planned);
    fn regroup(&mut self, job: JobId);
    fn note(&mut self, note: Note);
}

/// Threads that the next timetable restricts, although an order that waits sets their CPUs: they
/// were left alone, or bound, as the order was made. Another switcher might carry the order out
/// after the edge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overtaken(BTreeSet<u32>);

impl Overtaken {
    pub fn has(&self, order: &Action) -> bool {
        matches!(order, Action::Affinity { tid, .. } if self.0.contains(tid))
    }
}

/// The plans of a stretch of time (UTC), with the gaps in force.
#[derive(Debug, Default)]
pub struct Planned {
    pub config: Config,
    pub from_ns: u64,
    pub until_ns: u64,
    pub plans: Vec<Plan>,
}

/// A change of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A job has its first process.
    Watch(JobId),
    /// The job has another policy, and may live elsewhere.
    Follow(JobId),
    /// The job sleeps; the first of its threads that wants to run is to be reported.
    AwaitWaking(JobId),
    /// The job is over.
    Forget(JobId),
}

/// A message for an administrator or a developer.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Slot mode of a gang changed.
    InSlot(JobId, InSlot),
    /// More threads than are switched: no slots until it has fewer.
    TooManyThreads(JobId),
    /// More threads than an edge has time for: no slots until it has fewer.
    Crowded(JobId),
    /// Gangs that had the machine for themselves are disturbed.
    Disturbed,
    /// Gaps come more or less often.
    Gaps(Gap),
    /// Other terms for the classes from now on.
    WorkingHours(bool),
}

impl Conductor {
    /// The effects of what was decided since the last call, outside of plans.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn order(&mut self, actions: impl IntoIterator<Item = Action>) {
        for action in actions {
            if let Action::Affinity { tid, .. } = action {
                self.ordered_cpus.insert(tid);
            }
            self.effects.orders.push(action);
        }
    }

    pub(crate) fn measure(&mut self, change: Measure) {
        self.effects.measures.push(change);
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.effects.notes.push(note);
    }

    /// The orders since the last timetable that the next one, which was made just now, overtakes.
    pub(crate) fn overtaken(&mut self) -> Overtaken {
        let ordered = std::mem::take(&mut self.ordered_cpus);
        if ordered.is_empty() {
            return Overtaken::default();
        }
        let gangs = self.planned_gangs().iter().filter_map(|job| self.jobs.get(job));
        let threads = gangs.filter_map(|job| job.home.as_ref()).flat_map(|it| it.members.threads());
        let is_restricted = |thread: &&gang_timetable::Thread| {
            ordered.contains(&thread.tid) && !thread.is_exempt() && !thread.user_pinned
        };
        Overtaken(threads.filter(is_restricted).map(|thread| thread.tid).collect())
    }
}
