//! One set of tests for all backends, over every way from one standing to another.

use gang_engine::{
    InSlot, Standing,
    action::{Action, Kernel},
    backend::Backend,
    members::Members,
    recording::{Call, Model, Recording},
};

use crate::jobs::{of_group, of_tree, threads};

const STANDINGS: [Standing; 4] =
    [Standing::Raised, Standing::Filling, Standing::Paused, Standing::Released];

/// A way of a job: with its actions, and the model before and after them.
struct Way<'a> {
    backend: Backend,
    job: &'a Members,
    from: Standing,
    to: Standing,
    in_slot: InSlot,
    kernel: Recording,
    actions: Vec<Action>,
    calls: Vec<Call>,
}

impl Way<'_> {
    fn check(&self) {
        let checked = self
            .kernel
            .with_model(|model| model.check(self.backend, self.job, self.to, self.in_slot));
        assert_eq!(checked, Ok(()), "from {:?}", self.from);
    }

    /// What this backend makes of a standing.
    fn is_paused(&self, standing: Standing) -> bool {
        match standing {
            Standing::Paused => true,
            Standing::Filling => !self.backend.can_fill(),
            Standing::Raised | Standing::Released => false,
        }
    }
}

fn perform(kernel: &Recording, actions: &[Action]) {
    for action in actions {
        kernel.perform(action).unwrap_or_else(|error| panic!("{action:?}: {error}"));
    }
}

/// Takes every kind of job every way, with every backend.
fn every_way(look: impl Fn(&Way<'_>)) {
    let directory = tempfile::tempdir().unwrap();
    let jobs = [
        of_group(&directory.path().join("v2"), "cpu.weight", threads()),
        of_group(&directory.path().join("v1"), "cpu.shares", threads()),
        of_tree(threads()),
    ];
    for backend in Backend::ALL {
        for job in &jobs {
            for (from, to) in STANDINGS.iter().flat_map(|&from| STANDINGS.map(|to| (from, to))) {
                for in_slot in InSlot::ALL {
                    let mut model = Model::default();
                    model.begin(job.threads());
                    let kernel = Recording::from_model(model);
                    let mut before = Vec::new();
                    backend.actions(job, Standing::Released, from, in_slot, &mut before);
                    perform(&kernel, &before);
                    kernel.take_calls();
                    let mut actions = Vec::new();
                    backend.actions(job, from, to, in_slot, &mut actions);
                    perform(&kernel, &actions);
                    let calls = kernel.take_calls();
                    look(&Way { backend, job, from, to, in_slot, kernel, actions, calls });
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
        let once = way.kernel.model();
        perform(&way.kernel, &way.actions);
        assert_eq!(way.kernel.model(), once);
    });
}

#[test]
fn it_does_not_matter_where_the_job_really_was() {
    every_way(|way| {
        for real in STANDINGS {
            // Who is paused, and nobody knows, is not woken by other calls.
            if way.is_paused(real) && !way.is_paused(way.from) {
                continue;
            }
            let mut model = Model::default();
            model.begin(way.job.threads());
            let kernel = Recording::from_model(model);
            let mut actions = Vec::new();
            way.backend.actions(way.job, Standing::Released, real, way.in_slot, &mut actions);
            perform(&kernel, &actions);
            perform(&kernel, &way.actions);
            let checked =
                kernel.with_model(|model| model.check(way.backend, way.job, way.to, way.in_slot));
            assert_eq!(checked, Ok(()), "from {:?}, really {real:?}", way.from);
        }
    });
}

#[test]
fn threads_that_are_realtime_by_themselves_are_left_alone() {
    every_way(|way| {
        let exempt = way.job.threads().iter().filter(|thread| thread.is_exempt());
        for thread in exempt {
            assert!(way.calls.iter().all(|call| call.tid() != Some(thread.tid)), "{:?}", way.calls);
        }
    });
}

#[test]
fn what_is_released_has_its_originals_back() {
    every_way(|way| {
        if way.to == Standing::Released {
            let model = way.kernel.model();
            for thread in way.job.threads() {
                assert_eq!(model.attributes[&thread.tid], thread.original);
            }
        }
    });
}

#[test]
fn nice_is_kept_wherever_it_counts_for_nothing() {
    every_way(|way| {
        if way.to == Standing::Raised && way.in_slot == InSlot::Wide {
            return;
        }
        let model = way.kernel.model();
        for thread in way.job.threads() {
            assert_eq!(model.attributes[&thread.tid].nice, thread.original.nice);
        }
    });
}

#[test]
fn gangs_that_are_wide_or_alone_are_never_realtime() {
    every_way(|way| {
        let realtime = way.calls.iter().any(
            |call| matches!(call, Call::Attributes { attributes, .. } if attributes.policy.is_realtime()),
        );
        let lifted = way.backend == Backend::Rt && way.to == Standing::Raised;
        assert_eq!(realtime, lifted && way.in_slot == InSlot::Exclusive);
    });
}

#[test]
fn only_who_goes_to_or_comes_from_a_pause_is_stopped_or_woken() {
    every_way(|way| {
        let (from, to) = (way.is_paused(way.from), way.is_paused(way.to));
        assert_eq!(way.calls.iter().any(Call::pauses), from || to, "{:?}", way.calls);
        // Woken before it is lifted, lowered before it stands still.
        let first = way.calls.iter().position(Call::pauses);
        let last = way.calls.iter().rposition(|call| !call.pauses());
        if let (Some(pause), Some(other)) = (first, last) {
            assert_eq!(pause > other, to, "{:?}", way.calls);
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
