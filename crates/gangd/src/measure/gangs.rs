//! The conductor's side: it sends to the BPF programs which groups are gangs, and when their slots
//! are.
//!
//! Problem: the kernel sees which threads run, but not which were to run. A message at each edge
//! would cost the switchers time, and come late.
//!
//! Approach: the slots are sent with the plan. When a plan is taken back, the slots are sent again
//! from the moment at which they change. Time that has passed is booked by then.

use std::{collections::BTreeMap, sync::Arc};

use gang_bpf::{GangSums, Meter, SlotTime};
use gang_conductor::{Conductor, Job, effects::Planned};
use gang_linux::clock;
use gang_schedule::{Config, JobId, Policy, clock as slices};
use gang_timetable::record::Placement;

use super::measuring::{Looks, group_number};

/// The jobs that are measured, as the conductor keeps them.
#[derive(Debug, Default)]
pub struct MeasuredGangs {
    /// Absent as long as nothing is measured.
    meter: Option<Arc<Meter>>,
    looks: Arc<Looks>,
    gangs: BTreeMap<JobId, Gang>,
}

#[derive(Debug)]
struct Gang {
    group: u64,
    /// The slots that were sent and have not passed (UTC); `None`: all of the time is slot.
    slots: Option<Vec<SlotTime>>,
}

impl MeasuredGangs {
    /// Measures from now on. The slots of jobs that are there already must be sent once more.
    pub fn begin<'a>(
        &mut self,
        meter: Arc<Meter>,
        looks: Arc<Looks>,
        jobs: impl Iterator<Item = &'a Job>,
    ) {
        (self.meter, self.looks) = (Some(meter), looks);
        jobs.for_each(|job| self.watch(job));
    }

    /// Measures a job that has its first process.
    pub fn watch(&mut self, job: &Job) {
        let Some(meter) = &self.meter else { return };
        let Some(Placement::Cgroup { group, .. }) = job.home.as_ref().map(|it| &it.placement)
        else {
            return;
        };
        let Some(group) = group_number(group) else { return };
        let slots = (job.spec.policy != Policy::None).then(Vec::new);
        let sent = meter.set_slots(group, slots.as_deref());
        match sent.and_then(|()| meter.watch(group)) {
            Ok(()) => drop(self.gangs.insert(job.id, Gang { group, slots })),
            Err(reason) => tracing::warn!(job = %job.id, %reason, "a job is not measured"),
        }
        self.await_waking(job);
    }

    /// The sums measured of a job up to now.
    pub fn sums(&self, job: JobId) -> Option<GangSums> {
        self.meter.as_ref()?.read(self.gangs.get(&job)?.group).ok()
    }

    /// How many threads of a job want to run; `None` where the job is not measured.
    pub fn runnable(&self, job: JobId) -> Option<u32> {
        self.meter.as_ref()?.runnable(self.gangs.get(&job)?.group).ok()
    }

    /// Asks for a list of the threads that want to run.
    pub fn list_runnable(&self) {
        self.looks.list();
    }

    /// The groups of the jobs that are gangs.
    pub fn groups_of_gangs(&self, core: &Conductor) -> Vec<u64> {
        let is_gang = |job| core.job(job).is_ok_and(|job| job.spec.policy == Policy::Gang);
        self.gangs.iter().filter(|(job, _)| is_gang(**job)).map(|(_, gang)| gang.group).collect()
    }

    /// How many short tasks have had a CPU of gangs up to now. `None` where a gang is not measured:
    /// short tasks may wait for that gang as well.
    pub fn short_tasks<'a>(
        &self,
        machine: u32,
        mut jobs: impl Iterator<Item = &'a Job>,
    ) -> Option<u64> {
        let meter = self.meter.as_ref()?;
        let is_missed =
            |job: &Job| job.eligibility(machine).is_gang() && !self.gangs.contains_key(&job.id);
        if jobs.any(is_missed) {
            return None;
        }
        meter.short_tasks().ok()
    }

    /// Asks for a report when a job that sleeps, and is to have slots, wants to run. The survey
    /// sees jobs that want to run already, and those that are not measured.
    pub fn await_waking(&self, job: &Job) {
        if job.activity.awake || job.spec.policy != Policy::Gang {
            return;
        }
        if let (Some(meter), Some(gang)) = (&self.meter, self.gangs.get(&job.id)) {
            let _ = meter.await_waking(gang.group);
        }
    }

    /// The job that has a group.
    pub fn job_of(&self, group: u64) -> Option<JobId> {
        self.gangs.iter().find(|(_, gang)| gang.group == group).map(|(&job, _)| job)
    }

    /// A job has another policy, and may live elsewhere.
    pub fn follow(&mut self, job: &Job) {
        let Some(meter) = &self.meter else { return };
        let Some(gang) = self.gangs.get_mut(&job.id) else { return };
        let group = match job.home.as_ref().map(|home| &home.placement) {
            Some(Placement::Cgroup { group, .. }) => group_number(group),
            _ => None,
        };
        if group != Some(gang.group) {
            self.forget(job.id);
            self.watch(job);
            return;
        }
        gang.slots = (job.spec.policy != Policy::None).then(Vec::new);
        if let Err(reason) = meter.set_slots(gang.group, gang.slots.as_deref()) {
            tracing::warn!(job = %job.id, %reason, "a job is measured as before");
        }
        self.await_waking(job);
    }

    /// Measures a job no more.
    pub fn forget(&mut self, job: JobId) {
        if let (Some(meter), Some(gang)) = (&self.meter, self.gangs.remove(&job)) {
            meter.forget(gang.group);
        }
    }

    /// Sends the slots that were planned from a moment on.
    pub fn send_slots(&mut self, planned: &Planned) {
        let Planned { config, from_ns, until_ns, plans } = planned;
        let (from_ns, until_ns) = (*from_ns, *until_ns);
        let Some(meter) = &self.meter else { return };
        let now_ns = clock::utc_ns();
        let ahead_ns = now_ns.wrapping_sub(clock::monotonic_ns());
        for (&job, gang) in &mut self.gangs {
            let Some(known) = &mut gang.slots else { continue };
            let mut slots: Vec<SlotTime> = known
                .iter()
                .filter(|slot| slot.end_ns > now_ns && slot.start_ns < from_ns)
                .map(|slot| SlotTime { end_ns: slot.end_ns.min(from_ns), ..*slot })
                .collect();
            for plan in plans.iter().filter(|plan| plan.slot(job).is_some()) {
                let (start_ns, end_ns) = (plan.start_ns.max(from_ns), plan.end_ns.min(until_ns));
                add_raised(&mut slots, config, start_ns, end_ns);
            }
            if *known == slots {
                continue;
            }
            let since_boot = |slot: &SlotTime| SlotTime {
                start_ns: slot.start_ns.wrapping_sub(ahead_ns),
                end_ns: slot.end_ns.wrapping_sub(ahead_ns),
            };
            let sent: Vec<SlotTime> = slots.iter().map(since_boot).collect();
            match meter.set_slots(gang.group, Some(&sent)) {
                Ok(()) => *known = slots,
                Err(reason) => tracing::debug!(%job, %reason, "slots of a job were not sent"),
            }
        }
    }
}

/// Adds the time between two moments in which gangs are raised.
fn add_raised(slots: &mut Vec<SlotTime>, config: &Config, mut start_ns: u64, end_ns: u64) {
    while start_ns < end_ns {
        let edge_ns = slices::next_edge(config, start_ns).at_ns.min(end_ns);
        if !slices::in_gap(config, start_ns) {
            match slots.last_mut() {
                Some(last) if last.end_ns == start_ns => last.end_ns = edge_ns,
                _ => slots.push(SlotTime { start_ns, end_ns: edge_ns }),
            }
        }
        start_ns = edge_ns;
    }
}

#[cfg(test)]
mod tests {
    use gang_schedule::Gap;

    use super::*;

    #[test]
    fn slots_leave_gaps_out_and_grow_together() {
        let ms = 1_000_000;
        let gap = Gap { period_ns: 20 * ms, length_ns: ms };
        let config = Config { slice_ns: 10 * ms, gap, ..Config::default() };
        let mut slots = Vec::new();
        add_raised(&mut slots, &config, 0, 10 * ms);
        add_raised(&mut slots, &config, 10 * ms, 20 * ms);
        add_raised(&mut slots, &config, 20 * ms, 25 * ms);
        let expected = [(0, 19), (20, 25)];
        let expected =
            expected.map(|(start, end)| SlotTime { start_ns: start * ms, end_ns: end * ms });
        assert_eq!(slots, expected);
    }
}
