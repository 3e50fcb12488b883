//! The accounting of `cosched.bpf.c`, compiled for this machine and run on one whose clock stands
//! still between two events: every figure against what follows from the definitions. It takes
//! neither root nor a kernel that measures.

mod history;
mod machine;
mod rivals;
mod rows;
mod truth;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use history::{History, Random};
use machine::{At, Kind, Machine};

use crate::SlotTime;

/// Histories that begin with different numbers; one that fails says its own.
fn histories(count: u64, lag_ns: u64) {
    let mut machine = Machine::start();
    for seed in 0..count {
        let one = || {
            let mut history = History::new(&mut machine, Random(seed), lag_ns);
            for step in 0..100 {
                history.step();
                if step % 10 == 9 {
                    history.compare();
                }
            }
        };
        if let Err(failure) = catch_unwind(AssertUnwindSafe(one)) {
            eprintln!("history {seed}, with clocks {lag_ns} ns behind at most");
            resume_unwind(failure);
        }
    }
}

#[test]
fn any_history_is_booked_as_it_was() {
    histories(2000, 0);
}

/// A clock that was read earlier, and carried out later, moves what happened to the last moment
/// that was booked.
#[test]
fn clocks_read_out_of_order_lose_no_time() {
    histories(500, 100_000);
}

/// The definitions and the programs alike, worked out by hand.
#[test]
fn two_threads_in_one_slot_are_booked_by_hand() {
    let mut machine = Machine::start();
    let us = |us: u64| 1_000_000_000 + us * 1000;
    let at = |cpu, now_us| At { cpu, now_ns: us(now_us) };
    for (task, tgid) in [(1, 10), (2, 10), (3, 30)] {
        machine.task(task, Kind { tgid, policy: 1, is_of_kernel: false });
    }
    machine.move_to(1, 7);
    machine.move_to(2, 7);
    machine.set_slots(7, Some(&[SlotTime::new(us(100), us(500))]), &[]);
    machine.watch(7, 1, us(0));
    // Both wait out of slot for 50 us, the first one fills for 50; a rival has the CPU of the
    // second one.
    machine.switch(at(1, 5), 3, false, 0, true);
    machine.wake(at(0, 50), 1, false);
    machine.wake(at(0, 50), 2, false);
    machine.switch(at(0, 50), 1, false, 0, true);
    // The slot has its first thread at its beginning, and its last one 40 us later.
    machine.switch(at(1, 140), 2, true, 0, true);
    // The rival is back from 200 to 300.
    machine.switch(at(1, 200), 3, true, 0, true);
    machine.switch(at(1, 300), 2, true, 0, true);
    // The first thread sleeps from 400 on; the slot ends at 500, and the second thread leaves at
    // 520.
    machine.switch(at(0, 400), 0, false, 1, true);
    machine.switch(at(1, 520), 3, true, 0, true);
    assert_eq!(machine.book_now(at(0, 600), 7), 0);
    let figures = machine.figures(7);
    let of_gang = [figures.slot_ns, figures.wanted_ns, figures.coscheduled_ns, figures.lost_ns];
    assert_eq!(of_gang, [400_000, 400_000, 260_000, 140_000]);
    // Before the slot, one ran and one waited; after it, the second one ran for 20 us and waited
    // for 80.
    assert_eq!((figures.filled_ns, figures.waiting_ns), (70_000, 130_000));
    let skews: Vec<usize> = (0..figures.skews.len()).filter(|&at| figures.skews[at] > 0).collect();
    // 40 us at the start, in the bucket from 40 to 44; none at the end, where only one ran.
    assert_eq!(skews, [0, 26]);
    let on_cpus = machine.per_cpu(7);
    let on_cpu = |cpu: usize| {
        let it = on_cpus[cpu];
        (it.in_slot_ns, it.lost_ns, it.filled_ns)
    };
    assert_eq!(on_cpu(0), (300_000, 0, 50_000));
    assert_eq!(on_cpu(1), (260_000, 140_000, 20_000));
    let lost_to: Vec<_> = machine.lost_to(7).iter().map(|it| (it.pid, it.ns)).collect();
    assert_eq!(lost_to, [(30, 140_000)]);
}

/// The kernel reports no switch away from some threads. A thread that follows one of these had
/// nothing of its CPU before it was found there.
#[test]
fn a_run_begins_on_its_cpu_when_it_is_found() {
    let mut machine = Machine::start();
    let us = |us: u64| 1_000_000_000 + us * 1000;
    let at = |now_us| At { cpu: 0, now_ns: us(now_us) };
    for (task, tgid) in [(1, 10), (2, 20)] {
        machine.task(task, Kind { tgid, policy: 0, is_of_kernel: false });
    }
    machine.move_to(1, 7);
    machine.watch(7, 1, us(0));
    machine.switch(at(10), 2, false, 0, true);
    machine.wake(at(50), 1, false);
    machine.switch(at(100), 1, false, 1, false);
    machine.tick(at(200), 1);
    machine.switch(at(260), 0, false, 1, true);
    assert_eq!(machine.book_now(at(300), 7), 0);
    let figures = machine.figures(7);
    assert_eq!((figures.filled_ns, figures.waiting_ns), (60_000, 150_000));
    assert_eq!(machine.per_cpu(7)[0].filled_ns, 60_000);
}

/// A thread that was woken may have run and slept again before the CPU that woke it comes to say
/// so. Of a gang that has fewer threads than none meanwhile, no time is booked.
#[test]
fn a_wake_up_that_comes_late_books_nothing() {
    let mut machine = Machine::start();
    let us = |us: u64| 1_000_000_000 + us * 1000;
    let at = |cpu, now_us| At { cpu, now_ns: us(now_us) };
    for task in [1, 2] {
        machine.task(task, Kind { tgid: 10, policy: 0, is_of_kernel: false });
        machine.move_to(task, 7);
    }
    machine.watch(7, 1, us(0));
    machine.meanwhile(|machine| {
        machine.switch(at(1, 60), 1, false, 0, true);
        machine.switch(at(1, 100), 0, false, 1, true);
        machine.wake(at(2, 200), 2, false);
    });
    machine.wake(at(0, 50), 1, false);
    assert_eq!(machine.book_now(at(0, 300), 7), 0);
    let figures = machine.figures(7);
    assert_eq!((figures.filled_ns, figures.waiting_ns), (40_000, 100_000));
}
