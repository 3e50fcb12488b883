//! The settings that decisions depend on: those that an administrator may change while jobs run,
//! and those that stay.

use std::collections::BTreeMap;

use gang_schedule::{ClassSlices, ClassWeights, Event, Sharing, UserId};
use gang_timetable::{Backend, Switchers};

use crate::{Accounts, Gaps};

/// The limits on what there may be, and on what a user may have. Those on users hold only whom
/// [limits hold](Accounts::is_unlimited).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Jobs at a time.
    pub jobs: usize,
    /// Jobs at a time of one user.
    pub jobs_per_user: usize,
    /// CPUs that the jobs of one user ask for together.
    pub cpus_per_user: usize,
    /// The time that a switcher has for the gangs of an edge.
    pub edge_ns: u64,
}

/// The weights of classes, and for how long they ask at a time (L21–L24).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    pub weights: ClassWeights,
    pub slices: ClassSlices,
}

impl Terms {
    pub fn event(self) -> Event {
        Event::Classes { weights: self.weights, slices: self.slices }
    }

    /// The same lengths, as far as they can be had in slices of another length.
    #[must_use]
    pub fn in_slices_of(mut self, own_ns: u64, other_ns: u64) -> Terms {
        let convert = |slices: u32| {
            let slices = u64::from(slices) * own_ns / other_ns;
            slices.clamp(1, ClassSlices::MAX.into()) as u32
        };
        let ClassSlices { express, interactive, batch, standby } = &mut self.slices;
        for slices in [express, interactive, batch, standby] {
            *slices = convert(*slices);
        }
        self
    }
}

/// The settings that an administrator may change while jobs run.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    pub limits: Limits,
    /// Of jobs that register from now on.
    pub accounts: Accounts,
    pub sharing: Sharing,
    /// The share of the CPUs that a user's gangs have together at most, in ‰.
    pub caps: BTreeMap<UserId, u32>,
    /// A job that used no CPU for this long counts as idle (L19).
    pub idle_after_ns: u64,
    /// Inside the working hours.
    pub inside: Terms,
    /// Outside of them; absent where there are no working hours.
    pub outside: Option<Terms>,
}

/// How a daemon schedules, for as long as it runs.
#[derive(Clone, Debug)]
pub struct Setup {
    pub backend: Backend,
    pub switchers: Switchers,
    /// The group that all jobs are in can be given more weight.
    pub has_common_group: bool,
    /// Gangs are left to Linux in their slots while nobody else wants a CPU.
    pub passthrough: bool,
    pub gaps: Gaps,
}
