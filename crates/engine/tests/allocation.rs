//! A switch allocates nothing: the allocator may hold a lock, or ask the kernel for memory.

use std::sync::Arc;

use allocation_counter::measure;
use gang_engine::{
    action::{Action, ControlFile, Linux, ProcessHandle},
    page::{SlotPage, Word},
    switcher::Cursor,
    timetable::{Edge, Timetable},
    timing::Timings,
};
use gang_linux::{
    clock::{self, Alarm},
    process::Census,
    sched,
    sched::Attributes,
};
use rustix::{process::Signal, thread::sched_getaffinity};

/// Calls of every kind that leave this thread as it is; some of them fail.
fn calls(file: &Arc<ControlFile>, page: &Arc<SlotPage>) -> Vec<Action> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let attributes = sched::get(0).unwrap();
    let cpus = sched_getaffinity(None).unwrap();
    let process = ProcessHandle::open(std::process::id()).unwrap();
    vec![
        Action::Attributes { tid, attributes },
        Action::Affinity { tid, cpus },
        Action::Write { file: file.clone(), value: "1" },
        Action::Signal { process, signal: Signal::CONT },
        Action::Page { page: page.clone(), word: Word { running: true, ..Word::default() } },
        // No thread has this number, and no policy this priority.
        Action::Attributes { tid: i32::MAX as u32, attributes },
        Action::Attributes { tid, attributes: Attributes::fifo(100) },
    ]
}

#[test]
fn a_switch_on_this_kernel_allocates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cgroup.freeze");
    std::fs::write(&path, "").unwrap();
    let file = ControlFile::open(path).unwrap();
    let page = SlotPage::open(directory.path().join("page")).unwrap();
    let part = || calls(&file, &page);
    let timetable = Timetable {
        generation: 1,
        from_ns: 100,
        until_ns: 200,
        ready_ns: 0,
        loses_up_to: 0,
        immediate: part().into_iter().map(|call| (1, call)).collect(),
        parts: vec![part(), part(), part(), part(), part()],
        edges: (100..110)
            .map(|at_ns| Edge {
                at_ns,
                lower: vec![0],
                raise: vec![1],
                tell_before: vec![3],
                tell_after: vec![4],
            })
            .collect(),
        deadline_ns: 205,
        at_deadline: vec![2],
    };
    let (mut cursor, timings) = (Cursor::default(), Timings::default());
    let allocations = measure(|| {
        for now_ns in [90, 100, 105, 150, 205] {
            cursor.advance(&timetable, now_ns, &Linux, &clock::utc_ns, &timings);
        }
    });
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
    assert_eq!(timings.count(), 10);
    // The call that no kernel permits, in each of the parts that were carried out.
    assert_eq!(timings.failures().0, 42);
    // What counts them does count.
    assert!(measure(|| drop(timetable.clone())).count_total > 0);
}

#[test]
fn looking_out_for_threads_on_this_kernel_allocates_nothing() {
    let (census, alarm) = (Census::open("/proc".as_ref()).unwrap(), Alarm::default());
    let allocations = measure(|| {
        for _ in 0..10 {
            assert!(census.count().is_some());
            alarm.ring();
        }
    });
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
}
