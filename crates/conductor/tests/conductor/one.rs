//! A conductor of four CPUs with one job.

use gang_conductor::{
    Accounts, Candidate, Conductor, Gaps, Home, Limits, Now, Setup, Suspension, Terms, Tunables,
    admission::Resources, life::State,
};
use gang_schedule::{Config, JobId, Schedule, Sharing, Spec, Topology};
use gang_timetable::{
    Attributes, Backend, Controls, Members, Seen, Switchers,
    record::{Normal, Placement, Single},
};

pub const JOB: JobId = JobId(1);
pub const PID: u32 = 7;
pub const STARTED: u64 = 70;
pub const NOW: Now = Now { utc_ns: 1_700_000_000_000_000_000, monotonic_ns: 5_000_000_000 };

pub fn conductor() -> Conductor {
    conductor_with(false)
}

/// `has_common_group` where all gangs are in one group of the cpu controller.
pub fn conductor_with(has_common_group: bool) -> Conductor {
    conductor_of(Config::default(), has_common_group)
}

pub fn conductor_of(config: Config, has_common_group: bool) -> Conductor {
    let schedule = Schedule::new(config.clone(), Topology::flat(4)).unwrap();
    let setup = Setup {
        backend: Backend::Rt,
        switchers: Switchers::new(schedule.topology()),
        has_common_group,
        passthrough: true,
        gaps: Gaps::new(0.05, config.gap, true),
    };
    let limits = Limits { jobs: 8, jobs_per_user: 8, cpus_per_user: 64, edge_ns: 1_000_000 };
    let inside = Terms::default();
    let settings = Tunables {
        limits,
        accounts: Accounts::default(),
        sharing: Sharing::ByProgram,
        caps: [].into(),
        idle_after_ns: 1_000_000_000,
        inside,
        outside: None,
    };
    Conductor::new(setup, settings, schedule)
}

/// An administrator changes the settings.
pub fn set(core: &mut Conductor, change: impl FnOnce(&mut Tunables)) {
    let mut settings = core.settings().clone();
    change(&mut settings);
    core.reconfigure(settings, None);
}

pub fn candidate(cpus: u32) -> Candidate {
    Candidate {
        name: "job".into(),
        owner_uid: 1000,
        spec: Spec::new(cpus),
        resources: Resources::default(),
        signals: false,
        auto: false,
    }
}

pub fn cgroup() -> Placement {
    Placement::Cgroup {
        group: "group".into(),
        origin: "origin".into(),
        cpu_group: None,
        cpu_origin: None,
        cpu_group_is_shared: true,
        adopted: false,
        memory: None,
        other: None,
    }
}

pub fn single(tid: u32) -> Single {
    let normal = Normal::default();
    Single { tid, started: STARTED, pid: PID, process_started: STARTED, since: 80, normal }
}

/// One thread that may run on all CPUs.
pub fn home(placement: Placement) -> Home {
    let normal = Attributes::other(0);
    let everywhere: Vec<u32> = (0..4).collect();
    let mut members =
        Members::new(Controls::default(), normal, everywhere.iter().copied().collect());
    members.update(&[PID], |tid| {
        let cpus = everywhere.iter().copied().collect();
        Some(Seen { tid, now: normal, cpus, were_given: false, original: None, started_by: None })
    });
    Home::new(placement, members, normal, everywhere)
}

/// A conductor whose job is in a state.
pub fn in_state(state: State) -> Conductor {
    let mut core = conductor();
    if state == State::Absent {
        return core;
    }
    assert_eq!(core.register(NOW, candidate(2)), Ok(JOB));
    if state != State::Registered {
        core.attach(NOW, JOB, home(cgroup()), (PID, STARTED)).unwrap();
    }
    if matches!(state, State::Present | State::Stopped) {
        core.arrive(JOB).unwrap();
    }
    if state == State::Stopped {
        core.suspend(NOW, JOB, Suspension::Own).unwrap();
    }
    assert_eq!(State::of(&core.jobs()[&JOB]), state);
    core
}
