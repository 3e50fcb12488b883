//! The threads that serve users as ordinary threads, one of each user at a time.
//!
//! Problem: the threads of a user's requests are the daemon's. As ordinary threads beside many
//! others of his they would have the gaps nearly for themselves, and pass for threads outside of
//! all gangs that want to run.
//!
//! Approach: each thread has its turn in the line of its user ([`gang_conductor::at_work`]). It is
//! at work then, until its request is over or waits for something other than a CPU. The survey
//! does not count those at work as load. They run in gaps, and on CPUs that nobody else wants.
//! Root and the daemon's user have no line.
//!
//! Properties: a thread that waits in its line uses no CPU. A thread that has left its line holds
//! up nobody, so that one which waits for a lock never waits for a thread in its line.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use gang_conductor::at_work::AtWork;
use gang_linux::process;
use gang_schedule::UserId;

use super::client_priority::ClientPriority;

/// So many threads at work are looked at for one count.
const LOOKED_AT: usize = 16;

/// The allowance and the gaps are looked at again after so long.
const LOOK_EVERY: Duration = Duration::from_millis(100);

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
    /// Time of the conductor for what this thread asked of it, which is not charged yet.
    static ASKED_NS: Cell<u64> = const { Cell::new(0) };
}

/// All who are at work or wait for it.
#[derive(Debug, Default)]
pub struct Workers {
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    of_users: AtWork<Arc<Waiter>>,
    /// The threads at work.
    tids: BTreeSet<u32>,
}

/// A thread that waits for its turn.
#[derive(Debug)]
struct Waiter {
    thread: Thread,
    tid: u32,
    is_at_work: AtomicBool,
}

/// The calling thread is at work while this is there.
struct Turn {
    client_priority: Arc<ClientPriority>,
    /// `None`: he has no line.
    user: Option<UserId>,
    /// It is the first in the line of its user.
    is_first: bool,
    tid: u32,
}

impl Workers {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those at work that run or wait for a CPU, for the conductor. The holder of the lock may be
    /// an ordinary thread that the gangs keep from a CPU, and is not waited for.
    pub fn runnable(&self, proc_root: &Path) -> u32 {
        let Ok(lines) = self.lines.try_lock() else { return 0 };
        let tids: Vec<u32> = lines.tids.iter().copied().take(LOOKED_AT).collect();
        drop(lines);
        let is_runnable =
            |tid: &u32| process::status(proc_root, *tid).is_ok_and(|it| it.is_runnable());
        tids.into_iter().filter(is_runnable).count() as u32
    }
}

impl Turn {
    /// It does not work for now, and leaves the line of its user.
    fn pause(&mut self) {
        let mut lines = self.client_priority.workers.lines();
        lines.tids.remove(&self.tid);
        let line = self.user.filter(|_| std::mem::take(&mut self.is_first));
        let Some(next) = line.and_then(|user| lines.of_users.leave(user)) else { return };
        lines.tids.insert(next.tid);
        drop(lines);
        next.is_at_work.store(true, Ordering::Release);
        next.thread.unpark();
    }

    /// It goes on, outside of the line.
    fn go_on(&self) {
        self.client_priority.workers.lines().tids.insert(self.tid);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.pause();
    }
}

/// Waits until the calling thread is at work for a user. One that is already stays so.
pub fn begin(client_priority: &Arc<ClientPriority>, user: UserId, has_line: bool) {
    if TURN.with_borrow(Option::is_some) {
        return;
    }
    let tid = rustix::thread::gettid().as_raw_pid() as u32;
    let user = has_line.then_some(user);
    let waiter =
        Arc::new(Waiter { thread: thread::current(), tid, is_at_work: AtomicBool::new(false) });
    let mut lines = client_priority.workers.lines();
    if user.is_none_or(|user| lines.of_users.come(user, waiter.clone())) {
        lines.tids.insert(tid);
        waiter.is_at_work.store(true, Ordering::Release);
    }
    drop(lines);
    while !waiter.is_at_work.load(Ordering::Acquire) {
        thread::park();
    }
    let turn = Turn { client_priority: client_priority.clone(), user, is_first: true, tid };
    TURN.set(Some(turn));
    wait_for_time();
}

/// Waits until the user of the calling thread has something left of his allowance, or there is
/// time that is not the gangs'. Does nothing for a thread that is not at work.
pub fn wait_for_time() {
    TURN.with_borrow(|turn| {
        let Some(Turn { client_priority, user: Some(user), .. }) = turn else { return };
        client_priority.charge(Some(*user), take_asked_ns());
    });
    let begins_in_ns = || {
        TURN.with_borrow(|turn| {
            let Turn { client_priority, user, .. } = turn.as_ref()?;
            Some(client_priority.begins_in_ns((*user)?)).filter(|&ns| ns > 0)
        })
    };
    while let Some(begins_in_ns) = begins_in_ns() {
        thread::sleep(Duration::from_nanos(begins_in_ns).min(LOOK_EVERY));
    }
}

/// The calling thread is not at work any more, since its request is over or waits.
pub fn leave() {
    drop(TURN.take());
}

/// Does something that waits for a client, outside of the line. The calling thread goes on as one
/// at work, if it was one: its time is not that of other programs.
pub fn outside<T>(waits: impl FnOnce() -> T) -> T {
    TURN.with_borrow_mut(|turn| turn.as_mut().map(Turn::pause));
    let done = waits();
    TURN.with_borrow(|turn| turn.as_ref().map(Turn::go_on));
    done
}

/// Whether the time of the conductor for what the calling thread asks now is not the gangs'.
pub fn is_free() -> bool {
    let is_free = |turn: &Turn| turn.user.is_none() || turn.client_priority.gangs.leave_time();
    TURN.with_borrow(|turn| turn.as_ref().is_some_and(is_free))
}

/// Takes note of what the calling thread asked of the conductor.
pub fn asked(used_ns: u64) {
    ASKED_NS.set(ASKED_NS.get() + used_ns);
}

/// The conductor's time for requests of the calling thread, since the last call.
pub fn take_asked_ns() -> u64 {
    ASKED_NS.take()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const ONE: UserId = UserId(1);

    fn at_work(client_priority: &ClientPriority) -> usize {
        client_priority.workers.lines().tids.len()
    }

    #[test]
    fn threads_of_a_user_work_one_after_the_other() {
        let client_priority = ClientPriority::new(false);
        begin(&client_priority, ONE, true);
        begin(&client_priority, ONE, true);
        assert!(client_priority.workers.runnable(Path::new("/proc")) >= 1, "this thread runs");
        let (order, served) = channel();
        let serve = |user, has_line, name: &'static str| {
            let (client_priority, order) = (client_priority.clone(), order.clone());
            thread::spawn(move || {
                begin(&client_priority, user, has_line);
                order.send(name).unwrap();
            })
        };
        let second = serve(ONE, true, "second");
        // Neither another user nor one without a line waits for the first one.
        serve(UserId(2), true, "other").join().unwrap();
        serve(ONE, false, "root").join().unwrap();
        assert_eq!(at_work(&client_priority), 1, "threads that ended are not at work");
        assert_eq!([served.recv().unwrap(), served.recv().unwrap()], ["other", "root"]);
        assert!(served.try_recv().is_err());
        leave();
        second.join().unwrap();
        assert_eq!(served.recv().unwrap(), "second");
        assert_eq!(at_work(&client_priority), 0);
    }

    #[test]
    fn thread_that_awaited_a_client_is_at_work_off_line() {
        let client_priority = ClientPriority::new(false);
        begin(&client_priority, ONE, true);
        let serves_another = || {
            let client_priority = client_priority.clone();
            thread::spawn(move || begin(&client_priority, ONE, true)).join().unwrap();
        };
        outside(|| {
            assert_eq!(at_work(&client_priority), 0);
            serves_another();
        });
        assert_eq!(at_work(&client_priority), 1);
        serves_another();
        leave();
        assert_eq!(at_work(&client_priority), 0);
        serves_another();
    }

    #[test]
    fn what_was_asked_is_taken_once() {
        asked(3);
        asked(4);
        assert_eq!([take_asked_ns(), take_asked_ns()], [7, 0]);
    }
}
