//! Threads in their slots give way to others of their priority.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use gang_engine::{bound::Bound, recording::Recording, switcher::Switcher, thread as threads};
use gang_harness::wait_until;
use gang_linux::{
    clock,
    sched::{self, Attributes, SchedPolicy},
};
use gang_timetable::{Action, EdgeActions, Known, Timetable, priority};

use crate::parked::{Parked, may_be_realtime};

/// On one CPU, one that a thread that sleeps can always have back.
fn on_one_cpu(attributes: &Attributes) {
    let first = sched::affinity(0).unwrap()[0];
    sched::set_affinity(0, [first]).unwrap();
    sched::set(0, attributes).unwrap();
}

fn own_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

const ROUND_ROBIN: Attributes =
    Attributes { policy: SchedPolicy::RoundRobin, reset_on_fork: false, ..Attributes::fifo(1) };

#[test]
fn needs_root_rival_runs_before_one_that_gave_way() {
    if !may_be_realtime() {
        return;
    }
    let own = threads::attributes(0).unwrap();
    let test = thread::spawn(move || {
        on_one_cpu(&Attributes::fifo(priority::SWITCHER));
        let (is_over, has_run) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (wake, awaits) = channel::<()>();
        let rival = Parked::start({
            let has_run = has_run.clone();
            move || {
                on_one_cpu(&ROUND_ROBIN);
                thread::spawn(move || {
                    for () in awaits {
                        has_run.store(true, Ordering::Release);
                    }
                });
            }
        });
        let (tell, told) = channel();
        let raised = thread::spawn({
            let is_over = is_over.clone();
            move || {
                sched::set_nice(0, own.nice + 5).unwrap();
                on_one_cpu(&Attributes::fifo(priority::GANG));
                tell.send(own_number()).unwrap();
                let end = Instant::now() + Duration::from_secs(10);
                while !is_over.load(Ordering::Acquire) && Instant::now() < end {
                    std::hint::spin_loop();
                }
            }
        });
        let tid = told.recv().unwrap();
        let before = threads::attributes(tid).unwrap();
        assert_eq!(before.nice, own.nice + 5);
        wake.send(()).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(!has_run.load(Ordering::Acquire), "the other one has the CPU");
        threads::give_way(tid, &Known::of(own)).unwrap();
        wait_until("the rival has run", || has_run.load(Ordering::Acquire));
        assert_eq!(threads::attributes(tid).unwrap(), before);
        is_over.store(true, Ordering::Release);
        drop((wake, rival));
        raised.join().unwrap();
    });
    test.join().unwrap();
}

#[test]
fn needs_root_unraised_threads_give_no_way() {
    if !may_be_realtime() {
        return;
    }
    let ordinary = Parked::ordinary();
    let own = threads::attributes(ordinary.tid).unwrap();
    let of_owner = Parked::start(|| sched::set(0, &ROUND_ROBIN).unwrap());
    for thread in [&ordinary, &of_owner] {
        let before = threads::attributes(thread.tid).unwrap();
        threads::give_way(thread.tid, &Known::of(own)).unwrap();
        assert_eq!(threads::attributes(thread.tid).unwrap(), before);
    }
}

#[test]
fn switcher_asks_its_own_threads_in_their_slots() {
    let kernel = Arc::new(Recording::default());
    let mut switcher = Switcher::start(vec![0], false, kernel.clone(), None).unwrap();
    let own = gang_timetable::Attributes::other(0);
    let set = |tid, attributes| {
        Bound::to_nothing(Action::Attributes { tid, attributes, known: Known::of(own) })
    };
    let raised = gang_timetable::Attributes::fifo(priority::GANG);
    let lowered = gang_timetable::Attributes::batch(0);
    let from_ns = clock::utc_ns();
    switcher.publish(Timetable {
        generation: 1,
        from_ns,
        until_ns: from_ns + 3_600_000_000_000,
        deadline_ns: from_ns + 3_600_000_000_000,
        parts: vec![vec![set(5, raised)], vec![set(6, lowered)], vec![set(5, lowered)]],
        edges: vec![EdgeActions {
            at_ns: from_ns,
            lower: vec![1],
            raise: vec![0],
            ..EdgeActions::default()
        }],
        at_deadline: vec![2],
        ..Timetable::default()
    });
    switcher.ring();
    wait_until("it is followed", || switcher.timings.in_force() == 1);
    let handle = switcher.handle();
    for tid in [6, 7, 5] {
        handle.give_way(tid);
    }
    let mut gave_way = Vec::new();
    wait_until("one gave way", || {
        gave_way.extend(kernel.take_gave_way());
        !gave_way.is_empty()
    });
    assert_eq!(gave_way, [5], "6 is out of its slot, and 7 another switcher's");
}
