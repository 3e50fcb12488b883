//! Jobs that are over, and wait to be cleared away.
//!
//! Problem: the kernel takes some milliseconds for the groups of each job, and no client is to wait
//! for that. But where jobs come faster than they are cleared away, their remains fill the daemon
//! until it has no descriptors. And a group stays for as long as the last process in it takes to
//! end, or the daemon has no descriptor to look into it.
//!
//! Approach: a queue for each user, and one thread that works them off, one job of each user in
//! turn. A client that registers a job waits while the queue of its user is long. The room is for
//! all users together, and nobody has more than half of it, so that the jobs of one user keep
//! nobody else waiting. A job's remains that could not be cleared away wait beside the queues, and
//! are tried again and again, less often each time.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use gang_schedule::{JobId, UserId};
use gang_timetable::record::Record;

use crate::conduct::at_work;

/// Jobs of all users that may wait before others have to.
pub const ROOM: usize = 128;

/// The time between the first two tries to clear a job away, and between later ones.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Cleanup {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    /// Nobody's queue is empty.
    jobs: BTreeMap<UserId, VecDeque<JobId>>,
    /// The user of the last job that was taken.
    served: Option<UserId>,
    /// Each with the moment of the next try.
    remains: Vec<(Instant, Remains)>,
    is_closed: bool,
}

/// Remains of a job that the conductor does not know any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    pub record: Box<Record>,
    /// Its threads have what they had before; they may have chosen something else since.
    pub is_released: bool,
    /// The time until the next try.
    pause: Duration,
}

impl Remains {
    pub fn of(record: Box<Record>) -> Remains {
        Remains { record, is_released: false, pause: SHORTEST_PAUSE }
    }
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// A job is over.
    End(JobId),
    /// A job could not be cleared away yet.
    ClearAway(Remains),
}

impl Queue {
    /// The first job of the user who is next.
    fn next_job(&mut self) -> Option<JobId> {
        let after = self.served.map_or(Bound::Unbounded, Bound::Excluded);
        let mut users = self.jobs.range((after, Bound::Unbounded)).chain(&self.jobs);
        let user = *users.next()?.0;
        self.served = Some(user);
        let jobs = self.jobs.get_mut(&user)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&user);
        }
        job
    }

    /// Whether a user has his part of the room: as much as each of the users who have jobs here,
    /// where one more user comes.
    fn is_full(&self, user: UserId) -> bool {
        let his = self.jobs.get(&user).map_or(0, VecDeque::len);
        let users = self.jobs.len() + usize::from(his == 0);
        his >= (ROOM / (users + 1)).max(1)
    }

    /// The next thing that is due, or how long nothing is, unless something comes.
    fn next(&mut self, now: Instant) -> Result<Due, Option<Duration>> {
        if let Some(job) = self.next_job() {
            return Ok(Due::End(job));
        }
        let times = self.remains.iter().map(|(at, _)| *at).enumerate();
        let Some((first, at)) = times.min_by_key(|&(_, at)| at) else { return Err(None) };
        match at.saturating_duration_since(now) {
            left if left.is_zero() || self.is_closed => {
                Ok(Due::ClearAway(self.remains.swap_remove(first).1))
            }
            left => Err(Some(left)),
        }
    }
}

impl Cleanup {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job of a user is over.
    pub fn add(&self, user: UserId, job: JobId) {
        self.queue().jobs.entry(user).or_default().push_back(job);
        self.changed.notify_all();
    }

    /// A job could not be cleared away. A daemon that is about to end leaves the rest to its last
    /// release.
    pub fn add_remains(&self, mut remains: Remains) {
        let mut queue = self.queue();
        if !queue.is_closed {
            let at = Instant::now() + remains.pause;
            remains.pause = LONGEST_PAUSE.min(remains.pause * 2);
            queue.remains.push((at, remains));
            self.changed.notify_all();
        }
    }

    /// The next thing to do; waits for it. `None` once there will be no more.
    pub fn next(&self) -> Option<Due> {
        let mut queue = self.queue();
        loop {
            match queue.next(Instant::now()) {
                Ok(due) => {
                    self.changed.notify_all();
                    return Some(due);
                }
                Err(None) if queue.is_closed => return None,
                Err(None) => {
                    queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
                Err(Some(left)) => {
                    let waited = self.changed.wait_timeout(queue, left);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    /// Whether a job could not be cleared away yet.
    pub fn has_remains(&self) -> bool {
        !self.queue().remains.is_empty()
    }

    /// No more will come.
    pub fn close(&self) {
        self.queue().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until there is room for another job of a user; false where there is none in time.
    pub fn has_room_within(&self, user: UserId, io_deadline: Duration) -> bool {
        let is_full = |queue: &mut Queue| queue.is_full(user) && !queue.is_closed;
        if is_full(&mut self.queue()) {
            at_work::leave();
        }
        let waited = self.changed.wait_timeout_while(self.queue(), io_deadline, is_full);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gang_timetable::record::Placement;

    use super::*;

    const ONE: UserId = UserId(1);
    const TWO: UserId = UserId(2);
    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn registration_waits_while_many_jobs_are_over() {
        let cleanup = Arc::new(Cleanup::default());
        (1..ROOM as u64 / 2).for_each(|job| cleanup.add(ONE, JobId(job)));
        assert!(cleanup.has_room_within(ONE, SOON));
        cleanup.add(ONE, JobId(0));
        assert!(!cleanup.has_room_within(ONE, SOON));
        let waiting = Arc::clone(&cleanup);
        let waiter =
            std::thread::spawn(move || waiting.has_room_within(ONE, Duration::from_secs(60)));
        assert_eq!(cleanup.next(), Some(Due::End(JobId(1))));
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn jobs_of_one_user_leave_room_for_others() {
        let cleanup = Cleanup::default();
        (0..ROOM as u64).for_each(|job| cleanup.add(ONE, JobId(job)));
        assert!(!cleanup.has_room_within(ONE, SOON));
        let mut his = 0;
        while cleanup.has_room_within(TWO, SOON) {
            cleanup.add(TWO, JobId(1000 + his));
            his += 1;
        }
        assert_eq!(his, ROOM as u64 / 3);
        (3..1000).for_each(|user| {
            assert!(cleanup.has_room_within(UserId(user), SOON), "user {user}");
            cleanup.add(UserId(user), JobId(2000));
        });
    }

    #[test]
    fn jobs_of_users_are_cleared_away_in_turn() {
        let mut queue = Queue::default();
        for (user, jobs) in [(ONE, vec![1, 2, 3]), (TWO, vec![11]), (UserId(3), vec![21, 22])] {
            queue.jobs.insert(user, jobs.into_iter().map(JobId).collect());
        }
        let order: Vec<u64> = std::iter::from_fn(|| queue.next_job()).map(|job| job.0).collect();
        assert_eq!(order, [1, 11, 21, 2, 22, 3]);
        assert!(queue.jobs.is_empty());
    }

    #[test]
    fn all_are_cleared_away_before_the_end() {
        let cleanup = Arc::new(Cleanup::default());
        let worked = Arc::clone(&cleanup);
        let worker = std::thread::spawn(move || std::iter::from_fn(|| worked.next()).count());
        (0..5).for_each(|job| cleanup.add(ONE, JobId(job)));
        cleanup.close();
        assert_eq!(worker.join().unwrap(), 5);
    }

    fn remains(job: u64) -> Remains {
        let record = serde_json::json!({
            "id": job, "name": "job", "owner_uid": 0, "class": "batch", "policy": "gang",
            "weight": 100, "cpus": 1, "min_cpus": 1, "registered_at_ns": 0, "suspended": false,
            "placement": Placement::Tree { processes: Vec::new() },
            "normal": { "policy": 0, "nice": 0, "priority": 0 }, "affinity": [],
        });
        Remains::of(serde_json::from_value(record).unwrap())
    }

    #[test]
    fn remains_are_tried_again_and_less_often() {
        let mut queue = Queue::default();
        let now = Instant::now();
        let later = now + Duration::from_millis(10);
        queue.remains = vec![(later, remains(1)), (now, remains(2))];
        queue.jobs.insert(ONE, [JobId(3)].into());
        assert_eq!(queue.next(now), Ok(Due::End(JobId(3))));
        assert_eq!(queue.next(now), Ok(Due::ClearAway(remains(2))));
        assert_eq!(queue.next(now), Err(Some(later - now)));
        assert_eq!(queue.next(later), Ok(Due::ClearAway(remains(1))));
        assert_eq!(queue.next(later), Err(None));
        let cleanup = Cleanup::default();
        for times in [2, 4] {
            let mut again = remains(1);
            again.pause = SHORTEST_PAUSE * times / 2;
            cleanup.add_remains(again);
            assert_eq!(cleanup.queue().remains.pop().unwrap().1.pause, SHORTEST_PAUSE * times);
        }
    }

    #[test]
    fn remains_are_tried_once_more_before_the_end() {
        let cleanup = Cleanup::default();
        cleanup.add_remains(remains(1));
        cleanup.close();
        assert!(matches!(cleanup.next(), Some(Due::ClearAway(_))));
        cleanup.add_remains(remains(1));
        assert_eq!(cleanup.next(), None);
    }
}
