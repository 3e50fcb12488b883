//! Storms: the daemon's decisions under faults, from one seed each.
//!
//! Problem: what the daemon decides depends on switchers that are late, programs that come and go,
//! requests in any order, and its own death between any two effects. Tests by root meet few of
//! these, and never twice.
//!
//! Approach: the real conductor and real timetables run on a machine that is simulated, under a
//! virtual clock. After each event the invariants are checked. A seed that fails is shrunk to the
//! shortest script that still fails.
//!
//! Properties: a fault that breaks one invariant, or one order of effects, fails within ten
//! thousand seeds. `faults` has such faults as patches, and `faults.sh` shows that each is found.

pub mod machine;
pub mod script;
pub mod world;

use std::thread;

use script::Event;
use world::{Cells, World};

/// The result of a script.
pub struct Outcome {
    pub violations: Vec<String>,
    pub cells: Cells,
    pub steps: u64,
    /// How often the daemon has died.
    pub deaths: usize,
    /// Users that had a job.
    pub users: usize,
}

/// Does some work on each CPU, until all of it is done.
pub fn on_all_cpus(work: impl Fn() + Sync) {
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| {
            scope.spawn(&work);
        });
    });
}

/// Whether jobs have cgroups on the machine that a seed chooses, or are trees of processes.
pub fn has_cgroups(seed: u64) -> bool {
    world::backend_of(seed) != gang_timetable::Backend::Signal
}

/// Runs a script on the machine that a seed chooses.
pub fn run(seed: u64, events: &[Event]) -> Outcome {
    let mut world = World::new(seed);
    let violations = world.run(events);
    let World { cells, steps, deaths, ref users, .. } = world;
    Outcome { violations, cells, steps, deaths, users: users.len() }
}
