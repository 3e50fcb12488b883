//! How plans are made, for which time, and what becomes of them.
//!
//! Problem: timetables must be ready before they begin, whatever is asked meanwhile and however
//! many jobs there are. A change must show in the next slice. And the threads of a gang need to be
//! read only if a plan has the gang.
//!
//! Approach: once plans are [due](crate::due), they are made in three steps. Between these the
//! threads of some jobs are read: those of jobs that [change their standing](Conductor::begin)
//! outside of all rows, and those of [the gangs in the rows](Conductor::plan).
//! [`Conductor::publish`] makes the [`Effects`].
//!
//! A clock that was set back is a case of its own. A switcher that was late with a timetable is in
//! time again, and reports nothing; others have begun with the next one. So plans are made at once,
//! and state how every job stands.
//!
//! Properties: after a publication every switcher has a timetable up to a moment that is not over.
//! A step of the clock costs one period at most.

use std::collections::{BTreeMap, BTreeSet};

use gang_schedule::{Config, CpuSet, Gap, JobId, Plan, clock as slices};
use gang_timetable::{Action, Gang, InSlot, Signal, Standing, Stretch, compose, record::Placement};

use crate::{
    Conductor, Effects, Eligibility, Job, NewThreads, Note, Now, effects::Planned,
    published::Stands,
};

/// Slices that are planned ahead at least.
const REACH_MIN: u64 = 2;

/// And at most: with short ones, planning them all at once would take a gang's CPU for too long.
pub(crate) const AHEAD_SLICES: u64 = 32;

/// How long the switchers keep a gang raised after the end of a timetable that is not replaced.
const GRACE_NS: u64 = 5_000_000;

/// The state of the switchers, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Some switcher has not taken the last timetable yet.
    pub is_behind: bool,
    /// How many edges they have missed in all.
    pub missed: u64,
}

/// A plan in the making.
#[derive(Clone, Debug)]
pub struct Planning {
    now: Now,
    resume_ns: u64,
    from_ns: u64,
    until_ns: u64,
    new_threads: NewThreads,
    followed: Followed,
    unknown: BTreeSet<JobId>,
    plans: Vec<Plan>,
}

impl Conductor {
    /// Jobs that were found with too many threads take no turns from now on. A job that is found
    /// with fewer again sleeps, or is a gang where it woke meanwhile. The job stands where it
    /// belongs from the next plans on. These come at once: no timetable has what the job starts
    /// meanwhile, and a gang in no timetable runs in the slots of others.
    pub fn follow_thread_limit(&mut self) {
        for job in std::mem::take(&mut self.over_thread_limit) {
            let _ = self.sleep(job);
        }
        let (fill, machine) = (self.config().fill, self.machine());
        let is_elsewhere = |job: &Job| {
            !self.published.gangs().contains(&job.id)
                && moves_out_of_row(job, fill, machine, false).is_some()
        };
        if self.jobs.values().any(is_elsewhere) {
            self.schedule.renew();
        }
    }

    /// Nothing is planned, and no job has processes. Orders that the last job left behind come
    /// first, also those of a timetable that a switcher has not taken yet: processes of the job may
    /// live on.
    pub fn is_settled(&self, has_orders: bool, is_behind: bool) -> bool {
        self.published.gangs().is_empty()
            && !has_orders
            && !is_behind
            && self.jobs.values().all(|job| job.home.is_none())
    }

    /// The configuration of the last timetable, with the gaps in force.
    pub fn published_config(&self) -> &Config {
        self.published.config()
    }

    /// Whether the last timetable was made with all that switchers have missed by now, and its
    /// orders came before its edges. Else the next one states how each of its gangs stands.
    pub fn has_seen(&self, missed: u64) -> bool {
        self.published.has_seen(missed) && !self.is_made_behind
    }

    /// The gangs in the last timetable.
    pub fn planned_gangs(&self) -> &BTreeSet<JobId> {
        self.published.gangs()
    }

    /// The gaps between the slots of raised gangs; `None` where nobody is raised.
    pub fn gap_of_raised(&self) -> Option<Gap> {
        let is_raised =
            |id: &JobId| self.jobs.get(id).is_some_and(|job| job.in_slot != InSlot::Uncontended);
        self.planned_gangs().iter().any(is_raised).then(|| self.published_config().gap)
    }

    /// Begins to plan from a boundary on. Returns the jobs whose threads are to be read before
    /// [`Conductor::plan`]: their standing changes, and no row has them, or they were stopped just
    /// now.
    pub fn begin(
        &mut self,
        now: Now,
        resume_ns: u64,
        new_threads: NewThreads,
        followed: Followed,
    ) -> (Planning, BTreeSet<JobId>) {
        if let NewThreads::Of(jobs) = &new_threads {
            // Also those that take no turns any more, which no timetable would state.
            self.has_new_members.extend(jobs);
        }
        for id in self.jobs.keys().copied().collect::<Vec<JobId>>() {
            self.unpin_left_alone(id);
        }
        let unknown = self.published.unknown(followed.missed);
        if !followed.is_behind {
            self.published.all_follow();
            self.unpin_left_alone_again();
        }
        // A timetable that is not in force everywhere yet is replaced as a whole; a switcher that
        // does not come for it loses it, rather than that the others go through all of it again.
        let last_ns = self.published.from_ns;
        let period_ns = self.config().gap.period_ns;
        let is_recent = last_ns + period_ns > now.utc_ns;
        let from_ns =
            if followed.is_behind && is_recent { resume_ns.min(last_ns) } else { resume_ns };
        let has_begun = from_ns > last_ns;
        if !followed.is_behind && has_begun {
            // The statements of the last timetable are carried out. Where a switcher was behind as
            // it was made, orders from before it may have come after its first edges.
            self.restated.clear();
            if !self.is_made_behind {
                self.unknown.clear();
            }
        }
        let is_carried_out = !followed.is_behind && has_begun && !self.is_made_behind;
        self.is_made_behind = followed.is_behind || (self.is_made_behind && !has_begun);
        self.unknown.extend(unknown);
        let is_over = from_ns > self.published.until_ns;
        // The switchers have gone on with the last timetable since then.
        let is_late = from_ns <= now.utc_ns;
        if (!has_begun && last_ns <= now.utc_ns) || is_over || is_late {
            // Some of what it states is done, and some is not: its deadline lowers gangs, too.
            self.unknown.extend(self.published.gangs());
        }
        if is_carried_out {
            self.end_moves();
        }
        let unknown = self.unknown.clone();
        // Plans that are soon taken back were made in vain. Where changes come one after the other,
        // plans reach less far, and farther again when changes have ended.
        let is_taken_back = self.schedule.is_changed() && self.published.until_ns > resume_ns;
        self.reach = match is_taken_back {
            true => (self.reach / 2).max(REACH_MIN),
            false => (self.reach * 2).min(AHEAD_SLICES),
        };
        let until_ns = (resume_ns + self.ahead_of(self.reach)).next_multiple_of(period_ns);
        self.rewind(from_ns);
        self.assume_nothing_of(&unknown);
        let (fill, machine) = (self.config().fill, self.machine());
        let moves = |job: &&Job| {
            let is_new = self.is_to_be_restated(job.id);
            moves_out_of_row(job, fill, machine, is_new).is_some()
        };
        // A suspended job stands still as a whole once the last member of another user has gone.
        let is_mixed = |job: &Job| {
            let home = job.home.as_ref();
            job.suspended && home.is_some_and(|home| home.members.has_foreign_that_run())
        };
        let moving = self.jobs.values().filter(|job| moves(job) || is_mixed(job));
        let moving = moving.map(|job| job.id);
        let to_read = moving.chain(self.stopped.iter().copied()).collect::<BTreeSet<JobId>>();
        let planning = Planning {
            now,
            resume_ns,
            from_ns,
            until_ns,
            new_threads,
            followed,
            unknown,
            plans: Vec::new(),
        };
        (planning, to_read)
    }

    /// Plans. Returns the gangs whose threads are to be read before [`Conductor::publish`].
    pub fn plan(&mut self, planning: &mut Planning) -> BTreeSet<JobId> {
        let Planning { resume_ns, from_ns, until_ns, .. } = *planning;
        self.schedule.extend(resume_ns, until_ns);
        // A moment that a change in this step named may be one that the clock came back from.
        self.schedule.stand_until(self.boundary(planning.now.utc_ns + self.lead_ns));
        let config = self.config();
        let slices = slices::slice_at(config, from_ns)..=slices::slice_at(config, until_ns - 1);
        let plans = self.schedule.plans().iter().filter(|plan| slices.contains(&plan.slice));
        planning.plans = plans.map(|plan| Plan::clone(plan)).collect();
        let in_rows = planning.plans.iter().flat_map(|plan| &plan.row).map(|slot| slot.job);
        let in_rows: BTreeSet<JobId> = in_rows.collect();
        self.bring_out_of_rows(&in_rows);
        let published = self.published.gangs().iter().copied();
        // The threads of a job for which there is no slot may use other CPUs by now.
        let unplaceable = self.jobs.values().filter(|job| job.unplaceable.is_some());
        let unplaceable = unplaceable.filter(|job| job.activity.awake).map(|job| job.id);
        let in_rows = in_rows.into_iter().chain(unplaceable);
        in_rows.chain(published).chain(self.restated.iter().copied()).collect()
    }

    /// The threads of a job were read. One with too many of them gets no slots from the next plans
    /// on.
    pub fn was_read(&mut self, id: JobId) {
        let machine = self.machine();
        self.unpin_left_alone(id);
        let Some(job) = self.jobs.get(&id) else { return };
        let is_over_limit = job.eligibility(machine) == Eligibility::TooManyThreads;
        if is_over_limit && job.activity.awake && self.over_thread_limit.insert(id) {
            let is_crowded = job.crowded.is_some();
            self.note(if is_crowded { Note::Crowded(id) } else { Note::TooManyThreads(id) });
        }
    }

    /// Owners made threads of a job real-time ones, or these belong to other users by now: they run
    /// where they like, from now on. A timetable that is followed yet may set them once more.
    fn unpin_left_alone(&mut self, id: JobId) {
        let home = self.jobs.get_mut(&id).and_then(|job| job.home.as_mut());
        let Some(home) = home else { return };
        let tids = home.members.take_left_alone();
        if !tids.is_empty() {
            let unpin = home.members.unpin_left_alone(&tids);
            let foreign = home.members.became_foreign(&tids);
            self.order(unpin);
            self.continue_all(id, &foreign);
            self.left_alone.push((self.generation, id, tids));
        }
    }

    /// Threads of a job that are left alone may not run where they like yet.
    pub fn is_unpinning(&self, id: JobId) -> bool {
        let home = self.jobs.get(&id).and_then(|job| job.home.as_ref());
        home.is_some_and(|home| home.members.has_left_alone())
            || self.left_alone.iter().any(|(_, job, _)| *job == id)
    }

    /// The same, once no timetable that has them is followed.
    fn unpin_left_alone_again(&mut self) {
        let (are_out, others) = std::mem::take(&mut self.left_alone)
            .into_iter()
            .partition(|(generation, _, _)| *generation < self.generation);
        self.left_alone = others;
        let are_out: Vec<(u64, JobId, Vec<u32>)> = are_out;
        for (_, id, tids) in are_out {
            let home = self.jobs.get(&id).and_then(|job| job.home.as_ref());
            let unpin = home.map(|home| home.members.unpin_left_alone(&tids));
            let foreign = home.map_or_else(Vec::new, |home| home.members.became_foreign(&tids));
            self.order(unpin.into_iter().flatten());
            self.continue_all(id, &foreign);
        }
    }

    /// The last timetable is carried out: the threads of jobs that moved stand as they are to stand
    /// where they live now, except those of jobs that are to be stated once more.
    fn end_moves(&mut self) {
        let (restated, unknown) = (&self.has_new_members, &self.unknown);
        let is_stated = |job: &&mut Job| !restated.contains(&job.id) && !unknown.contains(&job.id);
        let homes = self.jobs.values_mut().filter(is_stated).filter_map(|job| job.home.as_mut());
        homes.for_each(|home| home.members.end_move());
    }

    /// Brings the jobs that no row of the next timetable holds where they belong now: jobs that
    /// came, woke, fell asleep, were suspended or resumed. The timetable states the standing of
    /// jobs that take turns, or have a slot in it. Later rows may hold a job that takes no turns,
    /// as one that was found to have too many threads just now. An action done at once might be
    /// done by another switcher than the one that raises a thread, and after it.
    pub(crate) fn bring_out_of_rows(&mut self, in_rows: &BTreeSet<JobId>) {
        let (fill, slice_ns) = (self.config().fill, self.config().slice_ns);
        let machine = self.machine();
        let mut actions = Vec::new();
        let (jobs, is_behind) = (&self.jobs, self.is_made_behind);
        let is_paused =
            |id: &JobId| jobs.get(id).is_some_and(|job| job.standing == Standing::Paused);
        self.stopped.retain(|id| is_behind && is_paused(id));
        // Jobs that were to be stated by a timetable which has not begun are stated by this one.
        let mut to_state = std::mem::take(&mut self.has_new_members);
        to_state.extend(&self.restated);
        for (&id, job) in &mut self.jobs {
            let is_new = to_state.contains(&id);
            self.restated.extend(is_new.then_some(id));
            let Some(to) = moves_out_of_row(job, fill, machine, is_new) else { continue };
            if job.eligibility(machine).is_gang() || in_rows.contains(&id) {
                self.restated.insert(id);
                // Until that timetable is in force.
                self.unknown.insert(id);
                continue;
            }
            let Some(home) = &mut job.home else { continue };
            let signals = |signal, out: &mut Vec<Action>| {
                out.extend(home.listeners.iter().map(|&pid| Action::Signal {
                    job: id,
                    pid,
                    signal,
                }));
            };
            if to == Standing::Paused {
                signals(Signal::SlotEnds, &mut actions);
                if let Placement::Tree { .. } = home.placement {
                    self.stopped.insert(id);
                }
            }
            self.backend.actions(id, &home.members, job.standing, to, job.in_slot, &mut actions);
            if to == Standing::Released {
                signals(Signal::SlotBegins, &mut actions);
                home.members.unpin(&mut actions);
                self.just_released.insert(id, self.generation + 1);
            }
            // The next slot restricts those that came meanwhile as well.
            home.members.pins_are_unknown |= to != Standing::Released;
            job.standing = to;
            if job.has_page {
                actions.push(Action::Page { job: id, word: job.word(slice_ns, machine) });
            }
        }
        self.order(actions);
    }

    /// The next timetable states how a job stands, whatever is known of it.
    pub fn is_to_be_restated(&self, job: JobId) -> bool {
        self.has_new_members.contains(&job) || self.restated.contains(&job)
    }

    /// Makes the timetables of the plans. `came` are jobs with threads that were not known.
    /// `measured` are jobs of which it is measured what disturbs them. `used` is the share of a CPU
    /// that the daemon's own threads took before the gangs. `lower_ns` is how long the switchers
    /// take to lower a gang, on average.
    pub fn publish(
        &mut self,
        planning: Planning,
        came: &BTreeSet<JobId>,
        measured: &BTreeSet<JobId>,
        used: f64,
        lower_ns: impl FnOnce() -> u64,
    ) -> Effects {
        let Planning { now, from_ns, until_ns, new_threads, followed, .. } = planning;
        let Planning { unknown, plans, .. } = planning;
        if !followed.is_behind {
            // Only now: a timetable that ends with this may have overruled an owner's choice of
            // CPUs, which the threads that were just read show.
            let homes = self.jobs.values_mut().filter_map(|job| job.home.as_mut());
            homes.for_each(|home| home.members.end_pins());
        }
        self.choose_slot_modes(now, &plans, measured);
        let published = self.published.gangs().iter().copied();
        let new_threads_of = published.filter(|&job| new_threads.are_of(job));
        self.restated.extend(new_threads_of.chain(came.iter().copied()));
        let restated = self.restated.clone();
        let is_new = |job: JobId| restated.contains(&job) || unknown.contains(&job);
        self.gaps.adapt(now.monotonic_ns, lower_ns, used);
        let gangs = self.gangs(&plans, &is_new);
        // Those that no timetable has are brought where they belong with the next one, which comes
        // at once where they may have something of a gang's, or may run in a job that stands still.
        let beside: Vec<JobId> = came.difference(&gangs).copied().collect();
        if beside.iter().any(|&job| self.has_inheritors(job) || self.is_paused_by_process(job)) {
            self.schedule.renew();
        }
        self.has_new_members.extend(beside);
        let is_known = !followed.is_behind && unknown.is_empty();
        // The last action on the group of all gangs may not be done yet, or may be lost.
        let is_followed = is_known && new_threads != NewThreads::Anywhere;
        self.generation += 1;
        let (slice_ns, machine_len) = (self.config().slice_ns, self.machine());
        let machine: CpuSet = self.schedule.topology().cpus().iter().map(|cpu| cpu.id).collect();
        let config = Config { gap: self.gaps.gap(), ..self.config().clone() };
        let before_ns = from_ns.saturating_sub(1);
        let follows_gap = [self.published.config(), &config]
            .into_iter()
            .all(|config| slices::in_gap(config, before_ns))
            && is_followed;
        let says = |job: &&Job| {
            let is_stated = job.page_says == Some(job.validity(machine_len));
            job.has_page && !gangs.contains(&job.id) && !is_stated
        };
        let others = self.jobs.values().filter(says);
        let pages: Vec<_> = others.map(|job| (job.id, job.word(slice_ns, machine_len))).collect();
        let in_timetable: BTreeMap<JobId, Gang<'_>> = gangs
            .iter()
            .filter_map(|id| self.jobs.get(id).and_then(|job| self.gang(job, is_new(*id))))
            .collect();
        let composition = compose(&Stretch {
            generation: self.generation,
            config: &config,
            backend: self.backend,
            switchers: &self.switchers,
            machine: &machine,
            from_ns,
            until_ns,
            deadline_ns: until_ns + GRACE_NS,
            plans: &plans,
            gangs: &in_timetable,
            pages: &pages,
            follows_gap,
            has_common_group: self.has_common_group,
            actions_max: self.actions_max(),
        });
        let stands =
            |gang: &Gang<'_>| Stands { before: gang.standing, out_of_row: gang.out_of_row };
        let gangs = in_timetable.iter().map(|(&job, gang)| (job, stands(gang))).collect();
        self.gaps.publish(from_ns, config.gap);
        self.begin_timetable(gangs, config.clone());
        for job in self.jobs.values_mut() {
            job.page_says = job.has_page.then(|| job.validity(machine_len));
        }
        let pins = composition.pins.iter().map(|pin| (pin.job, pin.cpus.clone())).collect();
        self.end_timetable(composition.pins, composition.standings, (from_ns, until_ns));
        self.note_stopped();
        // The pages say first what these timetables do.
        self.crowd(&composition.excessive);
        let slots = self.slots_for_pages();
        Effects {
            pins,
            overtaken: self.overtaken(),
            timetables: composition.timetables,
            slots,
            planned: Some(Planned { config, from_ns, until_ns, plans }),
            ..self.take_effects()
        }
    }

    /// The slots that pages do not say yet. From now on they do: a plan is not to write the pages
    /// of all jobs.
    fn slots_for_pages(&mut self) -> Vec<(JobId, u64)> {
        let with_pages = self.jobs.values().filter(|job| job.has_page);
        let slots = with_pages.map(|job| (job.id, job.slots));
        slots
            .filter(|&(job, slots)| self.slots_on_pages.insert(job, slots) != Some(slots))
            .collect()
    }

    /// Whether members of a job that is released may have been started in a slot, or out of it.
    fn has_inheritors(&self, id: JobId) -> bool {
        let job = self.jobs.get(&id).filter(|job| job.standing == Standing::Released);
        job.and_then(|job| job.home.as_ref()).is_some_and(|home| home.members.has_inheritors())
    }

    /// Whether a job stands still whose processes are stopped one by one: what they started before
    /// runs on.
    fn is_paused_by_process(&self, id: JobId) -> bool {
        let job = self.jobs.get(&id).filter(|job| job.standing == Standing::Paused);
        let home = job.and_then(|job| job.home.as_ref());
        home.is_some_and(|home| matches!(home.placement, Placement::Tree { .. }))
    }

    /// Whether the next plans look for what the processes of a job without a cgroup started before
    /// they were stopped.
    pub fn is_stopping(&self, id: JobId) -> bool {
        self.stopped.contains(&id)
    }

    /// Jobs without a cgroup are looked at again, for what their processes start before they stop.
    fn note_stopped(&mut self) {
        let gangs = self.published.gangs().iter().copied();
        let paused: Vec<JobId> = gangs.filter(|&id| self.is_paused_by_process(id)).collect();
        self.stopped.extend(paused);
    }

    /// The gangs that the next timetable is about.
    fn gangs(&self, plans: &[Plan], is_new: &impl Fn(JobId) -> bool) -> BTreeSet<JobId> {
        let in_rows: BTreeSet<JobId> =
            plans.iter().flat_map(|plan| &plan.row).map(|slot| slot.job).collect();
        let (fill, machine) = (self.config().fill, self.machine());
        let is_in = |job: &&Job| {
            let eligibility = job.eligibility(machine);
            let is_gang = eligibility.is_gang();
            let left_over = !fill && job.standing == Standing::Filling && is_gang;
            // One that just got too many threads was left to this timetable as a gang, and may be
            // in its slot. Where nobody fills, orders have released one that had them before.
            let is_out = !fill && job.standing == Standing::Released;
            let fills = is_gang || (eligibility == Eligibility::TooManyThreads && !is_out);
            let listens = job.home.as_ref().is_some_and(|home| !home.listeners.is_empty());
            in_rows.contains(&job.id)
                || (listens && is_gang)
                || job.standing == Standing::Raised
                || left_over
                || (fills && is_new(job.id))
        };
        let has_home = |job: &&Job| job.home.is_some();
        self.jobs.values().filter(has_home).filter(is_in).map(|job| job.id).collect()
    }

    fn gang<'a>(&self, job: &'a Job, has_new_threads: bool) -> Option<(JobId, Gang<'a>)> {
        let machine = self.machine();
        let out_of_row = match job.standing_out_of_row(self.config().fill, machine) {
            // The next time that it is brought out of the rows.
            Standing::Released | Standing::Raised => Standing::Filling,
            standing => standing,
        };
        let home = job.home.as_ref()?;
        let gang = Gang {
            members: &home.members,
            standing: job.standing,
            out_of_row,
            has_new_threads,
            in_slot: job.in_slot,
            has_page: job.has_page,
            validity: job.validity(machine),
            listeners: home.listeners.clone(),
        };
        Some((job.id, gang))
    }
}

/// Where a job that no row holds goes, if it is not there with all of its members.
fn moves_out_of_row(
    job: &Job,
    fill: bool,
    machine: u32,
    has_new_members: bool,
) -> Option<Standing> {
    let to = job.standing_out_of_row(fill, machine);
    // Members of gangs are brought there by the timetable.
    let is_gang = job.eligibility(machine).is_gang();
    let is_there = job.standing == to && (is_gang || !has_new_members);
    if job.home.is_none() || is_there || job.standing == Standing::Raised {
        return None;
    }
    // Between filling and paused a row's gangs go back and forth by the clock.
    let by_clock = |standing| matches!(standing, Standing::Filling | Standing::Paused);
    let is_by_clock = !fill && is_gang && by_clock(job.standing);
    (!is_by_clock).then_some(to)
}
