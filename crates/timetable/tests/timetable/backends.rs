//! One set of tests for all backends, over every way from one standing to another.

use gang_timetable::{
    Action, Backend, Control, Group, InSlot, Members, Signal, Standing, model::Model,
};

use crate::jobs::{JOB, of_group, of_tree, with_foreign};

const STANDINGS: [Standing; 4] =
    [Standing::Raised, Standing::Filling, Standing::Paused, Standing::Released];

/// A way of a job: with its actions, and the model before and after them.
struct Way<'a> {
    backend: Backend,
    job: &'a Members,
    from: Standing,
    to: Standing,
    in_slot: InSlot,
    model: Model,
    actions: Vec<Action>,
}

impl Way<'_> {
    fn check(&self) {
        let checked = self.model.check(self.backend, (JOB, self.job), self.to, self.in_slot);
        assert_eq!(checked, Ok(()), "from {:?}", self.from);
    }

    /// The nearest standing that this backend can give.
    fn is_paused(&self, standing: Standing) -> bool {
        match standing {
            Standing::Paused => true,
            Standing::Filling => !self.backend.can_fill(),
            Standing::Raised | Standing::Released => false,
        }
    }
}

fn perform(model: &mut Model, actions: &[Action]) {
    for action in actions {
        assert_eq!(model.perform(action), Ok(()), "{action:?}");
    }
}

/// True for one that stops a job, or lets it go on.
fn pauses(action: &Action) -> bool {
    match action {
        Action::Control { control, .. } => matches!(control, Control::Frozen(_)),
        Action::Signal { signal, .. } => matches!(signal, Signal::Stop | Signal::Continue),
        Action::Attributes { .. } | Action::Affinity { .. } | Action::Page { .. } => false,
    }
}

/// Takes every kind of job every way, with every backend.
fn every_way(look: impl Fn(&Way<'_>)) {
    let jobs = [of_group(false), of_group(true), of_tree(), with_foreign()];
    for backend in Backend::ALL {
        for job in &jobs {
            for (from, to) in STANDINGS.iter().flat_map(|&from| STANDINGS.map(|to| (from, to))) {
                for in_slot in InSlot::ALL {
                    let mut model = Model::default();
                    model.begin(job.threads());
                    let mut before = Vec::new();
                    backend.actions(JOB, job, Standing::Released, from, in_slot, &mut before);
                    perform(&mut model, &before);
                    let mut actions = Vec::new();
                    backend.actions(JOB, job, from, to, in_slot, &mut actions);
                    perform(&mut model, &actions);
                    look(&Way { backend, job, from, to, in_slot, model, actions });
                }
            }
        }
    }
}

#[test]
fn the_job_stands_as_it_was_asked_to() {
    every_way(|way| way.check());
}

#[test]
fn twice_is_once() {
    every_way(|way| {
        let mut twice = way.model.clone();
        perform(&mut twice, &way.actions);
        assert_eq!(twice, way.model);
    });
}

#[test]
fn it_does_not_matter_where_the_job_really_was() {
    every_way(|way| {
        for real in STANDINGS {
            // A paused job is not woken by other actions.
            if way.is_paused(real) && !way.is_paused(way.from) {
                continue;
            }
            let mut model = Model::default();
            model.begin(way.job.threads());
            let mut actions = Vec::new();
            way.backend.actions(JOB, way.job, Standing::Released, real, way.in_slot, &mut actions);
            perform(&mut model, &actions);
            perform(&mut model, &way.actions);
            let checked = model.check(way.backend, (JOB, way.job), way.to, way.in_slot);
            assert_eq!(checked, Ok(()), "from {:?}, really {real:?}", way.from);
        }
    });
}

#[test]
fn foreign_and_real_time_threads_are_not_touched() {
    every_way(|way| {
        let exempt = way.job.threads().iter().filter(|thread| thread.is_exempt());
        for thread in exempt {
            let is_of_it = |action: &Action| match *action {
                Action::Attributes { tid, .. } | Action::Affinity { tid, .. } => tid == thread.tid,
                _ => false,
            };
            assert!(!way.actions.iter().any(is_of_it), "{:?}", way.actions);
        }
    });
}

#[test]
fn only_administrators_freeze_groups_of_mixed_users() {
    for backend in Backend::ALL {
        for stops_foreign in [false, true] {
            let mut job = with_foreign();
            job.stops_foreign = stops_foreign;
            let mut model = Model::default();
            model.begin(job.threads());
            let mut actions = Vec::new();
            let (from, to) = (Standing::Raised, Standing::Paused);
            backend.actions(JOB, &job, from, to, InSlot::Exclusive, &mut actions);
            perform(&mut model, &actions);
            assert_eq!(model.group(Group::Job(JOB)).frozen, Some(stops_foreign), "{backend:?}");
        }
    }
}

#[test]
fn what_is_released_has_its_originals_back() {
    every_way(|way| {
        if way.to == Standing::Released {
            for thread in way.job.threads() {
                assert_eq!(way.model.attributes[&thread.tid], thread.original);
            }
        }
    });
}

#[test]
fn nice_is_kept_wherever_it_counts_for_nothing() {
    every_way(|way| {
        if way.to == Standing::Raised && way.in_slot == InSlot::Oversubscribed {
            return;
        }
        for thread in way.job.threads() {
            assert_eq!(way.model.attributes[&thread.tid].nice, thread.original.nice);
        }
    });
}

#[test]
fn only_exclusive_gangs_are_realtime() {
    every_way(|way| {
        let realtime = way.actions.iter().any(|action| match action {
            Action::Attributes { attributes, .. } => attributes.policy.is_realtime(),
            _ => false,
        });
        let raised = way.backend == Backend::Rt && way.to == Standing::Raised;
        assert_eq!(realtime, raised && way.in_slot == InSlot::Exclusive);
    });
}

#[test]
fn gang_weighed_as_a_whole_keeps_its_attributes() {
    every_way(|way| {
        if way.in_slot != InSlot::Weighed {
            return;
        }
        for thread in way.job.threads() {
            assert_eq!(way.model.attributes[&thread.tid], thread.original);
        }
    });
}

#[test]
fn group_is_weighed_by_one_backend_or_slot_mode() {
    every_way(|way| {
        let controls = way.job.controls;
        let is_weighed = way.backend == Backend::Weight
            || (way.backend == Backend::Rt && way.in_slot == InSlot::Weighed);
        let group = way.model.group(Group::Job(JOB));
        assert_eq!(group.idle.is_some(), is_weighed && controls.weigh());
        let is_idle = is_weighed && controls.weigh() && way.to == Standing::Filling;
        assert_eq!(group.idle == Some(true), is_idle, "{group:?}");
    });
}

#[test]
fn only_pausing_and_waking_jobs_get_signals() {
    every_way(|way| {
        let (from, to) = (way.is_paused(way.from), way.is_paused(way.to));
        assert_eq!(way.actions.iter().any(pauses), from || to, "{:?}", way.actions);
        // It is woken before it is raised, and lowered before it stands still.
        let first = way.actions.iter().position(pauses);
        let last = way.actions.iter().rposition(|action| !pauses(action));
        if let (Some(pause), Some(other)) = (first, last) {
            assert_eq!(pause > other, to, "{:?}", way.actions);
        }
    });
}

#[test]
fn names_lead_back_to_backends() {
    for backend in Backend::ALL {
        assert_eq!(Backend::from_name(backend.name()), Some(backend));
    }
    assert_eq!(Backend::from_name("scx"), None);
    assert!(Backend::ALL.is_sorted_by_key(|backend| backend.guarantee()));
}
