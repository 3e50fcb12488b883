//! The order in which effects are carried out, as a carrier sees it that writes all of them down.

use std::collections::BTreeSet;

use gang_conductor::{
    Carrier, Conductor, Due, Effects, Followed, Measure, NewThreads, Note, Now,
    effects::{Overtaken, Planned},
    life::State,
};
use gang_schedule::{CpuSet, JobId};
use gang_timetable::{Action, Attributes, SchedPolicy, Timetable};

use crate::one::{JOB, NOW, PID, in_state};

/// A carrier that carries nothing out.
#[derive(Default)]
struct Recorder {
    kinds: Vec<&'static str>,
    waiting: Vec<Action>,
    /// The orders that went to each switcher.
    with_timetables: Vec<Vec<Action>>,
}

impl Carrier for Recorder {
    fn order(&mut self, orders: Vec<Action>) {
        self.kinds.push("order");
        self.waiting.extend(orders);
    }

    fn measure(&mut self, _: Measure) {
        self.kinds.push("measure");
    }

    fn give(&mut self, _: JobId, _: &CpuSet) {
        self.kinds.push("give");
    }

    fn drop_overtaken(&mut self, overtaken: &Overtaken) {
        self.kinds.push("drop overtaken");
        self.waiting.retain(|order| !overtaken.has(order));
    }

    fn publish(&mut self, switcher: usize, _: Timetable) {
        self.kinds.push("publish");
        assert_eq!(switcher, self.with_timetables.len());
        self.with_timetables.push(std::mem::take(&mut self.waiting));
    }

    fn count_slots(&mut self, _: JobId, _: u64) {
        self.kinds.push("count slots");
    }

    fn plan(&mut self, _: &Planned) {
        self.kinds.push("plan");
    }

    fn regroup(&mut self, _: JobId) {
        self.kinds.push("regroup");
    }

    fn note(&mut self, _: Note) {
        self.kinds.push("note");
    }
}

/// Plans, so many milliseconds after the beginning.
fn plan(core: &mut Conductor, after_ms: u64) -> Effects {
    let after_ns = after_ms * 1_000_000;
    let now = Now { utc_ns: NOW.utc_ns + after_ns, monotonic_ns: NOW.monotonic_ns + after_ns };
    core.begin_step(now);
    let due = core.due(now, 1, 1_000_000, NewThreads::None);
    let Due::Plan { resume_ns, new_threads, .. } = due else { panic!("{due:?}") };
    let (mut planning, _) = core.begin(now, resume_ns, new_threads, Followed::default());
    core.plan(&mut planning);
    core.publish(planning, &BTreeSet::new(), &BTreeSet::new(), 0.0, || 30_000)
}

/// The thread of the job is seen with a policy that its owner chose.
fn see(core: &mut Conductor, policy: SchedPolicy) {
    let reading = core.reading(JOB).unwrap();
    let priority = policy.is_realtime().into();
    reading.members.note_attributes(PID, &Attributes { policy, priority, ..Attributes::other(0) });
    core.was_read(JOB);
}

fn affinities(orders: &[Action]) -> usize {
    orders.iter().filter(|order| matches!(order, Action::Affinity { tid: PID, .. })).count()
}

#[test]
fn effects_are_carried_out_in_the_order_of_their_doc() {
    let cpus: CpuSet = [0].into_iter().collect();
    let effects = Effects {
        orders: Vec::new(),
        measures: vec![Measure::Watch(JOB), Measure::Forget(JOB)],
        pins: vec![(JOB, cpus.clone()), (JOB, cpus)],
        overtaken: Overtaken::default(),
        timetables: vec![Timetable::default(), Timetable::default()],
        slots: vec![(JOB, 1), (JobId(2), 1)],
        planned: Some(Planned::default()),
        regroups: vec![JOB, JobId(2)],
        notes: vec![Note::Disturbed, Note::Disturbed],
    };
    let mut recorder = Recorder::default();
    effects.carry_out(&mut recorder);
    let twice = |kind| [kind, kind];
    let expected = [
        &["order"][..],
        &twice("measure"),
        &twice("give"),
        &["drop overtaken"],
        &twice("publish"),
        &twice("count slots"),
        &["plan"],
        &twice("regroup"),
        &twice("note"),
    ];
    assert_eq!(recorder.kinds, expected.concat());
}

#[test]
fn orders_go_along_with_the_first_timetable() {
    let mut core = in_state(State::Present);
    let mut recorder = Recorder::default();
    core.open_page(JOB).unwrap();
    core.take_effects().carry_out(&mut recorder);
    assert_eq!(recorder.kinds, ["order", "measure", "drop overtaken"], "nothing of a plan");
    core.open_page(JOB).unwrap();
    plan(&mut core, 0).carry_out(&mut recorder);
    let counts: Vec<usize> = recorder.with_timetables.iter().map(Vec::len).collect();
    assert_eq!(counts, [2, 0, 0, 0], "those that waited, and those that came with the plan");
    let mut first = recorder.kinds.iter().skip(3);
    assert!(first.position(|kind| *kind == "publish") > Some(1), "pins come before");
}

#[test]
fn overtaken_orders_do_not_go_along() {
    for is_ordinary_again in [true, false] {
        let mut core = in_state(State::Present);
        let mut recorder = Recorder::default();
        plan(&mut core, 0).carry_out(&mut recorder);
        // Its owner makes the thread a real-time one: it runs where it likes.
        see(&mut core, SchedPolicy::RoundRobin);
        core.take_effects().carry_out(&mut recorder);
        assert_eq!(affinities(&recorder.waiting), 1);
        if is_ordinary_again {
            see(&mut core, SchedPolicy::Other);
        }
        core.renew_plans();
        recorder.with_timetables.clear();
        plan(&mut core, 50).carry_out(&mut recorder);
        let carried_out: usize = recorder.with_timetables.iter().map(|it| affinities(it)).sum();
        assert_eq!(carried_out > 0, !is_ordinary_again);
        assert_eq!(recorder.waiting, [], "none waits on");
    }
}
