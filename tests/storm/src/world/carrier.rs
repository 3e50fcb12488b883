//! The effects of decisions, carried out as gangd does, and what must hold as they are.

use std::{collections::BTreeMap, rc::Rc};

use gang_conductor::{
    Carrier, Measure, Note,
    effects::{Overtaken, Planned},
};
use gang_schedule::{CpuSet, JobId, Policy};
use gang_timetable::{Action, InSlot, Timetable};

use super::{Daemon, Pending, World};

/// The effects that the daemon has handed on, as those have them who got them.
#[derive(Default)]
pub(super) struct HandedOn {
    /// The jobs that are measured, each with whether its waking is to be reported.
    measured: BTreeMap<JobId, bool>,
    /// The slots that pages say jobs have had.
    pages: BTreeMap<JobId, u64>,
    /// The slot modes in the log, and those that jobs were restored with.
    modes: BTreeMap<JobId, InSlot>,
}

impl Daemon {
    fn sleeps(&self, job: JobId) -> bool {
        let job = self.core.jobs().get(&job);
        job.is_some_and(|job| !job.activity.awake && job.spec.policy == Policy::Gang)
    }

    /// The programs of a job read of its slots from now on.
    pub(super) fn open_page(&mut self, job: JobId) {
        if self.core.open_page(job).is_ok() {
            self.handed_on.pages.insert(job, self.core.jobs()[&job].slots);
        }
    }

    /// The slot modes of jobs that were restored stand in no log.
    pub(super) fn note_restored(&mut self) {
        let modes = self.core.jobs().values().map(|job| (job.id, job.in_slot));
        self.handed_on.modes = modes.collect();
    }

    pub(super) fn is_measured(&self, job: JobId) -> bool {
        self.handed_on.measured.contains_key(&job)
    }

    /// The faults of what was handed on.
    pub(super) fn check_handed_on(&mut self) -> Vec<String> {
        let Daemon { core, handed_on: HandedOn { measured, pages, modes }, .. } = self;
        pages.retain(|job, _| core.jobs().contains_key(job));
        modes.retain(|job, _| core.jobs().contains_key(job));
        let mut wrong = Vec::new();
        for (id, job) in core.jobs() {
            let mode = modes.get(id).copied().unwrap_or_default();
            if mode != job.in_slot {
                wrong.push(format!(
                    "the log has slot modes: {id} is {:?}, not {mode:?}",
                    job.in_slot
                ));
            }
            if job.home.is_none() {
                continue;
            }
            match measured.get_mut(id) {
                None => wrong.push(format!("jobs with members are measured: {id}")),
                Some(is_awaited) if job.activity.awake => *is_awaited = false,
                Some(false) if job.spec.policy == Policy::Gang => {
                    wrong.push(format!("the waking of a job that sleeps is reported: {id}"));
                }
                Some(_) => {}
            }
        }
        if let Some(job) = measured.keys().find(|job| !core.jobs().contains_key(job)) {
            wrong.push(format!("jobs that are over are not measured: {job}"));
        }
        wrong
    }

    /// Pages say all slots that jobs have had by the last plans.
    pub(super) fn check_pages(&self) -> Option<String> {
        let pages = &self.handed_on.pages;
        let with_pages = self.core.jobs().values().filter(|job| job.has_page);
        let wrong = with_pages.filter(|job| pages.get(&job.id) != Some(&job.slots)).map(|job| {
            let (id, said) = (job.id, pages.get(&job.id));
            format!(
                "pages say how many slots jobs have had: {id} has had {}, not {said:?}",
                job.slots
            )
        });
        wrong.into_iter().next()
    }

    /// Whether each switcher has the last timetable.
    fn have_timetables(&self) -> bool {
        self.lanes.iter().all(|lane| lane.last.generation == self.core.generation())
    }
}

impl World {
    /// Carries out what was decided since the last call, outside of plans.
    pub(super) fn carry_out(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.core.take_effects().carry_out(self);
        }
    }

    fn check_timetables_first(&self, what: &str) {
        if self.daemon.as_ref().is_some_and(|daemon| !daemon.have_timetables()) {
            let what = format!("{what} before switchers have its timetable");
            self.machine.borrow_mut().violations.push(what);
        }
    }
}

/// The daemon dies between two effects that leave something behind; after that, nothing is done.
impl Carrier for World {
    fn order(&mut self, orders: Vec<Action>) {
        if let Some(daemon) = &mut self.daemon {
            daemon.orders.extend(orders);
        }
    }

    fn measure(&mut self, change: Measure) {
        let Some(daemon) = &mut self.daemon else { return };
        let (Measure::Watch(job)
        | Measure::Follow(job)
        | Measure::AwaitWaking(job)
        | Measure::Forget(job)) = change;
        let sleeps = daemon.sleeps(job);
        let measured = &mut daemon.handed_on.measured;
        match change {
            Measure::Watch(_) => drop(measured.insert(job, sleeps)),
            Measure::Follow(_) | Measure::AwaitWaking(_) => {
                measured.entry(job).and_modify(|is_awaited| *is_awaited |= sleeps);
            }
            Measure::Forget(_) => drop(measured.remove(&job)),
        }
    }

    fn give(&mut self, job: JobId, cpus: &CpuSet) {
        if self.daemon.is_some() {
            self.machine.borrow_mut().give(job, cpus);
            let _ = self.effect();
        }
    }

    fn drop_overtaken(&mut self, overtaken: &Overtaken) {
        let orders = self.daemon.iter_mut().map(|daemon| &mut daemon.orders);
        orders.for_each(|orders| orders.retain(|order| !overtaken.has(order)));
    }

    fn publish(&mut self, switcher: usize, mut timetable: Timetable) {
        let now_ns = self.now.utc_ns;
        if self.effect().is_err() {
            return;
        }
        let Some(daemon) = &mut self.daemon else { return };
        let generation = timetable.generation;
        timetable.immediate = daemon.orders.drain(..).map(|order| (generation, order)).collect();
        timetable.ready_ns = now_ns;
        let lane = &mut daemon.lanes[switcher];
        if lane.last.generation != lane.line.current().generation {
            timetable.supersede(&lane.last);
        }
        lane.last = Rc::new(timetable);
        lane.wakes_ns = Some(now_ns);
        // Some switchers come for it before the next effect.
        if (generation + switcher as u64) % 2 == 0 {
            lane.switch(now_ns, &self.machine);
        }
    }

    fn count_slots(&mut self, job: JobId, slots: u64) {
        self.check_timetables_first("a page counts");
        let Some(daemon) = &mut self.daemon else { return };
        if let Some(page) = daemon.handed_on.pages.get_mut(&job) {
            *page = slots;
        }
    }

    fn plan(&mut self, planned: &Planned) {
        self.check_timetables_first("a plan is measured");
        let Some(daemon) = &self.daemon else { return };
        let in_rows = planned.plans.iter().flat_map(|plan| &plan.row).map(|slot| slot.job);
        let mut there = in_rows.filter(|job| daemon.core.jobs().contains_key(job));
        if let Some(job) = there.find(|&job| !daemon.is_measured(job)) {
            let what = format!("gangs are measured before their slots are planned: {job}");
            self.machine.borrow_mut().violations.push(what);
        }
    }

    fn regroup(&mut self, job: JobId) {
        let pending = self.daemon.iter_mut().map(|daemon| &mut daemon.pending);
        pending.for_each(|pending| pending.push(Pending::Regrouping { job, from: None }));
    }

    fn note(&mut self, note: Note) {
        if let (Note::InSlot(job, in_slot), Some(daemon)) = (note, &mut self.daemon) {
            daemon.handed_on.modes.insert(job, in_slot);
        }
    }
}
