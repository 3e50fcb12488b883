use crate::Action;

/// One moment at which somebody enters or leaves a slot. Parts are named by their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeActions {
    /// UTC, nanoseconds.
    pub at_ns: u64,
    pub lower: Vec<usize>,
    pub raise: Vec<usize>,
    /// Pages and signals: of jobs that leave their slot before, of those that enter it after.
    pub notify_before: Vec<usize>,
    pub notify_after: Vec<usize>,
}

impl EdgeActions {
    pub(crate) fn parts(&self) -> impl Iterator<Item = usize> {
        [&self.notify_before, &self.lower, &self.raise, &self.notify_after]
            .into_iter()
            .flatten()
            .copied()
    }
}

/// The work of one switcher in one stretch of time. `A` are actions, or what they were bound to.
#[derive(Clone, Debug)]
pub struct Timetable<A = Action> {
    /// Timetables are numbered from 1; 0 is that of a switcher that got none yet.
    pub generation: u64,
    /// The stretch, UTC. Until `from_ns` the timetable before this one holds; at `until_ns`
    /// switchers look for the next one.
    pub from_ns: u64,
    pub until_ns: u64,
    /// When it was handed over, UTC; 0 until then.
    pub ready_ns: u64,
    /// Of timetables up to this generation, those that were never in force have edges that this one
    /// does not have: 0 where none is lost.
    pub loses_up_to: u64,
    /// Timetables that this one supersedes, the first of them: their generations, and when they
    /// begin (UTC). A switcher that has none that has begun raises nobody any more.
    pub superseded: Vec<(u64, u64)>,
    /// To be done as soon as it is in force, for what changed outside the clock; with the
    /// generation that brought it, since what a timetable had that never was in force goes on with
    /// the next one.
    pub immediate: Vec<(u64, A)>,
    pub parts: Vec<Vec<A>>,
    /// In order of time.
    pub edges: Vec<EdgeActions>,
    /// Without another timetable by then, every gang leaves its slot.
    pub deadline_ns: u64,
    pub at_deadline: Vec<usize>,
}

impl<A> Default for Timetable<A> {
    fn default() -> Self {
        Timetable {
            generation: 0,
            from_ns: 0,
            until_ns: 0,
            ready_ns: 0,
            loses_up_to: 0,
            superseded: Vec::new(),
            immediate: Vec::new(),
            parts: Vec::new(),
            edges: Vec::new(),
            deadline_ns: 0,
            at_deadline: Vec::new(),
        }
    }
}

impl<A> Timetable<A> {
    /// The same timetable, of what each action is bound to. Actions that are bound to nothing are
    /// left out: what they were about is gone.
    pub fn bind<B>(self, mut bind: impl FnMut(A) -> Option<B>) -> Timetable<B> {
        let immediate = self.immediate.into_iter();
        let immediate = immediate.filter_map(|(of, action)| Some((of, bind(action)?))).collect();
        let parts = self.parts.into_iter();
        let parts = parts.map(|part| part.into_iter().filter_map(&mut bind).collect()).collect();
        Timetable {
            generation: self.generation,
            from_ns: self.from_ns,
            until_ns: self.until_ns,
            ready_ns: self.ready_ns,
            loses_up_to: self.loses_up_to,
            superseded: self.superseded,
            immediate,
            parts,
            edges: self.edges,
            deadline_ns: self.deadline_ns,
            at_deadline: self.at_deadline,
        }
    }
}
