//! The start of a daemon, which takes over what is on file.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use gang_conductor::{
    Accounts, Conductor, Gaps, Home, Limits, Setup, Terms, Tunables,
    life::{Moment, State},
};
use gang_schedule::{JobId, Quota, Schedule, Topology};
use gang_timetable::{
    Action, Attributes, Backend, Controls, Members, Switchers, Timetable, follower::Follower,
    record::Placement,
};

use super::{Daemon, JOBS_MAX, Lane, MS, SUBORDINATE, USERS, World, carrier::HandedOn};
use crate::machine::Roster;

impl World {
    /// Starts a daemon, which takes over the jobs on file.
    pub(super) fn start(&mut self) {
        let online: Vec<_> = self.topology.cpus().to_vec();
        let online = online.into_iter().filter(|cpu| !self.offline.contains(&cpu.id)).collect();
        let Ok(topology) = Topology::new(online) else { return };
        let Ok(schedule) = Schedule::new(self.config.clone(), topology) else { return };
        let switchers = Switchers::new(schedule.topology());
        let setup = Setup {
            backend: self.backend,
            switchers: switchers.clone(),
            has_common_group: self.in_idle_group,
            passthrough: self.seed % 5 != 0,
            gaps: Gaps::new(0.05, self.config.gap, self.config.gap.length_ns > 0),
        };
        // Some have time for a few threads alone.
        let edge_ns = [MS, 4_000, 8_000, 2 * MS][self.seed as usize / 12 % 4];
        let (jobs, jobs_per_user) = (JOBS_MAX, JOBS_MAX);
        let limits = Limits { jobs, jobs_per_user, cpus_per_user: 256, edge_ns };
        let settings = Tunables {
            limits,
            accounts: Accounts::new(Vec::new(), [(SUBORDINATE, USERS[USERS.len() - 1])]),
            sharing: self.config.sharing.clone(),
            caps: self.config.caps.clone(),
            idle_after_ns: 1_000 * MS,
            inside: Terms::default(),
            outside: None,
        };
        let first = Rc::<Timetable<Action>>::default();
        let lane = || Lane {
            line: Follower::new(first.clone()),
            last: first.clone(),
            wakes_ns: None,
            stalled_until_ns: 0,
            gives_way: None,
            missed: 0,
        };
        let mut daemon = Daemon {
            core: Conductor::new(setup, settings, schedule),
            rosters: BTreeMap::new(),
            lanes: (0..switchers.len()).map(|_| lane()).collect(),
            orders: Vec::new(),
            handed_on: HandedOn::default(),
            pending: Vec::new(),
            wakes_ns: self.now.utc_ns,
            look_at_ns: 0,
            strays: Vec::new(),
            remains: Vec::new(),
            load: 0,
            uses: BTreeMap::new(),
            given: Vec::new(),
            had_parts: BTreeSet::new(),
            has_old_plans: false,
        };
        daemon.core.number_from(self.next_job);
        self.restore(&mut daemon);
        daemon.note_restored();
        self.daemon = Some(daemon);
        self.held_up_until_ns = self.now.monotonic_ns;
    }

    pub(super) fn restore(&mut self, daemon: &mut Daemon) {
        let mut machine = self.machine.borrow_mut();
        let records: Vec<_> = machine.records.values().cloned().collect();
        for mut record in records {
            let job = JobId(record.id);
            machine.release(&record);
            let mut roster = Roster::default();
            match &record.placement {
                // The group of a job whose first process did not get there is empty.
                Placement::Cgroup { .. } => {}
                Placement::Tree { processes } => roster.tree.extend(
                    processes
                        .iter()
                        .filter(|(pid, started)| {
                            machine.processes.get(pid).is_some_and(|of| of.started == *started)
                        })
                        .map(|(pid, _)| *pid),
                ),
                Placement::Threads { threads } => roster.singles.clone_from(threads),
            }
            record.coming = None;
            record.placement = record.placement.with_other(None);
            let members = self.members(
                machine.quota_of(job),
                record.normal.into(),
                &record.affinity,
                &record.placement,
            );
            let home = Home::new(
                record.placement.clone(),
                members.clone(),
                record.normal.into(),
                record.affinity.clone(),
            );
            *self.cells.entry((State::Absent, Moment::Restore)).or_default() += 1;
            if machine.is_over(job, &home, &roster)
                || daemon.core.restore(self.now, &record, members).is_err()
            {
                machine.clear_away(&record);
                continue;
            }
            let restored = daemon.core.jobs().get(&job).and_then(|job| job.record());
            if restored.as_ref() != Some(&record) {
                let what = format!("a job is taken over as on file: {record:?}, now {restored:?}");
                machine.violations.push(what);
            }
            machine.begin_pins(job);
            daemon.rosters.insert(job, roster);
            daemon.had_parts.insert(job);
        }
        // Once it is known of all whose they are.
        for job in daemon.rosters.keys().copied().collect::<Vec<JobId>>() {
            daemon.read(&mut machine, job);
            if let Some(record) = daemon.core.jobs().get(&job).and_then(|job| job.record()) {
                machine.records.insert(job, record);
            }
        }
    }

    pub(super) fn members(
        &self,
        quota: Option<Quota>,
        normal: Attributes,
        affinity: &[u32],
        at: &Placement,
    ) -> Members {
        let is_group = matches!(at, Placement::Cgroup { .. });
        let has_own = matches!(at, Placement::Cgroup { cpu_group: Some(_), .. });
        let is_shared = matches!(at, Placement::Cgroup { cpu_group_is_shared: true, .. });
        let is_weighed = is_group && (self.backend == Backend::Weight || has_own);
        let controls = Controls {
            freezer: is_group,
            idle: is_weighed,
            weight: is_weighed,
            in_idle_group: is_shared && self.in_idle_group,
            kept_from_realtime: quota.is_some(),
            quota,
            ..Controls::default()
        };
        let mut members = Members::new(controls, normal, affinity.iter().copied().collect());
        members.are_single = matches!(at, Placement::Threads { .. });
        members.keep_what_stays(self.backend);
        members
    }
}
