//! Plans that are made ahead, and taken back when something changes.
//!
//! Problem: planning slice by slice wakes the conductor at every slice, and waking it costs more
//! than planning. But a job that arrives is not to wait until everything that was planned ahead is
//! over.
//!
//! Approach: the schedule is kept twice: as it is after all slices that were planned, and as it was
//! before the first of them. A change takes plans back first: the schedule as it was, with those
//! slices planned again that stand. A plan follows from the state alone, so these slices come out
//! the same.
//!
//! Terms. A plan *stands* from the moment at which it is too late for another one in its place.
//!
//! Properties: however often plans were taken back, the schedule is as if each slice had been
//! planned just before it began, with all that was known until then.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use gang_schedule::{Event, Plan, Refusal, Schedule, clock};

/// Plans of past slices that are kept for the daemon's own use.
const PLANS_KEPT: usize = 64;

/// Past plans are kept, too, for views that look ten times a second at slices of 200 µs: so many,
/// and the jobs and CPUs that they name.
const PAST_KEPT: usize = 2048 - PLANS_KEPT;
const PAST_NAMED: usize = 64 * 1024;

/// A schedule with its plans.
pub struct Forecast {
    /// After all plans.
    schedule: Schedule,
    /// Before the last `ahead` of them.
    base: Schedule,
    /// Plans of the last slices and the next ones, in order. They are shared, so that a client's
    /// thread takes them along and spends its own time on them.
    plans: Vec<Arc<Plan>>,
    ahead: usize,
    past: Past,
    /// The first plan ahead is that of a slice under way, changed; this is what it was before.
    amended: Option<Arc<Plan>>,
    /// Plans of slices that begin before this moment (UTC) stand.
    stands_until_ns: u64,
    is_changed: bool,
}

impl Deref for Forecast {
    type Target = Schedule;

    fn deref(&self) -> &Schedule {
        &self.schedule
    }
}

impl Forecast {
    pub fn new(schedule: Schedule) -> Forecast {
        Forecast {
            base: schedule.clone(),
            schedule,
            plans: Vec::new(),
            ahead: 0,
            past: Past::default(),
            amended: None,
            stands_until_ns: 0,
            is_changed: false,
        }
    }

    /// Of the last slices and the next ones, in order.
    pub fn plans(&self) -> &[Arc<Plan>] {
        &self.plans
    }

    /// Plans of slices that end after a moment (UTC), in order; as far back as they are kept.
    pub fn plans_since(&self, moment_ns: u64) -> Vec<Arc<Plan>> {
        let all = self.past.plans.iter().chain(&self.plans);
        all.filter(|plan| plan.end_ns > moment_ns).cloned().collect()
    }

    pub fn plan_of(&self, slice: u64) -> Option<&Plan> {
        self.plans.iter().rev().find(|plan| plan.slice == slice).map(|plan| &**plan)
    }

    /// From when on plans are made anew: since something changed, and where nothing did, as things
    /// are now.
    pub fn stands_until_ns(&self) -> u64 {
        self.stands_until_ns
    }

    /// Something changed since the last plans were made.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Has the plans that do not stand yet handed out anew, though nothing changes in them.
    pub fn renew(&mut self) {
        self.is_changed = true;
    }

    /// Says which plans stand by now: those of slices that begin before `moment_ns` (UTC). Where
    /// some were taken back already, that holds.
    pub fn stand_until(&mut self, moment_ns: u64) {
        if !self.is_changed {
            self.stands_until_ns = moment_ns;
        }
    }

    /// Takes note of an event; plans that do not stand yet are taken back.
    ///
    /// # Errors
    /// A [`Refusal`]; then nothing was changed, and the plans will be the same again.
    pub fn apply(&mut self, event: Event) -> Result<(), Refusal> {
        if self.schedule.is_known(&event) {
            return Ok(());
        }
        self.unplan();
        self.is_changed = true;
        self.schedule.apply(event)
    }

    /// Makes the plans of a stretch of time, from the first moment that is not planned or not to
    /// stand.
    pub fn extend(&mut self, from_ns: u64, until_ns: u64) {
        self.unplan();
        self.is_changed = false;
        self.base = self.schedule.clone();
        let first = clock::slice_at(self.schedule.config(), from_ns);
        let last = clock::slice_at(self.schedule.config(), until_ns - 1);
        // Plans of a time that the clock has come back from.
        self.plans.retain(|plan| plan.slice <= first);
        self.past.cut(first);
        let over = self.plans.len().saturating_sub(PLANS_KEPT);
        self.plans.drain(..over).for_each(|plan| self.past.add(plan));
        let is_under_way = self.plans.last().is_some_and(|plan| plan.slice == first);
        self.amended = if is_under_way { self.plans.pop() } else { None };
        self.ahead = 0;
        for slice in first..=last {
            let plan = self.next(slice);
            self.plans.push(Arc::new(plan));
            self.ahead += 1;
        }
    }

    /// The plan of the next slice, or the rest of one that is under way.
    fn next(&mut self, slice: u64) -> Plan {
        match self.amended.as_ref().filter(|plan| plan.slice == slice) {
            Some(plan) => self.schedule.amend(plan).unwrap_or_else(|| Plan::clone(plan)),
            None => self.schedule.plan(slice),
        }
    }

    fn unplan(&mut self) {
        let ahead = &self.plans[self.plans.len() - self.ahead..];
        let standing = ahead.iter().filter(|plan| plan.start_ns < self.stands_until_ns).count();
        if standing == ahead.len() {
            return;
        }
        let kept = self.plans.len() - self.ahead + standing;
        self.schedule = self.base.clone();
        for index in kept - standing..kept {
            let again = self.next(self.plans[index].slice);
            debug_assert_eq!(again, *self.plans[index], "a plan follows from the state");
        }
        self.plans.truncate(kept);
        self.ahead = standing;
    }
}

/// Plans of slices that are over: a bounded number, however many jobs and CPUs they name.
#[derive(Default)]
struct Past {
    plans: VecDeque<Arc<Plan>>,
    named: usize,
}

impl Past {
    fn add(&mut self, plan: Arc<Plan>) {
        self.named += named(&plan);
        self.plans.push_back(plan);
        while self.plans.len() > PAST_KEPT || self.named > PAST_NAMED {
            let Some(oldest) = self.plans.pop_front() else { break };
            self.named -= named(&oldest);
        }
    }

    /// Forgets those from a slice on.
    fn cut(&mut self, slice: u64) {
        while self.plans.back().is_some_and(|plan| plan.slice >= slice) {
            self.named -= self.plans.pop_back().map_or(0, |plan| named(&plan));
        }
    }
}

/// How many jobs a plan names, and CPUs of its slots.
fn named(plan: &Plan) -> usize {
    let of_slots: usize = plan.row.iter().map(|slot| 1 + slot.cpus.len()).sum();
    1 + of_slots + plan.fillers.len() + plan.paused.len()
}

#[cfg(test)]
mod tests {
    use gang_schedule::{Config, JobId, Slot, Spec, Topology};
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn schedule(slice_ns: u64) -> Schedule {
        let config = Config { slice_ns, ..Config::default() };
        let mut schedule = Schedule::new(config, Topology::flat(4)).unwrap();
        for job in 1..=4 {
            let spec = Spec { weight: 50 * job as u32, ..Spec::new(1 + job as u32 % 4) };
            schedule.apply(Event::Arrived { job: JobId(job), spec }).unwrap();
        }
        schedule
    }

    fn event() -> impl Strategy<Value = Event> {
        let job = (1u64..=4).prop_map(JobId);
        prop_oneof![
            job.clone().prop_map(|job| Event::Slept { job }),
            job.clone().prop_map(|job| Event::Woke { job }),
            job.clone().prop_map(|job| Event::Suspended { job }),
            job.prop_map(|job| Event::Resumed { job }),
            (0u32..6).prop_map(Event::load),
        ]
    }

    proptest! {
        /// Planned far ahead and taken back, or each slice just before it begins: the same.
        #[test]
        fn taking_back_leaves_no_trace(
            slices in 2u64..40,
            events in proptest::collection::btree_map(1u64..30, event(), 0..12),
        ) {
            let mut naive = schedule(10 * MS);
            let mut expected = Vec::new();
            let mut forecast = Forecast::new(schedule(10 * MS));
            forecast.extend(0, slices * 10 * MS);
            for slice in 0..30 {
                if let Some(event) = events.get(&slice) {
                    naive.apply(event.clone()).unwrap();
                    forecast.stand_until(slice * 10 * MS);
                    forecast.apply(event.clone()).unwrap();
                }
                let begins_ns = slice * 10 * MS;
                if forecast.is_changed() || forecast.plan_of(slice).is_none() {
                    forecast.stand_until(begins_ns);
                    forecast.extend(begins_ns, begins_ns + slices * 10 * MS);
                }
                expected.push(naive.plan(slice).row);
            }
            let found: Vec<_> = (0..30)
                .map(|slice| forecast.plan_of(slice).map(|plan| plan.row.clone()).unwrap())
                .collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn past_plans_are_kept_without_a_gap_and_bounded() {
        let mut forecast = Forecast::new(schedule(MS));
        let stretch_ns = 32 * MS;
        for stretch in 0..200 {
            let begins_ns = stretch * stretch_ns;
            forecast.stand_until(begins_ns);
            forecast.extend(begins_ns, begins_ns + stretch_ns);
        }
        let slices = |since_ns| -> Vec<u64> {
            forecast.plans_since(since_ns).iter().map(|plan| plan.slice).collect()
        };
        assert_eq!(slices(6_000 * MS), (6_000..6_400).collect::<Vec<_>>());
        let all = slices(0);
        assert_eq!(all.len(), PAST_KEPT + PLANS_KEPT + 32);
        assert!(all.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        // The clock goes back.
        forecast.extend(5_000 * MS, 5_010 * MS);
        let all: Vec<u64> = forecast.plans_since(0).iter().map(|plan| plan.slice).collect();
        assert!(all.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{all:?}");
        assert_eq!(all.last(), Some(&5_009));
    }

    #[test]
    fn past_plans_that_name_many_jobs_are_fewer() {
        let wide = schedule(MS).plan(0);
        let fillers = (0..PAST_NAMED as u64 / 8).map(JobId).collect();
        let plan = Arc::new(Plan { fillers, ..wide.clone() });
        let mut past = Past::default();
        (0..100).for_each(|_| past.add(plan.clone()));
        assert_eq!(past.plans.len(), 7);
        // One job that has a slot on many CPUs, and many jobs with one CPU each.
        for (jobs, cpus) in [(1, PAST_NAMED / 8), (PAST_NAMED / 16, 1)] {
            let slot =
                |job: usize| Slot { job: JobId(job as u64), cpus: (0..cpus as u32).collect() };
            let plan =
                Plan { row: (0..jobs).map(slot).collect(), fillers: Vec::new(), ..wide.clone() };
            let plan = Arc::new(plan);
            let mut past = Past::default();
            (0..100).for_each(|_| past.add(plan.clone()));
            assert_eq!(past.plans.len(), 7, "{jobs} jobs of {cpus} CPUs");
        }
    }

    #[test]
    fn a_slice_under_way_is_amended() {
        let mut forecast = Forecast::new(schedule(1000 * MS));
        (2..=4).for_each(|job| forecast.apply(Event::Suspended { job: JobId(job) }).unwrap());
        forecast.extend(0, 100 * MS);
        assert_eq!(forecast.plan_of(0).unwrap().row.len(), 1);
        forecast.stand_until(20 * MS);
        forecast.apply(Event::Suspended { job: JobId(1) }).unwrap();
        forecast.apply(Event::Resumed { job: JobId(3) }).unwrap();
        forecast.extend(20 * MS, 120 * MS);
        let row: Vec<JobId> =
            forecast.plan_of(0).unwrap().row.iter().map(|slot| slot.job).collect();
        assert_eq!(row, [JobId(3)]);
        assert_eq!(forecast.plans().len(), 1);
    }
}
