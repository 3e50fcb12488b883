//! Observations of the machine, and what follows from them.

use std::collections::BTreeMap;

use gang_schedule::{Event, JobId, Sharing, UserId};
use gang_timetable::Runnable;

use crate::{
    Conductor, Eligibility, Note, Now, Refused,
    activity::{Change, Look},
};

/// Jobs that are looked at in one go; and while one of those that sleep may have woken.
const LOOKS: usize = 8;
const LOOKS_AT_ONCE: usize = 32;

/// How many threads want to run.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// On the whole machine.
    pub all: u32,
    /// Threads of the daemon among them.
    pub of_daemon: u32,
    /// Of the jobs that were [to be counted](Conductor::to_count).
    pub of_jobs: Vec<(JobId, Runnable)>,
}

/// The observation of a job.
#[derive(Clone, Copy, Debug)]
pub struct JobSeen {
    pub id: JobId,
    pub cpu_time_ns: u64,
    /// Time in which some thread of it waited for a CPU; absent where that is not known, and of one
    /// that is awake, of which it makes no difference.
    pub waited_us: Option<u64>,
}

/// The jobs that are looked at next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    next: JobId,
    /// Jobs that are still to be looked at because one of them may have woken.
    suspects: usize,
}

impl Round {
    pub fn new() -> Round {
        Round { next: JobId(0), suspects: 0 }
    }
}

impl Conductor {
    /// The jobs of which it matters how many threads want to run.
    pub fn to_count(&self) -> Vec<JobId> {
        let counts = |job: &&crate::Job| {
            // One with too many threads has no slots, and is no load for others all the same.
            let is_over_limit = self.eligibility(job) == Eligibility::TooManyThreads;
            job.home.is_some() && (job.activity.awake || is_over_limit)
        };
        self.jobs.values().filter(counts).map(|job| job.id).collect()
    }

    /// Takes note of the threads that want to run.
    pub fn count(&mut self, now: Now, counted: &Counted) {
        let (machine, fill) = (self.machine(), self.config().fill);
        let mut of_jobs = Runnable::default();
        for (id, runnable) in &counted.of_jobs {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            if job.activity.awake {
                job.oversubscription.saw(runnable.threads, job.spec.cpus.min(machine));
            }
            if let Some(home) = &mut job.home {
                job.short_lived.saw(home.members.take_turnover(), runnable.threads);
            }
            let is_over_limit = job.eligibility(machine) == Eligibility::TooManyThreads;
            if is_over_limit && runnable.threads > 0 {
                job.activity.is_wanted(now.monotonic_ns, job.in_slot_ns);
            }
            if !job.is_with_rest(fill, machine) {
                of_jobs.threads += runnable.threads;
                of_jobs.unseen += runnable.unseen;
            }
        }
        self.load.saw(counted.all, of_jobs, counted.of_daemon, machine);
        if self.load.rises() {
            self.round.suspects = self.jobs.len();
        }
        self.apply_load(now);
    }

    /// Whether it matters whose the threads are that want to run outside of gangs.
    pub fn asks_for_users(&self) -> bool {
        self.load.threads() > 0
            && matches!(self.schedule.config().sharing, Sharing::ByUser(_))
            && self.jobs.values().any(|job| self.eligibility(job).is_gang())
    }

    /// Takes note of whose the threads are that want to run outside of gangs: how many are on which
    /// account.
    pub fn saw_users(&mut self, now: Now, threads: BTreeMap<UserId, u32>) {
        self.load.saw_users(now.monotonic_ns, threads);
        self.apply_load(now);
    }

    fn apply_load(&mut self, now: Now) {
        let threads = self.load.threads();
        let of_users = self.load.of_users(now.monotonic_ns);
        let _ = self.schedule.apply(Event::Load { threads, of_users });
    }

    /// Takes note of how many short tasks have had a CPU of gangs up to now; absent where that is
    /// not measured.
    pub fn saw_short_tasks(&mut self, count: Option<u64>) {
        if self.gaps.saw_short_tasks(count) {
            self.note(Note::Gaps(self.gaps.usual()));
            self.schedule.renew();
        }
    }

    /// The threads of a job were read.
    pub fn saw_members_of(&mut self, id: JobId) {
        self.saw_cpus_of(id);
        self.charge_switches_of(id);
        self.follow_crowding_of(id);
    }

    /// A few jobs, in turn, of which it is to be seen whether they sleep.
    pub fn to_look_at(&mut self) -> Vec<JobId> {
        let after = self.jobs.range(self.round.next..).map(|(&id, _)| id);
        let looks = self.round.suspects.clamp(LOOKS, LOOKS_AT_ONCE).min(self.jobs.len());
        let ids: Vec<JobId> = after.chain(self.jobs.keys().copied()).take(looks).collect();
        self.round.suspects = self.round.suspects.saturating_sub(looks);
        self.round.next = ids.last().map_or(JobId(0), |id| JobId(id.0 + 1));
        ids
    }

    /// A job was looked at: one that wants to run wakes. True for one that
    /// [falls asleep](Conductor::fall_asleep) now, unless one of its threads wants to run.
    pub fn looked_at(&mut self, now: Now, seen: JobSeen) -> bool {
        let (machine, slice_ns) = (self.machine(), self.config().slice_ns);
        let (can_fill, fill) = (self.backend.can_fill(), self.config().fill);
        let Some(job) = self.jobs.get_mut(&seen.id) else { return false };
        let look = Look {
            now_ns: now.monotonic_ns,
            cpu_time_ns: seen.cpu_time_ns,
            waited_us: seen.waited_us,
            slots: job.slots,
            in_slot_ns: job.in_slot_ns,
            threads: job.home.as_ref().map_or(0, |home| home.members.threads().len()),
            stands_still: !can_fill && !job.is_with_rest(fill, machine),
            has_too_many_threads: job.eligibility(machine) == Eligibility::TooManyThreads,
            slice_ns,
        };
        match job.activity.look(&look, || false) {
            Change::None => false,
            Change::Wakes => {
                let _ = self.wake(seen.id);
                false
            }
            Change::FallsAsleep => true,
        }
    }

    /// A job falls asleep; until now some thread of it has waited for so long.
    pub fn fall_asleep(&mut self, now: Now, id: JobId, waited_us: u64) -> Result<(), Refused> {
        let job = self.job_mut(id)?;
        job.activity.fell_asleep(now.monotonic_ns, job.slots, waited_us);
        self.sleep(id)
    }
}
