//! A switch allocates nothing: the allocator may hold a lock, or ask the kernel for memory.

use std::sync::Arc;

use allocation_counter::measure;
use gang_engine::{
    bound::{Bound, ControlFile, Handles, Linux, ProcessHandle},
    page::SlotPage,
    switcher::Calls,
    thread,
    timing::Timings,
};
use gang_linux::{
    census::Census,
    clock::{self, Alarm},
};
use gang_schedule::JobId;
use gang_timetable::{
    Action, Attributes, Control, EdgeActions, Group, Known, Signal, Timetable, Word,
    follower::{Cursor, Hands, OfThread},
};

/// A group, this process, and a page.
struct Job {
    file: Arc<ControlFile>,
    process: Arc<ProcessHandle>,
    page: Arc<SlotPage>,
}

impl Handles for Job {
    fn control(&self, _: Group, _: Control) -> Option<Arc<ControlFile>> {
        Some(self.file.clone())
    }

    fn process(&self, _: JobId, _: u32) -> Option<Arc<ProcessHandle>> {
        Some(self.process.clone())
    }

    fn page(&self, _: JobId) -> Option<Arc<SlotPage>> {
        Some(self.page.clone())
    }
}

/// Actions of every kind that leave this thread as it is; some of them fail.
fn actions() -> Vec<Action> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let attributes = thread::attributes(0).unwrap();
    let cpus = thread::affinity(0).unwrap();
    let known = Known::of(attributes);
    let (job, pid) = (JobId(1), std::process::id());
    vec![
        Action::Attributes { tid, attributes, known },
        Action::Affinity { tid, cpus },
        Action::Control { group: Group::Job(job), control: Control::Frozen(true) },
        Action::Signal { job, pid, signal: Signal::Continue },
        Action::Page { job, word: Word { running: true, ..Word::default() } },
        // No thread has this number, and no policy this priority.
        Action::Attributes { tid: i32::MAX as u32, attributes, known },
        Action::Attributes { tid, attributes: Attributes::fifo(100), known },
    ]
}

#[test]
fn a_switch_on_this_kernel_allocates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cgroup.freeze");
    std::fs::write(&path, "").unwrap();
    let job = Job {
        file: ControlFile::open(path).unwrap(),
        process: ProcessHandle::open(std::process::id()).unwrap(),
        page: SlotPage::open(directory.path().join("page"), 0).unwrap(),
    };
    let timetable = Timetable {
        generation: 1,
        from_ns: 100,
        until_ns: 200,
        ready_ns: 0,
        loses_up_to: 0,
        superseded: Vec::new(),
        immediate: actions().into_iter().map(|action| (1, action)).collect(),
        parts: vec![actions(); 5],
        edges: (100..110)
            .map(|at_ns| EdgeActions {
                at_ns,
                lower: vec![0],
                raise: vec![1],
                notify_before: vec![3],
                notify_after: vec![4],
            })
            .collect(),
        deadline_ns: 205,
        at_deadline: vec![2],
    };
    let timetable = timetable.bind(|action| Bound::new(action, &job));
    let (mut cursor, timings) = (Cursor::default(), Timings::default());
    let allocations = measure(|| {
        for now_ns in [90, 100, 105, 150, 205] {
            let calls = Calls { kernel: &Linux, clock: &clock::utc_ns, timings: &timings };
            cursor.advance(&timetable, now_ns, &calls);
            let of_threads = timetable.parts[0].iter().filter(|it| it.of_thread().is_some());
            of_threads.for_each(|action| {
                calls.give_way(action);
                calls.lower_if_raised(action);
            });
        }
    });
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
    assert_eq!(timings.count(), 10);
    // The call that no kernel permits, in each of the parts that were carried out.
    assert_eq!(timings.failures().0, 42);
    // The counter itself works.
    assert!(measure(|| drop(timetable.clone())).count_total > 0);
}

#[test]
fn lookout_on_this_kernel_allocates_nothing() {
    let (census, alarm) = (Census::open("/proc".as_ref()).unwrap(), Alarm::default());
    let allocations = measure(|| {
        for _ in 0..10 {
            assert!(census.count().is_some());
            alarm.ring();
        }
    });
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
}
