//! The thread that flushes gangs around the ends of their slots, and looks at their programs.
//!
//! It asks the conductor which slots end when, as planned, and sleeps until shortly before. How
//! shortly follows what the gang's flushes have been taking. A gang whose slot never ends, or that
//! sleeps, is looked at now and then. Without ports the thread sleeps for good.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gang_linux::clock;
use gang_schedule::JobId;

use super::{OfJob, locked, port};
use crate::{conduct::client_priority::ThreadPriority, conduct::state::State, daemon::Daemon};

/// Programs are looked at as often, at the most, and at the least.
const LOOK_SOON_NS: u64 = 100_000_000;
const LOOK_NS: u64 = 500_000_000;
/// The conductor is asked for plans no more often; and where it has none ahead, as often.
const ASK_NS: u64 = 5_000_000;
const UNPLANNED_NS: u64 = 50_000_000;
/// A slot's end that was missed by so much is not caught up with.
const MISSED_NS: u64 = 2_000_000;

impl Daemon {
    /// Flushes ports until the daemon ends.
    pub fn flush_ports(&self) {
        // Clients are not to wait for flushes, nor flushes for them.
        let mut priority = ThreadPriority::of(&self.client_priority.of_its_own(), None);
        let mut buffer = port::buffer();
        let (mut came, mut at_most) = (0, None);
        // The last end of a slot of each gang that was flushed, or missed.
        let mut done: BTreeMap<JobId, u64> = BTreeMap::new();
        while let Some(now_came) = self.ports.wait(came, at_most) {
            came = now_came;
            priority.renew();
            let open = self.ports.open();
            done.retain(|job, _| open.iter().any(|(it, _)| it == job));
            if open.is_empty() {
                at_most = None;
                continue;
            }
            let jobs: Vec<JobId> = open.iter().map(|(job, _)| *job).collect();
            let Ok((ends, horizon_ns)) = self.conductor.ask(move |state| ends(state, &jobs)) else {
                return;
            };
            let timeout_ns = self.settings().flush_timeout.as_nanos() as u64;
            let asked_ns = clock::utc_ns();
            let again_ns = match horizon_ns > asked_ns {
                true => horizon_ns.clamp(asked_ns + ASK_NS, asked_ns + LOOK_NS),
                false => asked_ns + UNPLANNED_NS,
            };
            loop {
                let next = self.flush_due(&open, &ends, &mut done, timeout_ns, &mut buffer);
                self.look_at_due(&open);
                let now_ns = clock::utc_ns();
                let next_ns = next.unwrap_or(u64::MAX).min(again_ns);
                // The plans may have changed since; a gang that is due first is as it was.
                if now_ns >= again_ns || next_ns == again_ns {
                    let least_ns = (asked_ns + ASK_NS).saturating_sub(now_ns);
                    at_most = Some(Duration::from_nanos(
                        next_ns.saturating_sub(now_ns).max(least_ns.min(ASK_NS)),
                    ));
                    break;
                }
                let rest = Duration::from_nanos(next_ns.saturating_sub(now_ns));
                match self.ports.wait(came, Some(rest)) {
                    Some(now_came) if now_came == came => {}
                    // A port came: its job is to be known.
                    Some(_) => {
                        at_most = Some(Duration::ZERO);
                        break;
                    }
                    None => return,
                }
                priority.renew();
            }
        }
    }

    /// Flushes the gangs whose slots are about to end. Returns when the next one is due.
    fn flush_due(
        &self,
        open: &[(JobId, Arc<OfJob>)],
        ends: &[(JobId, u64)],
        done: &mut BTreeMap<JobId, u64>,
        timeout_ns: u64,
        buffer: &mut port::Buffer,
    ) -> Option<u64> {
        let mut next: Option<u64> = None;
        for (job, end_ns) in ends {
            if done.get(job).is_some_and(|done_ns| done_ns >= end_ns) {
                continue;
            }
            let Some((_, of)) = open.iter().find(|(it, _)| it == job) else { continue };
            let mut gang = locked(&of.gang);
            let due_ns = end_ns.saturating_sub(gang.lead_ns(timeout_ns));
            let now_ns = clock::utc_ns();
            if now_ns < due_ns {
                next = Some(next.map_or(due_ns, |next| next.min(due_ns)));
                continue;
            }
            done.insert(*job, *end_ns);
            if now_ns >= end_ns + MISSED_NS {
                continue;
            }
            let edge_ns = clock::monotonic_ns() + end_ns.saturating_sub(now_ns);
            if !gang.flush(edge_ns, timeout_ns, buffer) {
                let late_ns = now_ns.saturating_sub(due_ns);
                tracing::debug!(%job, late_ns, why = gang.why_unsettled(), "a flush failed");
            }
            *locked(&of.shown) = gang.shown();
        }
        next
    }

    fn look_at_due(&self, open: &[(JobId, Arc<OfJob>)]) {
        for (job, of) in open {
            let mut gang = locked(&of.gang);
            if clock::monotonic_ns() >= gang.looked_ns + LOOK_SOON_NS {
                gang.look(&self.roots.proc, |ports| self.has_outsiders(*job, ports));
                *locked(&of.shown) = gang.shown();
            }
        }
    }
}

/// The ends of slots of these jobs that are planned, in order, and the moment up to which plans are
/// known (UTC).
fn ends(state: &State, jobs: &[JobId]) -> (Vec<(JobId, u64)>, u64) {
    let plans = state.core.schedule().plans();
    let mut ends = Vec::new();
    for pair in plans.windows(2) {
        let has = |at: usize, job: JobId| pair[at].row.iter().any(|slot| slot.job == job);
        let is_next = pair[0].end_ns == pair[1].start_ns;
        for &job in jobs.iter().filter(|&&job| has(0, job)) {
            if !is_next || !has(1, job) {
                ends.push((job, pair[0].end_ns));
            }
        }
    }
    let horizon_ns = plans.last().map_or(0, |plan| plan.start_ns);
    (ends, horizon_ns)
}
