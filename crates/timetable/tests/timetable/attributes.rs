//! The attributes of a thread before gangd, from those that it has.

use gang_schedule::CpuSet;
use gang_timetable::{
    Attributes, Controls, Known, Members, OVERSUBSCRIBED, SchedPolicy, as_default, before_gangd,
    priority, released, released_inheritor,
};

const BATCH: Attributes = Attributes::batch(10);

#[test]
fn what_gangd_gave_a_parent_is_not_the_childs_own() {
    for (now, expected) in [
        (Attributes::fifo(priority::GANG), Attributes { nice: 0, ..BATCH }),
        (Attributes { nice: -20, ..Attributes::fifo(priority::GANG) }, BATCH),
        (OVERSUBSCRIBED, BATCH),
    ] {
        assert_eq!(before_gangd(now, BATCH, false), expected, "{now:?}");
        assert_eq!(before_gangd(now, BATCH, true), expected, "{now:?}");
    }
    // Nobody that gangd has raised was real-time of its own.
    let normal = Attributes::fifo(priority::GANG + 1);
    assert_eq!(before_gangd(Attributes::idle(3), normal, true), Attributes::other(3));
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
fn batch_or_idle_thread_is_own_choice_or_filling() {
    let normal = Attributes::other(10);
    for now in [Attributes::batch(3), Attributes::idle(3)] {
        assert_eq!(before_gangd(now, normal, false), now);
        assert_eq!(before_gangd(now, normal, true), Attributes::other(3));
    }
}

/// A thread of a job in an idle group, whose owner wants SCHED_OTHER with a nice value of 5.
const KNOWN: Known = Known {
    own: Attributes::other(5),
    first_seen: Attributes::other(5),
    in_idle_group: true,
    has_moved: false,
    was_oversubscribed: true,
};

/// The same of a job that was never oversubscribed.
const EXCLUSIVE: Known = Known { was_oversubscribed: false, ..KNOWN };

/// As in a slot and out of it: children are ordinary threads.
fn flagged(of: Attributes) -> Attributes {
    Attributes { reset_on_fork: true, ..of }
}

#[test]
fn switch_changes_policy_and_leaves_the_nice_value() {
    let (fifo, oversubscribed) = (Attributes::fifo(priority::GANG), OVERSUBSCRIBED);
    let nice = |nice, of: Attributes| Attributes { nice, ..of };
    let batch = |nice| flagged(Attributes::batch(nice));
    for (now, to, then) in [
        (Attributes::other(5), fifo, Some(nice(5, fifo))),
        (Attributes::other(9), fifo, Some(nice(9, fifo))),
        (nice(9, fifo), batch(5), Some(batch(9))),
        (batch(5), oversubscribed, Some(oversubscribed)),
        (oversubscribed, batch(5), Some(batch(5))),
        (nice(9, oversubscribed), batch(5), Some(batch(9))),
        // The flag is set before, and goes after, a policy is.
        (flagged(Attributes::other(5)), fifo, Some(nice(5, fifo))),
        (flagged(Attributes::other(5)), Attributes::other(5), Some(Attributes::other(5))),
        // A choice of its owner stays until it is read.
        (Attributes::batch(9), oversubscribed, None),
        (Attributes::idle(5), fifo, None),
        (Attributes::fifo(priority::GANG + 1), Attributes::batch(5), None),
        // The nice value of an oversubscribed gang does not.
        (Attributes::idle(-20), fifo, Some(Attributes::idle(5))),
    ] {
        assert_eq!(KNOWN.switch(&now, &to), then, "from {now:?} to {to:?}");
    }
    let child = Known { first_seen: Attributes::other(0), ..KNOWN };
    assert_eq!(child.switch(&Attributes::other(0), &fifo), Some(nice(5, fifo)), "lost by fork");
}

#[test]
fn what_gangd_does_not_give_is_wanted_by_the_owner() {
    let fifo = Attributes::fifo(priority::GANG);
    let batch = |nice| flagged(Attributes::batch(nice));
    for now in [Attributes::other(5), flagged(Attributes::other(5)), batch(5), Attributes::batch(5)]
    {
        assert_eq!(KNOWN.wish(&now), None, "{now:?}");
    }
    assert_eq!(KNOWN.wish(&Attributes { nice: 5, ..fifo }), None);
    assert_eq!(KNOWN.wish(&OVERSUBSCRIBED), None, "an oversubscribed gang in its slot");
    for (now, wish) in [
        (Attributes { nice: 7, ..fifo }, Attributes::other(7)),
        (batch(7), Attributes::other(7)),
        (Attributes::idle(5), Attributes::idle(5)),
        (Attributes::idle(-20), Attributes::idle(5)),
        (Attributes::fifo(priority::GANG + 1), Attributes::fifo(priority::GANG + 1)),
    ] {
        assert_eq!(KNOWN.wish(&now), Some(wish), "{now:?}");
    }
    let child = Known { first_seen: Attributes::other(0), ..KNOWN };
    assert_eq!(child.wish(&Attributes::other(0)), None, "lost by fork");
}

#[test]
fn thread_released_when_oversubscribed_keeps_nothing() {
    for (now, then) in [
        (OVERSUBSCRIBED, BATCH),
        (Attributes { nice: 12, ..OVERSUBSCRIBED }, Attributes::batch(12)),
    ] {
        assert_eq!(released(&now, &BATCH), Some(then), "{now:?}");
    }
    let own = Attributes { reset_on_fork: true, ..Attributes::other(4) };
    assert_eq!(released(&own, &own), None, "its owner's own");
}

/// Linux permits any nice value that is not below the present one, and then another policy.
#[test]
fn choice_in_an_oversubscribed_slot_ends_with_it() {
    let fifo = Attributes::fifo(priority::GANG);
    for nice in [-19, -15, -1, 4] {
        let now = Attributes { nice, ..OVERSUBSCRIBED };
        assert_eq!(KNOWN.wish(&now), None, "{now:?}");
        assert_eq!(KNOWN.switch(&now, &Attributes::batch(5)), Some(Attributes::batch(5)));
        assert_eq!(KNOWN.switch(&now, &fifo), Some(Attributes { nice: 5, ..fifo }), "{now:?}");
        assert_eq!(released(&now, &BATCH), Some(BATCH), "{now:?}");
        for policy in [SchedPolicy::Batch, SchedPolicy::Idle] {
            let now = Attributes { policy, ..now };
            let chosen = Attributes { nice: 5, ..now };
            // Out of its slot it has SCHED_BATCH as well: that is no choice to be seen.
            let is_seen = policy == SchedPolicy::Idle;
            assert_eq!(KNOWN.wish(&now), is_seen.then_some(chosen), "{now:?}");
            let raised = if is_seen { chosen } else { Attributes { nice: 5, ..fifo } };
            assert_eq!(KNOWN.switch(&now, &fifo), Some(raised), "{now:?}");
            let of_release = released(&now, &Attributes::other(5)).map(|then| then.nice);
            assert_eq!(of_release, Some(5), "{now:?}");
        }
    }
    // In the slot of any other gang nobody else may lower it.
    let lower = Attributes { nice: -3, ..fifo };
    assert_eq!(KNOWN.wish(&lower), Some(Attributes::other(-3)));
}

#[test]
fn nice_value_of_root_counts_out_of_slot() {
    let lower = flagged(Attributes::batch(-3));
    assert_eq!(EXCLUSIVE.wish(&lower), Some(Attributes::other(-3)));
    let fifo = Attributes::fifo(priority::GANG);
    assert_eq!(EXCLUSIVE.switch(&lower, &fifo), Some(Attributes { nice: -3, ..fifo }));
    let given = flagged(Attributes::batch(-20));
    assert_eq!(EXCLUSIVE.wish(&given), None, "that of an oversubscribed gang is nobody's");
    // The owner of an oversubscribed gang may have kept it from a slot.
    assert_eq!(KNOWN.wish(&lower), None);
}

#[test]
fn released_thread_has_children_as_before() {
    for normal in [Attributes::other(5), Attributes::batch(5), Attributes::idle(5)] {
        for policy in [SchedPolicy::Other, SchedPolicy::Batch, SchedPolicy::Idle] {
            let now = flagged(Attributes { policy, ..normal });
            assert_eq!(released(&now, &normal), Some(normal), "{now:?}");
        }
        assert_eq!(released(&flagged(normal), &flagged(normal)), None, "its owner's own");
    }
}

#[test]
fn child_of_a_raised_thread_regains_nice_value() {
    assert_eq!(before_gangd(Attributes::other(0), BATCH, true), BATCH);
    assert_eq!(before_gangd(Attributes::other(0), BATCH, false), Attributes::other(0));
}

#[test]
fn a_default_is_that_of_an_ordinary_thread() {
    let reset = Attributes { reset_on_fork: true, ..Attributes::other(-11) };
    for (of, default) in [
        (Attributes::fifo(20), Attributes::other(0)),
        (Attributes { nice: -5, ..Attributes::fifo(20) }, Attributes::other(0)),
        (reset, Attributes::other(0)),
        (Attributes::batch(-3), Attributes::batch(0)),
        (BATCH, BATCH),
    ] {
        assert_eq!(as_default(of), default, "{of:?}");
        for lost in [OVERSUBSCRIBED, Attributes::other(0)] {
            assert_eq!(before_gangd(lost, of, true), default, "{of:?}");
        }
        let inheritor = released_inheritor(&OVERSUBSCRIBED, &of);
        assert_eq!(inheritor, Some(default), "{of:?}");
        let members = Members::new(Controls::default(), of, CpuSet::new());
        assert_eq!(members.default_of(7), Some(default), "{of:?}");
    }
    assert_eq!(
        released(&OVERSUBSCRIBED, &Attributes::other(-11)),
        Some(Attributes::other(-11)),
        "its own"
    );
    // By fork, where nothing resets it, it is the child's own.
    let inherited = Attributes::other(-11);
    assert_eq!(before_gangd(inherited, inherited, true), inherited);
}

#[test]
fn attributes_from_before_a_move_are_no_choice() {
    let now = Attributes::idle(9);
    assert_eq!(KNOWN.wish(&now), Some(now), "its owner chose that in an idle group");
    let moved = Known { has_moved: true, ..KNOWN };
    let only_nice = Some(Attributes::other(9));
    assert_eq!(moved.wish(&flagged(now)), only_nice, "only the nice value is a choice");
    let batch = |nice| flagged(Attributes::batch(nice));
    assert_eq!(moved.switch(&flagged(now), &batch(5)), Some(batch(9)));
    let real_time = Attributes { reset_on_fork: false, ..Attributes::fifo(5) };
    assert_eq!(moved.wish(&real_time), Some(real_time));
}

#[test]
fn raised_thread_gives_way_as_it_is_out_of_its_slot() {
    let fifo = Attributes { nice: 7, ..Attributes::fifo(priority::GANG) };
    for (in_idle_group, lowered) in [(true, Attributes::batch(7)), (false, Attributes::idle(7))] {
        let lowered = flagged(lowered);
        let known = Known { in_idle_group, ..Known::of(Attributes::other(5)) };
        assert_eq!(known.give_way(&fifo), Some(lowered), "its owner's nice value stays");
        // Attributes that its owner sees meanwhile are not taken for a wish of another.
        assert_eq!(known.wish(&Attributes { nice: 5, ..lowered }), None);
        for now in [
            Attributes::other(7),
            Attributes::fifo(priority::GANG + 1),
            Attributes { reset_on_fork: false, ..fifo },
            lowered,
        ] {
            assert_eq!(known.give_way(&now), None, "{now:?} is none of gangd's");
        }
    }
}
