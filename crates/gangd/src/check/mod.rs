//! The invariants, on the state of a running daemon and on the kernel's.
//!
//! Problem: at each edge of the clock the standing of threads changes, and neither the daemon's
//! state nor the kernel's can be looked at as a whole at one moment.
//!
//! Approach: the plans are copied, in portions. Then each thread, group and process is looked at by
//! itself, with the clock before and after: where an edge passed, nothing was seen. Plans that were
//! changed meanwhile do not count either. Nor does a look while a switcher was late: without
//! real-time priority, a switcher waits as long as the checker does. And a thread may be new. So a
//! fault must be there at several looks, with none in between that found the same thing right.
//!
//! Any user may ask, and no job is to wait for a check. The conductor is kept for one portion at a
//! time. However many clients ask at once, one check is under way.
//!
//! Where gangs have all CPUs and the checker waits for their gaps, it sees them out of their slots
//! only.

mod look;
mod outside;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use gang_conductor::Job;
use gang_linux::clock;
use gang_protocol::v1;
use gang_schedule::{Config, CpuSet, JobId, Plan, Schedule, check, clock as slices};
use gang_timetable::{Backend, InSlot, Standing};

use crate::{
    conduct::{at_work, requests::Handle, state::State},
    daemon::Daemon,
    error::Error,
};
use look::{Subject, Wanted};

/// A fault counts once so many looks in a row have found it. Each look is in another slice where
/// the clock decides the standing.
const WRONG_LOOKS: u32 = 3;

/// How far looks are apart, at least and at most: most of a slice.
const BETWEEN_LOOKS: [Duration; 2] = [Duration::from_millis(15), Duration::from_millis(200)];

/// The number of looks at least, and at most while there is something that may be wrong.
const LOOKS: u32 = 3;
const LOOKS_MAX: u32 = 12;

/// After an edge, switchers have this time at least.
const SETTLES_NS: u64 = 100_000;

/// How often a look is tried over which an edge passes.
const TRIES: u32 = 4;

/// The most that is copied at a time of what can be looked at.
const PORTION: usize = 256;

/// How much there was to check, and what does not hold.
type Found = (usize, Vec<v1::Violation>);

/// The checks of a daemon, one after the other. All clients that ask while one is under way get
/// what the next one finds.
#[derive(Default)]
pub struct Checks {
    /// When the last one began (CLOCK_MONOTONIC), and what it found.
    last: Mutex<Option<(u64, Found)>>,
}

impl Checks {
    /// The findings of a check that began after the client asked.
    fn since(
        &self,
        asked_ns: u64,
        check: impl FnOnce() -> Result<Found, Error>,
    ) -> Result<Found, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun_ns, found)) = &*last {
            if *begun_ns > asked_ns {
                return Ok(found.clone());
            }
        }
        let begun_ns = clock::monotonic_ns();
        let found = check()?;
        *last = Some((begun_ns, found.clone()));
        Ok(found)
    }
}

/// Checks everything; returns how much there was to check, and what does not hold.
pub fn all(daemon: &Daemon) -> Result<Found, Error> {
    // One is made at a time, for whomever, and waits for slices in between.
    at_work::leave();
    daemon.checks.since(clock::monotonic_ns(), || of_everything(daemon))
}

fn of_everything(daemon: &Daemon) -> Result<Found, Error> {
    let (plans, mut violations) = of_plans(daemon)?;
    let slice_ns = daemon.conductor.ask(|state| state.core.schedule().config().slice_ns)?;
    let mut ledger = Ledger::default();
    let mut subjects = 0;
    for look in 1..=LOOKS_MAX {
        subjects = look_at_all(daemon, &mut ledger)?;
        if look >= LOOKS && !ledger.is_in_doubt() {
            break;
        }
        let [least, most] = BETWEEN_LOOKS;
        thread::sleep(Duration::from_nanos(slice_ns / 4 * 3).clamp(least, most));
    }
    violations.extend(ledger.violations());
    violations.extend(outside::violations(daemon)?);
    Ok((plans + subjects, violations))
}

/// Looks once at each thing that there is, portion by portion; returns how many there are.
fn look_at_all(daemon: &Daemon, ledger: &mut Ledger) -> Result<usize, Error> {
    let (backend, mut from, mut subjects) = (daemon.backend, Some(Bookmark::BEGIN), 0);
    while let Some(begin) = from {
        let portion = move |state: &mut State| Picture::portion(backend, state, begin);
        let (picture, next) = daemon.conductor.ask(portion)?;
        subjects += picture.jobs.iter().map(|job| job.subjects.len()).sum::<usize>();
        let seen = picture.look(&daemon.conductor, &daemon.roots.proc);
        let jobs: Vec<JobId> = picture.jobs.iter().map(|of| of.job).collect();
        let after = move |state: &mut State| Picture::of(backend, state, &jobs);
        let after = daemon.conductor.ask(after)?;
        for (case, (slice, wrong)) in seen {
            if picture.agrees(&after, case.job, slice) {
                ledger.add(case, slice, wrong);
            }
        }
        from = next;
    }
    Ok(subjects)
}

/// Checks the last plan. A plan that was made before something changed need not hold any more: the
/// next one is there within a slice.
fn of_plans(daemon: &Daemon) -> Result<Found, Error> {
    for _ in 0..LOOKS_AT_PLANS {
        let planned = daemon.conductor.ask(|state| {
            let forecast = state.core.schedule();
            let last = forecast.plans().last().filter(|_| !forecast.is_changed())?;
            Some((Schedule::clone(forecast), last.clone()))
        })?;
        if let Some((schedule, last)) = planned {
            let violations = check::plan(&schedule, &last);
            let violations = violations.into_iter().map(|violation| v1::Violation {
                id: violation.invariant.id.into(),
                invariant: violation.invariant.sentence.into(),
                found: violation.found,
            });
            return Ok((1, violations.collect()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok((0, Vec::new()))
}

/// How often a plan is asked for; there is none as long as no job was scheduled.
const LOOKS_AT_PLANS: usize = 4;

/// The plans and jobs, as the conductor knows them at one moment.
struct Picture {
    backend: Backend,
    config: Config,
    machine: CpuSet,
    plans: Vec<Arc<Plan>>,
    jobs: Vec<Expected>,
}

/// How far a walk over all that can be looked at has come: to a job, and some of what it has.
#[derive(Clone, Copy, Debug)]
struct Bookmark {
    job: JobId,
    subjects: usize,
}

impl Bookmark {
    const BEGIN: Bookmark = Bookmark { job: JobId(0), subjects: 0 };
}

/// A job, and what of it can be looked at.
struct Expected {
    job: JobId,
    /// The job is raised when the clock says so.
    takes_turns: bool,
    out_of_row: Standing,
    in_slot: InSlot,
    subjects: Vec<Subject>,
}

/// A subject, and how it was to stand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    job: JobId,
    subject: String,
    standing: Standing,
}

/// The slice of a look, and the fault that was seen, if any.
type Sight = (u64, Option<String>);

impl Picture {
    /// A picture of some jobs, with nothing to look at.
    fn of(backend: Backend, state: &State, jobs: &[JobId]) -> Picture {
        let schedule = state.core.schedule();
        let (fill, machine) = (schedule.config().fill, state.core.machine());
        let jobs = jobs.iter().filter_map(|id| state.core.jobs().get(id));
        Picture {
            backend,
            config: Config {
                gap: state.core.gaps().published(clock::utc_ns()),
                ..schedule.config().clone()
            },
            machine: schedule.topology().cpus().iter().map(|cpu| cpu.id).collect(),
            plans: schedule.plans().to_vec(),
            jobs: jobs.map(|job| Expected::of(job, fill, machine)).collect(),
        }
    }

    /// The next jobs with what can be looked at of them, and where the one after these begins.
    fn portion(backend: Backend, state: &State, from: Bookmark) -> (Picture, Option<Bookmark>) {
        let (fill, machine) = (state.core.schedule().config().fill, state.core.machine());
        let (mut jobs, mut room, mut next) = (Vec::new(), PORTION, None);
        for job in state.core.jobs().range(from.job..).map(|(_, job)| job) {
            let seen = if job.id == from.job { from.subjects } else { 0 };
            if room == 0 {
                next = Some(Bookmark { job: job.id, subjects: 0 });
                break;
            }
            let mut of = Expected::of(job, fill, machine);
            let roster = state.registry.jobs.get(&job.id).map(|of| &of.roster);
            let all = job.home.iter().zip(roster);
            let all = all.flat_map(|(home, roster)| Subject::all(backend, home, roster));
            of.subjects.extend(all.skip(seen).take(room));
            let taken = of.subjects.len();
            jobs.push(of);
            if taken == room {
                next = Some(Bookmark { job: job.id, subjects: seen + taken });
                break;
            }
            // A job takes its time even where nothing of it can be looked at.
            room -= taken.max(1);
        }
        (Picture { jobs, ..Picture::of(backend, state, &[]) }, next)
    }

    fn plan_of(&self, slice: u64) -> Option<&Plan> {
        self.plans.iter().rev().find(|plan| plan.slice == slice).map(|plan| &**plan)
    }

    /// How a job is to stand at a moment; nobody knows where that is not planned.
    fn wanted(&self, of: &Expected, at_ns: u64) -> Option<Wanted<'_>> {
        let in_slot = of.in_slot;
        let out_of_slot =
            |standing| Wanted { standing, in_slot, cpus: None, machine: &self.machine };
        if !of.takes_turns {
            return Some(out_of_slot(of.out_of_row));
        }
        let plan = self.plan_of(slices::slice_at(&self.config, at_ns))?;
        Some(match plan.slot(of.job) {
            Some(_) if slices::in_gap(&self.config, at_ns) => out_of_slot(Standing::Filling),
            Some(slot) => Wanted { cpus: Some(&slot.cpus), ..out_of_slot(Standing::Raised) },
            None => out_of_slot(of.out_of_row),
        })
    }

    /// True where an edge, or what follows it, lies between two moments.
    fn is_edge_between(&self, from_ns: u64, to_ns: u64) -> bool {
        let next_ns = |at_ns| slices::next_edge(&self.config, at_ns).at_ns;
        next_ns(from_ns.saturating_sub(SETTLES_NS)) != next_ns(to_ns)
    }

    fn look(&self, conductor: &Handle, proc_root: &Path) -> Vec<(Case, Sight)> {
        let mut seen = Vec::new();
        for of in &self.jobs {
            for subject in &of.subjects {
                let look = |_| self.look_at(conductor, proc_root, of, subject);
                seen.extend((0..TRIES).find_map(look));
            }
        }
        seen
    }

    fn look_at(
        &self,
        conductor: &Handle,
        proc_root: &Path,
        of: &Expected,
        subject: &Subject,
    ) -> Option<(Case, Sight)> {
        let before_ns = clock::utc_ns();
        if conductor.is_behind(before_ns) {
            return None;
        }
        let wanted = match subject {
            Subject::LeftAlone { .. } => Wanted {
                standing: Standing::Released,
                in_slot: of.in_slot,
                cpus: None,
                machine: &self.machine,
            },
            _ => self.wanted(of, before_ns)?,
        };
        let wrong = subject.look(self.backend, proc_root, &wanted);
        if self.is_edge_between(before_ns, clock::utc_ns()) {
            return None;
        }
        let (job, subject, standing) = (of.job, subject.to_string(), wanted.standing);
        let slice = slices::slice_at(&self.config, before_ns);
        Some((Case { job, subject, standing }, (slice, wrong)))
    }

    /// Whether a later picture says the same of a job and a slice. Where the job has a slot in the
    /// slice, the gaps must be the same, too: they change in number and length.
    fn agrees(&self, later: &Picture, job: JobId, slice: u64) -> bool {
        let of = |picture: &Picture| {
            let of = picture.jobs.iter().find(|of| of.job == job)?;
            Some((of.takes_turns, of.out_of_row, of.in_slot))
        };
        let slot = |picture: &Picture| picture.plan_of(slice).map(|plan| plan.slot(job).cloned());
        let has_same_gaps = self.config.gap == later.config.gap;
        let has_slot = slot(self).flatten().is_some();
        (has_same_gaps || !has_slot) && of(self) == of(later) && slot(self) == slot(later)
    }
}

impl Expected {
    fn of(job: &Job, fill: bool, machine: u32) -> Expected {
        Expected {
            job: job.id,
            takes_turns: job.eligibility(machine).is_gang(),
            out_of_row: job.standing_out_of_row(fill, machine),
            in_slot: job.in_slot,
            subjects: Vec::new(),
        }
    }
}

/// How often after each other a case was wrong, in which slice last, and what was wrong then.
#[derive(Default)]
struct Wrong {
    looks: u32,
    slice: Option<u64>,
    what: String,
}

/// The faults of each case, look by look.
#[derive(Default)]
struct Ledger {
    wrong: BTreeMap<Case, Wrong>,
}

impl Ledger {
    fn add(&mut self, case: Case, slice: u64, wrong: Option<String>) {
        let is_certain = self.wrong.get(&case).is_some_and(|wrong| wrong.looks >= WRONG_LOOKS);
        match wrong {
            Some(what) => {
                let of = self.wrong.entry(case).or_default();
                of.looks += u32::from(of.slice != Some(slice));
                (of.slice, of.what) = (Some(slice), what);
            }
            None if !is_certain => drop(self.wrong.remove(&case)),
            None => {}
        }
    }

    /// Something was wrong, and not yet often enough.
    fn is_in_doubt(&self) -> bool {
        self.wrong.values().any(|wrong| wrong.looks < WRONG_LOOKS)
    }

    fn violations(self) -> impl Iterator<Item = v1::Violation> {
        let certain = self.wrong.into_iter().filter(|(_, wrong)| wrong.looks >= WRONG_LOOKS);
        certain.map(|(Case { job, subject, standing }, Wrong { what, .. })| v1::Violation {
            id: "one_standing".into(),
            invariant: "every thread is in exactly one of: raised, filling, paused, released"
                .into(),
            found: format!("{subject} of job {job} is to be {}, and {what}", look::name(standing)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use gang_schedule::Gap;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Two gangs on two CPUs in slices of 10 ms, each with a gap of 1 ms at its end; job 1 has the
    /// first slice.
    fn picture() -> Picture {
        let config = Config {
            slice_ns: 10 * MS,
            gap: Gap { period_ns: 10 * MS, length_ns: MS },
            ..Config::default()
        };
        let plan = |slice: u64, job: u64| {
            Arc::new(Plan {
                generation: 1,
                slice,
                start_ns: slice * 10 * MS,
                end_ns: (slice + 1) * 10 * MS,
                row: vec![gang_schedule::Slot { job: JobId(job), cpus: CpuSet::from_iter([0]) }],
                rest: CpuSet::from_iter([1]),
                rest_turn: false,
                rest_kept: 0,
                beyond_caps: vec![],
                capped: false,
                fillers: Vec::new(),
                paused: Vec::new(),
            })
        };
        let job = |id: u64, out_of_row: Standing| Expected {
            job: JobId(id),
            takes_turns: out_of_row == Standing::Filling,
            out_of_row,
            in_slot: InSlot::default(),
            subjects: Vec::new(),
        };
        Picture {
            backend: Backend::Rt,
            config,
            machine: CpuSet::from_iter([0, 1]),
            plans: vec![plan(7, 1), plan(8, 2)],
            jobs: vec![
                job(1, Standing::Filling),
                job(2, Standing::Filling),
                job(3, Standing::Paused),
                job(4, Standing::Released),
            ],
        }
    }

    #[test]
    fn clock_decides_standing_and_gaps_raise_nobody() {
        use Standing::{Filling, Paused, Raised, Released};
        let picture = picture();
        let at = |at_ns| {
            let wanted = |job| picture.wanted(job, at_ns).map(|wanted| wanted.standing);
            picture.jobs.iter().map(wanted).collect::<Vec<_>>()
        };
        let all = |standings: [Standing; 4]| standings.map(Some).to_vec();
        assert_eq!(at(75 * MS), all([Raised, Filling, Paused, Released]));
        assert_eq!(at(85 * MS), all([Filling, Raised, Paused, Released]));
        for in_gap in [79 * MS, 90 * MS - 1] {
            assert_eq!(at(in_gap), all([Filling, Filling, Paused, Released]));
        }
        assert_eq!(at(95 * MS), [None, None, Some(Paused), Some(Released)]);
        let slot = picture.wanted(&picture.jobs[0], 75 * MS).unwrap();
        assert_eq!(slot.cpus, Some(&CpuSet::from_iter([0])));
    }

    #[test]
    fn a_look_over_which_an_edge_passed_is_none() {
        let picture = picture();
        assert!(!picture.is_edge_between(75 * MS, 78 * MS));
        assert!(picture.is_edge_between(75 * MS, 79 * MS), "a gap began");
        assert!(picture.is_edge_between(79 * MS + 1, 79 * MS + 2), "switchers are at it");
        assert!(picture.is_edge_between(79 * MS + SETTLES_NS, 80 * MS));
    }

    #[test]
    fn plan_changed_meanwhile_counts_for_nothing() {
        let (before, mut after) = (picture(), picture());
        assert!(before.agrees(&after, JobId(1), 7) && before.agrees(&after, JobId(2), 7));
        after.config.gap.length_ns += 1;
        assert!(!before.agrees(&after, JobId(1), 7), "it is not said when which gap is in force");
        assert!(before.agrees(&after, JobId(2), 7), "who has no slot has none in a gap either");
        after.config.gap = before.config.gap;
        after.plans[0] = Arc::new(Plan { row: Vec::new(), ..Plan::clone(&after.plans[0]) });
        assert!(!before.agrees(&after, JobId(1), 7) && before.agrees(&after, JobId(2), 7));
        after.jobs[1].takes_turns = false;
        assert!(!before.agrees(&after, JobId(2), 7));
        assert!(before.agrees(&after, JobId(4), 7));
        after.jobs.clear();
        assert!(!before.agrees(&after, JobId(4), 7), "it has ended");
    }

    #[test]
    fn clients_during_a_check_share_the_next_one() {
        let checks = Checks::default();
        let begun = AtomicU64::new(0);
        let find = || Ok((begun.fetch_add(1, Ordering::Relaxed) as usize, Vec::new()));
        let asked_ns = clock::monotonic_ns();
        thread::scope(|scope| {
            let askers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| checks.since(asked_ns, find).unwrap().0)).collect();
            let found: Vec<usize> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
            assert_eq!(found, [0; 8], "all had asked before the first one began");
        });
        let error = Error::NoSuchJob(JobId(1));
        let later_ns = clock::monotonic_ns();
        assert_eq!(checks.since(later_ns, || Err(error.clone())), Err(error));
        assert_eq!(checks.since(later_ns, find).unwrap().0, 1, "nothing is known of then");
        assert_eq!(checks.since(asked_ns, find).unwrap().0, 1);
    }

    #[test]
    fn repeated_faults_are_reported_and_late_ones_not() {
        let mut ledger = Ledger::default();
        let case =
            |tid: u32, standing| Case { job: JobId(5), subject: format!("thread {tid}"), standing };
        let raised = || Some("has Fifo with nice 0".to_owned());
        // Always raised: in its slot that is right.
        for slice in 0..u64::from(WRONG_LOOKS) {
            ledger.add(case(1, Standing::Filling), 2 * slice, raised());
            ledger.add(case(1, Standing::Raised), 2 * slice + 1, None);
        }
        // Late twice.
        for (slice, wrong) in [(1, raised()), (2, None), (3, raised()), (4, raised()), (5, None)] {
            ledger.add(case(2, Standing::Filling), slice, wrong);
        }
        assert!(!ledger.is_in_doubt());
        // Late by most of a slice.
        for _ in 0..2 * WRONG_LOOKS {
            ledger.add(case(3, Standing::Filling), 7, raised());
        }
        assert!(ledger.is_in_doubt());
        // A fault that was certain once stays so.
        ledger.add(case(1, Standing::Filling), 9, None);
        let found: Vec<String> = ledger.violations().map(|violation| violation.found).collect();
        assert_eq!(found, ["thread 1 of job 5 is to be filling, and has Fifo with nice 0"]);
    }
}
