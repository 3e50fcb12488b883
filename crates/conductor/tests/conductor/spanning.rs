//! Parts of jobs that span hosts.

use std::collections::{BTreeMap, BTreeSet};

use gang_conductor::{
    AgreedEntries, Conductor, Due, Eligibility, Followed, NewThreads, Now, Part, Refused,
};
use gang_schedule::{
    Class, CpuSet, Entry, JobId, Policy, Refusal, Topology, Unplaceable, UserId, clock as slices,
    matrix::frame,
};
use gang_timetable::Standing;

use crate::one::{JOB, NOW, candidate, cgroup, conductor, home, set};

const PART: JobId = JobId::FIRST_SPANNING;
const MS: u64 = 1_000_000;

fn after(passed_ns: u64) -> Now {
    Now { utc_ns: NOW.utc_ns + passed_ns, monotonic_ns: NOW.monotonic_ns + passed_ns }
}

fn part(nonce: &str) -> Part {
    let (name, class) = ("part".into(), Class::Batch);
    Part { job: PART, nonce: nonce.into(), name, owner_uid: 1000, class, weight: 100, cpus: 2 }
}

/// A conductor with a part whose processes are there.
fn with_part(nonce: &str) -> Conductor {
    let mut core = conductor();
    core.enter_part(NOW, part(nonce)).unwrap();
    core.join(NOW, PART, home(cgroup())).unwrap();
    core
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// A part has these rows of a frame of four, and CPUs 1 and 2 in them.
fn entries(from_slice: u64, nonce: &str, rows: &[u32]) -> AgreedEntries {
    let entry = Entry { job: PART, rows: rows.iter().copied().collect(), cpus: cpus("1-2") };
    AgreedEntries { from_slice, frame: 4, entries: vec![(entry, nonce.into())] }
}

fn slice_of(core: &Conductor, now: Now) -> u64 {
    slices::slice_at(core.config(), now.utc_ns)
}

fn plan(core: &mut Conductor, now: Now) {
    core.begin_step(now);
    let due = core.due(now, 1, MS, NewThreads::None);
    let Due::Plan { resume_ns, new_threads, .. } = due else { return };
    let (mut planning, _) = core.begin(now, resume_ns, new_threads, Followed::default());
    core.plan(&mut planning);
    core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000);
}

/// The CPUs that a job has in each slice of some time, where a plan has it.
fn slots(core: &mut Conductor, job: JobId, ms: std::ops::Range<u64>) -> BTreeMap<u64, CpuSet> {
    let mut slots = BTreeMap::new();
    for at in ms {
        let now = after(at * MS);
        plan(core, now);
        let slice = slice_of(core, now);
        let slot = core.schedule().plan_of(slice).and_then(|plan| plan.slot(job)).cloned();
        slots.extend(slot.map(|slot| (slice, slot.cpus)));
    }
    slots
}

#[test]
fn part_has_slots_by_entries_alone() {
    let mut core = with_part("a");
    assert_eq!(slots(&mut core, PART, 0..200), BTreeMap::new(), "all CPUs are free");
    let from = slice_of(&core, after(300 * MS));
    core.follow_entries(vec![entries(from, "a", &[0, 3])]).unwrap();
    let has = slots(&mut core, PART, 200..700);
    let last = slice_of(&core, after(699 * MS));
    let is_its = |slice: &u64| [0, 3].contains(&frame::row_at(core.config(), 4, *slice));
    let due: BTreeMap<u64, CpuSet> =
        (from..=last).filter(is_its).map(|slice| (slice, cpus("1-2"))).collect();
    assert!(due.len() > 5);
    assert_eq!(has, due);
    core.follow_entries(Vec::new()).unwrap();
    assert_eq!(slots(&mut core, PART, 720..1000), BTreeMap::new());
}

#[test]
fn local_gang_has_what_spanning_slots_leave() {
    let mut core = with_part("a");
    let local = core.register(NOW, candidate(2)).unwrap();
    core.join(NOW, local, home(cgroup())).unwrap();
    let from = slice_of(&core, NOW);
    core.follow_entries(vec![entries(from, "a", &[0, 1, 2, 3])]).unwrap();
    let has = slots(&mut core, local, 0..300);
    assert!(has.len() > 5 && has.values().all(|it| *it == cpus("0,3")), "{has:?}");
}

#[test]
fn entries_give_no_slot_to_a_part_of_another_nonce() {
    let mut core = with_part("b");
    let from = slice_of(&core, NOW);
    core.follow_entries(vec![entries(from, "a", &[0, 1, 2, 3])]).unwrap();
    assert_eq!(core.jobs()[&PART].unplaceable, Some(Unplaceable::NoEntries));
    assert_eq!(slots(&mut core, PART, 0..200), BTreeMap::new());
    // Nor to a local job, whatever its number.
    assert_eq!(core.schedule().entries().lists().flat_map(|it| &it.entries).count(), 0);
}

#[test]
fn part_that_comes_after_its_entries_has_its_slots() {
    let mut core = conductor();
    let from = slice_of(&core, NOW);
    core.follow_entries(vec![entries(from, "a", &[0, 1, 2, 3])]).unwrap();
    core.enter_part(NOW, part("a")).unwrap();
    assert_eq!(core.jobs()[&PART].unplaceable, None);
    core.join(NOW, PART, home(cgroup())).unwrap();
    assert!(slots(&mut core, PART, 0..200).len() > 5);
}

#[test]
fn part_without_entries_is_left_to_linux() {
    let mut core = with_part("a");
    let eligibility = |core: &Conductor| core.eligibility(&core.jobs()[&PART]);
    assert_eq!(core.jobs()[&PART].unplaceable, Some(Unplaceable::NoEntries));
    slots(&mut core, PART, 0..100);
    assert_eq!(eligibility(&core), Eligibility::Unplaceable);
    assert_eq!(core.jobs()[&PART].standing, Standing::Released);

    let from = slice_of(&core, after(100 * MS));
    core.follow_entries(vec![entries(from, "a", &[0])]).unwrap();
    slots(&mut core, PART, 100..400);
    assert_eq!(eligibility(&core), Eligibility::TakesTurns);
    assert_ne!(core.jobs()[&PART].standing, Standing::Released);

    core.follow_entries(Vec::new()).unwrap();
    slots(&mut core, PART, 400..1200);
    assert_eq!(eligibility(&core), Eligibility::Unplaceable);
    assert_eq!(core.jobs()[&PART].standing, Standing::Released);
}

#[test]
fn part_waits_for_entries_to_come_not_for_past_ones() {
    let mut core = with_part("a");
    let [now, soon, later] = [0, 400, 800].map(|ms| slice_of(&core, after(ms * MS)));
    let none = |from_slice| AgreedEntries { from_slice, frame: 1, entries: Vec::new() };
    core.follow_entries(vec![none(now), entries(soon, "a", &[0]), none(later)]).unwrap();
    assert_eq!(core.jobs()[&PART].unplaceable, None, "it has entries later");
    let has = slots(&mut core, PART, 0..1600);
    assert!(!has.is_empty() && has.keys().all(|slice| (soon..later).contains(slice)), "{has:?}");
    assert_eq!(core.jobs()[&PART].unplaceable, Some(Unplaceable::NoEntries));
    assert_eq!(core.jobs()[&PART].standing, Standing::Released);

    // The clock is set back to where they are to come.
    let back = Now { monotonic_ns: NOW.monotonic_ns + 1700 * MS, ..after(100 * MS) };
    plan(&mut core, back);
    assert_eq!(core.jobs()[&PART].unplaceable, None);
}

#[test]
fn part_enters_once() {
    let mut core = with_part("a");
    let before = format!("{:?}", core.jobs()[&PART]);
    core.enter_part(NOW, Part { weight: 7, ..part("a") }).unwrap();
    let refused = core.enter_part(NOW, part("b")).unwrap_err();
    assert_eq!(refused, Refused::Policy(Refusal::DuplicateJob { job: PART }));
    assert_eq!(format!("{:?}", core.jobs()[&PART]), before);

    let local = Part { job: JobId(PART.0 - 1), ..part("a") };
    assert_eq!(core.enter_part(NOW, local.clone()), Err(Refused::NoSuchJob(local.job)));
    let narrow = Part { job: JobId(PART.0 + 1), cpus: 0, ..part("a") };
    assert!(matches!(core.enter_part(NOW, narrow), Err(Refused::Policy(_))));
    assert_eq!(core.jobs().len(), 1);
}

#[test]
fn number_is_free_once_no_timetable_has_its_part() {
    let mut core = with_part("a");
    let from = slice_of(&core, NOW);
    core.follow_entries(vec![entries(from, "a", &[0, 1, 2, 3])]).unwrap();
    slots(&mut core, PART, 0..100);
    assert!(core.planned_gangs().contains(&PART));
    core.end(PART).unwrap();
    assert_eq!(core.schedule().entries().lists().flat_map(|it| &it.entries).count(), 0);
    let refused = core.enter_part(NOW, part("b")).unwrap_err();
    assert!(matches!(refused, Refused::NotPermitted { .. }), "{refused:?}");
    slots(&mut core, PART, 100..200);
    core.enter_part(NOW, part("b")).unwrap();
    core.join(NOW, PART, home(cgroup())).unwrap();
    assert_eq!(core.jobs()[&PART].standing, Standing::Released);
    assert_eq!(slots(&mut core, PART, 200..400), BTreeMap::new(), "of another nonce");
}

#[test]
fn entries_that_overlap_change_nothing() {
    let mut core = with_part("a");
    let from = slice_of(&core, NOW);
    let good = entries(from, "a", &[0]);
    core.follow_entries(vec![good.clone()]).unwrap();
    let before = core.schedule().entries().clone();
    let mut bad = good.clone();
    // Of jobs without a part here, too.
    for job in [7, 8] {
        let entry = Entry { job: JobId(PART.0 + job), ..bad.entries[0].0.clone() };
        bad.entries.push((entry, String::new()));
    }
    let frame = AgreedEntries { frame: 0, ..good.clone() };
    for wrong in [vec![bad], vec![good.clone(), good], vec![frame]] {
        assert!(core.follow_entries(wrong).is_err());
        assert_eq!(*core.schedule().entries(), before);
    }
    core.enter_part(NOW, Part { job: JobId(PART.0 + 7), ..part("") }).unwrap();
    assert_eq!(*core.schedule().entries(), before);
}

#[test]
fn local_numbers_are_not_moved_by_parts() {
    let mut core = with_part("a");
    assert_eq!(core.register(NOW, candidate(1)), Ok(JOB));
    let record = core.jobs()[&PART].record().unwrap();
    let mut next = conductor();
    next.restore(NOW, &record, home(cgroup()).members).unwrap();
    assert_eq!(next.register(NOW, candidate(1)), Ok(JOB));
    // And they end where those of parts begin.
    next.number_from(PART.0 - 1);
    assert_eq!(next.register(NOW, candidate(1)), Ok(JobId(PART.0 - 1)));
    let refused = next.register(NOW, candidate(1)).unwrap_err();
    assert!(matches!(refused, Refused::LimitReached { .. }), "{refused:?}");
}

#[test]
fn parts_count_against_the_limits_of_their_user() {
    let mut core = conductor();
    set(&mut core, |it| (it.limits.jobs, it.limits.jobs_per_user) = (16, 4));
    let mut enter = |at| core.enter_part(NOW, Part { job: JobId(PART.0 + at), ..part("a") });
    let entered = (0..9).take_while(|&at| enter(at).is_ok()).count();
    assert_eq!(entered, 4);
    let refused = core.register(NOW, candidate(1));
    assert_eq!(refused, Err(Refused::LimitReached { limit: "jobs of a user", maximum: 4 }));
}

#[test]
fn cpus_of_parts_count_for_the_limit_of_their_user() {
    let mut core = conductor();
    set(&mut core, |it| it.limits.cpus_per_user = 5);
    let mut enter = |at| core.enter_part(NOW, Part { job: JobId(PART.0 + at), ..part("a") });
    assert_eq!([enter(0), enter(1)], [Ok(()), Ok(())]);
    let limit = "CPUs of all jobs of a user";
    assert_eq!(enter(2), Err(Refused::LimitReached { limit, maximum: 5 }));
    assert_eq!(enter(1), Ok(()), "it is here already");
}

#[test]
fn part_that_uses_no_cpu_stays() {
    let mut core = with_part("a");
    let local = core.register(NOW, candidate(2)).unwrap();
    core.join(NOW, local, home(cgroup())).unwrap();
    for job in [PART, local] {
        core.sleep(job).unwrap();
    }
    let later = after(10_000_000 * MS);
    assert_eq!(core.unused_for(later, 7_200_000 * MS), [local]);
}

#[test]
fn restored_part_spans() {
    let core = with_part("a");
    let record = core.jobs()[&PART].record().unwrap();
    assert_eq!(record.nonce.as_deref(), Some("a"));
    let mut next = conductor();
    next.restore(NOW, &record, home(cgroup()).members).unwrap();
    assert_eq!(next.jobs()[&PART].record().unwrap(), record);
    assert!(next.jobs()[&PART].spec.spanning);
    assert_eq!(next.jobs()[&PART].unplaceable, Some(Unplaceable::NoEntries), "none came yet");
    assert_eq!(slots(&mut next, PART, 0..100), BTreeMap::new());
    let from = slice_of(&next, NOW);
    next.follow_entries(vec![entries(from, "a", &[0, 1, 2, 3])]).unwrap();
    assert!(slots(&mut next, PART, 120..300).len() > 5);
}

#[test]
fn first_open_slice_is_beyond_plans_that_stand() {
    let mut core = with_part("a");
    let from = slice_of(&core, NOW);
    for (at, took_ns) in (0..400_000).step_by(137).zip([3 * MS, 50_000, 1000].into_iter().cycle()) {
        let now = after(at * 1000);
        core.begin_step(now);
        let open = core.first_open_slice(now);
        assert!(slices::slice_start(core.config(), open) >= now.utc_ns, "{now:?}");
        // It differs each time, so that plans are taken back.
        let rows: &[u32] = if at % 2 == 0 { &[0] } else { &[1, 2] };
        core.follow_entries(vec![entries(from, "a", rows)]).unwrap();
        let last = core.schedule().plans().last().map(|plan| plan.slice);
        assert!(last < Some(open), "{last:?} stands, and {open} is open: {now:?}");
        plan(&mut core, now);
        // As where threads came that no timetable has.
        core.renew_plans();
        core.planned_within(took_ns);
    }
}

#[test]
fn class_and_weight_of_a_part_change() {
    let mut core = with_part("a");
    let from = slice_of(&core, NOW);
    core.follow_entries(vec![entries(from, "a", &[0, 3])]).unwrap();
    let before = slots(&mut core, PART, 0..160).len();
    assert_eq!(before, 4, "of two frames");
    let filed = core.change(PART, |spec, _| (spec.class, spec.weight) = (Class::Standby, 7));
    let record = filed.unwrap().unwrap();
    assert_eq!((record.class.as_str(), record.weight), ("standby", 7));
    assert_eq!(record.nonce.as_deref(), Some("a"));
    let spec = core.schedule().spec(PART).unwrap();
    assert_eq!((spec.class, spec.weight, spec.spanning), (Class::Standby, 7, true));
    // Its slots are those of its entries all the same.
    assert_eq!(slots(&mut core, PART, 160..320).len(), before);
}

#[test]
fn load_beside_parts_counts_cpus_of_local_gangs() {
    let mut core = with_part("a");
    assert_eq!(core.load_beside_spanning(), (0, BTreeMap::new()));
    let local = core.register(NOW, candidate(3)).unwrap();
    assert_eq!(core.load_beside_spanning().0, 0, "it has no process");
    core.join(NOW, local, home(cgroup())).unwrap();
    assert_eq!(core.load_beside_spanning(), (3, [(UserId(1000), 3)].into()));
    core.sleep(local).unwrap();
    assert_eq!(core.load_beside_spanning().0, 0);
}

#[test]
fn part_without_its_cpus_has_no_slot_until_they_come() {
    let mut core = with_part("a");
    let from = slice_of(&core, NOW);
    core.follow_entries(vec![entries(from, "a", &[0, 1, 2, 3])]).unwrap();
    core.change_topology(Topology::flat(2)).unwrap();
    assert_eq!(slots(&mut core, PART, 0..100), BTreeMap::new(), "CPU 2 is offline");
    core.change_topology(Topology::flat(4)).unwrap();
    assert!(!slots(&mut core, PART, 120..200).is_empty());
    core.change(PART, |spec, _| spec.policy = Policy::None).unwrap();
    assert_eq!(slots(&mut core, PART, 220..300), BTreeMap::new(), "it is not scheduled");
}
