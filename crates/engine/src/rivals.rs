//! Wishes of rivals ([`gang_timetable::ways`]), and their way to a switcher.
//!
//! Problem: rivals want CPUs between the edges of a timetable. A thread that gives way is lowered
//! and raised again. If anybody but its switcher did that, the thread could stay raised after its
//! slot.
//!
//! Approach: another thread leaves its wish in memory and wakes the switcher. The switcher moves
//! only threads that its own timetable has in their slots at that moment.
//!
//! Properties: neither side waits, allocates or takes a lock. A wish for which there is no room is
//! lost, and the rival waits for the end of the slot.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use gang_linux::clock::Alarm;
use gang_timetable::{
    Timetable,
    follower::{Follower, Hands},
};

use crate::bound::Bound;

/// Threads that may be asked to give way at a time.
const WISHES_MAX: usize = 16;

/// The threads that are asked to give way, and do not know yet; 0 where there is room.
#[derive(Debug, Default)]
pub struct Wishes([AtomicU32; WISHES_MAX]);

impl Wishes {
    fn add(&self, tid: u32) {
        let place = |room: &AtomicU32| {
            room.compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let _ = self.0.iter().any(place);
    }

    /// Does what was asked for, as far as the timetable in force permits.
    pub(crate) fn fulfil(
        &self,
        follower: &mut Follower<Arc<Timetable<Bound>>>,
        now_ns: u64,
        hands: &impl Hands<Bound>,
    ) {
        let taken = self.0.iter().map(|room| room.swap(0, Ordering::AcqRel));
        taken.filter(|&tid| tid != 0).for_each(|tid| {
            follower.give_way(tid, now_ns, hands);
        });
    }
}

/// The way to a switcher for a thread that speaks for rivals.
#[derive(Clone, Debug)]
pub struct Handle {
    wishes: Arc<Wishes>,
    alarm: Arc<Alarm>,
}

impl Handle {
    pub(crate) fn new(wishes: Arc<Wishes>, alarm: Arc<Alarm>) -> Handle {
        Handle { wishes, alarm }
    }

    /// A thread goes behind others of its priority, if it is in its slot and this switcher's.
    pub fn give_way(&self, tid: u32) {
        self.wishes.add(tid);
        self.alarm.ring();
    }
}
