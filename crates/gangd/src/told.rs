//! What the switchers were told last.
//!
//! Problem: what was planned is taken back while the switchers follow it. What they are told instead begins
//! with gangs that stand as they were left by what was told before, and on the CPUs that it gave them. And a
//! switcher that was out of step did only some of it.
//!
//! Approach: of the last composition as much is kept as says how gangs stand at any moment of it. Where the
//! next one begins, they are taken back to that moment. Where a switcher was out of step, nothing is assumed of
//! any gang that it may have been told of, so that each is told anew.
//!
//! Properties: what is assumed of a gang is so, or the gang is told everything: no switcher that was late or
//! lost a timetable leaves one that stands otherwise than the next composition takes for granted.

use std::collections::{BTreeMap, BTreeSet};

use gang_conductor::Eligibility;
use gang_schedule::{Config, CpuSet, JobId, clock as slices};
use gang_timetable::{Pin, Standing};

use crate::state::State;

/// The last composition, as far as it must be known to tell the switchers something else.
#[derive(Debug, Default)]
pub struct Told {
    pub from_ns: u64,
    pub until_ns: u64,
    /// With the gaps in force.
    config: Config,
    /// The gangs it is about.
    gangs: BTreeSet<JobId>,
    /// Those of all compositions that a switcher may have followed lately.
    lately: BTreeSet<JobId>,
    /// The CPUs to which gangs were restricted before, and when that changes.
    pinned: BTreeMap<JobId, Option<CpuSet>>,
    pins: Vec<Pin>,
    /// How often switchers were out of step, as last seen.
    out_of_step: u64,
}

impl Told {
    pub fn gangs(&self) -> &BTreeSet<JobId> {
        &self.gangs
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The gangs of which it is not known how they stand, where switchers were out of step since this was asked
    /// last. They were so as often as is given.
    pub fn gone_astray(&mut self, out_of_step: u64) -> BTreeSet<JobId> {
        let is_same = std::mem::replace(&mut self.out_of_step, out_of_step) == out_of_step;
        if is_same { BTreeSet::new() } else { self.lately.clone() }
    }

    /// All switchers follow the last composition: what was told before is over.
    pub fn all_follow(&mut self) {
        self.lately.clone_from(&self.gangs);
    }

    /// Takes standings and pins back to where they are at a moment.
    pub fn rewind(&self, state: &mut State, to_ns: u64) {
        let before_ns = to_ns - 1;
        let plan = state.schedule.plan_of(slices::slice_at(&self.config, before_ns));
        let in_gap = slices::in_gap(&self.config, before_ns);
        let ended = before_ns >= self.until_ns;
        for &id in &self.gangs {
            let Some(job) = state.jobs.get_mut(&id) else { continue };
            let in_row = plan.is_some_and(|plan| plan.slot(id).is_some()) && !ended;
            job.standing = match job.standing {
                _ if in_row && !in_gap => Standing::Raised,
                _ if in_row => Standing::Filling,
                Standing::Raised | Standing::Filling if !self.config.fill => Standing::Paused,
                Standing::Raised => Standing::Filling,
                standing => standing,
            };
        }
        for (&job, first) in &self.pinned {
            let mut moves = self.pins.iter().rev().filter(|pin| pin.job == job);
            let last = moves.find(|pin| pin.at_ns <= before_ns);
            pin(state, job, last.map_or_else(|| first.clone(), |pin| Some(pin.cpus.clone())));
        }
    }

    /// Has gangs stand, as far as anybody here knows, so that whatever they are to be next has to be told to the
    /// kernel: the calls that bring a job somewhere take back a pause only where it was paused.
    pub fn assume_nothing_of(&mut self, gangs: &BTreeSet<JobId>, state: &mut State) {
        let (fill, machine) = (state.schedule.config().fill, state.machine());
        let pauses = !fill || !state.backend.can_fill();
        if !gangs.is_empty() {
            state.jobs.values_mut().for_each(|job| job.page_says = None);
        }
        for id in gangs {
            let Some(job) = state.jobs.get_mut(id) else { continue };
            let may_be_paused = pauses || job.standing == Standing::Paused;
            // A crowd fills, and has no turns of which it would be told that.
            let stays_out = job.eligibility(machine) == Eligibility::TooManyThreads;
            job.standing = match may_be_paused && !job.suspended {
                true => Standing::Paused,
                false if stays_out => Standing::Raised,
                false => Standing::Filling,
            };
        }
        self.gangs.extend(gangs);
    }

    /// What the next composition is about.
    pub fn begin(&mut self, gangs: BTreeSet<JobId>, config: Config) {
        self.lately.extend(&gangs);
        (self.gangs, self.config) = (gangs, config);
    }

    /// Where a composition that the switchers have now leaves the gangs.
    pub fn end(&mut self, state: &mut State, pins: Vec<Pin>, standings: BTreeMap<JobId, Standing>) {
        self.pinned = pins.iter().map(|pin| (pin.job, pinned(state, pin.job))).collect();
        for at in &pins {
            pin(state, at.job, Some(at.cpus.clone()));
        }
        self.pins = pins;
        for (id, standing) in standings {
            if let Some(job) = state.jobs.get_mut(&id) {
                job.standing = standing;
            }
        }
    }
}

fn pinned(state: &State, job: JobId) -> Option<CpuSet> {
    state.jobs.get(&job)?.home.as_ref()?.members.pinned.clone()
}

fn pin(state: &mut State, job: JobId, cpus: Option<CpuSet>) {
    if let Some(home) = state.jobs.get_mut(&job).and_then(|job| job.home.as_mut()) {
        home.members.set_pinned(cpus);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use gang_engine::{
        bound::{ControlFile, ControlFiles},
        members::Members,
        store::Placement,
    };
    use gang_linux::{Roots, cgroup::Group};
    use gang_schedule::{Schedule, Spec, Topology};
    use gang_timetable::{Attributes, Backend, THREADS_MAX};

    use super::*;
    use crate::{settings::Settings, state::Candidate};
    use gang_conductor::admission::Resources;

    /// A job in a group of its own, in its slot.
    fn job(state: &mut State, group: &Path, threads: usize) -> JobId {
        fs::create_dir(group).unwrap();
        let tids: String = (1..=threads).map(|tid| format!("{tid}\n")).collect();
        fs::write(group.join("cgroup.threads"), tids).unwrap();
        let [idle, weight] = ["cpu.idle", "cpu.weight"].map(|file| {
            fs::write(group.join(file), "").unwrap();
            ControlFile::open(group.join(file)).ok()
        });
        let controls = ControlFiles { freeze: None, idle, weight };
        let (normal, anywhere) = (Attributes::other(0), CpuSet::new());
        let mut members =
            Members::of_group(&Group::at(group), controls, false, normal, anywhere).unwrap();
        members.refresh(Path::new("/proc")).unwrap();
        let candidate = Candidate {
            name: "job".into(),
            owner_uid: 0,
            spec: Spec::new(1),
            resources: Resources::default(),
            signals: false,
            auto: false,
        };
        let id = state.register(candidate).unwrap();
        let at = Placement::Tree { processes: Vec::new() };
        state.join(id, at, members, normal, Vec::new()).unwrap();
        state.jobs.get_mut(&id).unwrap().standing = Standing::Raised;
        id
    }

    #[test]
    fn of_whom_nothing_is_known_and_who_has_no_turns_is_told_what_it_is_to_be() {
        let directory = tempfile::tempdir().unwrap();
        for backend in Backend::ALL {
            let settings = Settings::default();
            let schedule = Schedule::new(Config::default(), Topology::flat(2)).unwrap();
            let mut state = State::new(Roots::default(), backend, &settings, schedule);
            for (what, threads) in [("sleeps", 1), ("crowd", THREADS_MAX + 1), ("suspended", 1)] {
                let group = directory.path().join(format!("{}-{what}", backend.name()));
                let id = job(&mut state, &group, threads);
                match what {
                    "suspended" => drop(state.suspend(id, true).unwrap()),
                    _ => state.wake(id, false).unwrap(),
                }
                // As it was told, which came to nothing.
                let standing = |state: &State| state.jobs[&id].standing;
                state.jobs.get_mut(&id).unwrap().standing = Standing::Filling;
                state.settle();
                Told::default().assume_nothing_of(&[id].into(), &mut state);
                let assumed = standing(&state);
                state.settle();
                // Who is raised, the next composition takes out of its slot.
                let is_told = assumed == Standing::Raised || assumed != standing(&state);
                assert!(is_told, "{backend:?}, {what}: {:?} as before", standing(&state));
            }
        }
    }
}
