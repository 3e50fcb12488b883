//! How a timetable is followed, and replaced by the next one.
//!
//! Problem: timetables are made far ahead, and replaced when something changes. A switcher may
//! be late, and may miss one that was replaced before it was looked at.
//!
//! Approach: a timetable holds until the beginning of the next one. A [`Follower`] remembers up to
//! which moment it has carried edges out. It is *out of step* where it carries out edges although
//! the next timetable has begun, or where it never sees some edges: its actions may then come after
//! those of others, and undo them. It reports that.
//!
//! Properties: each edge of a timetable that lies before the next one is carried out once, in
//! order, late rather than never. Once the next one has begun, a late edge raises nobody: another
//! follower may have lowered those threads, and nobody might lower them again. A timetable that is
//! not replaced in time leaves every gang out of its slot. A step of the clock loses no edge of a
//! timetable that comes after it. Between edges, only threads that the timetable in force has in
//! their slots give way to others of their priority. Nothing is allocated.

use std::ops::Deref;

use crate::Timetable;

/// The phases of one switch of one switcher. Points of time are UTC, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// The edge of the clock it belongs to.
    pub asked_ns: u64,
    /// When its first call was made.
    pub began_ns: u64,
    /// When those leaving their slot had left it.
    pub lowered_ns: u64,
    /// When those entering theirs were in it.
    pub raised_ns: u64,
    /// Calls made to take gangs out of their slot, and into it.
    pub lowers: u32,
    pub raises: u32,
}

/// Something bound to an action that may be about a thread.
pub trait OfThread {
    /// The thread whose attributes it sets, and whether they raise the thread.
    fn of_thread(&self) -> Option<(u32, bool)>;
}

/// Carries actions out, and takes note of how that went.
pub trait Hands<A> {
    fn perform(&self, action: &A);

    /// A raised thread goes behind others of its priority; `action` is any of those on it.
    fn give_way(&self, _action: &A) {}

    /// A thread that gave way is lowered by an action, if it is raised.
    fn lower_if_raised(&self, _action: &A) {}

    /// The time that it is (UTC).
    fn now_ns(&self) -> u64;

    fn switched(&self, _switch: &Switch) {}

    /// A timetable was not replaced in time.
    fn ran_out(&self) {}

    /// A timetable came after its beginning.
    fn came_late(&self) {}

    /// Edges were missed, or carried out after others had begun with the next timetable.
    fn out_of_step(&self) {}
}

/// The part of a late edge that is still carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    /// The timetable is in force.
    Raises,
    /// Another one has begun, also one that is superseded: somebody else may have lowered what
    /// would be raised.
    LowersOnly,
}

/// Where one stands in a timetable.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    generation: u64,
    /// Edges up to this point of time were carried out.
    done_until_ns: u64,
    expired: bool,
    /// The edges of the timetable in force that were carried out, and the last of them.
    edges: u64,
    last_edge_ns: u64,
    /// A gang left its slot since this was last looked at.
    has_lowered: bool,
}

impl Cursor {
    /// Carries out what is due at `now`, and says when to come back; `None`: when there is another
    /// timetable.
    pub fn advance<A>(
        &mut self,
        timetable: &Timetable<A>,
        now_ns: u64,
        hands: &impl Hands<A>,
    ) -> Option<u64> {
        self.advance_in(timetable, now_ns, Late::Raises, hands)
    }

    fn advance_in<A>(
        &mut self,
        timetable: &Timetable<A>,
        now_ns: u64,
        late: Late,
        hands: &impl Hands<A>,
    ) -> Option<u64> {
        if timetable.generation != self.generation {
            let last = std::mem::replace(&mut self.generation, timetable.generation);
            let new = timetable.immediate.iter().filter(|(generation, _)| *generation > last);
            new.for_each(|(_, action)| hands.perform(action));
            self.expired = false;
            (self.edges, self.last_edge_ns) = (0, 0);
            // A clock that was set back makes past edges future ones.
            self.done_until_ns = self.done_until_ns.min(timetable.from_ns.saturating_sub(1));
        }
        let due = timetable.edges.partition_point(|edge| edge.at_ns <= now_ns);
        let done = timetable.edges.partition_point(|edge| edge.at_ns <= self.done_until_ns);
        for edge in timetable.edges.get(done..due).unwrap_or_default() {
            (self.edges, self.last_edge_ns) = (self.edges + 1, edge.at_ns);
            perform(timetable, &edge.notify_before, hands);
            let began_ns = hands.now_ns();
            let lowers = perform(timetable, &edge.lower, hands);
            self.has_lowered |= lowers > 0;
            let lowered_ns = hands.now_ns();
            let raises = match late {
                Late::Raises => perform(timetable, &edge.raise, hands),
                Late::LowersOnly => 0,
            };
            let raised_ns = hands.now_ns();
            perform(timetable, &edge.notify_after, hands);
            if lowers + raises > 0 {
                let asked_ns = edge.at_ns;
                hands.switched(&Switch {
                    asked_ns,
                    began_ns,
                    lowered_ns,
                    raised_ns,
                    lowers,
                    raises,
                });
            }
        }
        self.done_until_ns = self.done_until_ns.max(now_ns);
        if now_ns >= timetable.deadline_ns && !self.expired {
            self.expired = true;
            if perform(timetable, &timetable.at_deadline, hands) > 0 {
                hands.ran_out();
            }
        }
        let edges = timetable.edges[due..].iter().map(|edge| edge.at_ns);
        let ends = [timetable.until_ns, timetable.deadline_ns];
        edges.chain(ends).find(|&at| at > now_ns)
    }
}

fn perform<A>(timetable: &Timetable<A>, parts: &[usize], hands: &impl Hands<A>) -> u32 {
    let mut count = 0;
    for action in parts.iter().flat_map(|&part| &timetable.parts[part]) {
        hands.perform(action);
        count += 1;
    }
    count
}

/// Follows one timetable after the other. `P` points to a timetable that somebody else keeps.
#[derive(Clone, Debug)]
pub struct Follower<P> {
    cursor: Cursor,
    /// The timetable in force.
    current: P,
    /// It alone decides about its threads until then, as far as is known (UTC).
    alone_until_ns: u64,
    /// The threads that gave way last, and when each was raised again (UTC).
    gave_way: [(u32, u64); GAVE_WAY_MAX],
}

/// Threads that give way are remembered until the next timetable, so many of them.
const GAVE_WAY_MAX: usize = 16;

/// No thread gives way so shortly before another timetable begins: another follower may lower the
/// thread then.
const MARGIN_NS: u64 = 100_000;

impl<P> Follower<P> {
    pub fn new(first: P) -> Follower<P> {
        Follower {
            cursor: Cursor::default(),
            current: first,
            alone_until_ns: 0,
            gave_way: Default::default(),
        }
    }

    pub fn current(&self) -> &P {
        &self.current
    }

    /// Whether a gang left its slot since this was asked last.
    pub fn take_lowered(&mut self) -> bool {
        std::mem::take(&mut self.cursor.has_lowered)
    }

    /// A thread goes behind others of its priority, where the timetable in force has it in its
    /// slot. False where it has not, and shortly before another timetable begins. To be called
    /// after [`Follower::follow`].
    pub fn give_way<A: OfThread>(&mut self, tid: u32, now_ns: u64, hands: &impl Hands<A>) -> bool
    where
        P: Deref<Target = Timetable<A>>,
    {
        if now_ns + MARGIN_NS >= self.alone_until_ns || self.cursor.expired {
            return false;
        }
        let Some(action) = self.current.raised(tid, self.cursor.done_until_ns) else {
            return false;
        };
        hands.give_way(action);
        self.gave_way.rotate_right(1);
        self.gave_way[0] = (tid, hands.now_ns());
        true
    }

    /// Lowers the threads that gave way when the timetable in force was over, of which nothing was
    /// known then: another follower may have lowered them in between. True where there are any.
    fn lower_those_that_gave_way<A: OfThread>(
        &mut self,
        over_ns: u64,
        hands: &impl Hands<A>,
    ) -> bool
    where
        P: Deref<Target = Timetable<A>>,
    {
        let gave_way = std::mem::take(&mut self.gave_way);
        let late = gave_way.iter().filter(|(tid, at_ns)| *tid != 0 && *at_ns >= over_ns);
        let mut is_late = false;
        for (tid, _) in late {
            is_late = true;
            let lowers = |action: &&A| action.of_thread() == Some((*tid, false));
            let lowered = self.current.parts.iter().flatten().find(lowers);
            lowered.into_iter().for_each(|action| hands.lower_if_raised(action));
        }
        is_late
    }

    /// Carries out what is due, of the timetable in force and of the next one; says when to come
    /// back. `None`: when there is another timetable.
    pub fn follow<A: OfThread>(
        &mut self,
        next: &P,
        now_ns: u64,
        hands: &impl Hands<A>,
    ) -> Option<u64>
    where
        P: Clone + Deref<Target = Timetable<A>>,
    {
        if next.generation == self.current.generation {
            self.alone_until_ns = self.current.until_ns.min(self.current.deadline_ns);
            return self.cursor.advance(&self.current, now_ns, hands);
        }
        let begins_ns = next.from_ns;
        let newer = next.superseded.iter().filter(|(of, _)| *of > self.current.generation);
        let over_ns = newer.map(|(_, from_ns)| *from_ns).chain([begins_ns]).min();
        let over_ns = over_ns.unwrap_or(begins_ns);
        if now_ns >= over_ns && self.lower_those_that_gave_way(over_ns, hands) {
            hands.out_of_step();
        }
        if now_ns < begins_ns {
            let is_over = now_ns >= over_ns;
            let late = if is_over { Late::LowersOnly } else { Late::Raises };
            self.alone_until_ns = over_ns;
            let wake_ns = self.cursor.advance_in(&self.current, now_ns, late, hands);
            return Some(wake_ns.map_or(begins_ns, |wake_ns| wake_ns.min(begins_ns)));
        }
        if next.is_belated_after(&self.current) {
            hands.came_late();
        }
        let (edges, had_expired) = (self.cursor.edges, self.cursor.expired);
        let until_ns = now_ns.min(begins_ns.saturating_sub(1));
        self.cursor.advance_in(&self.current, until_ns, Late::LowersOnly, hands);
        let has_ended = self.cursor.expired && !had_expired && self.current.lowers_at_deadline();
        let is_late = self.cursor.edges > edges || has_ended;
        let went_on = self.cursor.last_edge_ns >= begins_ns
            || (self.cursor.expired && self.current.deadline_ns >= begins_ns);
        if is_late || went_on || next.loses_up_to > self.current.generation {
            hands.out_of_step();
        }
        self.current = next.clone();
        self.alone_until_ns = self.current.until_ns.min(self.current.deadline_ns);
        self.cursor.advance(&self.current, now_ns, hands)
    }

    /// Takes every gang out of its slot, as after a timetable that is not replaced.
    pub fn end<A>(&mut self, hands: &impl Hands<A>)
    where
        P: Deref<Target = Timetable<A>>,
    {
        self.cursor.advance(&self.current, self.current.deadline_ns, hands);
    }
}

/// The most that a timetable remembers of those that it supersedes: the first ones begin first.
const SUPERSEDED_MAX: usize = 8;

impl<A> Timetable<A> {
    /// An action on a thread that is in its slot when the edges up to a moment are carried out:
    /// the last one of these, where that raised the thread, or else the next one, where that lowers
    /// it. Absent where the thread is not in its slot, or somebody else's.
    fn raised(&self, tid: u32, done_until_ns: u64) -> Option<&A>
    where
        A: OfThread,
    {
        let done = self.edges.partition_point(|edge| edge.at_ns <= done_until_ns);
        let (past, coming) = self.edges.split_at(done);
        let of = |parts: &'_ [usize]| {
            let actions = parts.iter().flat_map(|&part| &self.parts[part]);
            let mut its = actions.filter_map(|action| {
                let (of, raises) = action.of_thread()?;
                (of == tid).then_some((action, raises))
            });
            its.next()
        };
        let last = past.iter().rev().find_map(|edge| of(&edge.raise).or_else(|| of(&edge.lower)));
        if let Some((action, raises)) = last {
            return raises.then_some(action);
        }
        let next = coming.iter().find_map(|edge| of(&edge.lower).or_else(|| of(&edge.raise)));
        let (action, raises) = next.or_else(|| of(&self.at_deadline))?;
        (!raises).then_some(action)
    }

    fn lowers_at_deadline(&self) -> bool {
        self.at_deadline.iter().any(|&part| !self.parts[part].is_empty())
    }

    /// Takes the place of `last`, which is not in force yet: what was to be done at once with that
    /// one is done with this one. This one should begin where that one would have: else its edges
    /// may be lost.
    pub fn supersede(&mut self, last: &Timetable<A>)
    where
        A: Clone,
    {
        let is_whole = self.from_ns <= last.from_ns;
        self.loses_up_to = if is_whole { last.loses_up_to } else { last.generation };
        self.superseded = last.superseded.iter().copied().take(SUPERSEDED_MAX - 1).collect();
        self.superseded.push((last.generation, last.from_ns));
        let mut immediate = last.immediate.clone();
        immediate.append(&mut self.immediate);
        self.immediate = immediate;
    }

    /// Whether it came after its beginning, which lies in the time of the one before: that one was
    /// followed for too long, or had ended. One that comes after a rest goes on with nothing.
    pub fn is_belated_after(&self, before: &Timetable<A>) -> bool {
        let goes_on = before.from_ns <= self.from_ns && self.from_ns <= before.until_ns;
        goes_on && !before.edges.is_empty() && self.ready_ns > self.from_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EdgeActions;

    /// A thread and whether it is raised.
    #[derive(Clone, Copy)]
    struct Set(u32, bool);

    impl OfThread for Set {
        fn of_thread(&self) -> Option<(u32, bool)> {
            Some((self.0, self.1))
        }
    }

    #[derive(Default)]
    struct Noted {
        now_ns: std::cell::Cell<u64>,
        lowered: std::cell::RefCell<Vec<u32>>,
        gave_way: std::cell::RefCell<Vec<u32>>,
        out_of_step: std::cell::Cell<bool>,
    }

    impl Hands<Set> for Noted {
        fn perform(&self, _: &Set) {}

        fn give_way(&self, of: &Set) {
            self.gave_way.borrow_mut().push(of.0);
        }

        fn lower_if_raised(&self, of: &Set) {
            assert!(!of.1);
            self.lowered.borrow_mut().push(of.0);
        }

        fn now_ns(&self) -> u64 {
            self.now_ns.get()
        }

        fn out_of_step(&self) {
            self.out_of_step.set(true);
        }
    }

    const MS: u64 = 1_000_000;

    /// Thread 1 is raised from the beginning to 10 ms, thread 2 from there on; 3 has no slot.
    fn of_two(generation: u64, from_ms: u64) -> Timetable<Set> {
        let edge = |ms, lower, raise| EdgeActions {
            at_ns: (from_ms + ms) * MS,
            lower: vec![lower],
            raise: vec![raise],
            ..EdgeActions::default()
        };
        Timetable {
            generation,
            from_ns: from_ms * MS,
            until_ns: (from_ms + 20) * MS,
            deadline_ns: (from_ms + 25) * MS,
            parts: vec![vec![Set(1, false)], vec![Set(2, true)], vec![Set(2, false)]],
            edges: vec![edge(10, 0, 1)],
            at_deadline: vec![2],
            ..Timetable::default()
        }
    }

    /// The threads that give way at a moment.
    fn give_way(follower: &mut Follower<&Timetable<Set>>, hands: &Noted, now_ns: u64) -> Vec<u32> {
        let each = (1..4).filter(|&tid| follower.give_way(tid, now_ns, hands)).collect();
        assert_eq!(hands.gave_way.take(), each);
        each
    }

    #[test]
    fn threads_in_their_slots_alone_give_way() {
        let (first, one) = (Timetable::default(), of_two(1, 100));
        let (mut follower, hands) = (Follower::new(&first), Noted::default());
        let mut at = |ns: u64| {
            follower.follow(&&one, ns, &hands);
            give_way(&mut follower, &hands, ns)
        };
        assert!(at(99 * MS).is_empty(), "nothing is in force");
        assert_eq!(at(100 * MS), [1], "raised before it");
        assert_eq!(at(109 * MS), [1]);
        assert_eq!(at(110 * MS), [2]);
        assert_eq!(at(119 * MS), [2]);
        assert!(at(120 * MS - 1).is_empty(), "others may begin with the next one");
        assert!(at(122 * MS).is_empty());
        assert!(at(125 * MS).is_empty(), "the deadline has lowered all");
    }

    #[test]
    fn nobody_gives_way_when_the_next_timetable_begins() {
        let (first, one, two) = (Timetable::default(), of_two(1, 100), of_two(2, 105));
        let (mut follower, hands) = (Follower::new(&first), Noted::default());
        follower.follow(&&one, 100 * MS, &hands);
        follower.follow(&&two, 103 * MS, &hands);
        assert_eq!(give_way(&mut follower, &hands, 103 * MS), [1]);
        assert!(give_way(&mut follower, &hands, 105 * MS - 1).is_empty());
        follower.follow(&&two, 105 * MS, &hands);
        assert!(!hands.out_of_step.get() && hands.lowered.borrow().is_empty());
        assert_eq!(give_way(&mut follower, &hands, 105 * MS), [1]);
        // One that was superseded has begun: others may have lowered what would be raised.
        let mut three = of_two(3, 118);
        three.superseded.push((2, 112 * MS));
        three.superseded.push((3, 112 * MS));
        follower.follow(&&three, 113 * MS, &hands);
        assert!(give_way(&mut follower, &hands, 113 * MS).is_empty());
    }

    #[test]
    fn giving_way_after_next_timetable_is_out_of_step() {
        let (first, one, two) = (Timetable::default(), of_two(1, 100), of_two(2, 105));
        let (mut follower, hands) = (Follower::new(&first), Noted::default());
        follower.follow(&&one, 104 * MS, &hands);
        // It takes the calls past the beginning of a timetable that comes late.
        hands.now_ns.set(106 * MS);
        assert!(follower.give_way(1, 104 * MS, &hands));
        assert_eq!(hands.lowered.take(), [0; 0]);
        follower.follow(&&two, 107 * MS, &hands);
        assert!(hands.out_of_step.get());
        // Another follower may have lowered it before it was raised again.
        assert_eq!(hands.lowered.take(), [1]);
    }

    #[test]
    fn timetable_after_its_beginning_is_belated() {
        let timetable = |from_ns, until_ns, ready_ns| Timetable::<()> {
            from_ns,
            until_ns,
            ready_ns,
            edges: vec![EdgeActions::default()],
            ..Timetable::default()
        };
        let before = timetable(100, 200, 90);
        for (next, is) in [
            (timetable(200, 300, 180), false),
            (timetable(200, 300, 200), false),
            (timetable(200, 300, 201), true),
            (timetable(150, 300, 151), true),
            (timetable(900, 990, 950), false),
            (timetable(50, 90, 95), false),
        ] {
            assert_eq!(next.is_belated_after(&before), is, "{next:?}");
        }
        let first = timetable(0, 300, 201);
        assert!(!first.is_belated_after(&Timetable::default()), "the first one");
    }
}
