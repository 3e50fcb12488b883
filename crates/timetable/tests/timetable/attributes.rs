//! The attributes of a thread before gangd, from those that it has.

use gang_timetable::{Attributes, before_gangd, priority};

const BATCH: Attributes = Attributes::batch(10);

#[test]
fn what_gangd_gave_a_parent_is_not_the_childs_own() {
    for (now, expected) in [
        (Attributes::idle(3), Attributes { nice: 3, ..BATCH }),
        (Attributes::fifo(priority::GANG), Attributes { nice: 0, ..BATCH }),
        (Attributes { nice: -20, ..Attributes::fifo(priority::GANG) }, BATCH),
        (Attributes::other(-20), BATCH),
    ] {
        assert_eq!(before_gangd(now, BATCH, false), expected, "{now:?}");
        assert_eq!(before_gangd(now, BATCH, true), expected, "{now:?}");
    }
}

#[test]
fn what_a_thread_chose_itself_stays() {
    for now in [
        Attributes::other(5),
        Attributes::fifo(priority::GANG + 1),
        Attributes { reset_on_fork: false, ..Attributes::fifo(priority::GANG) },
    ] {
        assert_eq!(before_gangd(now, BATCH, false), now);
        assert_eq!(before_gangd(now, BATCH, true), now);
    }
}

#[test]
fn batch_thread_is_own_choice_or_filling() {
    let normal = Attributes::other(10);
    assert_eq!(before_gangd(Attributes::batch(3), normal, false), Attributes::batch(3));
    assert_eq!(before_gangd(Attributes::batch(3), normal, true), Attributes::other(3));
}

#[test]
fn child_of_a_raised_thread_regains_nice_value() {
    assert_eq!(before_gangd(Attributes::other(0), BATCH, true), BATCH);
    assert_eq!(before_gangd(Attributes::other(0), BATCH, false), Attributes::other(0));
}
