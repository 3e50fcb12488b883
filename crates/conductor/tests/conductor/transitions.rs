//! Each cell of the table of a job's life, as the conductor acts on it.

use std::collections::BTreeSet;

use gang_conductor::{
    Conductor, Effects, Home, Refused, Suspension,
    life::{Cell, Moment, ORIGINS_MAX, State, cell},
};
use gang_schedule::{Policy, Topology};
use gang_timetable::{
    Controls,
    record::{JoinedProcess, Placement},
};

use crate::one::{JOB, NOW, PID, STARTED, candidate, cgroup, conductor, home, in_state, single};

/// Has a moment happen.
fn happen(core: &mut Conductor, moment: Moment) -> Result<(), Refused> {
    match moment {
        Moment::Register => drop(core.register(NOW, candidate(1))?),
        Moment::Restore => {
            let Home { members, .. } = home(cgroup());
            let record = in_state(State::Present).jobs()[&JOB].record().unwrap();
            core.restore(NOW, &record, members)?;
        }
        Moment::Attach => drop(core.attach(NOW, JOB, home(cgroup()), (PID, STARTED))?),
        Moment::Arrive => drop(core.arrive(JOB)?),
        Moment::Join => drop(core.join(NOW, JOB, home(cgroup()))?),
        Moment::Follow => {
            let joined = JoinedProcess {
                pid: 8,
                origin: "elsewhere".into(),
                cpu_origin: None,
                memory_origin: None,
            };
            drop(core.expect(JOB, joined, &[PID].into())?);
        }
        Moment::Detach => drop(core.detach(JOB, (PID, STARTED), &[PID])?),
        Moment::Left => drop(core.has_left(JOB, PID, true)?),
        Moment::AddThread => core.add_thread(JOB, single(9))?,
        Moment::DetachThread => drop(core.detach_thread(JOB, PID)?),
        Moment::Wake => core.wake(JOB)?,
        Moment::Sleep => core.sleep(JOB)?,
        Moment::Suspend => drop(core.suspend(NOW, JOB, Suspension::Own)?),
        Moment::Resume => drop(core.suspend(NOW, JOB, Suspension::None)?),
        Moment::SetSignals => drop(core.set_signals(JOB, true)?),
        Moment::Change => drop(core.change(JOB, |spec, _| spec.weight = 250)?),
        Moment::Move => drop(core.expect_at(JOB, cgroup())?),
        Moment::Moved => drop(core.moved(JOB, Policy::Gang, cgroup(), Controls::default())?),
        Moment::Confine => drop(core.confine(JOB, None, true)?),
        Moment::OpenPage => core.open_page(JOB)?,
        Moment::Release => core.were_released(),
        Moment::End => drop(core.end(JOB)),
    }
    Ok(())
}

#[test]
fn processes_of_a_job_come_from_64_groups_at_most() {
    let mut core = in_state(State::Present);
    let joined = |pid: u32, from: u32| JoinedProcess {
        pid,
        origin: "elsewhere".into(),
        cpu_origin: Some(format!("group {from}").into()),
        memory_origin: None,
    };
    let known = ORIGINS_MAX as u32 - 1;
    let members: BTreeSet<u32> = (0..1000).collect();
    let mut come = |joined: JoinedProcess, members: &BTreeSet<u32>| {
        core.expect(JOB, joined, members).map(|record| record.unwrap().joined.len())
    };
    for from in 0..known {
        assert_eq!(come(joined(from, from), &members), Ok(from as usize + 1));
    }
    let refused = Refused::LimitReached {
        limit: "groups that the processes of a job come from",
        maximum: ORIGINS_MAX,
    };
    assert_eq!(come(joined(500, known), &members), Err(refused));
    // From a group that is known already.
    assert_eq!(come(joined(501, 7), &members), Ok(ORIGINS_MAX));
    // Processes that have ended come from nowhere.
    let others = (1..1000).collect();
    assert_eq!(come(joined(502, known), &others), Ok(ORIGINS_MAX));
}

#[test]
fn move_that_is_refused_changes_nothing() {
    let mut core = in_state(State::Stopped);
    core.change(JOB, |spec, _| (spec.policy, spec.min_cpus) = (Policy::None, 2)).unwrap();
    // A CPU goes while processes move.
    core.change_topology(Topology::flat(1)).unwrap();
    let before = format!("{:?}", core.jobs()[&JOB]);
    let there = cgroup().with_other(Some("other".into()));
    let controls = Controls { in_idle_group: true, ..Controls::default() };
    assert!(core.moved(JOB, Policy::Gang, there, controls).is_err(), "it needs two CPUs");
    assert_eq!(format!("{:?}", core.jobs()[&JOB]), before);
}

#[test]
fn move_keeps_members_that_came_meanwhile() {
    let tree = |processes: &[(u32, u64)]| Placement::Tree { processes: processes.into() };
    let mut core = in_state(State::Registered);
    let asked = tree(&[(PID, STARTED)]);
    core.join(NOW, JOB, home(asked.clone())).unwrap();
    core.follow_in_tree(JOB, (8, 80)).unwrap();
    let all = tree(&[(PID, STARTED), (8, 80)]);
    assert_eq!(placements_of_a_move(&mut core, &asked), [all.clone(), all]);

    let threads = |tids: &[u32]| Placement::Threads {
        threads: tids.iter().map(|&tid| single(tid)).collect(),
    };
    let mut core = in_state(State::Registered);
    let asked = threads(&[PID]);
    core.join(NOW, JOB, home(asked.clone())).unwrap();
    core.add_thread(JOB, single(8)).unwrap();
    let all = threads(&[PID, 8]);
    assert_eq!(placements_of_a_move(&mut core, &asked), [all.clone(), all]);
}

/// On file while a job moves, and once it has.
fn placements_of_a_move(core: &mut Conductor, to: &Placement) -> [Placement; 2] {
    let moving = core.expect_at(JOB, to.clone()).unwrap().unwrap();
    let moved = core.moved(JOB, Policy::None, to.clone(), Controls::default()).unwrap().unwrap();
    [moving.placement, moved.placement]
}

#[test]
fn each_moment_in_each_state_does_as_in_the_table() {
    for state in State::ALL {
        for moment in Moment::ALL {
            let mut core = in_state(state);
            let seen = |core: &Conductor| {
                let job = core.jobs().get(&JOB);
                (job.map_or(State::Absent, State::of), format!("{job:?}"))
            };
            let (_, before) = seen(&core);
            let result = happen(&mut core, moment);
            let (now, after) = seen(&core);
            let case = format!("{state:?} {moment:?}: {result:?}");
            let cell = cell(state, moment);
            let changes_nothing = !matches!(cell, Cell::To(_) | Cell::Stays | Cell::Over);
            assert!(!changes_nothing || after == before, "{case}");
            match cell {
                Cell::To(next) => assert_eq!((now, result), (next, Ok(())), "{case}"),
                Cell::Stays => assert_eq!((now, result), (state, Ok(())), "{case}"),
                Cell::Over => assert_eq!((now, result), (State::Absent, Ok(())), "{case}"),
                Cell::Nothing => assert!(result.is_ok(), "{case}"),
                Cell::Nobody => assert!(result.is_err(), "{case}"),
                Cell::Twice => {
                    let twice = gang_schedule::Refusal::DuplicateJob { job: JOB };
                    assert_eq!(result, Err(twice.into()), "{case}");
                }
                Cell::Refused(why) => {
                    let Err(Refused::NotPermitted { reason, .. }) = result else {
                        panic!("{case}")
                    };
                    assert_eq!(reason, format!("it {}, and {why}", state.phrase()), "{case}");
                }
            }
        }
    }
}

#[test]
fn a_job_that_is_not_there_is_named_at_every_moment() {
    let of_a_job = |&moment: &Moment| cell(State::Absent, moment) == Cell::Nobody;
    for moment in Moment::ALL.into_iter().filter(of_a_job) {
        let result = happen(&mut conductor(), moment);
        assert_eq!(result, Err(Refused::NoSuchJob(JOB)), "{moment:?}");
    }
}

#[test]
fn record_says_who_comes_and_leaves_before_it_does() {
    let mut core = in_state(State::Registered);
    let filed = core.attach(NOW, JOB, home(cgroup()), (PID, STARTED)).unwrap().unwrap();
    assert_eq!(filed.coming, Some((PID, STARTED)), "on file before it moves");
    let filed = core.arrive(JOB).unwrap().unwrap();
    assert_eq!(filed.coming, None);

    let leaver = core.detach(JOB, (PID, STARTED), &[PID]).unwrap();
    assert_eq!(leaver.known, [PID]);
    assert!(leaver.record.is_some(), "on file until it has left");
    assert_eq!(leaver.gone_from, core.generation() + 1, "the timetables in force have it");
    assert_eq!(core.jobs()[&JOB].home.as_ref().unwrap().leaving, [PID]);
    core.has_left(JOB, PID, true).unwrap();
    assert!(core.jobs()[&JOB].home.as_ref().unwrap().leaving.is_empty());
}

#[test]
fn suspended_job_takes_no_single_threads() {
    let mut core = in_state(State::Registered);
    core.suspend(NOW, JOB, Suspension::Own).unwrap();
    let threads = Placement::Threads { threads: vec![single(PID)] };
    let refused = core.join(NOW, JOB, home(threads)).unwrap_err();
    assert!(format!("{refused:?}").contains("resume it first"), "{refused:?}");
    assert!(core.jobs()[&JOB].home.is_none());
}

/// Somebody suspends a job, and somebody else adds a single thread to it, before the next plan.
#[test]
fn second_of_two_exclusive_requests_is_refused() {
    let threads = || home(Placement::Threads { threads: vec![single(PID)] });
    let suspend = |core: &mut Conductor| core.suspend(NOW, JOB, Suspension::Own).map(drop);
    let add = |core: &mut Conductor| core.join(NOW, JOB, threads()).map(drop);
    let refused = |operation: &str, reason: &str| {
        Err(Refused::not_permitted(format!("{operation} job {JOB}"), reason))
    };
    let no_thread = refused(
        "add single threads to",
        "it is suspended, and a single thread cannot stand still: resume it first",
    );
    let no_standstill =
        refused("suspend", "it is of single threads, and only whole processes can stand still");
    type Request<'a> = &'a dyn Fn(&mut Conductor) -> Result<(), Refused>;
    let cases: [(Request<'_>, Request<'_>, _); 2] =
        [(&suspend, &add, no_thread), (&add, &suspend, no_standstill)];
    for (first, second, answer) in cases {
        let mut core = in_state(State::Registered);
        core.begin_step(NOW);
        first(&mut core).unwrap();
        let before = format!("{:?}", core.jobs()[&JOB]);
        core.take_effects();
        assert_eq!(second(&mut core), answer);
        assert_eq!(format!("{:?}", core.jobs()[&JOB]), before);
        assert_eq!(format!("{:?}", core.take_effects()), format!("{:?}", Effects::default()));
    }
}

#[test]
fn job_is_restored_as_it_was_or_not_at_all() {
    let mut core = in_state(State::Stopped);
    core.set_signals(JOB, true).unwrap();
    let record = core.jobs()[&JOB].record().unwrap();

    let mut next = conductor();
    next.restore(NOW, &record, home(cgroup()).members).unwrap();
    assert_eq!(next.jobs()[&JOB].record().unwrap(), record);

    // A job of single threads is never suspended.
    let threads = Placement::Threads { threads: vec![single(PID)] };
    let record = gang_timetable::record::Record { placement: threads, ..record };
    let mut next = conductor();
    assert!(next.restore(NOW, &record, home(cgroup()).members).is_err());
    assert!(next.jobs().is_empty(), "nothing of it is there");
    assert!(next.register(NOW, candidate(1)).is_ok());

    let strange = gang_timetable::record::Record { class: "royal".into(), ..record };
    let refused = next.restore(NOW, &strange, home(cgroup()).members).unwrap_err();
    assert_eq!(refused, Refused::Unreadable { job: JOB, field: "class" });
}
