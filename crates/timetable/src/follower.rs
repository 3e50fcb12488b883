//! How a timetable is followed, and replaced by the next one.
//!
//! Problem: timetables are made far ahead, and replaced when something changes. Whoever follows one
//! may be late, and may miss one that was replaced before it was looked at.
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
//! timetable that comes after it. Nothing is allocated.

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

/// Carries actions out, and takes note of how that went.
pub trait Hands<A> {
    fn perform(&self, action: &A);

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
}

impl<P> Follower<P> {
    pub fn new(first: P) -> Follower<P> {
        Follower { cursor: Cursor::default(), current: first }
    }

    pub fn current(&self) -> &P {
        &self.current
    }

    /// Whether a gang left its slot since this was asked last.
    pub fn take_lowered(&mut self) -> bool {
        std::mem::take(&mut self.cursor.has_lowered)
    }

    /// Carries out what is due, of the timetable in force and of the next one; says when to come
    /// back. `None`: when there is another timetable.
    pub fn follow<A>(&mut self, next: &P, now_ns: u64, hands: &impl Hands<A>) -> Option<u64>
    where
        P: Clone + Deref<Target = Timetable<A>>,
    {
        if next.generation == self.current.generation {
            return self.cursor.advance(&self.current, now_ns, hands);
        }
        let begins_ns = next.from_ns;
        if now_ns < begins_ns {
            let mut newer = next.superseded.iter().filter(|(of, _)| *of > self.current.generation);
            let is_over = newer.any(|(_, from_ns)| now_ns >= *from_ns);
            let late = if is_over { Late::LowersOnly } else { Late::Raises };
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
