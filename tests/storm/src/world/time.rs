//! Time passes: switchers follow their timetables, and the conductor plans.

use std::{collections::BTreeSet, rc::Rc};

use gang_conductor::{Due, NewThreads, effects::Planned};
use gang_schedule::JobId;
use gang_timetable::Timetable;

use super::{Died, Lane, MS, World};

/// For how long a step of the clock may show: plans reach that far, and switchers sleep as long.
pub(super) const STEP_SHOWS_NS: u64 = 600 * MS;

/// More of them come in no time that passes at once.
const TURNS_MAX: usize = 20_000;

impl World {
    /// The conductor does not run for some time.
    pub(super) fn hang(&mut self, b: u16) {
        let length_ns = u64::from(b % 800) * MS;
        // Nobody plans anew after a step meanwhile.
        if self.now.monotonic_ns <= self.stepped_until_ns {
            self.stepped_until_ns += length_ns;
        }
        self.pass(length_ns, true);
        self.held_up_until_ns = self.now.monotonic_ns;
        self.check_expired();
        self.ring();
    }

    /// A switcher does not run for some time.
    pub(super) fn stall(&mut self, a: u16, b: u16) {
        let length_ns = u64::from(b % 800) * MS / 4;
        let until_ns = self.now.utc_ns + length_ns;
        self.held_up_until_ns = self.held_up_until_ns.max(self.now.monotonic_ns + length_ns);
        if let Some(daemon) = &mut self.daemon {
            let lanes = daemon.lanes.len();
            let lane = &mut daemon.lanes[usize::from(a) % lanes];
            // When one that a thread gives way for makes its second call is settled already.
            if lane.gives_way.is_none() {
                lane.stalled_until_ns = until_ns;
            }
        }
    }

    /// A rival waits behind a thread: all switchers are asked to have the thread give way.
    pub(super) fn rival(&mut self, a: u16, b: u16) {
        let now_ns = self.now.utc_ns;
        let takes_ns = [4_000, 50_000, MS, 30 * MS][usize::from(a) % 4] + u64::from(a);
        let machine = Rc::clone(&self.machine);
        let Some(tid) = machine.borrow().nth_raised(b) else { return };
        self.held_up_until_ns = self.held_up_until_ns.max(self.now.monotonic_ns + takes_ns);
        for lane in self.daemon.iter_mut().flat_map(|it| &mut it.lanes) {
            lane.give_way(tid, now_ns, takes_ns, &machine);
        }
    }

    /// The clock is set, forward or back.
    pub(super) fn step_clock(&mut self, a: u16, b: u16) {
        let step_ns = u64::from(b % 2_000) * MS;
        let step = |at_ns: u64| {
            if a % 2 == 0 { at_ns + step_ns } else { at_ns.saturating_sub(step_ns) }
        };
        let before_ns = self.now.utc_ns;
        self.now.utc_ns = step(before_ns);
        self.daemon.iter_mut().for_each(|daemon| daemon.has_old_plans = true);
        for lane in self.daemon.iter_mut().flat_map(|it| &mut it.lanes) {
            // It does not run for as long as without the step, and who is awake stays so.
            lane.stalled_until_ns = step(lane.stalled_until_ns);
            let is_awake = lane.wakes_ns.is_some_and(|at_ns| at_ns <= before_ns);
            lane.wakes_ns = if is_awake { Some(self.now.utc_ns) } else { lane.wakes_ns };
        }
        self.stepped_until_ns = self.now.monotonic_ns + STEP_SHOWS_NS;
        self.ring();
    }

    pub(super) fn ring(&mut self) {
        let now_ns = self.now.utc_ns;
        if let Some(daemon) = &mut self.daemon {
            daemon.wakes_ns = now_ns;
        }
    }

    pub(super) fn look_for_new_threads(&mut self) {
        let mut machine = self.machine.borrow_mut();
        let Some(daemon) = &mut self.daemon else { return };
        let gangs: Vec<JobId> = daemon.core.planned_gangs().iter().copied().collect();
        let came: BTreeSet<JobId> =
            gangs.into_iter().filter(|&job| daemon.read_planned(&mut machine, job)).collect();
        drop(machine);
        if !came.is_empty() {
            let _ = self.conduct(NewThreads::Of(came));
        }
    }

    /// Time passes: switchers run when they wake, and so does the conductor unless it hangs.
    pub(super) fn pass(&mut self, length_ns: u64, hangs: bool) {
        let end_ns = self.now.utc_ns + length_ns;
        let mut turns = 0;
        while self.now.utc_ns < end_ns {
            turns += 1;
            let at_ns = self.next_ns(hangs).clamp(self.now.utc_ns, end_ns);
            if turns > TURNS_MAX {
                let what =
                    "the conductor sleeps between two plans, and switchers between two edges";
                self.machine.borrow_mut().violations.push(what.into());
                break;
            }
            let step_ns = at_ns - self.now.utc_ns;
            self.now.utc_ns = at_ns;
            self.now.monotonic_ns += step_ns;
            self.switch();
            let is_due = self.daemon.as_ref().is_some_and(|it| it.wakes_ns <= self.now.utc_ns);
            if is_due && !hangs && self.conduct(NewThreads::None).is_err() {
                return;
            }
            if at_ns == end_ns {
                break;
            }
        }
    }

    /// When somebody wakes next.
    pub(super) fn next_ns(&self, hangs: bool) -> u64 {
        let Some(daemon) = &self.daemon else { return u64::MAX };
        let lanes = daemon.lanes.iter();
        let lanes = lanes.filter_map(|lane| Some(lane.wakes_ns?.max(lane.stalled_until_ns)));
        let conductor = Some(daemon.wakes_ns).filter(|_| !hangs);
        lanes.chain(conductor).min().unwrap_or(u64::MAX)
    }

    /// Every switcher that wakes follows its timetable.
    pub(super) fn switch(&mut self) {
        let now_ns = self.now.utc_ns;
        let machine = Rc::clone(&self.machine);
        let Some(daemon) = &mut self.daemon else { return };
        daemon.lanes.iter_mut().for_each(|lane| lane.switch(now_ns, &machine));
        daemon.lower_strays(&mut machine.borrow_mut());
    }

    /// Where the conductor hangs, the switchers take every gang out of its slot by the deadline.
    pub(super) fn check_expired(&mut self) {
        let now_ns = self.now.utc_ns;
        let is_steady = self.now.monotonic_ns > self.stepped_until_ns;
        let has_expired = |lane: &Lane| {
            lane.last.generation == lane.line.current().generation
                && lane.last.deadline_ns <= now_ns
                && lane.stalled_until_ns <= now_ns
        };
        if is_steady && self.daemon.as_ref().is_some_and(|it| it.lanes.iter().all(has_expired)) {
            self.machine.borrow_mut().check_lowered();
        }
    }

    /// The conductor runs until it sleeps.
    pub(super) fn conduct(&mut self, mut new_threads: NewThreads) -> Result<(), Died> {
        for _ in 0..8 {
            let now = self.now;
            let Some(daemon) = &mut self.daemon else { return Err(Died) };
            daemon.core.begin_step(now);
            daemon.core.follow_thread_limit();
            self.carry_out();
            let Some(daemon) = &mut self.daemon else { return Err(Died) };
            let is_behind = daemon.followed().is_behind;
            let is_settled = daemon.core.is_settled(!daemon.orders.is_empty(), is_behind);
            if is_settled {
                daemon.wakes_ns = now.utc_ns + daemon.core.sleep_ns(now.utc_ns, 200 * MS);
                return Ok(());
            }
            let astray = daemon.look_for_strays(&mut self.machine.borrow_mut(), now);
            let look_in_ns = daemon.look_at_ns.saturating_sub(now.monotonic_ns);
            let came = std::mem::replace(&mut new_threads, NewThreads::None);
            match daemon.core.due(now, look_in_ns, 200 * MS, came.and(astray)) {
                Due::Sleep(0) => {}
                Due::Sleep(sleep_ns) => {
                    daemon.wakes_ns = now.utc_ns + daemon.core.sleep_ns(now.utc_ns, sleep_ns);
                    daemon.lower_strays(&mut self.machine.borrow_mut());
                    return Ok(());
                }
                Due::Look => daemon.look(now),
                Due::Plan { look, resume_ns, new_threads } => {
                    if look {
                        daemon.look(now);
                    }
                    self.plan(resume_ns, new_threads)?;
                }
            }
            self.carry_out();
        }
        if let Some(daemon) = &mut self.daemon {
            daemon.wakes_ns = self.now.utc_ns + 10_000;
        }
        Ok(())
    }

    pub(super) fn plan(&mut self, resume_ns: u64, new_threads: NewThreads) -> Result<(), Died> {
        let now = self.now;
        let machine = Rc::clone(&self.machine);
        let Some(daemon) = &mut self.daemon else { return Err(Died) };
        daemon.has_old_plans = false;
        let followed = daemon.followed();
        let (mut planning, moving) = daemon.core.begin(now, resume_ns, new_threads, followed);
        for job in moving {
            daemon.read(&mut machine.borrow_mut(), job);
        }
        let planned = daemon.core.plan(&mut planning);
        let read = |&job: &JobId| daemon.read_planned(&mut machine.borrow_mut(), job);
        let came = planned.iter().copied().filter(read).collect();
        let is_measured = |job: &JobId| job.0 % 2 == 0 && daemon.is_measured(*job);
        let measured = planned.into_iter().filter(is_measured).collect();
        let effects = daemon.core.publish(planning, &came, &measured, 0.01, || 40_000);
        if let Some(planned) = &effects.planned {
            if std::env::var_os("STORM_TRACE").is_some() {
                self.trace(planned, &effects.timetables);
            }
            self.check_entries(&planned.plans, resume_ns);
            self.check_plans(&planned.plans, resume_ns);
        }
        self.effect()?;
        effects.carry_out(self);
        let Some(daemon) = &mut self.daemon else { return Err(Died) };
        self.machine.borrow_mut().violations.extend(daemon.check_pages());
        daemon.core.planned_within(50_000);
        Ok(())
    }

    /// Prints a plan, to look for a mistake.
    pub(super) fn trace(&self, planned: &Planned, timetables: &[Timetable]) {
        let Some(daemon) = &self.daemon else { return };
        eprintln!("{:?}: plan from {}", self.now, planned.from_ns);
        for (id, job) in daemon.core.jobs() {
            let eligibility = daemon.core.eligibility(job);
            eprintln!("  job {id}: {eligibility:?} {:?} {:?}", job.standing, job.in_slot);
        }
        for timetable in timetables {
            for edge in &timetable.edges {
                eprintln!("  at {}: {edge:?}", edge.at_ns);
            }
            eprintln!("  {:?}", timetable.parts);
        }
    }
}
