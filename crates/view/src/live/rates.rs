//! Rates, from two looks at the counters of a job.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use gang_protocol::v1;
use serde::Serialize;

/// The shortest time over which rates are taken: with less, they jump from one look to the next.
const WINDOW: Duration = Duration::from_secs(2);

/// The rates of a job over the last two seconds. A rate that was not measured is absent. All are
/// absent until there are two looks to compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    /// CPU time over time: how many CPUs it used.
    pub cpus_used: Option<f64>,
    pub slots_per_s: Option<f64>,
    /// Share of the time in slot.
    pub in_slot: Option<f64>,
    /// Share of its CPU time that it had out of its slots, in holes that others left.
    pub filling: Option<f64>,
    /// How many of its threads, on average, waited for a CPU in slot, and out of slot.
    pub lost: Option<f64>,
    pub waiting: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Counters {
    registered_at_ns: i64,
    slots: i64,
    in_slot_ns: i64,
    cpu_time_ns: i64,
    filled_ns: Option<i64>,
    lost_ns: Option<i64>,
    waiting_ns: Option<i64>,
}

impl Counters {
    fn of(job: &v1::Job) -> Counters {
        let measured = job.measured.as_ref();
        Counters {
            registered_at_ns: job.registered_at_ns,
            slots: job.slots,
            in_slot_ns: job.in_slot_ns,
            cpu_time_ns: job.cpu_time_ns,
            filled_ns: measured.map(|it| it.filled_ns),
            lost_ns: measured.map(|it| it.lost_ns),
            waiting_ns: measured.map(|it| it.waiting_ns),
        }
    }

    /// Those of one job, from an earlier look to this one.
    fn since(&self, earlier: &Counters, time: Duration) -> Rates {
        let ns = time.as_nanos() as f64;
        // Counters that fell are not of the same measurement.
        let grown = |now: i64, then: i64| (now >= then).then(|| (now - then) as f64);
        let both = |now: Option<i64>, then: Option<i64>| grown(now?, then?);
        let cpu_ns = grown(self.cpu_time_ns, earlier.cpu_time_ns);
        let filled_ns = both(self.filled_ns, earlier.filled_ns);
        let filling = |filled_ns: f64| {
            let cpu_ns = cpu_ns.filter(|ns| *ns > 0.0)?;
            // The two are read one after the other.
            Some((filled_ns / cpu_ns).min(1.0))
        };
        Rates {
            cpus_used: cpu_ns.map(|cpu_ns| cpu_ns / ns),
            slots_per_s: grown(self.slots, earlier.slots).map(|slots| slots * 1e9 / ns),
            in_slot: grown(self.in_slot_ns, earlier.in_slot_ns).map(|in_slot| in_slot / ns),
            filling: filled_ns.and_then(filling),
            lost: both(self.lost_ns, earlier.lost_ns).map(|lost_ns| lost_ns / ns),
            waiting: both(self.waiting_ns, earlier.waiting_ns).map(|waiting_ns| waiting_ns / ns),
        }
    }
}

/// The counters of all jobs at a moment.
type Look = (Instant, BTreeMap<i64, Counters>);

/// The looks of the last seconds, the oldest first.
#[derive(Debug, Default)]
pub struct Looks {
    looks: VecDeque<Look>,
}

impl Looks {
    /// Takes the counters of all jobs, and forgets looks that are older than is needed.
    pub fn add(&mut self, jobs: &[v1::Job], at: Instant) {
        let is_old = |look: &Look| at.saturating_duration_since(look.0) >= WINDOW;
        while self.looks.get(1).is_some_and(is_old) {
            self.looks.pop_front();
        }
        let counters = jobs.iter().map(|job| (job.id, Counters::of(job))).collect();
        self.looks.push_back((at, counters));
    }

    /// The rates of a job from the first look that has it to the last one.
    pub fn rates(&self, job: i64) -> Rates {
        let rates = || {
            let (now, last) = self.looks.back()?;
            let last = last.get(&job)?;
            // Numbers of jobs may be given anew by another daemon.
            let is_same = |first: &&Counters| first.registered_at_ns == last.registered_at_ns;
            let of_first = |(then, jobs): &Look| Some((*then, *jobs.get(&job).filter(is_same)?));
            let (then, first) = self.looks.iter().find_map(of_first)?;
            let time = now.checked_duration_since(then).filter(|time| !time.is_zero())?;
            Some(last.since(&first, time))
        };
        rates().unwrap_or_default()
    }

    pub fn clear(&mut self) {
        self.looks.clear();
    }
}
