use super::*;

const BATCH: Attributes = Attributes::batch(10);

#[test]
fn what_gangd_gave_a_parent_is_not_the_childs_own() {
    for (now, expected) in [
        (Attributes::idle(3), Attributes { nice: 3, ..BATCH }),
        (Attributes::fifo(priority::GANG), Attributes { nice: 0, ..BATCH }),
        (Attributes { nice: -20, ..Attributes::fifo(priority::GANG) }, BATCH),
        (Attributes::other(-20), BATCH),
    ] {
        assert_eq!(original(now, BATCH, false), expected, "{now:?}");
        assert_eq!(original(now, BATCH, true), expected, "{now:?}");
    }
}

#[test]
fn what_a_thread_chose_itself_stays() {
    for now in [
        Attributes::other(5),
        Attributes::fifo(priority::GANG + 1),
        Attributes { reset_on_fork: false, ..Attributes::fifo(priority::GANG) },
    ] {
        assert_eq!(original(now, BATCH, false), now);
        assert_eq!(original(now, BATCH, true), now);
    }
}

#[test]
fn a_batch_thread_is_one_by_itself_or_because_it_fills() {
    let normal = Attributes::other(10);
    assert_eq!(original(Attributes::batch(3), normal, false), Attributes::batch(3));
    assert_eq!(original(Attributes::batch(3), normal, true), Attributes::other(3));
}

#[test]
fn a_child_of_a_thread_in_its_slot_gets_its_nice_value_back() {
    assert_eq!(original(Attributes::other(0), BATCH, true), BATCH);
    assert_eq!(original(Attributes::other(0), BATCH, false), Attributes::other(0));
}

#[test]
fn threads_in_a_row_are_looked_at_soon_however_few_are_looked_at() {
    // Of every 132 threads one is looked at: of three looks in succession one is of any hundred in a row.
    let offsets: Vec<usize> = (0..10_000).map(|count| spread(count) % 132).collect();
    for looks in offsets.windows(3) {
        let is_seen = |first: usize| looks.iter().any(|look| (look + 132 - first) % 132 < 100);
        assert!((0..132).all(is_seen), "{looks:?}");
    }
}
