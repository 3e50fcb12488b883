//! Jobs without a cgroup: trees of processes, which the main thread looks at now and then.

use std::{collections::BTreeSet, sync::Arc};

use gang_conductor::Job;
use gang_engine::bound::ProcessHandle;
use gang_linux::process;
use gang_schedule::JobId;
use gang_timetable::record::Placement;

use crate::{conduct::state::State, daemon::Daemon, error::Error};

/// A job without a cgroup that is over, or has other processes than are on file.
pub struct Tree {
    job: JobId,
    is_over: bool,
    processes: Vec<Arc<ProcessHandle>>,
}

impl Tree {
    /// Absent where there is nothing to do for a job.
    pub fn due(state: &State, job: &Job) -> Option<Tree> {
        let home = job.home.as_ref()?;
        let Placement::Tree { processes: on_file } = &home.placement else { return None };
        let is_over = state.is_over(job.id);
        let processes = state.registry.jobs.get(&job.id)?.roster.tree();
        let pids = processes.iter().map(|process| process.pid);
        let is_on_file = pids.eq(on_file.iter().map(|(pid, _)| *pid));
        let is_due = is_over || !is_on_file;
        is_due.then(|| Tree { job: job.id, is_over, processes: processes.to_vec() })
    }
}

impl Daemon {
    /// Ends trees whose processes have all ended. Of the others, puts on file the processes that
    /// they have now: after a restart, a process whose parents have ended would not be found again.
    pub fn tend_trees(&self, trees: Vec<Tree>) {
        for Tree { job, is_over, processes } in trees {
            if is_over {
                self.end(job);
            } else if let Err(error) = self.put_tree_on_file(job, &processes) {
                tracing::warn!(%job, ?error, "a restart may not find all processes of a job");
            }
        }
    }

    fn put_tree_on_file(&self, job: JobId, tree: &[Arc<ProcessHandle>]) -> Result<(), Error> {
        let started = |process: &Arc<ProcessHandle>| {
            let stat = process::stat(&self.roots.proc, process.pid).ok()?;
            process.is_alive().then_some((process.pid, stat.start_ticks))
        };
        let alive: Vec<(u32, u64)> = tree.iter().filter_map(started).collect();
        let before = pids(tree);
        self.change_on_file(move |state| {
            let now = state.registry.jobs.get(&job).map(|of| pids(of.roster.tree()));
            let home = state.job(job)?.home.as_ref();
            let on_file = match home.map(|home| &home.placement) {
                Some(Placement::Tree { processes }) => &processes[..],
                _ => &[],
            };
            let all = brought_up_to_date(alive, &before, &now.unwrap_or_default(), on_file);
            Ok(state.core.set_tree(job, all)?)
        })
    }
}

fn pids(tree: &[Arc<ProcessHandle>]) -> BTreeSet<u32> {
    tree.iter().map(|process| process.pid).collect()
}

/// The processes of a tree: those that were found alive, of those that it had `before`, without
/// those that have left by `now`, and with those that came meanwhile. These are on file.
fn brought_up_to_date(
    mut alive: Vec<(u32, u64)>,
    before: &BTreeSet<u32>,
    now: &BTreeSet<u32>,
    on_file: &[(u32, u64)],
) -> Vec<(u32, u64)> {
    alive.retain(|(pid, _)| now.contains(pid));
    let came = on_file.iter().filter(|(pid, _)| now.contains(pid) && !before.contains(pid));
    alive.extend(came);
    alive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_on_file_has_what_came_while_it_was_read() {
        let set = |pids: &[u32]| pids.iter().copied().collect();
        // 8 has ended, 9 has left, 10 came, and 11 is a child that is not on file yet.
        let (before, now) = (set(&[7, 8, 9]), set(&[7, 8, 10, 11]));
        let on_file = [(7, 70), (8, 80), (9, 90), (10, 100)];
        let all = brought_up_to_date(vec![(7, 70), (9, 90)], &before, &now, &on_file);
        assert_eq!(all, [(7, 70), (10, 100)]);
    }
}
