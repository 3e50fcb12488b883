//! Random hosts, spanning jobs and histories.

use gang_schedule::matrix::{Change, HostId, Load, Matrix, Refused, Span};
use gang_schedule::{Class, Config, CpuSet, JobId, Sharing, UserId};
use proptest::prelude::*;

/// The steps of a test.
#[derive(Debug, Clone)]
pub enum Step {
    Place(u64, Span),
    Remove(u64),
    Load(u32, Load),
    Adjust,
    Rebuild,
}

impl Step {
    pub fn apply(&self, matrix: &mut Matrix) -> Result<Change, Refused> {
        match self.clone() {
            Step::Place(job, span) => matrix.place(JobId(job), span),
            Step::Remove(job) => matrix.remove(JobId(job)),
            Step::Load(host, load) => {
                matrix.set_load(HostId(host), load)?;
                Ok(Change { frame: matrix.frame(), placed: Default::default() })
            }
            Step::Adjust => Ok(matrix.adjust()),
            Step::Rebuild => Ok(matrix.rebuild()),
        }
    }
}

fn user() -> impl Strategy<Value = UserId> {
    (0u32..3).prop_map(UserId)
}

/// By program, or by user.
fn sharing() -> impl Strategy<Value = Sharing> {
    let share = proptest::collection::btree_map(user(), 50u32..400, 0..3);
    prop_oneof![Just(Sharing::ByProgram), share.prop_map(Sharing::ByUser)]
}

/// Two to five hosts of one to eight CPUs. The longest frame has 60 rows or 150.
pub fn empty() -> impl Strategy<Value = Matrix> {
    let rows = prop_oneof![
        3 => (1u32..12, Just(24_000_000_000)),
        1 => (1u32..12, Just(60_000_000_000)),
        1 => (12u32..130, Just(24_000_000_000)),
    ];
    (sharing(), rows, proptest::collection::vec(1u32..=8, 2..6)).prop_map(
        |(sharing, (rows, slice_ns), hosts)| {
            let config = Config { sharing, slice_ns, ..Config::default() };
            let mut matrix = Matrix::new(config, rows).unwrap();
            for (host, cpus) in (0..).zip(hosts) {
                matrix.add_host(HostId(host), cpus).unwrap();
            }
            matrix
        },
    )
}

/// A job; now and then one that is refused.
pub fn span() -> impl Strategy<Value = Span> {
    let weight = prop_oneof![4 => Just(100u32), 2 => 10u32..1000, 1 => Just(0u32)];
    let class = prop_oneof![
        6 => Just(Class::Batch),
        2 => Just(Class::Interactive),
        1 => Just(Class::Express),
        1 => Just(Class::Standby),
    ];
    let cpus = prop_oneof![8 => 1u32..=4, 2 => 1u32..=8];
    let host = prop_oneof![9 => 0u32..3, 3 => 0u32..6];
    let cpus = proptest::collection::btree_map(host.prop_map(HostId), cpus, 2..5);
    let bound = proptest::collection::btree_set(0u32..8, 1..8).prop_map(CpuSet::from_iter);
    let bound = prop_oneof![3 => Just(None), 1 => bound.prop_map(Some)];
    (user(), class, weight, cpus, bound).prop_map(|(user, class, weight, cpus, bound)| {
        let first = cpus.keys().next().copied();
        let allowed = first.into_iter().zip(bound).collect();
        Span { user, class, weight, cpus, allowed }
    })
}

fn load() -> impl Strategy<Value = Load> {
    let of_users = proptest::collection::btree_map(user(), 0u32..4, 0..3);
    (0u32..16, of_users).prop_map(|(threads, of_users)| Load { threads, of_users })
}

pub fn history() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0u64..12, span()).prop_map(|(job, span)| Step::Place(job, span)),
        4 => (0u64..12).prop_map(Step::Remove),
        2 => (0u32..6, load()).prop_map(|(host, load)| Step::Load(host, load)),
        3 => Just(Step::Adjust),
        1 => Just(Step::Rebuild),
    ];
    proptest::collection::vec(step, 1..40)
}
