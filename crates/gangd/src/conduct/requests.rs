//! Questions and orders of clients, and their way to the thread that plans.

use std::{
    cell::Cell,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
};

use gang_engine::{
    rivals,
    timing::{self, Summary, Timings},
};
use gang_linux::{clock, clock::Alarm};
use gang_schedule::CpuSet;

use crate::{
    conduct::{at_work, state::State},
    error::Error,
};

/// A question or an order, of the user for whom a thread works.
pub struct Request {
    /// `None`: the daemon itself asks.
    pub uid: Option<u32>,
    pub run: Box<dyn FnOnce(&mut State) + Send>,
}

thread_local! {
    static WORKS_FOR: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The requests of this thread are a user's from now on: the conductor serves users by turns.
pub fn work_for(uid: u32) {
    WORKS_FOR.set(Some(uid));
}

/// Requests that may wait at a time; a further client is asked to come again.
const REQUESTS_MAX: usize = 1024;

/// How clients reach the conductor.
#[derive(Clone)]
pub struct Handle {
    requests: SyncSender<Request>,
    alarm: Arc<Alarm>,
    /// By the CPUs of each switcher.
    timings: Arc<[(CpuSet, Arc<Timings>)]>,
    switchers: Arc<[(CpuSet, rivals::Handle)]>,
}

/// Why the conductor cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    Ended,
    /// As many wait as may.
    Busy,
}

impl From<Unavailable> for Error {
    fn from(why: Unavailable) -> Self {
        match why {
            Unavailable::Ended => Error::Failed {
                operation: "ask the scheduler".into(),
                reason: "it has ended; try again".into(),
            },
            Unavailable::Busy => {
                let limit = "requests that wait for the scheduler";
                Error::LimitReached { limit, maximum: REQUESTS_MAX }
            }
        }
    }
}

impl Handle {
    /// Runs a function on the conductor's thread and returns its result. The function must not wait
    /// for anything, nor take longer than some microseconds.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (reply, answer) = sync_channel(1);
        let run = Box::new(move |state: &mut State| {
            let before_ns = clock::thread_cpu_ns();
            let answer = question(state);
            let own_ns = clock::thread_cpu_ns() - before_ns;
            state.requests_ns += own_ns;
            // The client may have gone away meanwhile.
            let _ = reply.try_send((answer, own_ns + state.request_overhead.ns()));
        });
        let is_free = at_work::is_free();
        match self.requests.try_send(Request { uid: WORKS_FOR.get(), run }) {
            Ok(()) => self.alarm.ring(),
            Err(TrySendError::Full(_)) => return Err(Unavailable::Busy),
            Err(TrySendError::Disconnected(_)) => return Err(Unavailable::Ended),
        }
        let (answer, used_ns) = answer.recv().map_err(|_| Unavailable::Ended)?;
        at_work::asked(if is_free { 0 } else { used_ns });
        Ok(answer)
    }

    /// The phases of the last switches.
    pub fn switches(&self) -> (u64, Summary) {
        let timings: Vec<&Timings> = self.timings.iter().map(|(_, timings)| &**timings).collect();
        let count = timings.iter().map(|timings| timings.count()).max().unwrap_or(0);
        (count, timing::summarise(&timings))
    }

    /// How many plans came after their beginning, and how many ran out. Each switcher gets its part
    /// of every plan, so the switcher that saw most counts.
    pub fn belated(&self) -> (u64, u64) {
        let all = self.timings.iter().map(|(_, timings)| timings.belated());
        all.fold((0, 0), |(late, out), (one, other)| (late.max(one), out.max(other)))
    }

    /// A switcher has not done yet what was to be done by a moment (UTC).
    pub fn is_behind(&self, at_ns: u64) -> bool {
        self.timings.iter().any(|(_, timings)| timings.is_overdue(at_ns))
    }

    /// No switcher follows a timetable any more that was made before this generation.
    pub fn is_in_force(&self, generation: u64) -> bool {
        self.timings.iter().all(|(_, timings)| timings.in_force() >= generation)
    }

    /// The switchers' own records, by their CPUs.
    pub fn timings(&self) -> &[(CpuSet, Arc<Timings>)] {
        &self.timings
    }

    /// The ways to the switchers for rivals, by their CPUs.
    pub fn switchers(&self) -> &[(CpuSet, rivals::Handle)] {
        &self.switchers
    }

    /// Ends the conductor: nobody is raised any more.
    pub fn stop(&self) {
        let _ = self.ask(|state| state.stopped = true);
    }
}

/// Opens the way to a conductor that `alarm` wakes; the receiver is its other end.
pub fn open(
    alarm: Arc<Alarm>,
    timings: Arc<[(CpuSet, Arc<Timings>)]>,
    switchers: Arc<[(CpuSet, rivals::Handle)]>,
) -> (Handle, Receiver<Request>) {
    let (sender, requests) = sync_channel(REQUESTS_MAX);
    (Handle { requests: sender, alarm, timings, switchers }, requests)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn request_beyond_the_limit_is_refused() {
        // Nobody answers the requests.
        let (handle, requests) = open(Arc::default(), Arc::new([]), Arc::new([]));
        for _ in 0..REQUESTS_MAX {
            handle.requests.try_send(Request { uid: None, run: Box::new(|_| ()) }).unwrap();
        }
        let refused = handle.ask(|_| ()).unwrap_err();
        let limit = "requests that wait for the scheduler";
        assert_eq!(Error::from(refused), Error::LimitReached { limit, maximum: 1024 });
        // One that waits hears of the end.
        drop(requests.recv().unwrap());
        let waiting = thread::spawn({
            let handle = handle.clone();
            move || handle.ask(|_| ())
        });
        drop(requests);
        assert_eq!(waiting.join().unwrap(), Err(Unavailable::Ended));
        assert_eq!(handle.ask(|_| ()), Err(Unavailable::Ended));
    }
}
