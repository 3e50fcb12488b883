//! The lines in which jobs wait for their turns, one for each tier.
//!
//! A decision first lines up who can run, then packs line after line. The
//! lines borrow the jobs, so that what is decided is charged where it is kept.
//! The order within a line is `turn`'s.

use crate::allowed::Demand;
use crate::schedule::{Job, Readiness, Rest};
use crate::seating::Seating;
use crate::turn::{self, Tier, Turn};
use crate::{CpuSet, JobId};
use std::collections::{BTreeMap, BTreeSet};

/// One who waits for a turn.
pub(crate) struct Waiting<'a> {
    pub who: Who<'a>,
    pub turn: Turn,
    /// Its user's cap has nothing left for it.
    pub is_out: bool,
}

pub(crate) enum Who<'a> {
    Gang {
        id: JobId,
        /// How many CPUs its slot has.
        width: u32,
        job: &'a mut Job,
        in_row: bool,
    },
    Rest(&'a mut Rest),
}

impl Waiting<'_> {
    pub fn is_rest(&self) -> bool {
        matches!(self.who, Who::Rest(_))
    }

    /// The fewest CPUs with which it can lead.
    fn least(&self) -> u32 {
        match self.who {
            Who::Gang { width, .. } => width,
            Who::Rest(_) => 1,
        }
    }

    /// Whether it can lead beside those that are seated, on `there` CPUs.
    fn can_lead(&self, there: u32, seating: &mut Seating) -> bool {
        let parts = match &self.who {
            Who::Gang { job, .. } => job.parts(),
            Who::Rest(_) => &[],
        };
        !self.is_out && self.least() <= there && (seating.is_empty() || seating.could_seat(parts))
    }

    fn vtime(&mut self) -> &mut u128 {
        match &mut self.who {
            Who::Gang { job, .. } => &mut job.vtime,
            Who::Rest(rest) => &mut rest.vtime,
        }
    }
}

/// Those of one tier.
#[derive(Default)]
pub(crate) struct Line<'a> {
    /// The first `contending` contend in this slice.
    waiting: Vec<Waiting<'a>>,
    contending: usize,
}

impl<'a> Line<'a> {
    pub fn all(&mut self) -> &mut [Waiting<'a>] {
        &mut self.waiting
    }

    pub fn contenders(&mut self) -> &mut [Waiting<'a>] {
        &mut self.waiting[..self.contending]
    }

    /// By deadline.
    pub fn sort(&mut self) {
        // Keys are sorted apart, since those who wait are large to move.
        self.waiting.sort_by_cached_key(|waiting| waiting.turn.rank());
    }

    /// First those who can lead on `there` CPUs beside those that are seated, the leader before the
    /// others and these by deadline; then those who do not contend, by deadline.
    pub fn order(&mut self, there: u32, seating: &mut Seating) {
        // The rest, if it is here, leads on as many CPUs as there are.
        for waiting in &mut self.waiting {
            if let Who::Rest(rest) = &waiting.who {
                waiting.turn = rest.turn(there);
            }
        }
        self.sort();
        self.contending = self.waiting.len();
        if !self.waiting.iter().all(|waiting| waiting.can_lead(there, seating)) {
            let (contending, out): (Vec<_>, Vec<_>) =
                self.waiting.drain(..).partition(|waiting| waiting.can_lead(there, seating));
            self.contending = contending.len();
            self.waiting = contending;
            self.waiting.extend(out);
        }
        turn::lead(&mut self.waiting[..self.contending], |waiting| waiting.turn);
    }

    /// After the slice is charged: bounds who is ahead, moves the floor, and
    /// raises those who did not contend to it.
    pub fn advance_floor(&mut self, floor: &mut u128) {
        let (contending, out) = self.waiting.split_at_mut(self.contending);
        let vtimes = contending.iter_mut().map(|waiting| {
            let request = waiting.turn.request();
            (waiting.vtime(), request)
        });
        *floor = turn::advance_floor(vtimes.collect(), *floor);
        for waiting in out {
            match &mut waiting.who {
                Who::Gang { job, .. } => job.raise_to_floor(*floor),
                Who::Rest(rest) => rest.vtime = rest.vtime.max(*floor),
            }
        }
    }
}

/// All lines, and who stands in none of them.
pub(crate) struct Lines<'a> {
    tiers: [Line<'a>; 3],
    /// They wait for CPUs to come back. By id.
    pub too_wide: Vec<JobId>,
    /// By id.
    pub suspended: Vec<JobId>,
}

impl<'a> Lines<'a> {
    /// Lines up those of `jobs` of whom `who` is true; some are `out` of their users' allowances.
    pub fn new(
        jobs: &'a mut BTreeMap<JobId, Job>,
        who: impl Fn(JobId) -> bool,
        out: &BTreeSet<JobId>,
    ) -> Lines<'a> {
        let mut lines =
            Lines { tiers: Default::default(), too_wide: Vec::new(), suspended: Vec::new() };
        for (&id, job) in jobs.iter_mut().filter(|(id, _)| who(**id)) {
            match job.readiness() {
                Readiness::Runnable => {
                    let turn = job.turn(id);
                    let line = lines.of(job.tier);
                    let who = Who::Gang { id, width: job.width(), job, in_row: false };
                    let is_out = out.contains(&id);
                    line.waiting.push(Waiting { who, turn, is_out });
                }
                Readiness::TooWide => lines.too_wide.push(id),
                Readiness::Suspended => lines.suspended.push(id),
                Readiness::Asleep | Readiness::Unplaceable | Readiness::Unscheduled => {}
            }
        }
        lines
    }

    /// Lines up the rest, if it has threads.
    pub fn join(&mut self, rest: &'a mut Rest) {
        if rest.threads > 0 {
            let turn = rest.turn(rest.threads);
            self.of(Tier::Shared).waiting.push(Waiting {
                who: Who::Rest(rest),
                turn,
                is_out: false,
            });
        }
    }

    pub fn of(&mut self, tier: Tier) -> &mut Line<'a> {
        &mut self.tiers[tier as usize]
    }

    /// The gangs that were packed, with what they need and their last CPUs.
    pub fn row(self) -> Vec<(JobId, &'a Demand, &'a mut CpuSet)> {
        let gang = |waiting: Waiting<'a>| match waiting.who {
            Who::Gang { id, job, in_row: true, .. } => {
                let Job { demand, last_cpus, .. } = job;
                demand.as_ref().ok().map(|demand| (id, demand, last_cpus))
            }
            _ => None,
        };
        self.tiers.into_iter().flat_map(|line| line.waiting).filter_map(gang).collect()
    }

    /// The gangs that were not, in the order of their turns.
    pub fn waiting(&self) -> Vec<JobId> {
        let gang = |waiting: &Waiting| match waiting.who {
            Who::Gang { id, in_row: false, .. } => Some(id),
            _ => None,
        };
        self.tiers.iter().flat_map(|line| &line.waiting).filter_map(gang).collect()
    }
}

/// How many CPUs a packed line uses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Packed {
    /// By gangs.
    pub taken: u32,
    /// Kept for the rest.
    pub kept: u32,
}

/// Packs a line onto `room` CPUs beside those that are seated, first fit. The rest takes what it
/// can use.
pub(crate) fn pack(line: &mut [Waiting], room: u32, seating: &mut Seating) -> Packed {
    let Packed { mut taken, mut kept } = Packed::default();
    for waiting in line {
        let left = room - taken - kept;
        match &mut waiting.who {
            Who::Gang { .. } if waiting.is_out => {}
            Who::Gang { width, job, in_row, .. } if *width <= left && seating.seat(job.parts()) => {
                taken += *width;
                *in_row = true;
            }
            Who::Gang { .. } => {}
            Who::Rest(rest) => kept = rest.threads.min(left),
        }
    }
    Packed { taken, kept }
}
