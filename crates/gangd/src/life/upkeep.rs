//! The work that the main thread does for all jobs now and then.

use gang_timetable::Backend;

use super::{limits::Limited, thread_limit::OverLimit, trees::Tree};
use crate::daemon::Daemon;

impl Daemon {
    /// Does what is due for jobs. Returns whether there were any, and whether there had been any
    /// since the daemon began. Asks once: each question wakes the conductor.
    pub fn tend(&self) -> (bool, bool) {
        let forget_after = self.settings().forget_after;
        let asked = self.conductor.ask(move |state| {
            let limited = Limited::due(state);
            let had_jobs = (!state.core.jobs().is_empty(), state.core.had_jobs());
            let (jobs, machine) = (state.core.jobs(), state.core.machine());
            (
                limited,
                jobs.values().filter_map(|job| Tree::due(state, job)).collect(),
                jobs.keys().filter_map(|&job| state.singles_due(job)).collect(),
                jobs.values()
                    .filter_map(|job| OverLimit::of(job, machine))
                    .collect::<Vec<OverLimit>>(),
                state.unused_for(forget_after),
                had_jobs,
            )
        });
        // Without a conductor there are no jobs either.
        let Ok((limited, trees, singles, over_limit, unused, had_jobs)) = asked else {
            return (false, false);
        };
        self.follow_limits(&limited);
        self.follow_deputies();
        self.tend_trees(trees);
        self.tend_singles(singles);
        if self.backend == Backend::Rt {
            over_limit.iter().for_each(|it| it.lower(&self.roots.proc));
        }
        // Their processes go on without gangd (L20).
        for job in unused {
            tracing::info!(
                %job,
                ?forget_after,
                "a job that used no CPU is forgotten; its processes go on"
            );
            self.end(job);
        }
        had_jobs
    }
}
