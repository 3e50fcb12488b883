//! The CPUs that the threads of a job may use.

use gang_conductor::{
    Conductor, Counted, Eligibility, Now, confinement::CHANGES_EVERY_NS, life::State,
};
use gang_schedule::{Allowed, CpuSet, Topology, Unplaceable};
use gang_timetable::{Runnable, Standing};

use crate::one::{JOB, NOW, PID, in_state};

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// The daemon reads the job, so long after the beginning.
fn reads(core: &mut Conductor, after_ns: u64, affinity: &str) {
    let now = Now { utc_ns: NOW.utc_ns + after_ns, monotonic_ns: NOW.monotonic_ns + after_ns };
    let online = core.schedule().topology().set().clone();
    let reading = core.reading(JOB).unwrap();
    reading.members.see_cpus(PID, cpus(affinity), false, &online);
    core.saw_members_of(JOB);
    core.begin_step(now);
}

#[test]
fn changes_are_planned_with_but_not_too_often() {
    let mut core = in_state(State::Present);
    reads(&mut core, 0, "3");
    assert_eq!(core.jobs()[&JOB].spec.allowed, Allowed::within(cpus("3")));
    assert!(core.schedule().is_changed());
    reads(&mut core, CHANGES_EVERY_NS / 2, "2");
    assert_eq!(core.jobs()[&JOB].spec.allowed, Allowed::within(cpus("3")), "too soon");
    assert!(core.is_confined_anew(JOB));
    reads(&mut core, CHANGES_EVERY_NS, "2");
    assert_eq!(core.jobs()[&JOB].spec.allowed, Allowed::within(cpus("2")));
    // There and back is no change.
    reads(&mut core, CHANGES_EVERY_NS + 1, "1");
    reads(&mut core, CHANGES_EVERY_NS + 2, "2");
    assert!(!core.is_confined_anew(JOB));
}

#[test]
fn job_with_all_of_a_cpuset_has_all_as_it_changes() {
    let mut core = in_state(State::Present);
    core.saw_cpuset(JOB, cpus("9")).unwrap();
    assert!(core.jobs()[&JOB].home.as_ref().is_some_and(|home| home.cpuset.is_none()), "not all");
    let all = core.jobs()[&JOB].home.as_ref().unwrap().members.everywhere.clone();
    assert_eq!(core.saw_cpuset(JOB, all.clone()), Ok(None), "as on file");
    for cpuset in ["0", "0-1"] {
        let record = core.saw_cpuset(JOB, cpus(cpuset)).unwrap().unwrap();
        assert_eq!(record.affinity, cpus(cpuset).iter().collect::<Vec<u32>>());
        let at_ns = core.jobs()[&JOB].confined_at_ns.max(NOW.monotonic_ns) + CHANGES_EVERY_NS;
        core.begin_step(Now { monotonic_ns: at_ns, ..NOW });
        assert_eq!(core.jobs()[&JOB].spec.allowed, Allowed::within(cpus(cpuset)));
        assert_eq!(core.saw_cpuset(JOB, cpus(cpuset)), Ok(None));
    }
}

#[test]
fn job_without_its_cpus_joins_rest_and_says_why() {
    let mut core = in_state(State::Present);
    core.change(JOB, |spec, _| spec.min_cpus = 2).unwrap();
    reads(&mut core, 0, "3");
    let few = Unplaceable::TooFew { min_cpus: 2, cpus: cpus("3") };
    assert_eq!(core.jobs()[&JOB].unplaceable, Some(few));
    assert_eq!(core.eligibility(&core.jobs()[&JOB]), Eligibility::Unplaceable);
    for fill in [true, false] {
        let standing = core.jobs()[&JOB].standing_out_of_row(fill, core.machine());
        assert_eq!(standing, Standing::Released, "it has to run to choose other CPUs");
        assert!(core.jobs()[&JOB].is_with_rest(fill, core.machine()));
    }
    core.change(JOB, |spec, _| spec.min_cpus = 1).unwrap();
    assert_eq!(core.eligibility(&core.jobs()[&JOB]), Eligibility::TakesTurns);
    core.change_topology(Topology::flat(3)).unwrap();
    let offline = Unplaceable::Offline { cpus: cpus("3") };
    assert_eq!(core.jobs()[&JOB].unplaceable, Some(offline));
    reads(&mut core, CHANGES_EVERY_NS, "0-2");
    assert_eq!(core.eligibility(&core.jobs()[&JOB]), Eligibility::TakesTurns);
}

#[test]
fn threads_of_a_job_without_its_cpus_are_load() {
    let mut core = in_state(State::Present);
    let count = |core: &mut Conductor| {
        let of_jobs = vec![(JOB, Runnable::exactly(2))];
        let counted = Counted { all: 3, of_daemon: 1, of_jobs };
        (0..3).for_each(|_| core.count(NOW, &counted));
        core.schedule().load()
    };
    assert_eq!(count(&mut core), 0, "they have the slots of a gang");
    core.change(JOB, |spec, _| spec.min_cpus = 2).unwrap();
    reads(&mut core, 0, "3");
    assert_eq!(core.eligibility(&core.jobs()[&JOB]), Eligibility::Unplaceable);
    assert_eq!(count(&mut core), 2, "they have the time of the rest");
}
