//! The conductor's side: it sends to the BPF programs which groups are gangs, and when their slots
//! are.
//!
//! Problem: the kernel sees which threads run, but not which were to run. A message at each edge
//! would cost the switchers time, and come late.
//!
//! Approach: the slots are sent with the plan. When a plan is taken back, the slots are sent again
//! from the moment at which they change. Time that has passed is booked by then.

use std::{collections::BTreeMap, sync::Arc};

use gang_bpf::{GangSums, Meter, NotMeasured, OnCpu, SlotTime};
use gang_conductor::{Conductor, Job, effects::Planned};
use gang_linux::clock;
use gang_schedule::{CpuSet, JobId, Policy};
use gang_timetable::record::Placement;

use super::{
    measuring::{Looks, group_number},
    turns::{Lanes, OwnTurn, own_turns},
};

/// The jobs that are measured, as the conductor keeps them.
#[derive(Debug, Default)]
pub struct MeasuredGangs {
    /// Absent as long as nothing is measured.
    meter: Option<Arc<Meter>>,
    looks: Arc<Looks>,
    gangs: BTreeMap<JobId, Gang>,
    lanes: Lanes,
}

#[derive(Debug)]
struct Gang {
    group: u64,
    /// The turns that were sent and have not passed (UTC); `None`: all of the time is slot.
    turns: Option<Vec<OwnTurn>>,
    row: Row,
}

impl Gang {
    fn new(group: u64, turns: Option<Vec<OwnTurn>>) -> Gang {
        Gang { group, turns, row: Row::default() }
    }

    /// Sends turns, on a clock that is behind UTC by some time.
    fn send(&self, meter: &Meter, turns: &[OwnTurn], behind_ns: u64) -> Result<(), NotMeasured> {
        // A gang moves seldom. Turns on other CPUs than the first one's count with the next list.
        let row = turns.first().map(|turn| &turn.cpus);
        let sent = turns.iter().map(|turn| SlotTime {
            start_ns: turn.start_ns.wrapping_sub(behind_ns),
            end_ns: turn.end_ns.wrapping_sub(behind_ns),
            until_ns: turn.until_ns.wrapping_sub(behind_ns),
            cpus: if Some(&turn.cpus) == row { turn.cpus.len() as u32 } else { 0 },
        });
        let sent: Vec<SlotTime> = sent.collect();
        let row: Vec<u32> = row.into_iter().flat_map(CpuSet::iter).collect();
        meter.set_slots(self.group, Some(&sent), &row)
    }
}

/// The figures of a gang are held against its row: whether it ran in slot on CPUs that no slot of
/// it had.
#[derive(Debug, Default)]
struct Row {
    /// The CPUs of its slots since then, with the last moment (UTC) at which it has or had them.
    cpus: Vec<(u64, CpuSet)>,
    /// The time of each CPU that it had had in slot when its figures were last held against this.
    in_slot_ns: BTreeMap<u32, u64>,
}

/// One part in so many of a gang's time in slot may be elsewhere: threads that it has just started
/// run there, and those that are left alone.
const ELSEWHERE_PART: u64 = 100;

/// Of more sets of CPUs, two are taken together.
const SETS_MAX: usize = 16;

impl Row {
    /// Slots from a moment on are others than were planned. Those that had not begun by then count
    /// until the figures are compared: nobody knows which had.
    fn replan(&mut self, from_ns: u64) {
        self.cpus.iter_mut().for_each(|(end_ns, _)| *end_ns = from_ns.min(*end_ns));
    }

    fn has(&mut self, cpus: &CpuSet, end_ns: u64) {
        match self.cpus.iter_mut().find(|(_, of_slot)| of_slot == cpus) {
            Some((last_ns, _)) => *last_ns = end_ns.max(*last_ns),
            None => self.cpus.push((end_ns, cpus.clone())),
        }
        if self.cpus.len() > SETS_MAX {
            let (first_ns, first) = self.cpus.remove(0);
            let (second_ns, second) = &mut self.cpus[0];
            (*second_ns, *second) = (first_ns.max(*second_ns), first.union(second));
        }
    }

    /// Whether too much of the time since the last call was elsewhere.
    fn was_left(&mut self, of_cpus: &[OnCpu], now_ns: u64) -> bool {
        let (mut all_ns, mut elsewhere_ns) = (0, 0);
        for on_cpu in of_cpus {
            let before_ns = self.in_slot_ns.insert(on_cpu.cpu, on_cpu.in_slot_ns).unwrap_or(0);
            let since_ns = on_cpu.in_slot_ns.saturating_sub(before_ns);
            let is_in_row = self.cpus.iter().any(|(_, cpus)| cpus.contains(on_cpu.cpu));
            all_ns += since_ns;
            elsewhere_ns += if is_in_row { 0 } else { since_ns };
        }
        self.cpus.retain(|(end_ns, _)| *end_ns > now_ns);
        elsewhere_ns * ELSEWHERE_PART > all_ns
    }
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
        let turns = (job.spec.policy != Policy::None).then(Vec::new);
        let sent = meter.set_slots(group, turns.as_ref().map(|_| [].as_slice()), &[]);
        match sent.and_then(|()| meter.watch(group)) {
            Ok(()) => drop(self.gangs.insert(job.id, Gang::new(group, turns))),
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

    /// Whether a gang ran in slot on CPUs that no slot of it had since this was last asked, as far
    /// as it is measured: some of its threads chose others.
    pub fn leaves_row(&mut self, job: JobId) -> bool {
        let Some((meter, gang)) = self.meter.as_ref().zip(self.gangs.get_mut(&job)) else {
            return false;
        };
        let Ok(of_cpus) = meter.per_cpu(gang.group) else { return false };
        gang.turns.is_some() && gang.row.was_left(&of_cpus, clock::utc_ns())
    }

    /// Asks for a list of the threads that want to run.
    pub fn list_runnable(&self) {
        self.looks.list();
    }

    /// The groups of the jobs that are gangs.
    pub fn groups_of_gangs(&self, core: &Conductor) -> Vec<u64> {
        let (machine, fill) = (core.machine(), core.config().fill);
        let is_gang = |job| core.job(job).is_ok_and(|job| !job.is_with_rest(fill, machine));
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
        gang.turns = (job.spec.policy != Policy::None).then(Vec::new);
        let none = gang.turns.as_ref().map(|_| [].as_slice());
        if let Err(reason) = meter.set_slots(gang.group, none, &[]) {
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
        let Some(meter) = &self.meter else { return };
        let now_ns = clock::utc_ns();
        let behind_ns = now_ns.wrapping_sub(clock::monotonic_ns());
        for (&job, gang) in &mut self.gangs {
            let Some(known) = &gang.turns else { continue };
            let turns = own_turns(job, known, planned, now_ns);
            gang.row.replan(planned.from_ns);
            let plans = planned.plans.iter();
            for (plan, slot) in plans.filter_map(|plan| Some((plan, plan.slot(job)?))) {
                gang.row.has(&slot.cpus, plan.end_ns);
            }
            if *known == turns {
                continue;
            }
            match gang.send(meter, &turns, behind_ns) {
                Ok(()) => gang.turns = Some(turns),
                Err(reason) => tracing::debug!(%job, %reason, "slots of a job were not sent"),
            }
        }
        if !self.lanes.plan(planned, now_ns) {
            return;
        }
        let group_of = |job| self.gangs.get(&job).map_or(0, |gang| gang.group);
        if let Err(reason) = meter.set_lanes(&self.lanes.sent(group_of, behind_ns)) {
            tracing::debug!(%reason, "whose turns there are was not sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_held_against_the_row() {
        let on = |cpu, in_slot_ns| OnCpu { cpu, in_slot_ns, lost_ns: 0, filled_ns: 9_000 };
        let cpus = |cpus: &[u32]| cpus.iter().copied().collect::<CpuSet>();
        let mut row = Row::default();
        row.has(&cpus(&[0, 1]), 100);
        row.has(&cpus(&[0, 1]), 200);
        row.has(&cpus(&[2, 3]), 300);
        assert_eq!(row.cpus.len(), 2);
        assert!(!row.was_left(&[on(0, 500), on(1, 500), on(2, 500), on(4, 10)], 250));
        // The slots on the first two CPUs are over.
        assert!(!row.was_left(&[on(0, 505), on(2, 1_500), on(4, 15)], 260), "one part in 100");
        assert!(row.was_left(&[on(0, 516), on(2, 2_500), on(4, 15)], 270), "a bit more");
        assert!(!row.was_left(&[on(0, 516), on(2, 3_500), on(4, 15)], 280), "no more since");
        row.has(&cpus(&[4]), 400);
        assert!(!row.was_left(&[on(2, 4_000), on(4, 600)], 290));
        // Planned anew from within a slot on.
        row.has(&cpus(&[5]), 500);
        row.replan(350);
        assert_eq!(row.cpus, [(300, cpus(&[2, 3])), (350, cpus(&[4])), (350, cpus(&[5]))]);
        // However late the next look is, all slots since the last one count.
        assert!(!row.was_left(&[on(2, 9_000), on(4, 6_000)], 9_000_000_000));
        assert!(row.was_left(&[on(2, 9_000), on(4, 7_000)], 9_000_000_001));
    }

    #[test]
    fn row_of_many_slots_stays_small() {
        let mut row = Row::default();
        for cpu in 0..100 {
            row.has(&[cpu].into_iter().collect(), 100);
            assert!(row.cpus.len() <= SETS_MAX);
        }
        let on_all = (0..100).map(|cpu| OnCpu { cpu, in_slot_ns: 1, lost_ns: 0, filled_ns: 0 });
        assert!(!row.was_left(&on_all.collect::<Vec<_>>(), 50));
    }
}
