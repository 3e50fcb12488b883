//! Threads of this process that wait, for tests that ask the kernel of real ones.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
};

use gang_harness::skipped;
use gang_linux::sched::{self, Attributes, SchedPolicy};
use gang_timetable::priority;

pub struct Parked {
    pub tid: u32,
    /// It ends when this is dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Parked {
    /// A thread that has changed itself before it waits.
    pub fn start(prepare: impl FnOnce() + Send + 'static) -> Parked {
        let (end, ends): (Sender<()>, Receiver<()>) = channel();
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            prepare();
            ready.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ends.recv();
        });
        Parked { tid: is_ready.recv().unwrap(), end: Some(end), thread: Some(thread) }
    }

    pub fn ordinary() -> Parked {
        Parked::start(|| {})
    }

    /// As a thread out of slot; nobody needs a right for that.
    pub fn filling() -> Parked {
        Parked::start(|| {
            let nice = sched::get(0).unwrap().nice;
            sched::set(0, &Attributes::idle(nice)).unwrap();
        })
    }

    pub fn policy(&self) -> SchedPolicy {
        sched::get(self.tid).unwrap().policy
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.end = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// False where this user may have no real-time thread; says so.
pub fn may_be_realtime() -> bool {
    let set = std::thread::spawn(|| sched::set(0, &Attributes::fifo(priority::SWITCHER)));
    let set = set.join().unwrap();
    if let Err(error) = &set {
        skipped(format!("SCHED_FIFO takes root: {error}"));
    }
    set.is_ok()
}
