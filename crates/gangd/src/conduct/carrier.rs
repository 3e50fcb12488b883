//! How the thread that plans carries effects out.
//!
//! [`gang_conductor::Effects`] gives their order. Here is what each kind of them does to
//! descriptors, switchers and other threads.

use gang_conductor::{
    Carrier, Measure, Note,
    effects::{Overtaken, Planned},
};
use gang_engine::{bound::Bound, switcher::Switcher};
use gang_linux::clock;
use gang_schedule::{CpuSet, JobId};
use gang_timetable::{Action, Timetable};

use super::{registry::bind, state::State};

/// The thread that plans, as it carries effects out.
pub struct Planner<'a> {
    pub state: &'a mut State,
    /// Empty where there are no timetables.
    pub switchers: &'a mut [Switcher],
    /// When the step began in which the timetables were made (UTC).
    pub began_ns: u64,
}

impl Carrier for Planner<'_> {
    fn order(&mut self, orders: Vec<Action>) {
        let State { registry, orders: waiting, .. } = &mut *self.state;
        waiting.extend(bind(registry, orders));
    }

    fn measure(&mut self, change: Measure) {
        let State { core, measured, .. } = &mut *self.state;
        match change {
            Measure::Watch(job) => core.job(job).into_iter().for_each(|job| measured.watch(job)),
            Measure::Follow(job) => core.job(job).into_iter().for_each(|job| measured.follow(job)),
            Measure::AwaitWaking(job) => {
                core.job(job).into_iter().for_each(|job| measured.await_waking(job));
            }
            Measure::Forget(job) => measured.forget(job),
        }
    }

    fn give(&mut self, job: JobId, cpus: &CpuSet) {
        if let Some(of) = self.state.registry.jobs.get_mut(&job) {
            of.roster.give(cpus);
        }
    }

    fn drop_overtaken(&mut self, overtaken: &Overtaken) {
        self.state.orders.retain(|order| !overtaken.has(&order.action));
    }

    fn publish(&mut self, switcher: usize, timetable: Timetable) {
        let Some(switcher) = self.switchers.get_mut(switcher) else { return };
        let State { registry, orders, .. } = &mut *self.state;
        let (generation, from_ns) = (timetable.generation, timetable.from_ns);
        // Woken in time, it finds the timetable by itself.
        let sleeps_on = !switcher.wakes_between(clock::utc_ns(), from_ns);
        let mut timetable = timetable.bind(|action| Bound::new(action, registry));
        timetable.immediate = orders.drain(..).map(|order| (generation, order)).collect();
        switcher.publish(timetable);
        if sleeps_on || self.began_ns >= from_ns {
            switcher.ring();
        }
    }

    fn count_slots(&mut self, job: JobId, slots: u64) {
        let page = self.state.registry.pages.get(&job);
        page.into_iter().for_each(|page| drop(page.write_slots(slots)));
    }

    fn plan(&mut self, planned: &Planned) {
        self.state.measured.send_slots(planned);
    }

    fn regroup(&mut self, job: JobId) {
        self.state.move_between_groups(job);
    }

    /// Writes to the log.
    fn note(&mut self, note: Note) {
        match note {
            Note::InSlot(job, in_slot) => {
                tracing::debug!(%job, ?in_slot, "slot mode of a gang changed");
            }
            Note::TooManyThreads(job) => {
                tracing::warn!(
                    %job,
                    "more threads than gangd switches: no slots until it has fewer"
                );
            }
            Note::Crowded(job) => {
                tracing::warn!(
                    %job,
                    "its threads take too much time to switch: no slots until it has fewer"
                );
            }
            Note::Disturbed => {
                tracing::debug!("gangs that had the machine for themselves are disturbed");
            }
            Note::Gaps(gap) => tracing::debug!(?gap, "gaps come more or less often"),
            Note::WorkingHours(are_working) => {
                tracing::info!(are_working, "other terms for the classes from now on");
            }
        }
    }
}
