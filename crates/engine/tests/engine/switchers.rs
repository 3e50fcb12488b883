//! Due edges are carried out: by a cursor, however the clock steps, and by a thread.

use std::sync::{
    Arc, Mutex,
    mpsc::{Receiver, Sender, channel},
};

use gang_engine::{
    bound::{Bound, Kernel},
    recording::Recording,
    switcher::{Calls, Switcher},
    timing::Timings,
};
use gang_harness::wait_until;
use gang_linux::clock;
use gang_timetable::{
    Action, Attributes, EdgeActions, Known, Timetable,
    follower::{Cursor, Switch},
};
use proptest::prelude::*;
use rustix::io::Errno;

/// A call that is known from the others by its number.
fn call(number: u32) -> Bound {
    let attributes = Attributes::other(0);
    let known = Known::of(attributes);
    Bound::to_nothing(Action::Attributes { tid: number, attributes, known })
}

/// The number of a call.
fn number(action: &Action) -> Option<u32> {
    match *action {
        Action::Attributes { tid, .. } => Some(tid),
        _ => None,
    }
}

/// Edges at the given points of time. Each lowers with the call of its number, and raises with the
/// call 1000 above. The deadline makes call 999.
fn timetable(generation: u64, from_ns: u64, until_ns: u64, edges: &[u64]) -> Timetable<Bound> {
    let part = |number| vec![call(number)];
    let parts = edges.iter().enumerate().flat_map(|(index, _)| {
        let number = generation as u32 * 10_000 + index as u32;
        [part(number), part(number + 1000)]
    });
    let parts: Vec<_> = parts.chain([part(999)]).collect();
    let edge = |(index, &at_ns): (usize, &u64)| EdgeActions {
        at_ns,
        lower: vec![2 * index],
        raise: vec![2 * index + 1],
        ..EdgeActions::default()
    };
    Timetable {
        generation,
        from_ns,
        until_ns,
        ready_ns: 0,
        loses_up_to: 0,
        superseded: Vec::new(),
        immediate: Vec::new(),
        edges: edges.iter().enumerate().map(edge).collect(),
        deadline_ns: until_ns + 5,
        at_deadline: vec![parts.len() - 1],
        parts,
    }
}

/// The numbers of the calls that the edges of one timetable make.
fn numbers(generation: u32, edges: std::ops::Range<u32>) -> Vec<u32> {
    edges.flat_map(|edge| [0, 1000].map(|raise| generation * 10_000 + edge + raise)).collect()
}

fn made(kernel: &Recording) -> Vec<u32> {
    kernel.take_actions().iter().filter_map(number).collect()
}

#[derive(Default)]
struct Bench {
    cursor: Cursor,
    kernel: Recording,
    timings: Timings,
}

impl Bench {
    /// The calls made, and when to come back.
    fn advance(&mut self, timetable: &Timetable<Bound>, now_ns: u64) -> (Vec<u32>, Option<u64>) {
        let (kernel, clock) = (&self.kernel, &|| now_ns);
        let calls = Calls { kernel, clock, timings: &self.timings };
        let next = self.cursor.advance(timetable, now_ns, &calls);
        (made(&self.kernel), next)
    }
}

proptest! {
    #[test]
    fn any_wake_ups_carry_each_edge_out_once_in_order(
        edges in proptest::collection::btree_set(100u64..200, 0..20),
        wakes in proptest::collection::vec(90u64..205, 0..20),
        sorted in any::<bool>(),
    ) {
        let edges: Vec<u64> = edges.into_iter().collect();
        let timetable = timetable(1, 100, 200, &edges);
        // Without being sorted, these are steps of the clock in both directions.
        let mut wakes = wakes;
        if sorted {
            wakes.sort_unstable();
        }
        let mut bench = Bench::default();
        let mut all = Vec::new();
        for &now_ns in &wakes {
            let (calls, next) = bench.advance(&timetable, now_ns);
            all.extend(calls);
            let later = edges.iter().copied().chain([200, 205]).find(|&at| at > now_ns);
            prop_assert_eq!(next, later);
        }
        let latest = wakes.iter().copied().max().unwrap_or(0);
        let due = edges.iter().filter(|&&at| at <= latest).count() as u32;
        let mut expected = numbers(1, 0..due);
        if latest >= 205 {
            expected.push(999);
        }
        prop_assert_eq!(all, expected);
    }
}

#[test]
fn late_is_better_than_never() {
    let mut bench = Bench::default();
    let timetable = timetable(1, 100, 200, &[100, 120, 160]);
    assert_eq!(bench.advance(&timetable, 190), (numbers(1, 0..3), Some(200)));
    assert_eq!(bench.advance(&timetable, 200), (vec![], Some(205)));
    assert_eq!(bench.timings.belated(), (0, 0));
    assert_eq!(bench.advance(&timetable, 300), (vec![999], None));
    assert_eq!(bench.advance(&timetable, 301), (vec![], None));
    assert_eq!(bench.timings.belated(), (0, 1), "nobody replaced it");
}

#[test]
fn a_clock_that_is_set_back_repeats_nothing() {
    let mut bench = Bench::default();
    let one = timetable(1, 100, 200, &[100, 120, 160]);
    assert_eq!(bench.advance(&one, 130).0, numbers(1, 0..2));
    assert_eq!(bench.advance(&one, 50), (vec![], Some(100)));
    assert_eq!(bench.advance(&one, 121), (vec![], Some(160)));
    assert_eq!(bench.advance(&one, 160).0, numbers(1, 2..3));
}

#[test]
fn clock_step_loses_no_edge_of_the_next_timetable() {
    for (from_ns, edges) in [(20, [20, 30, 40]), (1100, [1100, 1110, 1120])] {
        let mut bench = Bench::default();
        bench.advance(&timetable(1, 100, 200, &[100, 150]), 160);
        let next = timetable(2, from_ns, from_ns + 100, &edges);
        assert_eq!(bench.advance(&next, from_ns + 15).0, numbers(2, 0..2));
        assert_eq!(bench.advance(&next, from_ns + 25).0, numbers(2, 2..3));
    }
}

#[test]
fn a_timetable_for_the_same_time_begins_anew() {
    let mut bench = Bench::default();
    bench.advance(&timetable(1, 100, 200, &[100, 150]), 160);
    let mut again = timetable(2, 100, 200, &[100, 155, 170]);
    again.immediate = vec![(2, call(7))];
    let (calls, next) = bench.advance(&again, 160);
    assert_eq!(calls, [vec![7], numbers(2, 0..2)].concat());
    assert_eq!(next, Some(170));
}

#[test]
fn what_is_immediate_is_done_once_before_any_edge() {
    let mut bench = Bench::default();
    let mut one = timetable(1, 100, 200, &[100]);
    one.immediate = vec![(1, call(7)), (1, call(8))];
    assert_eq!(bench.advance(&one, 90), (vec![7, 8], Some(100)));
    assert_eq!(bench.advance(&one, 100).0, numbers(1, 0..1));
}

#[test]
fn missing_timetable_lowers_all_gangs_once() {
    let mut bench = Bench::default();
    let one = timetable(1, 100, 200, &[100]);
    bench.advance(&one, 204);
    assert_eq!(bench.advance(&one, 205), (vec![999], None));
    // A clock that is set back gives a timetable that has run out no further time.
    assert_eq!(bench.advance(&one, 150), (vec![], Some(200)));
    assert_eq!(bench.advance(&one, 205), (vec![], None));
    let two = timetable(2, 300, 400, &[300]);
    assert_eq!(bench.advance(&two, 405).0, [numbers(2, 0..1), vec![999]].concat());
}

#[test]
fn failing_call_is_counted_and_the_rest_goes_on() {
    let mut bench = Bench::default();
    let one = timetable(1, 100, 200, &[100, 110, 120]);
    bench.kernel.refuse(|action| match number(action) {
        Some(10_001) => Some(Errno::PERM),
        Some(10_002 | 11_000) => Some(Errno::SRCH),
        Some(11_002) => Some(Errno::INVAL),
        _ => None,
    });
    assert_eq!(bench.advance(&one, 150).0, numbers(1, 0..3));
    assert_eq!(bench.timings.failures(), (2, Errno::INVAL.raw_os_error()));
    let done: Vec<u32> = bench.kernel.model().attributes.into_keys().collect();
    assert_eq!(done, [10_000, 11_001]);
}

#[test]
fn switches_are_noted_with_their_phases() {
    let mut bench = Bench::default();
    let mut one = timetable(1, 100, 200, &[100, 110]);
    one.edges[1].raise.clear();
    // An edge at which there is nothing to do is no switch.
    one.edges.push(EdgeActions { at_ns: 120, ..EdgeActions::default() });
    let ticks = std::cell::Cell::new(100);
    let clock = || ticks.replace(ticks.get() + 1);
    let calls = Calls { kernel: &bench.kernel, clock: &clock, timings: &bench.timings };
    bench.cursor.advance(&one, 130, &calls);
    let first = Switch {
        asked_ns: 100,
        began_ns: 100,
        lowered_ns: 101,
        raised_ns: 102,
        lowers: 1,
        raises: 1,
    };
    let second = Switch {
        asked_ns: 110,
        began_ns: 103,
        lowered_ns: 104,
        raised_ns: 105,
        lowers: 1,
        raises: 0,
    };
    assert_eq!(bench.timings.switches(), [first, second]);
}

/// Waits until a recording kernel has been asked for a call, and returns the calls so far.
fn wait_for(kernel: &Recording, number: u32, so_far: &mut Vec<u32>) {
    wait_until(&format!("call {number} is made"), || {
        so_far.extend(made(kernel));
        so_far.contains(&number)
    });
}

fn start(kernel: &Arc<Recording>) -> Switcher {
    start_on(kernel.clone())
}

fn start_on(kernel: Arc<dyn Kernel>) -> Switcher {
    Switcher::start(vec![0], false, kernel, None).unwrap()
}

/// A kernel whose call of one number takes until it is let go: the switcher has no CPU, as it were.
struct Slow {
    kernel: Recording,
    number: u32,
    gate: Mutex<Receiver<()>>,
}

impl Slow {
    /// With what lets the call go, as does its end.
    fn new(number: u32) -> (Arc<Slow>, Sender<()>) {
        let (go, gate) = channel();
        let kernel = Recording::default();
        (Arc::new(Slow { kernel, number, gate: Mutex::new(gate) }), go)
    }
}

impl Kernel for Slow {
    fn perform(&self, bound: &Bound) -> std::io::Result<()> {
        let done = self.kernel.perform(bound);
        if number(&bound.action) == Some(self.number) {
            // An end of the test is as good.
            let _ = self.gate.lock().unwrap().recv();
        }
        done
    }

    fn give_way(&self, bound: &Bound) -> std::io::Result<()> {
        self.kernel.give_way(bound)
    }

    fn lower_if_raised(&self, bound: &Bound) -> std::io::Result<()> {
        self.kernel.lower_if_raised(bound)
    }
}

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

#[test]
fn switcher_follows_then_lowers_all_at_its_end() {
    let kernel = Arc::new(Recording::default());
    let mut switcher = start(&kernel);
    let from_ns = clock::utc_ns() + MS;
    let edges: Vec<u64> = (0..5).map(|edge| from_ns + edge * MS).collect();
    switcher.publish(timetable(1, from_ns, from_ns + 5 * MS, &edges));
    switcher.ring();
    let mut calls = Vec::new();
    wait_for(&kernel, 999, &mut calls);
    assert_eq!(calls, [numbers(1, 0..5), vec![999]].concat());
    assert_eq!(switcher.timings.count(), 5);
    // The next one is taken although the switcher has nothing to wait for.
    let from_ns = clock::utc_ns();
    switcher.publish(timetable(2, from_ns, from_ns + HOUR, &[from_ns]));
    switcher.ring();
    wait_for(&kernel, 21_000, &mut calls);
}

#[test]
fn early_timetable_waits_for_its_beginning() {
    let (kernel, go) = Slow::new(11_000);
    let mut switcher = start_on(kernel.clone());
    let from_ns = clock::utc_ns();
    let until_ns = from_ns + 60 * MS;
    switcher.publish(timetable(1, from_ns, until_ns, &[from_ns, from_ns + 30 * MS]));
    switcher.ring();
    let mut calls = Vec::new();
    wait_for(&kernel.kernel, 11_000, &mut calls);
    // The second edge is still to come for the switcher, and wakes it.
    switcher.publish(timetable(2, until_ns, until_ns + HOUR, &[until_ns]));
    go.send(()).unwrap();
    wait_for(&kernel.kernel, 21_000, &mut calls);
    calls.retain(|&call| call != 999);
    assert_eq!(calls, [numbers(1, 0..2), numbers(2, 0..1)].concat());
}

#[test]
fn replaced_timetable_holds_until_the_next_begins() {
    let (kernel, go) = Slow::new(11_000);
    let mut switcher = start_on(kernel.clone());
    let now_ns = clock::utc_ns();
    let edges = [now_ns, now_ns + 50 * MS, now_ns + 150 * MS, now_ns + HOUR];
    switcher.publish(timetable(1, now_ns, now_ns + 2 * HOUR, &edges));
    switcher.ring();
    let mut calls = Vec::new();
    wait_for(&kernel.kernel, 11_000, &mut calls);
    let mut other = timetable(2, now_ns + 100 * MS, now_ns + HOUR, &[now_ns + 100 * MS]);
    other.immediate = vec![(2, call(7))];
    switcher.publish(other);
    assert!(switcher.is_behind());
    switcher.ring();
    go.send(()).unwrap();
    wait_for(&kernel.kernel, 21_000, &mut calls);
    assert_eq!(calls, [numbers(1, 0..2), vec![7], numbers(2, 0..1)].concat());
}

#[test]
fn a_timetable_for_another_time_is_taken_at_once() {
    let kernel = Arc::new(Recording::default());
    let mut switcher = start(&kernel);
    let now_ns = clock::utc_ns();
    switcher.publish(timetable(1, now_ns + HOUR, now_ns + 2 * HOUR, &[now_ns + HOUR]));
    switcher.ring();
    // As after a step of the clock.
    switcher.publish(timetable(2, now_ns - HOUR, now_ns + HOUR, &[now_ns - HOUR]));
    switcher.ring();
    let mut calls = Vec::new();
    wait_for(&kernel, 21_000, &mut calls);
    assert_eq!(calls, numbers(2, 0..1));
}

#[test]
fn immediate_actions_go_on_with_the_replacement() {
    let kernel = Arc::new(Recording::default());
    let mut switcher = start(&kernel);
    let now_ns = clock::utc_ns();
    let mut first = timetable(1, now_ns, now_ns + 2 * HOUR, &[now_ns]);
    first.immediate = vec![(1, call(6))];
    switcher.publish(first);
    switcher.ring();
    let mut calls = Vec::new();
    wait_for(&kernel, 11_000, &mut calls);
    wait_until("the first is in force", || !switcher.is_behind());
    let mut never = timetable(2, now_ns + HOUR, now_ns + 2 * HOUR, &[now_ns + HOUR]);
    never.immediate = vec![(2, call(7)), (2, call(8))];
    switcher.publish(never);
    let mut last = timetable(3, now_ns, now_ns + HOUR, &[now_ns + 1]);
    last.immediate = vec![(3, call(7))];
    switcher.publish(last);
    switcher.ring();
    wait_for(&kernel, 31_000, &mut calls);
    assert_eq!(calls, [vec![6], numbers(1, 0..1), vec![7, 8, 7], numbers(3, 0..1)].concat());
}

#[test]
fn a_switcher_that_ends_leaves_nobody_in_a_slot() {
    let kernel = Arc::new(Recording::default());
    let mut switcher = start(&kernel);
    let now_ns = clock::utc_ns();
    switcher.publish(timetable(1, now_ns, now_ns + 2 * HOUR, &[now_ns, now_ns + HOUR]));
    switcher.ring();
    let mut calls = Vec::new();
    wait_for(&kernel, 11_000, &mut calls);
    drop(switcher);
    calls.extend(made(&kernel));
    assert_eq!(calls, [numbers(1, 0..2), vec![999]].concat());
}

#[test]
fn a_switcher_without_a_timetable_ends() {
    let kernel = Arc::new(Recording::default());
    drop(start(&kernel));
    assert!(made(&kernel).is_empty());
}

/// A switcher that is held at the first edge of timetable 1, which has one more after 20 ms, and is
/// handed others meanwhile; how often it was out of step when the last of them is in force.
fn out_of_step_after(others: &[(u64, u64)]) -> u64 {
    // Where the second edge is due before the switcher is held at the first, the run says nothing.
    // A machine on which that happens is slow: a millisecond is longer there.
    let slowness = (0..12).find_map(|slowness| out_of_step(others, MS << slowness));
    slowness.expect("the second edge is due in a minute and more")
}

/// With another length of a millisecond; nothing where the second edge may have been due too early.
fn out_of_step(others: &[(u64, u64)], ms: u64) -> Option<u64> {
    let (kernel, go) = Slow::new(10_000);
    let mut switcher = start_on(kernel.clone());
    let now_ns = clock::utc_ns();
    switcher.publish(timetable(1, now_ns, now_ns + HOUR, &[now_ns, now_ns + 20 * ms]));
    switcher.ring();
    wait_for(&kernel.kernel, 10_000, &mut Vec::new());
    if clock::utc_ns() >= now_ns + 20 * ms {
        drop(go);
        return None;
    }
    for &(generation, from_ms) in others {
        let from_ns = now_ns + from_ms * ms;
        switcher.publish(timetable(generation, from_ns, now_ns + HOUR, &[from_ns]));
    }
    wait_until("all edges are due", || clock::utc_ns() >= now_ns + 50 * ms);
    go.send(()).unwrap();
    wait_until("the last one is in force", || !switcher.is_behind());
    Some(switcher.timings.out_of_step())
}

#[test]
fn late_switcher_is_out_of_step() {
    assert_eq!(out_of_step_after(&[(2, 30)]), 1, "an edge of the one before came after it began");
    assert_eq!(out_of_step_after(&[(2, 10)]), 0, "nothing was to be done before it");
}

#[test]
fn switcher_that_missed_a_timetable_is_out_of_step() {
    assert_eq!(out_of_step_after(&[(2, 5), (3, 10)]), 1, "what 2 has before 10 ms is lost");
    assert_eq!(out_of_step_after(&[(2, 10), (3, 5)]), 0, "3 has it, too");
    assert_eq!(out_of_step_after(&[(2, 5), (3, 10), (4, 10)]), 1, "4 has not");
}

#[test]
fn switcher_that_followed_too_long_is_out_of_step() {
    let kernel = Arc::new(Recording::default());
    for (from_ns, is) in [(5 * MS, 1), (15 * MS, 0)] {
        let mut switcher = start(&kernel);
        let now_ns = clock::utc_ns() - 20 * MS;
        switcher.publish(timetable(1, now_ns, now_ns + HOUR, &[now_ns, now_ns + 10 * MS]));
        switcher.ring();
        wait_for(&kernel, 11_001, &mut Vec::new());
        switcher.publish(timetable(2, now_ns + from_ns, now_ns + HOUR, &[]));
        switcher.ring();
        wait_until("it is in force", || !switcher.is_behind());
        assert_eq!(switcher.timings.out_of_step(), is, "from {from_ns} ns on");
    }
}
