//! The effects of plans, and their order.

use std::collections::BTreeSet;

use gang_conductor::{Conductor, Due, Effects, Followed, Measure, NewThreads, Now, life::State};
use gang_schedule::{Config, CpuSet, JobId};
use gang_timetable::{Action, EdgeActions, InSlot, Known, SchedPolicy, THREADS_MAX, Timetable};

use crate::one::{JOB, NOW, PID, candidate, cgroup, conductor_of, home, in_state};

fn planned(core: &mut Conductor) -> Effects {
    planned_at(core, NOW).expect("nothing was planned yet")
}

fn planned_at(core: &mut Conductor, now: Now) -> Option<Effects> {
    core.begin_step(now);
    let Due::Plan { resume_ns, new_threads, .. } = core.due(now, 1, 1_000_000, NewThreads::None)
    else {
        return None;
    };
    let followed = Followed::default();
    let (mut planning, _) = core.begin(now, resume_ns, new_threads, followed);
    core.plan(&mut planning);
    Some(core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000))
}

fn actions(timetables: &[Timetable]) -> impl Iterator<Item = &Action> {
    timetables.iter().flat_map(|timetable| timetable.parts.iter().flatten())
}

#[test]
fn cpus_are_given_only_where_their_pins_come_first() {
    let mut core = in_state(State::Present);
    let effects = planned(&mut core);
    let given: BTreeSet<&CpuSet> = actions(&effects.timetables)
        .filter_map(|action| match action {
            Action::Affinity { cpus, .. } => Some(cpus),
            _ => None,
        })
        .collect();
    assert!(!given.is_empty());
    for cpus in given {
        assert!(effects.pins.contains(&(JOB, cpus.clone())), "{cpus} is not on file");
    }
}

/// Two gangs have slots in turn, and stand still out of them. After so many plans, the first gang
/// is found to have too many threads while the next ones are made. Returns the effects of the
/// latter.
fn too_many_threads_after(plans: usize) -> Effects {
    let mut core = conductor_of(Config { fill: false, ..Config::default() }, false);
    for _ in 0..2 {
        let id = core.register(NOW, candidate(4)).unwrap();
        core.join(NOW, id, home(cgroup())).unwrap();
    }
    let mut made = 0;
    for passed_ns in (0..1_000_000_000).step_by(2_500_000) {
        let (utc_ns, monotonic_ns) = (NOW.utc_ns + passed_ns, NOW.monotonic_ns + passed_ns);
        let now = Now { utc_ns, monotonic_ns };
        core.begin_step(now);
        core.renew_plans();
        let due = core.due(now, 1, 1_000_000, NewThreads::None);
        let Due::Plan { resume_ns, new_threads, .. } = due else { continue };
        let (mut planning, _) = core.begin(now, resume_ns, new_threads, Followed::default());
        if made == plans {
            let members = core.reading(JOB).unwrap().members;
            members.admit(&mut vec![PID], THREADS_MAX + 1);
            core.was_read(JOB);
            core.take_effects();
        }
        core.plan(&mut planning);
        let effects = core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000);
        if made == plans {
            return effects;
        }
        made += 1;
    }
    panic!("{made} plans were made");
}

#[test]
fn job_with_a_slot_later_is_left_to_the_timetable() {
    let mut of_later_rows = 0;
    for after in 1..9 {
        let Effects { planned, orders, .. } = too_many_threads_after(after);
        let plans = planned.unwrap().plans;
        let (first, later) = plans.split_first().unwrap();
        if first.slot(JOB).is_none() && later.iter().any(|plan| plan.slot(JOB).is_some()) {
            assert_eq!(orders, [], "after {after} plans");
            of_later_rows += 1;
        }
    }
    assert!(of_later_rows > 1, "{of_later_rows}");
}

#[test]
fn gaps_are_those_between_slots_of_raised_gangs() {
    let mut core = in_state(State::Present);
    assert_eq!(core.gap_of_raised(), None, "nothing was planned yet");
    let effects = planned(&mut core);
    let gap = core.gap_of_raised().unwrap();
    assert!(gap == effects.planned.unwrap().config.gap && gap.length_ns > 0, "{gap:?}");
    core.job_by_hand(JOB).in_slot = InSlot::Uncontended;
    assert_eq!(core.gap_of_raised(), None, "it is left to Linux");
}

#[test]
fn each_switcher_has_the_timetable_of_the_plans() {
    let mut core = in_state(State::Present);
    let effects = planned(&mut core);
    assert_eq!(effects.timetables.len(), 4);
    let planned = effects.planned.map(|it| (it.from_ns, it.until_ns)).unwrap();
    for timetable in &effects.timetables {
        assert_eq!(timetable.generation, core.generation());
        assert_eq!((timetable.from_ns, timetable.until_ns), planned);
        assert!(timetable.edges.iter().all(|edge| (planned.0..planned.1).contains(&edge.at_ns)));
        assert!(timetable.immediate.is_empty(), "orders are the carrier's");
    }
}

#[test]
fn deadline_lowers_all_that_an_edge_raises() {
    let mut core = in_state(State::Present);
    let effects = planned(&mut core);
    let fifo = |action: &Action| match action {
        Action::Attributes { tid, attributes, .. } => {
            Some((*tid, attributes.policy == SchedPolicy::Fifo))
        }
        _ => None,
    };
    assert!(actions(&effects.timetables).filter_map(fifo).any(|(_, is_fifo)| is_fifo));
    for timetable in &effects.timetables {
        let mut raised = BTreeSet::new();
        let of_edge = |edge: &EdgeActions| [edge.lower.clone(), edge.raise.clone()].concat();
        let parts = timetable.edges.iter().flat_map(of_edge).chain(timetable.at_deadline.clone());
        let changes = parts.flat_map(|part| timetable.parts[part].iter().filter_map(fifo));
        for (tid, is_fifo) in changes {
            if is_fifo {
                raised.insert(tid)
            } else {
                raised.remove(&tid)
            };
        }
        assert_eq!(raised, BTreeSet::new());
        assert!(timetable.deadline_ns > timetable.until_ns);
    }
}

#[test]
fn effects_outside_of_plans_come_at_once_and_once() {
    let mut core = in_state(State::Present);
    core.open_page(JOB).unwrap();
    let effects = core.take_effects();
    let is_page = |action: &Action| matches!(action, Action::Page { job: JOB, .. });
    assert!(effects.orders.iter().any(is_page));
    assert_eq!(effects.measures, [Measure::Watch(JOB)]);
    assert!(effects.planned.is_none());
    let effects = planned(&mut core);
    assert!(!effects.orders.iter().any(is_page), "they were taken");
    assert_eq!((effects.measures, effects.slots), (vec![], vec![(JOB, 0)]));
    let none = format!("{:?}", Effects::default());
    assert_eq!(format!("{:?}", core.take_effects()), none, "all are in those of the plans");
}

#[test]
fn pages_are_written_where_slots_have_changed() {
    let mut core = in_state(State::Present);
    core.open_page(JOB).unwrap();
    // They have slots in turn.
    let other = core.register(NOW, candidate(4)).unwrap();
    core.join(NOW, other, home(cgroup())).unwrap();
    let (mut said, mut unchanged) = (None, 0);
    for passed_ns in (0..400_000_000).step_by(2_500_000) {
        let (utc_ns, monotonic_ns) = (NOW.utc_ns + passed_ns, NOW.monotonic_ns + passed_ns);
        if passed_ns == 200_000_000 {
            core.open_page(JOB).unwrap();
            said = None;
        }
        core.renew_plans();
        let Some(effects) = planned_at(&mut core, Now { utc_ns, monotonic_ns }) else { continue };
        let slots = core.jobs()[&JOB].slots;
        let is_said = said.replace(slots) == Some(slots);
        let expected = if is_said { vec![] } else { vec![(JOB, slots)] };
        assert_eq!(effects.slots, expected, "after {passed_ns} ns");
        unchanged += usize::from(is_said);
    }
    assert!(said > Some(1) && unchanged > 1, "{said:?} {unchanged}");
}

#[test]
fn same_inputs_have_same_effects() {
    let effects = || {
        let mut core = in_state(State::Present);
        let second = core.register(NOW, candidate(3)).unwrap();
        assert_eq!(second, JobId(2));
        core.join(NOW, second, home(cgroup())).unwrap();
        format!("{:?}", planned(&mut core))
    };
    assert_eq!(effects(), effects());
}

#[test]
fn threads_with_rt_limit_rise_without_real_time() {
    let mut core = in_state(State::Present);
    let members = |core: &mut Conductor, is_limited| {
        let reading = core.reading(JOB).unwrap();
        reading.members.note_rt_limit(PID, is_limited);
    };
    members(&mut core, true);
    let effects = planned(&mut core);
    let policies: BTreeSet<String> = actions(&effects.timetables)
        .filter_map(|action| match action {
            Action::Attributes { attributes, .. } => Some(attributes),
            _ => None,
        })
        .map(|attributes| format!("{:?} {}", attributes.policy, attributes.nice))
        .collect();
    assert!(policies.contains("Other -20"), "{policies:?}");
    assert!(!policies.iter().any(|policy| policy.starts_with("Fifo")), "{policies:?}");
}

#[test]
fn clock_set_back_states_a_sleeping_job_anew() {
    let mut core = in_state(State::Present);
    core.sleep(JOB).unwrap();
    planned(&mut core);
    let after = |step_ns: i64, passed_ns| Now {
        utc_ns: NOW.utc_ns.saturating_add_signed(step_ns) + passed_ns,
        monotonic_ns: NOW.monotonic_ns + passed_ns,
    };
    for now in [after(0, 1_000_000), after(-50_000, 2_000_000), after(20_000_000, 3_000_000)] {
        assert!(planned_at(&mut core, now).is_none(), "not set back: {now:?}");
    }
    let effects = planned_at(&mut core, after(19_000_000, 4_000_000)).unwrap();
    let from_ns = effects.planned.unwrap().from_ns;
    assert!(from_ns <= after(19_000_000, 4_000_000).utc_ns, "at once");
    let original = home(cgroup()).members.threads()[0].original;
    let back = Action::Attributes { tid: PID, attributes: original, known: Known::of(original) };
    assert!(effects.orders.contains(&back), "an older timetable may have lowered it");
}
