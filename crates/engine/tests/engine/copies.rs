//! Threads that a thread starts while somebody switches it.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use gang_engine::thread as threads;
use gang_linux::sched::{self, SchedPolicy};
use gang_timetable::{InSlot, Known, lowered, priority};

use crate::parked::may_be_realtime;

/// Threads that are started: as many as two CPUs start in a second or two.
const STARTED: usize = 20_000;

/// Whether the kernel runs the calling thread as a real-time one, whatever its policy is: its
/// priority in /proc/TID/stat is negative then (proc(5)).
fn runs_as_realtime() -> bool {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    after_name.split_ascii_whitespace().nth(15).unwrap().starts_with('-')
}

/// Of the threads that one starts while another one switches it, none is as in a slot.
///
/// The kernel copies a thread without the lock under which its policy is changed. Without the flag
/// of reset-on-fork out of slot, some of these are SCHED_FIFO for ever, and 1 % of them run so.
#[test]
fn needs_root_copies_in_a_switch_are_ordinary() {
    if !may_be_realtime() {
        return;
    }
    let cpus = sched::affinity(0).unwrap();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let is_over = Arc::<AtomicBool>::default();
    let (tell, told) = std::sync::mpsc::channel();
    let starter = thread::spawn({
        let is_over = is_over.clone();
        move || {
            sched::set_affinity(0, [first]).unwrap();
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let mut wrong = Vec::new();
            for _ in 0..STARTED {
                let started = thread::spawn(|| {
                    let now = sched::get(0).unwrap();
                    let is_wrong = now.policy == SchedPolicy::Fifo || runs_as_realtime();
                    is_wrong.then_some((now.policy, now.priority, now.reset_on_fork))
                });
                wrong.extend(started.join().unwrap());
            }
            is_over.store(true, Ordering::Release);
            wrong
        }
    });
    let tid = told.recv().unwrap();
    let own = threads::attributes(tid).unwrap();
    let known = Known::of(own);
    let raised = gang_timetable::Attributes {
        nice: own.nice,
        ..gang_timetable::Attributes::fifo(priority::GANG)
    };
    let lowered = lowered(&own, InSlot::Exclusive, false);
    // As when its job begins: nobody is raised before.
    threads::switch(tid, &lowered, &known).unwrap();
    let switcher = thread::spawn(move || {
        sched::set_affinity(0, [last]).unwrap();
        let mut switches = 0;
        while !is_over.load(Ordering::Acquire) {
            for to in [&raised, &lowered] {
                // At its end the thread is gone.
                let _ = threads::switch(tid, to, &known);
            }
            switches += 2;
        }
        switches
    });
    let wrong = starter.join().unwrap();
    let switches = switcher.join().unwrap();
    assert_eq!(wrong, [], "of {STARTED}, in {switches} switches");
}
