//! The daemon reads the threads of its jobs, and looks at the machine.

use gang_conductor::{Counted, Followed, Now};
use gang_schedule::JobId;
use gang_timetable::{Runnable, record::Placement};

use super::{Daemon, Lane, MS};
use crate::machine::Machine;

impl Daemon {
    pub(super) fn followed(&self) -> Followed {
        let in_force = |lane: &Lane| lane.last.generation == lane.line.current().generation;
        Followed {
            is_behind: !self.lanes.iter().all(in_force),
            missed: self.lanes.iter().map(|lane| lane.missed).sum(),
        }
    }

    pub(super) fn read(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let came = self.refresh(machine, job);
        if came {
            self.core.found_members(job);
        }
        came
    }

    pub(super) fn refresh(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let others = self.rosters.iter().filter(|(other, _)| **other != job);
        let others = others.flat_map(|(_, of)| of.tree.iter().copied());
        // Those that leave are on file of their old job until they have left.
        let homes = self.core.jobs.values().filter(|other| other.id != job);
        let homes = homes.filter_map(|other| other.home.as_ref());
        let others = others.chain(homes.flat_map(|home| home.leaving.iter().copied())).collect();
        let Some(of) = self.core.jobs.get_mut(&job) else { return false };
        let owner_uid = of.owner_uid;
        let Some(home) = of.home.as_mut() else { return false };
        let roster = self.rosters.entry(job).or_default();
        roster.others = others;
        let came = machine.read(job, owner_uid, home, roster);
        if let Placement::Tree { .. } = home.placement {
            let started = |pid: &u32| Some((*pid, machine.processes.get(pid)?.started));
            let tree = roster.tree.iter().filter_map(started).collect();
            // At once, which the daemon does now and then.
            if let Ok(Some(record)) = self.core.set_tree(job, tree) {
                machine.records.insert(job, record);
            }
        }
        self.core.saw_cpus_of(job);
        came
    }

    pub(super) fn read_planned(&mut self, machine: &mut Machine, job: JobId) -> bool {
        let came = self.refresh(machine, job);
        self.core.was_read(job);
        came
    }

    pub(super) fn look(&mut self, now: Now) {
        self.look_at_ns = now.monotonic_ns + 100 * MS;
        let mut of_jobs = Vec::new();
        for job in self.core.to_count() {
            let threads = self.core.jobs[&job]
                .home
                .as_ref()
                .map_or(0, |home| home.members.threads().len() as u32);
            of_jobs.push((job, Runnable::exactly(threads.min(2))));
        }
        let all: u32 = of_jobs.iter().map(|(_, it)| it.threads).sum::<u32>() + 1 + self.load;
        self.core.count(&Counted { all, of_daemon: 1, of_jobs });
        self.core.saw_short_tasks(Some(now.monotonic_ns / (7 * MS)));
        self.core.take_notes();
    }
}
