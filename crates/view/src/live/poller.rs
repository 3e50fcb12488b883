//! The thread that asks.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gang_protocol::client::Client;
use gang_protocol::error::ClientError;
use gang_protocol::paths::Surroundings;

use super::model::{Model, Moment};
use super::snapshot::Snapshot;

/// Longest wait for an answer. A daemon that takes longer counts as hanging.
pub const TIME_LIMIT: Duration = Duration::from_secs(2);

/// From one try to find a daemon to the next.
const RETRY: Duration = Duration::from_millis(500);

/// How often is asked for what, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    pub frame: Duration,
    pub jobs: Duration,
    pub status: Duration,
}

impl Pace {
    /// A picture at this pace. Figures are means over seconds, and are asked for less often: they
    /// cost most, and nobody can read ten numbers a second.
    pub fn every(frame: Duration) -> Pace {
        Pace {
            frame,
            jobs: frame.max(Duration::from_millis(500)),
            status: frame.max(Duration::from_secs(1)),
        }
    }
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::every(Duration::from_millis(100))
    }
}

enum Order {
    Refresh,
    Keep(Option<Pace>),
}

/// Looks on at a daemon until it is dropped, in a thread of its own.
#[derive(Debug)]
pub struct Poller {
    orders: Sender<Order>,
}

impl Poller {
    /// Begins to look on at the daemon that a client in these surroundings finds. Each snapshot is
    /// delivered by the thread that looks, which waits meanwhile.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(
        surroundings: Surroundings,
        pace: Pace,
        deliver: impl FnMut(Snapshot) + Send + 'static,
    ) -> io::Result<Poller> {
        let (orders, ordered) = channel();
        let look = Look::new(surroundings);
        // It is not waited for: it may be waiting for a daemon that hangs.
        thread::Builder::new()
            .name("poller".to_owned())
            .spawn(move || keep_looking(look, pace, &ordered, deliver))?;
        Ok(Poller { orders })
    }

    /// Looks at everything anew, without waiting for when it is due.
    pub fn refresh(&self) {
        let _ = self.orders.send(Order::Refresh);
    }

    /// Changes the pace; without one it rests.
    pub fn set_pace(&self, pace: Option<Pace>) {
        let _ = self.orders.send(Order::Keep(pace));
    }
}

fn keep_looking(
    mut look: Look,
    pace: Pace,
    orders: &Receiver<Order>,
    mut deliver: impl FnMut(Snapshot),
) {
    let mut pace = Some(pace);
    let mut due = Instant::now();
    loop {
        let order = match pace {
            Some(_) => orders.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match order {
            Ok(Order::Keep(kept)) => {
                pace = kept;
                continue;
            }
            Ok(Order::Refresh) => look.forget_what_was_due(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let current = pace.unwrap_or_default();
        let snapshot = look.look(current);
        let wait = if snapshot.link.is_up() { current.frame } else { current.frame.max(RETRY) };
        deliver(snapshot);
        // Late once is not late for ever.
        due = (due + wait).max(Instant::now());
    }
}

/// One snapshot of a daemon. With a time, after two looks this far apart, so that it has rates.
///
/// # Errors
/// Those of the first connection and the questions.
pub fn once(
    surroundings: Surroundings,
    between: Option<Duration>,
) -> Result<Snapshot, ClientError> {
    let mut look = Look::new(surroundings);
    let mut at = Moment::now();
    look.ask(at, Pace::default())?;
    if let Some(between) = between {
        thread::sleep(between);
        look.forget_what_was_due();
        at = Moment::now();
        look.ask(at, Pace::default())?;
    }
    Ok(look.model.snapshot(at))
}

/// The name of this machine.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A connection, and what was heard over it.
struct Look {
    surroundings: Surroundings,
    client: Option<Client>,
    model: Model,
    jobs_at: Option<Instant>,
    status_at: Option<Instant>,
}

impl Look {
    fn new(surroundings: Surroundings) -> Look {
        let model = Model::new(&host());
        Look { surroundings, client: None, model, jobs_at: None, status_at: None }
    }

    fn forget_what_was_due(&mut self) {
        (self.jobs_at, self.status_at) = (None, None);
    }

    fn look(&mut self, pace: Pace) -> Snapshot {
        let at = Moment::now();
        if let Err(error) = self.ask(at, pace) {
            // A late reply would be taken for that of the next request.
            self.client = None;
            self.forget_what_was_due();
            self.model.lost(&error, at);
        }
        self.model.snapshot(at)
    }

    fn ask(&mut self, at: Moment, pace: Pace) -> Result<(), ClientError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::find_within(&self.surroundings, TIME_LIMIT)?,
        };
        // Half a frame early is not early.
        let is_due = |last: Option<Instant>, every: Duration| {
            last.is_none_or(|last| at.instant.duration_since(last) + pace.frame / 2 >= every)
        };
        if is_due(self.status_at, pace.status) {
            self.model.status(client.status()?.status);
            self.model.cluster(client.cluster()?);
            self.status_at = Some(at.instant);
        }
        let asked = Moment::now();
        self.model.frame(client.frame(Some(self.model.since_ns(asked)))?.rows, asked);
        if is_due(self.jobs_at, pace.jobs) || self.model.has_unknown_jobs() {
            self.model.jobs(client.list_jobs()?.jobs, Moment::now());
            self.jobs_at = Some(at.instant);
        }
        self.model.connected(client.socket());
        self.client = Some(client);
        Ok(())
    }
}
