//! Claims: turns of those that the entries of a slice keep out.
//!
//! Problem. A wide gang does not fit beside the slots of spanning jobs. If it began at the floor
//! after each slice that keeps it out, it would lose its share to narrow ones. If its virtual time
//! stood still without bound, it would keep others out for long once the entries are gone.
//!
//! Approach. It keeps its virtual time, and so leads in the slices that have room for it. It saves
//! up no more than it can use: as much as its rows come later than if they were spread evenly.
//!
//! Terms:
//! - *held*: one that could lead its tier in this slice but for entries.
//! - *rows of a gang*: those with room for it (`entries`). *group*: those with the same rows.
//! - *claim*: how far one is behind others.
//!
//! Algorithm. Let a gang have r of F rows. Its share can be met if it is r/F at most. In each
//! stretch of slices its claim grows by no more than its part of an even spread, less the rows of
//! the stretch. The greatest such difference, and a request of the tier, is as far as a group may
//! be behind its average with others. Let L be so many slices, V the average of the others, W their
//! weight and w that of the group. A gang with the stride s may then be at V − s·L·(W + w)/W. Gangs
//! that ran in its place are ahead for a while. That counts for nothing: it may also be s·L behind
//! the least of the others.
//!
//! Groups are gone through from those with many rows to those with few. The others are the
//! contenders of the slice, and each group before that has some of the same rows; the least bound
//! holds. A group moves up with those groups. Where all of it is further behind than it may be, it
//! moves up, and all of it by as much. The order of gangs that compete for the same rows stays
//! thereby, and so do their shares. A group without rows begins at the floor, as those that do not
//! fit beside a tier.
//!
//! Properties (tests/policy/shares.rs): of gangs of which no two fit side by side, each is at every
//! moment within two requests, and the slices by which its rows come late, of its share of all
//! slices, where that is no more than its rows; gangs that are due more than their rows have all of
//! them, shared by weight; a gang that fits in no row saves up nothing.

use std::borrow::BorrowMut;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::CpuSet;
use crate::entries::{List, fits};
use crate::line::{Waiting, Who};
use crate::matrix::Rows;
use crate::turn::{self, Turn};

/// The CPUs that are online and that the rows of a list leave.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub list: &'a List,
    pub online: &'a CpuSet,
}

impl Left<'_> {
    fn rows(&self, waiting: &Waiting) -> Rows {
        self.list.rows_with(self.online, |left| match &waiting.who {
            Who::Gang { job, .. } => fits(job, left),
            Who::Rest(_) => !left.is_empty(),
        })
    }
}

/// Of some who take turns: their least and average virtual time, and their weight.
#[derive(Clone, Copy)]
pub(crate) struct Vtimes {
    least: u128,
    average: u128,
    weight: u128,
}

impl Vtimes {
    pub fn of<'a>(all: &mut [impl BorrowMut<Waiting<'a>>]) -> Option<Vtimes> {
        let turn = |it: &mut _| {
            let waiting: &mut Waiting<'a> = BorrowMut::borrow_mut(it);
            Turn { vtime: *waiting.vtime(), ..waiting.turn }
        };
        let turns: Vec<Turn> = all.iter_mut().map(turn).collect();
        let weight = turns.iter().map(|turn| turn.weight).sum();
        let least = turns.iter().map(|turn| turn.vtime).min()?;
        Some(Vtimes { least, average: turn::average(&turns)?, weight })
    }

    /// The least virtual time of one with this turn, in a group of some weight that may be behind
    /// by so many slices.
    fn bound(&self, turn: &Turn, group: u128, slices: u128) -> u128 {
        let slices = turn.stride * slices;
        let more = slices.saturating_mul(group) / self.weight;
        let below_average = self.average.saturating_sub(slices.saturating_add(more));
        below_average.min(self.least.saturating_sub(slices))
    }
}

/// A group that was gone through.
struct Moved {
    rows: Rows,
    by: u128,
    vtimes: Vtimes,
}

/// Bounds the claims of those that are held beside contenders. The longest request is of so many
/// slices.
pub(crate) fn bound(
    held: Vec<&mut Waiting>,
    left: Left,
    contenders: Option<Vtimes>,
    floor: u128,
    longest: u32,
) {
    let mut groups: BTreeMap<(Reverse<u32>, Rows), Vec<&mut Waiting>> = BTreeMap::new();
    for waiting in held {
        let rows = left.rows(waiting);
        groups.entry((Reverse(rows.len()), rows)).or_default().push(waiting);
    }
    let mut before: Vec<Moved> = Vec::new();
    for ((_, rows), mut group) in groups {
        if rows.is_empty() {
            group.iter_mut().for_each(|it| it.raise_to_floor(floor));
            continue;
        }
        let slices = u128::from(left.list.unevenness(&rows) + longest);
        let weight = group.iter().map(|it| it.turn.weight).sum();
        let rivals = || before.iter().filter(|it| !it.rows.is_disjoint(&rows));
        let along = rivals().map(|it| it.by).max().unwrap_or(0);
        let behind = |it: &mut &mut Waiting| {
            let others = contenders.into_iter().chain(rivals().map(|it| it.vtimes));
            let bounds = others.map(|others| others.bound(&it.turn, weight, slices));
            bounds.min().unwrap_or(0).saturating_sub(*it.vtime())
        };
        let by = along.max(group.iter_mut().map(behind).min().unwrap_or(0));
        group.iter_mut().for_each(|waiting| *waiting.vtime() += by);
        if let Some(vtimes) = Vtimes::of(&mut group) {
            before.push(Moved { rows, by, vtimes });
        }
    }
}
