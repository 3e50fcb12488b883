//! What is measured of the jobs: tells the programs in the kernel which groups are gangs, and when
//! their slots are.
//!
//! Problem: the kernel sees which threads run, but not what they were to do. Telling it at each edge
//! would cost the switchers time, and come late.
//!
//! Approach: what is planned is told with the plan. A plan that is taken back is told anew, up to the
//! moment from which it changes; what has passed is booked by then.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
};

use gang_bpf::{GangSums, Meter, NotMeasured, SlotTime};
use gang_conductor::{Job, effects::Planned};
use gang_linux::clock;
use gang_protocol::v1;
use gang_schedule::{Config, JobId, Policy, clock as slices};
use gang_timetable::record::Placement;

use crate::serve::description;

/// The jobs that are measured, as the conductor keeps them.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Absent as long as nothing is measured.
    meter: Option<Arc<Meter>>,
    gangs: BTreeMap<JobId, Gang>,
}

#[derive(Debug)]
struct Gang {
    group: u64,
    /// Those told that have not passed (UTC); `None`: all of the time is slot.
    slots: Option<Vec<SlotTime>>,
}

/// What measures, once it does.
///
/// The kernel takes longer to check the programs than the daemon takes to start, and nobody's program
/// is to wait for that.
#[derive(Debug, Default)]
pub struct Measuring {
    meter: OnceLock<Result<Arc<Meter>, String>>,
    /// The thread that looks at the threads of the machine, once there is one, and whether it is to.
    looker: OnceLock<Thread>,
    is_asked: AtomicBool,
}

impl Measuring {
    /// The meter, or why there is none.
    fn meter(&self) -> Result<&Arc<Meter>, String> {
        match self.meter.get() {
            None => Err("measuring has not begun yet; ask again in a second".into()),
            Some(meter) => meter.as_ref().map_err(String::clone),
        }
    }

    /// Processes have come, or gone to another group: those of their threads count that run or wait for a CPU. Nobody
    /// waits for that; with many threads it takes the kernel milliseconds.
    pub fn look_around(&self) {
        self.is_asked.store(true, Ordering::Release);
        if let Some(looker) = self.looker.get() {
            looker.unpark();
        }
    }

    /// Looks at the threads that are there, and again whenever somebody asks. Returns where nothing is measured.
    pub fn look_when_asked(&self) {
        let Ok(meter) = self.meter() else { return };
        let _ = self.looker.set(thread::current());
        loop {
            if let Err(reason) = meter.look_around() {
                tracing::warn!(%reason, "threads are not measured before they are switched");
            }
            while !self.is_asked.swap(false, Ordering::Acquire) {
                thread::park();
            }
        }
    }

    /// Tells the groups of jobs that slept and want to run. Returns where nothing is measured.
    pub fn hear_who_wakes(&self, tell: impl FnMut(Vec<u64>)) {
        let Ok(meter) = self.meter() else { return };
        let Err(reason) = meter.hear_who_wakes(tell);
        tracing::warn!(%reason, "jobs that wake are seen later");
    }

    /// A job is scheduled by another policy: what was measured before is of another schedule.
    pub fn start_over(&self, placement: &Placement) {
        let (Ok(meter), Placement::Cgroup { group, .. }) = (self.meter(), placement) else {
            return;
        };
        match number(group).map(|group| meter.start_over(group)) {
            Some(Ok(())) => self.look_around(),
            // It has ended.
            None | Some(Err(NotMeasured::NotWatched)) => {}
            Some(Err(reason)) => {
                tracing::warn!(%reason, "what was measured before counts with a job's new policy");
            }
        }
    }

    /// Whether it does, and if not, why.
    pub fn state(&self) -> (v1::Measuring, Option<String>) {
        let is_settled = self.meter.get().is_some();
        match self.meter() {
            Ok(_) => (v1::Measuring::yes, None),
            Err(reason) if is_settled => (v1::Measuring::no, Some(reason)),
            Err(reason) => (v1::Measuring::starting, Some(reason)),
        }
    }

    /// Begins, where it is wanted and can be; `hand_over` gives the meter to the conductor.
    pub fn begin(&self, is_wanted: bool, hand_over: impl FnOnce(Arc<Meter>)) {
        let meter = if is_wanted {
            Meter::start().map(Arc::new).map_err(|reason| {
                tracing::info!(%reason, "whether gangs run together is not measured");
                reason.to_string()
            })
        } else {
            Err("it is switched off (--no-measure, measure = false)".into())
        };
        if let Ok(meter) = &meter {
            hand_over(meter.clone());
        }
        let _ = self.meter.set(meter);
    }
}

/// The number by which the kernel knows a group: that of its directory.
fn number(group: &Path) -> Option<u64> {
    std::fs::metadata(group).ok().map(|directory| directory.ino())
}

impl Gauge {
    /// Measures from now on. Of jobs that are there already their slots must be told once more.
    pub fn begin<'a>(&mut self, meter: Arc<Meter>, jobs: impl Iterator<Item = &'a Job>) {
        self.meter = Some(meter);
        jobs.for_each(|job| self.watch(job));
    }

    /// Measures a job that has its first process.
    pub fn watch(&mut self, job: &Job) {
        let Some(meter) = &self.meter else { return };
        let Some(Placement::Cgroup { group, .. }) = job.home.as_ref().map(|it| &it.placement)
        else {
            return;
        };
        let Some(group) = number(group) else { return };
        let slots = (job.spec.policy != Policy::None).then(Vec::new);
        let told = meter.set_slots(group, slots.as_deref());
        match told.and_then(|()| meter.watch(group)) {
            Ok(()) => drop(self.gangs.insert(job.id, Gang { group, slots })),
            Err(reason) => tracing::warn!(job = %job.id, %reason, "a job is not measured"),
        }
        self.await_waking(job);
    }

    /// What was measured of a job up to now.
    pub fn figures(&self, job: JobId) -> Option<GangSums> {
        self.meter.as_ref()?.read(self.gangs.get(&job)?.group).ok()
    }

    /// How many threads of a job want to run; `None` where it is not measured.
    pub fn runnable(&self, job: JobId) -> Option<u32> {
        self.meter.as_ref()?.runnable(self.gangs.get(&job)?.group).ok()
    }

    /// How many short tasks have had a CPU of gangs up to now; `None` where one of the jobs is not measured, which they
    /// may wait for as well.
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

    /// Has it told when a job wants to run that sleeps now and is to have slots. One that wants to already, or is
    /// not measured, the survey sees.
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
            Some(Placement::Cgroup { group, .. }) => number(group),
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

    /// Tells what was planned from a moment on.
    pub fn plan(&mut self, planned: &Planned) {
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
            let of_boot = |slot: &SlotTime| SlotTime {
                start_ns: slot.start_ns.wrapping_sub(ahead_ns),
                end_ns: slot.end_ns.wrapping_sub(ahead_ns),
            };
            let told: Vec<SlotTime> = slots.iter().map(of_boot).collect();
            match meter.set_slots(gang.group, Some(&told)) {
                Ok(()) => *known = slots,
                Err(reason) => tracing::debug!(%job, %reason, "slots of a job were not told"),
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

/// Writes what was measured of a job into its description, or why nothing was.
pub fn describe(measuring: &Measuring, placement: Option<&Placement>, job: &mut v1::Job) {
    match figures(measuring, placement) {
        Err(reason) => job.not_measured = Some(reason),
        Ok(figures) => {
            job.measured = Some(v1::Measured {
                coscheduled: figures.coscheduled(),
                skew_ns_p99: figures.skew_us_p99().map(description::ns),
                lost_ns: figures.lost_ns as i64,
                filled_ns: figures.filled_ns as i64,
                waiting_ns: figures.waiting_ns as i64,
                slot_ns: figures.slot_ns as i64,
                lost_to: None,
                per_cpu: None,
            });
        }
    }
}

fn figures(measuring: &Measuring, placement: Option<&Placement>) -> Result<GangSums, String> {
    let meter = measuring.meter()?;
    let group = match placement {
        None => return Err("it has no process yet".into()),
        Some(Placement::Tree { .. }) => {
            return Err("it has no cgroup of its own: the kernel tells gangs apart by those".into());
        }
        Some(Placement::Cgroup { group, .. }) => group,
        Some(Placement::Threads { .. }) => {
            let reason = "it is of single threads: the kernel tells gangs apart by their cgroups";
            return Err(reason.into());
        }
    };
    let group = number(group).ok_or_else(|| NotMeasured::NotWatched.to_string())?;
    meter.read(group).map_err(|reason| reason.to_string())
}

/// Whom a job waited for in its slots; absent where that was not measured.
pub fn lost_to(measuring: &Measuring, placement: &Placement) -> Option<Vec<v1::Culprit>> {
    let Placement::Cgroup { group, .. } = placement else { return None };
    let culprits = measuring.meter().ok()?.lost_to(number(group)?).ok()?;
    let told = culprits.into_iter().map(|culprit| v1::Culprit {
        name: culprit.name,
        pid: culprit.pid.into(),
        sched_policy: culprit.class.name().into(),
        ns: culprit.ns as i64,
    });
    Some(told.collect())
}

/// What a job had of each CPU that it used; absent where that was not measured.
pub fn per_cpu(measuring: &Measuring, placement: &Placement) -> Option<Vec<v1::OnCpu>> {
    let Placement::Cgroup { group, .. } = placement else { return None };
    let of_cpus = measuring.meter().ok()?.per_cpu(number(group)?).ok()?;
    let told = of_cpus.into_iter().map(|it| v1::OnCpu {
        cpu: it.cpu.into(),
        in_slot_ns: it.in_slot_ns as i64,
        lost_ns: it.lost_ns as i64,
        filled_ns: it.filled_ns as i64,
    });
    Some(told.collect())
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
