//! The invariants, on the state of a daemon that runs and on the kernel's.

use std::{thread, time::Duration};

use gang_engine::{Standing, backend::Backend, members::is_raised};
use gang_linux::sched::{self, Policy};
use gang_protocol::v1;
use gang_schedule::{JobId, check};

use crate::{daemon::Daemon, denied::Denied};

/// A thread, and how it is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Expectation {
    job: JobId,
    tid: u32,
    /// It may be in its slot at this moment.
    may_be_raised: bool,
    released: bool,
}

/// How often a thread must be found wrong. Between reading what is to be and looking at what is, an
/// edge may have passed; one that is wrong every time is wrong.
const LOOKS: usize = 3;

/// Checks everything; returns how much there was to check, and what does not hold.
pub fn all(daemon: &Daemon) -> Result<(usize, Vec<v1::Violation>), Denied> {
    let (plans, mut violations) = of_plans(daemon)?;
    let mut suspects: Option<Vec<Expectation>> = None;
    let mut threads = 0;
    for look in 0..LOOKS {
        let expected = expectations(daemon)?;
        threads = expected.len();
        let wrong: Vec<Expectation> = expected
            .into_iter()
            .filter(|e| !holds(daemon.backend, e))
            .filter(|e| {
                suspects.as_ref().is_none_or(|suspects| suspects.iter().any(|s| s.tid == e.tid))
            })
            .collect();
        let done = wrong.is_empty();
        suspects = Some(wrong);
        if done {
            break;
        }
        if look + 1 < LOOKS {
            thread::sleep(Duration::from_millis(25));
        }
    }
    violations.extend(suspects.unwrap_or_default().iter().map(|wrong| v1::Violation {
        invariant: "every thread is in exactly one of: raised, filling, paused, released".into(),
        found: format!(
            "thread {} of job {} has {:?}, and is to be {}",
            wrong.tid,
            wrong.job,
            sched::get(wrong.tid).map(|attributes| attributes.policy),
            match (wrong.may_be_raised, wrong.released) {
                (true, _) => "raised or filling",
                (_, true) => "released",
                _ => "filling or paused",
            }
        ),
    }));
    Ok((plans + threads, violations))
}

/// Checks the last plan. One that was made before something changed need not hold any more: the next
/// one is there within a slice.
fn of_plans(daemon: &Daemon) -> Result<(usize, Vec<v1::Violation>), Denied> {
    for _ in 0..LOOKS_AT_PLANS {
        let checked = daemon.conductor.ask(|state| {
            let schedule = &state.schedule;
            let last = schedule.plans().last().filter(|_| !schedule.is_changed())?;
            Some(check::plan(schedule, last))
        })?;
        if let Some(violations) = checked {
            let violations = violations.into_iter().map(|violation| v1::Violation {
                invariant: violation.invariant.to_owned(),
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

fn expectations(daemon: &Daemon) -> Result<Vec<Expectation>, Denied> {
    Ok(daemon.conductor.ask(|state| {
        let plans = state.schedule.plans();
        let in_rows = |job| plans.iter().any(|plan| plan.slot(job).is_some());
        let mut expected = Vec::new();
        for job in state.jobs.values() {
            let Some(home) = &job.home else { continue };
            let may_be_raised = job.standing == Standing::Raised || in_rows(job.id);
            let released = job.standing == Standing::Released;
            let threads = home.members.threads().iter().filter(|thread| !thread.is_exempt());
            expected.extend(threads.map(|thread| Expectation {
                job: job.id,
                tid: thread.tid,
                may_be_raised,
                released,
            }));
        }
        expected
    })?)
}

/// Whether a thread stands as it is to. What is gone stands right.
fn holds(backend: Backend, expected: &Expectation) -> bool {
    if backend != Backend::Rt {
        return true;
    }
    let Ok(now) = sched::get(expected.tid) else { return true };
    let raised = is_raised(&now) || (now.policy == Policy::Other && now.nice == -20);
    let filling = matches!(now.policy, Policy::Idle | Policy::Batch);
    match (expected.may_be_raised, expected.released) {
        (true, _) => raised || filling,
        (_, true) => !raised,
        _ => filling,
    }
}
