//! The lines in which jobs wait for their turns, one for each tier.
//!
//! A decision first lines up who can run, then packs line after line. The
//! lines borrow the jobs, so that what is decided is charged where it is kept.
//! The order within a line is `turn`'s.

use crate::allowed::Demand;
use crate::schedule::{Job, Readiness, Rest};
use crate::seating::Seating;
use crate::turn::{self, Tier, Turn};
use crate::{CpuSet, JobId, claim};
use std::collections::{BTreeMap, BTreeSet};

/// One who waits for a turn.
pub(crate) struct Waiting<'a> {
    pub who: Who<'a>,
    pub turn: Turn,
    /// Its user's cap has nothing left for it.
    pub is_out: bool,
    /// Entries alone keep it from contending in this slice.
    is_held: bool,
}

/// The CPUs that a tier would have if spanning jobs had none in this slice.
pub(crate) struct Whole {
    pub there: u32,
    pub seating: Seating,
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
    /// All of these do where `is_whole`: spanning jobs have no CPUs, and nobody is seated.
    fn can_lead(&self, there: u32, seating: &mut Seating, is_whole: bool) -> bool {
        let parts = match &self.who {
            Who::Gang { job, .. } => job.parts(),
            Who::Rest(_) => &[],
        };
        !self.is_out && self.least() <= there && (is_whole || seating.could_seat(parts))
    }

    /// One that is behind the floor starts there.
    pub fn raise_to_floor(&mut self, floor: u128) {
        match &mut self.who {
            Who::Gang { job, .. } => job.raise_to_floor(floor),
            Who::Rest(rest) => rest.vtime = rest.vtime.max(floor),
        }
    }

    pub fn vtime(&mut self) -> &mut u128 {
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
    /// others and these by deadline; then those who do not contend, by deadline. `whole` is given
    /// where spanning jobs have CPUs.
    pub fn order(&mut self, there: u32, seating: &mut Seating, whole: Option<Whole>) {
        // The rest, if it is here, leads on as many CPUs as there are.
        for waiting in &mut self.waiting {
            if let Who::Rest(rest) = &waiting.who {
                waiting.turn = rest.turn(there);
            }
        }
        self.sort();
        self.contending = self.waiting.len();
        let is_whole = seating.is_empty() && whole.is_none();
        let mut can_lead = |waiting: &Waiting| waiting.can_lead(there, seating, is_whole);
        if !self.waiting.iter().all(&mut can_lead) {
            let (contending, out): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(can_lead);
            self.contending = contending.len();
            self.waiting = contending;
            self.waiting.extend(out);
        }
        if let Some(Whole { there, mut seating }) = whole {
            for waiting in &mut self.waiting[self.contending..] {
                waiting.is_held = waiting.can_lead(there, &mut seating, false);
            }
        }
        turn::lead(&mut self.waiting[..self.contending], |waiting| waiting.turn);
    }

    /// After the slice is charged: bounds who is ahead, moves the floor, and
    /// raises those who did not contend to it. Those who are held keep their claims.
    pub fn advance_floor(&mut self, floor: &mut u128, left: Option<claim::Left>) {
        let longest = self.waiting.iter().map(|waiting| waiting.turn.slices).max().unwrap_or(1);
        let (contending, out) = self.waiting.split_at_mut(self.contending);
        let vtimes = contending.iter_mut().map(|waiting| {
            let request = waiting.turn.request();
            (waiting.vtime(), request)
        });
        *floor = turn::advance_floor(vtimes.collect(), *floor);
        let (held, out): (Vec<_>, Vec<_>) = out.iter_mut().partition(|waiting| waiting.is_held);
        out.into_iter().for_each(|waiting| waiting.raise_to_floor(*floor));
        if let Some(left) = left.filter(|_| !held.is_empty()) {
            let contenders = claim::Vtimes::of(contending);
            claim::bound(held, left, contenders, *floor, longest);
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
    /// They have slots by entries. By id.
    pub spanning: Vec<JobId>,
}

impl<'a> Lines<'a> {
    /// Lines up those of `jobs` of whom `who` is true; some are `out` of allowances.
    pub fn new(
        jobs: &'a mut BTreeMap<JobId, Job>,
        who: impl Fn(JobId) -> bool,
        out: &BTreeSet<JobId>,
    ) -> Lines<'a> {
        let mut lines = Lines {
            tiers: Default::default(),
            too_wide: Vec::new(),
            suspended: Vec::new(),
            spanning: Vec::new(),
        };
        for (&id, job) in jobs.iter_mut().filter(|(id, _)| who(**id)) {
            match job.readiness() {
                Readiness::Runnable if job.is_spanning() => lines.spanning.push(id),
                Readiness::Runnable => {
                    let turn = job.turn(id);
                    let line = lines.of(job.tier);
                    let who = Who::Gang { id, width: job.width(), job, in_row: false };
                    let is_out = out.contains(&id);
                    line.waiting.push(Waiting { who, turn, is_out, is_held: false });
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
                is_held: false,
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

    /// The gangs that were not, in the order of their turns; then jobs with entries.
    pub fn waiting(&self) -> Vec<JobId> {
        let gang = |waiting: &Waiting| match waiting.who {
            Who::Gang { id, in_row: false, .. } => Some(id),
            _ => None,
        };
        let local = self.tiers.iter().flat_map(|line| &line.waiting).filter_map(gang);
        local.chain(self.spanning.iter().copied()).collect()
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
