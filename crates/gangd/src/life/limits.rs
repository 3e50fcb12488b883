//! Limits that change while jobs run.
//!
//! Problem: the kernel tells nobody that a limit of a group has changed.
//!
//! Approach: the main thread reads the limits of some jobs each round, so that each job is looked
//! at every few seconds, and in the next round where its threads went to other CPUs: its cpuset may
//! have changed, and change again. Where a job is to live elsewhere, or has other limits than are
//! in force, the thread that moves gangs does the rest.

use std::collections::BTreeSet;

use gang_conductor::{Job, Regroup};
use gang_schedule::{CpuSet, JobId, Policy};
use gang_timetable::{
    Backend, Controls,
    record::{Confinement, Placement},
};

use crate::{
    conduct::state::{State, now},
    daemon::Daemon,
    error::Error,
};

/// Rounds in which each job is looked at.
const ROUNDS: usize = 16;

/// Jobs that are looked at besides, since their threads went to other CPUs.
const MOVED_MAX: usize = 16;

/// A job that could not take over its limits is not looked at for so long.
const RETRY_NS: u64 = 60_000_000_000;

/// A job whose limits are to be read.
pub struct Limited {
    job: JobId,
    placement: Placement,
    is_gang: bool,
    /// The way that it is to go already.
    way: Option<Regroup>,
    /// With the limits on its CPU time that it has.
    controls: Controls,
    /// The CPUs of its cpuset, where it has all of them; else those that it may use.
    cpus: CpuSet,
    is_in_cpuset: bool,
}

impl Limited {
    /// The jobs that come after those that were looked at last, and those whose threads went to
    /// other CPUs since then.
    pub fn due(state: &mut State) -> Vec<Limited> {
        let (all, last) = (state.core.jobs(), state.limits_seen);
        let now_ns = now().monotonic_ns;
        let before_ns = std::mem::replace(&mut state.limits_at_ns, now_ns);
        state.limits_failed_ns.retain(|_, at_ns| now_ns < *at_ns + RETRY_NS);
        let has_failed = |job: &JobId| state.limits_failed_ns.contains_key(job);
        let later = all.range(JobId(last.0 + 1)..).chain(all.range(..=last));
        let later: Vec<_> = later.filter(|(job, _)| !has_failed(job)).collect();
        let limited = |&(&job, of): &(&JobId, &Job)| {
            let home = of.home.as_ref()?;
            Some(Limited {
                job,
                placement: home.placement.clone(),
                is_gang: of.spec.policy == Policy::Gang && of.regroup.is_none(),
                way: of.way_by_limits,
                controls: home.members.controls,
                cpus: home.cpuset.as_ref().unwrap_or(&home.members.everywhere).clone(),
                is_in_cpuset: home.cpuset.is_some(),
            })
        };
        let mut due: Vec<Limited> =
            later.iter().filter_map(limited).take(all.len().div_ceil(ROUNDS)).collect();
        let seen = due.last().map_or(last, |of| of.job);
        let in_turn: BTreeSet<JobId> = due.iter().map(|of| of.job).collect();
        let has_moved = |&&(job, of): &&(&JobId, &Job)| {
            of.confined_at_ns != 0 && of.confined_at_ns >= before_ns && !in_turn.contains(job)
        };
        due.extend(later.iter().filter(has_moved).filter_map(limited).take(MOVED_MAX));
        state.limits_seen = seen;
        due
    }
}

impl Daemon {
    /// Looks at the limits of some jobs.
    pub fn follow_limits(&self, limited: &[Limited]) {
        for of in limited {
            let (job, before) = (of.job, of.way);
            self.follow_cpuset(of);
            let way = self.way_by_limits(of);
            let has_others = self.jobs.cgroups.has_other_limits(&of.placement, &of.controls);
            if way != before || has_others {
                let follow = move |state: &mut State| state.follow_limits(job, way, has_others);
                // Without a conductor there are no jobs either.
                let _ = self.conductor.ask(follow);
            }
        }
    }

    /// A job that has all CPUs of its cpuset has those that there are now.
    fn follow_cpuset(&self, of: &Limited) {
        let Some(cpus) = self.jobs.cgroups.cpuset_of(&of.placement) else { return };
        if of.is_in_cpuset == (cpus == of.cpus) {
            return;
        }
        let job = of.job;
        let follow = move |state: &mut State| Ok(state.core.saw_cpuset(job, cpus)?);
        if let Err(error) = self.change_on_file(follow) {
            tracing::debug!(%job, ?error, "a cpuset is not followed");
        }
    }

    fn way_by_limits(&self, of: &Limited) -> Option<Regroup> {
        let is_switched = self.backend == Backend::Rt && of.is_gang;
        let way = is_switched.then(|| self.jobs.cgroups.way_by_limits(of.job, &of.placement))?;
        way.unwrap_or_else(|error| {
            // The job cannot live where it was called, and stays.
            tracing::debug!(job = %of.job, %error, source = %error.source, "limits are left");
            None
        })
    }

    /// Has a job take over the limits that are in force for it now.
    pub(super) fn renew_limits(&self, job: JobId) -> Result<(), Error> {
        let asked = self.conductor.ask(move |state| {
            let of = state.job(job)?;
            let placement = of.home.as_ref().map(|home| home.placement.clone());
            Ok::<_, Error>(placement.map(|at| (at, of.resources.mem_bytes, of.mem_is_enforced)))
        })??;
        let Some((placement, mem_bytes, is_enforced)) = asked else { return Ok(()) };
        let mut now = Controls::default();
        self.jobs.cgroups.note_cpu_limits(&mut now, &placement);
        let Controls { kept_from_realtime: is_kept, quota, .. } = now;
        self.conductor.ask(move |state| state.core.limit_cpu_time(job, is_kept, quota))??;
        self.jobs.cgroups.renew_process_limit(&placement)?;
        let before = placement.confinement().cloned();
        let at = self.jobs.cgroups.confinement_by_limits(&placement, mem_bytes);
        if at != before {
            let now = at.clone();
            self.change_on_file(move |state| Ok(state.core.confine(job, now, is_enforced)?))?;
            // Lifted where it was, if there is none any more.
            let lifted = || before.map(|before| Confinement { inherited: None, ..before });
            if let Some(at) = at.or_else(lifted) {
                self.jobs.cgroups.limit(&at, mem_bytes)?;
            }
        }
        Ok(())
    }
}
